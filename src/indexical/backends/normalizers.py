"""Normalisers → array code: softmax, log_softmax, cumsum, rank."""

from __future__ import annotations

from ..facts.distributions import keeps_a_point
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..ir.types import Coordinate
from . import arrays, integers, points, reuse
from .base import Value, plain
from .code import Node, call
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .values import aligned


def normalize(low: Lowering, expr: ir.Normalize, scope: Scope) -> Value:
    """Along a whole coordinate, over the points that the guard keeps."""
    if scope.places[expr.coordinate].step is not None:
        return normalized_row(low, expr, scope)
    if expr.op == "rank":
        return ranked(low, expr, scope)
    body, mask, axes = row(low, expr, scope)
    at = axes.index(expr.coordinate)
    if expr.op == "cumsum":
        return running(low, expr, body, mask, axes, at, scope)
    return softmaxed(low, expr, body, mask, axes, at, scope)


def row(low: Lowering, expr: ir.Normalize, scope: Scope) -> tuple[Value, Value | None, tuple[Coordinate, ...]]:
    """The body, the mask of the points that take part, and the axes of both together."""
    inner = scope.along(expr)
    masks = [low.value(condition, inner) for condition in conjuncts_of(scope.places[expr.coordinate].within)]
    for condition in conjuncts_of(expr.guard):
        masks.append(low.value(condition, inner))
        inner = inner.where(condition)
    mask = arrays.conjunction(low, masks, scope)
    body = low.value(expr.body, inner)
    body = arrays.as_array(low, arrays.widened(low, arrays.as_real(low, body)) if expr.type.kind == "real" else body)
    return body, mask, scope.sort({*body.axes, *(mask.axes if mask else ()), expr.coordinate})


def softmaxed(
    low: Lowering,
    expr: ir.Normalize,
    body: Value,
    mask: Value | None,
    axes: tuple[Coordinate, ...],
    at: int,
    scope: Scope,
) -> Value:
    """Over the points that are kept. A row without any is all 0, with no 0 / 0 on the way, for its gradient."""
    last = -1 if at == len(axes) - 1 else at
    if mask is None:
        whole = arrays.broadcast(low, body, axes, scope)
        return Value(low.text.dialect.softmax(expr.op, whole.code, last, low.text), axes, "real", body.dtype)
    simple = expr.op == "softmax" and not low.isolate and scope.places[expr.coordinate].within is None
    if simple and keeps_a_point(expr, scope.trail, low.lets):
        kept = arrays.broadcast(low, points.filled(low, expr, body, mask, scope), axes, scope)
        return Value(low.text.dialect.softmax(expr.op, kept.code, last, low.text), axes, "real", body.dtype)
    helper = low.text.helper(f"guarded_{expr.op}")
    body = arrays.broadcast(low, body, axes, scope)
    mask = arrays.broadcast(low, mask, scope.sort({*mask.axes, expr.coordinate}), scope)
    code = call(helper, body.code, aligned(mask, axes).code, at - len(axes))
    return Value(code, axes, "real", body.dtype)


def running(
    low: Lowering,
    expr: ir.Normalize,
    body: Value,
    mask: Value | None,
    axes: tuple[Coordinate, ...],
    at: int,
    scope: Scope,
) -> Value:
    """`cumsum`: what is removed adds nothing, and is 0 itself."""
    zero = plain(0, body.kind)
    if mask is not None:
        mask = low.text.keep(mask, "kept")
        body = arrays.where(low, mask, body, zero, scope, body.dtype)
    body = arrays.broadcast(low, body, axes, scope)
    dtype = "i64" if expr.type.kind == "whole" else body.dtype
    if expr.type.kind == "whole" and integers.largest(low, expr, scope) > LARGEST["i64"]:
        code: Node = call(low.text.helper("checked_cumsum"), body.code, at)
    else:
        code = low.text.dialect.running("sum", body, at, low.text)
    result = Value(code, axes, expr.type.kind, dtype)
    return result if mask is None else arrays.where(low, mask, result, zero, scope, dtype)


def ranked(low: Lowering, expr: ir.Normalize, scope: Scope) -> Value:
    """`rank`: places in a stable sort. What is removed comes last, at the number of points that are left."""
    low.tell(f"the ranks along `{expr.coordinate}` by a stable sort")
    given, axes = compared(low, expr, scope)
    helper = low.text.helper("guarded_rank" if len(given) > 1 else "rank")
    return Value(call(helper, *given, axes.index(expr.coordinate) - len(axes)), axes, "whole", "i64")


def compared(low: Lowering, expr: ir.Normalize, scope: Scope) -> tuple[list[Node], tuple[Coordinate, ...]]:
    """The numbers that a ranking compares, and where there is one the mask of those that take part; their axes."""
    body, mask, axes = row(low, expr, scope)
    return [arrays.broadcast(low, part, axes, scope).code for part in (body, mask) if part is not None], axes


def normalized_row(low: Lowering, expr: ir.Normalize, scope: Scope) -> Value:
    """A normaliser over a coordinate that a loop steps: the whole row, then this point of it."""
    value = reuse.held(low, normalize(low, expr, scope.moving(expr.coordinate)))
    return reuse.at_step(low, value, expr.coordinate, scope)
