"""Terms that hold on a part of an axis alone, as clauses: a base case and a rule, as one would write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ..ir import nodes as ir
from ..ir.affine import Constants, Polynomial, expression, number, of_atom, polynomial
from ..ir.prove import Assumptions, conjuncts, inequalities, no_definitions
from ..ir.types import Coordinate
from ..ir.walk import substitute
from ..records import dataclass, replace
from ..source import Span
from .terms import Term, tidied_indices


@dataclass(frozen=True, slots=True)
class Segment:
    """The points of one axis from `lower` up to, not including, `upper`, and the terms that count there."""

    lower: Polynomial
    upper: Polynomial
    terms: tuple[Term, ...]

    @property
    def is_point(self) -> bool:
        return (self.upper - self.lower).constant == 1


def segments(
    ranges: Sequence[ir.Range], terms: Sequence[Term], filled: Iterable[ir.Expr], constants: Constants
) -> tuple[Coordinate, list[Segment]] | None:
    """The first axis along which guards begin and end at known places, and its parts; None where there is none.

    Only an axis that is never empty is taken apart, one of a length in figures or like some of `filled`: a base case
    needs its point.
    """
    lengths = {polynomial(extent, constants) for extent in filled}
    for range in ranges:
        extent = polynomial(range.upper, constants)
        if (extent in lengths or (extent.constant or 0) > 0) and not range.coordinate.rest:
            found = _along(range, ranges, terms, extent, constants)
            if found is not None:
                return range.coordinate, found
    return None


def _along(
    range: ir.Range, ranges: Sequence[ir.Range], terms: Sequence[Term], extent: Polynomial, constants: Constants
) -> list[Segment] | None:
    """The segments of a range between the places where terms begin and end; None where their order is not certain."""
    cuts = {cut for term in terms for cut in _cuts(term, range.coordinate, constants)}
    if not cuts:
        return None
    sizes = {part for cut in (*cuts, extent) for part in cut.atoms if isinstance(part, ir.Size)}
    known = Assumptions((extent - 1, *(of_atom(size) - 1 for size in sizes)), constants=constants)
    inner = [cut for cut in cuts if not known.entails(-cut) and not known.entails(cut - extent)]
    ordered = _ordered([number(0), *inner, extent], known)
    if ordered is None:
        return None
    for other in ranges:
        if other is not range:
            known = known.within(other)
    found = [
        Segment(lower, upper, tuple(_counting(terms, range, lower, upper, known))) for lower, upper in pairwise(ordered)
    ]
    return _merged(found, range.coordinate, range.span)


def _cuts(term: Term, coordinate: Coordinate, constants: Constants) -> list[Polynomial]:
    """The places along an axis at which a guard of a term begins or ends to hold."""
    found = []
    for guard in term.guards:
        for fact in conjuncts(guard, True, no_definitions):
            for row in inequalities(fact, constants) or ():
                factor = row.terms.get(frozenset(((coordinate, 1),)))
                rest = row - of_atom(coordinate) * number(factor or 0)
                closed = not any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in rest.atoms)
                if factor in (1, -1) and closed:
                    found.append(-rest if factor == 1 else rest + 1)
    return found


def _ordered(places: list[Polynomial], known: Assumptions) -> list[Polynomial] | None:
    """The places from first to last; None where that is not certain."""
    result: list[Polynomial] = []
    for place in places:
        if place in result:
            continue
        at = 0
        while at < len(result) and known.entails(place - result[at]):
            at += 1
        if at < len(result) and not known.entails(result[at] - place):
            return None
        result.insert(at, place)
    return result


def _counting(
    terms: Sequence[Term], range: ir.Range, lower: Polynomial, upper: Polynomial, known: Assumptions
) -> Iterable[Term]:
    """The terms that count somewhere on a segment, without the guards that always hold there."""
    point = of_atom(range.coordinate)
    here = replace(known, known=(*known.known, point - lower, upper - point - 1))
    for term in terms:
        inside = here
        for other in term.ranges:
            inside = inside.within(other)
        for guard in term.guards:
            inside = inside.assuming(guard)
        if inside.consistent:
            yield replace(term, guards=tuple(guard for guard in term.guards if not here.proves(guard)))


def _merged(found: list[Segment], coordinate: Coordinate, span: Span) -> list[Segment]:
    """Merge neighbours that have the same terms."""
    result: list[Segment] = []
    for segment in found:
        if result and _same(result[-1], segment, coordinate, span):
            last = result.pop()
            terms = segment.terms if last.is_point else last.terms
            segment = Segment(last.lower, segment.upper, terms)
        result.append(segment)
    return result


def _same(one: Segment, other: Segment, coordinate: Coordinate, span: Span) -> bool:
    if one.is_point == other.is_point and not one.is_point:
        return one.terms == other.terms
    point = one if one.is_point else other
    at = {coordinate: expression(point.lower, span)}
    return [_at(term, at) for term in one.terms] == [_at(term, at) for term in other.terms]


def _at(term: Term, values: dict[Coordinate, ir.Expr]) -> Term:
    def changed(expr: ir.Expr) -> ir.Expr:
        return tidied_indices(substitute(expr, values))

    ranges = tuple(replace(range, lower=changed(range.lower), upper=changed(range.upper)) for range in term.ranges)
    return Term(
        term.product.changed(changed), ranges, tuple(map(changed, term.guards)), tuple(map(changed, term.cases))
    )


def placed(segment: Segment, coordinate: Coordinate, span: Span) -> tuple[Term, ...]:
    """The terms of a segment; of a single point, with that point in place of the coordinate."""
    if not segment.is_point:
        return segment.terms
    at: dict[Coordinate, ir.Expr] = {coordinate: expression(segment.lower, span)}
    return tuple(_at(term, at) for term in segment.terms)
