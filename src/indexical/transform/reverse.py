"""Reverse mode, one clause at a time: what of a definition's cotangent goes to each element that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import assert_never

from ..checker.scope import Refusal
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import extreme, tidied
from ..ir.algebra.quotients import Quotient, quotient_of, without_sign
from ..ir.conditions import conjuncts_of, negated
from ..ir.prove import Assumptions
from ..ir.types import Coordinate
from ..ir.walk import fresh, substitute, walk
from ..records import dataclass, replace
from .presence import needed_presence, presence
from .slopes import is_flat, slope


@dataclass(frozen=True, slots=True)
class Share:
    """The cotangent of `tensor` at `indices` gets `product` for every point of `ranges` at which `guards` hold.

    `cases` are conditions on the data: where one fails the share is 0, whereas a failing guard removes the point. `own`
    are the coordinates of the left-hand side among those of `ranges`.
    """

    tensor: str
    indices: tuple[ir.Expr, ...]
    product: Quotient
    ranges: tuple[ir.Range, ...]
    guards: tuple[ir.Expr, ...]
    cases: tuple[ir.Expr, ...]
    own: frozenset[Coordinate]


@dataclass(frozen=True, slots=True)
class Walk:
    """A position in a walk down an expression: the ranges and guards in scope, and which reads count."""

    counts: Callable[[ir.Expr], bool]
    taken: set[str]
    lets: Mapping[str, ir.Let]
    own: frozenset[Coordinate]
    ranges: tuple[ir.Range, ...]
    guards: tuple[ir.Expr, ...] = ()
    cases: tuple[ir.Expr, ...] = ()

    def within(self, ranges: tuple[ir.Range, ...], guard: ir.Expr | None) -> Walk:
        return replace(self, ranges=(*self.ranges, *ranges)).given(guard)

    def given(self, guard: ir.Expr | None) -> Walk:
        """The same under a guard. One in a branch that reads at computed places may be asked only there: it comes after
        the branch's condition, among the cases."""
        if guard is None:
            return self
        reads = [part for part in walk(guard) if isinstance(part, ir.Read)] if self.cases else []
        if any(not isinstance(index, ir.Coord) for read in reads for index in read.indices):
            return self.where(guard)
        return replace(self, guards=(*self.guards, guard))

    def where(self, *cases: ir.Expr) -> Walk:
        return replace(self, cases=(*self.cases, *cases))

    def fresh(self, coordinate: Coordinate) -> Coordinate:
        found = fresh(coordinate, self.taken)
        self.taken.add(found.name)
        return found

    def loosened(self, coordinate: Coordinate) -> Walk:
        """The same without ranges that depend on a coordinate: they run as far as for any point of it, under guards."""
        own = self.range_of(coordinate)
        result = replace(self, ranges=())
        for range in self.ranges:
            if coordinate not in range.depends_on:
                result = result.within((range,), None)
                continue
            here = build.coord(range.coordinate, range.span)
            lower, upper = _extreme(range.lower, own, False), _extreme(range.upper, own, True)
            wide = ir.Range(range.coordinate, lower, upper, True, range.span)
            result = result.within((wide,), build.apply("<=", (range.lower, here), "bool", range.span))
            result = result.given(build.apply("<", (here, range.upper), "bool", range.span))
        return result

    def range_of(self, coordinate: Coordinate) -> ir.Range:
        return next(range for range in reversed(self.ranges) if range.coordinate == coordinate)


def _extreme(bound: ir.Expr, range: ir.Range, largest: bool) -> ir.Expr:
    """The largest (smallest) value of a bound, over the points of a range."""
    last = build.apply("-", (range.upper, build.whole(1, range.span)), "whole", range.span)
    found = extreme(bound, {range.coordinate: (range.lower, last)}, not largest)
    if found is None:
        raise Refusal(f"a range that depends on `{range.coordinate}` has no bound that is known")
    return tidied(found)


def names_in(clause: ir.Clause) -> set[str]:
    """The names of all coordinates that a clause binds."""
    names = {range.coordinate.name for range in clause.ranges}
    for expr in (clause.body, *(() if clause.guard is None else (clause.guard,))):
        names |= {r.coordinate.name for part in walk(expr) if isinstance(part, ir.Reduce) for r in part.ranges}
    return names


def shares_of(
    let: ir.Let,
    clause: ir.Clause,
    cotangent: Quotient,
    counts: Callable[[ir.Expr], bool],
    lets: Mapping[str, ir.Let] = {},
) -> Iterator[Share]:
    """The cotangent of each read of a clause; `cotangent` is that of the definition at the clause's own point. A point
    that a guard of its own among `lets` removes is owed nothing."""
    own = frozenset(range.coordinate for range in clause.ranges)
    taken = names_in(clause) | {coordinate.name for coordinate in cotangent.coordinates}
    way = Walk(counts, taken, lets, own, clause.ranges).given(clause.guard)
    itself = build.read(let.name, clause.slots, "real", clause.span)
    yield from shares(clause.body, cotangent, way, itself)


