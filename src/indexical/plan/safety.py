"""What may be evaluated anywhere: reads that are never out of bounds, quotients that never divide by zero."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk


def doubtful(program: ir.Program) -> frozenset[Coordinate]:
    """Coordinates that run over a stated range: an axis that they index need not have all of their points."""
    ranges = [r for let in program.lets for clause in let.clauses for r in clause.ranges]
    for let in program.lets:
        for clause in let.clauses:
            for part in (clause.body, clause.guard):
                if part is not None:
                    ranges += [r for inner in walk(part) if isinstance(inner, ir.Reduce) for r in inner.ranges]
    captured = [axis.coordinate for let in program.lets for axis in let.axes[: let.captured]]
    return frozenset(r.coordinate for r in ranges if r.stated).union(captured)


def is_safe(expr: ir.Expr, doubts: frozenset[Coordinate]) -> bool:
    """Whether an expression has a value wherever it stands."""
    for part in walk(expr):
        match part:
            case ir.Read(indices=indices) | ir.Array(indices=indices):
                if not all(isinstance(index, ir.Coord) and index.coordinate not in doubts for index in indices):
                    return False
            case ir.Map("//" | "%", (_, divisor)) if part.type.kind == "whole":
                if not isinstance(divisor, ir.Size) and not (isinstance(divisor, ir.Const) and divisor.value):
                    return False
            case ir.Map("**") | ir.Reduce("max" | "min" | "mean" | "argmax" | "argmin"):
                if part.type.kind == "whole" or isinstance(part, ir.Reduce):
                    return False
    return True


def arranged(conditions: Mapping[str, ir.Expr]) -> dict[str, ir.Expr]:
    """Conditions in the order in which they are asked: what is always safe first, in the order of its text; the
    rest in the order in which it stood, since one may guard another."""
    if len(conditions) < 2:
        return dict(conditions)
    safe: list[tuple[str, ir.Expr]] = []
    reading: list[tuple[str, ir.Expr]] = []
    other: list[tuple[str, ir.Expr]] = []
    for key, condition in conditions.items():
        if not is_safe(condition, frozenset()):
            other.append((key, condition))
        else:
            reads = any(isinstance(part, ir.Read | ir.Array) for part in walk(condition))
            (reading if reads else safe).append((key, condition))
    return dict((*sorted(safe, key=_first), *sorted(reading, key=_first), *other))


def _first(pair: tuple[str, ir.Expr]) -> str:
    return pair[0]
