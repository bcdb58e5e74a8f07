"""Numbers of 16 bits: computed in 32 and rounded once, which a library does by itself for some operations."""

from __future__ import annotations

from ...ir.types import SHORT, Dtype
from ..ops import Contract, Map, Value, apply, value
from .patterns import Found, No, Target


def round_contraction(one: Value, found: Found, target: Target) -> Value | No | None:
    """A contraction of widened arrays that is rounded is one of the arrays as they are stored: the library adds up in
    32 bits."""
    inner = found["inner"].op
    assert isinstance(inner, Contract)
    if one.dtype not in SHORT or len(inner.factors) != 2 or "contract" not in target.rounds_once:
        return None
    parts = [stored(factor, one.dtype) for factor in inner.factors]
    if parts[0] is None or parts[1] is None:
        return No("a factor is not stored in 16 bits, and would be rounded before it is multiplied")
    return value(Contract((parts[0], parts[1]), inner.over))


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
    allowed = {"+": not with_number, "-": not with_number, "*": same, "/": with_number and parts[0] is arrays[0]}
    if not allowed.get(inner.fn, not with_number and len(parts) == 1):
        return None
    return apply(inner.fn, *(part for part in parts if part is not None))


def stored(one: Value, dtype: Dtype | None) -> Value | None:
    """The array that was widened, where it is of this dtype."""
    match one.op:
        case Map("as f32", (inner,)) if inner.dtype == dtype:
            return inner
    return None