def shares(expr: ir.Expr, owed: Quotient, way: Walk, itself: ir.Expr | None = None) -> Iterator[Share]:
    """The cotangents of the reads of an expression, where `owed` is its own.

    `itself` is how the value of the expression can be read, where it has a name.
    """
    if not way.counts(expr):
        return
    match expr:
        case ir.Const() | ir.Coord() | ir.Size() | ir.Array():
            return
        case ir.Read(tensor, indices):
            way = way.given(presence(expr, way.lets))
            yield Share(tensor, indices, owed, way.ranges, way.guards, way.cases, way.own)
        case ir.Map():
            yield from _through_map(expr, owed, way, itself)
        case ir.Select(condition, then, otherwise):
            yield from shares(then, owed, way.where(condition))
            yield from shares(otherwise, owed, way.where(negated(condition)))
        case ir.Reduce():
            yield from _through_reduction(expr, owed, way)
        case ir.Normalize():
            if expr.op != "rank":
                yield from _through_normalizer(expr, owed, way, itself)
        case _:
            assert_never(expr)


def _through_map(expr: ir.Map, owed: Quotient, way: Walk, itself: ir.Expr | None) -> Iterator[Share]:
    if is_flat(expr):
        return
    for number, argument in enumerate(expr.arguments):
        if argument.type.kind != "real" or not way.counts(argument):
            continue
        for factor, conditions in slope(expr, number, itself or expr):
            # In place of the factor that is read, so that the order of a product stays.
            product = factor.times(owed) if expr.op == "*" and number == 1 else owed.times(factor)
            there = None
            if expr.op in ("*", "/"):
                there = needed_presence(argument, (*factor.factors, *factor.divisors), way.ranges, way.lets)
            yield from shares(argument, product, way.given(there).where(*conditions))


# -------------------------------------------------------------------- reductions


def _through_reduction(expr: ir.Reduce, owed: Quotient, way: Walk) -> Iterator[Share]:
    inner = way.within(expr.ranges, expr.guard)
    match expr.op:
        case "sum":
            yield from shares(expr.body, owed, inner)
        case "mean":
            yield from shares(expr.body, owed.over(quotient_of(count(expr))), inner)
        case "prod":
            yield from shares(expr.body, owed.times(others(expr, way.fresh)), inner)
        case "max" | "min":
            yield from shares(expr.body, owed, inner.where(*is_first(expr, way.fresh)))
        case _:
            return


def count(expr: ir.Reduce) -> ir.Expr:
    """The number of points that a reduction runs over."""
    if expr.guard is None and not any(range.depends_on for range in expr.ranges) and not runs_over_rest(expr):
        result = length(expr.ranges[0])
        for range in expr.ranges[1:]:
            result = build.apply("*", (result, length(range)), "whole", expr.span)
        return result
    return build.reduce("sum", expr.ranges, build.real(Fraction(1), expr.span), expr.guard, "real", expr.span)


def runs_over_rest(expr: ir.Reduce) -> bool:
    """Whether it runs over `..r`. The language has no word for its size, and can count its points."""
    return any(range.coordinate.rest for range in expr.ranges)


def length(range: ir.Range) -> ir.Expr:
    """The number of points of a range, where it is not empty."""
    if range.from_zero:
        return range.upper
    return build.apply("-", (range.upper, range.lower), "whole", range.span)


def _renamed(expr: ir.Reduce, ranges: tuple[ir.Range, ...], choose: Callable[[Coordinate], Coordinate]) -> ir.Reduce:
    """A reduction over some of its ranges alone, under other names."""
    values: dict[Coordinate, ir.Expr] = {}
    renamed = []
    for range in ranges:
        coordinate = choose(range.coordinate)
        lower, upper = substitute(range.lower, values), substitute(range.upper, values)
        values[range.coordinate] = build.coord(coordinate, range.span)
        renamed.append(ir.Range(coordinate, lower, upper, range.stated, range.span))
    guard = None if expr.guard is None else substitute(expr.guard, values)
    body = substitute(expr.body, values)
    return build.reduce(expr.op, tuple(renamed), body, guard, expr.type.kind, expr.span)


def others(expr: ir.Reduce, choose: Callable[[Coordinate], Coordinate]) -> Quotient:
    """The product of all the other points: the derivative of a product by one of its factors, zeros or not. Along one
    coordinate it is that of the earlier points times that of the later ones, both of which are running products."""
    if runs_over_rest(expr):
        raise Refusal("a `prod` over `..r` would be taken without one point, and that has no name")
    if len(expr.ranges) == 1:
        return Quotient(factors=tuple(_beside(expr, choose, order) for order in ("<", ">")))
    renamed = _renamed(expr, expr.ranges, choose)
    apart: ir.Expr | None = None
    for mine, other in zip(expr.ranges, renamed.ranges, strict=True):
        sides = (build.coord(other.coordinate, expr.span), build.coord(mine.coordinate, expr.span))
        differs = build.apply("!=", sides, "bool", expr.span)
        apart = differs if apart is None else build.apply("||", (apart, differs), "bool", expr.span)
    guard = build.conjunction((renamed.guard, apart))
    return Quotient(factors=(build.reduce("prod", renamed.ranges, renamed.body, guard, "real", expr.span),))


