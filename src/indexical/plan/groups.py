"""Sums over the members of a group: `sum[h](x[h] where h / 4 == g)`, for every `g`."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import expression, number, of_atom, polynomial
from ..ir.conditions import conjuncts_of
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, substitute, walk
from .scatters import falls_within


def grouped(expr: ir.Reduce, condition: ir.Expr) -> ir.Reduce | None:
    """The sum with the members of a group one after the other, where a condition says which group it is: under
    `h / 4 == g` these are `g * 4 + r`, under `h % 4 == g` they are `r * 4 + g`. None for any other condition."""
    match condition:
        case ir.Map(
            "==", (ir.Map("//" | "%" as op, (ir.Coord(member), ir.Const(int() as width))), ir.Coord(group))
        ) | ir.Map("==", (ir.Coord(group), ir.Map("//" | "%" as op, (ir.Coord(member), ir.Const(int() as width))))) if (
            member in expr.coordinates and group != member and width >= 1
        ):
            pass
        case _:
            return None
    range = next(range for range in expr.ranges if range.coordinate == member)
    edges = {c for r in expr.ranges for c in r.depends_on}
    if member in edges or range.upper.type.coordinates:
        return None
    if not isinstance(range.lower, ir.Const) or range.lower.value < 0:
        return None
    return _unrolled(expr, condition, range, op, width, group)


def _unrolled(
    expr: ir.Reduce, condition: ir.Expr, range: ir.Range, op: str, width: int, group: Coordinate
) -> ir.Reduce | None:
    """The members of a group by a coordinate of their own."""
    span, many = condition.span, build.whole(width, condition.span)
    assert expr.guard is not None
    taken = {c.name for part in (expr.body, expr.guard) for inner in walk(part) for c in inner.type.coordinates}
    new = fresh(range.coordinate, taken)
    inside, which = of_atom(new), of_atom(group)
    if op == "//":
        upper: ir.Expr = many
        place = expression(which * number(width) + inside, span)
    else:
        upper = build.apply("//", (expression(polynomial(range.upper) + (width - 1), span), many), "whole", span)
        place = expression(inside * number(width) + which, span)
    in_range = falls_within(place, range.lower, range.upper)
    if op == "%":
        short = build.apply("<", (build.coord(group, span), many), "bool", span)
        in_range = build.apply("&&", (short, in_range), "bool", span)
    values = {range.coordinate: place}
    try:
        # First, since all other conditions are only asked of members that there are.
        conditions = [in_range, *(substitute(c, values) for c in conjuncts_of(expr.guard) if c is not condition)]
        body = substitute(expr.body, values)
    except Inexpressible:
        return None
    counted = ir.Range(new, build.whole(0, span), upper, True, range.span)
    ranges = tuple(counted if r is range else r for r in expr.ranges)
    return build.reduce(expr.op, ranges, body, build.conjunction(conditions), expr.type.kind, expr.span)
