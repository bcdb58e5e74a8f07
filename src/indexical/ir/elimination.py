"""Conditions without a coordinate: what they say of all else, where some point of it makes them true."""

from __future__ import annotations

from collections.abc import Iterator

from . import build
from . import nodes as ir
from .affine import Polynomial, expression, number, of_atom, polynomial
from .algebra.canonical import at_least_zero
from .prove import Assumptions, eliminate, inequalities, is_counted, project
from .slices import congruence
from .types import Coordinate
from .walk import Inexpressible, substitute


def in_range(range: ir.Range) -> tuple[ir.Expr, ir.Expr]:
    """That a coordinate is in its range."""
    return within(build.coord(range.coordinate, range.span), range.lower, range.upper)


def within(value: ir.Expr, start: ir.Expr, stop: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """That a value is at least `start`, and less than `stop`."""
    above = build.apply("<=", (start, value), "bool", value.span)
    return above, build.apply("<", (value, stop), "bool", value.span)


def solved(fact: ir.Expr, coordinate: Coordinate, known: Assumptions) -> ir.Expr | None:
    """What a coordinate is equal to, where a condition says so; None for any other condition."""
    match fact:
        case ir.Map("==", (left, right)) if left.type.kind == right.type.kind == "whole":
            for side, other in ((right, left), (left, right)):
                if isinstance(side, ir.Coord) and side.coordinate == coordinate:
                    return None if coordinate in other.type.coordinates else other
            difference = polynomial(left, known.constants) - polynomial(right, known.constants)
            factor = difference.terms.get(frozenset(((coordinate, 1),)), 0)
            value = difference.plus(of_atom(coordinate), -factor)
            place = expression(value if factor < 0 else -value, fact.span)
            return place if abs(factor) == 1 and coordinate not in place.type.coordinates else None
    return None


def without(range: ir.Range, facts: tuple[ir.Expr, ...], known: Assumptions) -> tuple[tuple[ir.Expr, ...], bool]:
    """What facts say of all else, where a coordinate in its range makes all of them true; and whether that is all."""
    coordinate = range.coordinate
    here = [fact for fact in facts if coordinate in fact.type.coordinates]
    for fact in here:
        value = solved(fact, coordinate, known)
        if value is not None:
            try:
                moved = [substitute(f, {coordinate: value}) if f in here else f for f in facts if f is not fact]
            except Inexpressible:
                continue
            return (*within(value, range.lower, range.upper), *moved), True
    rows: list[Polynomial] = []
    strides: list[ir.Expr] = []
    exact = True
    for fact in (*in_range(range), *here):
        found = congruence(fact, known)
        more = inequalities(fact, known.constants)
        if found is not None and _is_stride(found[0], coordinate):
            strides.append(found[1])
        elif more is None:
            exact = False
        else:
            rows += more
    left = project(rows, (coordinate,))
    if left is None:
        exact = False
        left = list(_eliminated(rows, coordinate))
    others = [fact for fact in facts if fact not in here]
    exact = exact and all(_has_room(rows, coordinate, stride, others, known) for stride in strides)
    if len(strides) > 1:
        exact = False
    return (*(fact for row in left for fact in at_least_zero(row, range.span)), *others), exact


def _eliminated(rows: list[Polynomial], coordinate: Coordinate) -> Iterator[Polynomial]:
    """What rows say of all but a coordinate, and perhaps less than that."""
    keep = frozenset(
        atom
        for row in rows
        for atom in row.atoms
        if (atom != coordinate if isinstance(atom, Coordinate) else coordinate not in atom.type.coordinates)
    )
    left = eliminate([dict(row.terms) for row in rows], keep)
    if left is None:
        yield number(-1)
    for row in left or ():
        yield Polynomial({monomial: factor for monomial, factor in row.items() if factor})


def _is_stride(multiple: Polynomial, coordinate: Coordinate) -> bool:
    return abs(multiple.terms.get(frozenset(((coordinate, 1),)), 0)) == 1


def _has_room(
    rows: list[Polynomial], coordinate: Coordinate, stride: ir.Expr, others: list[ir.Expr], known: Assumptions
) -> bool:
    """Whether between all bounds of a coordinate there are as many points as a stride has: then it meets one."""
    step = polynomial(stride, known.constants)
    point = frozenset(((coordinate, 1),))
    narrower = [row if row.terms.get(point, 0) >= 0 else row - step + 1 for row in rows]
    pairs = project(narrower, (coordinate,)) if is_counted(step) else None
    for fact in others:
        known = known.assuming(fact)
    return pairs is not None and all(known.entails(row) for row in pairs)
