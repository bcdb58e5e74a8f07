"""Sums and maxima over all positions up to one's own, as totals that are carried on: a row is the one before it and
what its own position adds.

`sum[j](k[j, d] * v[j, e] where j <= i)` is `total[i, d, e] = total[i - 1, d, e] + k[i, d] * v[i, e]`. After some
positions its last row is the sum over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.prefixes import is_normalised
from ..ir.prove import conjuncts
from ..ir.types import Coordinate
from ..ir.walk import changed, fresh, fresh_name, rebuild, substitute
from ..records import dataclass, replace
from .positions import COMPARISONS

# How two totals become one, and whether a position that is taken twice adds nothing.
_JOINED = {"sum": ("+", False), "prod": ("*", False), "max": ("max", True), "min": ("min", True)}


@dataclass(frozen=True)
class Totals:
    """A program in which totals are definitions of their own. `ends` are their last rows, in terms of the program that
    was; `along` is where each total has positions."""

    program: ir.Program
    ends: Mapping[str, ir.Let]
    along: Mapping[str, tuple[int, ...]]


def with_totals(program: ir.Program, row: Coordinate, along: Mapping[str, tuple[int, ...]]) -> Totals:
    """The program, with the totals that definitions of one position are made of."""
    finder = _Finder(program, row)
    lets = []
    for let in program.lets:
        places = along[let.name]
        is_plain = len(places) == 1 and len(let.clauses) == 1
        slot = let.clauses[0].slots[places[0]] if is_plain else None
        if isinstance(slot, ir.Coord) and finder.is_whole(let.clauses[0], slot.coordinate):
            let = finder.rewritten(let, slot.coordinate)
        lets.append(let)
    if not finder.ends:
        return Totals(program, {}, {})
    return Totals(replace(program, lets=(*lets, *finder.totals)), finder.ends, finder.along)


@dataclass(frozen=True)
class _Found:
    """A reduction over positions up to `own`, itself included or not: over which coordinate, under what else. Where
    `asked` does not hold, which is about its own position alone, it takes none."""

    reduce: ir.Reduce
    taken: ir.Range
    rest: ir.Expr | None
    asked: ir.Expr | None
    strict: bool


class _Finder:
    def __init__(self, program: ir.Program, row: Coordinate) -> None:
        self.row, self.names = row, {*program.tensors}
        self.totals: list[ir.Let] = []
        self.ends: dict[str, ir.Let] = {}
        self.along: dict[str, tuple[int, ...]] = {}

    def is_whole(self, clause: ir.Clause, own: Coordinate) -> bool:
        range = next(r for r in clause.ranges if r.coordinate == own)
        return range.from_zero and polynomial(range.upper) == self._length(range)

    def _length(self, at: ir.Range) -> object:
        return polynomial(build.size(self.row, at.span))

    def rewritten(self, let: ir.Let, own: Coordinate) -> ir.Let:
        clause = let.clauses[0]
        ranges = {r.coordinate: r for r in clause.ranges}
        return replace(let, clauses=(changed(clause, lambda expr: self.change(expr, let, own, ranges)),))

    def change(
        self, expr: ir.Expr, let: ir.Let, own: Coordinate, ranges: Mapping[Coordinate, ir.Range]
    ) -> ir.Expr:
        """The expression with totals in place of reductions."""
        if isinstance(expr, ir.Reduce):
            if own in expr.coordinates:
                return expr
            found = self.found(expr, own)
            total = None if found is None else self.total(found, let, own, ranges)
            if total is not None:
                return total
            ranges = {**ranges, **{r.coordinate: r for r in expr.ranges}}
        if isinstance(expr, ir.Normalize):
            return expr
        return rebuild(expr, lambda child: self.change(child, let, own, ranges))

    def found(self, expr: ir.Reduce, own: Coordinate) -> _Found | None:
        """The total that a reduction is; None where what it takes depends on the position in some other way."""
        if expr.op not in _JOINED or expr.type.kind != "real" or own in expr.body.type.coordinates:
            return None
        facts = [] if expr.guard is None else conjuncts(expr.guard, True, lambda read: None)
        bounds: list[tuple[ir.Range, bool]] = []
        rest: list[ir.Expr] = []
        asked: list[ir.Expr] = []
        here = polynomial(build.coord(own, expr.span))
        positions = [r for r in expr.ranges if r.from_zero and polynomial(r.upper) == self._length(r)]
        for range in expr.ranges:
            beyond = (polynomial(range.upper) - here).constant
            if range.from_zero and beyond in (0, 1):
                bounds.append((range, beyond == 0))
            elif own in range.upper.type.coordinates | range.lower.type.coordinates:
                return None
        for fact in facts:
            if own not in fact.type.coordinates:
                rest.append(fact)
                continue
            if fact.type.coordinates.isdisjoint(expr.coordinates):
                asked.append(fact)
                continue
            if not isinstance(fact, ir.Map) or fact.op not in COMPARISONS:
                return None
            left, right = map(polynomial, fact.arguments)
            less = right - left if fact.op in ("<", "<=") else left - right
            slack = less - (1 if fact.op in ("<", ">") else 0)
            gaps = {r: (slack - here + polynomial(build.coord(r.coordinate, r.span))).constant for r in positions}
            close = [(r, gap == -1) for r, gap in gaps.items() if gap in (0, -1)]
            if not close:
                return None
            bounds += close
        if len(bounds) != 1:
            return None
        (taken, strict), idempotent = bounds[0], _JOINED[expr.op][1]
        # What is normalised over the positions that are taken changes with every further one.
        if (strict and idempotent) or is_normalised(expr, taken.coordinate):
            return None
        return _Found(expr, taken, build.conjunction(rest), build.conjunction(asked), strict)

    def total(
        self, found: _Found, let: ir.Let, own: Coordinate, ranges: Mapping[Coordinate, ir.Range]
    ) -> ir.Expr | None:
        """The total, read at its own position; None where it would have axes that are no boxes."""
        expr, span = found.reduce, found.reduce.span
        free = [c for c in ranges if c in expr.type.coordinates and c != own]
        homes = [ranges[c] for c in free]
        if len(free) < len(expr.type.coordinates - {own}):
            return None
        if any(not r.from_zero or r.upper.type.coordinates for r in homes):
            return None
        name = fresh_name(f"{let.name}_total", self.names)
        self.names.add(name)
        place = len([c for c in free if c.rest])
        self.along[name] = (place,)
        self.ends[name] = self._end(name, found, homes, place)
        values: dict[Coordinate, ir.Expr] = {found.taken.coordinate: build.coord(own, span)}
        inner = [
            replace(r, lower=substitute(r.lower, values), upper=substitute(r.upper, values))
            for r in expr.ranges
            if r is not found.taken
        ]
        body = substitute(expr.body, values)
        guard = None if found.rest is None else substitute(found.rest, values)
        once = fresh(Coordinate("once"), {c.name for c in (*free, own)})
        single = ir.Range(once, build.whole(0, span), build.whole(1, span), True, span)
        if guard is not None and not inner:
            inner = [single]
        new = build.reduce(expr.op, tuple(inner), body, guard, expr.type.kind, span) if inner else body
        length = ir.Range(own, build.whole(0, span), build.size(self.row, span), True, span)
        homes.insert(place, length)
        own_ranges = {r.coordinate: r for r in homes}
        new = self.change(new, let, own, own_ranges)
        self.totals.append(self._carried(name, expr, homes, place, new))
        strict = found.strict
        there = self._before(name, expr, homes, place, None) if strict else self._at(name, expr, homes, place, 0)
        asked = found.asked
        return there if asked is None else build.reduce(expr.op, (single,), there, asked, expr.type.kind, span)

    def _carried(self, name: str, expr: ir.Reduce, homes: list[ir.Range], place: int, new: ir.Expr) -> ir.Let:
        op, idempotent = _JOINED[expr.op]
        before = self._before(name, expr, homes, place, new if idempotent else None)
        body = build.apply(op, (before, new), expr.type.kind, expr.span)
        return self._let(name, expr, homes, body, None)

    def _at(self, name: str, expr: ir.Reduce, homes: list[ir.Range], place: int, back: int) -> ir.Read:
        slots: list[ir.Expr] = [build.coord(r.coordinate, expr.span) for r in homes]
        if back:
            slots[place] = build.apply("-", (slots[place], build.whole(back, expr.span)), "whole", expr.span)
        return build.read(name, tuple(slots), expr.type.kind, expr.span)

    def _before(
        self, name: str, expr: ir.Reduce, homes: list[ir.Range], place: int, start: ir.Expr | None
    ) -> ir.Expr:
        """The total at the position before; `start`, or the total over nothing, at the first."""
        here, none = build.coord(homes[place].coordinate, expr.span), build.whole(0, expr.span)
        nothing = build.real(Fraction(expr.op == "prod"), expr.span)
        later = build.apply(">", (here, none), "bool", expr.span)
        return build.select(later, self._at(name, expr, homes, place, 1), start or nothing, expr.span)

    def _end(self, name: str, found: _Found, homes: list[ir.Range], place: int) -> ir.Let:
        """The total over all positions, as one row."""
        expr, span = found.reduce, found.reduce.span
        last = fresh(Coordinate("last"), {r.coordinate.name for r in (*homes, *expr.ranges)})
        one = ir.Range(last, build.whole(0, span), build.whole(1, span), True, span)
        everything = replace(found.taken, upper=build.size(self.row, span))
        ranges = tuple(everything if r is found.taken else r for r in expr.ranges)
        body = build.reduce(expr.op, ranges, expr.body, found.rest, expr.type.kind, span)
        return self._let(fresh_name(f"{name}_end", self.names), expr, [*homes[:place], one, *homes[place:]], body, None)

    def _let(
        self, name: str, expr: ir.Reduce, homes: list[ir.Range], body: ir.Expr, guard: ir.Expr | None
    ) -> ir.Let:
        span = expr.span
        slots = tuple(build.coord(r.coordinate, span) for r in homes)
        axes = tuple(ir.Axis(r.coordinate, r.upper) for r in homes)
        return ir.Let(name, axes, expr.type.kind, (ir.Clause(slots, tuple(homes), body, guard, span),), False, span)
