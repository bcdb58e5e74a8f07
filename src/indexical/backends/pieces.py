"""A choice by where a coordinate is: each side is computed at its own points alone, and the two are put together.

`if d < n { -x[d + n] } else { x[d - n] }` reads a half of `x` twice: it is two slices, and nothing is padded.
"""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import number
from ..ir.types import DEFAULT_DTYPE, Coordinate, widest
from ..ir.walk import fresh, substitute, walk
from ..records import dataclass
from . import arrays
from .base import Value
from .lowering import Lowering
from .scope import Place, Scope
from .values import joined


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
    own = scope.places.get(cut.coordinate)
    if own is None or own.step is not None or own.within is not None:
        return None
    place, start, stop = (low.prover.polynomial(each) for each in (cut.place, own.start, own.stop))
    if not (low.prover.entails((), place - start) and low.prover.entails((), stop - place)):
        return None
    sides = (expr.then, expr.otherwise) if cut.leads else (expr.otherwise, expr.then)
    bounds = ((own.start, cut.place), (cut.place, own.stop))
    parts = [_piece(low, side, cut.coordinate, *each, scope) for side, each in zip(sides, bounds, strict=True)]
    values = arrays.promoted(low, [arrays.as_real(low, value) for value, _ in parts])
    dtype = widest(value.dtype for value in values) or DEFAULT_DTYPE["real"]
    named = [_called(value, inner, cut.coordinate) for value, (_, inner) in zip(values, parts, strict=True)]
    axes = joined(named, scope.order)
    if any(value.axes != axes for value in named):
        return None
    codes = tuple(arrays.cast_to(low, value, dtype).code for value in named)
    return Value(low.text.dialect.concatenate(codes, axes.index(cut.coordinate)), axes, "real", dtype)


def _cut(condition: ir.Expr) -> Cut | None:
    """A comparison of a coordinate with a place that varies with none."""
    match condition:
        case ir.Map("<" | ">=" as op, (ir.Coord(coordinate), place)) if not place.type.coordinates:
            return Cut(coordinate, place, op == "<")
        case ir.Map(">" | "<=" as op, (place, ir.Coord(coordinate))) if not place.type.coordinates:
            return Cut(coordinate, place, op == ">")
    return None


def _reads_aside(expr: ir.Expr, coordinate: Coordinate) -> bool:
    """Whether something is read at a distance of the coordinate, and nothing is normalised."""
    found = False
    for part in walk(expr):
        if isinstance(part, ir.Normalize):
            return False
        if isinstance(part, ir.Read):
            aside = (index for index in part.indices if not isinstance(index, ir.Coord))
            found = found or any(coordinate in index.type.coordinates for index in aside)
    return found


def _piece(
    low: Lowering, side: ir.Expr, own: Coordinate, start: ir.Expr, stop: ir.Expr, scope: Scope
) -> tuple[Value, Coordinate]:
    """One side at its own points, counted from 0 by a coordinate of another name, which comes with it."""
    inner = fresh(own, {coordinate.name for coordinate in scope.places})
    zero, span = build.whole(0, side.span), side.span
    from_zero = low.prover.polynomial(start) == number(0)
    length = stop if from_zero else build.apply("-", (stop, start), "whole", span)
    point: ir.Expr = build.coord(inner, span)
    point = point if from_zero else build.apply("+", (point, start), "whole", span)
    values = {own: point}
    places = {
        (inner if coordinate == own else coordinate): (Place(zero, length, False) if coordinate == own else place)
        for coordinate, place in scope.places.items()
    }
    trail = tuple(
        (ir.Range(inner, zero, length, True, span) if step.coordinate == own else step)
        if isinstance(step, ir.Range)
        else (substitute(step[0], values), step[1])
        for step in scope.trail
    )
    tested = tuple((substitute(condition, values), holds) for condition, holds in scope.tested)
    return low.value(substitute(side, values), Scope(places, trail, tested)), inner


def _called(value: Value, inner: Coordinate, own: Coordinate) -> Value:
    axes = tuple(own if axis == inner else axis for axis in value.axes)
    return value.but(value.code, axes=axes)