def _beside(expr: ir.Reduce, choose: Callable[[Coordinate], Coordinate], order: str) -> ir.Expr:
    """The product of the points before this one, or of those behind it. What it asks of other coordinates is left out
    where that follows from what holds here: `k <= i` does, for a `k` before one that is at most `i`."""
    renamed = _renamed(expr, expr.ranges, choose)
    mine, other = (build.coord(one.ranges[0].coordinate, expr.span) for one in (expr, renamed))
    apart = build.apply(order, (other, mine), "bool", expr.span)
    held = Assumptions().assuming(apart)
    held = held if expr.guard is None else held.assuming(expr.guard)
    asked = [
        condition
        for condition in conjuncts_of(renamed.guard)
        if condition.type.coordinates <= {other.coordinate} or not held.proves(condition)
    ]
    guard = build.conjunction((apart, *asked))
    return build.reduce("prod", renamed.ranges, renamed.body, guard, "real", expr.span)


def is_first(expr: ir.Reduce, choose: Callable[[Coordinate], Coordinate]) -> list[ir.Expr]:
    """The condition that this point is the first with the largest (smallest) value, in the order of the bracket."""
    if runs_over_rest(expr):
        raise Refusal(f"the place of a `{expr.op}` over `..r` has no name to be told by")
    conditions: list[ir.Expr] = []
    for number, range in enumerate(expr.ranges):
        renamed = _renamed(expr, expr.ranges[number:], choose)
        body, guard = renamed.body, renamed.guard
        if len(renamed.ranges) > 1:
            body = build.reduce(expr.op, renamed.ranges[1:], body, guard, "real", expr.span)
            guard = None
        place = build.reduce(f"arg{expr.op}", renamed.ranges[:1], body, guard, "whole", expr.span)
        sides = (build.coord(range.coordinate, expr.span), place)
        conditions.append(build.apply("==", sides, "bool", expr.span))
    return conditions


# ------------------------------------------------------------------- normalisers


def _through_normalizer(expr: ir.Normalize, owed: Quotient, way: Walk, itself: ir.Expr | None) -> Iterator[Share]:
    coordinate, span = expr.coordinate, expr.span
    way = way.loosened(coordinate)
    outside = tuple(guard for guard in (*way.guards, *way.cases) if coordinate in guard.type.coordinates)
    if outside:
        # Inside, the coordinate runs over all its points: those that are absent outside are only owed nothing.
        present = build.conjunction(outside)
        assert present is not None
        zero = build.whole(0, span)
        owed, itself = Quotient(factors=(build.select(present, owed.expression(span), zero, span),)), None
        guards, cases = (tuple(g for g in some if g not in outside) for some in (way.guards, way.cases))
        way = replace(way, guards=guards, cases=cases)
    value = expr if itself is None else itself
    yield from shares(expr.body, _through(expr, owed, value, way), way.given(expr.guard))


def _through(expr: ir.Normalize, owed: Quotient, value: ir.Expr, way: Walk) -> Quotient:
    """The cotangent of the body of a normaliser at its own point."""
    coordinate, span = expr.coordinate, expr.span
    other = way.fresh(coordinate)
    range = replace(way.range_of(coordinate), coordinate=other)
    elsewhere = {coordinate: build.coord(other, span)}
    guard = None if expr.guard is None else substitute(expr.guard, elsewhere)

    def gathered(product: Quotient, guard: ir.Expr | None) -> ir.Expr:
        body = product.substituted(elsewhere).expression(span)
        return build.reduce("sum", (range,), body, guard, "real", span)

    def minus(left: Quotient, right: ir.Expr) -> ir.Expr:
        opposite = without_sign(right)
        if opposite is not None:
            return build.apply("+", (left.expression(span), opposite), "real", span)
        return build.apply("-", (left.expression(span), right), "real", span)

    match expr.op:
        case "softmax":
            mine = Quotient(factors=(value,))
            needed = None if isinstance(value, ir.Read) else guard
            return mine.times(Quotient(factors=(minus(owed, gathered(mine.times(owed), needed)),)))
        case "log_softmax":
            share = build.apply("exp", (value,), "real", span)
            whole = build.apply("*", (share, gathered(owed, guard)), "real", span)
            return Quotient(factors=(minus(owed, whole),))
        case "cumsum":
            sides = (build.coord(coordinate, span), build.coord(other, span))
            later = build.apply("<=", sides, "bool", span)
            return Quotient(factors=(gathered(owed, build.conjunction((later, guard))),))
        case _:
            raise AssertionError(expr.op)
