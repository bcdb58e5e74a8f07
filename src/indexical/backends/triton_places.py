"""Whole numbers that rise evenly with the places of queries and keys, counted from the first place of a tile."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial, step_of
from ..ir.algebra.canonical import written
from ..ir.types import Coordinate
from ..ir.walk import substitute, walk
from ..records import dataclass

# The ends of the tile of a program, by names that no tensor can have; and of a tile of keys that it meets the
# first key, and its keys counted from there.
TILE = ("t0'", "t1'")
FIRST_KEY, NEAR_KEYS = "k0'", "near_keys'"


@dataclass(frozen=True)
class Even:
    """A whole number of query and key as the sum, or with `sign` "-" the difference, of one of each: what it is at a
    query and the first key of a tile, and what a key further on adds."""

    row: ir.Expr
    sign: str
    key: ir.Expr


def counted_from_tile(expr: ir.Expr, row: Coordinate, key: Coordinate) -> Even | None:
    """A whole number that changes by as much with each query, and with each key; None where it does not."""
    if expr.type.kind != "whole" or any(isinstance(part, ir.Read) for part in walk(expr)):
        return None
    step = step_of(expr, key)
    if not step or not step_of(expr, row):
        return None
    start = build.read(TILE[0], (), "whole", expr.span)
    first, own = polynomial(substitute(expr, {key: start})), polynomial(expr)
    further = own - first if step > 0 else first - own
    return Even(written(first, expr.span), "+" if step > 0 else "-", written(further, expr.span))


def counted_from_first_key(expr: ir.Expr, key: Coordinate) -> tuple[ir.Expr, ir.Expr]:
    """A whole number that rises evenly with the key, in a tile of keys: what it is at the first, and what each adds."""
    first, near = (build.read(name, (), "whole", expr.span) for name in (FIRST_KEY, NEAR_KEYS))
    adds = polynomial(substitute(expr, {key: near})) - polynomial(substitute(expr, {key: build.whole(0, expr.span)}))
    return written(polynomial(substitute(expr, {key: first})), expr.span), written(adds, expr.span)
