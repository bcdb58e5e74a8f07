"""Elementwise functions of Python's floats: IEEE, and never an exception."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

INFINITY = math.inf
NAN = math.nan


def guarded(function: Callable[[float], float]) -> Callable[[Any], float]:
    """The function, with NaN where Python would raise for a domain and infinity for an overflow."""

    def apply(x: Any) -> float:
        try:
            return function(x)
        except ValueError:
            return NAN
        except OverflowError:
            return INFINITY

    return apply


def log(x: float) -> float:
    return -INFINITY if x == 0 else math.log(x)


def log1p(x: float) -> float:
    return -INFINITY if x == -1 else math.log1p(x)


def rsqrt(x: float) -> float:
    return INFINITY if x == 0 else 1 / math.sqrt(x)


def sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    small = math.exp(x)
    return small / (1 + small)


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def relu(x: Any) -> Any:
    """Of a whole number, whole."""
    return type(x)(0) if x <= 0 else x


def keep_unbounded(function: Callable[[float], float]) -> Callable[[Any], float]:
    """`floor`, `ceil` and `round` of an infinity or NaN are that; a zero keeps its sign."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


def largest(*values: Any) -> Any:
    """The largest; NaN where there is one."""
    return next((value for value in values if value != value), max(values))


def smallest(*values: Any) -> Any:
    return next((value for value in values if value != value), min(values))


def clamp(x: Any, low: Any, high: Any) -> Any:
    return smallest(largest(x, low), high)
