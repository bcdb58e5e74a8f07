"""Definitions that put new rows behind those of an array which may be written to."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Append:
    """`if j >= first { new[j - first] } else { past[j] }` along one axis: the array of `past`, written to.

    With `count`, new are so many rows from `first` on, which is data, `if j >= first && j < first + count`; without,
    all rows are new from `first` on."""

    past: str
    axis: int
    first: ir.Expr
    count: ir.Expr | None


def find_append(let: ir.Let, tensors: Mapping[str, ir.Input | ir.Let]) -> Append | None:
    """The append that a definition is; None where it is none, or the array is not to be written to."""
    if len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return None
    clause = let.clauses[0]
    match clause.body:
        case ir.Select(condition, ir.Read(source, new), ir.Read(past, old)):
            pass
        case _:
            return None
    beyond: ir.Expr | None = None
    match condition:
        case ir.Map(">=", (ir.Coord(own), first)) if not first.type.coordinates:
            pass
        case ir.Map("&&", (ir.Map(">=", (ir.Coord(own), first)), ir.Map("<", (ir.Coord(again), end)))) if own == again:
            beyond = end
        case _:
            return None
    axes = [n for n, slot in enumerate(clause.slots) if isinstance(slot, ir.Coord) and slot.coordinate == own]
    array = tensors[past]
    if len(axes) != 1 or not (isinstance(array, ir.Input) and array.owned) or own in first.type.coordinates:
        return None
    if old != clause.slots or len(new) != len(old):
        return None
    axis = axes[0]
    count = None if beyond is None else tensors[source].axes[axis].extent
    if count is not None and beyond is not None and polynomial(beyond) - polynomial(first) != polynomial(count):
        return None
    shifted = polynomial(new[axis]) == polynomial(clause.slots[axis]) - polynomial(first)
    beside = all(index == slot for n, (index, slot) in enumerate(zip(new, clause.slots, strict=True)) if n != axis)
    return Append(past, axis, first, count) if shifted and beside else None
