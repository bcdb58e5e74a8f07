"""Sums over reads that a coordinate shifts, as the gradients of a convolution have them → windows.

A window that counts down (`y[n - k]`) would be turned around as large as all windows are. What is summed can be
counted from its other end instead: then it is the smaller arrays that are turned around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import expression, of_atom, polynomial
from ...ir.algebra.factors import factors_of
from ...ir.context import Trail
from ...ir.types import Coordinate
from ...ir.walk import Inexpressible, substitute, walk
from ...records import replace
from . import binding, indexing, views
from .base import Value
from .lowering import Lowering
from .scope import Scope


def counted_down(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The sum with those coordinates counted from their last point to their first by which more windows run
    backward than forward; None where there are none. One that survives is turned around in the end."""
    if expr.op != "sum" or expr.type.kind != "real":
        return None
    inner = plain_scope(low, expr, scope)
    if inner is None:
        return None
    backward = backward_windows(low, expr, inner)
    chosen = [c for c in inner.places if backward[c] > 0 and is_turnable(low, c, expr, inner)]
    if not chosen:
        return None
    check_bare(low, expr, tuple(chosen), inner)
    values: dict[Coordinate, ir.Expr] = {}
    for c in chosen:
        place = inner.places[c]
        values[c] = expression(polynomial(place.start) + polynomial(place.stop) - 1 - of_atom(c), expr.span)
    try:
        body = substitute(expr.body, values)
        guard = None if expr.guard is None else substitute(expr.guard, values)
        around = turned_scope(scope, {c: value for c, value in values.items() if c in scope.places})
    except Inexpressible:
        return None
    turned = build.reduce(expr.op, expr.ranges, body, guard, expr.type.kind, expr.span)
    value = low.lower(turned, around)
    for c in chosen:
        if c in value.axes:
            value = value.but(low.text.dialect.flip(value.code, value.axes.index(c)))
    return value


def is_turnable(low: Lowering, coordinate: Coordinate, expr: ir.Reduce, inner: Scope) -> bool:
    """Whether a coordinate may be counted the other way. Where a library flips an axis at no cost, one that
    survives is left as it is."""
    place = inner.places[coordinate]
    return place.within is None and (coordinate in expr.coordinates or low.text.dialect.flips_by_copying)


def plain_scope(low: Lowering, expr: ir.Reduce, scope: Scope) -> Scope | None:
    """The scope inside a sum; None where a range of it depends on other coordinates."""
    for range in expr.ranges:
        if scope.sort(range.depends_on):
            return None
    return binding.bind(low, expr.ranges, scope)


def backward_windows(low: Lowering, expr: ir.Reduce, inner: Scope) -> Counter[Coordinate]:
    """The number of windows in which each coordinate runs backward, less those in which it runs forward."""
    result: Counter[Coordinate] = Counter()
    for factor in factors_of(expr.body):
        if not isinstance(factor.expr, ir.Read):
            continue
        for n, index in enumerate(factor.expr.indices):
            others = [other for m, other in enumerate(factor.expr.indices) if m != n]
            access = views.access(low, index, inner)
            if access is None or access.how != "windows":
                continue
            if any(other.type.coordinates & set(access.coordinates) for other in others):
                continue
            for c in access.coordinates:
                result[c] += 1 if access.backward or c in access.flipped else -1
    return result


def turned_scope(scope: Scope, values: Mapping[Coordinate, ir.Expr]) -> Scope:
    """The scope with coordinates counted the other way: what holds of one point holds of that in its place."""
    if not values:
        return scope
    places = {
        c: place if place.within is None else replace(place, within=substitute(place.within, values))
        for c, place in scope.places.items()
    }
    ranges = tuple(step for step in scope.trail if isinstance(step, ir.Range) and step.coordinate in values)
    plain, moved = substituted_trail(scope.trail, values)
    return Scope(places, (*ranges, *plain, *moved), scope.tested)


def check_bare(low: Lowering, expr: ir.Expr, coordinates: tuple[Coordinate, ...], scope: Scope) -> None:
    """A coordinate that is about to be replaced still has the size of every axis that it indexes bare."""
    for part in walk(expr):
        if not isinstance(part, ir.Read) or not part.indices:
            continue
        for index, axis in zip(part.indices, low.tensors[part.tensor].axes, strict=True):
            # Values of a tile that pass for tensors are of no stated length.
            stated = axis.extent != build.whole(0, expr.span)
            if isinstance(index, ir.Coord) and index.coordinate in coordinates and stated:
                indexing.check_agreement(low, indexing.AxisIndex(index, axis.extent, None), scope)


def substituted_trail(trail: Trail, values: Mapping[Coordinate, ir.Expr]) -> tuple[Trail, Trail]:
    """Split a trail: the part without some coordinates, and the rest with values in their place."""
    plain: list[ir.Range | tuple[ir.Expr, bool]] = []
    moved: list[ir.Range | tuple[ir.Expr, bool]] = []
    for step in trail:
        if isinstance(step, ir.Range):
            if step.coordinate in values:
                continue
            lower, upper = (substitute(bound, values) for bound in (step.lower, step.upper))
            same = (lower, upper) == (step.lower, step.upper)
            (plain if same else moved).append(replace(step, lower=lower, upper=upper))
        elif step[0].type.coordinates.isdisjoint(values):
            plain.append(step)
        else:
            moved.append((substitute(step[0], values), step[1]))
    return tuple(plain), tuple(moved)
