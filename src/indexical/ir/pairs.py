"""Queries and keys: the keys that a tile of queries attends to, and the other way round, from the tile's ends."""

from __future__ import annotations

from ..records import dataclass, replace
from ..source import Span
from . import build
from . import nodes as ir
from .affine import Ends, Polynomial, expression, extreme, polynomial, tidied
from .algebra.canonical import at_least_zero
from .domain import Domain
from .prove import Assumptions, inequalities
from .slices import Slice, choice_of
from .types import Coordinate


@dataclass(frozen=True, slots=True)
class Block:
    """Keys of a tile of queries. No query of the tile attends to a key before `first` or from `beyond` on; every query
    of it attends to all keys from `full_first` up to `full_beyond`, as far as `labels` agree and all of `rest` holds,
    which has to be evaluated key by key. Between the two the `slice` decides."""

    first: ir.Expr
    beyond: ir.Expr
    full_first: ir.Expr
    full_beyond: ir.Expr
    labels: tuple[tuple[ir.Expr, ir.Expr], ...]
    rest: tuple[ir.Expr, ...]
    slice: Slice


@dataclass(frozen=True, slots=True)
class Pairs:
    """The keys of each query, for every point of all other coordinates. `asks` are other coordinates that queries have
    and keys do not, `answers` those that keys have and queries do not: no label of one side varies with the other's."""

    domain: Domain
    query: Coordinate
    key: Coordinate
    asks: tuple[Coordinate, ...] = ()
    answers: tuple[Coordinate, ...] = ()

    def transpose(self) -> Pairs:
        """The queries of each key."""
        return Pairs(self.domain, self.key, self.query, self.answers, self.asks)

    def slices(self) -> tuple[Slice, ...]:
        """The keys of a query: those in any slice."""
        return self.domain.bounds(self.key, (self.query, *self.asks))

    def blocks(self, start: ir.Expr, stop: ir.Expr) -> tuple[Block, ...]:
        """The keys of the queries from `start` up to `stop`, which are at least one, and all in their range: for each
        slice those that none of them attends to, those that all of them attend to, and those between."""
        query = self.domain.range(self.query)
        first, beyond, lower, upper = (self._polynomial(end) for end in (start, stop, query.lower, query.upper))
        given = (first - lower, beyond - first - 1, upper - beyond)
        known = replace(self.domain.known, known=(*self.domain.known.known, *given))
        last = expression(beyond - 1, stop.span)
        return tuple(self._block(one, {self.query: (start, last)}, known) for one in self.slices())

    def _polynomial(self, expr: ir.Expr) -> Polynomial:
        return polynomial(expr, self.domain.known.constants)

    def _block(self, one: Slice, tile: Ends, known: Assumptions) -> Block:
        key = self.domain.range(self.key)
        point = build.coord(self.key, key.span)
        rest = list(one.rest)
        hull: list[ir.Expr] = []
        full: list[ir.Expr] = []
        for op, order, end, bounds in (("max", "<=", key.lower, one.lower), ("min", "<", key.upper, one.upper)):
            outer: list[ir.Expr] = []
            inner: list[ir.Expr] = []
            for bound in (end, *bounds):
                choice = choice_of(bound, key)
                near = [self._end(bound, tile, (op == "max") == least, key) for least in (True, False)]
                if near[0] is not None and near[1] is not None:
                    outer.append(near[0])
                    inner.append(near[1])
                elif choice is not None:
                    rest.append(choice)
                else:
                    sides = (bound, point) if op == "max" else (point, bound)
                    rest.append(build.apply(order, sides, "bool", bound.span))
            hull.append(_joined(op, outer, known, key.span) or end)
            full.append(_joined(op, inner, known, key.span) or end)
        return Block(hull[0], hull[1], full[0], full[1], one.labels, tuple(rest), one)

    def _end(self, bound: ir.Expr, tile: Ends, least: bool, key: ir.Range) -> ir.Expr | None:
        """The least or largest value of a bound in a tile. A condition on the queries alone holds for some of them
        where it does so at one end of the tile, for all of them where it does at the other."""
        choice = choice_of(bound, key)
        if choice is None:
            return extreme(bound, tile, least)
        facts: list[ir.Expr] = []
        for row in inequalities(choice, self.domain.known.constants) or (None,):
            value = None if row is None else extreme(expression(row, choice.span), tile, least)
            if value is None:
                return None
            facts += at_least_zero(self._polynomial(tidied(value)), choice.span)
        condition = build.conjunction(facts)
        return key.upper if condition is None else build.select(condition, key.upper, key.lower, choice.span)


def _joined(op: str, bounds: list[ir.Expr], known: Assumptions, span: Span) -> ir.Expr | None:
    """The largest or smallest of some bounds, without those that another one is beyond anyway; None of none."""
    kept: list[ir.Expr] = []
    for bound in dict.fromkeys(map(tidied, bounds)):
        if any(_is_beyond(op, other, bound, known) for other in kept):
            continue
        kept = [*(other for other in kept if not _is_beyond(op, bound, other, known)), bound]
    result: ir.Expr | None = None
    for bound in kept:
        result = bound if result is None else build.apply(op, (result, bound), "whole", span)
    return result


def _is_beyond(op: str, one: ir.Expr, other: ir.Expr, known: Assumptions) -> bool:
    difference = polynomial(one, known.constants) - polynomial(other, known.constants)
    return known.entails(difference if op == "max" else -difference)
