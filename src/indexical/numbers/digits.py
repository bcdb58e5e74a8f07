"""Decimals of which every digit is proven."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .interval import Interval
from .tower import Number, Special, Undecidable, compare, refined

# In bits: a number with a longer exponent than this is scaled by a power of ten first.
_LONGEST_FRACTION = 20_000
# In bits: Python writes whole numbers of up to this length at once.
_LONGEST_TEXT = 12_000


def decimal(value: Any, digits: int) -> str:
    """A number to so many significant digits, correctly rounded: the nearest such decimal, halves to even.

    `Undecidable` where named terms leave open on which side of a half the number lies.
    """
    if isinstance(value, Special):
        return repr(value)
    if not isinstance(value, Number):
        return _written(*_rounded(Fraction(value), digits), digits) if value else "0"
    if value.is_zero() is None and value == 0:
        return "0"
    for interval in refined(value, bits=max(64, 4 * digits)):
        if interval.sign() is None:
            continue
        scale = _scale(interval)
        near = interval / Interval.of(10, interval.bits) ** scale if scale else interval
        low, high = ((n, k + scale) for n, k in (_rounded(end, digits) for end in (near.lower, near.upper)))
        if low == high:
            return _written(*low, digits)
        # Less than 16^-digits apart, relative to their size, they are neighbours.
        if near.width * 2 ** (4 * digits + 64) < abs(near.lower):
            return _beside_half(value, low, high, digits)
    raise Undecidable


def _scale(interval: Interval) -> int:
    """A power of ten near a number that is too large or too small to be written as a fraction; else 0."""
    length = interval.exponent + max(abs(interval.low), abs(interval.high)).bit_length()
    return length * 30103 // 100000 if abs(length) > _LONGEST_FRACTION else 0


def _beside_half(value: Any, low: tuple[int, int], high: tuple[int, int], digits: int) -> str:
    """Between two neighbouring decimals, and very near the middle: it is compared with the middle itself."""
    middle = sum((n * Fraction(10) ** k for n, k in (low, high)), Fraction(0)) / 2
    side = compare(value, middle)
    if side == 0:
        return _written(*_rounded(middle, digits), digits)
    return _written(*(low if side == -1 else high), digits)


def _rounded(value: Fraction, digits: int) -> tuple[int, int]:
    """`(n, k)`: the decimal `n · 10^k` with so many digits that is nearest, for a number that is not 0."""
    size = abs(value)
    # The estimate of the leading place from the lengths in bits is off by one at most.
    place = (size.numerator.bit_length() - size.denominator.bit_length()) * 30103 // 100000
    while Fraction(10) ** place > size:
        place -= 1
    while Fraction(10) ** (place + 1) <= size:
        place += 1
    exponent = place - digits + 1
    significand = round(size / Fraction(10) ** exponent)
    if significand == 10**digits:
        significand, exponent = significand // 10, exponent + 1
    return (significand if value > 0 else -significand), exponent


def _written(significand: int, exponent: int, digits: int) -> str:
    """In full where that is readable, else with an exponent of ten."""
    sign = "-" if significand < 0 else ""
    text = whole_text(abs(significand))
    point = len(text) + exponent
    if -5 < point <= max(digits, 6):
        if point <= 0:
            return f"{sign}0.{'0' * -point}{text}"
        text = text.ljust(point, "0")
        return sign + (text[:point] + "." + text[point:] if point < len(text) else text)
    tail = f".{text[1:]}" if len(text) > 1 else ""
    return f"{sign}{text[0]}{tail}e{point - 1:+d}"


def whole_text(value: int) -> str:
    """A whole number in decimal, of any length."""
    if value < 0:
        return f"-{whole_text(-value)}"
    if value.bit_length() <= _LONGEST_TEXT:
        return str(value)
    below = _LONGEST_TEXT // 4
    while 10 ** (2 * below) <= value:
        below *= 2
    above, rest = divmod(value, 10**below)
    return whole_text(above) + whole_text(rest).rjust(below, "0")
