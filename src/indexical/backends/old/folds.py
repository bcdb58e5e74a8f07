"""Attentions as folds: what the finder says of them, in the words of operations."""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.dialects.base import Dialect
from ...engine.lower.folds import Found
from ...ir import nodes as ir
from ...plan.steps import Attend, Attention, Free, Softpick, Step
from ...plan.target import STREAM
from .operands import hull_expr


def fold_of(step: Step, lets: Mapping[str, ir.Let], library: Dialect) -> Found | None:
    """A step as a fold, where the engine prints it; None for what the former emitter prints."""
    attend = step.attend
    if not library.tiles_folds or attend is None or step.kernel != STREAM:
        return None
    attention = attend.attention
    more = () if attention.sink is None else (attention.sink,)
    low, beyond = (_of_row(hull_expr(op, attend), attend) for op in ("min", "max"))
    covered = [lets[name] for name in (*step.covers, step.definition)]
    texts = tuple(dict.fromkeys(clause.span.text for let in covered for clause in let.clauses))
    return Found(
        _normaliser(attention),
        attention.key,
        attend.row,
        attention.score,
        attention.value,
        attention.guard,
        more,
        low,
        beyond,
        attention.empty != "zero",
        texts,
    )


def _normaliser(attention: Attention) -> str:
    """The row of the table."""
    normaliser = attention.normaliser
    if isinstance(normaliser, Free):
        return "free"
    if isinstance(normaliser, Softpick):
        return f"softpick from {normaliser.origin}"
    return "softmax" if normaliser.sink is None else "softmax with a sink"


def _of_row(bound: ir.Expr | None, attend: Attend) -> ir.Expr | None:
    """A bound of keys that varies with the query alone."""
    return bound if bound is not None and bound.type.coordinates <= {attend.row} else None
