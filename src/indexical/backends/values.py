"""Values side by side: axes aligned by name, dtypes joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.types import Coordinate, Dtype
from .base import ATOM, Text, Value

_WIDTH: dict[Dtype, int] = {"bool": 0, "i32": 1, "i64": 2, "f16": 1, "bf16": 1, "f32": 2, "f64": 3}


def widest(dtypes: Iterable[Dtype | None]) -> Dtype | None:
    """The dtype that holds all of these; None where all are weak."""
    known = [dtype for dtype in dtypes if dtype is not None]
    if {"f16", "bf16"} <= set(known):
        known.append("f32")
    return max(known, key=_WIDTH.__getitem__, default=None)


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
    return value.but(text=f"{value.atom}[{', '.join(slots)}]", binds=ATOM)


def permuted(value: Value, axes: tuple[Coordinate, ...], text: Text) -> Value:
    """The value with its axes in another order."""
    if value.axes == axes:
        return value
    base, held = value.turned or (value.atom, value.axes)
    order = tuple(held.index(axis) for axis in axes)
    if order == tuple(range(len(order))):
        return value.but(text=base, axes=axes, binds=ATOM, turned=None)
    swapped = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
    shown = f"{base}.swapaxes(-1, -2)" if order == swapped else text.dialect.permute(base, order)
    return value.but(text=shown, axes=axes, binds=ATOM, turned=(base, held))


def joined(values: Iterable[Value], order: tuple[Coordinate, ...]) -> tuple[Coordinate, ...]:
    """The axes of values that meet, in order."""
    found = {axis for value in values for axis in value.axes}
    return tuple(axis for axis in order if axis in found)
