"""Conditions that say where each point goes → one addition or one store for each point, and no mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Factor, factors_of, product_of
from ..ir.conditions import conjuncts_of
from ..ir.context import Trail
from ..ir.text import shown
from ..ir.types import Coordinate, Kind
from ..ir.walk import Inexpressible, substitute, walk
from ..plan.groups import grouped
from ..plan.pins import pinned
from ..plan.scatters import Bounds, Scatter, find
from . import arrays, binding, contraction, indexing, integers, removal, reuse, sizes
from .base import Value, plain
from .code import ZERO, call, infix, method
from .elementwise import may_be_nonfinite
from .indexing import AxisIndex, minus
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .torch_ import one_or_all
from .values import aligned, permuted


def scattered(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The sum as a scatter-add; None where no condition says where its points go."""
    bounds = bounds_of(expr, scope)
    found = find(expr, bounds)
    if isinstance(found, str):
        low.decline("scatter-add", found)
    if not isinstance(found, Scatter):
        return None
    if expr.type.kind == "whole" and integers.largest(low, expr, scope) > LARGEST["i64"]:
        return None
    apart = set_aside(low, expr, found)
    if apart is not None:
        again = find(apart[0], bounds)
        assert isinstance(again, Scatter)
        found = again
    try:
        inner = moved_scope(low, found, scope)
    except Inexpressible:
        return None
    check_bare(low, expr, found.targets, scope)
    if apart is None:
        product = multiplied(low, found, expr, inner, scope)
        if product is not None:
            return product
    over = ", ".join(f"`{range.coordinate}`" for range in found.moved)
    low.tell(f"scatter-add over {over} by {', '.join(f'`{shown(value)}`' for value in found.values.values())}")
    result = added_up(low, found, expr, inner, scope)
    for factor in apart[1] if apart is not None else ():
        result = contraction.times(low, result, arrays.as_real(low, low.value(factor, scope)), scope)
    return result


def bounds_of(expr: ir.Expr, scope: Scope) -> Bounds:
    """The bounds of the coordinates to which something may be scattered."""
    return {
        c: (place.start, place.stop)
        for c, place in scope.places.items()
        if c in expr.type.coordinates and place.step is None and place.within is None
    }


def put(low: Lowering, guard: ir.Expr, body: ir.Expr, kind: Kind, scope: Scope) -> Value | None:
    """A value where a guard holds, and 0 elsewhere, of which a condition such as `p[i] == n` leaves one point for each
    `i`: stored there, in zeros. None where no condition does."""
    if kind == "bool" or low.in_guard or low.text.loops or low.windows or low.unbounded is not None:
        return None
    expr = build.reduce("sum", (), body, guard, kind, body.span)
    found = find(expr, bounds_of(expr, scope))
    if isinstance(found, str):
        low.decline("scatter", found)
    if not isinstance(found, Scatter):
        return None
    try:
        inner = moved_scope(low, found, scope)
    except Inexpressible:
        return None
    check_bare(low, expr, found.targets, scope)
    low.tell(", ".join(f"put at `{target} == {shown(value)}`" for target, value in found.values.items()))
    masks, places = place_masks(low, found, inner, scope)
    value = low.value(found.body, inner)
    value = arrays.as_array(low, arrays.as_real(low, value) if kind == "real" else value)
    mask = arrays.conjunction(low, masks, inner)
    if mask is not None:
        value = arrays.where(low, mask, value, plain(0, kind), inner, value.dtype)
    axes = inner.sort({axis for part in (value, *places) for axis in part.axes})
    value = arrays.broadcast(low, arrays.in_order(low, value, axes), axes, inner)
    at = sum(scope.order.index(axis) < scope.order.index(found.targets[0]) for axis in axes)
    where = tuple(aligned(arrays.in_order(low, place, axes), axes).code for place in places)
    counts = sizes.shape(low, found.targets, scope)
    code = call(low.text.helper("put"), low.text.short(value, low.label).code, at, where, counts)
    result = Value(code, (*axes[:at], *found.targets, *axes[at:]), kind, value.dtype)
    return permuted(low.text.keep(result, low.label), scope.sort(result.axes), low.text)


