"""Definitions: tensors that get names, and what is done with all of them: scales, axes, the order of axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ..ir.affine import Polynomial, number
from .expressions import ONE, Expr, Num, Op, Over, Read, Whole, axes_in, parts
from .indices import Axis, Extent, Quotient, Remainder, atom, atoms_in, divided, measured, parts_of, split
from .recording import Site
from .values import Indices, Leaf


@dataclass(slots=True, eq=False)
class Definition:
    """A tensor with a name to come. `slots` has the coordinates that each axis of the tensor was split into."""

    axes: tuple[Axis, ...]
    body: Expr
    site: Site | None
    slots: tuple[tuple[Axis, ...], ...] = ()
    scale: Num = field(default_factory=lambda: Num(ONE))
    # The axes of a result, one for one, those of one point too.
    result: bool = False
    name: str = ""
    # A part of a packed argument, and the definition that reads it.
    part_of: tuple[Leaf, Definition] | None = None

    def read(self, at: Indices) -> Expr:
        """The tensor at these indices, one for each of its axes before they were split."""
        indices: list[Polynomial] = []
        for index, axes in zip(at, self.slots, strict=True):
            if len(axes) == 1:
                indices.append(index)
                continue
            rest: list[Polynomial] = []
            for axis in reversed(axes[1:]):
                index, part = split(index, axis.extent)
                rest.append(part)
            indices += (index, *reversed(rest)) if axes else ()
        found = Read(self, tuple(indices), self.body.kind, site=self.site)
        if self.scale.value == ONE:
            return found
        return Op("*", (found, self.scale), "real", site=self.scale.site)


def settle_scales(definitions: list[Definition]) -> None:
    """Put a number that was taken out of a definition back where every reader multiplies by it."""

    def settled(expr: Expr, target: Definition) -> Expr:
        match expr:
            case Op("*", (Read(tensor=tensor) as read, scale)) if tensor is target and scale == target.scale:
                return read
            case Op(arguments=arguments):
                return replace(expr, arguments=tuple(settled(argument, target) for argument in arguments))
            case Over(body=body, guard=guard):
                kept = None if guard is None else settled(guard, target)
                return replace(expr, body=settled(body, target), guard=kept)
        return expr

    for definition in definitions:
        if definition.scale.value == ONE:
            continue
        found = [part for other in definitions for part in parts(other.body)]
        reads = sum(isinstance(part, Read) and part.tensor is definition for part in found)
        scaled = sum(
            isinstance(part, Op)
            and part.op == "*"
            and isinstance(part.arguments[0], Read)
            and part.arguments[0].tensor is definition
            and part.arguments[1] == definition.scale
            for part in found
        )
        if reads == scaled:
            for other in definitions:
                other.body = settled(other.body, definition)
            definition.body = Op("*", (definition.body, definition.scale), "real", site=definition.scale.site)
            definition.scale = Num(ONE)


def drop_unused_axes(definitions: list[Definition]) -> None:
    """Take the axes away along which what is no result is all the same, such as that of repeated heads."""
    while True:
        kept: dict[Definition, list[int]] = {}
        for definition in definitions:
            used = axes_in(definition.body)
            places = [place for place, axis in enumerate(definition.axes) if axis in used]
            if not definition.result and len(places) < len(definition.axes):
                kept[definition] = places
        if not kept:
            return
        arrange(definitions, kept)


def arrange(definitions: list[Definition], places: Mapping[Definition, list[int]]) -> None:
    """Give some definitions those of their axes that stand at these places, in this order."""

    def arranged(expr: Expr) -> Expr:
        match expr:
            case Op(arguments=arguments):
                return replace(expr, arguments=tuple(map(arranged, arguments)))
            case Over(body=body, guard=guard):
                return replace(expr, body=arranged(body), guard=None if guard is None else arranged(guard))
            case Read(tensor=Definition() as tensor, indices=indices) if tensor in places:
                return replace(expr, indices=tuple(indices[place] for place in places[tensor]))
        return expr

    for definition, own in places.items():
        definition.axes = tuple(definition.axes[place] for place in own)
    for definition in definitions:
        definition.body = arranged(definition.body)


# ------------------------------------------------------------------------------------- indices


def joined(axes: tuple[Axis, ...]) -> Polynomial:
    """The index that coordinates make together, the last one fastest."""
    index = number(0)
    for axis in axes:
        index = index * axis.extent + atom(axis)
    return index


def ordered(index: Polynomial) -> list[Axis]:
    """The coordinates of an index, the slowest first."""
    found = []
    for monomial, factor in index.terms.items():
        moving = [part for part, _ in cast(Any, monomial) if isinstance(part, Axis)]
        still: Any = frozenset((part, power) for part, power in cast(Any, monomial) if isinstance(part, Extent))
        rest = Polynomial({still: factor})
        if len(moving) == 1 and len(still) == len(monomial) - 1:
            found.append((measured(rest)[0], moving[0]))
    return [axis for _, axis in sorted(found, key=lambda pair: -pair[0])]


def refined(axes: list[Axis], body: Expr, despite_leaves: bool = False) -> tuple[Axis, tuple[Axis, Axis]] | None:
    """A coordinate that is only read in quotients and remainders, and the two that it is made of. A leaf can be read
    in either way."""
    places = [
        (index, despite_leaves and isinstance(part, Read) and isinstance(part.tensor, Leaf))
        for part in parts(body)
        if isinstance(part, Read | Whole)
        for index in (part.indices if isinstance(part, Read) else (part.index,))
    ]
    for axis in axes:
        bases: dict[Polynomial, None] = {}
        plain = False
        for index, either in places:
            if either and index == atom(axis):
                continue
            plain |= axis in parts_of(index)
            for found in atoms_in(index):
                if isinstance(found, Quotient | Remainder) and axis in parts_of(found.of):
                    plain |= found.of != atom(axis)
                    bases[found.by] = None
        if plain or not bases:
            continue
        for base in bases:
            outer = divided(axis.extent, base)
            if outer is not None and outer.constant != 1:
                return axis, (Axis(outer), Axis(base))
    return None
