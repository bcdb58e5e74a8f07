"""Decimals of fifty digits, and floats of 32 bits, as the evaluator's numbers: to compute a program once more."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from ...ir.formulas import evaluated
from ...ir.functions import FUNCTIONS, registered
from ...run.floats import Floats

# Nothing is trapped: what has no value is NaN, what is too small is 0. It is set around every evaluation.
CONTEXT = Context(prec=50, traps=[])

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_NAN = Decimal("NaN")
_INFINITY = Decimal("Infinity")
_ONE = Decimal(1)


def decimal(value: int | Fraction) -> Decimal:
    """The decimal of a rational, to the digits of the context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _by_float(function: Callable[[float], float]) -> Callable[[Decimal], Decimal]:
    """A function that decimals do not have: to the sixteen digits of a float."""
    return lambda x: Decimal(function(float(x))) if x.is_finite() else _NAN


def _to_whole(rounding: str) -> Callable[[Decimal], Decimal]:
    return lambda x: x if not x.is_finite() else x.to_integral_value(rounding)


def _erf(x: Decimal) -> Decimal:
    return Decimal(math.erf(float(x)))


def _largest(*values: Any) -> Any:
    """The largest of decimals, or of whole numbers."""
    return _NAN if any(value != value for value in values) else max(values)


def _smallest(*values: Any) -> Any:
    return _NAN if any(value != value for value in values) else min(values)


def _sigmoid(x: Decimal) -> Decimal:
    return _ONE / (_ONE + (-x).exp())


def _tanh(x: Decimal) -> Decimal:
    twice = (-2 * abs(x)).exp()
    return ((_ONE - twice) / (_ONE + twice)).copy_sign(x)


def _gelu(x: Decimal) -> Decimal:
    return x / 2 * (_ONE + _erf(x / Decimal(2).sqrt()))


def _by_formula(formula: str) -> Callable[[Decimal], Any]:
    return lambda x: evaluated(formula, x, _FUNCTIONS, decimal)


_FUNCTIONS: dict[str, Callable[..., Any]] = registered(
    "decimals",
    {
        "exp": Decimal.exp,
        "log": Decimal.ln,
        "sqrt": Decimal.sqrt,
        "rsqrt": lambda x: _ONE / x.sqrt(),
        "tanh": _tanh,
        "sigmoid": _sigmoid,
        "relu": lambda x: _largest(x, Decimal(0)),
        "gelu": _gelu,
        "silu": lambda x: x * _sigmoid(x),
        "abs": operator.abs,
        "sin": _by_float(math.sin),
        "cos": _by_float(math.cos),
        "erf": _erf,
        "floor": _to_whole(ROUND_FLOOR),
        "ceil": _to_whole(ROUND_CEILING),
        "round": _to_whole(ROUND_HALF_EVEN),
        "clamp": lambda x, low, high: _smallest(_largest(x, low), high),
        "max": _largest,
        "min": _smallest,
    },
    _by_formula,
)


class Decimals:
    """Decimals for the evaluator. The figures of a worked example are decimals, and are held exactly."""

    infinity = _INFINITY
    nan = _NAN
    pi = _PI

    functions: Mapping[str, Callable[..., Any]] = _FUNCTIONS

    def number(self, value: Any) -> Decimal:
        return value if isinstance(value, Decimal) else decimal(value)

    def total(self, values: list[Any]) -> Decimal:
        return reduce(operator.add, values, Decimal(0))

    def divide(self, a: Decimal, b: Decimal) -> Decimal:
        return a / b

    def remainder(self, a: Decimal, b: Decimal) -> Decimal:
        return a % b

    def power(self, a: Decimal, b: Decimal) -> Decimal:
        return _ONE if b == 0 else a**b

    def cast(self, value: Any, dtype: str) -> Any:
        return value

    def softmax(self, scores: list[Any]) -> list[Decimal]:
        """Shifted by the largest score. Over one point: 1."""
        top = _largest(*scores)
        if not top.is_finite():
            return [_NAN] * len(scores)
        parts = [(score - top).exp() for score in scores]
        total = self.total(parts)
        return [part / total for part in parts]

    def log_softmax(self, scores: list[Any]) -> list[Decimal]:
        top = _largest(*scores)
        if not top.is_finite():
            return [_NAN] * len(scores)
        shift = top + self.total([(score - top).exp() for score in scores]).ln()
        return [score - shift for score in scores]


class Singles(Floats):
    """Floats of 32 bits, rounded at every step."""

    infinity = np.float32(np.inf)  # type: ignore[assignment]
    nan = np.float32(np.nan)  # type: ignore[assignment]
    pi = np.float32(math.pi)  # type: ignore[assignment]
    functions: Mapping[str, Callable[..., Any]] = {
        name: lambda *values, _of=row.value: np.float32(_of(*map(float, values))) for name, row in FUNCTIONS.items()
    }

    def number(self, value: Any) -> Any:
        return np.float32(super().number(value))

    def total(self, values: list[Any]) -> Any:
        return reduce(operator.add, values, np.float32(0))

    def divide(self, a: Any, b: Any) -> Any:
        return np.float32(super().divide(float(a), float(b)))

    def remainder(self, a: Any, b: Any) -> Any:
        return np.float32(super().remainder(float(a), float(b)))

    def power(self, a: Any, b: Any) -> Any:
        return np.float32(super().power(float(a), float(b)))

    def softmax(self, scores: list[Any]) -> list[Any]:
        """As libraries compute it: shifted by the largest score, each part rounded."""
        top = max(scores)
        parts = [np.float32(math.exp(score - top)) for score in scores]
        total = self.total(parts)
        return [part / total for part in parts]

    def log_softmax(self, scores: list[Any]) -> list[Any]:
        top = max(scores)
        shift = np.float32(math.log(self.total([np.float32(math.exp(score - top)) for score in scores])))
        return [score - top - shift for score in scores]
