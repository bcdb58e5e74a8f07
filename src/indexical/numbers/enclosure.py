"""Functions of intervals: each contains the function's value at every point of its argument.

What a function does at one point is a kernel: its argument is one point, whose `bits` are the working precision, and
only its speed depends on the accuracy of what it returns. A mantissa shifted right is rounded down: `m >> s`. Rounded
up it is `-(-m >> s)`. A number in fixed point is an integer that counts units of 2^-places, the "units" of comments.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from math import isqrt, ldexp
from math import log as float_log
from typing import TypeAlias

from . import series
from .interval import Interval, Number, Unsettled, ends, hull, order, shortened

# Working bits of a function beyond those of its result. Where they are too few, they are doubled.
GUARD = 16
LARGEST_EXP = 1 << 14  # e^x is for |x| < 2^16384: log 2 is needed to that many digits,
LARGEST_SIN = 1 << 16  # sin x and cos x for |x| < 2^65536: π is needed to that many digits.

MANY = 4_000  # Bits from which a series that is split in halves is quicker.

Kernel: TypeAlias = Callable[[Interval], Interval]


def _point(mantissa: int, exponent: int, bits: int) -> Interval:
    return Interval(mantissa, mantissa, exponent, bits)


def _at(kernel: Kernel, mantissa: int, exponent: int, bits: int) -> Interval:
    """The kernel at one point, with more and more working bits, until the width is below 2^(6 - bits) of the value."""
    work = bits + GUARD
    while True:
        result = kernel(_point(mantissa, exponent, work))
        low, high = result.low, result.high
        smaller = 0 if low <= 0 <= high else min(low.bit_length(), high.bit_length())
        if low == high or (high - low).bit_length() + bits <= smaller + 5:
            return shortened(low, high, result.exponent, bits)
        work *= 2


def _increasing(kernel: Kernel, x: Interval) -> Interval:
    low = _at(kernel, x.low, x.exponent, x.bits)
    return low if x.low == x.high else hull(low, _at(kernel, x.high, x.exponent, x.bits))


def _scaled(mantissa: int, shift: int) -> int:
    """mantissa·2^shift, rounded down."""
    return mantissa << shift if shift >= 0 else mantissa >> -shift


def _magnitude(x: Interval) -> int:
    """The least power of two above |x|, as an exponent; of a point that is not 0, half of it is not above |x|."""
    return max(x.low.bit_length(), x.high.bit_length()) + x.exponent


def _inverse_series(divisor: int, places: int, sign: int) -> tuple[int, int]:
    """The sum of signⁿ / ((2n+1)·divisor^(2n+1)) in fixed point, and how many units it may be off: the arc tangent of
    1/divisor for the sign -1, its hyperbolic relative for 1."""
    power, total, index, factor = (1 << places) // divisor, 0, 1, 1
    while power:
        total += factor * (power // index)
        power //= divisor * divisor
        index += 2
        factor *= sign
    # A power lacks less than 2 units (1, and a fourth of the last one's lack), so a term less than 3. What is left out
    # is a geometric series that begins below 2 units.
    return total, 3 * index


def _combined(parts: tuple[tuple[int, int], ...], bits: int, sign: int) -> Interval:
    """The sum of factor·series(divisor)."""
    places = bits + bits.bit_length() + 16
    total = error = 0
    for factor, divisor in parts:
        value, off = _inverse_series(divisor, places, sign)
        total += factor * value
        error += abs(factor) * off
    return shortened(total - error, total + error, -places, bits)


@lru_cache(maxsize=256)
def pi(bits: int) -> Interval:
    if bits > MANY:
        return series.pi(bits)
    return _combined(((16, 5), (-4, 239)), bits, -1)


@lru_cache(maxsize=256)
def log_two(bits: int) -> Interval:
    return _combined(((18, 26), (-2, 4801), (8, 8749)), bits, 1)


def _fixed(constant: Callable[[int], Interval], places: int) -> tuple[int, int]:
    """The integers below and above a constant in (1/2, 4) in fixed point: at most two apart."""
    value = constant(places // 64 * 64 + 128)  # In steps, so that few precisions are computed.
    shift = value.exponent + places
    return _scaled(value.low, shift), -_scaled(-value.high, shift)


def _exp(x: Interval) -> Interval:
    """x = count·log 2 + rest, with 0 <= rest, and e^rest = (e^(rest / 2^halvings))^(2^halvings)."""
    if x.low == 0:
        return _point(1, 0, x.bits)
    magnitude = _magnitude(x)
    if magnitude > LARGEST_EXP:
        raise OverflowError(f"e^x is enclosed for |x| < 2^{LARGEST_EXP}; this argument is not")
    halvings = isqrt(x.bits) // 2 + 2
    places = x.bits + halvings + 12
    finer = max(0, magnitude) + 4
    scaled = _scaled(x.low, x.exponent + places + finer)
    below, above = _fixed(log_two, places + finer)
    step = above if scaled >= 0 else below  # So that count·step is not below count·log 2, nor `rest` above the truth.
    count, rest = divmod(scaled, step)
    # The truth is less than 1 + 2·|count| finer units above `rest`, |count| < 1.5·2^magnitude + 1: below one unit. The
    # shift loses less than another. So the argument of the series is in [argument, argument + 2].
    argument = rest >> (finer + halvings)
    term = total = 1 << places
    index = 0
    while term:
        index += 1
        term = (term * argument >> places) // index
        total += term
    # The argument is below 1/2, so a term lacks at most 4 units (half of the last one's lack, and 2). What is left out
    # lacks at most 4 together, and so does the derivative, below 2, times 2 units of the argument.
    error = 4 * index + 8
    for _ in range(halvings):
        error = ((2 * total + error) * error >> places) + 2  # (t + e)² = t² + (2t + e)·e, each rounded down.
        total = total * total >> places
    return Interval(total, total + error, count - places, x.bits)


def exp(x: Interval) -> Interval:
    """OverflowError where |x| is not below 2^16384, on either side of 0."""
    gap = x.high - x.low
    if gap == 0 or 2 * (gap.bit_length() + x.exponent) >= -x.bits:
        return _increasing(_exp, x)
    # One evaluation in place of two: e^w is in [1, 1 + w + w²] for 0 <= w <= 1, and here w² < 2^-bits.
    low = _at(_exp, x.low, x.exponent, x.bits)
    width = _point(gap, x.exponent, x.bits)
    return hull(low, low * (1 + width + width * width))


def _log(x: Interval) -> Interval:
    """x = 2^count·u with u in [0.7, 1.4), and log u = y + log(u·e^-y) for a guess y."""
    length = x.low.bit_length()
    places = length if 10 * x.low >= 7 << length else length - 1  # u = x.low / 2^places.
    count = x.exponent + places
    offset = x.low - (1 << places)
    if offset == 0:
        return count * log_two(x.bits)
    # |u - 1| is about 2^-small. Where this is the whole logarithm, it takes as many bits more.
    small = places - offset.bit_length()
    bits = x.bits if count else x.bits + max(0, small)
    if small > x.bits:
        result = _log_near_one(_point(offset, -places, x.bits))
    else:
        y = _point(int(ldexp(float_log(x.low / (1 << places)), 60)), -60, bits)
        correct = 45
        while True:
            correct *= 3
            work = min(correct, bits) + 8
            u = _point(x.low, -places, work)
            result = y + _log_near_one(u * _exp(_point(-y.low, y.exponent, work)) - 1)
            if correct >= bits:
                break
            y = _point(result.low, result.exponent, work)
    return count * log_two(bits) + result if count else result


def _log_near_one(z: Interval) -> Interval:
    """log(1 + z) for |z| < 1/2: |log(1 + z) - z + z²/2| <= |z|³/3·(1 + |z| + |z|² + …) <= |z|³."""
    if _magnitude(z) >= 0:
        raise ArithmeticError("the first guess of a logarithm is far off")
    square = z * z
    cube = abs(z) * square
    return z - square / 2 + Interval(-cube.high, cube.high, cube.exponent, z.bits)


def log(x: Interval) -> Interval:
    if x.low <= 0:
        raise Unsettled("the argument of log may be 0 or less")
    return _increasing(_log, x)


def _sqrt(x: Interval) -> Interval:
    shift = max(0, 2 * x.bits - x.low.bit_length())
    shift += (x.exponent - shift) % 2
    square = x.low << shift
    root = isqrt(square)
    return Interval(root, root + (root * root != square), (x.exponent - shift) // 2, x.bits)


def sqrt(x: Interval) -> Interval:
    """ValueError where every point is negative."""
    if x.high < 0:
        raise ValueError("the argument of sqrt is negative")
    if x.low < 0:
        raise Unsettled("the argument of sqrt may be negative")
    return _increasing(_sqrt, x)


def rsqrt(x: Interval) -> Interval:
    if x.low <= 0 <= x.high:
        raise Unsettled("the argument of rsqrt may be 0")
    if x.high < 0:
        raise ValueError("the argument of rsqrt is negative")
    return -_increasing(lambda point: -1 / _sqrt(point), x)


def _near_itself(x: Interval) -> Interval:
    """x·[1 - x², 1]."""
    square = x * x
    return x * hull(1 - square, _point(1, 0, x.bits))


def _sine(quarters: int, x: Interval) -> Interval:
    """The sine of x + quarters·π/2. x = turns·π/2 + rest, with |rest| at most about π/4."""
    if x.low == 0:
        return _point((0, 1)[quarters], 0, x.bits)
    magnitude = _magnitude(x)
    if magnitude > LARGEST_SIN:
        raise OverflowError(f"sin x and cos x are enclosed for |x| < 2^{LARGEST_SIN}; this argument is not")
    if quarters == 0 and 2 * magnitude < -x.bits:
        return _near_itself(x)  # x - x³/6 < sin x < x for x > 0, and x² is below 2^-bits.
    places = x.bits + 12 + (max(0, -magnitude) if quarters == 0 else 0)
    finer = max(0, magnitude) + 4
    scaled = _scaled(x.low, x.exponent + places + finer)
    below, _ = _fixed(pi, places + finer - 1)
    turns = (2 * scaled + below) // (2 * below)
    # `scaled` and turns·π/2 are at most 1 + 2·|turns| finer units off, which is below one unit; the shift adds one.
    rest = (scaled - turns * below) >> finer
    quadrant = (turns + quarters) % 4
    square = rest * rest >> places
    first, index = (1 << places, 0) if quadrant % 2 else (rest, 1)
    value, error = _alternating(abs(first), square, index, places)
    if (first < 0) != (quadrant >= 2):
        value = -value
    error += 2  # The derivative is at most 1, and `rest` is at most two units off.
    return Interval(value - error, value + error, -places, x.bits)


def _alternating(first: int, square: int, index: int, places: int) -> tuple[int, int]:
    """first·(1 - square/((i+1)(i+2)) + square²/((i+1)(i+2)(i+3)(i+4)) - …), and how many units it may be off.

    `square` is up to one unit too low, and below 0.65; `first` is at most 1.
    """
    term = total = first
    sign = -1
    while term:
        term = (term * square >> places) // ((index + 1) * (index + 2))
        total += sign * term
        sign = -sign
        index += 2
    # A term lacks at most 4 units: a third of the last one's lack, half a unit for `square`, and 2 for the rounding.
    # There are at most index/2 of them, and what is left out is below 2 units.
    return total, 2 * index + 2


def _wave(quarters: int, x: Interval) -> Interval:
    """The ends, and the crests and troughs that may be between them: multiples of π/2."""
    kernel = partial(_sine, quarters)
    ends = [_at(kernel, x.low, x.exponent, x.bits)]
    if x.low == x.high:
        return ends[0]
    ends.append(_at(kernel, x.high, x.exponent, x.bits))
    bits = x.bits + max(0, _magnitude(x))
    turns = Interval(x.low, x.high, x.exponent + 1, bits) / pi(bits)
    first, last = -_scaled(-turns.low, turns.exponent), _scaled(turns.high, turns.exponent)
    passed = {(turn + quarters) % 4 for turn in range(first, min(last, first + 3) + 1)}
    extremes = [_point(value, 0, x.bits) for quadrant, value in ((1, 1), (3, -1)) if quadrant in passed]
    return hull(minimum(*ends, *extremes), maximum(*ends, *extremes))


def sin(x: Interval) -> Interval:
    """OverflowError where |x| is not below 2^65536."""
    return _wave(0, x)


def cos(x: Interval) -> Interval:
    """OverflowError where |x| is not below 2^65536."""
    return _wave(1, x)


def _just_below_one(bits: int) -> Interval:
    return Interval((1 << bits) - 1, 1 << bits, -bits, bits)


def _bell_series(mantissa: int, exponent: int, bits: int) -> Interval:
    """e^(-s/2)·Σ sⁿ/(2n+1)!! for s = mantissa·2^exponent >= 0. All terms are positive: nothing cancels."""
    places = bits + 2 * bits.bit_length() + 8
    below = _scaled(mantissa, exponent + places)
    above = below + 1
    low = high = least = most = 1 << places
    index = 1
    while most > 2 or 2 * above > (index + 2) << places:
        index += 2
        least = (least * below >> places) // index
        most = ((most * above >> places) + 1) // index + 1  # Not below the quotient, rounded up twice.
        low += least
        high += most
    # From here each term is at most half of the one before, so the rest is at most the last: 2 units.
    return Interval(low, high + 2, -places, bits) * _exp(_point(-mantissa, exponent - 1, bits))


def _erf(x: Interval) -> Interval:
    """2/√π·e^(-x²)·Σ 2ⁿ·x^(2n+1)/(2n+1)!!"""
    if order(x.low * x.low, 2 * x.exponent, x.bits, 0) > 0:
        # 0 < 1 - erf x < e^(-x²) < 2^-bits.
        return _just_below_one(x.bits) * (1 if x.low > 0 else -1)
    return 2 * x * _bell_series(x.low * x.low, 2 * x.exponent + 1, x.bits) / sqrt(pi(x.bits))


def erf(x: Interval) -> Interval:
    return _increasing(_erf, x)


def _erfc(x: Interval) -> Interval:
    """1 - erf x for x > 0: by its tail, or with as many bits more as the two cancel."""
    mantissa, exponent, bits = x.low * x.low, 2 * x.exponent + 1, x.bits
    if order(2 * mantissa, exponent, 3 * bits, 0) > 0:
        return _normal_tail(mantissa, exponent, bits) * sqrt(_point(2, 0, bits)) / x
    more = bits + _scaled(3 * mantissa, exponent - 2) + 16
    return 1 - 2 * x * _bell_series(mantissa, exponent, more) / sqrt(pi(more))


def erfc(x: Interval) -> Interval:
    """1 - erf, of a positive number."""
    if x.low <= 0:
        raise Unsettled("the argument of erfc may be 0 or less")
    return -_increasing(lambda point: -_erfc(point), x)


def _tanh(x: Interval) -> Interval:
    """(1 - e^(-2x)) / (1 + e^(-2x)) for x > 0."""
    if x.low <= 0:
        return x if x.low == 0 else -_tanh(-x)
    magnitude = _magnitude(x)
    if 2 * magnitude < -x.bits:
        return _near_itself(x)  # x - x³/3 < tanh x < x, and x² is below 2^-bits.
    if order(x.low, x.exponent, x.bits, 0) > 0:
        return _just_below_one(x.bits)  # 1 - tanh x < 2·e^(-2x) < 2^-bits.
    shrunk = _exp(_point(-x.low, x.exponent + 1, x.bits + max(0, -magnitude)))
    return (1 - shrunk) / (1 + shrunk)


def tanh(x: Interval) -> Interval:
    return _increasing(_tanh, x)


def _sigmoid(x: Interval) -> Interval:
    if order(x.low, x.exponent, x.bits, 0) > 0:
        return _just_below_one(x.bits)  # 1 - 1/(1 + e^-x) < e^-x < 2^-bits.
    shrunk = _exp(_point(-abs(x.low), x.exponent, x.bits))
    return (1 if x.low >= 0 else shrunk) / (1 + shrunk)


def sigmoid(x: Interval) -> Interval:
    """OverflowError where x is not above -2^16384."""
    return _increasing(_sigmoid, x)


def _silu(x: Interval) -> Interval:
    return x * _sigmoid(x)


def _gelu(x: Interval) -> Interval:
    """x/2 + x²/√(2π)·e^(-x²/2)·Σ x^(2n)/(2n+1)!!"""
    mantissa, exponent, bits = x.low * x.low, 2 * x.exponent, x.bits
    if order(2 * mantissa, exponent, 3 * bits, 0) > 0:
        return x * _just_below_one(bits) if x.low > 0 else -_normal_tail(mantissa, exponent, bits)
    if x.low < 0:
        bits += _scaled(3 * mantissa, exponent - 2) + 8  # The two parts cancel to about e^(-x²/2).
    bell = _point(mantissa, exponent, bits) * _bell_series(mantissa, exponent, bits)
    return _point(x.low, x.exponent - 1, bits) + bell / sqrt(2 * pi(bits))


def _normal_tail(mantissa: int, exponent: int, bits: int) -> Interval:
    """x·Φ(-x) = e^(-x²/2)/√(2π)·(1 - 1/x² + 3/x⁴ - 15/x⁶ + …) for x > 0 and x² = mantissa·2^exponent.

    By parts, ∫ t^-2n·e^(-t²/2) dt from x is x^(-2n-1)·e^(-x²/2) less (2n+1) times the same for n+1, which is positive:
    the truth is between each partial sum and the next. Terms shrink while 2n+1 < x², to about e^(-x²/2); the caller has
    x² > 3/2·bits, so that they become less than 2^-bits.
    """
    square = _point(mantissa, exponent, bits)
    before = total = term = _point(1, 0, bits)
    odd = 1
    while _magnitude(term) > -bits:
        term = term * -odd / square
        before, total = total, total + term
        odd += 2
    between = hull(minimum(before, total), maximum(before, total))
    return between * _exp(_point(-mantissa, exponent - 1, bits)) / sqrt(2 * pi(bits))


def _dipping(kernel: Kernel, x: Interval, left: Fraction, right: Fraction, lowest: Fraction) -> Interval:
    """A function that falls up to a point between `left` and `right`, then rises, and is never below `lowest`."""
    if x.low == x.high or order(x.low * right.denominator, x.exponent, right.numerator, 0) >= 0:
        return _increasing(kernel, x)
    ends = [_at(kernel, end, x.exponent, x.bits) for end in (x.low, x.high)]
    if order(x.high * left.denominator, x.exponent, left.numerator, 0) <= 0:
        return hull(ends[1], ends[0])
    # No point is further than half the width from an end, and the slope is below 2 everywhere.
    dip = minimum(*ends) - _point(x.high - x.low, x.exponent, x.bits)
    return hull(maximum(dip, lowest), maximum(*ends))


def silu(x: Interval) -> Interval:
    """x·sigmoid(x). OverflowError where x is not above -2^16384."""
    # The slope s + x·s·(1 - s) is below 1 + 1/e in magnitude. It is 0 at -1.2784…, where the value is -0.27846….
    return _dipping(_silu, x, Fraction(-128, 100), Fraction(-127, 100), Fraction(-279, 1000))


def gelu(x: Interval) -> Interval:
    """x/2·(1 + erf(x/√2)). OverflowError where x is not above about -2^8192."""
    # The slope Φ(x) + x·φ(x) is below 1 + 1/4 in magnitude. It is 0 at -0.7517…, where the value is -0.16997….
    return _dipping(_gelu, x, Fraction(-76, 100), Fraction(-75, 100), Fraction(-17, 100))


def power(x: Interval, y: Number) -> Interval:
    """e^(y·log x) for x > 0. OverflowError as `exp`, but for a whole y, which is as exact as `x**y`."""
    if x.low <= 0:
        raise Unsettled("the base of a power may be 0 or less")
    bits = max(x.bits, y.bits if isinstance(y, Interval) else 0)
    low, high, exponent, bottom = ends(y)
    if low == high and bottom == 1 and low.bit_length() + exponent <= LARGEST_EXP:
        whole = _scaled(low, exponent)
        if order(whole, 0, low, exponent) == 0:
            return Interval(x.low, x.high, x.exponent, bits) ** whole
    # An error in y·log x is one in e^(y·log x) relative to it.
    rough = log(Interval(x.low, x.high, x.exponent, GUARD)) * y
    work = bits + max(0, _magnitude(rough)) + 2 * GUARD
    result = exp(log(Interval(x.low, x.high, x.exponent, work)) * y)
    return shortened(result.low, result.high, result.exponent, bits)


def relu(x: Interval) -> Interval:
    return Interval(max(0, x.low), max(0, x.high), x.exponent, x.bits)


def _stepped(step: Callable[[int, int], int], x: Interval) -> Interval:
    """A function to the integers that never falls: of an interval, from that of one end to that of the other."""
    if x.exponent >= 0:
        return x
    return Interval(step(x.low, -x.exponent), step(x.high, -x.exponent), 0, x.bits)


def floor(x: Interval) -> Interval:
    return _stepped(lambda mantissa, places: mantissa >> places, x)


def ceil(x: Interval) -> Interval:
    return -floor(-x)


def _nearest(mantissa: int, places: int) -> int:
    doubled = mantissa >> (places - 1)  # Twice the value, rounded down: odd from one half on.
    tie = order(doubled, places - 1, mantissa, 0) == 0
    return (doubled >> 1) + (doubled & 1 & ((doubled >> 1) | (not tie)))


def round_even(x: Interval) -> Interval:
    """To the nearest integer, and from the middle to the even one."""
    return _stepped(_nearest, x)


def _chosen(better: int, values: tuple[Number, ...]) -> Interval:
    """The largest (or for -1 the smallest) lower end, and upper end."""
    bits = max(value.bits for value in values if isinstance(value, Interval))
    least, *others = (value if isinstance(value, Interval) else Interval.of(value, bits) for value in values)
    most = least
    for other in others:
        if order(other.low, other.exponent, least.low, least.exponent) == better:
            least = other
        if order(other.high, other.exponent, most.high, most.exponent) == better:
            most = other
    result = hull(least, most)
    return Interval(result.low, result.high, result.exponent, bits)


def maximum(*values: Number) -> Interval:
    """At least one is an interval."""
    return _chosen(1, values)


def minimum(*values: Number) -> Interval:
    """At least one is an interval."""
    return _chosen(-1, values)
