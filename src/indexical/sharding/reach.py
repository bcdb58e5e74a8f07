"""The points that an index reaches from any block, found once: blocks differ in their ends alone, and where all that is
known is affine, so is what is reached of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import ONE, Polynomial, of_atom, polynomial
from ..ir.context import Trail
from ..ir.domain import Domain
from ..ir.prove import Assumptions, Inexact, Row, eliminate
from ..ir.types import Coordinate
from ..records import dataclass, replace

Numbers: TypeAlias = NDArray[np.int64]
# The first point of a range and the one after its last, of many blocks at once, by the coordinate.
Ends: TypeAlias = Mapping[Coordinate, tuple[Numbers, Numbers]]

_PLACE = Coordinate("the place")
# Sums of products of these and of points fit 64 bits.
_LARGEST_FACTOR, _LARGEST_NUMBER = 1 << 16, 1 << 40


def _ends_of(coordinate: Coordinate) -> tuple[Coordinate, Coordinate]:
    return Coordinate(f"first {coordinate.name}"), Coordinate(f"last {coordinate.name}")


def open_range(range: ir.Range) -> ir.Range:
    """A range between two ends that are told later."""
    first, last = (build.coord(end, range.span) for end in _ends_of(range.coordinate))
    return replace(range, lower=first, upper=last, stated=True)


@dataclass(frozen=True, slots=True)
class Reach:
    """The points of an axis of this extent that an index reaches, as a function of the ends of open ranges. Each case
    is what holds of these and of the place that is reached."""

    extent: int
    cases: tuple[tuple[Row, ...], ...]

    def rows(self, ends: Ends) -> tuple[Numbers, Numbers]:
        """The first point and the one after the last, for all blocks at once; both are 0 where there is none."""
        values = {end: array for name, both in ends.items() for end, array in zip(_ends_of(name), both, strict=True)}
        shape = np.broadcast_shapes(*(array.shape for array in values.values()))
        lowest, highest = np.full(shape, self.extent), np.full(shape, -1)
        found = np.zeros(shape, bool)
        for case in self.cases:
            here = np.ones(shape, bool)
            lower, upper = np.full(shape, -_LARGEST_NUMBER), np.full(shape, _LARGEST_NUMBER)
            for row in case:
                factor = row.get(_AT_PLACE, 0)
                rest = _value({monomial: n for monomial, n in row.items() if monomial != _AT_PLACE}, values)
                if factor > 0:
                    lower = np.maximum(lower, -(rest // factor))
                elif factor < 0:
                    upper = np.minimum(upper, rest // -factor)
                else:
                    here &= rest >= 0
            here &= lower <= upper
            lowest = np.where(here, np.minimum(lowest, lower), lowest)
            highest = np.where(here, np.maximum(highest, upper), highest)
            found |= here
        first = np.where(found, np.clip(lowest, 0, self.extent), 0)
        return first, np.where(found, np.clip(highest + 1, first, self.extent), 0)


_AT_PLACE = frozenset(((_PLACE, 1),))


def _value(row: Row, values: Mapping[Coordinate, Numbers]) -> Numbers:
    """The value of an affine form of ends."""
    total = np.asarray(row.get(ONE, 0))
    for monomial, factor in row.items():
        for end, _ in monomial:
            total = total + factor * values[end]  # type: ignore[index]
    return total


def reach_of(
    index: ir.Expr, trail: Trail, opened: Sequence[Coordinate], extent: int, lets: Mapping[str, ir.Let]
) -> Reach | None:
    """The points that an index reaches where its trail leads, of which some ranges are open: what
    `transform.local.rows_read` finds for each block; None where that is not known to be affine in their ends."""
    domain = Domain.along(trail, lets)
    place = polynomial(index, domain.known.constants)
    kept = frozenset((_PLACE, *(end for coordinate in opened for end in _ends_of(coordinate))))
    at = of_atom(_PLACE) - place
    both = [dict(at.terms), dict((-at).terms)]
    if place.constant is not None:
        return Reach(extent, (tuple(both),))
    cases = []
    for known in domain.contexts:
        if not _is_affine(known, place):
            return None
        try:
            found = eliminate([*both, *(dict(fact.terms) for fact in known.known)], kept, exact=True)
        except Inexact:
            return None
        if found is not None and not all(map(_is_small, found)):
            return None
        cases.append(({ONE: -1},) if found is None else tuple(found))
    return Reach(extent, tuple(cases))


def _is_affine(known: Assumptions, place: Polynomial) -> bool:
    """Whether all that is known is known of each block alike. What is not equal may sharpen the bounds of one alone."""
    return not any(isinstance(fact, ir.Map) and fact.op == "!=" for fact in known.stated) and not any(
        isinstance(atom, ir.Map | ir.Size) for fact in (*known.known, place) for atom in fact.atoms
    )


def _is_small(row: Row) -> bool:
    return all(abs(n) <= (_LARGEST_FACTOR if monomial else _LARGEST_NUMBER) for monomial, n in row.items())