def multiplied(low: Lowering, scatter: Scatter, expr: ir.Reduce, inner: Scope, scope: Scope) -> Value | None:
    """A scatter-add of products `a[t, n] * b[t, m]` by `p[t]`: a product of matrices for each place, over the rows that
    have it. None for any other."""
    if low.isolate or expr.type.kind != "real" or not low.text.dialect.gathers_along_one_axis or low.text.loops:
        return None
    if len(scatter.moved) != 1 or len(scatter.targets) != 1 or scatter.rest or scatter.guard != scatter.present:
        return None
    row, target = scatter.moved[0].coordinate, scatter.targets[0]
    factors = factors_of(scatter.body)
    sides = [axes for factor in factors if (axes := factor.coordinates - {row})]
    if any(factor.inverse or row not in factor.coordinates for factor in factors) or len(sides) != 2:
        return None
    alone = scatter.values[target].type.coordinates == {row}
    if not alone or any(len(side) != 1 for side in sides) or sides[0] == sides[1]:
        return None
    if binding.removing(scatter.moved, None, inner):
        return None
    (_, (place,)) = place_masks(low, scatter, inner, scope)
    operands = []
    for axes in sides:
        own = [f for f in factors if f.coordinates - {row} == axes or (axes == sides[0] and f.coordinates == {row})]
        value = arrays.widened(low, arrays.as_real(low, low.value(product_of(own, expr), inner)))
        order = (row, *axes)
        operands.append(arrays.broadcast(low, arrays.in_order(low, arrays.as_array(low, value), order), order, inner))
    if operands[0].dtype != operands[1].dtype:
        return None
    low.tell(f"rows of `{row}` grouped by `{shown(scatter.values[target])}`, a product of matrices for each")
    codes = [low.text.short(operand, low.label).code for operand in operands]
    count = sizes.length(low, target, scope)
    code = call(low.text.helper("products_by_place"), *codes, place.code, count)
    result = Value(code, (target, *sides[0], *sides[1]), "real", operands[0].dtype)
    return permuted(low.text.keep(result, low.label), scope.sort(result.axes), low.text)


