"""Values at distances: `sum[j](w[i, j] * R[i - j, e])` is `sum[p](W[i, p] * R[p, e])`, where `W[i, p] = w[i, i - p]`.

As written, every query has a matrix of values of its own. With the weights by place it is one product of matrices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import expression, of_atom, polynomial, tidied
from ..ir.algebra.factors import Factor, added, factors_of, product_of, varying
from ..ir.conditions import conjuncts_of, negated
from ..ir.context import assume
from ..ir.removal import removal, removal_through
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, fresh_name, is_bare, rebuild, substitute, walk
from ..records import dataclass
from .contractions import extent_read, multiplied_out, starts_at_zero
from .ordering import definition, rewritten
from .reach import reach
from .scatters import falls_within, solve

Ranges = Mapping[Coordinate, ir.Range]


def by_places(program: ir.Program, needed: Collection[str]) -> tuple[ir.Program, list[str]]:
    """The program with such sums, in all that is needed, over places, and the names of the weights by place. What is
    made of itself stays as it is. That all places are there, where one is wanted, is asserted."""
    search = _Search(program)

    def change(let: ir.Let, clause: ir.Clause) -> ir.Expr:
        return search.rewritten(clause.body, {range.coordinate: range for range in clause.ranges}, let)

    found, changed = rewritten(program, needed, search.made, change)
    if not changed:
        return program, []
    names = [let.name for let in search.made]
    return replace(found, asserts=(*program.asserts, *dict.fromkeys(search.claims))), names


@dataclass
class _Search:
    program: ir.Program
    made: list[ir.Let] = field(default_factory=list)
    claims: list[ir.Assert] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lets = self.program.definitions
        self.tensors = dict(self.program.tensors)

    def rewritten(self, expr: ir.Expr, ranges: Ranges, let: ir.Let) -> ir.Expr:
        """Rewrite sums under arithmetic alone: under a guard or a branch, an index may be out of bounds elsewhere."""
        match expr:
            case ir.Map(_, arguments) if expr.type.kind == "real":
                changed = tuple(self.rewritten(argument, ranges, let) for argument in arguments)
                return expr if changed == arguments else rebuild(expr, dict(zip(arguments, changed, strict=True)).get)  # type: ignore[arg-type]
            case ir.Reduce("sum") if expr.type.kind == "real":
                around = {**ranges, **{range.coordinate: range for range in expr.ranges}}
                if any(range.depends_on for range in expr.ranges):
                    return expr
                keys = [r for r in expr.ranges if any(_is_pair_read(part, r.coordinate) for part in walk(expr.body))]
                return self.total(expr, keys[-1], around, let) if keys else self.scattered(expr, ranges, around, let)
            case _:
                return expr

    def total(self, expr: ir.Reduce, bound: ir.Range, ranges: Ranges, let: ir.Let) -> ir.Expr:
        def is_distant(part: ir.Expr) -> bool:
            return _is_pair_read(part, bound.coordinate)

        made, parts = len(self.made), []
        for factors, positive in multiplied_out(expr.body, is_distant, lambda _: False):
            part = self.part(expr, bound, factors, ranges, let)
            if part is None:
                part = build.reduce("sum", expr.ranges, product_of(factors, expr), expr.guard, "real", expr.span)
            parts.append((part, positive))
        return expr if len(self.made) == made else added(parts, expr.span) or expr

    def part(
        self, expr: ir.Reduce, bound: ir.Range, factors: list[Factor], ranges: Ranges, let: ir.Let
    ) -> ir.Expr | None:
        """A product under a sum as a sum over places; None where it is none, or gains nothing by it."""
        key, span = bound.coordinate, expr.span
        tables = [f for f in factors if not f.inverse and _is_pair_read(f.expr, key) and _carried(f, factors, expr)]
        if len(tables) != 1:
            return None
        read, others = tables[0].expr, [factor for factor in factors if factor is not tables[0]]
        if not isinstance(read, ir.Read) or not others:
            return None
        pairs = [n for n, index in enumerate(read.indices) if _is_pair(index, key)]
        index, rest = read.indices[pairs[0]], [i for n, i in enumerate(read.indices) if n != pairs[0]]
        weights = product_of(others, expr)
        varies = weights.type.coordinates
        plain = len(pairs) == 1 and all(isinstance(i, ir.Coord) and i.coordinate in ranges for i in rest)
        carried = _carried(tables[0], factors, expr)
        own = [c for c in ranges if c in varies and c != key]
        counted = all(ranges[c].is_counted for c in (*own, *carried)) if plain else False
        if not counted or not index.type.coordinates <= varies or not starts_at_zero(self.lets, read):
            return None
        if any(isinstance(part, ir.Normalize | ir.Reduce) for part in walk(weights)):
            return None
        if expr.guard is not None and not expr.guard.type.coordinates <= varies:
            return None
        highest = reach(index, ranges, self.lets, conjuncts_of(expr.guard)).highest
        if highest is None:
            return None
        axis = self.tensors[read.tensor].axes[pairs[0]]
        place = fresh(Coordinate(axis.coordinate.name), {c.name for c in ranges})
        there = ir.Range(place, build.whole(0, span), extent_read(axis.extent, highest), True, span)
        body = _at_place(expr, bound, weights, index, place)
        if isinstance(body, ir.Select):
            known = assume((*(r for c, r in ranges.items() if c != key), there), self.lets)
            kept = [c for c in conjuncts_of(body.condition) if not known.proves(c)]
            condition = build.conjunction(kept)
            body = body.then if condition is None else build.select(condition, body.then, body.otherwise, span)
        name = self.named(f"{let.name}_{read.tensor}", definition("", [*(ranges[c] for c in own), there], body))
        indices = tuple(build.coord(place, span) if n == pairs[0] else i for n, i in enumerate(read.indices))
        by_place = build.read(name, tuple(build.coord(c, span) for c in (*own, place)), "real", span)
        table = build.read(read.tensor, indices, "real", span)
        self.claim(expr, weights, index, axis.extent, ranges, read)
        over = (*(r for r in expr.ranges if r is not bound), there)
        return build.reduce("sum", over, build.apply("*", (by_place, table), "real", span), None, "real", span)

    def scattered(self, expr: ir.Reduce, ranges: Ranges, around: Ranges, let: ir.Let) -> ir.Expr:
        """`sum[i, j](a[i, j] * b[i, d] where place == p)` as `sum[i](b[i, d] * sum[j](a[i, j] where place == p))`: only
        what varies with `j` is put in its place one by one."""
        conditions = conjuncts_of(expr.guard)
        solved = [found for c in conditions if (found := solve(c, ranges.keys(), expr.coordinates)) is not None]
        factors = factors_of(expr.body, divided=False)
        for _, place in solved:
            for bound in (r for r in expr.ranges if r.coordinate in place.type.coordinates):
                key, span = bound.coordinate, expr.span
                moved = [factor for factor in factors if key in factor.coordinates]
                others = [factor for factor in factors if key not in factor.coordinates]
                held = [c for c in conditions if key in c.type.coordinates]
                varies = (varying(moved) | build.varying(held)) - {key}
                if not moved or not others or len(expr.ranges) < 2 or not varies <= around.keys():
                    continue
                own = [c for c in around if c in varies]
                carried = (varying(others) - varies) & ranges.keys()
                bare = all(is_bare(factor.expr) for factor in moved)
                if not carried or not bare or not all(around[c].is_counted for c in own):
                    continue
                total = build.reduce("sum", (bound,), product_of(moved, expr), build.conjunction(held), "real", span)
                name = self.named(f"{let.name}_sum", definition("", [around[c] for c in own], total))
                read = build.read(name, tuple(build.coord(c, span) for c in own), "real", span)
                body = product_of([Factor(read), *others], expr)
                guard = build.conjunction(c for c in conditions if c not in held)
                rest = tuple(r for r in expr.ranges if r is not bound)
                return build.reduce("sum", rest, body, guard, "real", span)
        return expr

    def claim(
        self, expr: ir.Reduce, weights: ir.Expr, index: ir.Expr, extent: ir.Expr, ranges: Ranges, read: ir.Read
    ) -> None:
        """Claim that an index is in bounds wherever the sum reads it, which is not where the weights are removed. As
        the sum is written, it would be refused elsewhere."""
        span = expr.span
        removed = removal(weights, removal_through(self.lets))
        held = dict.fromkeys((*conjuncts_of(expr.guard), *conjuncts_of(None if removed is None else negated(removed))))
        guard = build.conjunction(held)
        trail = (*ranges.values(), *(() if guard is None else ((guard, True),)))
        known = assume(trail, self.lets)
        where, length = polynomial(index, known.constants), polynomial(extent, known.constants)
        ends = reach(index, ranges, self.lets, held)
        sides, enough = [], []
        if not known.entails(where):
            sides.append(build.apply("<=", (build.whole(0, span), index), "bool", span))
            enough.append(ends.lowest and build.apply("<=", (build.whole(0, span), ends.lowest), "bool", span))
        if not known.entails(length - where - 1):
            sides.append(build.apply("<", (index, extent), "bool", span))
            enough.append(ends.highest and build.apply("<", (ends.highest, extent), "bool", span))
        inside = build.conjunction(sides)
        if inside is not None:
            varies = build.varying((index, guard))
            over = tuple(replace(r, stated=True) for c, r in ranges.items() if c in varies)
            condition: ir.Expr = build.reduce("all", over, inside, guard, "bool", span)
            sure = None if None in enough else build.conjunction(enough)
            if sure is not None:  # Sizes alone say so, most of the time.
                condition = build.apply("||", (sure, condition), "bool", span)
            self.claims.append(ir.Assert(condition, f"an index of `{read.tensor}` is out of bounds", span))

    def named(self, name: str, let: ir.Let) -> str:
        free = fresh_name(name, self.tensors)
        self.made.append(replace(let, name=free))
        self.tensors[free] = self.made[-1]
        return free


def _carried(table: Factor, factors: Sequence[Factor], expr: ir.Reduce) -> frozenset[Coordinate]:
    """The coordinates that only the table has, of those that are not summed over."""
    return table.expr.type.coordinates.difference(
        expr.coordinates, *(factor.expr.type.coordinates for factor in factors if factor is not table)
    )


def _at_place(expr: ir.Reduce, bound: ir.Range, weights: ir.Expr, index: ir.Expr, place: Coordinate) -> ir.Expr:
    """The weights at a place: of the one key that has it, or the sum over all that do."""
    key, span = bound.coordinate, expr.span
    difference = polynomial(index) - of_atom(place)
    factor = difference.terms.get(frozenset(((key, 1),)))
    if factor in (1, -1):
        rest = difference.plus(of_atom(key), -factor)
        solved = expression(-rest if factor == 1 else rest, span)
        if key not in solved.type.coordinates:
            try:
                guards = [tidied(substitute(condition, {key: solved})) for condition in conjuncts_of(expr.guard)]
                body = tidied(substitute(weights, {key: solved}))
            except Inexpressible:
                pass
            else:
                kept = build.conjunction((falls_within(solved, bound.lower, bound.upper), *guards))
                assert kept is not None
                return build.select(kept, body, build.whole(0, span), span)
    here = build.apply("==", (index, build.coord(place, span)), "bool", span)
    guard = build.conjunction((*conjuncts_of(expr.guard), here))
    return build.reduce("sum", (bound,), weights, guard, "real", span)


def _is_pair_read(expr: ir.Expr, key: Coordinate) -> bool:
    return isinstance(expr, ir.Read) and any(_is_pair(index, key) for index in expr.indices)


def _is_pair(index: ir.Expr, key: Coordinate) -> bool:
    """Whether a place varies with the key and something else."""
    return key in index.type.coordinates and len(index.type.coordinates) > 1
