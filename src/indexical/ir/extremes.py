"""The least and the largest value of a whole expression, where coordinates run over intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from .affine import Atom, Polynomial, polynomial
from .nodes import Expr, Map, Size
from .prove import is_counted
from .types import Coordinate
from .walk import substitute

# The first and the last point of coordinates.
Ends: TypeAlias = Mapping[Coordinate, tuple[Expr, Expr]]

_SAME, _UP, _DOWN = 0, 1, -1


def extreme(expr: Expr, ends: Ends, least: bool) -> Expr | None:
    """The least (or largest) value for coordinates that run from a first point to a last one, both included.

    It is taken at an end of each interval, so that it is a value of the expression wherever no interval is empty. None
    where the expression is not known to grow or to fall with one of them.
    """
    for coordinate in sorted(expr.type.coordinates & ends.keys()):
        way = direction(expr, coordinate)
        if way is None:
            return None
        first, last = ends[coordinate]
        expr = substitute(expr, {coordinate: first if (way >= 0) == least else last})
    return expr


def direction(expr: Expr, coordinate: Coordinate) -> int | None:
    """1 where a whole expression never falls as a coordinate grows, -1 where it never grows, 0 where it stays the same;
    None where that is not plain."""
    return _along(polynomial(expr), coordinate)


def _along(value: Polynomial, coordinate: Coordinate) -> int | None:
    ways: list[int | None] = []
    for monomial, factor in value.terms.items():
        moving = [(atom, power) for atom, power in monomial if _varies(atom, coordinate)]
        if not moving:
            continue
        others = [atom for atom, _ in monomial if not _varies(atom, coordinate)]
        if len(moving) > 1 or moving[0][1] != 1 or not all(isinstance(atom, Size) for atom in others):
            return None
        way = _of_atom(moving[0][0], coordinate)
        ways.append(None if way is None else way if factor > 0 else -way)
    return _both(ways)


def _varies(atom: Atom, coordinate: Coordinate) -> bool:
    return atom == coordinate if isinstance(atom, Coordinate) else coordinate in atom.type.coordinates


def _of_atom(atom: Atom, coordinate: Coordinate) -> int | None:
    """A quotient rounds toward 0, which keeps an order; so does the larger or smaller of two."""
    match atom:
        case Coordinate():
            return _UP
        case Map("//", (dividend, divisor)) if is_counted(polynomial(divisor)):
            return direction(dividend, coordinate)
        case Map("max" | "min", arguments):
            return _both([direction(argument, coordinate) for argument in arguments])
        case _:
            return None


def _both(ways: list[int | None]) -> int | None:
    found = set(ways) - {_SAME}
    if None in found or found == {_UP, _DOWN}:
        return None
    return found.pop() if found else _SAME
