"""Series of very many digits, by binary splitting: their terms are added in pairs, so that long numbers meet long ones.

Python's product of long whole numbers is quicker than its quotient, its root and its text: those are made of products.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from .interval import Interval, shortened

# In bits: below this Python's own quotient, root and text are quicker.
_LONG = 20_000
# In bits: an exponent with a longer numerator or denominator is no short one.
SHORT = 64


def divided(above: int, below: int) -> int:
    """`above // below` for a positive divisor."""
    if below.bit_length() < _LONG or above.bit_length() - below.bit_length() < _LONG:
        return above // below
    if above < 0:
        return -1 - divided(-above - 1, below)
    # A quotient of so many bits needs no more of the divisor: the rest of it moves the quotient by less than 1.
    extra = below.bit_length() - (above.bit_length() - below.bit_length() + 2)
    short = (below >> extra) + 1 if extra > 0 else below
    length = short.bit_length()
    places = above.bit_length() - max(0, extra) + 2
    result = ((above >> max(0, extra)) * _reciprocal(short, places - length) >> places) if places > length else 0
    rest = above - result * below
    while rest < 0 or rest >= below:
        step = rest // below if abs(rest).bit_length() - below.bit_length() < _LONG else 0
        assert step, "a quotient by Newton's method is off by much"
        result, rest = result + step, rest - step * below
    return result


def _reciprocal(value: int, bits: int) -> int:
    """`2^(length + bits) / value`, where `length` is that of the value in bits; it is off by a few units."""
    length = value.bit_length()
    if bits < _LONG:
        extra = max(0, length - bits - 8)
        return (1 << (length - extra + bits)) // ((value >> extra) + (extra > 0))
    half = bits // 2 + 8
    guess = _reciprocal(value, half)
    # Newton: guess·(2 - value·guess), which doubles the digits that are right.
    extra = max(0, length - bits - 8)
    short = value >> extra
    error = (1 << (length - extra + half)) - short * guess
    return (guess << (bits - half)) + (guess * error >> (length - extra + 2 * half - bits))


def exp_of(x: Fraction, bits: int) -> Interval:
    """e^x for |x| < 64, by `Σ xⁿ/n!` at x / 2^halvings, at most 1 in magnitude."""
    halvings = max(0, abs(x.numerator).bit_length() - x.denominator.bit_length() + 1)
    places = bits + halvings + 16
    above, below = x.numerator, x.denominator << halvings
    # |x|ⁿ/n! falls below 2^-places: the terms that are left out are then less than one unit together.
    count, size = 1, 0.0
    smaller = max(0, below.bit_length() - abs(above).bit_length() - 1)
    while size < places + 2:
        count += 1
        size += smaller + count.bit_length() - 1
    _, bottom, top = _split_exp(above, below, 0, count)
    total = (1 << places) + divided(top << places, bottom)
    result = shortened(total - 1, total + 2, -places, places)
    for _ in range(halvings):
        result = result * result
    return shortened(result.low, result.high, result.exponent, bits)


def _split_exp(above: int, below: int, first: int, last: int) -> tuple[int, int, int]:
    """`(p, q, t)` for the terms after `first` up to `last`: their sum is t/q, in units of the term `first`; p/q is the
    last of them."""
    if last - first == 1:
        return above, below * last, above
    middle = (first + last) // 2
    p, q, t = _split_exp(above, below, first, middle)
    p2, q2, t2 = _split_exp(above, below, middle, last)
    return p * p2, q * q2, t * q2 + p * t2


@lru_cache(maxsize=8)
def pi(bits: int) -> Interval:
    """By the series of the brothers Chudnovsky: 47 bits a term.

    1/π = 12/640320^(3/2)·Σ (-1)ⁿ·(6n)!·(13591409 + 545140134·n) / ((3n)!·n!³·640320^(3n)).
    """
    places = bits + 32
    count = places // 47 + 2
    _, bottom, top = _split_pi(0, count)
    # The terms alternate and fall by 2^-47 each, so the sum is off by less than the first that is left out.
    root = isqrt(10005 << 2 * places)
    value = divided(426880 * root * bottom, top)
    return Interval((value >> 24) - 1, (value >> 24) + 2, 24 - places, bits)


def _split_pi(first: int, last: int) -> tuple[int, int, int]:
    """`(p, q, t)` for the terms from `first` to before `last`, as for the exponential."""
    if last - first == 1:
        if first == 0:
            return 1, 1, 13591409
        p = -(6 * first - 5) * (2 * first - 1) * (6 * first - 1)
        return p, 10939058860032000 * first**3, p * (13591409 + 545140134 * first)
    middle = (first + last) // 2
    p, q, t = _split_pi(first, middle)
    p2, q2, t2 = _split_pi(middle, last)
    return p * p2, q * q2, t * q2 + p * t2


# Every digit of a whole number, of any length.
_EXACTLY = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def whole_text(value: int) -> str:
    """A whole number in decimal, of any length."""
    if abs(value).bit_length() <= 12_000:
        return str(value)
    sign = "-" if value < 0 else ""
    return sign + str(_decimal(abs(value), abs(value).bit_length()).to_integral_value(context=_EXACTLY))


def _decimal(value: int, bits: int) -> Decimal:
    """A whole number of at most so many bits, in halves: `decimal` multiplies long numbers quickly."""
    if bits <= 400:
        return Decimal(value)
    half = bits // 2
    low, high = value & ((1 << half) - 1), value >> half
    return _EXACTLY.fma(_decimal(high, bits - half), _power_of_two(half), _decimal(low, half))


@lru_cache(maxsize=256)
def _power_of_two(exponent: int) -> Decimal:
    if exponent <= 400:
        return Decimal(1 << exponent)
    half = _power_of_two(exponent // 2)
    square = _EXACTLY.multiply(half, half)
    return _EXACTLY.add(square, square) if exponent % 2 else square
