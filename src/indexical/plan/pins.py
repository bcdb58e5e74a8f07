"""Sums of which a condition leaves one point: `sum[n](E[n, m] where n == p[i])` is `E[p[i], m]`, or 0 where `p[i]` is
no `n`."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..ir.elimination import solved
from ..ir.walk import Inexpressible, substitute
from .scatters import falls_within, is_read, is_total


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
