"""Whole expressions and conditions at one point, where every size is the same small number: for counterexamples."""

from __future__ import annotations

from collections.abc import Mapping

from . import build, whole
from . import nodes as ir
from .types import Coordinate
from .walk import substitute, walk

# As many points as every coordinate has.
SIZE = 4


def value_at(expr: ir.Expr, point: Mapping[Coordinate, int]) -> int:
    """The value of a whole expression. What is not known in advance raises `whole.Unknown`."""
    closed = substitute(expr, {c: build.whole(v, expr.span) for c, v in point.items()})
    return whole.value(closed, lambda leaf: SIZE)


def may_hold(condition: ir.Expr, point: Mapping[Coordinate, int], holds: bool = True) -> bool:
    """Whether a condition on whole numbers may hold, or fail. Data may be anything, so what depends on it may do both;
    of what is neither, `whole.Unknown` is raised."""
    match condition:
        case ir.Map("&&" | "||" as op, (left, right)):
            both = may_hold(left, point, holds), may_hold(right, point, holds)
            return all(both) if (op == "&&") == holds else any(both)
        case ir.Map("!", (operand,)):
            return may_hold(operand, point, not holds)
        case ir.Map("<" | "<=" | ">" | ">=" | "==" | "!=" as op, (left, right)):
            if _reads_data(condition):
                return True
            a, b = value_at(left, point), value_at(right, point)
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[op] == holds
        case ir.Const(value):
            return bool(value) == holds
        case _ if _reads_data(condition):
            return True
        case _:
            raise whole.Unknown


def _reads_data(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.Read) and part.indices for part in walk(expr))
