"""Ranges that vary with a position, as guards: where the position is data, a range cannot be made of it."""

from __future__ import annotations

from collections.abc import Mapping

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import extreme, tidied
from ..ir.types import Coordinate
from ..ir.walk import rebuild, renamed_apart
from ..records import replace
from .positions import Unsplit


def without_ranges_along(expr: ir.Expr, own: Coordinate, last: ir.Expr) -> ir.Expr:
    """The expression in which reductions go as far as they ever do for `own` positions from 0 to `last`; guards remove
    what one position does not take."""
    return _changed(renamed_apart(expr, {own.name}), own, last, {})


def _changed(expr: ir.Expr, own: Coordinate, last: ir.Expr, guards: Mapping[Coordinate, ir.Expr]) -> ir.Expr:
    """The same under `guards` of coordinates: what is normalised over one of them takes no more points than before."""
    if isinstance(expr, ir.Reduce):
        guards = {coordinate: guard for coordinate, guard in guards.items() if coordinate not in expr.coordinates}
        ranges = tuple(_widest(range, own, last) for range in expr.ranges)
        here = {r.coordinate: guard for r in expr.ranges if (guard := _within(r, own)) is not None}
        expr = rebuild(expr, lambda child: _changed(child, own, last, {**guards, **here}))
        assert isinstance(expr, ir.Reduce)
        guard = build.conjunction((*here.values(), expr.guard))
        return build.reduce(expr.op, ranges, expr.body, guard, expr.type.kind, expr.span)
    expr = rebuild(expr, lambda child: _changed(child, own, last, guards))
    if isinstance(expr, ir.Normalize) and expr.coordinate in guards:
        guard = build.conjunction((guards[expr.coordinate], expr.guard))
        return build.normalize(expr.op, expr.coordinate, expr.body, guard, expr.type.kind, expr.span)
    return expr


def _widest(range: ir.Range, own: Coordinate, last: ir.Expr) -> ir.Range:
    """The points that a range has for some position."""
    ends = {own: (build.whole(0, range.span), last)}
    lower, upper = extreme(range.lower, ends, True), extreme(range.upper, ends, False)
    if lower is None or upper is None:
        words = "nothing says how far this goes at most"
        message = f"how far `{range.coordinate.name}` runs is not the same at all positions, of which there is room"
        raise Unsplit(f"{message} for a fixed number", Label(range.span, words), help="write it as a guard")
    return replace(range, lower=tidied(lower), upper=tidied(upper))


def _within(range: ir.Range, own: Coordinate) -> ir.Expr | None:
    """The condition that a point is in a range that varies with `own`."""
    point = build.coord(range.coordinate, range.span)
    sides = (("<=", range.lower, point), ("<", point, range.upper))
    return build.conjunction(
        build.apply(op, (left, right), "bool", range.span)
        for op, left, right in sides
        if own in left.type.coordinates | right.type.coordinates
    )