def by_members(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The sum over the members of each group, where a condition such as `h / 4 == g` says which these are."""
    for condition in conjuncts_of(expr.guard) if expr.op == "sum" else ():
        found = grouped(expr, condition)
        if found is not None:
            low.tell(f"`{shown(condition)}`: the members of a group are put side by side")
            gone = tuple(c for c in expr.coordinates if c not in {r.coordinate for r in found.ranges})
            check_bare(low, expr, gone, binding.bind(low, expr.ranges, scope))
            return low.value(found, scope)
    return None


def at_one_point(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value | None:
    """The value at the one point that a condition such as `n == p[i]` leaves; None where none does."""
    steps = low.text.loops or low.windows or low.unbounded is not None
    found = None if low.isolate or steps else pinned(expr)
    if found is None:
        return None
    gone, value, rest = found
    low.tell(f"read at `{gone.coordinate} == {shown(value)}`; 0 where that is no `{gone.coordinate}`")
    inner = binding.bind(low, expr.ranges, scope)
    check_bare(low, expr, (gone.coordinate,), inner)
    if low.text.dialect.gathers_along_one_axis and _is_plain_read(low, expr, gone, value, inner):
        table, place = low.value(expr.body, inner), low.text.keep(low.value(value, scope), "place")
        result = indexing.taken(low, table.turned or table, gone.coordinate, place, scope, "take_or_zero")
        return permuted(result, scope.sort(result.axes), low.text)
    return low.value(rest, scope)


def _is_plain_read(low: Lowering, expr: ir.Reduce, gone: ir.Range, value: ir.Expr, inner: Scope) -> bool:
    """Whether a sum is over all points of one axis of an array, and under one condition, so that the array is read at
    a place or nowhere; and whether the place is an array."""
    read = expr.body
    if not isinstance(read, ir.Read) or len(expr.ranges) > 1 or len(conjuncts_of(expr.guard)) > 1:
        return False
    bare = {index.coordinate for index in read.indices if isinstance(index, ir.Coord)}
    if not gone.is_counted or len(bare) < len(read.indices) or gone.coordinate not in bare:
        return False
    axes = low.tensors[read.tensor].axes
    inside = all(low.prover.is_inside(i, a.extent, inner, False) for i, a in zip(read.indices, axes, strict=True))
    return inside and bool(value.type.coordinates) and bare.isdisjoint(value.type.coordinates)


def set_aside(low: Lowering, expr: ir.Reduce, scatter: Scatter) -> tuple[ir.Reduce, list[ir.Expr]] | None:
    """The sum without those factors that vary with the target and with nothing that is summed: these are multiplied
    once for each place. None where there are none, or where a removed non-finite one would make 0 · ∞."""
    if low.isolate or expr.type.kind != "real":
        return None
    found = factors_of(expr.body)
    after = [f for f in found if is_apart(low, f, expr.coordinates, scatter.targets)]
    if not after:
        return None
    body: ir.Expr = build.real(Fraction(1), expr.span)
    for n, factor in enumerate(f for f in found if f not in after):
        op = "/" if factor.inverse else "*"
        same = n == 0 and not factor.inverse
        body = factor.expr if same else build.apply(op, (body, factor.expr), "real", expr.span)
    rest = build.reduce(expr.op, expr.ranges, body, expr.guard, expr.type.kind, expr.span)
    return rest, [factor.expr for factor in after]


def is_apart(low: Lowering, factor: Factor, bound: frozenset[Coordinate], targets: tuple[Coordinate, ...]) -> bool:
    over = factor.expr.type.coordinates
    tame = not (factor.inverse or may_be_nonfinite(low, factor.expr) or removal.may_be_removed(low, factor.expr))
    return tame and not over & bound and not over.isdisjoint(targets)


def check_bare(low: Lowering, expr: ir.Expr, coordinates: tuple[Coordinate, ...], scope: Scope) -> None:
    """A coordinate that is about to be replaced still has the size of every axis that it indexes bare."""
    for part in walk(expr):
        if not isinstance(part, ir.Read) or not part.indices:
            continue
        for index, axis in zip(part.indices, low.tensors[part.tensor].axes, strict=True):
            # Values of a tile that pass for tensors are of no stated length.
            stated = axis.extent != build.whole(0, expr.span)
            if isinstance(index, ir.Coord) and index.coordinate in coordinates and stated:
                indexing.check_agreement(low, AxisIndex(index, axis.extent, None), scope)


# ----------------------------------------------------------------- the points


def moved_scope(low: Lowering, scatter: Scatter, scope: Scope) -> Scope:
    """The scope of the points that are added: with what is moved, and without what it is moved to. What holds
    of a place holds of the coordinate that it is a point of."""
    values = scatter.values
    places = {
        c: replace(place, within=None if place.within is None else substitute(place.within, values))
        for c, place in scope.places.items()
        if c not in values
    }
    _, moved = substituted_trail(scope.trail, values)
    # A place is asked for only where some point that it may be is.
    plain, _ = substituted_trail(low.prover.projected(scope, places, opaque=False).trail, values)
    inner = binding.bind(low, scatter.moved, Scope(places, plain, scope.tested))
    for condition in scatter.guard:
        inner = inner.where(condition)
    return replace(inner, trail=(*inner.trail, *moved))


def added_up(low: Lowering, scatter: Scatter, expr: ir.Reduce, inner: Scope, scope: Scope) -> Value:
    """Every point at its place: one call, into zeros."""
    over = {c for value in scatter.values.values() for c in value.type.coordinates}
    moved = {range.coordinate for range in scatter.moved}
    axes = inner.sort(over | moved)
    masks, places = place_masks(low, scatter, inner, scope)
    kept = arrays.conjunction(low, [mask for mask in masks if set(mask.axes) <= set(axes)], inner)
    body = points(low, scatter, expr, inner, [mask for mask in masks if not set(mask.axes) <= set(axes)])
    dtype = body.dtype
    if dtype in ("f16", "bf16"):
        body = low.text.dialect.cast(body, "f32")
    rest = tuple(axis for axis in inner.sort(body.axes) if axis not in axes)
    body = arrays.broadcast(low, arrays.in_order(low, body, (*axes, *rest)), (*axes, *rest), inner)
    around = tuple(axis for axis in axes if axis not in moved)
    told = {*around, *(axis for value in (*places, *([] if kept is None else [kept])) for axis in value.axes)}
    idle = tuple(n for n, axis in enumerate(axes) if axis not in told)
    if idle:
        # The axes that neither a place nor a mask has are summed before.
        axes = tuple(axis for axis in axes if axis in told)
        body = body.but(method(body.code, "sum", one_or_all(idle)), axes=(*axes, *rest))
    where = [aligned(rank(low, axis, inner), axes).code for axis in around]
    where += [aligned(place, axes).code for place in places]
    counts = sizes.shape(low, (*around, *scatter.targets), scope)
    added = low.text.short(body, low.label).code
    last = () if kept is None else (aligned(kept, axes).code,)
    code = call(low.text.helper("scattered"), added, tuple(where), counts, *last)
    result = Value(code, (*around, *scatter.targets, *rest), expr.type.kind, body.dtype)
    if dtype is not None and result.dtype != dtype:
        result = arrays.cast_to(low, result, dtype)
    return permuted(low.text.keep(result, low.label), scope.sort(result.axes), low.text)


def rank(low: Lowering, axis: Coordinate, scope: Scope) -> Value:
    """The points of an axis, counted from the first."""
    start = sizes.number(low, scope.places[axis].start, scope)
    value = reuse.coordinate_value(low, axis, scope)
    return value if start == ZERO else value.but(infix("-", value.code, start))


def place_masks(low: Lowering, scatter: Scatter, inner: Scope, outer: Scope) -> tuple[list[Value], list[Value]]:
    """The masks that remove points, and the places of those that are left, counted from the first place there is.
    That they have a place is checked when they are added."""
    found: dict[Coordinate, Value] = {}
    scope = replace(inner, trail=inner.trail[: _length_before(inner, scatter)])
    masks = [low.value(condition, scope) for condition in binding.removing(scatter.moved, None, inner)]
    for condition in scatter.guard:
        for target, there in zip(scatter.targets, scatter.present, strict=True):
            if condition == there and target not in found:
                with low.labelled("place"):
                    place = low.value(minus(scatter.values[target], outer.places[target].start), scope)
                found[target] = low.text.short(place, "place")
        if condition not in scatter.present:
            masks.append(low.value(condition, scope))
        scope = scope.where(condition)
    return masks, [found[target] for target in scatter.targets]


def points(low: Lowering, scatter: Scatter, expr: ir.Reduce, inner: Scope, masks: list[Value]) -> Value:
    """The values that are added: summed over the coordinates that no place depends on."""
    body = scatter.body
    if scatter.rest:
        guard = build.conjunction(scatter.inner)
        body = build.reduce("sum", scatter.rest, body, guard, expr.type.kind, expr.span)
    value = low.value(body, inner)
    if expr.type.kind == "real":
        value = arrays.widened(low, arrays.as_real(low, value))
    value = arrays.as_array(low, value)
    if expr.type.kind == "whole" and value.dtype != "i64":
        value = replace(arrays.cast_to(low, value, "i64"), kind="whole")
    mask = arrays.conjunction(low, masks, inner)
    if mask is None:
        return value
    return arrays.where(low, mask, value, plain(0, value.kind), inner, value.dtype)


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


def _length_before(inner: Scope, scatter: Scatter) -> int:
    """The length of a trail before the conditions of a scatter."""
    return next(n for n, step in enumerate(inner.trail) if step == (scatter.guard[0], True))
