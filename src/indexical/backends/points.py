"""The points that take part in a reduction: what stands in the place of all others, and how many are left."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.needs import depends_on_data
from ..ir.types import Coordinate
from . import arrays, contraction, sizes
from .base import Value, plain
from .code import ONE, ZERO, Infix, Name, Node, chain, infix, method, negative, node
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .values import aligned, joined

_NEUTRAL: dict[str, Node] = {"sum": ZERO, "mean": ZERO, "prod": ONE, "any": Name("False"), "all": Name("True")}


def filled(low: Lowering, expr: ir.Reduce | ir.Normalize, body: Value, mask: Value, scope: Scope) -> Value:
    """The neutral value of the operation where the mask removes a point."""
    body = arrays.as_array(low, body)
    return arrays.where(low, mask, body, plain(neutral(expr.op, body), body.kind), scope, body.dtype)


def neutral(op: str, body: Value) -> Node:
    """The value that changes nothing."""
    if op in _NEUTRAL:
        return _NEUTRAL[op]
    if body.kind == "real":
        return Name("math.inf") if op == "min" else negative("math.inf")
    most = LARGEST[body.dtype or "i64"]
    return node(-most - 1 if op == "max" else most)


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
                    test = sizes.is_below(low, sizes.extent_of(coordinate, inner) - 1, inner)
                arrays.fail_where(low, plain(test, "bool"), "IX310", message, scope)
        return
    some = contraction.some_left(
        low, [arrays.broadcast(low, mask, inner.sort({*mask.axes, *bound}), inner)], frozenset(bound), inner
    )
    arrays.fail_where(low, arrays.negation(low.text.keep(some, "some")), "IX310", message, scope)


def place(low: Lowering, expr: ir.Reduce, found: Value, inner: Scope, scope: Scope, sure: bool = False) -> Value:
    """A place that is counted from the first point, as the coordinate counts; -1, where none is `sure`, is refused,
    unless data made it so."""
    found = low.text.keep(found, "place")
    by_data = is_data_guard(low, expr)
    if not by_data and not sure:
        none = Value(infix("<", found.code, 0), found.axes, "bool", "bool")
        arrays.fail_where(low, none, "IX310", f"`{expr.op}` over no points has no value", scope)
    start = sizes.number(low, inner.places[expr.ranges[0].coordinate].start, inner)
    if start == ZERO:
        return found
    moved = infix("+", found.code, start)
    some = Value(infix(">=", found.code, 0), found.axes, "bool", "bool")
    return found.but(low.text.dialect.where(some, moved, negative(1)) if by_data else moved)


def averaged(
    low: Lowering, total: Value, expr: ir.Reduce, masks: list[Value | None] | list[Value], inner: Scope, scope: Scope
) -> Value:
    """A sum divided by how many points there are."""
    mask = arrays.conjunction(low, [mask for mask in masks if mask is not None], inner)
    count = points_left(low, mask, inner.sort(expr.coordinates), inner)
    if mask is not None:
        return divided(low, total, count, expr, scope)
    if not is_data_guard(low, expr):
        check_count(low, expr, None, inner, scope, "`mean` over no points has no value")
    return quotient(low, total, count, scope)


def divided(low: Lowering, total: Value, count: Value, expr: ir.Reduce, scope: Scope) -> Value:
    """A sum divided by a number of points, which is not 0 unless data made it so. At points that a guard removes it may
    be, and 0 / 0 would be a NaN on the way back."""
    count = low.text.keep(count, "count")
    none = Value(infix("==", count.code, 0), count.axes, "bool", "bool")
    by_data = is_data_guard(low, expr)
    if not by_data:
        arrays.fail_where(low, none, "IX310", "`mean` over no points has no value", scope)
    if not scope.conditions():
        return quotient(low, total, count, scope)
    mean = quotient(low, total, count.but(method(count.code, "clip", 1)), scope)
    return arrays.where(low, none, plain(Name("math.nan"), "real"), mean, scope, mean.dtype) if by_data else mean


def quotient(low: Lowering, total: Value, count: Value, scope: Scope) -> Value:
    """A sum over a number of points, as a real."""
    axes = joined((total, count), scope.order)
    left, right = aligned(total, axes), aligned(arrays.as_real(low, count, total.dtype), axes)
    return Value(Infix("/", left.code, right.code), axes, "real", total.dtype)


def is_data_guard(low: Lowering, expr: ir.Reduce) -> bool:
    """Whether a guard depends on an input or on figures, through definitions too."""
    return expr.guard is not None and depends_on_data(expr.guard, low.lets)
