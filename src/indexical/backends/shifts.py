"""Sums over reads that a coordinate shifts, as the gradients of a convolution have them → windows.

A window that counts down (`y[n - k]`) would be turned around as large as all windows are. What is summed can be
counted from its other end instead: then it is the smaller arrays that are turned around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import expression, of_atom, polynomial
from ..ir.algebra.factors import factors_of
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, substitute
from ..plan.strides import Strided, find
from . import arrays, binding, scatter, sizes, views
from .base import Value
from .code import ALL, ZERO, Node, Slice, call, infix, method
from .lowering import Lowering
from .scatter import substituted_trail
from .scope import Place, Scope
from .values import sliced


def counted_down(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The sum with those coordinates counted from their last point to their first by which more windows run
    backward than forward; None where there are none. One that survives is turned around in the end."""
    if expr.op not in ("sum", "mean") or expr.type.kind != "real":
        return None
    inner = plain_scope(low, expr, scope)
    if inner is None:
        return None
    backward = backward_windows(low, expr, inner)
    chosen = [c for c in inner.places if backward[c] > 0 and is_turnable(low, c, expr, inner)]
    if not chosen:
        return None
    scatter.check_bare(low, expr, tuple(chosen), inner)
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
    if place.step is not None or place.within is not None:
        return False
    return coordinate in expr.coordinates or low.text.dialect.flips_by_copying


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


# ------------------------------------------------------------------ remainders


def by_remainders(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The sum for each remainder on its own, where a condition such as `(n - k) % 2 == 0` selects one: nothing is
    multiplied that the condition would remove. None where no condition does."""
    bounds = {
        c: (place.start, place.stop)
        for c, place in scope.places.items()
        if c in expr.type.coordinates and place.step is None and place.within is None
    }
    found = find(expr, bounds)
    if found is None:
        return None
    try:
        inner = remainder_scope(found, scope)
    except Inexpressible:
        return None
    low.tell(f"one sum for each remainder of `{found.target}`: nothing is multiplied that leaves another")
    outside = binding.bind(low, expr.ranges, scope)
    gone = expr.coordinates - {range.coordinate for range in found.sum.ranges}
    scatter.check_bare(low, expr, (found.target, *gone), outside)
    value = arrays.as_array(low, low.value(found.sum, inner))
    pair = (found.high.coordinate, found.low.coordinate)
    axes = inner.sort({*value.axes, *pair})
    value = low.text.short(arrays.broadcast(low, value, axes, inner), low.label)
    return rejoined(low, value, found, inner, scope)


def remainder_scope(found: Strided, scope: Scope) -> Scope:
    """The scope with two coordinates in the place of one. What holds of the one holds of what they make up."""
    values = {found.target: found.value}
    places: dict[Coordinate, Place] = {}
    for c, place in scope.places.items():
        if c == found.target:
            for range in (found.high, found.low):
                places[range.coordinate] = Place(range.lower, range.upper, False)
        else:
            inside = None if place.within is None else substitute(place.within, values)
            places[c] = replace(place, within=inside)
    there = scope.places[found.target]
    present = build.conjunction(
        (
            build.apply("<=", (there.start, found.value), "bool", found.value.span),
            build.apply("<", (found.value, there.stop), "bool", found.value.span),
        )
    )
    assert present is not None
    plain, moved = substituted_trail(scope.trail, values)
    trail = (*plain, found.high, found.low, (present, True), *moved)
    return Scope(places, trail, scope.tested)


def rejoined(low: Lowering, value: Value, found: Strided, inner: Scope, scope: Scope) -> Value:
    """High and low as one axis again, of which there are just the points of the target."""
    major, minor = found.high.coordinate, found.low.coordinate
    at = value.axes.index(major)
    lengths = [sizes.length(low, c, inner) for c in value.axes if c != minor]
    lengths[at] = infix("*", sizes.length(low, minor, inner), sizes.length(low, major, inner))
    start = sizes.plain_number(low, found.shift, scope).code
    stop = sizes.plain_number(low, found.shift + polynomial(scope.places[found.target].stop), scope).code
    if sizes.may_be_reversed(low, found.target, scope):
        stop = call("max", start, stop)
    slots: list[Node] = [*[ALL] * at, Slice(None if start == ZERO else start, stop)]
    axes = tuple(found.target if c == major else c for c in value.axes if c != minor)
    return value.but(sliced(method(value.code, "reshape", *lengths), slots), axes=axes)


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
