"""Reductions → array code."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.algebra.factors import factors_of
from ..ir.types import Coordinate
from ..ir.walk import walk
from . import arrays, binding, contraction, convolution, integers, scatter, shifts, sizes, views
from .base import Value, plain
from .code import ONE, ZERO, Infix, Name, Node, call, chain, infix, method, negative, node
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .values import aligned, joined, permuted

_NEUTRAL: dict[str, Node] = {"sum": ZERO, "mean": ZERO, "prod": ONE, "any": Name("False"), "all": Name("True")}


# Ways to a reduction that do not compute its body at all its points, in the order in which they are tried.
_WAYS = (scatter.at_one_point, scatter.by_members, shifts.by_remainders, scatter.scattered, shifts.counted_down)


def reduce(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value:
    """Reduce: a sum of products by matrix products; one whose points have computed places by a scatter; all else
    over the whole broadcast body."""
    for way in () if is_fixed(low, expr) else _WAYS:
        found = way(low, expr, scope)
        if found is not None:
            return found
    inner = binding.bind(low, expr.ranges, scope)
    masks = binding.masks(low, expr.ranges, expr.guard, inner)
    guarded = inner.where(expr.guard)
    if expr.op in ("sum", "mean") and expr.body.type.kind == "real":
        needed = masks_of_product(low, masks, expr, inner)
        found = convolution.convolved(low, expr, guarded, needed, scope)
        found = found or contraction.contract(low, expr, guarded, needed, scope)
        if found is not None:
            return found if expr.op == "sum" else averaged(low, found, expr, masks, inner, scope)
        masks = masks_of_sum(low, masks, expr, inner)
    body = low.value(expr.body, guarded)
    if expr.type.kind == "real":
        body = arrays.as_real(low, body)
        body = body if expr.op in ("max", "min") else arrays.widened(low, body)
    mask = arrays.conjunction(low, masks, inner)
    if expr.op in ("argmax", "argmin"):
        return argument(low, expr, body, mask, inner, scope)
    return reduced(low, expr, body, mask, inner, scope)


def is_fixed(low: Lowering, expr: ir.Expr) -> bool:
    """Whether it reads a `pretended` array, which has just the points of its windows at any index."""
    return any(isinstance(part, ir.Read) and part.tensor in low.pretended for part in walk(expr))


def masks_of_product(low: Lowering, masks: list[Value], expr: ir.Reduce, inner: Scope) -> list[Value]:
    """The masks of a product without those that only remove what is 0 anyway: an index that leaves its axis finds
    zeros there."""
    found = factors_of(expr.body)
    if low.isolate or not masks or any(contraction.may_become_infinite(low, factor) for factor in found):
        return masks
    reads = [factor.expr for factor in found if isinstance(factor.expr, ir.Read)]
    conditions = binding.removing(low, expr.ranges, expr.guard, inner)
    return [
        mask
        for mask, condition in zip(masks, conditions, strict=True)
        if not any(vanishes(low, read, condition, inner) for read in reads)
    ]


def masks_of_sum(low: Lowering, masks: list[Value], expr: ir.Reduce, inner: Scope) -> list[Value]:
    """The masks of a sum without those that only remove products of zeros: every factor leaves its axis there."""
    found = factors_of(expr.body)
    reads = [factor.expr for factor in found if isinstance(factor.expr, ir.Read) and not factor.inverse]
    if expr.op != "sum" or not masks or len(reads) < len(found):
        return masks
    conditions = binding.removing(low, expr.ranges, expr.guard, inner)
    return [
        mask
        for mask, condition in zip(masks, conditions, strict=True)
        if not all(vanishes(low, read, condition, inner) for read in reads)
    ]


def vanishes(low: Lowering, read: ir.Read, condition: ir.Expr, inner: Scope) -> bool:
    """Whether a read finds zeros wherever a condition fails: there, an index of a view is out of bounds."""
    if is_fixed(low, read) or not read.indices or low.stored[read.tensor].rows or read.type.kind != "real":
        return False
    trail = (*inner.box, (condition, False))
    for n, (index, axis) in enumerate(zip(read.indices, low.tensors[read.tensor].axes, strict=True)):
        others = [other for m, other in enumerate(read.indices) if m != n]
        shared = any(other.type.coordinates & set(inner.sort(index.type.coordinates)) for other in others)
        access = views.access(low, index, inner)
        if (
            access is None
            or access.how == "fixed"
            or shared
            or not condition.type.coordinates <= index.type.coordinates
        ):
            continue
        where, length = low.prover.polynomial(index), low.prover.polynomial(axis.extent)
        if low.prover.entails(trail, -where - 1) or low.prover.entails(trail, where - length):
            return True
    return False


def reduced(low: Lowering, expr: ir.Reduce, body: Value, mask: Value | None, inner: Scope, scope: Scope) -> Value:
    """All bound axes at once, with what changes nothing in the place of removed points."""
    bound = inner.sort(expr.coordinates)
    axes = inner.sort({*body.axes, *bound, *(mask.axes if mask else ())})
    count = None if mask is None else low.text.keep(mask, "kept")
    if mask is not None:
        body = filled(low, expr, body, mask, inner)
    body = arrays.broadcast(low, body, axes, inner)
    body = low.text.short(body.turned or body, low.label)
    gone = tuple(n for n, axis in enumerate(body.axes) if axis in bound)
    kept = tuple(axis for axis in body.axes if axis not in bound)
    whole = expr.type.kind == "whole"
    if whole and expr.op in ("max", "min"):
        check_count(low, expr, count, inner, scope, f"`{expr.op}` of whole numbers over no points has no value")
    if whole and expr.op in ("sum", "prod") and integers.largest(low, expr, scope) > LARGEST["i64"]:
        helper = low.text.helper("checked_sum" if expr.op == "sum" else "checked_prod")
        total = Value(call(helper, body.code, gone), kept, "whole", "i64")
        return permuted(total, scope.sort(kept), low.text)
    if expr.op == "mean" and mask is None:
        check_count(low, expr, None, inner, scope, "`mean` over no points has no value")
    op = "sum" if expr.op == "mean" and mask is not None else expr.op
    empty = not all(sizes.is_filled(low, coordinate, inner) for coordinate in bound)
    code = low.text.dialect.reduction(op, body, gone, low.text, empty)
    dtype = "i64" if whole and op in ("sum", "prod") else body.dtype
    result = permuted(Value(code, kept, expr.type.kind, dtype), scope.sort(kept), low.text)
    return averaged(low, result, expr, [mask], inner, scope) if expr.op == "mean" and mask is not None else result


def filled(low: Lowering, expr: ir.Reduce | ir.Normalize, body: Value, mask: Value, scope: Scope) -> Value:
    """The neutral value of the operation where the mask removes a point."""
    body = arrays.as_array(low, body)
    if expr.op in _NEUTRAL:
        neutral = _NEUTRAL[expr.op]
    elif body.kind == "real":
        neutral = Name("math.inf") if expr.op == "min" else negative("math.inf")
    else:
        most = LARGEST[body.dtype or "i64"]
        neutral = node(-most - 1 if expr.op == "max" else most)
    return arrays.where(low, mask, body, plain(neutral, body.kind), scope, body.dtype)


# --------------------------------------------------------------- over no points


def points_left(low: Lowering, mask: Value | None, bound: tuple[Coordinate, ...], inner: Scope) -> Value:
    """The number of points that are left."""
    if mask is None:
        return plain(chain("*", [sizes.length(low, axis, inner) for axis in bound]))
    axes = inner.sort({*mask.axes, *bound})
    spread = arrays.broadcast(low, mask, axes, inner)
    gone = tuple(n for n, axis in enumerate(axes) if axis in bound)
    code = low.text.dialect.reduction("sum", spread, gone, low.text)
    return Value(code, tuple(axis for axis in axes if axis not in bound), "whole", "i64")


def check_count(low: Lowering, expr: ir.Reduce, mask: Value | None, inner: Scope, scope: Scope, message: str) -> None:
    """Refuse where no point is left."""
    bound = inner.sort(expr.coordinates)
    if mask is None:
        for coordinate in bound:
            if not sizes.is_filled(low, coordinate, inner):
                test: Node = infix("==", sizes.length(low, coordinate, inner), 0)
                if sizes.may_be_reversed(low, coordinate, inner):
                    test = sizes.is_below(low, sizes.extent_of(low, coordinate, inner) - 1, expr.span, inner)
                arrays.fail_where(low, plain(test, "bool"), "IX310", message, scope)
        return
    some = contraction.some_left(
        low, [arrays.broadcast(low, mask, inner.sort({*mask.axes, *bound}), inner)], frozenset(bound), inner
    )
    arrays.fail_where(low, arrays.negation(low, low.text.keep(some, "some")), "IX310", message, scope)


def averaged(
    low: Lowering, total: Value, expr: ir.Reduce, masks: list[Value | None] | list[Value], inner: Scope, scope: Scope
) -> Value:
    """A sum divided by how many points there are."""
    mask = arrays.conjunction(low, [mask for mask in masks if mask is not None], inner)
    count = points_left(low, mask, inner.sort(expr.coordinates), inner)
    if not is_data_guard(low, expr):
        if mask is None:
            check_count(low, expr, None, inner, scope, "`mean` over no points has no value")
        else:
            count = low.text.keep(count, "count")
            test = Value(infix("==", count.code, 0), count.axes, "bool", "bool")
            arrays.fail_where(low, test, "IX310", "`mean` over no points has no value", scope)
    axes = joined((total, count), scope.order)
    left, right = aligned(total, axes), aligned(arrays.as_real(low, count, total.dtype), axes)
    return Value(Infix("/", left.code, right.code), axes, "real", total.dtype)


def is_data_guard(low: Lowering, expr: ir.Reduce) -> bool:
    """Whether a guard depends on an input or on figures, through definitions too."""
    waiting, seen = [] if expr.guard is None else [expr.guard], set[str]()
    while waiting:
        for part in walk(waiting.pop()):
            if isinstance(part, ir.Array) or (isinstance(part, ir.Read) and part.tensor not in low.lets):
                return True
            if isinstance(part, ir.Read) and part.tensor not in seen:
                seen.add(part.tensor)
                clauses = low.lets[part.tensor].clauses
                waiting += [e for c in clauses for e in (c.body, c.guard) if e is not None]
    return False


# ------------------------------------------------------------------- arguments


def argument(low: Lowering, expr: ir.Reduce, body: Value, mask: Value | None, inner: Scope, scope: Scope) -> Value:
    """The first place of the largest value; of the first NaN where there is one."""
    coordinate = expr.ranges[0].coordinate
    others = inner.sort({*body.axes, *(mask.axes if mask else ())} - {coordinate})
    axes = inner.sort({*others, coordinate})
    at = axes.index(coordinate)
    body = arrays.broadcast(low, arrays.as_array(low, body), axes, inner)
    message = f"`{expr.op}` over no points has no value"
    if mask is None and scope.conditions() and not sizes.is_filled(low, coordinate, inner):
        # Guards may remove the points without a value, but a library would refuse the empty axis all the same.
        mask = Value(low.text.dialect.full(sizes.shape(low, axes, inner), Name("True"), "bool"), axes, "bool", "bool")
    if mask is None:
        check_count(low, expr, None, inner, scope, message)
        result = Value(method(body.code, expr.op, at), others, "whole", "i64")
    else:
        mask = low.text.keep(arrays.broadcast(low, mask, axes, inner), "kept")
        code = call(low.text.helper(expr.op), body.code, mask.code, at)
        result = low.text.keep(Value(code, others, "whole", "i64"), "place")
        if not is_data_guard(low, expr):
            test = Value(infix("<", result.code, 0), others, "bool", "bool")
            arrays.fail_where(low, test, "IX310", message, scope)
    start = sizes.number(low, inner.places[coordinate].start, inner)
    if start == ZERO:
        return result
    place = infix("+", result.code, start)
    if mask is None or not is_data_guard(low, expr):
        return Value(place, others, "whole", "i64")
    some = Value(infix(">=", result.code, 0), others, "bool", "bool")
    return Value(low.text.dialect.where(some, place, negative(1)), others, "whole", "i64")
