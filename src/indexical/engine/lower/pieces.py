"""A choice by where a coordinate is: each side is computed at its own points alone, and the two are put together.

`if d < n { -x[d + n] } else { x[d - n] }` reads a half of `x` twice: it is two slices, and nothing is padded.
"""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.conditions import MIRRORED
from ...ir.types import Coordinate
from ...ir.walk import fresh, walk
from ...records import dataclass, replace
from ..ops import Axis, Iota, Join, Value, apply, axes_of, host, value
from . import elementwise
from .lowering import Lowering
from .ranges import is_zero, minus
from .scope import Scope

# Whether the points below a place are those where a comparison with it holds, and whether it is one of the first part.
_SIDES = {"<": (True, False), "<=": (True, True), ">": (False, True), ">=": (False, False)}


@dataclass(frozen=True, slots=True)
class Cut:
    """The points of a coordinate below a place, and those from it on; the first are `then`'s where `leads` says so."""

    coordinate: Coordinate
    place: ir.Expr
    leads: bool


def in_pieces(low: Lowering, expr: ir.Select, scope: Scope) -> Value | None:
    """The value of a choice whose sides read at a distance of a coordinate that decides between them; None where it is
    no such choice, or the place at which they meet is not proved to be one of the coordinate's."""
    cut = None if low.isolate or expr.type.kind != "real" else _cut(expr.condition)
    if cut is None or not all(_reads_aside(side, cut.coordinate) for side in (expr.then, expr.otherwise)):
        return None
    axis, own = _axis(scope, cut.coordinate), scope.range_of(cut.coordinate)
    bounds = [low.value(bound, scope) for bound in (own.lower, cut.place, own.upper)]
    if axis is None or not all(bound.is_host for bound in bounds):
        return None
    start, place, stop = map(elementwise.number, bounds)
    lengths = (polynomial(place) - polynomial(start), polynomial(stop) - polynomial(place))
    if not all(map(low.assumed(()).entails, lengths)):
        return None
    sides = (expr.then, expr.otherwise) if cut.leads else (expr.otherwise, expr.then)
    ranges = [replace(own, lower=lower, upper=upper) for lower, upper in ((start, place), (place, stop))]
    found = [_piece(low, side, range, scope, axis) for side, range in zip(sides, ranges, strict=True)]
    return _joined(low, found, scope, axis, start)


def _joined(
    low: Lowering, found: list[tuple[Value, Value]], scope: Scope, axis: Axis, start: ir.Expr
) -> Value | None:
    """The pieces one behind the other along an axis; None where one varies with what is no axis in force."""
    values = elementwise.promoted(low, [part for _, part in found], exact=True)
    inner = [place.axes[0] for place, _ in found]
    there = {each.name: each for each in (*axes_of(*values, without=inner), axis)}
    home = tuple(there[name] for name in _order(scope) if name in there)
    if len(home) != len(there):
        return None
    parts = []
    for (place, _), part in zip(found, values, strict=True):
        at = place if is_zero(start) else apply("-", place, host(start))
        parts.append((tuple(at if each is axis else value(Iota(each)) for each in home), part))
    dtypes = [part.dtype for part in values if not part.is_host]
    return value(Join(home, tuple(parts), "real", dtypes[0] if dtypes else None))


def _axis(scope: Scope, coordinate: Coordinate) -> Axis | None:
    """The axis that a coordinate runs along; None for the step of a loop."""
    place = scope.places.get(coordinate)
    return None if place is None or len(place.axes) != 1 else place.axes[0]


def _order(scope: Scope) -> list[Coordinate]:
    """The axes in force, the outermost first."""
    return [axis.name for place in scope.places.values() for axis in place.axes]


def _piece(low: Lowering, side: ir.Expr, own: ir.Range, scope: Scope, axis: Axis) -> tuple[Value, Value]:
    """The points of a side, and its value there."""
    length = own.upper if is_zero(own.lower) else minus(own.upper, own.lower)
    place = value(Iota(Axis(fresh(axis.name, scope.taken), length)))
    if not is_zero(own.lower):
        place = apply("+", place, host(own.lower))
    box = tuple(own if range.coordinate == own.coordinate else range for range in scope.box)
    inner = replace(scope, places={**scope.places, own.coordinate: place}, box=box)
    return place, low.value(side, inner)


def _cut(condition: ir.Expr) -> Cut | None:
    """A comparison of a coordinate with a place that varies with none, in any spelling."""
    if not isinstance(condition, ir.Map) or condition.op not in _SIDES:
        return None
    (point, place), op = condition.arguments, condition.op
    if not isinstance(point, ir.Coord):
        point, place, op = place, point, MIRRORED[op]
    if not isinstance(point, ir.Coord) or place.type.coordinates:
        return None
    leads, after = _SIDES[op]
    if after:
        place = build.apply("+", (place, build.whole(1, place.span)), "whole", place.span)
    return Cut(point.coordinate, place, leads)


def _reads_aside(expr: ir.Expr, coordinate: Coordinate) -> bool:
    """Whether something is read at a distance of the coordinate, and nothing is normalised."""
    parts = list(walk(expr))
    reads = [part for part in parts if isinstance(part, ir.Read)]
    aside = (index for read in reads for index in read.indices if not isinstance(index, ir.Coord))
    is_normal = any(isinstance(part, ir.Normalize) for part in parts)
    return not is_normal and any(coordinate in index.type.coordinates for index in aside)
