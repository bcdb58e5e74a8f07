"""Decimals of which every digit is proven."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from . import enclosure
from .interval import Interval
from .series import divided, whole_text
from .tower import Number, Special, Undecidable, compare, refined

# In bits: a number with a longer exponent than this is scaled by a power of ten first.
_LONGEST_FRACTION = 20_000


def decimal(value: Any, digits: int) -> str:
    """A number to so many significant digits, correctly rounded: the nearest such decimal, halves to even.

    `Undecidable` where named terms leave open on which side of a half the number lies.
    """
    if isinstance(value, Special):
        return repr(value)
    if not isinstance(value, Number):
        return _written(*_rounded(value.numerator, value.denominator, digits), digits) if value else "0"
    if value.is_zero() is None and value == 0:
        return "0"
    for interval in refined(value, bits=max(64, digits * 10 // 3 + 40)):
        if interval.sign() is None:
            continue
        near, scale = _scaled(interval)
        low, high = ((n, k + scale) for n, k in (_of_end(near, end, digits) for end in (near.low, near.high)))
        if low == high:
            return _written(*low, digits)
        # Less than 10^-digits apart, relative to their size, they are neighbours.
        size = min(abs(near.low), abs(near.high)).bit_length()
        if not scale and (near.high - near.low).bit_length() + 4 * digits + 64 < size:
            return _beside_half(value, low, high, digits)
    raise Undecidable


def ends(interval: Interval, digits: int) -> tuple[str, str]:
    """Both ends, each rounded to so many digits."""
    near, scale = _scaled(interval)
    found = [(_of_end(near, end, digits) if end else None) for end in (near.low, near.high)]
    low, high = ("0" if end is None else _written(end[0], end[1] + scale, digits) for end in found)
    return low, high


def _scaled(interval: Interval) -> tuple[Interval, int]:
    """A number over a power of ten, and that: so it is not too large or small to be written as a fraction."""
    scale = _scale(interval)
    return (interval / Interval.of(10, interval.bits) ** scale if scale else interval), scale


def _of_end(interval: Interval, end: int, digits: int) -> tuple[int, int]:
    exponent = interval.exponent
    return _rounded(end << exponent, 1, digits) if exponent >= 0 else _rounded(end, 1 << -exponent, digits)


def _scale(interval: Interval) -> int:
    """A power of ten near a number that is too large or too small to be written as a fraction; else 0."""
    length = interval.exponent + max(abs(interval.low), abs(interval.high)).bit_length()
    if abs(length) <= _LONGEST_FRACTION:
        return 0
    bits = length.bit_length() + 16
    scale = length * enclosure.log_two(bits) / enclosure.log(Interval.of(10, bits))
    return scale.low << scale.exponent if scale.exponent >= 0 else scale.low >> -scale.exponent


def _beside_half(value: Any, low: tuple[int, int], high: tuple[int, int], digits: int) -> str:
    """Between two neighbouring decimals, and very near the middle: it is compared with the middle itself."""
    middle = sum((n * Fraction(10) ** k for n, k in (low, high)), Fraction(0)) / 2
    side = compare(value, middle)
    if side == 0:
        return _written(*_rounded(middle.numerator, middle.denominator, digits), digits)
    return _written(*(low if side == -1 else high), digits)


def _rounded(above: int, below: int, digits: int) -> tuple[int, int]:
    """`(n, k)`: the decimal `n · 10^k` with so many digits that is nearest to `above / below`, which is not 0."""
    size = abs(above)
    # The place of the last digit: from the lengths in bits it is known to two places, and never too far left.
    exponent = (size.bit_length() - below.bit_length() - 1) * 30103 // 100000 - digits + 1
    while True:
        top, bottom = (size * 10**-exponent, below) if exponent <= 0 else (size, below * 10**exponent)
        significand = _nearest(top, bottom)
        if significand < 10**digits:
            return (significand if above > 0 else -significand), exponent
        exponent += 1


def _nearest(top: int, bottom: int) -> int:
    """The whole number nearest to a quotient; of two, the even one."""
    dyadic = bottom & (bottom - 1) == 0
    whole = top >> (bottom.bit_length() - 1) if dyadic else divided(top, bottom)
    twice = 2 * (top - whole * bottom)
    return whole + (twice > bottom or (twice == bottom and whole % 2))


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
