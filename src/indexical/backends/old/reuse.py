"""Reuse of values: those computed before, by name."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.types import Coordinate
from ...records import replace
from . import sizes
from .base import Value, plain
from .code import call
from .elementwise import constant
from .lowering import Lowering
from .scope import Place, Scope
from .values import permuted


def held(low: Lowering, value: Value) -> Value:
    """The value under a name, so that it is computed once however often it is read."""
    if value.python:
        return value
    if value.turned is not None:
        return permuted(held(low, value.turned), value.axes, low.text)
    return replace(
        low.text.keep(value, "kept" if value.kind == "bool" else low.label),
        narrow=value.narrow if value.kind == "real" else None,
        once=value.once,
    )


def recall(low: Lowering, expr: ir.Expr, scope: Scope) -> Value | None:
    """The value of an expression that was computed before: anywhere, or under conditions that hold here too."""
    key = (expr, low.compute, seen(expr, scope))
    found = low.known.get(key)
    if found is None and ("guarded", *key) in low.known:
        conditions = _holding(scope)
        for count in range(len(conditions) + 1):
            found = found or low.known.get((*key, conditions[:count]))
        # A value computed from it is valid under the same conditions only.
        low.guarded += found is not None
    return found


def computed(low: Lowering, expr: ir.Expr, scope: Scope) -> Value:
    """The value, remembered: for anywhere, or for where the conditions hold that it is valid under."""
    before = low.guarded
    found = low.lower(expr, scope)
    if not isinstance(expr, ir.Read | ir.Array):
        found = held(low, found)
    key = (expr, low.compute, seen(expr, scope))
    if low.guarded == before:
        low.known[key] = found
    elif not low.in_guard:  # What was not checked is not used again where it has to be.
        low.known[("guarded", *key)] = found
        low.known[(*key, _holding(scope))] = found
    return found


def seen(expr: ir.Expr, scope: Scope) -> tuple[tuple[Coordinate, Place], ...]:
    """The part of a scope that an expression depends on."""
    free = expr.type.coordinates
    return tuple((c, place) for c, place in scope.places.items() if c in free)


def _holding(scope: Scope) -> tuple[object, ...]:
    """What a guarded value is valid under: conditions, each with the points of the coordinates that it speaks of."""
    steps = (*((fact, True) for fact in scope.asked), *scope.conditions())
    return tuple((step, seen(step[0], scope)) for step in steps)


def coordinate_value(low: Lowering, coordinate: Coordinate, scope: Scope) -> Value:
    """A coordinate: all its points."""
    place = scope.places[coordinate]
    start, stop = sizes.number(low, place.start, scope), sizes.number(low, place.stop, scope)
    if low.text.dialect.refuses_falling_ranges and sizes.may_be_reversed(low, coordinate, scope):
        stop = call("max", start, stop)
    key = ("arange", coordinate, start, stop)
    if key not in low.known:
        points = Value(low.text.dialect.arange(start, stop), (coordinate,), "whole", "i64")
        low.known[key] = low.text.named(points, coordinate.name)
    return low.known[key]


def value(low: Lowering, expr: ir.Expr, scope: Scope) -> Value:
    """An expression over all points of the coordinates it varies over; under a name where it was met before."""
    match expr:
        case ir.Const():
            return constant(expr)
        case ir.Size(coordinate):
            return plain(low.sizes[coordinate])
        case ir.Coord(coordinate):
            return coordinate_value(low, coordinate, scope)
        case ir.Read(_, ()):
            return low.lower(expr, scope)
    found = recall(low, expr, scope)
    return computed(low, expr, scope) if found is None else found
