"""One term of a cotangent: the share of one read, written at the coordinates of the tensor that is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Constants, expression, polynomial
from ..ir.algebra.quotients import Quotient, sorted_by
from ..ir.algebra.safety import is_open
from ..ir.prove import Assumptions, conjuncts, no_definitions
from ..ir.removal import removal
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, rebuild, renamed_apart, substitute, walk
from ..records import dataclass, replace
from ..source import Span
from .inversion import Inverse, invert, normalised
from .reverse import Share, length


@dataclass(frozen=True, slots=True)
class Term:
    """The sum of `product` over the points of `ranges` at which `guards` hold; without ranges, the product itself
    where they hold, and 0 in other `cases`."""

    product: Quotient
    ranges: tuple[ir.Range, ...]
    guards: tuple[ir.Expr, ...]
    cases: tuple[ir.Expr, ...] = ()

    def expression(self, span: Span, order: Sequence[Coordinate]) -> ir.Expr:
        """The term as an expression, its conditions inside the sum; without a sum they are not in it."""
        if not self.ranges:
            return self.product.expression(span)
        bound = {range.coordinate for range in self.ranges}
        protected = bool(self.guards or self.cases) or any(range.stated for range in self.ranges)

        def inside(expr: ir.Expr) -> bool:
            """Whether a factor stays inside, as one does that a guard or an empty range protects."""
            if expr.type.coordinates & bound:
                return True
            return protected and (bool(expr.type.coordinates) or reads_data(expr))

        body, rest = self.product.split(inside)
        summed = sorted_by(body, order).expression(span)
        guard = build.conjunction((*self.guards, *self.cases))
        result = build.reduce("sum", self.ranges, summed, guard, "real", span)
        return Quotient(rest.number, (*rest.factors, result), rest.divisors).expression(span)


def where_present(term: Term, itself: ir.Expr | None, removed: Callable[[ir.Read], ir.Expr | None]) -> Term:
    """What flows back to a point `itself` only where that is present, if it may be NaN or infinite elsewhere; and a sum
    only where its factors are, if what leaves it may be."""
    bound = {range.coordinate for range in term.ranges}
    product = term.product
    steep = [*product.divisors, *(part for part in product.factors if any(map(is_open, walk(part))))]
    poles = {c for part in steep if not part.type.coordinates & bound for c in part.type.coordinates}
    parts = (*(() if itself is None else (itself,)), *(product.factors if bound else ()))
    gone = [removal(part, removed) for part in parts] if poles else []
    there = [fact for one in gone if one is not None for fact in conjuncts(one, False, no_definitions)]
    facts = dict.fromkeys(fact for fact in there if fact.type.coordinates & poles and fact not in term.guards)
    return replace(term, guards=(*term.guards, *facts)) if facts else term


def settle(share: Share, lead: tuple[ir.Range, ...], home: tuple[ir.Range, ...], constants: Constants) -> Term:
    """The term that one read of a tensor contributes to its cotangent, at the coordinates `home` of the tensor.

    A share with indices for the leading coordinates counts only at the points where they are equal.
    """
    pinned = len(share.indices) > len(home)
    private = {range.coordinate: build.coord(_private(range.coordinate), range.span) for range in share.ranges}
    target = (*lead, *home) if pinned else home
    hidden = _at_home(_substituted(share, private), target)
    try:
        return _settled(hidden, _inverse(hidden, target, constants), (*lead, *home), constants)
    except Inexpressible:
        # A normaliser binds a coordinate to solve for: nothing is solved, and the indices are compared at every point.
        places = (build.coord(range.coordinate, range.span) for range in target)
        same = (build.apply("==", pair, "bool", pair[0].span) for pair in zip(hidden.indices, places, strict=True))
        return _settled(hidden, Inverse({}, (), tuple(same), hidden.ranges), (*lead, *home), constants)


def _settled(hidden: Share, inverse: Inverse, home: tuple[ir.Range, ...], constants: Constants) -> Term:
    """The term that a share is in the coordinates of its home, with the conditions under which its indices were
    solved."""
    taken = {range.coordinate.name for range in home}
    values: dict[Coordinate, ir.Expr] = {}
    ranges = []
    for range in inverse.ranges:
        public = fresh(_public(range.coordinate), taken)
        taken.add(public.name)
        lower, upper = substitute(range.lower, values), substitute(range.upper, values)
        values[range.coordinate] = build.coord(public, range.span)
        ranges.append(ir.Range(public, lower, upper, range.stated, range.span))
    solved = {coordinate: substitute(value, values) for coordinate, value in inverse.values.items()}
    both = {**solved, **values}

    def brought(expr: ir.Expr) -> ir.Expr:
        return tidied_indices(renamed_apart(substitute(expr, both), taken))

    # In this order: first that all that was solved for is in its range, then the conditions there, then the indices.
    conditions = [tidied_indices(renamed_apart(substitute(bound, values), taken)) for bound in inverse.bounds]
    conditions += map(brought, hidden.guards)
    cases = list(map(brought, hidden.cases))
    places = [tidied_indices(renamed_apart(substitute(place, values), taken)) for place in inverse.equations]
    # An index that reads a tensor is evaluated only in the cases in which the read was.
    late = [place for place in places if cases and _reads(place)]
    guards = _needed([*conditions, *(place for place in places if place not in late)], home, ranges, constants)
    cases = [case for case in dict.fromkeys((*cases, *late)) if case not in guards]
    product = hidden.product.changed(brought)
    return counted(Term(product, tuple(ranges), tuple(guards), tuple(cases)))


def _reads(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.Read) for part in walk(expr))


def reads_data(expr: ir.Expr) -> bool:
    """Whether an expression reads more than whole constants, such as names of sizes."""
    reads = (part for part in walk(expr) if isinstance(part, ir.Read))
    return any(part.indices or part.type.kind == "real" for part in reads)


def _at_home(share: Share, home: tuple[ir.Range, ...]) -> Share:
    """The share with each composite index (`2 * i + k - 1`) replaced by the coordinate of the axis that it indexes: a
    condition on the index becomes one on the coordinate."""
    known = {
        index: build.coord(range.coordinate, index.span)
        for index, range in zip(share.indices, home, strict=True)
        if isinstance(index, ir.Map) and index.type.coordinates
    }
    if not known:
        return share

    moving = build.varying(known)
    taken = {range.coordinate.name for range in home}

    def apart(expr: ir.Expr) -> ir.Expr:
        return changed(renamed_apart(expr, taken))

    def changed(expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Normalize) and expr.coordinate in moving:
            # Inside, it is another coordinate of the same name.
            return expr
        return known[expr] if expr in known else rebuild(expr, changed)

    return replace(
        share,
        product=share.product.changed(apart),
        guards=tuple(map(apart, share.guards)),
        cases=tuple(map(apart, share.cases)),
    )


def tidied_indices(expr: ir.Expr) -> ir.Expr:
    """The expression with whole arithmetic worked out where that is shorter: `size(t) - 1`, not `size(t) - 2 + 1`."""
    if isinstance(expr, ir.Map) and expr.type.kind == "whole" and expr.op in ("+", "-"):
        shorter = expression(polynomial(expr), expr.span)
        if len(list(walk(shorter))) < len(list(walk(expr))):
            return shorter
    return rebuild(expr, tidied_indices)


def _private(coordinate: Coordinate) -> Coordinate:
    return Coordinate(f"{coordinate.name}'", coordinate.rest, coordinate.space)


def _public(coordinate: Coordinate) -> Coordinate:
    return Coordinate(coordinate.name.removesuffix("'"), coordinate.rest, coordinate.space)


def _substituted(share: Share, values: dict[Coordinate, ir.Coord]) -> Share:
    """The share with other coordinates for its own."""
    plain: dict[Coordinate, ir.Expr] = dict(values)
    ranges = tuple(
        replace(
            range,
            coordinate=values[range.coordinate].coordinate,
            lower=substitute(range.lower, plain),
            upper=substitute(range.upper, plain),
        )
        for range in share.ranges
    )
    return replace(
        share,
        indices=tuple(substitute(index, plain) for index in share.indices),
        product=share.product.substituted(plain),
        ranges=ranges,
        guards=tuple(substitute(guard, plain) for guard in share.guards),
        cases=tuple(substitute(case, plain) for case in share.cases),
        own=frozenset(values[coordinate].coordinate for coordinate in share.own),
    )


def _inverse(share: Share, home: tuple[ir.Range, ...], constants: Constants) -> Inverse:
    pinned = normalised((*share.product.factors, *share.product.divisors, *share.guards, *share.cases))
    return invert(share.indices, home, share.ranges, share.own, pinned, constants)


def _needed(
    conditions: Sequence[ir.Expr], home: Sequence[ir.Range], ranges: Sequence[ir.Range], constants: Constants
) -> list[ir.Expr]:
    """The conditions that do not follow from the ranges and from those before them. One about the coordinates of `home`
    alone has to follow from theirs: where a sum is empty, its own ranges prove nothing."""
    if not conditions:
        return []
    outside = Assumptions(constants=constants)
    for range in home:
        outside = outside.within(range)
    inside = outside
    for range in ranges:
        inside = inside.within(range)
    bound = {range.coordinate for range in ranges}
    result = []
    for condition in conditions:
        known = inside if condition.type.coordinates & bound else outside
        if not known.proves(condition):
            result.append(condition)
            inside = inside.assuming(condition)
            outside = outside if condition.type.coordinates & bound else outside.assuming(condition)
    return result


def counted(term: Term) -> Term:
    """Replace a sum over a coordinate that no part mentions by a product with the number of its points."""
    product, ranges = term.product, list(term.ranges)
    for range in reversed(term.ranges):
        mentioned = build.varying((*product.factors, *product.divisors, *term.guards, *term.cases))
        if range.coordinate in mentioned.union(*(other.depends_on for other in ranges)) or not _is_count(range):
            continue
        many = length(range)
        factor = Quotient(Fraction(many.value)) if isinstance(many, ir.Const) else Quotient(factors=(many,))
        product = factor.times(product)
        ranges.remove(range)
    return Term(product, tuple(ranges), term.guards, term.cases)


def _is_count(range: ir.Range) -> bool:
    """Whether the upper end of a range is the number of its points: never negative."""
    plain = isinstance(range.upper, ir.Size) or (isinstance(range.upper, ir.Const) and range.upper.value >= 0)
    sayable = not range.upper.type.coordinates and not range.coordinate.rest
    return range.from_zero and (plain or not range.stated) and sayable
