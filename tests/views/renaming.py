"""Programs whose coordinates are called anything: like those of inputs, like tensors, like words of the language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.types import Coordinate
from indexical.ir.walk import rebuild
from indexical.views.arrangement import ranges_in


def renamed(program: ir.Program, seed: int) -> ir.Program:
    """The same program; in every clause each coordinate has another name, drawn at random."""
    random = Random(seed)
    names = {axis.coordinate.name for tensor in program.inputs for axis in tensor.axes}
    names |= {range.coordinate.name for let in program.lets for c in let.clauses for range in ranges_in(c)}
    names |= {"d_1", "i_1", "sum", *program.tensors}
    lets = []
    for let in program.lets:
        drawn = [_drawn(clause, sorted(names), random) for clause in let.clauses]
        clauses = tuple(_clause(clause, new) for clause, new in zip(let.clauses, drawn, strict=True))
        axes = tuple(ir.Axis(drawn[0].get(axis.coordinate, axis.coordinate), axis.extent) for axis in let.axes)
        lets.append(replace(let, axes=axes, clauses=clauses))
    return replace(program, lets=tuple(lets), contracts=())


def _drawn(clause: ir.Clause, names: list[str], random: Random) -> dict[Coordinate, Coordinate]:
    own = sorted({range.coordinate for range in ranges_in(clause) if not range.coordinate.rest})
    pool = [*random.sample(names, len(names)), *(f"z{number}" for number, _ in enumerate(own))]
    return {old: Coordinate(name, False, old.space) for old, name in zip(own, pool, strict=False)}


def _clause(clause: ir.Clause, new: Mapping[Coordinate, Coordinate]) -> ir.Clause:
    return replace(
        clause,
        slots=tuple(_expression(slot, new) for slot in clause.slots),
        ranges=tuple(_range(range, new) for range in clause.ranges),
        body=_expression(clause.body, new),
        guard=clause.guard and _expression(clause.guard, new),
    )


def _range(range: ir.Range, new: Mapping[Coordinate, Coordinate]) -> ir.Range:
    coordinate = new.get(range.coordinate, range.coordinate)
    return replace(
        range, coordinate=coordinate, lower=_expression(range.lower, new), upper=_expression(range.upper, new)
    )


def _expression(expr: ir.Expr, new: Mapping[Coordinate, Coordinate]) -> ir.Expr:
    match expr:
        case ir.Coord(coordinate):
            return build.coord(new.get(coordinate, coordinate), expr.span)
        case ir.Reduce(op, ranges, body, guard, type, span):
            inner = tuple(_range(range, new) for range in ranges)
            return build.reduce(op, inner, _expression(body, new), guard and _expression(guard, new), type.kind, span)
        case ir.Normalize(op, coordinate, body, guard, type, span):
            over = new.get(coordinate, coordinate)
            return build.normalize(op, over, _expression(body, new), guard and _expression(guard, new), type.kind, span)
        case _:
            return rebuild(expr, lambda child: _expression(child, new))
