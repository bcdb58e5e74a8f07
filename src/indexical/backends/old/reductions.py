"""Reductions → array code."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.algebra.factors import factors_of
from ...ir.walk import walk
from . import (
    arrays,
    binding,
    contraction,
    integers,
    points,
    shifts,
    sizes,
    views,
)
from .base import Value
from .code import call
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .values import permuted


def reduce(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value:
    """Reduce: a sum of products by matrix products, all else over the whole broadcast body. It varies with pairs of a
    query and a key: all other reductions are operations."""
    turned = None if is_fixed(low, expr) else shifts.counted_down(low, guarded(expr), scope)
    if turned is not None:
        return turned
    inner = binding.bind(low, expr.ranges, scope)
    masks = binding.masks(low, expr.ranges, expr.guard, inner)
    kept = inner.where(expr.guard)
    if expr.op == "sum" and expr.body.type.kind == "real":
        needed = masks_of_product(low, masks, expr, inner)
        found = contraction.contract(low, expr, kept, needed, scope)
        if found is not None:
            return found
        masks = masks_of_sum(low, masks, expr, inner)
    body = low.value(expr.body, kept)
    if expr.type.kind == "real":
        body = arrays.as_real(low, body)
        body = body if expr.op in ("max", "min") else arrays.widened(low, body)
    mask = arrays.conjunction(low, masks, inner)
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
    if not masks or any(contraction.may_become_infinite(low, factor) for factor in found):
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
    if is_fixed(low, read) or not read.indices or read.type.kind != "real":
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
    empty = not all(sizes.is_filled(low, coordinate, inner) for coordinate in bound)
    code = low.text.dialect.reduction(expr.op, body, gone, low.text, empty)
    dtype = "i64" if whole and expr.op in ("sum", "prod") else body.dtype
    return permuted(Value(code, kept, expr.type.kind, dtype), scope.sort(kept), low.text)
