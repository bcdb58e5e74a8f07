"""Ranges → coordinates in force."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.conditions import conjuncts_of
from . import arrays
from .base import Value
from .code import Node, call, fill, method
from .lowering import Lowering, Stored
from .scope import Place, Scope, static_bounds


def bind(low: Lowering, ranges: tuple[ir.Range, ...], scope: Scope) -> Scope:
    """The scope inside some ranges. One that depends on other coordinates runs over all that any of them
    allows, and `within` says which points are meant."""
    for range in ranges:
        place = Place(range.lower, range.upper, not range.stated)
        if scope.sort(range.depends_on):
            point = build.coord(range.coordinate, range.span)
            above = build.apply("<=", (range.lower, point), "bool", range.span)
            below = build.apply("<", (point, range.upper), "bool", range.span)
            moving = [bool(scope.sort(bound.type.coordinates)) for bound in (range.lower, range.upper)]
            within = build.conjunction(c for c, moves in zip((above, below), moving, strict=True) if moves)
            bounds = static_bounds(range, scope) or measured_bounds(low, range, scope)
            place = Place(*bounds, False, within)
        scope = scope.binding(range, place)
    return scope


def measured_bounds(low: Lowering, range: ir.Range, scope: Scope) -> tuple[ir.Expr, ir.Expr]:
    """The widest bounds, taken from the arrays: numbers under names of their own."""
    result = []
    for bound, op in ((range.lower, "min"), (range.upper, "max")):
        value = low.text.keep(arrays.as_array(low, low.value(bound, scope)), range.coordinate.name)
        name = low.text.fresh(f"{range.coordinate.name}_{op}")
        code: Node = call("int", value.code)
        if value.axes:
            most = call("int", method(value.code, op))
            code = fill("{most} if 0 not in {array}.shape else 0", most=most, array=value.code)
        low.text.assign(name, code)
        result.append(scalar(low, name, range))
    return result[0], result[1]


def scalar(low: Lowering, name: str, range: ir.Range) -> ir.Expr:
    """A plain number of the emitted source, as an expression."""
    low.stored[name] = Stored(name, None, True)
    return build.read(name, (), "whole", range.span)


def masks(low: Lowering, ranges: tuple[ir.Range, ...], guard: ir.Expr | None, inner: Scope) -> list[Value]:
    """The masks that remove points: of dependent ranges, then of the guard, one for each of its conditions."""
    result = []
    scope = inner
    for condition in removing(ranges, None, inner):
        result.append(low.value(condition, scope))
    for condition in conjuncts_of(guard):
        result.append(low.value(condition, scope))
        scope = scope.where(condition)
    return result


def removing(ranges: tuple[ir.Range, ...], guard: ir.Expr | None, inner: Scope) -> list[ir.Expr]:
    """The conditions of dependent ranges, then those of the guard."""
    within = [c for range in ranges for c in conjuncts_of(inner.places[range.coordinate].within)]
    return within + conjuncts_of(guard)
