"""Normalisers: softmax, log_softmax, cumsum, rank, along an axis that stays."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import SHORT, Coordinate
from ...ir.walk import fresh
from ...records import replace
from ..known import fits, repeated
from ..ops import Axis, Iota, Normalize, Read, Value, apply, value
from . import elementwise
from .lowering import Lowering, conjunction
from .ranges import axis_of, bind, is_zero
from .scope import Scope


def normalize(low: Lowering, expr: ir.Normalize, scope: Scope) -> Value:
    """A normaliser over the points that its guard keeps, at this point."""
    inside, place = _inside(low, expr, scope)
    axis = axis_of(place)
    tests = []
    for condition in (*(fact for own, fact in scope.bounds if own == expr.coordinate), expr.guard):
        if condition is not None:
            tests.append(low.value(condition, inside))
            inside = inside.where(condition)
    body = low.value(expr.body, inside)
    if expr.op != "rank" and expr.type.kind == "real":
        body = elementwise.cast(body, low.compute) if body.kind == "whole" else body
        body = elementwise.cast(body, "f32") if body.dtype in SHORT else body
    checked = expr.type.kind == "whole" and expr.op == "cumsum" and not fits(repeated("sum", body.known.bounds), "i64")
    if checked and inside.facts:
        mask = low.mask(inside, body.names)
        body = body if mask is None else elementwise.where(low, mask, body, elementwise.zero("whole", expr.span))
    found = value(Normalize(expr.op, body, axis, conjunction(tests), checked))
    here = scope.places[expr.coordinate]
    if here.axes:
        return found
    first = low.number(scope.range_of(expr.coordinate).lower, scope)
    at = here if is_zero(first) else elementwise.applied(low, "-", (here, low.value(first, scope)), "whole", expr.span)
    return value(Read(found, ((axis.name, at),)))


def _inside(low: Lowering, expr: ir.Normalize, scope: Scope) -> tuple[Scope, Value]:
    """The scope inside a normaliser, where its coordinate runs over all its points, whatever holds of it outside: that
    is said of another one. A running sum is only asked up to a point that is."""
    coordinate, here = expr.coordinate, scope.places[expr.coordinate]
    range = scope.range_of(coordinate)
    if here.axes and not scope.speaks_of(coordinate) and not low.is_asked_by(coordinate, scope):
        return scope, here
    other = Coordinate(f"{coordinate.name}'", False, coordinate.space)
    while other in scope.places:
        other = Coordinate(f"{other.name}'", False, coordinate.space)
    point = build.coord(other, expr.span)
    outer = scope.renamed(coordinate, point, _apart(here, scope) if here.axes else here)
    if not here.axes:
        outer = replace(outer, stepped=outer.stepped | {other})
        inner = bind(low, range, outer)
    else:
        inner = replace(outer, places={**outer.places, coordinate: here}, box=(*outer.box, range))
    if expr.op == "cumsum" and outer.facts:
        own = build.coord(coordinate, expr.span)
        inner = inner.where(build.apply("<=", (own, point), "bool", expr.span))
    return inner, inner.places[coordinate]


def _apart(place: Value, scope: Scope) -> Value:
    """The points of a coordinate along an axis of another name."""
    axis = axis_of(place)
    other = value(Iota(Axis(fresh(Coordinate(f"{axis.name.name}_outer"), scope.taken), axis.extent)))
    if isinstance(place.op, Iota):
        return other
    return apply("+", other, place.op.args[1])  # type: ignore[union-attr]
