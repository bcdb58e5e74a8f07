"""Absence in derivatives: a point that is absent has cotangent 0, and its value is not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from ..checker.absence import is_sensitive
from ..ir import build
from ..ir import nodes as ir
from ..ir.context import Trail, assume, bound_by, visit
from ..ir.functions import operation
from ..ir.prove import Assumptions, conjuncts, no_definitions
from ..ir.removal import removal, removal_through
from ..ir.types import Coordinate
from ..ir.walk import at, rebuild
from ..records import replace

Lets: TypeAlias = Mapping[str, ir.Let]


def presence(read: ir.Read, lets: Lets) -> ir.Expr | None:
    """The condition under which a guarded definition is present at the indices of a read; None where it always is."""
    let = lets.get(read.tensor)
    if let is None or len(let.clauses) != 1 or let.clauses[0].guard is None:
        return None
    return at(let.clauses[0], let.clauses[0].guard, read.indices)


def needed_presence(factor: ir.Expr, cofactor: Iterable[ir.Expr], trail: Trail, lets: Lets) -> ir.Expr | None:
    """The condition under which a factor is present, if its cofactor can only be read there: elsewhere an index
    of it may leave its axis. None where nothing has to be said."""
    gone = removal(factor, removal_through(lets))
    if gone is None:
        return None
    parts = (place for part in cofactor for place in visit(part, trail))
    moved = {c for part, inner in parts if isinstance(part, ir.Read) for c in _moved(part, inner)}
    return build.conjunction(conjuncts(gone, False, no_definitions)) if moved & gone.type.coordinates else None


def _moved(read: ir.Read, trail: Trail) -> Iterator[Coordinate]:
    """The coordinates of a read that do not run over just the points of the axis that they index."""
    for index in read.indices:
        if not isinstance(index, ir.Coord) or bound_by(index.coordinate, trail).stated:
            yield from index.type.coordinates


def looked_after(let: ir.Let, lets: Lets) -> ir.Let:
    """A derived definition that reads no absent value as an operand: where it would be absent, 0 is written out.

    A slope looks at values that the function itself only adds up: `relu` is 0 at 0, and its slope compares.
    """
    clauses = []
    for clause in let.clauses:
        known = assume(clause.ranges, lets)
        if clause.guard is not None:
            known = known.assuming(clause.guard)
        clauses.append(replace(clause, body=_looked_after(clause.body, known, lets, False)))
    return replace(let, clauses=tuple(clauses))


def _asks(op: str, number: int, arguments: tuple[ir.Expr, ...], sensitive: bool) -> bool:
    """Whether 0 is written in place of what is absent. Where the function has no value at 0 either, it is not."""
    looks = is_sensitive(op, number, arguments)
    return sensitive and not looks if number in operation(op).undefined else sensitive or looks


def _looked_after(expr: ir.Expr, known: Assumptions, lets: Lets, sensitive: bool) -> ir.Expr:
    """The expression with 0 in place of reads of points that may not be there, wherever their values would be looked
    at."""
    match expr:
        case ir.Read() if sensitive:
            there = presence(expr, lets)
            if there is None or known.proves(there):
                return expr
            return build.select(there, expr, build.whole(0, expr.span), expr.span)
        case ir.Map(op, arguments, type, span):
            changed = []
            for number, argument in enumerate(arguments):
                inner = known
                if number == 1 and op in ("&&", "||"):
                    inner = known.assuming(arguments[0], op == "&&")
                asks = _asks(op, number, arguments, sensitive)
                changed.append(_looked_after(argument, inner, lets, asks))
            return build.apply(op, tuple(changed), type.kind, span)
        case ir.Select(condition, then, otherwise, span=span):
            return build.select(
                _looked_after(condition, known, lets, sensitive),
                _looked_after(then, known.assuming(condition), lets, sensitive),
                _looked_after(otherwise, known.assuming(condition, False), lets, sensitive),
                span,
            )
        case ir.Reduce(op, ranges, body, guard, type, span):
            for range in ranges:
                known = known.within(range)
            if guard is not None:
                guard = _looked_after(guard, known, lets, False)
                known = known.assuming(guard)
            return build.reduce(op, ranges, _looked_after(body, known, lets, False), guard, type.kind, span)
        case ir.Read():
            return rebuild(expr, lambda child: _looked_after(child, known, lets, True))
        case _:
            return expr
