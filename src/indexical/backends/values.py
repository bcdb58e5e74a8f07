"""Values side by side: axes aligned by name."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.types import Coordinate, widest
from .base import ATOM, UNARY, Text, Value

__all__ = ("aligned", "joined", "permuted", "widest")


def aligned(value: Value, axes: tuple[Coordinate, ...]) -> Value:
    """The value with a place for every one of these axes, so that it broadcasts against them."""
    if not value.axes:
        return value
    used = axes[axes.index(value.axes[0]) :]
    slots = [":" if axis in value.axes else "None" for axis in used]
    if "None" not in slots:
        return value
    while slots[-1] == ":":
        slots.pop()
    index = f"[{', '.join(slots)}]"
    if value.binds == UNARY and value.text[1:].isidentifier():
        return value.but(text=value.text + index)
    return value.but(text=value.atom + index, binds=ATOM)


def permuted(value: Value, axes: tuple[Coordinate, ...], text: Text) -> Value:
    """The value with its axes in another order."""
    if value.axes == axes:
        return value
    before = value.turned or value
    order = tuple(before.axes.index(axis) for axis in axes)
    if order == tuple(range(len(order))):
        return before
    swapped = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
    shown = f"{before.atom}.swapaxes(-1, -2)" if order == swapped else text.dialect.permute(before.atom, order)
    return before.but(text=shown, axes=axes, binds=ATOM, turned=before)


def joined(values: Iterable[Value], order: tuple[Coordinate, ...]) -> tuple[Coordinate, ...]:
    """The axes of values that meet, in order."""
    found = {axis for value in values for axis in value.axes}
    return tuple(axis for axis in order if axis in found)
