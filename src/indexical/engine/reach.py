"""The ends of a place that is affine in its axes, and the conditions that say on which side it stays."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..ir import nodes as ir
from ..ir.affine import Polynomial, affine_parts, is_counted, polynomial
from .ops import Axis, Iota, Map, Value

# What a condition says of a place: that it is not before the first point of its axis, or not behind the last.
Side: TypeAlias = Literal["first", "last"]


def ends_of(place: Value) -> tuple[Polynomial, Polynomial] | None:
    """The least place and the one beyond the largest, of an index that is affine in its axes with steps of known
    signs; None of any other. Of an axis without points they say nothing."""
    if place.known.whole is None:
        return None
    found = affine_parts(place.known.whole, place.names)
    if found is None:
        return None
    steps, start = found
    least, most = start, start
    for name, step in steps.items():
        last = step * (polynomial(place.extent(name)) - 1)
        if is_counted(step):
            most = most + last
        elif is_counted(-step):
            least = least + last
        else:
            return None
    return least, most + 1


def is_axis(place: Value, axis: Axis) -> bool:
    """Whether a place is an axis, perhaps by another name."""
    return isinstance(place.op, Iota) and polynomial(place.op.axis.extent) == polynomial(axis.extent)


def not_negative(test: Value) -> Polynomial | None:
    """The polynomial that a comparison says is not below 0."""
    match test.op:
        case Map("<=" | "<" | ">=" | ">" as fn, (a, b)) if a.known.whole is not None and b.known.whole is not None:
            more, less = (b, a) if fn in ("<=", "<") else (a, b)
            assert more.known.whole is not None
            assert less.known.whole is not None
            return more.known.whole - less.known.whole - (0 if fn in ("<=", ">=") else 1)
    return None


def side_of(test: Value, place: Value, extent: ir.Expr) -> Side | None:
    """What a condition says of a place along an axis, where it says no more than that."""
    above, own = not_negative(test), place.known.whole
    if above is None or own is None:
        return None
    if above == own:
        return "first"
    return "last" if above == polynomial(extent) - own - 1 else None
