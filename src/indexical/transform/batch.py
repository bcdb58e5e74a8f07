"""One more coordinate in front of some inputs, and of all that depends on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import changed, fresh, reads_of, rebuild, renamed_apart, renamed_clause, walk
from ..records import replace
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


def with_one(program: ir.Program, name: str) -> ir.Program:
    """The program in which a scalar input is an array of one point."""

    def first(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, first)
        if isinstance(expr, ir.Read) and expr.tensor == name:
            return build.read(name, (build.whole(0, expr.span),), "whole", expr.span)
        return expr

    lets = tuple(replace(let, clauses=tuple(changed(clause, first) for clause in let.clauses)) for let in program.lets)
    taken = {axis.coordinate.name for tensor in program.inputs for axis in tensor.axes}
    inputs = tuple(
        replace(tensor, axes=(ir.Axis(fresh(Coordinate("one"), taken), build.whole(1, tensor.span)),))
        if tensor.name == name
        else tensor
        for tensor in program.inputs
    )
    return replace(program, inputs=inputs, lets=lets, order=())


def varying_along(program: ir.Program, name: str | None, extent: ir.Expr, given: Collection[str]) -> ir.Program:
    """The program in which a scalar input, if it has one, has a value for every point of an axis that others have
    already, with that extent; so has all that is made of it. What is `given` out must have that axis. `order` is left
    to the checker."""
    if not isinstance(extent, ir.Size):
        raise Unbatchable("their number is no size of its own")
    leading = {tensor.name: _axis_of(tensor, extent) for tensor in program.tensors.values()}
    for let in program.lets:
        for clause in let.clauses:
            _check_apart(let, clause, leading, extent)
    varying = _varying(program, () if name is None else (name,))
    varying = frozenset(other for other in varying if leading[other] is None)
    shared = [other for other in given if leading[other] is None]
    if shared:
        raise Unbatchable(f"they share `{shared[0]}`")
    lets = tuple(
        _let(let, extent.coordinate, varying) if axis is None else _read_along(let, axis, varying)
        for let, axis in ((let, leading[let.name]) for let in program.lets)
    )
    inputs = tuple(_input(t, extent.coordinate) if t.name == name else t for t in program.inputs)
    return replace(program, inputs=inputs, lets=lets, order=())


def _axis_of(tensor: ir.Input | ir.Let, extent: ir.Expr) -> int | None:
    """The axis of a tensor that has this extent."""
    found = [number for number, axis in enumerate(tensor.axes) if axis.extent == extent]
    if len(found) > 1:
        raise Unbatchable(f"`{tensor.name}` has pairs of them")
    return found[0] if found else None


def _check_apart(let: ir.Let, clause: ir.Clause, leading: Mapping[str, int | None], extent: ir.Expr) -> None:
    """Refuse a definition in which a point of an axis reads what stands at another."""
    axis = leading[let.name]
    own = None if axis is None else clause.slots[axis]
    taken = {own.coordinate.name} if isinstance(own, ir.Coord) else set()
    exprs = [renamed_apart(expr, taken) for expr in (clause.body, clause.guard) if expr is not None]
    for part in (part for expr in exprs for part in walk(expr)):
        match part:
            case ir.Reduce(ranges=ranges):
                together = any(range.upper == extent for range in ranges)
            case ir.Normalize(coordinate=coordinate):
                together = isinstance(own, ir.Coord) and own.coordinate == coordinate
            case ir.Read(tensor, indices) if (place := leading[tensor]) is not None:
                together = not isinstance(own, ir.Coord) or indices[place] != own
            case _:
                together = False
        if together:
            raise Unbatchable(f"`{let.name}` takes several of them together")


def _read_along(let: ir.Let, axis: int, varying: frozenset[str]) -> ir.Let:
    """The definition with what varies read at its own point of an axis."""

    def at(clause: ir.Clause) -> ir.Clause:
        own = clause.slots[axis]
        assert isinstance(own, ir.Coord)
        return changed(clause, lambda e: _read(renamed_apart(e, {own.coordinate.name}), own.coordinate, varying))

    return replace(let, clauses=tuple(map(at, let.clauses)))


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
