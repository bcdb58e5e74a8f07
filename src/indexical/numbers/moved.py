"""Intervals that know how each printed figure moves them.

A figure that is used twice moves once. Beside its range, a value has its value for the figures as printed, and for each
figure a slope: an interval in which its change lies, per change of the figure. What the slopes allow and what the
operands allow are both true, so that the range is what they have in common.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from ..ir.formulas import read
from ..ir.functions import FUNCTIONS
from .interval import Interval, Unsettled, hull, order

# Constants such as 2·pi stand in formulas of slopes to 16 digits.
_SLOPE_BITS = 40


class Moved(Interval):
    """The range of a value, the value at `center`, and its slopes by the number of the figure.

    `radii` are the figures' roundings, which all values of one evaluation share.
    """

    __slots__ = ("center", "radii", "slopes")

    def __init__(
        self, whole: Interval, center: Interval, slopes: dict[int, Interval], radii: Mapping[int, Fraction]
    ) -> None:
        reach = center
        for figure, slope in slopes.items():
            reach = reach + slope * _around(radii[figure], center.bits)
        found = _common(whole, reach)
        super().__init__(found.low, found.high, found.exponent, found.bits)
        self.center, self.slopes, self.radii = center, slopes, radii

    @staticmethod
    def figure(number: int, value: Fraction, radii: Mapping[int, Fraction], bits: int) -> Moved:
        """A figure as printed, anywhere within its rounding."""
        radius = radii[number]
        whole = Interval.between(value - radius, value + radius, bits)
        return Moved(whole, Interval.of(value, bits), {number: Interval.of(1, bits)}, radii)

    @property
    def whole(self) -> Interval:
        return Interval(self.low, self.high, self.exponent, self.bits)

    def __neg__(self) -> Moved:
        return Moved(-self.whole, -self.center, {k: -slope for k, slope in self.slopes.items()}, self.radii)

    def __abs__(self) -> Interval:
        sign = self.sign()
        if sign is not None:
            return -self if sign < 0 else self
        either = Interval.between(Fraction(-1), Fraction(1), self.bits)
        return self._mapped(abs(self.whole), abs(self.center), either)

    def __add__(self, other: Any) -> Any:
        b = _read(other, self.bits)
        if b is None:
            return NotImplemented
        slopes = {k: _sum(x, y) for k, x, y in self._pairs(b)}
        return Moved(self.whole + _whole(b), self.center + _center(b), slopes, self.radii)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        b = _read(other, self.bits)
        if b is None:
            return NotImplemented
        # a·b - a'·b' is a·(b - b') + (a - a')·b', with ' for the value at the center; and so with a and b exchanged.
        # Either is true of all slopes at once, and the better one is taken.
        pairs = list(self._pairs(b))
        ways = (
            {k: _sum(_times(left, y), _times(right, x)) for k, x, y in pairs}
            for left, right in ((self.whole, _center(b)), (self.center, _whole(b)))
        )
        found = [Moved(self.whole * _whole(b), self.center * _center(b), slopes, self.radii) for slopes in ways]
        return min(found, key=lambda way: way.width)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        b = _read(other, self.bits)
        if b is None:
            return NotImplemented
        center = self.center / _center(b)
        # a/b - a'/b' is ((a - a') - a'/b'·(b - b')) / b.
        slopes = {k: _sum(x, _times(-center, y)) / _whole(b) for k, x, y in self._pairs(b)}
        return Moved(self.whole / _whole(b), center, slopes, self.radii)

    def __rtruediv__(self, other: Any) -> Any:
        b = _read(other, self.bits)
        return NotImplemented if b is None else Moved(b, _center(b), {}, self.radii) / self

    def __pow__(self, power: int) -> Any:
        if power < 0:
            return 1 / self**-power
        if power < 2:
            return self if power else Interval.of(1, self.bits)
        # x² - c² is (x + c)·(x - c); of higher powers, the slope is a derivative somewhere between.
        slope = self.whole + self.center if power == 2 else self.whole ** (power - 1) * power
        return self._mapped(self.whole**power, self.center**power, slope)

    def _pairs(self, other: Interval) -> Iterator[tuple[int, Interval | None, Interval | None]]:
        others = other.slopes if isinstance(other, Moved) else {}
        for figure in self.slopes.keys() | others.keys():
            yield figure, self.slopes.get(figure), others.get(figure)

    def _mapped(self, whole: Interval, center: Interval, slope: Interval) -> Moved:
        """A function of this, by its slope between the center and wherever this is."""
        return Moved(whole, center, {k: slope * own for k, own in self.slopes.items()}, self.radii)


def applied(function: str, enclosed: Callable[..., Any], x: Moved, functions: Mapping[str, Callable[..., Any]]) -> Any:
    """A function of one argument; without slopes where it has none."""
    whole = enclosed(x.whole)
    if not isinstance(whole, Interval):
        return whole
    with suppress(Unsettled, ValueError, OverflowError):
        center, slope = enclosed(x.center), _slope(function, x.whole, whole, functions)
        if isinstance(center, Interval) and slope is not None:
            return x._mapped(whole, center, slope)
    return whole


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "neg": operator.neg,
}


def _slope(function: str, x: Interval, y: Interval, functions: Mapping[str, Callable[..., Any]]) -> Interval | None:
    """The range of a derivative over a range, by the table of functions; None for one that jumps."""
    row = FUNCTIONS[function]
    if row.slope is None or row.slope == "0":
        return None

    def evaluated(formula: str) -> Interval:
        known = {**functions, **_ARITHMETIC}
        found = read(formula, {"x": x, "y": y}, lambda n: Interval.of(n, x.bits), lambda op, values: known[op](*values))
        if not isinstance(found, Interval):
            raise Unsettled("it has no slope there")
        off = abs(found)
        return found + Interval(-off.high, off.high, off.exponent - _SLOPE_BITS, x.bits)

    if isinstance(row.slope, str):
        return evaluated(row.slope)
    # Each formula under its condition, and 0 elsewhere: what is between them is possible where it is not known.
    result = Interval.of(0, x.bits)
    for formula, _ in row.slope:
        result = hull_of(result, evaluated(formula))
    return result


def larger(a: Any, b: Any, enclosed: Interval) -> Any:
    """The larger of two, at least one of them moved, whose range is enclosed: its slope is between theirs."""
    first, second = (a, b) if isinstance(a, Moved) else (b, a)
    other = _read(second, first.bits)
    if other is None:
        return enclosed
    centers = (first.center, _center(other))
    center = hull_of(*centers)
    with suppress(Unsettled):
        center = centers[0] if centers[0] >= centers[1] else centers[1]
    zero = Interval.of(0, first.bits)
    slopes = {k: hull_of(x or zero, y or zero) for k, x, y in first._pairs(other)}
    return Moved(enclosed, center, slopes, first.radii)


def _around(radius: Fraction, bits: int) -> Interval:
    return Interval.between(-radius, radius, bits)


def _read(value: Any, bits: int) -> Interval | None:
    if isinstance(value, Interval):
        return value
    return Interval.of(value, bits) if isinstance(value, int | Fraction) else None


def _whole(value: Interval) -> Interval:
    return value.whole if isinstance(value, Moved) else value


def _center(value: Interval) -> Interval:
    return value.center if isinstance(value, Moved) else value


def _times(factor: Interval, slope: Interval | None) -> Interval | None:
    return None if slope is None else factor * slope


def _sum(a: Interval | None, b: Interval | None) -> Interval:
    if a is None or b is None:
        found = a if b is None else b
        assert found is not None
        return found
    return a + b


def hull_of(a: Interval, b: Interval) -> Interval:
    """From the lower of the lower ends to the higher of the upper ones."""
    low = a if order(a.low, a.exponent, b.low, b.exponent) <= 0 else b
    high = a if order(a.high, a.exponent, b.high, b.exponent) >= 0 else b
    return hull(low, high)


def _common(a: Interval, b: Interval) -> Interval:
    """The intersection of two enclosures of one number."""
    low = a if order(a.low, a.exponent, b.low, b.exponent) >= 0 else b
    high = a if order(a.high, a.exponent, b.high, b.exponent) <= 0 else b
    return hull(low, high)
