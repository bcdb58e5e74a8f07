"""The points of a definition that count: the conditions on them without which it is not computed, or nothing reads it.

A guard on the queries of an attention, `where ask[b, i]`, stands around it: `if ask[b, i] { attended[b, i] } else {0}`.
A kernel that takes it into its own guard computes nothing for other queries, and nothing flows back from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of, fails
from ..ir.context import Agreement, Trail, visit_clause
from ..ir.types import Coordinate
from ..ir.walk import is_bare, substitute, walk
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """The `conditions` that hold wherever a definition counts, in its own coordinates; and whether there are `others`
    around some read of it, so that it is computed at points that count for nothing."""

    conditions: tuple[ir.Expr, ...]
    others: bool


def asked_of(let: ir.Let, program: ir.Program, wanted: bool, within: frozenset[Coordinate]) -> Asked:
    """Where a definition counts, which may be `wanted` itself. Conditions are taken that vary with some coordinates of
    those `within` it and with nothing else, and that can be asked ahead of it, at every point."""
    guard = [one for clause in let.clauses for one in conjuncts_of(clause.guard)]
    found = [[*guard, *_around(read, trail, let)] for read, trail in _reads(let.name, program)]
    found += [[*guard]] if wanted or not found else []
    taken = [{one for one in around if one is not None and _fits(one, let, program, within)} for around in found]
    shared = taken[0].intersection(*taken[1:])
    others = any(one not in shared for around in found for one in around)
    return Asked(tuple(one for one in dict.fromkeys(found[0]) if one in shared), others)


def _reads(name: str, program: ir.Program) -> Iterator[tuple[ir.Read, Trail]]:
    for let in program.lets:
        for clause in let.clauses:
            for expr, trail in visit_clause(clause):
                if isinstance(expr, ir.Read) and expr.tensor == name:
                    yield expr, trail


def _around(read: ir.Read, trail: Trail, let: ir.Let) -> Iterator[ir.Expr | None]:
    """The conditions around a read, in the coordinates of what is read; None for one that has others."""
    own: dict[Coordinate, ir.Expr] = {}
    for index, axis in zip(read.indices, let.axes, strict=True):
        if isinstance(index, ir.Coord):
            own.setdefault(index.coordinate, build.coord(axis.coordinate, index.span))
    for step in trail:
        if not isinstance(step, ir.Range):
            for one in conjuncts_of(step[0]) if step[1] else [fails(step[0])]:
                yield substitute(one, own) if one.type.coordinates <= own.keys() else None


def _fits(condition: ir.Expr, let: ir.Let, program: ir.Program, within: frozenset[Coordinate]) -> bool:
    """Whether a condition can be asked ahead of a definition, at every point of it: nothing that it reads is computed
    later, or has fewer points."""
    coordinates = condition.type.coordinates
    if not coordinates or not coordinates <= within or not is_bare(condition):
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
