"""Decimals of which every digit is proven."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .tower import Number, Special, Undecidable, compare, refined


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
        low, high = _rounded(interval.lower, digits), _rounded(interval.upper, digits)
        if low == high:
            return _written(*low, digits)
        if interval.width * 2 ** (3 * digits) < abs(interval.lower):
            return _beside_half(value, low, high, digits)
    raise Undecidable


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
    text = str(abs(significand))
    point = len(text) + exponent
    if -5 < point <= max(digits, 6):
        if point <= 0:
            return f"{sign}0.{'0' * -point}{text}"
        text = text.ljust(point, "0")
        return sign + (text[:point] + "." + text[point:] if point < len(text) else text)
    tail = f".{text[1:]}" if len(text) > 1 else ""
    return f"{sign}{text[0]}{tail}e{point - 1:+d}"
