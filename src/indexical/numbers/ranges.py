"""Intervals as the evaluator's numbers: what is certain of a value whose inputs are only known within bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from ..ir import nodes as ir
from ..run.reference import Evaluation
from ..run.tables import Stage
from . import enclosure, functions
from .interval import Interval, Unsettled
from .tower import INFINITY, UNDEFINED, Special


def _apart(function: str, enclosed: Callable[..., Interval]) -> Callable[..., Any]:
    """A function of intervals, and of infinities as the exact numbers have it."""

    def apply(*arguments: Any) -> Any:
        if any(isinstance(argument, Special) for argument in arguments):
            return functions.ExactNumbers.functions[function](*arguments)
        return enclosed(*arguments)

    return apply


def _sqrt(x: Interval) -> Any:
    return UNDEFINED if x < 0 else enclosure.sqrt(x)


def _log(x: Interval) -> Any:
    if x.sign() == 0:
        return -INFINITY
    return UNDEFINED if x.sign() == -1 else enclosure.log(x)


def _larger(a: Any, b: Any) -> Any:
    if isinstance(a, Special) or isinstance(b, Special):
        return functions.largest(a, b)
    return enclosure.maximum(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return -_larger(-a, -b)


class Ranges:
    """Intervals of so many bits. `wide` bounds a softmax as tightly as its scores allow, at more cost."""

    infinity = INFINITY
    nan = UNDEFINED

    functions: Mapping[str, Callable[..., Any]] = {
        "exp": _apart("exp", enclosure.exp),
        "log": _apart("log", _log),
        "sqrt": _apart("sqrt", _sqrt),
        "rsqrt": _apart("rsqrt", enclosure.rsqrt),
        "tanh": _apart("tanh", enclosure.tanh),
        "sigmoid": _apart("sigmoid", enclosure.sigmoid),
        "relu": _apart("relu", enclosure.relu),
        "gelu": _apart("gelu", enclosure.gelu),
        "silu": _apart("silu", enclosure.silu),
        "abs": abs,
        "sin": _apart("sin", enclosure.sin),
        "cos": _apart("cos", enclosure.cos),
        "erf": _apart("erf", enclosure.erf),
        "floor": _apart("floor", enclosure.floor),
        "ceil": _apart("ceil", enclosure.ceil),
        "round": _apart("round", enclosure.round_even),
        "clamp": lambda x, low, high: _smaller(_larger(x, low), high),
        "max": lambda *values: reduce(_larger, values),
        "min": lambda *values: reduce(_smaller, values),
    }

    def __init__(self, bits: int, wide: bool = False) -> None:
        self.bits, self.wide = bits, wide

    def number(self, value: Any) -> Any:
        return Interval.of(value, self.bits) if isinstance(value, int | Fraction) else value

    def total(self, values: list[Any]) -> Any:
        return sum(values, Interval.of(0, self.bits))

    def divide(self, a: Any, b: Any) -> Any:
        if isinstance(a, Special) or isinstance(b, Special):
            return a * b.inverse() if isinstance(b, Special) else a * b.sign()
        if b.sign() == 0:
            side = a.sign()
            if side is None:
                raise Unsettled
            return INFINITY * side
        return a / b

    def remainder(self, a: Any, b: Any) -> Any:
        quotient = self.divide(a, b)
        if isinstance(quotient, Special) or isinstance(b, Special):
            raise Unsettled
        whole = enclosure.floor(quotient) if quotient >= 0 else enclosure.ceil(quotient)
        return a - b * whole

    def power(self, a: Any, b: Any) -> Any:
        if isinstance(a, Special) or isinstance(b, Special):
            raise Unsettled
        if b.lower == b.upper and b.lower.denominator == 1 and abs(b.lower) < 1 << 16:
            return a ** int(b.lower) if b.lower >= 0 else self.divide(self.number(1), a ** -int(b.lower))
        return enclosure.power(a, b)

    def cast(self, value: Any, dtype: str) -> Any:
        return value

    def softmax(self, scores: list[Any]) -> list[Any]:
        if any(isinstance(score, Special) for score in scores):
            return self._with_infinities(scores)
        if self.wide:
            return [1 / self.total([enclosure.exp(other - score) for other in _but(scores, at)] + [self.number(1)])
                    for at, score in enumerate(scores)]  # fmt: skip
        top = max(score.upper for score in scores)
        raised = [enclosure.exp(score - top) for score in scores]
        whole = self.total(raised)
        return [part / whole for part in raised]

    def _with_infinities(self, scores: list[Any]) -> list[Any]:
        finite = [score for score in scores if not isinstance(score, Special)]
        if not finite or any(score is UNDEFINED or score is INFINITY for score in scores):
            return [UNDEFINED] * len(scores)
        found = iter(self.softmax(finite))
        return [self.number(0) if isinstance(score, Special) else next(found) for score in scores]

    def log_softmax(self, scores: list[Any]) -> list[Any]:
        return [self.functions["log"](weight) for weight in self.softmax(scores)]


def _but(items: list[Any], at: int) -> list[Any]:
    return items[:at] + items[at + 1 :]


class Rounded(Evaluation):
    """An evaluation in which a figure that was marked as printed is anything that rounds to it."""

    def stage(self, expr: ir.Expr) -> Stage:
        if isinstance(expr, ir.Const) and expr.rounding is not None:
            value = Fraction(expr.value)
            interval = Interval.between(value - expr.rounding, value + expr.rounding, self.numbers.bits)  # type: ignore[attr-defined]
            return lambda point: interval
        return super().stage(expr)
