"""Conditions that say where each point goes: `sum[i](x[i] where p[i] == n)`, for every `n`, or `x[i] where p[i] == n`
at every `i` and `n`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..ir.elimination import solved, within
from ..ir.functions import operation
from ..ir.prove import Assumptions
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, substitute, walk
from ..records import dataclass

# The lower and upper bounds of coordinates: expressions free of coordinates that are not stepped.
Bounds = Mapping[Coordinate, tuple[ir.Expr, ir.Expr]]


@dataclass(frozen=True, slots=True)
class Scatter:
    """`sum[moved, rest](body where guard)`, of which every point is added at one place for each of `targets`.

    `guard` and `inner` are the conditions that must all hold, in the order of evaluation, none of which mentions a
    target; only those of `inner` mention what is bound by `rest`. `values` are the places, and `present` says of each
    that it is there. Where nothing is bound, no two points have the same place.
    """

    values: Mapping[Coordinate, ir.Expr]
    moved: tuple[ir.Range, ...]
    rest: tuple[ir.Range, ...]
    guard: tuple[ir.Expr, ...]
    inner: tuple[ir.Expr, ...]
    present: tuple[ir.Expr, ...]
    body: ir.Expr

    @property
    def targets(self) -> tuple[Coordinate, ...]:
        return tuple(self.values)


def find(expr: ir.Reduce, bounds: Bounds) -> Scatter | str | None:
    """The sum as a scatter-add along some of the coordinates that have bounds; why it is none, where it looks like
    one; None for any other. Under a sum over nothing, a place is read from an array: all else is a view."""
    if expr.op != "sum" or expr.guard is None:
        return None
    bound = expr.coordinates or expr.guard.type.coordinates
    values: dict[Coordinate, ir.Expr] = {}
    found: list[ir.Expr] = []
    present: list[ir.Expr] = []
    reason: str | None = None
    try:
        for condition in conjuncts_of(expr.guard):
            condition = substitute(condition, values)
            place = solve(condition, set(bounds) - set(values), bound)
            if place is None or any(place[0] in value.type.coordinates for value in values.values()):
                found.append(condition)
                continue
            if not expr.ranges and not is_read(place[1]):
                found.append(condition)
                continue
            target, value = place
            apart = [c for c in found if target not in c.type.coordinates and is_total(c)]
            there = _is_there(value, expr.ranges, apart)
            found = apart + [c for c in found if c not in apart] if there else found
            sure = there or is_total(value)
            first = next((n for n, c in enumerate(found) if target in c.type.coordinates), len(found))
            obstacle = _obstacle(target, value, sure or first == len(found), expr)
            if obstacle is not None:
                found.append(condition)
                reason = obstacle
                continue
            values[target] = value
            present.append(falls_within(value, *bounds[target]))
            found[first:] = [present[-1], *(substitute(c, {target: value}) for c in found[first:])]
        return _taken_apart(expr, values, found, present) if values else reason
    except Inexpressible:
        return "a normaliser runs along what is scattered to"


def solve(
    condition: ir.Expr, targets: Collection[Coordinate], bound: Collection[Coordinate]
) -> tuple[Coordinate, ir.Expr] | None:
    """A condition as `target == place`, where the place varies with something bound, and not with the target. One that
    stands alone on a side comes first."""
    sides = condition.arguments if isinstance(condition, ir.Map) else ()
    alone = {side.coordinate for side in sides if isinstance(side, ir.Coord)}
    for target in sorted(condition.type.coordinates & set(targets), key=lambda target: (target not in alone, target)):
        place = solved(condition, target)
        if place is not None and not place.type.coordinates.isdisjoint(bound):
            return target, place
    return None


def _obstacle(target: Coordinate, value: ir.Expr, sure: bool, expr: ir.Reduce) -> str | None:
    """Why nothing can be scattered to a coordinate. `sure` are places that can be looked at anywhere."""
    for range in expr.ranges:
        if target in range.depends_on:
            return f"the range of `{range.coordinate}` depends on `{target}`"
    if not sure:
        return f"where `{shown(value)}` may be looked at depends on `{target}`"
    return None


def _is_there(value: ir.Expr, ranges: tuple[ir.Range, ...], held: list[ir.Expr]) -> bool:
    """Whether a place of the largest among points up to one that is summed over is there, since that is one of them,
    where all that is `held` is so."""
    if not isinstance(value, ir.Reduce) or value.op not in ("argmax", "argmin") or len(value.ranges) > 1:
        return False
    own, conditions = value.ranges[0], conjuncts_of(value.guard)
    if not all(map(is_total, (value.body, *conditions))):
        return False
    known = Assumptions()
    for condition in held:
        known = known.assuming(condition)
    same = [range for range in ranges if (range.lower, range.upper) == (own.lower, own.upper)]
    points = [{own.coordinate: build.coord(range.coordinate, value.span)} for range in same]
    return any(all(known.proves(substitute(condition, at)) for condition in conditions) for at in points)


def falls_within(value: ir.Expr, start: ir.Expr, stop: ir.Expr) -> ir.Expr:
    """The condition that a place is in bounds."""
    return build.apply("&&", within(value, start, stop), "bool", value.span)


def _taken_apart(
    expr: ir.Reduce, values: dict[Coordinate, ir.Expr], conditions: list[ir.Expr], present: list[ir.Expr]
) -> Scatter:
    """Separate the coordinates that the places depend on, which are scattered, from those that are summed before."""
    bound = {range.coordinate: range for range in expr.ranges}
    moved = {c for value in values.values() for c in value.type.coordinates if c in bound}
    waiting = list(moved)
    while waiting:
        range = bound[waiting.pop()]
        more = range.depends_on & bound.keys() - moved
        moved |= more
        waiting += more
    outer: list[ir.Expr] = []
    inner: list[ir.Expr] = []
    for condition in conditions:
        late = inner and not is_total(condition)
        (inner if condition.type.coordinates & (bound.keys() - moved) or late else outer).append(condition)
    if any(not is_total(value) for value in values.values()) and inner:
        # A place that is not defined everywhere is computed only where all conditions before it hold.
        moved, outer, inner = set(bound), conditions, []
    return Scatter(
        values,
        tuple(range for range in expr.ranges if range.coordinate in moved),
        tuple(range for range in expr.ranges if range.coordinate not in moved),
        tuple(outer),
        tuple(inner),
        tuple(present),
        substitute(expr.body, values),
    )


def is_read(value: ir.Expr) -> bool:
    """Whether a place is read from an array."""
    return any(isinstance(part, ir.Read) and part.indices for part in walk(value))


def is_bare(read: ir.Read) -> bool:
    """Whether a tensor is read at coordinates alone."""
    return all(isinstance(index, ir.Coord) for index in read.indices)


def is_total(expr: ir.Expr, is_inside: Callable[[ir.Read], bool] = is_bare) -> bool:
    """Whether an expression has a value at every point, without a check: what it reads `is_inside` its axes."""
    return all(is_inside(part) if isinstance(part, ir.Read) else _is_total(part) for part in walk(expr))


def _is_total(expr: ir.Expr) -> bool:
    match expr:
        case ir.Map("//" | "%", (_, by)):
            return isinstance(by, ir.Const) and by.value != 0
        case ir.Map(op):
            return operation(op).total
        case ir.Const() | ir.Size() | ir.Coord():
            return True
        case _:
            return False
