"""Sizes that may differ: which axes of the arguments move together, found by running the callable on others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement
from math import prod
from typing import Any

from ..ir.affine import Polynomial, number
from .indices import Extent, atom
from .recording import Recording, Unrunnable
from .values import Scale

# An axis of an argument: which argument, and which of its axes.
Place = tuple[int, int]

_RUNS = 4
_SMALL = (2, 3, 5, 4, 6)
_TURNS = (0, 3, 7, 8)
# Small, so that many runs take no time; no two axes have the same sizes in all runs.
_SIZES = (3, 5, 7, 4, 6, 9, 8, 11, 10, 13, 12, 14)


@dataclass(frozen=True, slots=True)
class Group:
    """Axes that move together: each is so many times the extent."""

    extent: Extent
    times: dict[Place, int] = field(hash=False)


Run = Callable[[list[tuple[int, ...]], int], Recording]


# Sizes to try: any, even ones, multiples of those in the example.
LEVELS = (0, 1, 2)


def find_groups(
    shapes: Sequence[tuple[int, ...]], base: Recording, run: Run, level: int
) -> tuple[list[Group], list[Recording]]:
    """The groups of axes that the callable lets move, and recordings in which they all differ; `base` is the run on
    the example. An axis that does not move, or changes what is done, stays as long as it is in the example."""
    groups: list[Group] = []
    current = [list(shapes) for _ in range(_RUNS)]
    recordings = [base]
    structure = base.structure
    assigned: set[Place] = set()
    order = sorted(((place, n) for place, n in _places(shapes)), key=lambda item: (item[1] == 1, item[0]))
    for place, size in order:
        if place in assigned:
            continue
        for times, sizes in _attempts(place, size, shapes, assigned, len(groups), level):
            trial = [[list(shape) for shape in shapes_now] for shapes_now in current]
            for (argument, axis), factor in times.items():
                for r in range(_RUNS):
                    trial[r][argument][axis] = factor * sizes[r]
            fixed = [[tuple(shape) for shape in shapes_now] for shapes_now in trial]
            if any(group.extent.sizes == sizes for group in groups):
                continue
            found = _runs(fixed, run, structure if size > 1 else None)
            if found is None or not _follows(base, recordings[0], found[0], size, times[place] * sizes[0]):
                continue
            groups.append(Group(Extent(sizes), times))
            current = fixed
            recordings = found
            structure = found[0].structure
            assigned |= set(times)
            break
    return groups, recordings


def _runs(shapes: list[list[tuple[int, ...]]], run: Run, structure: Any) -> list[Recording] | None:
    found: list[Recording] = []
    for number_of_run, wanted in enumerate(shapes):
        try:
            found.append(run(wanted, number_of_run))
        except Unrunnable:
            return None
        if structure is not None and found[-1].structure != structure:
            return None
        structure = found[-1].structure
    return found


def _follows(base: Recording, before: Recording, after: Recording, old: int, new: int) -> bool:
    """Whether every axis that moved with an axis is a multiple or a part of it in the example, or longer by as much.
    One that is not took the points of an axis that the callable holds fast: `x.view(2, -1)` takes any rows."""
    for at_first, one, other in zip(base.tensors, before.tensors, after.tensors, strict=False):
        if not len(at_first.shape) == len(one.shape) == len(other.shape):
            return False
        for size, first, second in zip(at_first.shape, one.shape, other.shape, strict=True):
            scaled = second * old == first * new and (size % old == 0 or old % max(size, 1) == 0)
            if first != second and not scaled and abs(second - first) not in (abs(new - old), 2 * abs(new - old)):
                return False
    return True


def _places(shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[Place, int]]:
    for argument, shape in enumerate(shapes):
        for axis, size in enumerate(shape):
            yield (argument, axis), size


def _attempts(
    place: Place, size: int, shapes: Sequence[tuple[int, ...]], assigned: set[Place], index: int, level: int
) -> Iterator[tuple[dict[Place, int], tuple[int, ...]]]:
    """The axes that may move with one, each with the sizes to try: any, even numbers, multiples, less."""
    free = {p: n for p, n in _places(shapes) if p not in assigned and p != place}
    same = [p for p, n in free.items() if n == size]
    groups: list[dict[Place, int]] = []

    def put(others: Sequence[Place], scaled: dict[Place, int] | None = None) -> None:
        times = {place: 1, **dict.fromkeys(others, 1), **(scaled or {})}
        if times not in groups:
            groups.append(times)

    aligned = [p for p in same if p[1] == place[1] and p[0] != place[0]]
    if size == 1:
        put(aligned)
    else:
        put([])
        for other in sorted(same, key=lambda p: p not in aligned):
            put([other])
        put(aligned)
        beside = [p for p in same if p[0] != place[0]]
        for left in reversed(beside):
            put([p for p in beside if p != left])
        put(beside)
        put(same)
        multiples = {p: n // size for p, n in free.items() if n > size and n % size == 0}
        if multiples and len(multiples) < 8:
            put(same, multiples)
            put(aligned, multiples)
    rotated = [_SIZES[(index + _TURNS[run]) % len(_SIZES)] for run in range(_RUNS)]
    if level == 0:
        for times in groups:
            yield times, tuple(rotated)
    if level < 2:
        for times in groups:
            yield {p: 2 * t for p, t in times.items()}, tuple(rotated)
    if size > 1:
        for times in groups:
            yield {p: size * t for p, t in times.items()}, tuple(_SMALL[(index + run) % 5] for run in range(_RUNS))
        for times in groups:
            if size > 5 and level == 0:
                yield times, (size - 1, size - 2, size - 3, size - 1)


# ------------------------------------------------------------------------------------- numbers as sizes


@dataclass(slots=True)
class Fit:
    """The expression of sizes that a number of several runs is."""

    extents: tuple[Extent, ...]
    derived: dict[Extent, Polynomial] = field(default_factory=dict)
    _known: dict[tuple[int, ...], Polynomial | None] = field(default_factory=dict)

    def whole(self, values: tuple[int, ...]) -> Polynomial | None:
        """The polynomial that has these values; None where none was found."""
        if len(set(values)) == 1:
            return number(values[0])
        if values not in self._known:
            self._known[values] = self._monomial(values) or self._sum(values)
        return self._known[values]

    def extent(self, values: tuple[int, ...]) -> Polynomial | None:
        """The same with one term alone: a sum becomes an extent of its own."""
        found = self.whole(values)
        if found is None or len(found.terms) < 2:
            return found
        extent = Extent(values, free=False)
        self.derived[extent] = found
        return atom(extent)

    def _products(self, most: int) -> Iterator[tuple[Polynomial, tuple[int, ...]]]:
        for count in range(1, most + 1):
            for chosen in combinations_with_replacement(self.extents, count):
                value = number(1)
                for extent in chosen:
                    value = value * atom(extent)
                yield value, tuple(prod(sizes) for sizes in zip(*(extent.sizes for extent in chosen), strict=True))

    def _monomial(self, values: tuple[int, ...]) -> Polynomial | None:
        for value, sizes in self._products(4):
            if all(v % s == 0 for v, s in zip(values, sizes, strict=True)):
                ratios = {v // s for v, s in zip(values, sizes, strict=True)}
                if len(ratios) == 1:
                    return value * number(ratios.pop())
        return None

    def _sum(self, values: tuple[int, ...]) -> Polynomial | None:
        products = list(self._products(2))
        for value, sizes in products:
            if sizes[0] == sizes[1]:
                continue
            slope, odd = divmod(values[1] - values[0], sizes[1] - sizes[0])
            rest = {v - slope * s for v, s in zip(values, sizes, strict=True)}
            if not odd and 0 < abs(slope) < 4 and len(rest) == 1:
                return value * number(slope) + rest.pop()
        for (one, first), (two, second) in combinations(products, 2):
            for sign in (1, -1):
                rest = {v - a - sign * b for v, a, b in zip(values, first, second, strict=True)}
                if len(rest) == 1:
                    return one + two * number(sign) + rest.pop()
                rest = {v + a - b for v, a, b in zip(values, first, second, strict=True)}
                if len(rest) == 1:
                    return two - one + rest.pop()
        return None

    def real(self, values: tuple[float, ...]) -> Scale | None:
        """The number that has these values: the same in all runs, or times a power of a size."""
        if len(set(values)) == 1:
            return Scale(values[0])
        if any(value == 0 or value != value or abs(value) == float("inf") for value in values):
            return None
        for extent in self.extents:
            for power in (-0.5, -1.0, 0.5, 1.0, -0.25, 0.25, 2.0, -2.0, -1.5):
                ratios = [v / s**power for v, s in zip(values, extent.sizes, strict=True)]
                if max(ratios) - min(ratios) <= 1e-6 * abs(ratios[0]):
                    factor = round(ratios[0], 9) if abs(ratios[0] - round(ratios[0], 6)) < 1e-6 else ratios[0]
                    return Scale(factor, ((extent, power),))
        for one, two in combinations(self.extents, 2):
            for power in (-0.5, -1.0, -0.25, 0.5, 1.0):
                ratios = [v / (a * b) ** power for v, a, b in zip(values, one.sizes, two.sizes, strict=True)]
                if max(ratios) - min(ratios) <= 1e-6 * abs(ratios[0]):
                    factor = 1.0 if abs(ratios[0] - 1) < 1e-6 else ratios[0]
                    return Scale(factor, ((one, power), (two, power)))
        return None
