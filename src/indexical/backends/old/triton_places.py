"""Whole numbers that rise evenly with the places of queries and keys, counted from the first place of a tile, and such
as places are compared with."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial, step_of
from ...ir.algebra.canonical import written
from ...ir.types import Coordinate
from ...ir.walk import rebuild, substitute, walk
from ...records import dataclass

# The ends of the tile of a program, by names that no tensor can have; and of a tile of keys that it meets, the first
# key, and all keys counted from there.
TILE = ("t0'", "t1'")
FIRST_KEY, NEAR_KEYS = "k0'", "near_keys'"
# A function of a whole number that is given: it has 32 bits, and is beyond all places where the number is.
NEAR = "near'"


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


def saturated(bound: ir.Expr) -> ir.Expr:
    """A bound of places: where one number in it is given, that is taken to be no further beyond them than it must."""
    match bound:
        case ir.Select() | ir.Map("max" | "min" | "&&" | "||" | "!"):
            return rebuild(bound, saturated)
        case ir.Map("<" | "<=" | ">" | ">=" | "==" | "!=", sides) if any(map(_is_place, sides)):
            return rebuild(bound, saturated)
        case _ if bound.type.kind != "whole":
            return bound
    given = [part for part in _summands(bound) if isinstance(part, ir.Read) and part.tensor not in TILE]
    return _near(bound, given[0]) if len(given) == 1 else bound


def _is_place(expr: ir.Expr) -> bool:
    """Whether this is the place of a query or a key, or an end of a tile."""
    return isinstance(expr, ir.Coord) or (isinstance(expr, ir.Read) and expr.tensor in TILE)


def _summands(expr: ir.Expr) -> Iterable[ir.Expr]:
    """The terms of a sum, as far as they are not multiplied."""
    if isinstance(expr, ir.Map) and expr.op in ("+", "-", "neg"):
        return [term for argument in expr.arguments for term in _summands(argument)]
    return [expr]


def _near(expr: ir.Expr, given: ir.Expr) -> ir.Expr:
    if expr == given:
        return build.apply(NEAR, (expr,), "whole", expr.span)
    return expr if isinstance(expr, ir.Read) else rebuild(expr, lambda part: _near(part, given))
