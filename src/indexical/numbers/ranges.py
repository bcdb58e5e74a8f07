"""Intervals as the evaluator's numbers: what is certain of a value whose inputs are only known within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from ..ir import nodes as ir
from ..ir.formulas import evaluated
from ..ir.functions import FUNCTIONS, registered
from ..ir.whole import LARGEST
from ..run.reference import Evaluation
from ..run.tables import Stage
from ..run.wholes import Point, checked
from . import enclosure, functions
from .interval import Interval, Unsettled
from .moved import Moved, applied, larger
from .tower import INFINITY, UNDEFINED, Special

# So many printed figures are followed through an evaluation.
MOST_FIGURES = 100


def _apart(function: str, enclosed: Callable[..., Interval]) -> Callable[..., Any]:
    """A function of intervals, and of infinities as the exact numbers have it."""

    def apply(*arguments: Any) -> Any:
        if any(isinstance(argument, Special) for argument in arguments):
            return functions.ExactNumbers.functions[function](*arguments)
        if isinstance(arguments[0], Moved):
            return abs(arguments[0]) if enclosed is abs else applied(function, enclosed, arguments[0], _FUNCTIONS)
        return enclosed(*arguments)

    return apply


def _side(value: Any) -> Any:
    """An infinity as it is; of all else, the sign."""
    found = value if isinstance(value, Special) else value.sign()
    if found is None:
        raise Unsettled("it may be of either sign")
    return found


def _sqrt(x: Interval) -> Any:
    return UNDEFINED if x < 0 else enclosure.sqrt(x)


def _rsqrt(x: Interval) -> Any:
    if x.sign() == 0:
        return INFINITY
    return UNDEFINED if x < 0 else enclosure.rsqrt(x)


def _log(x: Interval) -> Any:
    if x.sign() == 0:
        return -INFINITY
    return UNDEFINED if x.sign() == -1 else enclosure.log(x)


def _larger(a: Any, b: Any) -> Any:
    if isinstance(a, Special) or isinstance(b, Special):
        return functions.largest(a, b)
    if not (isinstance(a, Interval) or isinstance(b, Interval)):
        return max(a, b)
    found = enclosure.maximum(a, b)
    return larger(a, b, found) if isinstance(a, Moved) or isinstance(b, Moved) else found


def _smaller(a: Any, b: Any) -> Any:
    return -_larger(-a, -b)


def _by_formula(formula: str) -> Callable[[Interval], Any]:
    """A function that its formula encloses: where `x` stands in it once, as tightly as its parts."""
    return lambda x: evaluated(formula, x, _FUNCTIONS, lambda number: Interval.of(number, x.bits))


_ENCLOSED: dict[str, Callable[..., Any]] = registered(
    "intervals",
    {
        "exp": enclosure.exp,
        "log": _log,
        "sqrt": _sqrt,
        "rsqrt": _rsqrt,
        "tanh": enclosure.tanh,
        "sigmoid": enclosure.sigmoid,
        "relu": enclosure.relu,
        "gelu": enclosure.gelu,
        "silu": enclosure.silu,
        "abs": abs,
        "sin": enclosure.sin,
        "cos": enclosure.cos,
        "erf": enclosure.erf,
        "floor": enclosure.floor,
        "ceil": enclosure.ceil,
        "round": enclosure.round_even,
        "clamp": lambda x, low, high: _smaller(_larger(x, low), high),
        "max": lambda *values: reduce(_larger, values),
        "min": lambda *values: reduce(_smaller, values),
    },
    _by_formula,
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: _apart(name, enclosed) if FUNCTIONS[name].arity == 1 else enclosed for name, enclosed in _ENCLOSED.items()
}


class Ranges:
    """Intervals of so many bits. `wide` bounds a softmax as tightly as its scores allow, at more cost."""

    infinity = INFINITY
    nan = UNDEFINED

    functions: Mapping[str, Callable[..., Any]] = _FUNCTIONS

    def __init__(self, bits: int, wide: bool = False) -> None:
        self.bits, self.wide = bits, wide
        self.radii: dict[int, Fraction] = {}
        self.pi = enclosure.pi(bits)

    def number(self, value: Any) -> Any:
        return Interval.of(value, self.bits) if isinstance(value, int | Fraction) else value

    def total(self, values: list[Any]) -> Any:
        return sum(values, Interval.of(0, self.bits))

    def divide(self, a: Any, b: Any) -> Any:
        if isinstance(a, Special) or isinstance(b, Special) or b.sign() == 0:
            # Only the signs count here, as for the exact numbers.
            return self.number(functions.ExactNumbers().divide(_side(a), _side(b)))
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
        if isinstance(a, Moved) or isinstance(b, Moved):
            return self.functions["exp"](self.functions["log"](a) * b)
        return enclosure.power(a, b)

    def cast(self, value: Any, dtype: str) -> Any:
        return value

    def softmax(self, scores: list[Any]) -> list[Any]:
        if any(isinstance(score, Special) for score in scores):
            return self._with_infinities(scores)
        if self.wide:
            exp = self.functions["exp"]
            return [1 / self.total([exp(other - score) for other in _but(scores, at)] + [self.number(1)])
                    for at, score in enumerate(scores)]  # fmt: skip
        top = max((score.upper for score in scores), default=0)
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


class Enclosed(Evaluation):
    """An evaluation by intervals. One that becomes a whole number has to lie between two of them; of several, one is
    the largest, or comes before another, where it is so for certain."""

    def stage(self, expr: ir.Expr) -> Stage:
        found = super().stage(expr)
        match expr:
            case ir.Map(op) if op.startswith("as ") and expr.type.kind == "whole":
                return self._truncated(expr, found)
            case _:
                return found

    def _truncated(self, expr: ir.Map, otherwise: Stage) -> Stage:
        argument = self.compiled(expr.arguments[0])

        def truncated(point: Point) -> Any:
            value = argument(point)
            if not isinstance(value, Interval):
                return otherwise(point)
            low, high = math.trunc(value.lower), math.trunc(value.upper)
            if low != high:
                raise Unsettled("it may be either of two whole numbers")
            return checked(low, expr, point, 2**31 - 1 if expr.op == "as i32" else LARGEST)

        return truncated

    def exceeds(self, one: Any, other: Any) -> bool:
        """Whether one is larger for certain."""
        if isinstance(one, Special) or isinstance(other, Special):
            left, right = (x.side if isinstance(x, Special) else 0 for x in (one, other))
            return left > right
        return bool(one > other)

    def is_undefined(self, value: Any) -> bool:
        return value is UNDEFINED


class Rounded(Enclosed):
    """An evaluation in which a figure that was marked as printed is anything that rounds to it.

    Of the first figures it is known how they move each value; the others move wherever they are used.
    """

    def stage(self, expr: ir.Expr) -> Stage:
        if isinstance(expr, ir.Const) and expr.rounding is not None:
            value, bits = Fraction(expr.value), self.numbers.bits  # type: ignore[attr-defined]
            radii: dict[int, Fraction] = self.numbers.radii  # type: ignore[attr-defined]
            if len(radii) < MOST_FIGURES:
                number = len(radii)
                radii[number] = expr.rounding
                figure: Interval = Moved.figure(number, value, radii, bits)
            else:
                figure = Interval.between(value - expr.rounding, value + expr.rounding, bits)
            return lambda point: figure
        return super().stage(expr)
