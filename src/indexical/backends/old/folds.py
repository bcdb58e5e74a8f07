"""Attentions as folds: what the finder says of them, in the words of operations."""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.dialects.base import Dialect
from ...engine.lower.folds import Found
from ...ir import build
from ...ir import nodes as ir
from ...ir.algebra.factors import factors_of
from ...ir.context import assume
from ...ir.types import Coordinate
from ...ir.walk import substitute
from ...plan.steps import Attend, Attention, Free, Softpick, Step
from ...plan.target import STREAM
from ...records import replace
from .operands import hull_expr, is_hull
from .plan.few import last_hears_all


def fold_of(step: Step, lets: Mapping[str, ir.Let], library: Dialect) -> Found | None:
    """A step as a fold, where the engine prints it; None for what the former emitter prints."""
    if not library.tiles_folds or step.attend is None or step.kernel != STREAM or step.attend.decodes:
        return None
    return found_of(step, step.attend, lets)


def few_of(step: Step, lets: Mapping[str, ir.Let]) -> Found | None:
    """A step as a fold in calls of few pairs, for which another kernel would take longer; None where none would."""
    if step.attend is None or step.attend.few is None or step.kernel == STREAM:
        return None
    return replace(found_of(step, step.attend, lets), alone=last_hears_all(step.attend))


def found_of(step: Step, attend: Attend, lets: Mapping[str, ir.Let]) -> Found:
    """What is known of an attention as a fold."""
    attention = attend.attention
    more = () if attention.sink is None else (attention.sink,)
    hull = [hull_expr(op, attend) for op in ("min", "max")]
    low, beyond = (bound if bound is not None and _is_of_queries(bound, attend) else None for bound in hull)
    covered = [lets[name] for name in (*step.covers, step.definition)]
    texts = tuple(dict.fromkeys(clause.span.text for let in covered for clause in let.clauses))
    row = attend.row or _asking(attention, lets[step.definition])
    return Found(
        step.definition,
        _normaliser(attention),
        attention.key,
        row,
        attention.score,
        attention.value,
        attention.guard,
        more,
        low,
        beyond,
        attention.empty != "zero",
        is_hull(attend) and all(bound is None or _is_of_queries(bound, attend) for bound in hull),
        attend.totals,
        attend.few,
        _hears_itself(attend, row, lets),
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


def _asking(attention: Attention, let: ir.Let) -> Coordinate | None:
    """The coordinate of queries where a factor of the values varies with it, as a sign of scores does: the last with
    which scores vary and no other factor; None where there is none."""
    carried = [one.expr.type.coordinates for one in factors_of(attention.value)]
    own = frozenset().union(*(names for names in carried if not names <= attention.asked))
    found = [axis.coordinate for axis in let.axes if axis.coordinate in attention.asked - own]
    return found[-1] if found and attention.coordinate in own else None


def _is_of_queries(bound: ir.Expr, attend: Attend) -> bool:
    """Whether a bound of keys varies with queries alone."""
    return attend.attention.coordinate not in bound.type.coordinates


def _hears_itself(attend: Attend, row: Coordinate | None, lets: Mapping[str, ir.Let]) -> bool:
    """Whether each query hears the key at its own place, if there is one."""
    key = attend.attention.key
    if row is None or not key.from_zero or not attend.domain.range(row).from_zero:
        return False
    known = assume(attend.domain.box, lets)
    itself = build.coord(row, key.span)
    return all(known.proves(substitute(one, {key.coordinate: itself})) for one in attend.attention.guard)
