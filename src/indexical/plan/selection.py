"""Sums over the first of a ranking, `sum[j](softmax[j](s[i, j] where rank[j](s[i, j]) < 64) * V[j, e])`, over their
places: what was not selected is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from ..facts.distributions import ranking
from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Factor, factors_of, product_of
from ..ir.conditions import conjuncts_of
from ..ir.needs import needed
from ..ir.types import Coordinate, Kind
from ..ir.walk import Inexpressible, at, fresh, fresh_name, rebuild, substitute, walk
from ..records import dataclass
from .ordering import definition, rewritten
from .unscaled import leave_scales

Ranges = Mapping[Coordinate, ir.Range]


@dataclass(frozen=True, slots=True)
class Selection:
    """The first `limit` points of a ranking that keeps no more points than the guard it stands in; and what else that
    guard asks of them."""

    order: ir.Normalize
    limit: int
    others: tuple[ir.Expr, ...]


def select(guard: ir.Expr | None, key: Coordinate, lets: Mapping[str, ir.Let]) -> Selection | None:
    """The selection that a guard makes among the points of a coordinate; None where it makes none."""
    facts = conjuncts_of(guard)
    for fact in facts:
        found = first_places(fact, lets)
        if found is None or found[0].coordinate != key:
            continue
        own = conjuncts_of(found[0].guard)
        rest = [other for other in facts if other is not fact]
        if set(own) <= set(rest):
            return Selection(*found, tuple(other for other in rest if other not in own))
    return None


def first_places(fact: ir.Expr, lets: Mapping[str, ir.Let]) -> tuple[ir.Normalize, int] | None:
    """The ranking and the number in `rank[j](…) < 64`, whichever way round it is written."""
    match fact:
        case ir.Map("<" | "<=" as op, (place, ir.Const(int(limit)))):
            pass
        case ir.Map(">" | ">=" as op, (ir.Const(int(limit)), place)):
            pass
        case _:
            return None
    order = ranking(place, lets)
    return None if order is None else (order, limit + ("=" in op))


def gather_selected(program: ir.Program, wanted: tuple[str, ...]) -> tuple[ir.Program, set[str]]:
    """The program with such sums over places, and the names of those that have them. Where the weights are wanted
    besides, or read by something else, they are built in any case, and nothing is gained."""
    kept = set(wanted)
    while True:
        search = _Search(program, kept)
        found, names = search.by_places(needed(program, wanted))
        again = search.replaced & needed(found, wanted)
        if not again:
            return leave_scales(found, wanted, {*names, *(let.name for let in search.made)}), names
        kept |= again


@dataclass
class _Search:
    program: ir.Program
    kept: set[str]
    made: list[ir.Let] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lets = self.program.definitions
        self.taken = set(self.program.tensors)

    def by_places(self, needed: set[str]) -> tuple[ir.Program, set[str]]:
        """The program, with all sums of what is needed over places where they can be, and the names of these."""

        def change(let: ir.Let, clause: ir.Clause) -> ir.Expr:
            ranges = {range.coordinate: range for range in clause.ranges}
            return clause.body if clause.guard is not None else self.rewritten(clause.body, ranges, let)

        return rewritten(self.program, needed, self.made, change)

    def rewritten(self, expr: ir.Expr, ranges: Ranges, let: ir.Let) -> ir.Expr:
        """The expression with sums under arithmetic alone over places."""
        match expr:
            case ir.Map() if expr.type.kind == "real":
                return rebuild(expr, lambda child: self.rewritten(child, ranges, let))
            case ir.Reduce("sum", (key,)) if expr.type.kind == "real" and key.is_counted:
                count = len(self.made)
                try:
                    return self.total(expr, key, ranges, let) or expr
                except Inexpressible:
                    del self.made[count:]
        return expr

    def total(self, expr: ir.Reduce, key: ir.Range, ranges: Ranges, let: ir.Let) -> ir.Expr | None:
        """A sum over the places that its guard selects, or that of a softmax among its factors."""
        factors = factors_of(expr.body)
        found = select(expr.guard, key.coordinate, self.lets)
        if found is not None:
            place = self.place(found, key, ranges, let)
            return None if place is None else self.over(place, factors, found.others, key, expr)
        for number, factor in enumerate(factors):
            softmax = None if factor.inverse else self.softmax(factor.expr)
            found = None if softmax is None else select(softmax.guard, key.coordinate, self.lets)
            place = None if found is None else self.place(found, key, ranges, let)
            if found is not None and place is not None and softmax is not None:
                weights = Factor(self.weights(softmax, found, place, key, ranges, let))
                others = [weights if n == number else other for n, other in enumerate(factors)]
                self.replaced |= {factor.expr.tensor} if isinstance(factor.expr, ir.Read) else set()
                return self.over(place, others, tuple(conjuncts_of(expr.guard)), key, expr, known=weights.expr)
        return None

    def softmax(self, expr: ir.Expr) -> ir.Normalize | None:
        """The softmax that a factor is, by name too."""
        if isinstance(expr, ir.Read) and expr.tensor in self.lets and expr.tensor not in self.kept:
            clause, *more = self.lets[expr.tensor].clauses
            found = None if more or clause.guard is not None else at(clause, clause.body, expr.indices)
            return found if isinstance(found, ir.Normalize) and found.op == "softmax" else None
        return expr if isinstance(expr, ir.Normalize) and expr.op == "softmax" else None

    def place(self, found: Selection, key: ir.Range, ranges: Ranges, let: ir.Let) -> ir.Read | None:
        """The places of the points that are selected, -1 where there are no more, as a definition."""
        order, span = found.order, found.order.span
        own = [c for c in ranges if c in order.type.coordinates]
        if not order.type.coordinates <= {key.coordinate, *own} or not all(ranges[c].is_counted for c in own):
            return None
        inside = {c for clause in let.clauses for part in walk(clause.body) for c in part.type.coordinates}
        turn = fresh(Coordinate("t"), {c.name for c in (*ranges, *inside, key.coordinate)})
        here = build.apply("==", (order, build.coord(turn, span)), "bool", span)
        guard = build.conjunction((*conjuncts_of(order.guard), here))
        body = build.reduce("argmax", (key,), build.whole(0, span), guard, "whole", span)
        turns = ir.Range(turn, build.whole(0, span), build.whole(found.limit, span), True, span)
        return self.defined(f"{let.name}_places", [*(ranges[c] for c in own), turns], body, "whole")

    def weights(
        self, softmax: ir.Normalize, found: Selection, place: ir.Read, key: ir.Range, ranges: Ranges, let: ir.Let
    ) -> ir.Read:
        """The softmax over the points that are selected, as a definition."""
        turn, span = place.indices[-1], softmax.span
        assert isinstance(turn, ir.Coord)
        there = {key.coordinate: place}
        score = substitute(softmax.body, there)
        guard = build.conjunction((_is_there(place), *(substitute(other, there) for other in found.others)))
        body = build.normalize("softmax", turn.coordinate, score, guard, "real", span)
        turns = next(r for r in self.lets_made(place.tensor).clauses[0].ranges if r.coordinate == turn.coordinate)
        own = [ranges[c] for c in ranges if c in body.type.coordinates]
        if not all(r.is_counted for r in own):
            raise Inexpressible
        return self.defined(f"{let.name}_weights", [*own, turns], body, "real")

    def over(
        self,
        place: ir.Read,
        factors: list[Factor],
        conditions: tuple[ir.Expr, ...],
        key: ir.Range,
        expr: ir.Reduce,
        known: ir.Expr | None = None,
    ) -> ir.Expr:
        """The sum of factors at the places; weights that are `known` are 0 where there are no more."""
        there = {key.coordinate: place}
        moved = [replace(f, expr=f.expr if f.expr is known else substitute(f.expr, there)) for f in factors]
        asked = (*(() if known is not None else (_is_there(place),)), *(substitute(c, there) for c in conditions))
        turns = self.lets_made(place.tensor).clauses[0].ranges[-1]
        return build.reduce("sum", (turns,), product_of(moved, expr), build.conjunction(asked), "real", expr.span)

    def lets_made(self, name: str) -> ir.Let:
        return next(let for let in self.made if let.name == name)

    def defined(self, name: str, ranges: list[ir.Range], body: ir.Expr, kind: Kind) -> ir.Read:
        name = fresh_name(name, self.taken)
        self.taken.add(name)
        self.made.append(replace(definition(name, ranges, body), kind=kind))
        return build.read(name, tuple(build.coord(r.coordinate, r.span) for r in ranges), kind, body.span)


def _is_there(place: ir.Read) -> ir.Expr:
    return build.apply(">=", (place, build.whole(0, place.span)), "bool", place.span)
