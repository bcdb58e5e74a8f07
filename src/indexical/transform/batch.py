"""One more coordinate in front of some inputs, and of all that depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh, reads_of, rebuild, renamed_apart, renamed_clause, walk
from ..source import Span

T = TypeVar("T")


class Unbatchable(Exception):
    """A program that has no meaning for a batch of these inputs, and why."""


def batched(program: ir.Program, name: str, inputs: Sequence[str]) -> ir.Program:
    """The program for every point of the coordinate `name`, along which these inputs vary and others do not.

    It leads every bracket that it joins, after a `..r`. `order` is left to the checker.
    """
    coordinate = Coordinate(name)
    if any(axis.coordinate.name == name for tensor in program.inputs for axis in tensor.axes):
        raise Unbatchable(f"an input has a coordinate `{name}` already")
    varying = _varying(program, inputs)
    _check_extents(program, varying)
    lets = tuple(_let(let, coordinate, varying) for let in program.lets)
    new = [_input(tensor, coordinate) if tensor.name in inputs else tensor for tensor in program.inputs]
    asserts = tuple(_assert(claim, coordinate, varying) for claim in program.asserts)
    contracts = tuple(_contract(contract, name, varying) for contract in program.contracts)
    return replace(program, inputs=tuple(new), lets=lets, asserts=asserts, contracts=contracts, expects=(), order=())


def _varying(program: ir.Program, inputs: Sequence[str]) -> frozenset[str]:
    """The tensors that vary with the inputs, through definitions, guards and indices too."""
    found = set(inputs)
    reads = {let.name: {read.tensor for read in reads_of(let)} for let in program.lets}
    while True:
        more = {name for name, read in reads.items() if read & found} - found
        if not more:
            return frozenset(found)
        found |= more


def _check_extents(program: ir.Program, varying: frozenset[str]) -> None:
    """Refuse a range that is not the same for all of a batch."""
    for let in program.lets:
        ranges = [range for clause in let.clauses for range in clause.ranges]
        for expr in (part for clause in let.clauses for part in walk(clause.body)):
            ranges += expr.ranges if isinstance(expr, ir.Reduce) else ()
        for bound in (bound for range in ranges for bound in (range.lower, range.upper)):
            for part in walk(bound):
                if isinstance(part, ir.Read) and part.tensor in varying:
                    raise Unbatchable(f"`{part.tensor}` says how far a coordinate of `{let.name}` runs")


def _input(tensor: ir.Input, coordinate: Coordinate) -> ir.Input:
    axis = ir.Axis(coordinate, build.size(coordinate, tensor.span))
    return replace(tensor, axes=_joined(tensor.axes, axis, _leads(tensor.axes)))


def _leads(axes: tuple[ir.Axis, ...]) -> int:
    """The place at which a coordinate joins a bracket: in front, but after `..r`."""
    return 1 if axes and axes[0].coordinate.rest else 0


def _joined(items: tuple[T, ...], item: T, place: int) -> tuple[T, ...]:
    return (*items[:place], item, *items[place:])


def _let(let: ir.Let, coordinate: Coordinate, varying: frozenset[str]) -> ir.Let:
    if let.name not in varying:
        return let
    place = _leads(let.axes)
    taken = {coordinate.name, *(axis.coordinate.name for axis in let.axes)}
    axes = tuple(
        replace(axis, coordinate=fresh(axis.coordinate, taken)) if axis.coordinate.name == coordinate.name else axis
        for axis in let.axes
    )
    axis = ir.Axis(coordinate, build.size(coordinate, let.span))
    clauses = tuple(_clause(clause, coordinate, varying, place) for clause in let.clauses)
    captured = let.captured + 1 if let.captured else 0
    return replace(let, axes=_joined(axes, axis, place), clauses=clauses, captured=captured)


def _clause(clause: ir.Clause, coordinate: Coordinate, varying: frozenset[str], place: int) -> ir.Clause:
    apart = renamed_clause(clause, {coordinate.name})
    span = clause.span
    range = ir.Range(coordinate, build.whole(0, span), build.size(coordinate, span), False, span)
    return ir.Clause(
        _joined(apart.slots, build.coord(coordinate, span), place),
        _joined(apart.ranges, range, place),
        _read(apart.body, coordinate, varying),
        None if apart.guard is None else _read(apart.guard, coordinate, varying),
        span,
    )


def _read(expr: ir.Expr, coordinate: Coordinate, varying: frozenset[str]) -> ir.Expr:
    """The expression with what varies read at the coordinate too."""
    changed = rebuild(expr, lambda child: _read(child, coordinate, varying))
    if isinstance(changed, ir.Read) and changed.tensor in varying:
        first = changed.indices[:1]
        place = 1 if first and isinstance(first[0], ir.Coord) and first[0].coordinate.rest else 0
        indices = _joined(changed.indices, build.coord(coordinate, changed.span), place)
        return build.read(changed.tensor, indices, changed.type.kind, changed.span)
    return changed


def _assert(claim: ir.Assert, coordinate: Coordinate, varying: frozenset[str]) -> ir.Assert:
    """The claims of one, made of all."""
    condition = _read(renamed_apart(claim.condition, {coordinate.name}), coordinate, varying)
    if coordinate not in condition.type.coordinates:
        return claim
    span: Span = claim.span
    range = ir.Range(coordinate, build.whole(0, span), build.size(coordinate, span), False, span)
    return replace(claim, condition=build.reduce("all", (range,), condition, None, "bool", span))


def _contract(contract: ir.Contract, name: str, varying: frozenset[str]) -> ir.Contract:
    if contract.name not in varying:
        return contract
    return replace(contract, roles=(*contract.roles, ("batch", name)))
