"""A part of a program, as a program of its own: some definitions are given, others are wanted of them."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir import nodes as ir
from ..ir.graph import reached
from ..ir.needs import read_in
from ..ir.types import Coordinate
from ..ir.walk import fresh, parts_in, reads_of, walk
from ..records import replace


def excerpt(program: ir.Program, given: Iterable[str], wanted: Iterable[str]) -> ir.Program:
    """The program that makes `wanted` of the definitions in `given` and of the inputs that it still needs.

    Inputs keep their order and stand before what is given. An input that nothing reads stays where it alone says how
    many points a coordinate has. Assertions stay where all that they read is known; contracts and figures do not.
    """
    lets = program.definitions
    wanted, held = tuple(wanted), tuple(name for name in dict.fromkeys(given) if name in lets)
    inner = reached(wanted, lambda name: _reads(lets, name, held))
    kept = [let for let in program.lets if let.name in set(inner) - set(held)]
    known = {*inner, *held}
    asserts = tuple(claim for claim in program.asserts if known.issuperset(read_in(claim.condition)))
    inputs = [tensor for tensor in program.inputs if tensor.name in known]
    own = [as_input(lets[name]) for name in held if name in inner]
    parts = [part for let in kept for part in parts_in(let)]
    parts += [part for claim in asserts for part in walk(claim.condition)]
    parts += [part for tensor in (*inputs, *own) for axis in tensor.axes for part in walk(axis.extent)]
    sizes = {part.coordinate for part in parts if isinstance(part, ir.Size)}
    missing = sizes - {axis.coordinate for tensor in (*inputs, *own) for axis in tensor.axes}
    for tensor in program.inputs:
        said = {axis.coordinate for axis in tensor.axes} & missing
        if said:
            inputs.append(tensor)
            missing -= said
    ordered = (*(tensor for tensor in program.inputs if tensor in inputs), *own)
    return replace(
        program, inputs=ordered, lets=tuple(kept), outputs=wanted, order=(), contracts=(), asserts=asserts, expects=()
    )


def as_input(let: ir.Let) -> ir.Input:
    """A definition as an input. An axis is called as the input's axis that it has its size from, the first time."""
    taken = {axis.extent.coordinate.name for axis in let.axes if isinstance(axis.extent, ir.Size)}
    axes: list[ir.Axis] = []
    for axis in let.axes:
        own = axis.extent.coordinate if isinstance(axis.extent, ir.Size) else axis.coordinate
        if not isinstance(axis.extent, ir.Size) or any(own == other.coordinate for other in axes):
            own = _apart(axis.coordinate, taken)
        axes.append(ir.Axis(own, axis.extent))
    return ir.Input(let.name, tuple(axes), let.kind, None, let.span)


def _apart(coordinate: Coordinate, taken: set[str]) -> Coordinate:
    found = fresh(coordinate, taken) if coordinate.name in taken else coordinate
    taken.add(found.name)
    return found


def _reads(lets: dict[str, ir.Let], name: str, held: tuple[str, ...]) -> list[str]:
    return [] if name in held or name not in lets else [read.tensor for read in reads_of(lets[name])]
