"""Queries that count: a guard on the queries of an attention alone, taken into the guard of its kernel.

`where ask[b, i]` stands around an attention as `if ask[b, i] { attended[b, i] } else { 0 }`. A kernel that has it in
its own guard computes nothing for other queries, and nothing flows back from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from operator import is_

from ....ir import build
from ....ir import nodes as ir
from ....ir.conditions import conjuncts_of, fails
from ....ir.context import Agreement, Trail, visit_clause
from ....ir.types import Coordinate
from ....ir.walk import is_bare, reads_of, rebuild, substitute, walk
from ....plan.steps import Attention, Recognized
from ....records import replace
from .placement import restated
from .scores import lay_out


def is_asked(let: ir.Let, attention: Attention, program: ir.Program) -> bool:
    """Whether all queries of an attention count that its guard leaves: no other condition stands around it."""
    around = [condition for read, trail in _reads(let.name, program) for condition in _around(read, trail, let)]
    return {*_own_guard(let), *around} <= set(attention.guard)


def _asked(let: ir.Let, program: ir.Program, wanted: bool, within: frozenset[Coordinate]) -> list[ir.Expr]:
    """The conditions that hold wherever a definition counts, which may be `wanted` itself, in its own coordinates:
    those that vary with coordinates `within` it alone, and that can be asked ahead of it, at every point."""
    guard = _own_guard(let)
    found = [[*guard, *_around(read, trail, let)] for read, trail in _reads(let.name, program)]
    found += [[*guard]] if wanted or not found else []
    shared = [one for one in dict.fromkeys(found[0]) if all(one in each for each in found)]
    return [one for one in shared if one is not None and _fits(one, let, program, within)]


def is_of(condition: ir.Expr, within: frozenset[Coordinate]) -> bool:
    """Whether a condition varies with some of these coordinates and with nothing else, and never reads out of bounds
    of what they index."""
    coordinates = condition.type.coordinates
    return bool(coordinates) and coordinates <= within and is_bare(condition)


def _own_guard(let: ir.Let) -> list[ir.Expr]:
    return [one for clause in let.clauses for one in conjuncts_of(clause.guard)]


def _reads(name: str, program: ir.Program) -> Iterator[tuple[ir.Read, Trail]]:
    for let in program.lets:
        if all(read.tensor != name for read in reads_of(let)):
            continue
        for clause in let.clauses:
            for expr, trail in visit_clause(clause):
                if isinstance(expr, ir.Read) and expr.tensor == name:
                    yield expr, trail


def _around(read: ir.Read, trail: Trail, let: ir.Let) -> Iterator[ir.Expr | None]:
    """The conditions around a read, in the coordinates of what is read; None for one that has others."""
    own = _own(read, let)
    for step in trail:
        if not isinstance(step, ir.Range):
            for one in conjuncts_of(step[0]) if step[1] else [fails(step[0])]:
                yield substitute(one, own) if one.type.coordinates <= own.keys() else None


def _own(read: ir.Read, let: ir.Let) -> dict[Coordinate, ir.Expr]:
    """The coordinates at which a definition is read, as its own."""
    found: dict[Coordinate, ir.Expr] = {}
    for index, axis in zip(read.indices, let.axes, strict=True):
        if isinstance(index, ir.Coord):
            found.setdefault(index.coordinate, build.coord(axis.coordinate, index.span))
    return found


def _fits(condition: ir.Expr, let: ir.Let, program: ir.Program, within: frozenset[Coordinate]) -> bool:
    """Whether a condition can be asked ahead of a definition, at every point of it: nothing that it reads is computed
    later, or has fewer points."""
    if not is_of(condition, within):
        return False
    lengths = {axis.coordinate: axis.extent for axis in let.axes}
    ahead: dict[str, ir.Input | ir.Let] = {tensor.name: tensor for tensor in program.inputs}
    ahead |= {other.name: other for other in takewhile(lambda other: other.name != let.name, program.lets)}
    same = Agreement(program)
    return all(
        part.tensor in ahead
        and all(
            isinstance(index, ir.Coord) and same.holds(axis.extent, lengths[index.coordinate])
            for index, axis in zip(part.indices, ahead[part.tensor].axes, strict=True)
        )
        for part in walk(condition)
        if isinstance(part, ir.Read)
    )


# ----------------------------------------------------------------------------------- in a program


def take_in(
    found: Recognized, wanted: tuple[str, ...], takes: Callable[[ir.Let, Attention, Attention], bool]
) -> Recognized:
    """The program with guards on queries in the attentions that they stand around, of those whose kernel `takes` the
    attention with them in place of the one without."""
    for name, attention in found.attentions.items():
        let = found.program.definitions[name]
        layout = lay_out(attention, tuple(axis.coordinate for axis in let.axes))
        asked = _asked(let, found.program, name in wanted, frozenset((*layout.batch, *layout.rows)))
        fewer = replace(attention, guard=(*attention.guard, *asked))
        if asked and attention.empty == "zero" and not attention.total and takes(let, attention, fewer):
            found = _with(found, let, fewer, set(asked))
    return found


def _with(found: Recognized, let: ir.Let, attention: Attention, asked: set[ir.Expr]) -> Recognized:
    """The program with an attention in place of one of more queries: nothing need be asked around it any more. A
    definition that only reads it is it."""
    own = restated(let, attention)
    guard = build.conjunction(one for one in _own_guard(let) if one not in asked)
    own = replace(own, clauses=(replace(own.clauses[0], guard=guard),))
    lets = {other.name: _unasked(other, own, asked) for other in found.program.lets} | {let.name: own}
    name, taken = let.name, found.program.recurrent | found.attentions.keys()
    readers = [other for other in lets.values() if any(read.tensor == name for read in reads_of(other))]
    if let.hidden and len(readers) == 1 and readers[0].name not in taken and _is_copy(readers[0], own):
        (reader,) = readers
        name = reader.name
        lets[name] = replace(reader, clauses=(replace(reader.clauses[0], body=own.clauses[0].body),))
    attentions = {name if other == let.name else other: one for other, one in found.attentions.items()}
    program = replace(found.program, lets=tuple(lets.values()))
    return replace(found, program=program, attentions={**attentions, name: attention})


def _unasked(let: ir.Let, read: ir.Let, asked: set[ir.Expr]) -> ir.Let:
    """A definition that reads another one as it is where that is 0 in any case: `if ask[i] { x[i] } else { 0 }`."""

    def is_asked(condition: ir.Expr | None, expr: ir.Expr) -> bool:
        if not isinstance(expr, ir.Read) or expr.tensor != read.name:
            return False
        own = _own(expr, read)
        return {substitute(one, own) for one in conjuncts_of(condition)} <= asked

    def changed(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Select(condition, then, ir.Const(value=0)) if is_asked(condition, then):
                return then
        return rebuild(expr, changed)

    clauses = []
    for clause in let.clauses:
        guard = None if is_asked(clause.guard, clause.body) else clause.guard
        body = changed(clause.body)
        same = guard is clause.guard and body is clause.body
        clauses.append(clause if same else replace(clause, body=body, guard=guard))
    return let if all(map(is_, clauses, let.clauses)) else replace(let, clauses=tuple(clauses))


def _is_copy(let: ir.Let, read: ir.Let) -> bool:
    """Whether a definition is another one, in its coordinates."""
    clause = let.clauses[0]
    if len(let.clauses) > 1 or clause.guard is not None or read.clauses[0].guard is not None:
        return False
    own = build.read(read.name, tuple(build.coord(axis.coordinate, let.span) for axis in read.axes), "real", let.span)
    return clause.body == own and sorted(let.axes, key=_name) == sorted(read.axes, key=_name)


def _name(axis: ir.Axis) -> str:
    return axis.coordinate.name
