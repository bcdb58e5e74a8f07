"""A Program made ready to be written: only what is needed, in the order of reading, each definition a whole box."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.walk import parts_of, reads_of, rebuild, walk
from .inference import is_zero


def arranged(program: ir.Program) -> ir.Program:
    """The same Program, without what only its expectations need and without these."""
    program = _needed(program)
    program = replace(program, lets=tuple(_from_zero(let) for let in program.lets), order=())
    return replace(_rests_first(program), lets=tuple(_in_order(_rests_first(program))))


def ranges_in(let: ir.Let) -> Iterator[ir.Range]:
    """Every range that a definition binds."""
    for clause in let.clauses:
        yield from clause.ranges
    for part in parts_of(let):
        for node in walk(part):
            if isinstance(node, ir.Reduce):
                yield from node.ranges


# ----------------------------------------------------------------- what is needed


def _needed(program: ir.Program) -> ir.Program:
    """What stands in the text stays, unless expectations alone read it; what was brought along only if it is read."""
    lets = {let.name: let for let in program.lets}
    contracts = tuple(contract for contract in program.contracts if contract.name in lets)
    claims = [name for claim in program.asserts for name in _read_in(claim.condition)]
    wanted = _closure([*program.outputs, *(contract.name for contract in contracts), *claims], lets)
    expected = _closure([name for expect in program.expects for name in _read_in(expect.body)], lets)
    idle = [name for name, let in lets.items() if not let.hidden and name not in expected]
    kept = wanted | _closure(idle, lets)
    return replace(
        program,
        lets=tuple(let for let in program.lets if let.name in kept),
        contracts=contracts,
        expects=(),
    )


def _closure(names: Iterable[str], lets: dict[str, ir.Let]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in lets and name not in found:
            found.add(name)
            waiting += [read.tensor for read in reads_of(lets[name])]
    return found


def _read_in(expr: ir.Expr) -> list[str]:
    return [part.tensor for part in walk(expr) if isinstance(part, ir.Read)]


# ------------------------------------------------------------------ a whole box


def _from_zero(let: ir.Let) -> ir.Let:
    """A captured coordinate that starts later starts at 0, and the points before are absent: nobody reads them."""
    if not let.captured:
        return let
    return replace(let, captured=0, clauses=tuple(_clause_from_zero(clause, let.captured) for clause in let.clauses))


def _clause_from_zero(clause: ir.Clause, captured: int) -> ir.Clause:
    leading = {slot.coordinate for slot in clause.slots[:captured] if isinstance(slot, ir.Coord)}
    conditions: list[ir.Expr] = []
    ranges: list[ir.Range] = []
    for range in clause.ranges:
        if range.coordinate in leading and not is_zero(range.lower):
            here = build.coord(range.coordinate, range.span)
            conditions.append(build.apply(">=", (here, range.lower), "bool", range.span))
            range = replace(range, lower=build.whole(0, range.span), stated=True)
        ranges.append(range)
    guard = build.conjunction((*conditions, clause.guard))
    return replace(clause, ranges=tuple(ranges), guard=guard)


# ------------------------------------------------------------------ leading rests


def _rests_first(program: ir.Program) -> ir.Program:
    """`..r` leads its bracket: the axes of what was brought along are put in such an order."""
    orders = {let.name: _order(let) for let in program.lets if let.hidden}
    moved = {name: order for name, order in orders.items() if order != sorted(order)}
    if not moved:
        return program

    def change(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, change)
        if isinstance(expr, ir.Read) and expr.tensor in moved:
            return replace(expr, indices=tuple(expr.indices[at] for at in moved[expr.tensor]))
        return expr

    lets = []
    for let in program.lets:
        order = moved.get(let.name, list(range(len(let.axes))))
        clauses = tuple(
            replace(
                clause,
                slots=tuple(clause.slots[at] for at in order),
                body=change(clause.body),
                guard=clause.guard and change(clause.guard),
            )
            for clause in let.clauses
        )
        lets.append(replace(let, axes=tuple(let.axes[at] for at in order), clauses=clauses))
    asserts = tuple(replace(claim, condition=change(claim.condition)) for claim in program.asserts)
    return replace(program, lets=tuple(lets), asserts=asserts)


def _order(let: ir.Let) -> list[int]:
    return sorted(range(len(let.axes)), key=lambda at: not let.axes[at].coordinate.rest)


# -------------------------------------------------------------- order of reading


def _in_order(program: ir.Program) -> list[ir.Let]:
    """The definitions of the text as they stood; what was brought along just before what first reads it."""
    placed: dict[str, ir.Let] = {}

    def place(let: ir.Let, waiting: frozenset[str]) -> None:
        if let.name in placed or let.name in waiting:
            return
        wanted = {read.tensor for read in reads_of(let)}
        for other in program.lets:
            if other.hidden and other.name in wanted:
                place(other, waiting | {let.name})
        placed[let.name] = let

    for let in program.lets:
        if not let.hidden:
            place(let, frozenset())
    for let in program.lets:
        place(let, frozenset())
    return list(placed.values())
