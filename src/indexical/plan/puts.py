"""Definitions that put rows at places of an array which may be written to."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..records import dataclass


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
