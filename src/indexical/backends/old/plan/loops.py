"""Recurrences that are stepped, so written that little is left to do in a step."""

from __future__ import annotations

from collections.abc import Collection

from ....ir import build
from ....ir import nodes as ir
from ....ir.walk import rebuild, walk
from ....plan.linear import split_guard
from ....records import replace


def lighten(let: ir.Let, group: Collection[str]) -> ir.Let:
    """A definition of a recurrence: what is added in several terms that no step changes is added once, before; a
    condition that a sum does not vary with is asked before it is summed."""
    clauses = tuple(replace(clause, body=_lightened(clause.body, group)) for clause in let.clauses)
    return replace(let, clauses=clauses)


def _lightened(expr: ir.Expr, group: Collection[str]) -> ir.Expr:
    if not _moves(expr, group):
        return expr
    expr = rebuild(expr, lambda child: _lightened(child, group))
    match expr:
        case ir.Reduce("sum") if expr.guard is not None:
            outside, guard = split_guard(expr)
            if outside is not None:
                inner = build.reduce("sum", expr.ranges, expr.body, guard, expr.type.kind, expr.span)
                return build.select(outside, inner, build.whole(0, expr.span), expr.span)
        case ir.Map("+" | "-") if expr.type.kind == "real":
            return _grouped(expr, group)
    return expr


def _grouped(expr: ir.Map, group: Collection[str]) -> ir.Expr:
    """A sum with the terms first that no step changes."""
    terms = _terms(expr)
    fixed = [term for term in terms if not _moves(term[0], group)]
    if len(fixed) < 2:
        return expr
    ordered = fixed + [term for term in terms if _moves(term[0], group)]
    result, negative = ordered[0]
    if negative:
        result = build.apply("neg", (result,), "real", expr.span)
    for term, negative in ordered[1:]:
        result = build.apply("-" if negative else "+", (result, term), "real", expr.span)
    return result


def _terms(expr: ir.Expr) -> list[tuple[ir.Expr, bool]]:
    """The terms of a sum, each with whether it is subtracted."""
    match expr:
        case ir.Map("+", (left, right)) if expr.type.kind == "real":
            return _terms(left) + _terms(right)
        case ir.Map("-", (left, right)) if expr.type.kind == "real":
            return _terms(left) + [(term, not negative) for term, negative in _terms(right)]
        case _:
            return [(expr, False)]


def _moves(expr: ir.Expr, group: Collection[str]) -> bool:
    return any(isinstance(part, ir.Read) and part.tensor in group for part in walk(expr))
