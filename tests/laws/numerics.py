"""Numbers for the second evaluation: dtypes, functions, and what hangs on last digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Nudge = Callable[..., Array]

# --------------------------------------------------------------------------------- dtypes

_WIDTHS = {"i32": 1, "i64": 2, "f16": 1, "bf16": 1, "f32": 2, "f64": 3, "bool": 0}
KINDS = {"bool": "b", "whole": "i", "real": "f"}
NUMPY = {
    "bool": np.bool_,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
}


def widest(dtypes: list[str | None]) -> str | None:
    """The widest; what f16 and bf16 have in common is f32. None where all are weak."""
    known = [dtype for dtype in dtypes if dtype is not None]
    if {"f16", "bf16"} <= set(known):
        known.append("f32")
    return max(known, key=_WIDTHS.__getitem__, default=None)


def rounded(cells: Array, dtype: str) -> Array:
    """Reals as a dtype holds them, in 64 bits again."""
    if dtype == "bf16":
        mantissa, exponent = np.frexp(np.float32(cells).astype(np.float64))
        return np.where(np.isfinite(cells), np.ldexp(np.rint(mantissa * 256) / 256, exponent), cells)
    return cells.astype(NUMPY[dtype]).astype(np.float64)


# ------------------------------------------------------------------------------ functions

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


REAL: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.where(x == 0, np.inf, 1 / np.sqrt(x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: np.where(np.isnan(x), x, _sigmoid(x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * 0.5 * (1 + _ERF(x / math.sqrt(2))),
    "silu": lambda x: x * _sigmoid(x),
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "erf": _ERF,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "max": lambda *xs: reduce(np.maximum, xs),
    "min": lambda *xs: reduce(np.minimum, xs),
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "**": np.power,
}
COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def _quotient(a: Array, b: Array) -> Array:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


WHOLE: dict[str, Callable[..., Array]] = {
    **{name: REAL[name] for name in ("+", "-", "*", "**", "abs", "relu", "clamp", "max", "min")},
    "/": _quotient,
    "%": lambda a, b: a - _quotient(a, b) * b,
}
# The whole numbers of a law stay well inside 64 bits, also on the way to a result.
LARGEST = 2.0**52


# ------------------------------------------------------------------------------ last digits


def exactly(cells: Array, total: bool = False) -> Array:
    return cells


def nudged(seed: float) -> Nudge:
    """Numbers that any order of operations would give exactly stay; all others are moved a few last places.

    Equal numbers are moved alike, so that what is equal for a reason remains so; but totals, which depend on the order
    in which they are summed, each in its own way.
    """

    def nudge(cells: Array, total: bool = False) -> Array:
        cells = np.asarray(cells)
        fine = cells * 4096
        exact = (fine == np.rint(fine)) & (np.abs(cells) < 2.0**24)
        phase = np.arange(cells.size).reshape(cells.shape) if total else cells * 1e4
        return np.where(exact | ~np.isfinite(cells), cells, cells * (1 + 1e-14 * np.sin(phase + seed)))

    return nudge
