"""Weights in normal form: e to a score, divided by the sum of what it is over one coordinate."""

from __future__ import annotations

from collections.abc import Iterable

from .. import build
from .. import nodes as ir
from ..types import Coordinate
from ..walk import children
from .normal import Atom, Form, Number, Product, Sum, TooLarge, form, plus, present
from .normalize import Algebra
from .sums import replaced


def totals(factors: Iterable[tuple[Atom, Number]]) -> list[Sum]:
    """The sums of exponentials that something is divided by."""
    return [atom for atom, power in factors if power < 0 and isinstance(atom, Sum) and atom.body.exponential]


def summand(algebra: Algebra, total: Sum, coordinate: Coordinate) -> Product | str:
    """The summand of a total over one coordinate, at another one; or why it sums no plain exponentials."""
    at_key = {total.binders[0].coordinate: build.coord(coordinate, total.binders[0].lower.span)}
    found = replaced(form(((1, total.body),)), at_key, algebra).terms
    if len(found) != 1 or found[0][0] != 1 or found[0][1].exponent is None:
        return "what is summed is not what its weights are normalised by"
    if found[0][1].factors:
        return "its weights are more than exponentials before they are normalised"
    return found[0][1]


def matched(
    algebra: Algebra, exponent: Form, share: Product, key: Coordinate, brought: frozenset[Coordinate]
) -> tuple[Form, Form] | None:
    """The exponents of the numerator and of the denominator, where they differ by nothing that varies with the key.
    Coordinates that are `brought` along with the values are not taken for those of the query."""
    assert share.exponent is not None
    above, below = inlined(algebra, exponent, share.exponent, key, brought)
    return None if key in plus(above, below, -1).coordinates else (above, below)


def carried(value: ir.Expr, key: Coordinate) -> frozenset[Coordinate]:
    """The coordinates that a value carries: those in it apart from the key. In `V[i - j, e]`, read at a distance from
    the query, `i` is not one of them."""
    if isinstance(value, ir.Read | ir.Array):
        return frozenset().union(*(i.type.coordinates for i in value.indices if key not in i.type.coordinates))
    parts = children(value)
    found = frozenset().union(*(carried(part, key) for part in parts)) if parts else value.type.coordinates
    return found & value.type.coordinates


def inlined(
    algebra: Algebra, above: Form, below: Form, key: Coordinate, brought: frozenset[Coordinate]
) -> tuple[Form, Form]:
    """Both exponents, with every definition inlined that varies with the query and the key; as they are where that
    grows too large."""
    work = algebra.work
    asks = (above.coordinates | below.coordinates) - {key}
    asks = asks - brought or asks

    def opens(read: ir.Read) -> bool:
        coordinates = read.type.coordinates
        return key in coordinates and (not asks or not coordinates.isdisjoint(asks))

    try:
        return present(algebra.opened(above, opens)), present(algebra.opened(below, opens))
    except TooLarge:
        algebra.work, algebra.depth = work, 0
        return above, below
