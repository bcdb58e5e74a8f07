"""Derived definitions as one would leave them: no copies, no numbers on names that are free."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh, rebuild, substitute, walk
from ..records import replace


def without_copies(lets: Iterable[ir.Let], kept: Iterable[str]) -> list[ir.Let]:
    """The definitions without those that only repeat another, read as what they repeat. Those in `kept` stay."""
    lets, names = list(lets), set(kept)
    # In a recurrence a definition may be read before it is listed: all copies are found first.
    known = {let.name: let for let in lets if let.name not in names and _is_copy(let)}
    return [
        replace(let, clauses=tuple(_without(clause, known) for clause in let.clauses))
        for let in lets
        if let.name not in known
    ]


def _is_copy(let: ir.Let) -> bool:
    if len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return False
    clause = let.clauses[0]
    body = clause.body
    return (
        isinstance(body, ir.Read)
        and body.tensor != let.name
        and all(isinstance(index, ir.Coord) for index in body.indices)
        and all(not range.stated for range in clause.ranges)
    )


def _without(clause: ir.Clause, known: dict[str, ir.Let]) -> ir.Clause:
    """The clause with reads of plain copies replaced by what they copy."""
    if not known:
        return clause

    def changed(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, changed)
        if not isinstance(expr, ir.Read) or expr.tensor not in known:
            return expr
        copy = known[expr.tensor].clauses[0]
        places = {
            slot.coordinate: index
            for slot, index in zip(copy.slots, expr.indices, strict=True)
            if isinstance(slot, ir.Coord)
        }
        return changed(substitute(copy.body, places))

    guard = None if clause.guard is None else changed(clause.guard)
    return replace(clause, body=changed(clause.body), guard=guard)


# ------------------------------------------------------------------------- names


def with_plain_names(let: ir.Let) -> ir.Let:
    """The definition with every bound coordinate under the plainest name that is free: `j`, else `j_1`, `j_2`, …"""
    clauses = []
    for clause in let.clauses:
        scope, sized = {range.coordinate.name for range in clause.ranges}, _sized(clause)
        guard = None if clause.guard is None else _plain(clause.guard, scope, sized)
        clauses.append(replace(clause, body=_plain(clause.body, scope, sized), guard=guard))
    return replace(let, clauses=tuple(clauses))


def _sized(clause: ir.Clause) -> set[str]:
    """The coordinates of which sizes are read: `size(d)` means the `d` in scope."""
    exprs = [clause.body, *(() if clause.guard is None else (clause.guard,))]
    return {part.coordinate.name for expr in exprs for part in walk(expr) if isinstance(part, ir.Size)}


def _plain(expr: ir.Expr, scope: set[str], sized: set[str]) -> ir.Expr:
    """The expression with summed coordinates named without a number (`j_1` as `j`) where that name is free."""
    if not isinstance(expr, ir.Reduce):
        return rebuild(expr, lambda child: _plain(child, scope, sized))
    parts = [part for inner in (expr.body, *(() if expr.guard is None else (expr.guard,))) for part in walk(inner)]
    inside = {r.coordinate.name for part in parts if isinstance(part, ir.Reduce) for r in part.ranges}
    taken = scope | {c.name for c in expr.type.coordinates}
    values: dict[Coordinate, ir.Expr] = {}
    ranges = []
    for range in expr.ranges:
        old = range.coordinate
        plain = without_number(old.name)
        new = old
        if plain != old.name:
            free = (
                taken
                | (sized - {_own_size(range)})
                | inside
                | {r.coordinate.name for r in expr.ranges if r is not range}
            )
            new = fresh(Coordinate(plain, old.rest, old.space), free)
        taken.add(new.name)
        lower, upper = (substitute(_plain(bound, scope, sized), values) for bound in (range.lower, range.upper))
        values[old] = build.coord(new, range.span)
        ranges.append(ir.Range(new, lower, upper, range.stated, range.span))
    guard = None if expr.guard is None else _plain(substitute(expr.guard, values), taken, sized)
    body = _plain(substitute(expr.body, values), taken, sized)
    return build.reduce(expr.op, tuple(ranges), body, guard, expr.type.kind, expr.span)


def without_number(name: str) -> str:
    """`j_1` as `j`."""
    return re.sub(r"(_\d+)+$", "", name)


def _own_size(range: ir.Range) -> str:
    """The name whose size the range has: a coordinate of that name may have it."""
    return range.upper.coordinate.name if range.from_zero and isinstance(range.upper, ir.Size) else ""
