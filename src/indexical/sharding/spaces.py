"""Which axes are of one kind: those that one coordinate runs over, and those of one declared space."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.types import Coordinate
from ..ir.walk import parts_of, walk

Node = tuple[str, ...] | tuple[str, int]


class Kinds:
    """The axes of a program in groups. A coordinate belongs to the group of the axes that it indexes as it is, or moved
    by a number. A declared space is one group, and so is a letter of the inputs without one."""

    def __init__(self, program: ir.Program) -> None:
        self.parent: dict[object, object] = {}
        self.letters = {axis.coordinate for tensor in program.inputs for axis in tensor.axes}
        tensors = program.tensors
        for tensor in program.inputs:
            for number, axis in enumerate(tensor.axes):
                self._join((tensor.name, number), ("input", str(axis.coordinate)))
                self._declared((tensor.name, number), axis.coordinate)
        for let in program.lets:
            self._definition(let, tensors)

    def _definition(self, let: ir.Let, tensors: Mapping[str, ir.Input | ir.Let]) -> None:
        """Join the letters of a definition that are one axis: by its slots, its reads and the sizes of its ranges."""
        for number, axis in enumerate(let.axes):
            self._declared((let.name, number), axis.coordinate)
            for part in walk(axis.extent):
                if isinstance(part, ir.Size) and part is axis.extent:
                    self._join((let.name, number), ("input", str(part.coordinate)))
        for clause in let.clauses:
            for number, slot in enumerate(clause.slots):
                if isinstance(slot, ir.Coord):
                    self._join((let.name, number), (let.name, "in", str(slot.coordinate)))
        for expr in parts_of(let):
            for part in walk(expr):
                match part:
                    case ir.Read(tensor, indices):
                        for number, index in enumerate(indices):
                            own = single(index)
                            if own is not None and number < len(tensors[tensor].axes):
                                self._join((tensor, number), (let.name, "in", str(own)))
                    case ir.Coord(coordinate):
                        self._declared((let.name, "in", str(coordinate)), coordinate)
                    case ir.Reduce(ranges=ranges):
                        for range in ranges:
                            self._declared((let.name, "in", str(range.coordinate)), range.coordinate)
                            if isinstance(range.upper, ir.Size):
                                self._join(
                                    (let.name, "in", str(range.coordinate)), ("input", str(range.upper.coordinate))
                                )

    def _declared(self, node: object, coordinate: Coordinate) -> None:
        if coordinate.space is not None:
            self._join(node, ("space", coordinate.space))
        elif coordinate in self.letters:
            self._join(node, ("input", str(coordinate)))

    def _find(self, node: object) -> object:
        while node in self.parent:
            node = self.parent[node]
        return node

    def _join(self, one: object, other: object) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self.parent[one] = other

    def of_axis(self, tensor: str, number: int) -> object:
        """The group of an axis."""
        return self._find((tensor, number))

    def of_letter(self, let: str, coordinate: Coordinate) -> object:
        """The group of a coordinate of a definition."""
        return self._find((let, "in", str(coordinate)))

    def named(self, program: ir.Program, name: str) -> object | None:
        """The group that a name stands for: a letter of the inputs or of a definition, or a space."""
        for tensor in program.tensors.values():
            for number, axis in enumerate(tensor.axes):
                if name in (axis.coordinate.name, axis.coordinate.space):
                    return self.of_axis(tensor.name, number)
        for let in program.lets:
            for part in (part for expr in parts_of(let) for part in walk(expr)):
                if isinstance(part, ir.Coord) and name in (part.coordinate.name, part.coordinate.space):
                    return self.of_letter(let.name, part.coordinate)
        return None


def single(index: ir.Expr) -> Coordinate | None:
    """The coordinate that an index is, moved by a number or not."""
    if isinstance(index, ir.Coord):
        return index.coordinate
    if isinstance(index, ir.Map) and index.op in ("+", "-") and len(index.type.coordinates) == 1:
        (own,) = index.type.coordinates
        value = polynomial(index)
        factors = [factor for monomial, factor in value.terms.items() if any(atom == own for atom, _ in monomial)]
        moving = [
            m for m in value.terms if any(not isinstance(a, Coordinate) and own in a.type.coordinates for a, _ in m)
        ]
        return own if factors == [1] and not moving else None
    return None
