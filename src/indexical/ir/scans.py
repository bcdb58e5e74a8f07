"""Scans: `cumsum`, `cumprod` and `cummax` as the reductions up to a point that they are.

`cummax[i](x[i])` is `max[k](x[k] where k <= i)`. At a point that its guard removes it runs over no points at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..records import replace
from . import build
from . import nodes as ir
from .types import Coordinate
from .walk import fresh, rebuild, substitute, walk


def as_reductions(expr: ir.Expr, ranges: Mapping[Coordinate, ir.Range], scans: Mapping[str, str]) -> ir.Expr:
    """The expression with these scans as the reductions that they are; `ranges` are of the coordinates around it."""
    inner = {**ranges, **{r.coordinate: r for r in expr.ranges}} if isinstance(expr, ir.Reduce) else ranges
    expr = rebuild(expr, lambda child: as_reductions(child, inner, scans))
    if not isinstance(expr, ir.Normalize) or expr.op not in scans:
        return expr
    span, here = expr.span, build.coord(expr.coordinate, expr.span)
    bound = (c for part in walk(expr) if isinstance(part, ir.Reduce) for c in part.coordinates)
    taken = {c.name for c in (*ranges, *expr.type.coordinates, *bound)}
    point = build.coord(fresh(expr.coordinate, taken), span)
    at: dict[Coordinate, ir.Expr] = {expr.coordinate: point}
    earlier = build.apply("<=", (point, here), "bool", span)
    kept = None if expr.guard is None else substitute(expr.guard, at)
    range = replace(ranges[expr.coordinate], coordinate=point.coordinate)
    guard = build.conjunction((earlier, kept, expr.guard))
    return build.reduce(scans[expr.op], (range,), substitute(expr.body, at), guard, expr.type.kind, span)
