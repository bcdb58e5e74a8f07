"""Sums of which a condition leaves one point: `sum[n](E[n, m] where n == p[i])` is `E[p[i], m]`, or 0 where `p[i]` is
no `n`."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import factors_of
from ..ir.conditions import conjuncts_of, negated
from ..ir.elimination import solved
from ..ir.walk import Inexpressible, at, substitute
from .scatters import falls_within, is_read, is_total


def multiplied(expr: ir.Reduce, lets: Mapping[str, ir.Let]) -> ir.Expr | None:
    """The condition such as `n == p[i]` that is a factor of a sum, 1 or 0, and would leave one point as its guard; None
    where there is none. The two are not the same: 0 times an infinity is NaN."""
    for factor in factors_of(expr.body) if expr.op == "sum" else ():
        for condition in conjuncts_of(_indicated(factor.expr, lets)):
            for coordinate in condition.type.coordinates:
                value = solved(condition, coordinate)
                if value is not None and is_read(value) and expr.coordinates & condition.type.coordinates:
                    return condition
    return None


def _indicated(factor: ir.Expr, lets: Mapping[str, ir.Let]) -> ir.Expr | None:
    """The condition outside of which a factor is 0, in a definition that is read too. A guard of one is no such thing:
    where it removes a factor, no other counts."""
    match factor:
        case ir.Map(op, (condition,)) if op.startswith("as "):
            return condition if condition.type.kind == "bool" else _indicated(condition, lets)
        case ir.Select(condition, _, otherwise) if build.is_number(otherwise, 0):
            return condition
        case ir.Select(condition, then, _) if build.is_number(then, 0):
            return negated(condition)
        case ir.Read(tensor, indices) if tensor in lets and len(lets[tensor].clauses) == 1:
            clause = lets[tensor].clauses[0]
            found = _indicated(clause.body, {})
            bare = clause.guard is None and all(isinstance(slot, ir.Coord) for slot in clause.slots)
            return at(clause, found, indices) if found is not None and bare else None
    return None


def pinned(expr: ir.Reduce) -> tuple[ir.Range, ir.Expr, ir.Expr] | None:
    """The range that is left out, its one point, which is read from an array, and the sum without it; None where every
    range has many points. Arithmetic between coordinates is no such point: that is a view."""
    conditions = conjuncts_of(expr.guard) if expr.op == "sum" else []
    for n, condition in enumerate(conditions):
        for r in expr.ranges:
            value = solved(condition, r.coordinate)
            if value is None or not is_read(value) or any(r.coordinate in other.depends_on for other in expr.ranges):
                continue
            if n and not is_total(value):  # The conditions before may say where it has a value.
                continue
            there = {r.coordinate: value}
            try:
                body = substitute(expr.body, there)
                others = [substitute(other, there) for m, other in enumerate(conditions) if m != n]
            except Inexpressible:
                continue
            inside = falls_within(value, r.lower, r.upper)
            rest = tuple(other for other in expr.ranges if other is not r)
            guard = build.conjunction((inside, *others)) or inside
            if rest:
                return r, value, build.reduce("sum", rest, body, guard, expr.type.kind, expr.span)
            return r, value, build.select(guard, body, build.whole(0, expr.span), expr.span)
    return None
