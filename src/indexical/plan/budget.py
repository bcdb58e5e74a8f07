"""Memory as a budget: which paragraphs of an emitted function are kept for the way back, and which computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from ..records import dataclass

# Paragraphs from one up to another, which are computed again on the way back.
Segment = tuple[int, int]

# So many sizes of segments are tried, and so many prices of a byte that is kept.
_SIZES, _PRICES = 8, 12


@dataclass
class Place:
    """A paragraph as it was rehearsed: the storages that autograd `kept` of it; the most bytes beside those of all that
    was kept so far, while it ran (`there`) and on the way `back`; its `work`, in bytes that are moved; the storages of
    the variables before it (`arrays`), and the variables that are neither arrays nor numbers (`odd`)."""

    kept: set[int] = field(default_factory=set)
    there: int = 0
    back: int = 0
    work: float = 0.0
    arrays: dict[str, int] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Trace:
    """A rehearsal: its paragraphs, the bytes of every storage and the paragraph that made it, the most bytes that there
    were at once beside the inputs, and the bytes of these."""

    places: tuple[Place, ...]
    sizes: Mapping[int, int]
    born: Mapping[int, int]
    peak: int
    inputs: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Segments, the most bytes that there should be at once with them, and the work that is done twice."""

    segments: tuple[Segment, ...]
    peak: int
    work: float


@dataclass(frozen=True, slots=True)
class Held:
    """A definition, and the bytes that are kept of it for the way back."""

    definition: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Definitions that are computed again together, the bytes that are not kept of them, and their share of the work of
    the whole way there."""

    definitions: tuple[str, ...]
    bytes: int
    share: float


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of a call: the `limit` it was given, the `peak` that it reaches, and the one that it would reach with
    nothing computed again (`whole`), all beside its `inputs`. Where it `learns`, the way back is part of it. Blocks of
    rows that are smaller than usual have a `room` of so many points, and are not kept."""

    limit: int
    peak: int
    whole: int
    inputs: int
    learns: bool
    kept: tuple[Held, ...] = ()
    again: tuple[Repeated, ...] = ()
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """All that a choice depends on: a rehearsal of the whole function, the names that each paragraph reads, and those
    that have a value before it and are read from it on (`across`); None where the function cannot be cut there."""

    trace: Trace
    reads: Sequence[frozenset[str]]
    across: Sequence[frozenset[str] | None]

    def boundary(self, segment: Segment) -> set[int]:
        """The storages that a segment is computed from again."""
        start, stop = segment
        read = frozenset[str]().union(*self.reads[start:stop])
        arrays = self.trace.places[start].arrays
        return {arrays[name] for name in (self.across[start] or frozenset()) & read if name in arrays}

    def held(self, segments: Sequence[Segment]) -> set[int]:
        """The storages that are kept for the way back."""
        return set().union(*(kept for _, _, kept in self._steps(segments)))

    def _steps(self, segments: Sequence[Segment]) -> Iterator[tuple[int, int, set[int]]]:
        """The paragraphs one by one, or as segments, with the storages that stay when they have run."""
        at = 0
        for start, stop in (*segments, (len(self.reads), len(self.reads))):
            for n in range(at, start):
                yield n, n + 1, self.trace.places[n].kept
            if start < stop:
                yield start, stop, self.boundary((start, stop))
            at = stop

    def choice(self, segments: Sequence[Segment]) -> Choice:
        """The segments with the bytes and the work that they should take."""
        places, sizes = self.trace.places, self.trace.sizes
        held: set[int] = set()
        total = peak = 0
        for start, stop, kept in self._steps(segments):
            total += sum(sizes[one] for one in kept - held)
            held |= kept
            inner, inside = 0, set[int]()
            for n in range(start, stop):
                new = places[n].kept - held - inside
                inner += sum(sizes[one] for one in new)
                inside |= new
                peak = max(peak, total + inner + max(places[n].there, places[n].back))
        work = sum(places[n].work for start, stop in segments for n in range(start, stop))
        return Choice(tuple(segments), peak, work)


