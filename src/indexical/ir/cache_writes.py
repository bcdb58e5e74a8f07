"""Definitions that put new rows into an array which may be written to: behind those that it has, or at places."""

from __future__ import annotations

from collections.abc import Mapping

from ..records import dataclass
from . import build
from . import nodes as ir
from .affine import polynomial
from .conditions import conjuncts_of


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


@dataclass(frozen=True, slots=True)
class Put:
    """`if any[b, i](p[b, i] == g && q[b, i] == s) { sum[b, i](new[b, i] where …) } else { past[g, s] }`: the array of
    `past`, written to at the places `p` and `q`, which are arrays along `over`. A place is named once."""

    past: str
    places: tuple[str, ...]
    over: tuple[ir.Range, ...]
    new: ir.Expr


def find_put(let: ir.Let, tensors: Mapping[str, ir.Input | ir.Let]) -> Put | None:
    """The rows that a definition puts at places of an array that is to be written to; None where it does not."""
    if len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return None
    slots = let.clauses[0].slots
    match let.clauses[0].body:
        case ir.Select(
            ir.Reduce("any", ranges, condition, None), ir.Reduce("sum" | "any", over, new, guard), ir.Read(past, old)
        ) if over == ranges and guard == condition and old == slots:
            pass
        case _:
            return None
    array = tensors[past]
    if not (isinstance(array, ir.Input) and array.owned):
        return None
    places = []
    for slot, equality in zip(slots, conjuncts_of(condition), strict=False):
        match equality:
            case ir.Map("==", (ir.Read(name, indices), other)) if other == slot and indices == _points(over):
                places.append(name)
            case _:
                return None
    return Put(past, tuple(places), over, new)


def _points(ranges: tuple[ir.Range, ...]) -> tuple[ir.Expr, ...]:
    return tuple(build.coord(range.coordinate, range.span) for range in ranges)
