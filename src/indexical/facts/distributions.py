"""Distributions: what sums to exactly 1, and whether a guard always keeps a point."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, number, of_atom
from ..ir.context import Trail, assume, bound_by
from ..ir.prove import Assumptions, conjuncts, eliminate, inequalities
from ..ir.types import Coordinate
from ..ir.walk import substitute


def keeps_a_point(normalizer: ir.Normalize, trail: Trail, lets: Mapping[str, ir.Let]) -> bool:
    """Whether, wherever the trail leads, some point of the coordinate passes the guard. No size is 0 here:
    over no keys at all there is nothing to keep."""
    if normalizer.guard is None:
        return True
    around = bound_by(normalizer.coordinate, trail)
    outside = tuple(step for step in trail if not _mentions(step, normalizer.coordinate))
    known = assume(outside, lets)
    others = [step.coordinate for step in outside if isinstance(step, ir.Range)]
    for guard in _alternatives(normalizer.guard, known):
        if always_some(normalizer.coordinate, around, guard, known):
            return True
        if any(_works(normalizer, guard, around, other, known) for other in others):
            return True
    return False


def _alternatives(guard: ir.Expr, known: Assumptions) -> list[ir.Expr]:
    """The guard, and each side of an `||` that it is: one of them is enough."""
    match conjuncts(guard, True, known.definitions):
        case [ir.Map("||", sides)]:
            return [guard, *(inner for side in sides for inner in _alternatives(side, known))]
        case _:
            return [guard]


def _mentions(step: ir.Range | tuple[ir.Expr, bool], coordinate: Coordinate) -> bool:
    if isinstance(step, ir.Range):
        return step.coordinate == coordinate
    return coordinate in step[0].type.coordinates


def always_some(coordinate: Coordinate, around: ir.Range, guard: ir.Expr, known: Assumptions) -> bool:
    """By eliminating the coordinate: what is left must hold of all others."""
    inner = Assumptions(constants=known.constants, definitions=known.definitions).within(around)
    rows = list(inner.known)
    for fact in conjuncts(guard, True, known.definitions):
        found = inequalities(fact, known.constants)
        if found is None or any(_is_stepped(row, coordinate) for row in found):
            return False
        rows += found
    atoms = frozenset(atom for row in rows for atom in row.atoms if atom != coordinate)
    left = eliminate([dict(row.terms) for row in rows], keep=atoms)
    if left is None:
        return False
    sizes = tuple(of_atom(atom) - number(1) for row in (*rows, *known.known) for atom in row.atoms if _is_size(atom))
    generous = Assumptions((*known.known, *sizes), known.stated, known.opaque, known.constants, known.definitions)
    return all(generous.entails(Polynomial({m: f for m, f in row.items() if f})) for row in left)


def _is_stepped(row: Polynomial, coordinate: Coordinate) -> bool:
    """Whether a coordinate is multiplied, or hidden in a quotient: elimination then loses whole numbers."""
    for monomial, factor in row.terms.items():
        for atom, power in monomial:
            alone = atom == coordinate
            inside = not alone and not isinstance(atom, Coordinate) and coordinate in atom.type.coordinates
            if inside or (alone and (abs(factor) != 1 or power != 1 or len(monomial) > 1)):
                return True
    return False


def _is_size(atom: object) -> bool:
    return isinstance(atom, ir.Size)


def _works(normalizer: ir.Normalize, guard: ir.Expr, around: ir.Range, other: Coordinate, known: Assumptions) -> bool:
    """Whether everybody may listen to themselves: the guard holds with one coordinate in place of the other."""
    itself = build.coord(other, normalizer.span)
    guard = substitute(guard, {normalizer.coordinate: itself})
    low = build.apply(">=", (itself, around.lower), "bool", normalizer.span)
    high = build.apply("<", (itself, around.upper), "bool", normalizer.span)
    return all(
        _holds(fact, known) for whole in (guard, low, high) for fact in conjuncts(whole, True, known.definitions)
    )


def _holds(fact: ir.Expr, known: Assumptions) -> bool:
    match fact:
        case ir.Map("==" | "<=" | ">=", (left, right)) if left == right:
            return True
        case _:
            return known.proves(fact)
