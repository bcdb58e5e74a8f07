"""Intervals with integer ends that certainly contain a real number, at any precision.

Below, a mantissa shifted right is rounded down: `m >> s`. Rounded up it is `-(-m >> s)`. A number in fixed point is an
integer that counts units of 2^-places; "unit" in a comment is that.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

# A mantissa may be this much longer than `bits` before it is shortened: sums then seldom need to be.
SLACK = 16
# The ends as fractions: of a number nearer to 0 than about 2^-FINEST they are rounded outward, and above 2^LARGEST
# there is no upper one. (A mask of -1e9 makes a weight of 2^-1442695040.)
FINEST = 1 << 16
LARGEST = 1 << 24


class Unsettled(Exception):
    """The enclosure is too wide to answer; more bits may."""


class Interval:
    """A real number between `low`·2^`exponent` and `high`·2^`exponent`, the ends included; `low <= high`.

    Operations round outward, to about `bits` bits of the end that is larger in magnitude: beside it, the other end may
    become 0. Of two operands, the larger `bits` counts. An `int` or `Fraction` stands for an interval around it. An
    `Interval` is never changed.
    """

    __slots__ = ("bits", "exponent", "high", "low")

    def __init__(self, low: int, high: int, exponent: int, bits: int) -> None:
        self.low = low
        self.high = high
        self.exponent = exponent
        self.bits = bits

    @staticmethod
    def of(value: int | Fraction, bits: int) -> Interval:
        """One point if the value has a mantissa that fits, and otherwise its two neighbours."""
        if isinstance(value, int):
            return shortened(value, value, 0, bits)
        top, bottom = value.numerator, value.denominator
        if bottom & (bottom - 1) == 0:
            return shortened(top, top, 1 - bottom.bit_length(), bits)
        shift = bits + SLACK + bottom.bit_length() - top.bit_length()
        low = (top << shift) // bottom if shift >= 0 else top // (bottom << -shift)
        return Interval(low, low + 1, -shift, bits)  # Never exact here: the denominator has an odd factor.

    @staticmethod
    def between(low: Fraction, high: Fraction, bits: int) -> Interval:
        if low > high:
            raise ValueError(f"no number is between {low} and {high}")
        return hull(Interval.of(low, bits), Interval.of(high, bits))

    def __repr__(self) -> str:
        return f"Interval({self.low}, {self.high}, {self.exponent}, {self.bits})"

    @property
    def lower(self) -> Fraction:
        """The lower end, or a number below it where that is too long to be written out."""
        return self._fraction(self.low)

    @property
    def upper(self) -> Fraction:
        """The upper end, or a number above it where that is too small to be written out."""
        return -self._fraction(-self.high)

    @property
    def width(self) -> Fraction:
        """The distance of the ends, or a number above it where that is too small to be written out."""
        return -self._fraction(self.low - self.high)

    def _fraction(self, mantissa: int) -> Fraction:
        """A mantissa with the exponent of this, rounded down to a multiple of 2^-(FINEST + 4·bits)."""
        exponent = self.exponent
        if mantissa.bit_length() + exponent > LARGEST:
            if mantissa > 0:
                return Fraction(1 << LARGEST - 1)
            raise OverflowError(f"it is above 2^{LARGEST}")
        coarser = -exponent - FINEST - 4 * self.bits
        if coarser > 0:
            mantissa, exponent = mantissa >> coarser, exponent + coarser
        return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)

    def sign(self) -> int | None:
        """None where it is not known. 0 only for the one point 0."""
        if self.low > 0:
            return 1
        if self.high < 0:
            return -1
        return None if self.low or self.high else 0

    def contains(self, value: Number) -> bool:
        low, high, exponent, bottom = ends(value)
        above = order(self.low * bottom, self.exponent, low, exponent) <= 0
        return above and order(self.high * bottom, self.exponent, high, exponent) >= 0

    def __add__(self, other: Number) -> Interval:
        if not isinstance(other, Interval):
            if not isinstance(other, (int, Fraction)):
                return NotImplemented
            other = Interval.of(other, self.bits)
        bits = self.bits if self.bits >= other.bits else other.bits
        exponent = other.exponent
        gap = self.exponent - exponent
        if 0 <= gap <= bits:
            low = (self.low << gap) + other.low
            high = (self.high << gap) + other.high
        elif -bits <= gap < 0:
            exponent = self.exponent
            low = self.low + (other.low << -gap)
            high = self.high + (other.high << -gap)
        else:
            low, high, other_low, other_high, exponent = aligned(self, other, bits)
            low += other_low
            high += other_high
        # This is `shortened`, here and in the product without the call.
        excess = high.bit_length() - bits
        if low < 0 and low.bit_length() - bits > excess:
            excess = low.bit_length() - bits
        if excess > SLACK:
            return Interval(low >> excess, -(-high >> excess), exponent + excess, bits)
        return Interval(low, high, exponent, bits)

    def __mul__(self, other: Number) -> Interval:
        if not isinstance(other, Interval):
            if not isinstance(other, (int, Fraction)):
                return NotImplemented
            other = Interval.of(other, self.bits)
        bits = self.bits if self.bits >= other.bits else other.bits
        a, b, c, d = self.low, self.high, other.low, other.high
        # Of the four products of ends, the two that the signs leave.
        if a >= 0:
            low, high = (a if c >= 0 else b) * c, (b if d >= 0 else a) * d
        elif b <= 0:
            low, high = (a if d >= 0 else b) * d, (b if c >= 0 else a) * c
        else:
            low, high = min(a * d, b * c), max(a * c, b * d)
        exponent = self.exponent + other.exponent
        excess = high.bit_length() - bits
        if low < 0 and low.bit_length() - bits > excess:
            excess = low.bit_length() - bits
        if excess > SLACK:
            return Interval(low >> excess, -(-high >> excess), exponent + excess, bits)
        return Interval(low, high, exponent, bits)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, self.exponent, self.bits)

    def __sub__(self, other: Number) -> Interval:
        return self + -other

    def __rsub__(self, other: int | Fraction) -> Interval:
        return -self + other

    def __truediv__(self, other: Number) -> Interval:
        if not isinstance(other, Interval):
            if not isinstance(other, (int, Fraction)):
                return NotImplemented
            other = Interval.of(other, self.bits)
        if other.low <= 0 <= other.high:
            raise Unsettled("the divisor may be 0")
        if other.high < 0:
            return -self / -other
        bits = max(self.bits, other.bits)
        low, high, small, large = self.low, self.high, other.low, other.high
        shift = max(0, bits + SLACK + large.bit_length() - max(low.bit_length(), high.bit_length()))
        # A quotient is lowest with the large divisor where it is positive, and with the small one where not.
        low = (low << shift) // (large if low >= 0 else small)
        high = -((-high << shift) // (small if high >= 0 else large))
        return shortened(low, high, self.exponent - other.exponent - shift, bits)

    def __rtruediv__(self, other: int | Fraction) -> Interval:
        if not isinstance(other, (int, Fraction)):
            return NotImplemented
        return Interval.of(other, self.bits) / self

    def __abs__(self) -> Interval:
        if self.low >= 0:
            return self
        return -self if self.high <= 0 else Interval(0, max(-self.low, self.high), self.exponent, self.bits)

    def __pow__(self, power: int) -> Interval:
        """An even power is never negative. The power 0 is 1, of 0 too."""
        if not isinstance(power, int):
            return NotImplemented
        if power < 0:
            return 1 / self**-power
        if power % 2 and self.low < 0 < self.high:
            below, above = (Interval(0, end, self.exponent, self.bits) for end in (-self.low, self.high))
            return hull(-(below**power), above**power)
        base = self if power % 2 else abs(self)
        bits = self.bits + power.bit_length() + 4  # Each factor brings a rounding of its own.
        base = Interval(base.low, base.high, base.exponent, bits)
        result = Interval(1, 1, 0, bits)
        for digit in f"{power:b}":
            result = result * result
            if digit == "1":
                result = result * base
        return shortened(result.low, result.high, result.exponent, self.bits)

    def _orders(self, other: Number) -> tuple[int, int]:
        """Compare the upper end with the other's lower end, and the lower end with the other's upper: -1, 0 or 1."""
        low, high, exponent, bottom = ends(other)
        return (
            order(self.high * bottom, self.exponent, low, exponent),
            order(self.low * bottom, self.exponent, high, exponent),
        )

    def __lt__(self, other: Number) -> bool:
        if not isinstance(other, (Interval, int, Fraction)):
            return NotImplemented
        upper, lower = self._orders(other)
        return _settle(upper < 0, lower >= 0)

    def __le__(self, other: Number) -> bool:
        if not isinstance(other, (Interval, int, Fraction)):
            return NotImplemented
        upper, lower = self._orders(other)
        return _settle(upper <= 0, lower > 0)

    def __gt__(self, other: Number) -> bool:
        if not isinstance(other, (Interval, int, Fraction)):
            return NotImplemented
        upper, lower = self._orders(other)
        return _settle(lower > 0, upper <= 0)

    def __ge__(self, other: Number) -> bool:
        if not isinstance(other, (Interval, int, Fraction)):
            return NotImplemented
        upper, lower = self._orders(other)
        return _settle(lower >= 0, upper < 0)

    def __eq__(self, other: object) -> bool:
        """True only for the same single point. There is no hash: equality may not be known."""
        if not isinstance(other, (Interval, int, Fraction)):
            return NotImplemented
        upper, lower = self._orders(other)
        return _settle(upper == lower == 0, upper < 0 or lower > 0)


Number: TypeAlias = Interval | int | Fraction


def _settle(certain: bool, impossible: bool) -> bool:
    if not certain and not impossible:
        raise Unsettled("the two enclosures overlap")
    return certain


def serves(found: tuple[int, Interval], bits: int) -> bool:
    """Whether an enclosure that was computed with so many bits does for these: it is as tight, and not far longer."""
    return bits <= found[0] <= 4 * bits + 256


NOT_YET = (0, Interval(0, 0, 0, 1))


def ends(value: Number) -> tuple[int, int, int, int]:
    """The mantissas and the exponent, over a denominator: a fraction is compared exactly."""
    if isinstance(value, Interval):
        return value.low, value.high, value.exponent, 1
    return value.numerator, value.numerator, 0, value.denominator


def order(left: int, left_exponent: int, right: int, right_exponent: int) -> int:
    """The sign of left·2^left_exponent - right·2^right_exponent."""
    sign = (left > 0) - (left < 0)
    if sign == 0 or (right > 0) - (right < 0) != sign:
        return (left > right) - (left < right)
    # Magnitudes first, so that a shift is never longer than a mantissa.
    longer = left.bit_length() + left_exponent - right.bit_length() - right_exponent
    if longer:
        return sign if longer > 0 else -sign
    gap = left_exponent - right_exponent
    left, right = (left << gap, right) if gap >= 0 else (left, right << -gap)
    return (left > right) - (left < right)


def shortened(low: int, high: int, exponent: int, bits: int) -> Interval:
    excess = max(low.bit_length(), high.bit_length()) - bits
    if excess > SLACK:
        return Interval(low >> excess, -(-high >> excess), exponent + excess, bits)
    return Interval(low, high, exponent, bits)


def aligned(a: Interval, b: Interval, bits: int) -> tuple[int, int, int, int, int]:
    """The ends of both, on one exponent. Where they are so far apart that the smaller cannot be seen beside the
    larger, it is rounded outward."""
    gap = a.exponent - b.exponent
    if gap < 0:
        b_low, b_high, a_low, a_high, exponent = aligned(b, a, bits)
        return a_low, a_high, b_low, b_high, exponent
    if a.low == a.high == 0:
        return 0, 0, b.low, b.high, b.exponent
    coarser = max(0, gap - 2 * bits - 64)
    gap -= coarser
    return a.low << gap, a.high << gap, b.low >> coarser, -(-b.high >> coarser), b.exponent + coarser


def hull(a: Interval, b: Interval) -> Interval:
    """From the lower end of the one to the upper end of the other."""
    bits = max(a.bits, b.bits)
    low, _, _, high, exponent = aligned(a, b, bits)
    return shortened(low, high, exponent, bits)
