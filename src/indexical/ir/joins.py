"""Sums under weights over several coordinates: `sum[y, x](w[i, y * X + x] * V[y, x])` is
`sum[p](w[i, p] * V[p / X, p % X])`, where `w` is normalised over all places `p`.

A softmax over `y` and `x` is one over their places in row-major order. Over the same places, a gather is an attention
like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..records import dataclass, replace
from ..source import Span
from . import build
from . import nodes as ir
from .affine import polynomial
from .graph import reached
from .types import Coordinate
from .walk import Inexpressible, at, fresh, rebuild, substitute, walk


def by_joined(program: ir.Program) -> ir.Program:
    """The program with such sums over places."""
    lets = program.definitions
    joined = {let.name for let in program.lets if let.hidden and _is_normalised(let)}
    if not joined:
        return program
    aliases: dict[str, ir.Let] = {}
    others: dict[str | None, list[str]] = {}
    for let in program.lets:
        others.setdefault(_read_alone(let), []).append(let.name)
    for name in reached(joined, lambda name: others.get(name, [])):
        aliases |= {} if name in joined else {name: lets[name]}
    search = _Search(lets, joined, aliases)
    changed = tuple(
        replace(let, clauses=tuple(replace(clause, body=search.rewritten(clause.body)) for clause in let.clauses))
        if let.name not in aliases and let.name not in joined
        else let
        for let in program.lets
    )
    return program if changed == program.lets else replace(program, lets=changed)


def _is_normalised(let: ir.Let) -> bool:
    """Whether a definition is a normaliser over its last axis."""
    clause = let.clauses[0]
    if len(let.clauses) > 1 or not clause.slots or not isinstance(clause.body, ir.Normalize):
        return False
    return clause.guard is None and clause.slots[-1] == build.coord(clause.body.coordinate, clause.span)


def _read_alone(let: ir.Let) -> str | None:
    """The tensor that a definition only reads; None where it does more."""
    clause = let.clauses[0]
    alone = len(let.clauses) == 1 and clause.guard is None
    return clause.body.tensor if alone and isinstance(clause.body, ir.Read) else None


@dataclass(frozen=True, slots=True)
class _Search:
    lets: Mapping[str, ir.Let]
    joined: set[str]
    aliases: Mapping[str, ir.Let]

    def rewritten(self, expr: ir.Expr) -> ir.Expr:
        if not any(isinstance(part, ir.Read) and part.tensor in (*self.joined, *self.aliases) for part in walk(expr)):
            return expr
        expr = rebuild(expr, self.rewritten)
        if isinstance(expr, ir.Reduce) and expr.op == "sum" and len(expr.ranges) > 1:
            return self.total(expr)
        return expr

    def total(self, expr: ir.Reduce) -> ir.Expr:
        """A sum over places, where weights are read at those of some of its coordinates; else as it is."""
        opened = self.opened(expr.body)
        for part in walk(opened):
            if isinstance(part, ir.Read) and part.tensor in self.joined:
                found = self.moved(expr, opened, part)
                if found is not None:
                    return found
        return expr

    def opened(self, expr: ir.Expr) -> ir.Expr:
        """The expression with the weights themselves in place of other names for them."""
        if isinstance(expr, ir.Read) and expr.tensor in self.aliases:
            clause = self.aliases[expr.tensor].clauses[0]
            found = at(clause, clause.body, expr.indices)
            return expr if found is None else self.opened(found)
        return rebuild(expr, self.opened)

    def moved(self, expr: ir.Reduce, body: ir.Expr, weights: ir.Read) -> ir.Expr | None:
        index, span = weights.indices[-1], expr.span
        inside = [range for range in expr.ranges if range.coordinate in index.type.coordinates]
        if len(inside) < 2 or not all(range.is_counted for range in inside):
            return None
        extent = self.lets[weights.tensor].axes[-1].extent
        if not _is_place(index, inside, extent):
            return None
        taken = {c.name for part in walk(expr) for c in part.type.coordinates}
        taken |= {range.coordinate.name for range in expr.ranges}
        coordinate = fresh(Coordinate("".join(range.coordinate.name for range in inside)), taken)
        here = build.coord(coordinate, span)
        there = digits(here, inside)

        def changed(part: ir.Expr) -> ir.Expr:
            if isinstance(part, ir.Read) and part.tensor == weights.tensor and part.indices[-1] == index:
                rest = tuple(substitute(inner, there) for inner in part.indices[:-1])
                return build.read(part.tensor, (*rest, here), part.type.kind, part.span)
            return substitute(part, there) if not _reads(part, weights.tensor) else rebuild(part, changed)

        kept = tuple(range for range in expr.ranges if range not in inside)
        try:
            guard = None if expr.guard is None else changed(expr.guard)
            over = ir.Range(coordinate, build.whole(0, span), extent, False, span)
            return build.reduce("sum", (*kept, over), changed(body), guard, expr.type.kind, span)
        except Inexpressible:
            return None


def _is_place(index: ir.Expr, ranges: list[ir.Range], extent: ir.Expr) -> bool:
    """Whether an index is the place of a point among all points of some ranges, and an axis has no other places."""
    count = polynomial(ranges[0].upper)
    for range in ranges[1:]:
        count = count * polynomial(range.upper)
    return polynomial(index) == polynomial(row_major(ranges, index.span)) and polynomial(extent) == count


def normalised_together(clause: ir.Clause, lets: Mapping[str, ir.Let]) -> tuple[ir.Read, list[Coordinate]] | None:
    """The coordinates over which a clause that only reads weights of several is normalised; None for any other."""
    body = clause.body
    if not isinstance(body, ir.Read) or body.tensor not in lets or not body.indices:
        return None
    let = lets[body.tensor]
    ranges = [range for range in clause.ranges if range.coordinate in body.indices[-1].type.coordinates]
    if not let.hidden or not _is_normalised(let) or len(ranges) < 2:
        return None
    found = _is_place(body.indices[-1], ranges, let.axes[-1].extent)
    return (body, [range.coordinate for range in ranges]) if found else None


def _reads(expr: ir.Expr, tensor: str) -> bool:
    return any(isinstance(part, ir.Read) and part.tensor == tensor for part in walk(expr))


def row_major(ranges: Sequence[ir.Range], span: Span) -> ir.Expr:
    """The place of a point among all points of some ranges from 0, the last running fastest."""
    place: ir.Expr = build.coord(ranges[0].coordinate, span)
    for range in ranges[1:]:
        place = build.apply("*", (place, range.upper), "whole", span)
        place = build.apply("+", (place, build.coord(range.coordinate, span)), "whole", span)
    return place


def digits(place: ir.Expr, ranges: Sequence[ir.Range]) -> dict[Coordinate, ir.Expr]:
    """The coordinates at a place in row-major order."""
    result: dict[Coordinate, ir.Expr] = {}
    for range in reversed(ranges[1:]):
        result[range.coordinate] = build.apply("%", (place, range.upper), "whole", range.span)
        place = build.apply("//", (place, range.upper), "whole", range.span)
    result[ranges[0].coordinate] = place
    return result
