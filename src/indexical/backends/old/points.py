"""The points that take part in a reduction: what stands in the place of all others, and how many are left."""

from __future__ import annotations

from ...ir import nodes as ir
from . import arrays, contraction, sizes
from .base import Value, plain
from .code import ONE, ZERO, Name, Node, infix, negative, node
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope

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
