"""A cotangent's definition, from its terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Constants, expression
from ..ir.algebra.quotients import Quotient, total, without_sign
from ..ir.conditions import negated
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..records import dataclass
from ..source import Span
from .segments import placed, segments
from .terms import Term


def definition(
    name: str,
    ranges: tuple[ir.Range, ...],
    terms: Sequence[Term],
    span: Span,
    filled: Iterable[ir.Expr] | None,
    constants: Constants,
) -> ir.Let:
    """The sum of the terms, for every point of the ranges. Where all of them have one guard, it is absent elsewhere.

    A recurrence, or terms that count on parts of an axis, become clauses for these parts; not where `filled` is None.
    """
    axes = tuple(ir.Axis(range.coordinate, range.upper) for range in ranges)
    alike = collected(terms)
    found = None
    if filled is not None and (len(alike) > 1 or any(_mentions(term, name) for term in alike)):
        found = segments(ranges, alike, filled, constants)
    if found is None:
        return ir.Let(name, axes, "real", (_clause(ranges, {}, alike, span),), False, span)
    coordinate, parts = found
    clauses = []
    for part in parts:
        lower, upper = expression(part.lower, span), expression(part.upper, span)
        stated = len(parts) > 1
        own = tuple(
            ir.Range(range.coordinate, lower, upper, stated, span) if range.coordinate == coordinate else range
            for range in ranges
            if range.coordinate != coordinate or not part.is_point
        )
        place = {coordinate: lower} if part.is_point else {}
        clauses.append(_clause(own, place, placed(part, coordinate, span), span, ranges))
    return ir.Let(name, axes, "real", tuple(sorted(clauses, key=_is_rule)), False, span)


def _is_rule(clause: ir.Clause) -> bool:
    """Base cases come first."""
    return all(isinstance(slot, ir.Coord) for slot in clause.slots)


def _mentions(term: Term, name: str) -> bool:
    parts = (part for factor in term.product.factors for part in walk(factor))
    return any(isinstance(part, ir.Read) and part.tensor == name for part in parts)


def _clause(
    own: tuple[ir.Range, ...],
    places: Mapping[Coordinate, ir.Expr],
    terms: Sequence[Term],
    span: Span,
    home: tuple[ir.Range, ...] | None = None,
) -> ir.Clause:
    order = [range.coordinate for range in home or own]
    slots = tuple(places.get(coordinate) or build.coord(coordinate, span) for coordinate in order)
    guards = {term.guards for term in terms if not term.ranges}
    shared = guards.pop() if len(guards) == 1 and not any(term.ranges for term in terms) else ()
    body = _sum(_pieces(terms, shared, order, span), span) or build.real(Fraction(0), span)
    return ir.Clause(slots, own, body, build.conjunction(shared), span)


def _signed(expr: ir.Expr) -> ir.Expr:
    """`-a * b` rather than `-(a * b)`."""
    match expr:
        case ir.Map("neg", (ir.Map("*" | "/" as op, (left, right), type, inner),)):
            first = _signed(build.apply("neg", (left,), "real", inner))
            return ir.Map(op, (first, right), type, inner)
        case ir.Map("neg", (ir.Const(value),)):
            return build.real(-Fraction(value), expr.span)
        case ir.Map("+" | "-" as op, (left, right), type, span):
            return ir.Map(op, (_signed(left), right), type, span)
        case _:
            return expr


def _is_negative(expr: ir.Expr) -> bool:
    return without_sign(expr) is not None


@dataclass(slots=True)
class _Branch:
    """The terms that count where a condition holds, and those where it fails."""

    condition: ir.Expr
    then: list[ir.Expr]
    otherwise: list[ir.Expr]

    def expression(self, span: Span) -> ir.Expr:
        sides = [_sum(side, span) or build.whole(0, span) for side in (self.then, self.otherwise)]
        return build.select(self.condition, sides[0], sides[1], span)


def _pieces(
    terms: Sequence[Term], shared: tuple[ir.Expr, ...], order: Sequence[Coordinate], span: Span
) -> list[ir.Expr]:
    """The terms as expressions to add up, those under one condition in one branch."""
    found: list[ir.Expr | _Branch] = []
    for term in terms:
        expr = term.expression(span, order)
        guards = () if term.guards == shared else term.guards
        condition = None if term.ranges else build.conjunction((*guards, *term.cases))
        if condition is None:
            found.append(expr)
            continue
        for branch in found:
            if isinstance(branch, _Branch) and branch.condition == condition:
                branch.then.append(expr)
                break
            if isinstance(branch, _Branch) and branch.condition == negated(condition):
                branch.otherwise.append(expr)
                break
        else:
            found.append(_Branch(condition, [expr], []))
    return [piece.expression(span) if isinstance(piece, _Branch) else piece for piece in found]


def _sum(pieces: list[ir.Expr], span: Span) -> ir.Expr | None:
    found = total(sorted(pieces, key=_is_negative), span)
    return None if found is None else _signed(found)


def collected(terms: Sequence[Term]) -> list[Term]:
    """Terms that differ in their number alone, as one."""
    found: list[tuple[object, Term]] = []
    for term in terms:
        parts = (Counter(term.product.factors), Counter(term.product.divisors), term.ranges, term.guards, term.cases)
        for place, (known, other) in enumerate(found):
            if known == parts:
                number = other.product.number + term.product.number
                product = Quotient(number, other.product.factors, other.product.divisors)
                found[place] = (known, Term(product, term.ranges, term.guards, term.cases))
                break
        else:
            found.append((parts, term))
    return [term for _, term in found if term.product.number] or [Term(Quotient(Fraction(0)), (), ())]
