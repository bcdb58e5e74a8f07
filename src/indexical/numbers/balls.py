"""Arrays of real numbers that are known within a radius: midpoints of 64 bits, and how far off each may be.

Every operation bounds its own rounding, and that of the radius: IEEE 754 gives sums, products, quotients and roots to
half a unit, a sum of n terms in any order to n units of the sum of their magnitudes. The exponential is made of these
alone. A radius that is infinite or NaN says that nothing is known. Where `radius` is None, none is kept: the numbers
are plain floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from ..ir.formulas import evaluated
from ..ir.functions import FUNCTIONS
from ..records import dataclass
from .interval import Interval, Unsettled
from .ranges import Ranges
from .tower import Special

Array = np.ndarray[Any, Any]

# Twice the rounding of one operation: the other half covers that of the radius itself.
UNIT = 2.0**-52
# More than the roundings of a radius that is a sum of up to four million terms.
_OUTWARD = 1 + 2.0**-30
# More than what is lost where a result is too small for a float of full precision.
_LEAST = 2.0**-1040

# So many numbers are passed one by one through a function that has no form for whole arrays.
MOST_SINGLY = 20_000


class Unfit(Exception):
    """Something that is not computed with whole arrays."""


@dataclass(frozen=True, slots=True)
class Ball:
    """Real numbers within `radius` of `middle`, element by element; the two broadcast."""

    middle: Array
    radius: Array | None

    def __add__(self, other: Ball) -> Ball:
        spread = _both(self, other, lambda a, b: a + b)
        found = _rounded(self.middle + other.middle, spread)
        if found.radius is None or not np.isinf(found.middle).any():
            return found
        # What is infinite beforehand stays so exactly; a sum that became infinite is not known.
        given = np.isinf(self.middle) | np.isinf(other.middle)
        return Ball(found.middle, np.where(given, spread, found.radius))  # type: ignore[arg-type]

    def __sub__(self, other: Ball) -> Ball:
        return self + -other

    def __mul__(self, other: Ball) -> Ball:
        def spread(a: Array, b: Array) -> Array:
            found: Array = np.abs(self.middle) * b + (np.abs(other.middle) + b) * a
            return found

        return _rounded(self.middle * other.middle, _both(self, other, spread))

    def __truediv__(self, other: Ball) -> Ball:
        middle = self.middle / other.middle

        def spread(a: Array, b: Array) -> Array:
            room = np.abs(other.middle) - b
            found: Array = np.where(room > 0, (a + np.abs(middle) * b) / room, np.inf)
            return found

        return _rounded(middle, _both(self, other, spread))

    def __neg__(self) -> Ball:
        return Ball(-self.middle, self.radius)

    def __abs__(self) -> Ball:
        return Ball(np.abs(self.middle), self.radius)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.middle.shape if self.radius is None else np.broadcast_shapes(self.middle.shape, self.radius.shape)

    def changed(self, change: Callable[[Array], Array]) -> Ball:
        """The same change of places for middles and radii."""
        return Ball(change(self.middle), None if self.radius is None else change(self.radius))

    def spread_out(self) -> Ball:
        """The radii in the shape of the middles."""
        if self.radius is None:
            return self
        return Ball(np.broadcast_to(self.middle, self.shape), np.broadcast_to(self.radius, self.shape))


def _both(one: Ball, other: Ball, spread: Callable[[Array, Array], Array]) -> Array | None:
    return None if one.radius is None or other.radius is None else spread(one.radius, other.radius)


def _rounded(middle: Array, radius: Array | None) -> Ball:
    """A result of one rounding, with what its operands were off by."""
    if radius is None:
        return Ball(middle, None)
    return Ball(middle, (radius + np.abs(middle) * UNIT) * _OUTWARD + _LEAST)


def exactly(numbers: Any, kept: bool) -> Ball:
    """Numbers that floats hold; with radii where these are `kept`."""
    return Ball(np.asarray(numbers, np.float64), np.zeros(()) if kept else None)


def constant(value: int | Fraction, kept: bool) -> Ball:
    """The nearest float to a number, and its distance."""
    try:
        near = np.float64(float(value))
    except OverflowError:
        raise Unfit("a number is too large for a float") from None
    off = abs(Fraction(float(near)) - Fraction(value))
    return Ball(np.asarray(near), np.asarray(float(off) * 2) if kept else None)


# -------------------------------------------------------------------------- sums


def total(ball: Ball, axis: int, kept: bool = False) -> Ball:
    """The sum along an axis, which is `kept` as one point or goes."""
    count, middle = ball.shape[axis], ball.spread_out().middle
    radius = None
    if ball.radius is not None:
        spread = np.broadcast_to(ball.radius, middle.shape).sum(axis, keepdims=kept)
        radius = spread + np.abs(middle).sum(axis, keepdims=kept) * (count * UNIT)
    return _rounded(middle.sum(axis, keepdims=kept), radius)


def running(ball: Ball, axis: int) -> Ball:
    """The sums up to each point of an axis."""
    found = ball.spread_out()
    radius = None
    if found.radius is not None:
        radius = found.radius.cumsum(axis) + np.abs(found.middle).cumsum(axis) * (ball.shape[axis] * UNIT)
    return _rounded(found.middle.cumsum(axis), radius)


def product_sum(one: Ball, other: Ball, multiply: Callable[[Array, Array], Array], count: int) -> Ball:
    """A sum of `count` products, by a function that multiplies and adds arrays of floats."""
    middle = multiply(one.middle, other.middle)
    if one.radius is None or other.radius is None:
        return Ball(middle, None)
    size, far = np.abs(one.middle), np.abs(other.middle)
    radius = multiply(size, np.broadcast_to(other.radius, far.shape) + far * (count * UNIT))
    if one.radius.ndim or one.radius:
        radius = radius + multiply(np.broadcast_to(one.radius, size.shape), far + other.radius)
    return _rounded(middle, radius)


def largest(ball: Ball, axis: int) -> Ball:
    found = ball.spread_out()
    middle = found.middle.max(axis)
    if found.radius is None:
        return Ball(middle, None)
    low, high = (found.middle - found.radius).max(axis), (found.middle + found.radius).max(axis)
    return _rounded(middle, np.maximum(high - middle, middle - low))


def larger(one: Ball, other: Ball) -> Ball:
    radius = _both(one, other, np.maximum)
    return Ball(np.maximum(one.middle, other.middle), radius)


# --------------------------------------------------------------------- functions

# log 2 in two parts, the first of 32 bits: a multiple of it is exact.
_LOG = Fraction("0.693147180559945309417232121458176568")
_LOG_HIGH = float(Fraction(round(_LOG * 2**32), 2**32))
_LOG_LOW = float(_LOG - Fraction(_LOG_HIGH))


def exp(x: Ball) -> Ball:
    """2^k times a polynomial of what is left, which is at most 0.35: eleven roundings that each count for less than the
    last, below eight units in all; the first term left out is below 2^-62."""
    if x.radius is None:
        return Ball(np.exp(x.middle), None)
    k = np.rint(x.middle / float(_LOG))
    rest = (x.middle - k * _LOG_HIGH) - k * _LOG_LOW
    result = np.ones_like(rest)
    for n in range(14, 0, -1):
        result = 1 + result * (rest / n)
    middle = np.ldexp(result, np.clip(np.nan_to_num(k), -5000, 5000).astype(np.int32))
    radius = (middle * (np.expm1(x.radius) * (1 + 2.0**-40) + 8 * UNIT)) * _OUTWARD + _LEAST
    # Below e^-750 nothing is left, however far down: what is masked by a large number may have a large radius.
    none = np.isneginf(x.middle) | (x.middle + x.radius < -750)
    return Ball(np.where(none, 0.0, middle), np.where(none, _LEAST, radius))


def log(x: Ball) -> Ball:
    """A guess, mended by how far its exponential is off."""
    if x.radius is None:
        return Ball(np.log(x.middle), None)
    guess = np.log(x.middle)
    near = x / exp(Ball(guess, np.zeros(())))
    off = np.abs(near.middle - 1) + near.radius
    radius = np.where((x.middle > 0) & (off < 0.25), off * 1.5, np.inf)
    return _rounded(guess, radius)


def sqrt(x: Ball) -> Ball:
    middle = np.sqrt(x.middle)
    if x.radius is None:
        return Ball(middle, None)
    known = (x.middle > x.radius) | ((x.middle == 0) & (x.radius == 0))
    return _rounded(middle, np.where(known, x.radius / np.maximum(middle, _LEAST), np.inf))


def _stepped(step: Callable[[Any], Array]) -> Callable[[Ball], Ball]:
    """A function that jumps: the same for all numbers of each ball, or not known."""

    def apply(x: Ball) -> Ball:
        if x.radius is None:
            return Ball(step(x.middle), None)
        low, high = step(x.middle - x.radius), step(x.middle + x.radius)
        return Ball(low, np.where(low == high, 0.0, np.inf))

    return apply


def _singly(name: str) -> Callable[[Ball], Ball]:
    """A function of one number, number by number: by intervals, or by floats where no radius is kept."""

    def apply(x: Ball) -> Ball:
        found = x.spread_out()
        if found.middle.size > MOST_SINGLY:
            raise Unfit(f"`{name}` of more than {MOST_SINGLY:,} numbers")
        if found.radius is None:
            values = [FUNCTIONS[name].value(value) for value in found.middle.reshape(-1).tolist()]
            return Ball(np.array(values, np.float64).reshape(found.shape), None)
        pairs = [_enclosed(name, *pair) for pair in zip(found.middle.flat, found.radius.flat, strict=True)]
        middle, radius = np.array(pairs, np.float64).reshape(-1, 2).T
        return Ball(middle.reshape(found.shape), radius.reshape(found.shape))

    return apply


def _enclosed(name: str, middle: float, radius: float) -> tuple[float, float]:
    if not np.isfinite(radius) or not np.isfinite(middle):
        return middle, np.inf
    low, high = Fraction(float(middle)) - Fraction(float(radius)), Fraction(float(middle)) + Fraction(float(radius))
    try:
        value = Ranges.functions[name](Interval.between(low, high, 96))
    except Unsettled:
        return 0.0, np.inf
    if isinstance(value, Special):
        return 0.0, np.inf
    near = float((value.lower + value.upper) / 2)
    return near, float(max(value.upper - Fraction(near), Fraction(near) - value.lower)) * (1 + UNIT)


_OWN: dict[str, Callable[..., Ball]] = {
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "rsqrt": lambda x: Ball(np.ones(()), None if x.radius is None else np.zeros(())) / sqrt(x),
    "abs": abs,
    "relu": lambda x: larger(x, Ball(np.zeros(()), None if x.radius is None else np.zeros(()))),
    "max": lambda first, *rest: reduce(larger, rest, first),
    "min": lambda first, *rest: -reduce(larger, [-other for other in rest], -first),
    "clamp": lambda x, low, high: -larger(-larger(x, low), -high),
    "floor": _stepped(np.floor),
    "ceil": _stepped(np.ceil),
    "round": _stepped(np.rint),
}


def function(name: str) -> Callable[..., Ball]:
    """An elementwise function of balls: its own, by its formula, or number by number."""
    if name in _OWN:
        return _OWN[name]
    formula = FUNCTIONS[name].definition
    if formula is None or FUNCTIONS[name].arity != 1:
        return _singly(name)
    return lambda x: evaluated(formula, x, _Functions(), lambda number: constant(number, x.radius is not None))


class _Functions(Mapping[str, Callable[..., Any]]):
    """All functions by their names."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return function(name)

    def __iter__(self) -> Any:
        return iter(FUNCTIONS)

    def __len__(self) -> int:
        return len(FUNCTIONS)
