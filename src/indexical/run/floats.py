"""Floating-point numbers, as the reference evaluator uses them: IEEE, and never an exception."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from ..ir.elementary import INFINITY, NAN, largest
from ..ir.functions import FUNCTIONS


class Floats:
    """Python's floats. Another number type for the evaluator has the same parts."""

    infinity = INFINITY
    nan = NAN
    pi = math.pi

    functions: Mapping[str, Callable[..., Any]] = {name: row.value for name, row in FUNCTIONS.items()}

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
        """The remainder of `a` by `b`, with the sign of `a`, as truncated division leaves it."""
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
