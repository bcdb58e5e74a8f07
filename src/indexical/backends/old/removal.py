"""Removal by guards: where a factor is 0 because of one, the product is 0 even if another factor is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir import nodes as ir
from ...ir.removal import removal, removal_of
from ...ir.walk import at, renamed_apart, walk
from .base import Value
from .lowering import Lowering
from .scope import Scope


def removed(low: Lowering, expr: ir.Expr, scope: Scope) -> Value | None:
    """The mask where an expression is 0 because a guard removed a point of it; None where none can."""
    condition = removal_condition(low, expr)
    if condition is None:
        return None
    return low.value(renamed_apart(condition, {coordinate.name for coordinate in scope.places}), scope)


def kept_factors(low: Lowering, factors: Sequence[ir.Expr], scope: Scope) -> list[Value]:
    """The factors of a product, each evaluated only where none of the others was removed: first those that may be
    removed, whose removal is then known."""
    removals = [removal_condition(low, factor) for factor in factors]
    values: dict[int, Value] = {}
    for n in sorted(range(len(factors)), key=lambda n: removals[n] is None):
        inner = scope
        for other in (condition for m, condition in enumerate(removals) if m != n and condition is not None):
            inner = inner.where(renamed_apart(other, {c.name for c in scope.places}), False)
        values[n] = low.value(factors[n], inner)
    return [values[n] for n in range(len(factors))]


def may_be_removed(low: Lowering, expr: ir.Expr) -> bool:
    """Whether a guard could remove this at all."""
    match expr:
        case ir.Read(tensor) if tensor in low.lets:
            return may_remove(low, tensor)
        case ir.Normalize(op="softmax" | "cumsum", guard=guard):
            return guard is not None
        case ir.Map("*", arguments):
            return any(may_be_removed(low, argument) for argument in arguments)
        case ir.Map("/" | "neg", arguments):
            return may_be_removed(low, arguments[0])
        case ir.Select(_, then, otherwise):
            return may_be_removed(low, then) or may_be_removed(low, otherwise)
        case _:
            return False


def may_remove(low: Lowering, tensor: str) -> bool:
    """Whether some point of a definition may be removed."""
    if tensor not in low.removable:
        low.removable[tensor] = False
        clauses = low.lets[tensor].clauses
        low.removable[tensor] = any(c.guard is not None or may_be_removed(low, c.body) for c in clauses)
    return low.removable[tensor]


def removal_condition(low: Lowering, expr: ir.Expr) -> ir.Expr | None:
    """The condition under which an expression is removed; None for never."""
    return removal(expr, partial(removal_of_read, low))


def removal_of_read(low: Lowering, read: ir.Read) -> ir.Expr | None:
    """The guard of a definition and the removal of its body, at the indices of a read, where that can be written
    down."""
    if not may_be_removed(low, read):
        return None
    let = low.lets[read.tensor]
    condition = None if let.name in low.recurrent else removal_of(let.clauses[0], partial(removal_of_read, low))
    if condition is None or not is_written(let, condition):
        return None
    return at(let.clauses[0], condition, read.indices)


def is_written(let: ir.Let, condition: ir.Expr | None) -> bool:
    """Whether the removal of a definition can be written down at any index: it has one clause, and no normaliser
    is in the way."""
    one = len(let.clauses) == 1 and all(isinstance(slot, ir.Coord) for slot in let.clauses[0].slots)
    return one and (condition is None or not any(isinstance(part, ir.Normalize) for part in walk(condition)))
