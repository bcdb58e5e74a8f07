"""Reductions → array code."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import factors_of
from ..ir.text import shown
from ..ir.walk import walk
from ..plan.pins import multiplied
from . import (
    arrays,
    binding,
    contraction,
    convolution,
    integers,
    points,
    prefixes,
    scatter,
    selection,
    shifts,
    sizes,
    views,
)
from .base import Value
from .code import ZERO, Name, call, infix, method
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .values import permuted

# Ways to a reduction that do not compute its body at all its points, in the order in which they are tried.
_WAYS = (
    scatter.at_one_point,
    scatter.by_members,
    shifts.by_remainders,
    scatter.scattered,
    selection.placed,
    prefixes.prefixed,
    shifts.counted_down,
)


def reduce(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value:
    """Reduce: a sum of products by matrix products; one whose points have computed places by a scatter; all else
    over the whole broadcast body."""
    for way in () if is_fixed(low, expr) else _WAYS:
        found = way(low, guarded(expr), scope)
        if found is not None:
            return found
    factor = multiplied(expr, low.lets)
    if factor is not None:
        low.decline("places", f"`{shown(factor)}` is a factor, and 0 times an infinity is NaN: a guard leaves it out")
    inner = binding.bind(low, expr.ranges, scope)
    masks = binding.masks(low, expr.ranges, expr.guard, inner)
    kept = inner.where(expr.guard)
    if expr.op in ("sum", "mean") and expr.body.type.kind == "real":
        needed = masks_of_product(low, masks, expr, inner)
        found = convolution.convolved(low, expr, kept, needed, scope)
        found = found or contraction.contract(low, expr, kept, needed, scope)
        if found is not None:
            return found if expr.op == "sum" else points.averaged(low, found, expr, masks, inner, scope)
        masks = masks_of_sum(low, masks, expr, inner)
    body = low.value(expr.body, kept)
    if expr.type.kind == "real":
        body = arrays.as_real(low, body)
        body = body if expr.op in ("max", "min") else arrays.widened(low, body)
    mask = arrays.conjunction(low, masks, inner)
    if expr.op in ("argmax", "argmin"):
        return argument(low, expr, body, mask, inner, scope)
    return reduced(low, expr, body, mask, inner, scope)


def guarded(expr: ir.Reduce) -> ir.Reduce:
    """A sum of values that are 0 where a condition fails, as one under that condition."""
    match expr.body:
        case ir.Select(condition, then, otherwise) if expr.op == "sum" and build.is_number(otherwise, 0):
            guard = build.conjunction((expr.guard, condition))
            return guarded(build.reduce("sum", expr.ranges, then, guard, expr.type.kind, expr.span))
    return expr


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
    conditions = binding.removing(expr.ranges, expr.guard, inner)
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
    conditions = binding.removing(expr.ranges, expr.guard, inner)
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
        body = points.filled(low, expr, body, mask, inner)
    body = arrays.broadcast(low, body, axes, inner)
    body = low.text.short(body.turned or body, low.label)
    gone = tuple(n for n, axis in enumerate(body.axes) if axis in bound)
    kept = tuple(axis for axis in body.axes if axis not in bound)
    whole = expr.type.kind == "whole"
    if whole and expr.op in ("max", "min"):
        points.check_count(low, expr, count, inner, scope, f"`{expr.op}` of whole numbers over no points has no value")
    if whole and expr.op in ("sum", "prod") and integers.largest(low, expr, scope) > LARGEST["i64"]:
        helper = low.text.helper("checked_sum" if expr.op == "sum" else "checked_prod")
        total = Value(call(helper, body.code, gone), kept, "whole", "i64")
        return permuted(total, scope.sort(kept), low.text)
    if expr.op == "mean" and mask is None:
        points.check_count(low, expr, None, inner, scope, "`mean` over no points has no value")
    op = "sum" if expr.op == "mean" and mask is not None else expr.op
    empty = not all(sizes.is_filled(low, coordinate, inner) for coordinate in bound)
    code = low.text.dialect.reduction(op, body, gone, low.text, empty)
    dtype = "i64" if whole and op in ("sum", "prod") else body.dtype
    result = permuted(Value(code, kept, expr.type.kind, dtype), scope.sort(kept), low.text)
    if expr.op != "mean" or mask is None:
        return result
    return points.averaged(low, result, expr, [mask], inner, scope)


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
        points.check_count(low, expr, None, inner, scope, message)
        result = Value(method(body.code, expr.op, at), others, "whole", "i64")
    else:
        mask = low.text.keep(arrays.broadcast(low, mask, axes, inner), "kept")
        code = call(low.text.helper(expr.op), body.code, mask.code, at)
        return points.place(low, expr, Value(code, others, "whole", "i64"), inner, scope)
    start = sizes.number(low, inner.places[coordinate].start, inner)
    return result if start == ZERO else result.but(infix("+", result.code, start))
