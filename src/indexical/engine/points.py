"""What positions alone decide, computed for known sizes: conditions and whole numbers that no array is read for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from ..ir import nodes as ir
from .ops import Iota, Map, Number, Reduce, Value
from .order import reachable

# Points of an array that are looked at when a plan is made for known sizes.
MOST = 1 << 20

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
    "!": np.logical_not,
    "where": np.where,
}
# Whole numbers that no sum or product of two of them takes out of 64 bits.
_SMALL = 1 << 31


def points_of(one: Value) -> np.ndarray[Any, Any] | None:
    """A condition at all of its points, its axes in order of their names; None where it is of more than positions, of
    sizes that are not known, or too large."""
    found: dict[Value, np.ndarray[Any, Any]] = {}
    for part in reachable([one]):
        made = _points(part, found)
        if made is None or (made.dtype != bool and made.size and max(abs(int(made.min())), int(made.max())) >= _SMALL):
            return None
        found[part] = made
    return found[one] if found[one].dtype == bool else None


def _points(one: Value, found: Mapping[Value, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    lengths = {axis.name: int(axis.extent.value) for axis in one.axes if isinstance(axis.extent, ir.Const)}
    if len(lengths) < len(one.axes) or prod(lengths.values()) > MOST or one.kind == "real" or one.symbols:
        return None
    shape = tuple(lengths.values())
    match one.op:
        case Number(ir.Const(bool(number) | int(number))):
            return np.array(number)
        case Iota():
            return np.arange(shape[0])
        case Map(fn, args) if fn in _FUNCTIONS:
            aligned = [
                found[arg].reshape([length if name in arg.names else 1 for name, length in lengths.items()])
                for arg in args
            ]
            return np.asarray(np.broadcast_to(_FUNCTIONS[fn](*aligned), shape))
        case Reduce("any" | "all" as fn, source, over, None):
            gone = {axis.name for axis in over}
            places = tuple(n for n, axis in enumerate(source.axes) if axis.name in gone)
            return np.asarray((np.any if fn == "any" else np.all)(found[source], axis=places))
    return None
