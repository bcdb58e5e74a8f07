"""Verification that a program is well formed. The checker builds no other, and every transform keeps it so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from .nodes import Array, Const, Coord, Expr, Map, Normalize, Once, Order, Program, Range, Read, Reduce, Select, Size
from .types import Coordinate
from .walk import children, rebuild


def verify(program: Program) -> list[str]:
    """Everything that is wrong with a Program; nothing, for one that is well formed."""
    return list(_faults(program))


def _faults(program: Program) -> Iterator[str]:
    tensors = program.tensors
    if len(tensors) != len(program.inputs) + len(program.lets):
        yield "two tensors share a name"
    sizes = {axis.coordinate for tensor in program.inputs for axis in tensor.axes}
    for name, tensor in tensors.items():
        for axis in tensor.axes:
            yield from _expression(axis.extent, frozenset(), program, sizes, f"an extent of {name}")
    for let in program.lets:
        for clause in let.clauses:
            where = f"a clause of {let.name}"
            if len(clause.slots) != len(let.axes):
                yield f"{where} has {len(clause.slots)} slots for {len(let.axes)} axes"
            bound: frozenset[Coordinate] = frozenset()
            for range in clause.ranges:
                yield from _range(range, frozenset(), bound, program, sizes, where)
                bound |= {range.coordinate}
            slots = {slot.coordinate for slot in clause.slots if isinstance(slot, Coord)}
            if slots != bound:
                yield f"{where} binds other coordinates than its slots show"
            for expr in (clause.body, *(() if clause.guard is None else (clause.guard,))):
                yield from _expression(expr, bound, program, sizes, where)
            if clause.guard is not None and clause.guard.type.kind != "bool":
                yield f"the guard of {where} is not Boolean"
            if let.kind != clause.body.type.kind and (let.kind, clause.body.type.kind) != ("real", "whole"):
                yield f"{where} is {clause.body.type.kind}, not {let.kind}"
    for claim in program.asserts:
        yield from _expression(claim.condition, frozenset(), program, sizes, "an assertion")
    yield from _order(program)


def _range(
    range: Range,
    outer: frozenset[Coordinate],
    bound: frozenset[Coordinate],
    program: Program,
    sizes: set[Coordinate],
    where: str,
) -> Iterator[str]:
    if range.coordinate in outer | bound:
        yield f"`{range.coordinate}` is bound twice in {where}"
    for limit in (range.lower, range.upper):
        if limit.type.kind != "whole":
            yield f"a bound of `{range.coordinate}` in {where} is not whole"
        yield from _expression(limit, outer, program, sizes, where)


def _expression(
    expr: Expr, bound: frozenset[Coordinate], program: Program, sizes: set[Coordinate], where: str
) -> Iterator[str]:
    if expr.type.coordinates - bound:
        free = ", ".join(map(str, expr.type.coordinates - bound))
        yield f"`{free}` is free in {where}"
    if rebuild(expr, lambda child: child).type.coordinates != expr.type.coordinates:
        yield f"a {type(expr).__name__} in {where} says it varies over other coordinates than it does"
    match expr:
        case Const() | Coord():
            return
        case Size(coordinate):
            if coordinate not in sizes:
                yield f"{where} asks for the size of `{coordinate}`, which no input has"
        case Read(tensor, indices):
            known = program.tensors.get(tensor)
            if known is None or len(known.axes) != len(indices) or known.kind != expr.type.kind:
                yield f"{where} reads `{tensor}` as what it is not"
            if any(index.type.kind != "whole" for index in indices):
                yield f"{where} reads `{tensor}` at an index that is not whole"
        case Array(shape=shape, indices=indices):
            if len(shape) != len(indices):
                yield f"an array in {where} has {len(shape)} axes and {len(indices)} indices"
        case Map() | Select():
            pass
        case Reduce(_, ranges, body, guard):
            inner = bound
            for range in ranges:
                yield from _range(range, inner, frozenset(), program, sizes, where)
                inner |= {range.coordinate}
            for part in (body, *(() if guard is None else (guard,))):
                yield from _expression(part, inner, program, sizes, where)
            return
        case Normalize(_, coordinate):
            if coordinate not in bound:
                yield f"{where} normalises over `{coordinate}`, which does not survive"
        case _:
            assert_never(expr)
    for child in children(expr):
        yield from _expression(child, bound, program, sizes, where)


def _order(program: Program) -> Iterator[str]:
    """Every definition once."""
    names = [name for order in program.order for name in _names(order)]
    if sorted(names) != sorted(let.name for let in program.lets):
        yield "the order does not have every definition once"


def _names(order: Order) -> list[str]:
    if isinstance(order, Once):
        return [order.name]
    return [name for inner in order.body for name in _names(inner)]
