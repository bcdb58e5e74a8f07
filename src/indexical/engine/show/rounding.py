"""Sums, products and quotients in 32 bits that are rounded to 16, in one call where a library has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.types import SHORT, STORED_ONLY, Dtype
from ..ops import Map, Value
from .code import Code

if TYPE_CHECKING:
    from .printer import Printer

_NARROW = SHORT | STORED_ONLY
SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def rounded(p: Printer, one: Value, arg: Value) -> Code | None:
    """A sign between arrays, rounded to 16 bits; None where it is computed and then cast.

    A helper knows whether there is a way back: it rounds once on that, too.
    """
    if not p.d.mixes_widths or one.dtype is None or one.dtype not in SHORT or arg.dtype != "f32":
        return None
    if p.steps or not stands_here(p, arg):
        return None
    match arg.op:
        case Map("+" | "-" | "*" | "/" as fn, (left, right)) if left.axes and right.axes:
            pass
        case _:
            return None
    scaled = _scaled_sum(p, one, fn, left, right)
    if scaled is not None:
        p.computed(arg)
        return scaled
    sides = [stored(p, side) for side in (left, right)]
    if any(side.dtype not in (one.dtype, "f32") for side in sides):
        return None
    p.computed(arg, *(side for side, short in zip((left, right), sides, strict=True) if side is not short))
    own = p.order_of(one)
    codes = [p.aligned(side, own) for side in sides]
    return p.call("rounded", p.helper(f"{p.d.module}.{SIGNS[fn]}"), *codes, p.d.dtype(p, one.dtype))


def _scaled_sum(p: Printer, one: Value, fn: str, left: Value, right: Value) -> Code | None:
    """An array of 16 bits and another one times a factor, both widened, in one call."""
    pairs = {"+": ((left, right), (right, left)), "-": ((left, right),)}.get(fn, ())
    for other, product in pairs:
        match product.op:
            case Map("*", factors) if stands_here(p, product):
                parts = [stored(p, part) for part in (other, *factors)]
            case _:
                continue
        alone, *scaled = parts
        x, factor = sorted(scaled, key=lambda part: part.names != one.names)
        if x.names != one.names or alone.names != one.names or any(part.dtype != one.dtype for part in parts):
            continue
        p.computed(product, other, *factors)  # All are stored in 16 bits: none is computed in 32.
        codes = [p.aligned(part, p.order_of(one)) for part in (alone, x, factor)]
        return p.call("add_scaled", *codes, *((-1,) if fn == "-" else ()))
    return None


def stored(p: Printer, one: Value, narrow: frozenset[Dtype | None] = SHORT) -> Value:
    """An array of 16 bits, or of another `narrow` dtype, that is only widened here; else the value itself."""
    match one.op:
        case Map("as f32" | "as wide", (inner,)) if inner.dtype in narrow and inner.axes and stands_here(p, one):
            return inner
    return one


def mixed(p: Printer, args: tuple[Value, ...]) -> tuple[Value, ...]:
    """The sides of a sign. One that was only widened is taken as it is stored beside an array of 32 bits: the library
    widens it by itself, and no copy is made."""
    if not p.d.mixes_widths or len(args) != 2 or not all(arg.axes and arg.dtype == "f32" for arg in args):
        return args
    left, right = args
    if (short := stored(p, right, _NARROW)) is not right:
        p.computed(right)
        return left, short
    if (short := stored(p, left, _NARROW)) is not left:
        p.computed(left)
    return short, right


def stands_here(p: Printer, one: Value) -> bool:
    """Whether a value is computed where it is read, and nowhere else."""
    return p.uses[one] <= 1 and one not in p.names and one not in p.definition_of