def choices(outline: Outline) -> list[Choice]:
    """Ways to save memory, each the one of least work for a price of the bytes that are kept and for segments up to a
    size; the cheapest first."""
    trace = outline.trace
    count = len(trace.places)
    seen: set[int] = set()
    kept = np.zeros(count)
    for n, place in enumerate(trace.places):
        kept[n] = sum(trace.sizes[one] for one in place.kept - seen)
        seen |= place.kept
    work = np.array([place.work for place in trace.places])
    total, effort = max(kept.sum(), 1.0), max(work.sum(), 1.0)
    needed = _needed(outline)
    found: dict[tuple[Segment, ...], Choice] = {}
    for size in np.geomspace(max(kept.max(), total / count), total, _SIZES):
        for price in np.geomspace(0.02, 50.0, _PRICES) * effort / total:
            segments = _cheapest(kept, work, needed, float(size) * 1.001, float(price))
            if segments not in found:
                found[segments] = outline.choice(segments)
    found.setdefault((), outline.choice(()))
    return sorted(found.values(), key=lambda choice: (choice.work, choice.peak))


def _needed(outline: Outline) -> np.ndarray:
    """The bytes that a segment from a paragraph (row) up to another (column) is computed from; infinite where there
    cannot be one."""
    trace = outline.trace
    count = len(trace.places)
    needed = np.full((count, count + 1), np.inf)
    allowed = np.array([is_cut(outline, n) for n in range(count)] + [False])
    for start in range(1, count):
        if not allowed[start]:
            continue
        arrays, names = trace.places[start].arrays, set(outline.across[start] or ())
        total, held = 0.0, set[int]()
        for stop in range(start + 1, count):
            read = names & outline.reads[stop - 1]
            names -= read
            new = {arrays[name] for name in read if name in arrays} - held
            total += sum(trace.sizes[one] for one in new)
            held |= new
            if allowed[stop]:
                needed[start, stop] = total
    return needed


def is_cut(outline: Outline, place: int) -> bool:
    """Whether the function can be cut before a paragraph: arrays and numbers alone go across."""
    across = outline.across[place]
    return place > 0 and across is not None and not across & outline.trace.places[place].odd


def _cheapest(
    kept: np.ndarray, work: np.ndarray, needed: np.ndarray, size: float, price: float
) -> tuple[Segment, ...]:
    """The segments of at most a size for which the work that is done twice and the price of all that is kept are least
    in all."""
    count = len(kept)
    sums = np.concatenate([[0.0], np.cumsum(kept)])
    works = np.concatenate([[0.0], np.cumsum(work)])
    best = np.zeros(count + 1)
    origin = np.zeros(count + 1, dtype=int)
    for stop in range(1, count + 1):
        best[stop], origin[stop] = best[stop - 1] + price * kept[stop - 1], -1
        first = int(np.searchsorted(sums, sums[stop] - size))
        if first < stop:
            costs = best[first:stop] + price * needed[first:stop, stop] + (works[stop] - works[first:stop])
            least = int(np.argmin(costs))
            if costs[least] < best[stop]:
                best[stop], origin[stop] = costs[least], first + least
    segments: list[Segment] = []
    stop = count
    while stop > 0:
        if origin[stop] >= 0:
            segments.append((int(origin[stop]), stop))
            stop = int(origin[stop])
        else:
            stop -= 1
    return tuple(reversed(segments))


def relaxed(outline: Outline, choice: Choice, limit: int) -> Choice:
    """A choice that keeps what still fits under the limit: segments that save much work for few bytes first, the later
    of two alike, which are given back sooner."""
    segments = list(choice.segments)
    sizes, places = outline.trace.sizes, outline.trace.places

    def gain(segment: Segment) -> float:
        inside = set[int]().union(*(places[n].kept for n in range(*segment))) - outline.boundary(segment)
        return sum(places[n].work for n in range(*segment)) / (1 + sum(sizes[one] for one in inside))

    for segment in sorted(segments, key=lambda one: (gain(one), one[0]), reverse=True):
        without = outline.choice([one for one in segments if one != segment])
        if without.peak <= limit:
            segments.remove(segment)
            choice = without
    return choice
