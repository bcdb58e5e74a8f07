"""Cross-entropy, in any definition that spells it out: `-log_softmax[c](x[i, c])` at the class `t[i]`, for each point,
added up or its mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.walk import Inexpressible, at, substitute

Lets: TypeAlias = Mapping[str, ir.Let]
Reduction: TypeAlias = Literal["none", "sum", "mean"]


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """The cross-entropy of `logits` and the class `target`, which is one of those of `classes`: at each point of
    `rows`, added up or their mean. `log_softmax` is the definition that it is read from, which need not be built."""

    logits: ir.Expr
    classes: ir.Range
    target: ir.Expr
    rows: tuple[ir.Range, ...]
    reduction: Reduction
    log_softmax: str

    @property
    def parts(self) -> tuple[ir.Expr, ...]:
        """The expressions that have to be evaluated."""
        return (self.logits, self.target)


def find_loss(let: ir.Let, lets: Lets) -> CrossEntropy | None:
    """The cross-entropy that a definition is; None where it is anything else."""
    clause = _plain(let)
    if clause is None or let.kind != "real":
        return None
    body, minus, reduction, rows = clause.body, False, _NONE, clause.ranges
    while True:
        match body:
            case ir.Map("neg", (inner,)):
                body, minus = inner, not minus
            case ir.Reduce("sum" | "mean" as op, ranges, inner, None) if reduction == "none" and not let.axes:
                body, reduction, rows = inner, op, ranges
            case ir.Read(tensor, indices) if tensor in lets:
                found = _at_class(body, rows, reduction, lets)
                if found is not None:
                    return found if minus else None
                inside = _plain(lets[tensor])
                opened = None if inside is None else at(inside, inside.body, indices)
                if opened is None:
                    return None
                body = opened
            case _:
                return None


_NONE: Reduction = "none"


def _plain(let: ir.Let) -> ir.Clause | None:
    """The only clause of a definition, where it has no guard and all of its slots are coordinates."""
    clause = let.clauses[0]
    if len(let.clauses) > 1 or clause.guard is not None:
        return None
    return clause if all(isinstance(slot, ir.Coord) for slot in clause.slots) else None


def _at_class(read: ir.Read, rows: tuple[ir.Range, ...], reduction: Reduction, lets: Lets) -> CrossEntropy | None:
    """A read of `log_softmax` at one class for each row."""
    clause = _plain(lets[read.tensor])
    body = None if clause is None else clause.body
    if clause is None or not isinstance(body, ir.Normalize) or body.op != "log_softmax" or body.guard is not None:
        return None
    slots = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
    place = slots.index(body.coordinate)
    target = read.indices[place]
    others = {slot: index for n, (slot, index) in enumerate(zip(slots, read.indices, strict=True)) if n != place}
    read_at = [index.coordinate for index in others.values() if isinstance(index, ir.Coord)]
    classes = next(range for range in clause.ranges if range.coordinate == body.coordinate)
    bound = {range.coordinate for range in rows}
    if len(read_at) != len(others) or len(set(read_at)) != len(read_at) or set(read_at) != bound:
        return None
    if isinstance(target, ir.Coord) or not target.type.coordinates or not target.type.coordinates <= bound:
        return None
    if any(limit.type.coordinates for range in (classes, *rows) for limit in (range.lower, range.upper)):
        return None
    try:
        logits = substitute(body.body, dict(others))
    except Inexpressible:
        return None
    if body.coordinate in bound or logits.type.coordinates != bound | {body.coordinate}:
        return None
    if classes.lower != build.whole(0, classes.span):
        return None
    return CrossEntropy(logits, classes, target, rows, reduction, read.tensor)
