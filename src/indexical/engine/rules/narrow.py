"""Numbers of 16 bits: computed in 32 and rounded once, which a library does by itself for some operations."""

from __future__ import annotations

from ...ir.types import SHORT, Dtype
from ..ops import Contract, Map, Value, apply, cast, value
from .patterns import Found, No, Target


def contract_short(one: Value, found: Found, target: Target) -> Value | No | None:
    """A contraction of widened arrays is one of the arrays as they are stored: the library adds up in 32 bits, and
    rounds what it hands out, as its other products of matrices."""
    op = one.op
    assert isinstance(op, Contract)
    if len(op.factors) != 2 or one.dtype != "f32" or "contract" not in target.rounds_once:
        return None
    if not any(is_widened(factor) for factor in op.factors):
        return None
    left, right = (widened(factor) if is_widened(factor) else factor for factor in op.factors)
    if left.dtype != right.dtype:
        return No("a factor is not stored in 16 bits, and would be rounded before it is multiplied")
    return cast(value(Contract((left, right), op.over)), "f32")


def round_again(one: Value, found: Found, target: Target) -> Value | No | None:
    """What was widened and is rounded again is what it was."""
    return stored(found["wide"], one.dtype)


def round_once(one: Value, found: Found, target: Target) -> Value | No | None:
    """A function of widened arrays that is rounded is that of the arrays as they are stored, where the library computes
    it in 32 bits, on the way back too: not of a factor that is repeated along an axis, whose gradient is a sum."""
    inner = found["inner"].op
    assert isinstance(inner, Map)
    if one.dtype not in SHORT or inner.fn not in target.rounds_once or inner.checked:
        return None
    parts = [arg if arg.is_host else stored(arg, one.dtype) for arg in inner.args]
    arrays = [part for part in parts if part is not None and not part.is_host]
    if any(part is None for part in parts) or not arrays:
        return None
    same = all(array.names == arrays[0].names for array in arrays)
    with_number = len(arrays) < len(parts)
    if inner.fn == "*" and not same:
        return No("the gradient of a factor that is repeated is a sum, which would be one of 16 bits")
    allowed = {"+": not with_number, "-": not with_number, "*": True, "/": with_number and parts[0] is arrays[0]}
    if not allowed.get(inner.fn, not with_number and len(parts) == 1):
        return None
    return apply(inner.fn, *(part for part in parts if part is not None))


def is_widened(one: Value) -> bool:
    """Whether this has 32 bits only because 16 are computed with so many."""
    return isinstance(one.op, Map) and one.op.fn == "as wide"


def widened(one: Value) -> Value:
    """The array of 16 bits that was widened, or the value as it is."""
    return next((found for dtype in SHORT if (found := stored(one, dtype)) is not None), one)


def stored(one: Value, dtype: Dtype | None) -> Value | None:
    """The array that was widened, where it is of this dtype."""
    match one.op:
        case Map("as f32" | "as wide", (inner,)) if inner.dtype == dtype:
            return inner
    return None

