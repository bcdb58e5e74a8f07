"""One term of a cotangent: a share, brought home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Constants
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, renamed_apart, substitute
from ..source import Span
from .inversion import Inverse, invert, normalised
from .products import Product, sorted_by
from .reverse import Share, length


@dataclass(frozen=True, slots=True)
class Term:
    """The sum of `product` over the points of `ranges` at which `guards` hold; without ranges, the product itself
    where they hold, and 0 in other `cases`."""

    product: Product
    ranges: tuple[ir.Range, ...]
    guards: tuple[ir.Expr, ...]
    cases: tuple[ir.Expr, ...] = ()

    def expression(self, span: Span, order: Sequence[Coordinate]) -> ir.Expr:
        """The term as an expression, its guards inside the sum; without a sum they are not in it."""
        if not self.ranges:
            case = build.conjunction(self.cases)
            plain = self.product.expression(span)
            return plain if case is None else build.select(case, plain, build.whole(0, span), span)
        bound = {range.coordinate for range in self.ranges}

        def inside(expr: ir.Expr) -> bool:
            if expr.type.coordinates & bound:
                return True
            # Where a guard protects it, a factor is not evaluated outside.
            return bool(self.guards or self.cases) and (bool(expr.type.coordinates) or isinstance(expr, ir.Read))

        body, rest = self.product.split(inside)
        summed = sorted_by(body, order).expression(span)
        guard = build.conjunction((*self.guards, *self.cases))
        result = build.reduce("sum", self.ranges, summed, guard, "real", span)
        return Product(rest.number, (*rest.factors, result), rest.divisors).expression(span)


def settle(share: Share, lead: tuple[ir.Range, ...], home: tuple[ir.Range, ...], constants: Constants) -> Term:
    """What a point of the tensor at home is owed by one read of it.

    A share that comes with a place for the coordinates that lead is owed only where these say so.
    """
    pinned = len(share.indices) > len(home)
    private = {range.coordinate: build.coord(_private(range.coordinate), range.span) for range in share.ranges}
    hidden = _substituted(share, private)
    target = (*lead, *home) if pinned else home
    try:
        return _settled(hidden, _inverse(hidden, target, () if pinned else lead, constants), (*lead, *home), constants)
    except Inexpressible:
        # A normaliser stands in the way: nothing is solved for, and all is asked at every point.
        places = (build.coord(range.coordinate, range.span) for range in target)
        same = (build.apply("==", pair, "bool", pair[0].span) for pair in zip(hidden.indices, places, strict=True))
        return _settled(hidden, Inverse({}, tuple(same), hidden.ranges), (*lead, *home), constants)


def _settled(hidden: Share, inverse: Inverse, home: tuple[ir.Range, ...], constants: Constants) -> Term:
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
    conditions = [substitute(condition, values) for condition in inverse.conditions]
    conditions += [substitute(guard, both) for guard in hidden.guards]
    cases = [renamed_apart(substitute(case, both), taken) for case in hidden.cases]
    product = hidden.product.substituted(both).changed(lambda expr: renamed_apart(expr, taken))
    guards = _needed([renamed_apart(guard, taken) for guard in conditions], (*home, *ranges), constants)
    return _counted(Term(product, tuple(ranges), tuple(guards), tuple(cases)))


def _private(coordinate: Coordinate) -> Coordinate:
    return Coordinate(f"{coordinate.name}'", coordinate.rest, coordinate.space)


def _public(coordinate: Coordinate) -> Coordinate:
    return Coordinate(coordinate.name.removesuffix("'"), coordinate.rest, coordinate.space)


def _substituted(share: Share, values: dict[Coordinate, ir.Coord]) -> Share:
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


def _inverse(share: Share, home: tuple[ir.Range, ...], lead: tuple[ir.Range, ...], constants: Constants) -> Inverse:
    """The index read backwards. Where a normaliser stands in the way of that, nothing is solved for."""
    pinned = normalised((*share.product.factors, *share.product.divisors, *share.guards, *share.cases))
    known = Assumptions(constants=constants)
    for range in lead:
        known = known.within(range)
    for guard in share.guards:
        if not guard.type.coordinates & {range.coordinate for range in share.ranges}:
            known = known.assuming(guard)
    return invert(share.indices, home, share.ranges, share.own, pinned, known)


def _needed(conditions: Sequence[ir.Expr], ranges: Sequence[ir.Range], constants: Constants) -> list[ir.Expr]:
    """The conditions that do not follow from the ranges and from those before them."""
    known = Assumptions(constants=constants)
    for range in ranges:
        known = known.within(range)
    result = []
    for condition in conditions:
        if not known.proves(condition):
            result.append(condition)
            known = known.assuming(condition)
    return result


def _counted(term: Term) -> Term:
    """A sum over what nothing mentions is that many times the same."""
    product, ranges = term.product, list(term.ranges)
    for range in reversed(term.ranges):
        mentioned = build.varying((*product.factors, *product.divisors, *term.guards, *term.cases))
        later = build.varying(bound for other in ranges for bound in (other.lower, other.upper))
        if range.coordinate in mentioned | later or not _is_count(range):
            continue
        many = length(range)
        factor = Product(Fraction(many.value)) if isinstance(many, ir.Const) else Product(factors=(many,))
        product = factor.times(product)
        ranges.remove(range)
    return Term(product, tuple(ranges), term.guards, term.cases)


def _is_count(range: ir.Range) -> bool:
    """Whether the upper end of a range is the number of its points: never negative."""
    starts = isinstance(range.lower, ir.Const) and range.lower.value == 0
    plain = isinstance(range.upper, ir.Size) or (isinstance(range.upper, ir.Const) and range.upper.value >= 0)
    return starts and (plain or not range.stated) and not range.upper.type.coordinates
