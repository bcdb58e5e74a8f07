"""Staged removal: the test whether a value is 0 because a guard removed a point of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import nodes as ir
from .reads import offset_of
from .tables import Stage
from .wholes import Point

if TYPE_CHECKING:
    from .reference import Evaluation


def removal(evaluation: Evaluation, expr: ir.Expr) -> Stage:
    """Whether a value is 0 because a guard removed a point of it; False at once where no guard can."""
    found = _looked_at(evaluation, expr)
    removable, key = evaluation.removable, id(expr)

    def removed(point: Point) -> bool:
        # Evaluated at a point and not before: in a recurrence the answer depends on which one was asked for first.
        known = removable[key] if key in removable else evaluation.may_be_removed(expr)
        return known and found(point)

    return removed


def _looked_at(evaluation: Evaluation, expr: ir.Expr) -> Stage:
    """The test whether a value is 0 because a point of it was removed, by the form of the expression."""
    match expr:
        case ir.Read():
            return _absence(evaluation, expr)
        case ir.Normalize(guard=guard) if guard is not None:
            kept = evaluation.compiled(guard)
            return lambda point: not kept(point)
        case ir.Map("*", (left, right)):
            first, second = evaluation.removal(left), evaluation.removal(right)
            return lambda point: first(point) or second(point)
        case ir.Map("/" | "neg", arguments):
            return evaluation.removal(arguments[0])
        case ir.Select():
            condition = evaluation.compiled(expr.condition)
            then, otherwise = evaluation.removal(expr.then), evaluation.removal(expr.otherwise)
            return lambda point: then(point) if condition(point) else otherwise(point)
        case _:
            return lambda point: False


def _absence(evaluation: Evaluation, expr: ir.Read) -> Stage:
    tensors, tensor = evaluation.tensors, expr.tensor
    offset = offset_of(evaluation, expr, f"`{tensor}`")

    def absent(point: Point) -> bool:
        table = tensors[tensor]
        at = offset(point, table.shape)
        return table.cells[at] is None or at in table.removed

    return absent
