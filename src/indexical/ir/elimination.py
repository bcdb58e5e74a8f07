"""Conditions without a coordinate: what they say of all else, where some point of it makes them true."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from . import build
from . import nodes as ir
from .affine import Constants, Polynomial, expression, is_counted, no_constants, of_atom, polynomial, tidied
from .algebra.canonical import at_least_zero
from .prove import Assumptions
from .slices import Slice, congruence, slices
from .types import Coordinate
from .walk import Inexpressible, substitute


def in_range(range: ir.Range) -> tuple[ir.Expr, ir.Expr]:
    """The conditions that a coordinate is in its range."""
    return within(build.coord(range.coordinate, range.span), range.lower, range.upper)


def within(value: ir.Expr, start: ir.Expr, stop: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """The conditions that a value is at least `start`, and less than `stop`."""
    above = build.apply("<=", (start, value), "bool", value.span)
    return above, build.apply("<", (value, stop), "bool", value.span)


def solved(fact: ir.Expr, coordinate: Coordinate, constants: Constants = no_constants) -> ir.Expr | None:
    """Return the value of a coordinate that an equation determines; None for any other condition."""
    match fact:
        case ir.Map("==", (left, right)) if left.type.kind == right.type.kind == "whole":
            for side, other in ((right, left), (left, right)):
                if isinstance(side, ir.Coord) and side.coordinate == coordinate:
                    return None if coordinate in other.type.coordinates else other
            difference = polynomial(left, constants) - polynomial(right, constants)
            factor = difference.terms.get(frozenset(((coordinate, 1),)), 0)
            value = difference.plus(of_atom(coordinate), -factor)
            place = expression(value if factor < 0 else -value, fact.span)
            return place if abs(factor) == 1 and coordinate not in place.type.coordinates else None
    return None


def without(range: ir.Range, facts: tuple[ir.Expr, ...], known: Assumptions) -> tuple[list[tuple[ir.Expr, ...]], bool]:
    """Eliminate a coordinate: the conditions on all others under which some point of its range makes all facts true, as
    alternative conjunctions; and whether they are exact, not only necessary. `known` holds of all coordinates."""
    coordinate = range.coordinate
    here = [fact for fact in facts if coordinate in fact.type.coordinates]
    others = tuple(fact for fact in facts if coordinate not in fact.type.coordinates)
    for fact in here:
        value = solved(fact, coordinate, known.constants)
        if value is not None:
            try:
                moved = [tidied(substitute(other, {coordinate: value})) for other in here if other is not fact]
            except Inexpressible:
                continue
            return [(*within(value, range.lower, range.upper), *others, *moved)], True
    strides = {fact: found for fact in here if (found := congruence(fact, known.constants)) is not None}
    bounds = tuple(fact for fact in here if fact not in strides)
    cases: list[tuple[ir.Expr, ...]] = []
    exact = len(strides) <= 1
    for one in slices((bounds,), range, frozenset(), known, tidy=False):
        exact = exact and one.is_interval
        for multiple, stride in strides.values():
            exact = exact and _is_met(multiple, stride, one, range, others, known)
        cases.append((*_nonempty(one, range, known), *others))
    return cases, exact


def _gaps(one: Slice, range: ir.Range, known: Assumptions) -> Iterator[Polynomial]:
    """The number of points between each pair of bounds."""
    for lower, upper in product((range.lower, *one.lower), (range.upper, *one.upper)):
        yield polynomial(upper, known.constants) - polynomial(lower, known.constants)


def _nonempty(one: Slice, range: ir.Range, known: Assumptions) -> list[ir.Expr]:
    """The conditions that there is a point between all bounds."""
    rows = dict.fromkeys(gap - 1 for gap in _gaps(one, range, known))
    return [fact for row in rows for fact in at_least_zero(row, range.span)]


def _is_met(
    multiple: Polynomial, stride: ir.Expr, one: Slice, range: ir.Range, others: tuple[ir.Expr, ...], known: Assumptions
) -> bool:
    """Whether a coordinate certainly takes the remainder that a stride needs: between all bounds there are at least as
    many points as it has remainders."""
    step = polynomial(stride, known.constants)
    if abs(multiple.terms.get(frozenset(((range.coordinate, 1),)), 0)) != 1 or not is_counted(step):
        return False
    for fact in others:
        known = known.assuming(fact)
    return all(known.entails(gap - step) for gap in _gaps(one, range, known))
