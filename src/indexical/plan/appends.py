"""Definitions that put new rows behind those of an array which may be written to."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Append:
    """`if j >= first { new[j - first] } else { past[j] }` along one axis: the array of `past`, written to."""

    past: str
    axis: int
    first: ir.Expr


def find_append(let: ir.Let, inputs: Iterable[ir.Input]) -> Append | None:
    """The append that a definition is; None where it is none, or the array is not to be written to."""
    if len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return None
    clause = let.clauses[0]
    match clause.body:
        case ir.Select(ir.Map(">=", (ir.Coord(own), first)), ir.Read(_, new), ir.Read(past, old)):
            pass
        case _:
            return None
    axes = [n for n, slot in enumerate(clause.slots) if isinstance(slot, ir.Coord) and slot.coordinate == own]
    owned = any(tensor.name == past and tensor.owned for tensor in inputs)
    if len(axes) != 1 or not owned or old != clause.slots or len(new) != len(old):
        return None
    axis = axes[0]
    shifted = polynomial(new[axis]) == polynomial(clause.slots[axis]) - polynomial(first)
    beside = all(index == slot for n, (index, slot) in enumerate(zip(new, clause.slots, strict=True)) if n != axis)
    return Append(past, axis, first) if shifted and beside and not first.type.coordinates else None
