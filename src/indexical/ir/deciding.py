"""Conditions that are decided by where a clause is: `t > 0` in `t in 1..size(t)`."""

from __future__ import annotations

from ..records import replace
from . import build
from . import nodes as ir
from .conditions import conjuncts_of, fails
from .prove import Assumptions
from .types import Coordinate
from .walk import rebuild


def decide(expr: ir.Expr, known: Assumptions, bound: frozenset[Coordinate]) -> ir.Expr:
    """The expression without branches that are never taken, where these hold of the coordinates that are `bound`; and
    without zeros that are added."""
    match expr:
        case ir.Select(condition, then, otherwise):
            if known.proves(condition):
                return decide(then, known, bound)
            if is_never(condition, known):
                return decide(otherwise, known, bound)
        case ir.Map("&&", (left, right)):
            if known.proves(left):
                return decide(right, known, bound)
            if known.proves(right):
                return decide(left, known, bound)
        case ir.Map("+" | "-" as op, (left, right)) if expr.type.kind == "real":
            left, right = decide(left, known, bound), decide(right, known, bound)
            if build.is_number(right, 0):
                return left
            if build.is_number(left, 0) and op == "+":
                return right
            return build.apply(op, (left, right), "real", expr.span)
        case ir.Reduce() if expr.coordinates & bound:
            return expr
        case ir.Reduce("sum", guard=ir.Map() as guard) if is_never(guard, known):
            return build.whole(0, expr.span)
        case ir.Reduce(guard=ir.Map() as guard) if any(map(known.proves, conditions := conjuncts_of(guard))):
            rest = build.conjunction(condition for condition in conditions if not known.proves(condition))
            return decide(replace(expr, guard=rest), known, bound)
        case ir.Normalize():
            return expr
    return rebuild(expr, lambda child: decide(child, known, bound))


def is_never(condition: ir.Expr, known: Assumptions) -> bool:
    """Whether a condition never holds; of several that must all hold, one is enough."""
    if isinstance(condition, ir.Map) and condition.op == "&&":
        return any(is_never(part, known) for part in condition.arguments)
    return known.proves(fails(condition))
