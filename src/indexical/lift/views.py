"""Parts of packed tensors under names of their own: a weight read at `h * 64 + d` is a weight over `h` and `d`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from .definitions import Definition, ordered
from .expressions import Expr, Op, Over, Read, parts
from .indices import Axis, Looked, Quotient, Remainder, atom, atoms_in, within
from .values import Leaf


@dataclass(slots=True, eq=False)
class Bound:
    """An input that the callable holds."""

    leaf: Leaf
    # The tensor as an array of the callable's library.
    handed: Callable[[Any], Any]

    @property
    def name(self) -> str:
        return self.leaf.name

    def value(self) -> Any:
        return self.handed(self.tensor())

    def tensor(self) -> Any:
        tensor = self.leaf.tensor
        return tensor() if callable(tensor) and not hasattr(tensor, "shape") else tensor.detach()


@dataclass(slots=True, eq=False)
class HeldView:
    """A part of a tensor that is held, as an input; its name comes from the definition that reads it."""

    leaf: Leaf
    reader: Definition
    whole: bool

    def rename(self, definitions: list[Definition], taken: set[str]) -> None:
        if not self.whole:
            name, count = f"{self.leaf.name}_{self.reader.name}", 2
            while name in taken or any(name == d.name for d in definitions):
                name, count = f"{self.leaf.name}_{self.reader.name}_{count}", count + 1
            self.leaf.name = name
            taken.add(name)


def with_views(definitions: list[Definition]) -> tuple[list[Definition], list[HeldView]]:
    """The definitions with packed leaves of their sums read through views: of held tensors as inputs, of arguments as
    definitions before the one that reads them."""
    result: list[Definition] = []
    bound: list[HeldView] = []
    known: dict[Any, Any] = {}
    for definition in definitions:

        def change(read: Read, definition: Definition = definition) -> Expr:
            axes = [axis for index in read.indices for axis in ordered(index)]
            if _is_crossing(read):
                found = {part for index in read.indices for part in atoms_in(index)}
                axes = [axis for axis in (*definition.axes, *_summed(definition.body)) if axis in found]
            key = (read.tensor, tuple(_pattern(index, axes) for index in read.indices))
            if key not in known:
                if read.tensor.given:
                    view = Definition(tuple(axes), read, read.site, tuple((axis,) for axis in axes))
                    view.part_of = (read.tensor, definition)
                    result.append(view)
                    known[key] = view
                else:
                    view_of = _held(read, axes)
                    bound.append(HeldView(view_of, definition, _covers(read, axes)))
                    known[key] = view_of
            return Read(known[key], tuple(atom(axis) for axis in axes), read.kind, site=read.site)

        definition.body = _changed(definition.body, change, False)
        result.append(definition)
    return result, bound


def _changed(expr: Expr, change: Callable[[Read], Expr], inside: bool) -> Expr:
    match expr:
        case Op(arguments=arguments):
            return replace(expr, arguments=tuple(_changed(argument, change, inside) for argument in arguments))
        case Over(op="sum", body=body):
            return replace(expr, body=_changed(body, change, True))
        case Read(tensor=tensor) if isinstance(tensor, Leaf):
            if _is_packed(expr) and (inside or not tensor.given):
                return change(expr)
            if _is_crossing(expr) and inside and tensor.given:
                return change(expr)
    return expr


def _summed(expr: Expr) -> list[Axis]:
    """The coordinates that the sums of an expression bind, in the order of the text."""
    return [axis for part in parts(expr) if isinstance(part, Over) and part.op == "sum" for axis in part.axes]


def _is_crossing(read: Read) -> bool:
    """Whether an index is a quotient of several coordinates: a view that cuts across axes."""
    found = [part for index in read.indices for part in atoms_in(index)]
    if any(isinstance(part, Looked) for part in found):
        return False
    wholes = [part.of for part in found if isinstance(part, Quotient | Remainder)]
    return any(sum(isinstance(part, Axis) for part in atoms_in(whole)) > 1 for whole in wholes)


def _is_packed(read: Read) -> bool:
    """Whether an axis is indexed by several coordinates, or from a place on; all must be plain sums of multiples."""
    packed = False
    for index, extent in zip(read.indices, read.tensor.shape, strict=True):
        found = atoms_in(index)
        if not within(index, extent):
            return False
        axes = [part for part in found if isinstance(part, Axis)]
        if any(not isinstance(part, Axis) and part in index.atoms for part in found) and not read.tensor.given:
            return False
        if len(ordered(index)) != len(axes) or (not axes and index.constant is None):
            return False
        packed |= len(axes) > 1 or (len(axes) == 1 and index != atom(axes[0]) and not read.tensor.given)
    axes_all = [axis for index in read.indices for axis in ordered(index)]
    return packed and len(set(axes_all)) == len(axes_all)


def _pattern(index: Any, axes: list[Axis]) -> Any:
    """An index with its coordinates by their places, so that two reads of the same part are one."""
    return frozenset(
        (
            frozenset(
                (axes.index(part) if isinstance(part, Axis) else part, power) for part, power in cast(Any, monomial)
            ),
            factor,
        )
        for monomial, factor in index.terms.items()
    ), tuple(axis.extent for axis in axes)


def _held(read: Read, axes: list[Axis]) -> Leaf:
    tensor = read.tensor.tensor
    offset, steps = 0, dict.fromkeys(axes, 0)
    for index, stride in zip(read.indices, tensor.stride(), strict=True):
        for monomial, factor in index.terms.items():
            moving = [part for part, _ in cast(Any, monomial)]
            if moving:
                steps[moving[0]] += factor * stride
            else:
                offset += factor * stride
    sizes = [int(axis.extent.constant or 0) for axis in axes]
    strides = [steps[axis] for axis in axes]

    # PyTorch has no negative strides: what runs backwards is read forwards, and turned round.
    backwards = [place for place, stride in enumerate(strides) if stride < 0]
    first = offset + sum(strides[place] * (sizes[place] - 1) for place in backwards)
    forwards = [abs(stride) for stride in strides]

    def value() -> Any:
        part = tensor.detach().as_strided(sizes, forwards, tensor.storage_offset() + first)
        return part.flip(backwards) if backwards else part

    return Leaf(tuple(axis.extent for axis in axes), read.kind, read.tensor.name, value, False, site=read.site)


def _covers(read: Read, axes: list[Axis]) -> bool:
    points = 1
    for axis in axes:
        points *= int(axis.extent.constant or 0)
    return bool(points == read.tensor.tensor.numel())
