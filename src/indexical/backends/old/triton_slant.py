"""A part of a score that rises evenly with the places of queries and keys, as the bias of ALiBi does.

It is the sum of a number for each query and one for each key, counted from the tile of a program: distances and their
products are not computed pair by pair. What is the same for all keys of a query can wait until its sums are done. What
a key adds is the sum of what the first key of its tile adds, one number, and of the same numbers for all tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...ir import build
from ...ir import nodes as ir
from ...ir.algebra.factors import Factor, added, factors_of, product_of
from ...records import dataclass
from .triton_places import counted_from_first_key, counted_from_tile
from .triton_score import Cell, Terms


@dataclass(eq=False)
class Slant:
    """A score as an exponent of 2, in three parts: `rest`, what a key adds, and what is the same for all keys of a
    query, each with the sign before it. What a key adds is also the sum of two parts, `by_tile` and `by_near_key`."""

    rest: Cell
    key_sign: str
    by_key: Cell
    by_tile: Cell
    by_near_key: Cell
    row_sign: str
    by_row: Cell


def slant_of(terms: Terms, score: ir.Expr) -> Slant | None:
    """A score, which is a sum, with the first part that rises evenly; None where there is none, or nothing else."""
    everything = list(_summands(terms, score, True))
    for number, (term, positive) in enumerate(everything):
        steep, same = _apart(terms, factors_of(term))
        rest = added(everything[:number] + everything[number + 1 :], score.span)
        if rest is None or len(steep) != 1 or steep[0].inverse:
            continue
        even = counted_from_tile(steep[0].expr, terms.row, terms.key)
        if even is None:
            continue
        rise = terms.scaled(product_of(same or [Factor(build.real(Fraction(1), score.span))], term))
        rise = Cell(rise.axes, "real", rise.make, rise.parts, "rise", rise.plain)
        of_tile, of_near = counted_from_first_key(even.key, terms.key)
        by_row, by_key, by_tile, by_near_key = (
            terms.joined("*", (terms.offset(places, f"{name}_offset"), rise), "real", f"{name}_rise")
            for places, name in ((even.row, "row"), (even.key, "key"), (of_tile, "tile"), (of_near, "near"))
        )
        key_sign, row_sign = "+" if positive == (even.sign == "+") else "-", "+" if positive else "-"
        return Slant(terms.scaled(rest), key_sign, by_key, by_tile, by_near_key, row_sign, by_row)
    return None


def _summands(terms: Terms, expr: ir.Expr, positive: bool) -> Iterator[tuple[ir.Expr, bool]]:
    """The terms of a sum, and whether each is added. Numbers of the program that it is multiplied with go to each."""
    match expr:
        case _ if expr.type.kind != "real":
            yield expr, positive
        case ir.Map("+" | "-" as op, (left, right)):
            yield from _summands(terms, left, positive)
            yield from _summands(terms, right, positive == (op == "+"))
        case ir.Map("neg", (inner,)):
            yield from _summands(terms, inner, not positive)
        case ir.Map("*" | "/"):
            steep, same = _apart(terms, factors_of(expr))
            whole = len(steep) != 1 or steep[0].inverse or steep[0].expr.type.kind == "whole" or steep[0].expr == expr
            for term, sign in [(expr, positive)] if whole else _summands(terms, steep[0].expr, positive):
                yield term if whole else product_of([Factor(term), *same], expr), sign
        case _:
            yield expr, positive


def _apart(terms: Terms, factors: list[Factor]) -> tuple[list[Factor], list[Factor]]:
    """The factors that vary within a tile, and the others."""
    steep = [factor for factor in factors if terms.real(factor.expr).axes]
    return steep, [factor for factor in factors if factor not in steep]
