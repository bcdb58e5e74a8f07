"""Floating-point numbers, as the reference evaluator uses them: IEEE, and never an exception."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

INFINITY = math.inf
NAN = math.nan


def _guarded(function: Callable[[float], float], outside: float = NAN) -> Callable[[Any], float]:
    """The function, with `outside` where Python would raise for a domain and infinity for an overflow."""

    def guarded(x: Any) -> float:
        try:
            return function(x)
        except ValueError:
            return outside
        except OverflowError:
            return INFINITY

    return guarded


def _log(x: float) -> float:
    return -INFINITY if x == 0 else math.log(x)


def _rsqrt(x: float) -> float:
    return INFINITY if x == 0 else 1 / math.sqrt(x)


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    small = math.exp(x)
    return small / (1 + small)


def _gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def _keep_unbounded(function: Callable[[float], float]) -> Callable[[Any], float]:
    """`floor`, `ceil` and `round` of an infinity or NaN are that; a zero keeps its sign."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


def largest(*values: Any) -> Any:
    """The largest; NaN where there is one."""
    return next((value for value in values if value != value), max(values))


def smallest(*values: Any) -> Any:
    return next((value for value in values if value != value), min(values))


class Floats:
    """Python's floats. Another number type for the evaluator has the same parts."""

    infinity = INFINITY
    nan = NAN

    functions: Mapping[str, Callable[..., Any]] = {
        "exp": _guarded(math.exp),
        "log": _guarded(_log),
        "sqrt": _guarded(math.sqrt),
        "rsqrt": _guarded(_rsqrt),
        "tanh": math.tanh,
        "sigmoid": _sigmoid,
        "relu": lambda x: 0.0 if x <= 0 else x,
        "gelu": _gelu,
        "silu": lambda x: x * _sigmoid(x),
        "abs": abs,
        "sin": _guarded(math.sin),
        "cos": _guarded(math.cos),
        "erf": math.erf,
        "floor": _keep_unbounded(math.floor),
        "ceil": _keep_unbounded(math.ceil),
        "round": _keep_unbounded(round),
        "clamp": lambda x, low, high: smallest(largest(x, low), high),
        "max": largest,
        "min": smallest,
    }

    def number(self, value: int | Fraction) -> float:
        try:
            return float(value)
        except OverflowError:
            return INFINITY if value > 0 else -INFINITY

    def total(self, values: list[Any]) -> float:
        """One after the other. Python's own `sum` would compensate, from 3.12 on."""
        return reduce(operator.add, values, 0.0)

    def divide(self, a: float, b: float) -> float:
        if b:
            return a / b
        if a != a or a == 0:
            return NAN
        return math.copysign(INFINITY, a) * math.copysign(1.0, b)

    def remainder(self, a: float, b: float) -> float:
        """With the sign of `a`, as truncated division leaves it."""
        return math.fmod(a, b) if b and math.isfinite(a) else NAN

    def power(self, a: float, b: float) -> float:
        try:
            return math.pow(a, b)
        except OverflowError:
            return -INFINITY if a < 0 and b % 2 == 1 else INFINITY
        except ValueError:
            # Zero to a negative power, where an odd one keeps its sign; or the root of a negative number.
            return math.copysign(INFINITY, a if b % 2 == 1 else 1) if a == 0 else NAN

    def cast(self, value: Any, dtype: str) -> float:
        """Rounded to a narrower dtype."""
        return round_to(float(value), dtype)

    def softmax(self, scores: list[Any]) -> list[float]:
        """Shifted by the largest score, which changes nothing and never overflows. Over one point: 1."""
        top = largest(*scores)
        if top == -INFINITY or top != top or top == INFINITY:
            return [NAN] * len(scores)
        parts = [math.exp(score - top) for score in scores]
        total = math.fsum(parts)
        return [part / total for part in parts]

    def log_softmax(self, scores: list[Any]) -> list[float]:
        top = largest(*scores)
        if top == -INFINITY or top != top or top == INFINITY:
            return [NAN] * len(scores)
        shift = top + math.log(math.fsum(math.exp(score - top) for score in scores))
        return [score - shift for score in scores]


def round_to(value: float, dtype: str) -> float:
    """The nearest number of a narrower dtype. NumPy has no bf16: it is the upper half of an f32."""
    if dtype == "f64" or not math.isfinite(value):
        return value
    with np.errstate(over="ignore"):
        if dtype == "f16":
            return float(np.float16(value))
        single = np.float32(value)
    if dtype == "f32" or not np.isfinite(single):
        return float(single)
    bits = int(single.view(np.uint32))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(np.uint32(bits).view(np.float32))
