"""Values side by side: axes aligned by name."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.types import Coordinate, widest
from .base import Text, Value
from .code import ALL, NONE, Index, Name, Node, Prefix, method

__all__ = ("aligned", "joined", "permuted", "sliced", "widest")


def aligned(value: Value, axes: tuple[Coordinate, ...]) -> Value:
    """The value with a place for every one of these axes, so that it broadcasts against them."""
    if not value.axes:
        return value
    assert value.axes == tuple(axis for axis in axes if axis in value.axes), "axes are in the order of their scope"
    used = axes[axes.index(value.axes[0]) :]
    slots: list[Node] = [ALL if axis in value.axes else NONE for axis in used]
    if NONE not in slots:
        return value
    match value.code:
        case Prefix("-", Name() as inner):
            return value.but(Prefix("-", sliced(inner, slots)))
    return value.but(sliced(value.code, slots))


def sliced(code: Node, slots: Iterable[Node]) -> Node:
    """An array at some slots, without those at the end that take a whole axis."""
    slots = list(slots)
    while slots and slots[-1] == ALL:
        slots.pop()
    return Index(code, tuple(slots)) if slots else code


def permuted(value: Value, axes: tuple[Coordinate, ...], text: Text) -> Value:
    """The value with its axes in another order."""
    if value.axes == axes:
        return value
    before = value.turned or value
    order = tuple(before.axes.index(axis) for axis in axes)
    if order == tuple(range(len(order))):
        return before
    swapped = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
    if order == swapped:
        code: Node = method(before.code, "swapaxes", -1, -2)
    else:
        code = text.dialect.permute(before.code, order)
    return before.but(code, axes=axes, turned=before)


def joined(values: Iterable[Value], order: tuple[Coordinate, ...]) -> tuple[Coordinate, ...]:
    """The axes of values that meet, in order."""
    found = {axis for value in values for axis in value.axes}
    return tuple(axis for axis in order if axis in found)


def spaced(code: Node, slots: list[Node]) -> Node:
    """An array with new axes among its own, where there are any."""
    return Index(code, tuple(slots)) if NONE in slots else code
