"""The cost of what is heard: multiply-adds of a program at the points that its results ask for, and at no others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from indexical.facts.cost import work
from indexical.facts.dependence import evaluated
from indexical.facts.view import View
from indexical.ir import build, whole
from indexical.ir import nodes as ir
from indexical.ir.conditions import conjuncts_of, fails
from indexical.ir.context import Trail
from indexical.ir.types import Coordinate
from indexical.ir.walk import substitute

Sizes = Callable[[int], whole.Lookup]
# How much of a box is heard is found for the first so many positions of which it has no more points than this, and
# falls from there as it did up to there, from a quarter of them.
POSITIONS = (1024, 128, 32)
MOST = 1 << 21


def needs(view: View) -> dict[str, tuple[ir.Expr, ...]]:
    """The conditions under which the points of each definition are read, those that all its readers share."""
    found: dict[str, list[dict[ir.Expr, None]]] = {}
    for let in reversed(view.program.lets):
        own = _shared(found.get(let.name, []))
        for clause in let.clauses:
            for expr, trail in evaluated(clause, view.lets):
                if isinstance(expr, ir.Read) and expr.tensor in view.lets and expr.tensor != let.name:
                    held = _conditions(trail) | {_at(let, clause, one): None for one in own}
                    found.setdefault(expr.tensor, []).append(_for_reader(view.lets[expr.tensor], expr, held))
    asked = {*view.program.outputs, *view.program.recurrent}
    return {name: () if name in asked else _shared(reads) for name, reads in found.items()}


def _conditions(trail: Trail) -> dict[ir.Expr, None]:
    held = [step[0] if step[1] else fails(step[0]) for step in trail if not isinstance(step, ir.Range)]
    return {fact: None for one in held for fact in conjuncts_of(one)}


def _shared(reads: list[dict[ir.Expr, None]]) -> tuple[ir.Expr, ...]:
    return tuple(one for one in reads[0] if all(one in other for other in reads)) if reads else ()


def _at(let: ir.Let, clause: ir.Clause, condition: ir.Expr) -> ir.Expr:
    """A condition on the axes of a definition, in the coordinates of one clause."""
    slots = zip(let.axes, clause.slots, strict=True)
    return substitute(condition, {axis.coordinate: slot for axis, slot in slots})


def _for_reader(let: ir.Let, read: ir.Read, held: dict[ir.Expr, None]) -> dict[ir.Expr, None]:
    """The conditions on a read that can be told of the axes of what is read."""
    names: dict[Coordinate, ir.Expr] = {}
    for axis, index in zip(let.axes, read.indices, strict=True):
        if isinstance(index, ir.Coord):
            names[index.coordinate] = build.coord(axis.coordinate, read.span)
    return {
        substitute(one, names): None for one in held if one.type.coordinates and one.type.coordinates <= names.keys()
    }


# --------------------------------------------------------------------- counting


@dataclass(frozen=True)
class Cost:
    """The multiply-adds of a program that are heard, for any number of positions."""

    view: View
    sizes: Sizes
    known: dict[tuple[object, ...], float] = field(default_factory=dict)

    def at(self, positions: int) -> int:
        return sum(self.of_trail(trail, positions) for trail in self.trails)

    @cached_property
    def trails(self) -> list[Trail]:
        asked = needs(self.view)
        result: list[Trail] = []
        for let in self.view.program.lets:
            own = asked.get(let.name, ()) if len(let.clauses) == 1 else ()
            held = [(_at(let, let.clauses[0], one), True) for one in own]
            for trail in work(self.view, let).trails:
                there = {step.coordinate for step in trail if isinstance(step, ir.Range)}
                result.append((*trail, *(one for one in held if one[0].type.coordinates <= there)))
        return result

    def of_trail(self, trail: Trail, positions: int) -> int:
        ranges = [step for step in trail if isinstance(step, ir.Range)]
        bounds = [c for range in ranges if range.depends_on for c in _bounds(range)]
        conditions = [*_conditions(trail), *bounds]
        dense = math.prod(_length(range, self.sizes(positions), ranges) for range in ranges)
        for group in _groups([range.coordinate for range in ranges], conditions):
            held = tuple(one for one in conditions if one.type.coordinates & set(group))
            if held:
                dense *= self.share(tuple(range for range in ranges if range.coordinate in group), held, positions)
        return round(dense)

    def share(self, inside: tuple[ir.Range, ...], held: tuple[ir.Expr, ...], positions: int) -> float:
        """The part of a box in which conditions hold."""
        boxes = [(n, math.prod(_length(range, self.sizes(n), inside) for range in inside)) for n in POSITIONS]
        large = next(n for n, points in boxes if points <= MOST or n == POSITIONS[-1])
        found = self.counted(inside, held, large)
        if positions == large or not found:
            return found
        power = round(math.log2(self.counted(inside, held, large // 4) / found)) / 2
        return found * (large / positions) ** power

    def counted(self, inside: tuple[ir.Range, ...], held: tuple[ir.Expr, ...], positions: int) -> float:
        """The same, found by looking; conditions that depend on data are taken to hold."""
        key = (inside, held, positions)
        if key not in self.known:
            lookup = self.sizes(positions)
            lengths = [_length(range, lookup, inside) for range in inside]
            starts = [0 if range.depends_on else whole.value(range.lower, lookup) for range in inside]
            axes = np.ogrid[tuple(slice(start, start + n) for start, n in zip(starts, lengths, strict=True))]
            points = {range.coordinate: axis for range, axis in zip(inside, axes, strict=True)}
            kept = np.ones((1,) * len(lengths), bool)
            for condition in held:
                try:
                    kept = kept & evaluate(condition, points, lookup)
                except whole.Unknown:
                    continue
            self.known[key] = float(np.broadcast_to(kept, lengths).mean())
        return self.known[key]


def _bounds(range: ir.Range) -> list[ir.Expr]:
    here = build.coord(range.coordinate, range.span)
    low = build.apply("<=", (range.lower, here), "bool", range.span)
    return [low, build.apply("<", (here, range.upper), "bool", range.span)]


def _length(range: ir.Range, lookup: whole.Lookup, ranges: Any) -> int:
    """The number of points of a range; one that depends on others is as long as they may make it."""
    if not range.depends_on:
        return max(0, whole.value(range.upper, lookup) - whole.value(range.lower, lookup))
    ends = {other.coordinate: other.upper for other in ranges if not other.depends_on}
    return max(0, whole.value(substitute(range.upper, ends), lookup))


def _groups(coordinates: list[Coordinate], conditions: list[ir.Expr]) -> list[set[Coordinate]]:
    groups: list[set[Coordinate]] = [{c} for c in dict.fromkeys(coordinates)]
    for condition in conditions:
        touched = [group for group in groups if group & condition.type.coordinates]
        groups = [group for group in groups if group not in touched]
        groups += [set().union(*touched)] if touched else []
    return groups


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": lambda a, b: np.trunc(a / np.where(b == 0, 1, b)).astype(int),
    "%": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "clamp": np.clip,
    "**": np.power,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
    "!": np.logical_not,
}


def evaluate(expr: ir.Expr, points: Mapping[Coordinate, Any], lookup: whole.Lookup) -> Any:
    """A condition, or a whole number, at all points of a grid."""
    match expr:
        case ir.Const(value):
            return value if isinstance(value, bool) else int(value)
        case ir.Coord(coordinate):
            return points[coordinate]
        case ir.Size():
            return lookup(expr)
        case ir.Read(indices=()):
            return lookup(expr)
        case ir.Map(op, arguments) if op in _OPERATIONS:
            return _OPERATIONS[op](*(evaluate(argument, points, lookup) for argument in arguments))
        case ir.Reduce("any", (range,), body, None) if not range.depends_on:
            first, end = whole.value(range.lower, lookup), whole.value(range.upper, lookup)
            each = [evaluate(body, {**points, range.coordinate: np.int64(n)}, lookup) for n in np.arange(first, end)]
            return np.logical_or.reduce(np.broadcast_arrays(*each))
        case ir.Select(condition, then, otherwise):
            return np.where(*(evaluate(part, points, lookup) for part in (condition, then, otherwise)))
        case _:
            raise whole.Unknown
