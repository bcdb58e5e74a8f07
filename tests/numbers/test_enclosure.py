"""Intervals against exact fractions, and the functions against mpmath at far higher precision."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

from indexical.numbers import enclosure, interval
from indexical.numbers.interval import Interval, Number, Unsettled

pytestmark = pytest.mark.sampled(2)

BITS = [20, 53, 100, 200, 1000]


def exact(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def fraction(value: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    scale = Fraction(2) ** exponent
    return (-1) ** sign * int(mantissa) * scale


def gelu(x: mpmath.mpf) -> mpmath.mpf:
    return x / 2 * mpmath.erfc(-x / mpmath.sqrt(2))


def sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


TRUTH: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "erf": mpmath.erf,
    "tanh": mpmath.tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "gelu": gelu,
}
POSITIVE = {"log", "sqrt", "rsqrt"}
# Where the terms of a series are many: few of the largest arguments.
SLOW = {"erf", "gelu"}


def point(value: Fraction, bits: int) -> Interval:
    """The value itself where it is dyadic, with a mantissa of any length."""
    assert value.denominator & (value.denominator - 1) == 0
    return Interval(value.numerator, value.numerator, 1 - value.denominator.bit_length(), bits)


def dyadic(value: Fraction, bits: int) -> Fraction:
    return Interval.of(value, bits).lower


def special(bits: int) -> list[Fraction]:
    with mpmath.workprec(bits + 64):
        centres = [Fraction(0), Fraction(1), Fraction(1, 2), Fraction(2), Fraction(10), Fraction(-76, 100)]
        centres += [fraction(k * mpmath.log(2)) for k in (1, 2, 3, 10, -1, -5)]
        centres += [fraction(k * mpmath.pi / 2) for k in (1, 2, 3, 4, 7, 100, -1, -2, -3)]
        centres += [Fraction(n) for n in (3, 4, 7, 9, 16, 25, 49, 100, 1000, -1, -2, -20, -40, -1000)]
    offsets = [Fraction(0)] + [s * Fraction(1, 1 << k) for s in (1, -1) for k in (3, 12, bits // 2, bits - 2, bits + 9)]
    return [dyadic(centre + offset, 2 * bits + 20) for centre in centres for offset in offsets]


def scattered(bits: int, count: int, seed: str) -> Iterable[Fraction]:
    choose = random.Random(seed)
    for _ in range(count):
        size = Fraction(10) ** choose.randint(-30, 3)
        yield dyadic(choose.choice((1, -1)) * size * Fraction(choose.randrange(1, 10**12), 10**12), bits)


def assert_encloses(found: Interval, truth: mpmath.mpf, bits: int, at: object) -> None:
    """The working precision of mpmath is at least 3·bits + 100. Ends are compared there: some are 2^-700000."""
    low, high = (mpmath.ldexp(mpmath.mpf(end), found.exponent) for end in (found.low, found.high))
    off = mpmath.ldexp(abs(truth), -3 * bits - 90)  # How far off the truth may itself be.
    assert low <= truth + off, (bits, at)
    assert truth - off <= high, (bits, at)
    assert high - low <= mpmath.ldexp(abs(truth), 8 - bits), (bits, at)
    assert found.bits == bits


@pytest.mark.sampled(5)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", TRUTH)
def test_a_function_at_a_point_encloses_the_truth_narrowly(name: str, bits: int) -> None:
    count = 40 if bits == 1000 else 100
    points = [*special(bits), *scattered(bits, count, f"{name} {bits}")]
    if name in POSITIVE:
        points = [abs(x) for x in points if x]
    if bits == 1000:
        points = points[::9] if name in SLOW else points[::2]
    with mpmath.workprec(3 * bits + 200):
        for x in points:
            truth = TRUTH[name](exact(x))
            assert_encloses(getattr(enclosure, name)(point(x, bits)), truth, bits, x)


KERNELS: dict[str, Callable[[Interval], Interval]] = {
    "exp": enclosure._exp,
    "log": enclosure._log,
    "sqrt": enclosure._sqrt,
    "sin": partial(enclosure._sine, 0),
    "cos": partial(enclosure._sine, 1),
    "erf": enclosure._erf,
    "tanh": enclosure._tanh,
    "sigmoid": enclosure._sigmoid,
    "gelu": enclosure._gelu,
}


@pytest.mark.parametrize("bits", [17, 40, 150])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_encloses_the_truth_before_its_guard_bits_are_rounded_away(name: str, bits: int) -> None:
    """Its error bounds have to hold by themselves: the rounding that follows is far wider, and would hide a lapse."""
    points = [*scattered(bits, 120, f"kernel {name} {bits}"), *special(bits)[::5]]
    with mpmath.workprec(4 * bits + 200):
        for x in points:
            if name in POSITIVE and x <= 0:
                continue
            found, truth = KERNELS[name](point(x, bits)), TRUTH[name](exact(x))
            low, high = (mpmath.ldexp(mpmath.mpf(end), found.exponent) for end in (found.low, found.high))
            assert low <= truth <= high, x


def test_the_series_under_the_constants_and_the_logarithm_hold_by_themselves() -> None:
    with mpmath.workprec(1000):
        for divisor, sign, function in ((5, -1, mpmath.atan), (239, -1, mpmath.atan), (26, 1, mpmath.atanh)):
            for places in (10, 33, 64, 200):
                total, off = enclosure._inverse_series(divisor, places, sign)
                truth = mpmath.ldexp(function(mpmath.mpf(1) / divisor), places)
                assert total - off <= truth <= total + off
        for numerator in range(-49, 50, 2):
            z = dyadic(Fraction(numerator, 100), 50)
            found = enclosure._log_near_one(point(z, 200))
            assert found.contains(fraction(mpmath.log(1 + exact(z)))), z


@pytest.mark.parametrize("bits", [20, 53, 200, 1000, 5000])
def test_the_constants(bits: int) -> None:
    with mpmath.workprec(5 * bits):
        assert_encloses(enclosure.pi(bits), +mpmath.pi, bits, None)
        assert_encloses(enclosure.log_two(bits), mpmath.log(2), bits, None)


@pytest.mark.parametrize("name", TRUTH)
def test_a_function_of_a_wide_interval_encloses_each_of_its_points_and_not_much_more(name: str) -> None:
    bits = 60
    choose = random.Random(name)
    for _ in range(100):
        middle = Fraction(choose.randint(-6000, 6000), 1000)
        radius = Fraction(choose.randint(1, 1000), 10 ** choose.randint(2, 20))
        low, high = (abs(middle), abs(middle) + radius) if name in POSITIVE else (middle - radius, middle + radius)
        if name in POSITIVE and low == 0:
            continue
        found = getattr(enclosure, name)(Interval.between(low, high, bits))
        with mpmath.workprec(300):
            steps = 25
            values = [fraction(TRUTH[name](exact(low + (high - low) * k / steps))) for k in range(steps + 1)]
        assert all(found.contains(value) for value in values), (low, high)
        # Between two samples no function here bends much; the ends of the enclosure are near some sample.
        spread = max(values) - min(values)
        room = Fraction(1, 1 << 48) * (1 + max(abs(value) for value in values))
        if name in {"silu", "gelu"}:
            room += min(2 * (high - low), Fraction(1, 50))
        if name in {"sin", "cos"}:
            room += ((high - low) / steps) ** 2
        assert found.width <= spread + room, (low, high)


def test_a_function_that_dips_is_tight_where_it_only_rises_or_falls() -> None:
    for name in ("silu", "gelu"):
        function = getattr(enclosure, name)
        for low, high in ((-3, -2), (Fraction(-3, 4), 4), (0, 1), (-40, -30)):
            ends = [function(Interval.of(end, 80)) for end in (low, high)]
            found = function(Interval.between(Fraction(low), Fraction(high), 80))
            assert found.lower >= min(end.lower for end in ends) - Fraction(1, 1 << 70)
            assert found.upper <= max(end.upper for end in ends) + Fraction(1, 1 << 70)


def test_sine_and_cosine_know_their_crests_and_troughs() -> None:
    for low, high, expected in [(1, 2, (None, 1)), (4, 5, (-1, None)), (1, 5, (-1, 1)), (0, 100, (-1, 1))]:
        found = enclosure.sin(Interval.between(Fraction(low), Fraction(high), 60))
        for end, value in zip((found.lower, found.upper), expected, strict=True):
            assert value is None or abs(end - value) < Fraction(1, 1 << 50)
    assert enclosure.cos(Interval.between(Fraction(-1), Fraction(1), 60)).contains(1)
    assert enclosure.cos(Interval.between(Fraction(-1), Fraction(1), 60)).lower > Fraction(1, 2)
    assert enclosure.sin(Interval.between(Fraction(1, 10), Fraction(1), 60)).upper < Fraction(85, 100)


def test_large_and_small_arguments() -> None:
    bits = 100
    with mpmath.workprec(3000):
        for x in (Fraction(10) ** 11, -(Fraction(10) ** 11), Fraction(1, 10**300)):
            x = dyadic(x, bits)
            found = enclosure.exp(point(x, bits))
            assert found.sign() == 1
            truth = mpmath.exp(exact(x))
            back = enclosure.log(found)
            assert back.contains(x) or x < 1
            mantissa, exponent = mpmath.mpf(truth)._mpf_[1:3]
            assert found.contains(Interval(int(mantissa), int(mantissa), exponent, 4000))
        for x in (Fraction(10) ** 300, Fraction(1, 10**300), Fraction(2) ** 4000 + 1, 1 + Fraction(1, 1 << 3000)):
            x = dyadic(x, 4096)
            for name in ("log", "sqrt", "rsqrt", "sin"):
                with mpmath.workprec(20000):
                    truth = TRUTH[name](exact(x))
                assert_encloses(getattr(enclosure, name)(point(x, bits)), truth, bits, x)
    assert enclosure.log(Interval(1, 1, 10**15, 60)).contains(enclosure.log_two(200) * 10**15)
    assert enclosure.sigmoid(Interval(1, 1, 10**15, 60)).contains(1)
    assert enclosure.tanh(Interval(-1, -1, 10**15, 60)).contains(-1)
    assert enclosure.erf(Interval(1, 1, 10**15, 60)).contains(1)
    assert enclosure.tanh(Interval(3, 3, -(10**15), 60)).sign() == 1
    assert enclosure.sin(Interval(-3, -3, -(10**15), 60)).sign() == -1
    huge = enclosure.gelu(Interval.of(-(1 << 20), 60))
    assert huge.sign() == -1


def test_absurd_arguments_are_refused() -> None:
    for x in (1 << 16384, -(1 << 16384), 1 << 40000):
        with pytest.raises(OverflowError, match="2\\^16384"):
            enclosure.exp(Interval.of(x, 50))
    with pytest.raises(OverflowError, match="2\\^65536"):
        enclosure.cos(Interval(1, 1, 70000, 50))


def test_what_is_exact_stays_exact() -> None:
    bits = 60
    zero, one = Interval.of(0, bits), Interval.of(1, bits)
    assert [enclosure.exp(zero), enclosure.cos(zero), enclosure.log(one)] == [1, 1, 0]
    assert [getattr(enclosure, name)(zero) for name in ("sin", "tanh", "erf", "silu", "gelu", "sqrt")] == [0] * 6
    assert enclosure.sigmoid(zero) == Fraction(1, 2)
    assert enclosure.sqrt(Interval.of(Fraction(9, 16), bits)) == Fraction(3, 4)
    assert enclosure.rsqrt(Interval.of(Fraction(1, 16), bits)) == 4
    assert enclosure.power(Interval.of(3, bits), 5) == 243
    assert enclosure.power(Interval.of(2, bits), Interval.of(-3, bits)) == Fraction(1, 8)
    assert Interval.of(1 << 5000, bits) == 1 << 5000
    assert Interval.of(6, bits) / 3 == 2
    assert zero + Interval(1, 1, -(10**15), bits) == Interval(1, 1, -(10**15), bits)


def test_power() -> None:
    choose = random.Random(3)
    for bits in (20, 53, 200):
        with mpmath.workprec(3 * bits + 200):
            for _ in range(60):
                x = dyadic(Fraction(choose.randrange(1, 10**9), 10 ** choose.randint(1, 15)), bits)
                y = Fraction(choose.randint(-(10**6), 10**6), 10 ** choose.randint(0, 5))
                truth = exact(x) ** exact(y)
                assert_encloses(enclosure.power(point(x, bits), y), truth, bits, (x, y))
    wide = enclosure.power(
        Interval.between(Fraction(2), Fraction(3), 60), Interval.between(Fraction(-1), Fraction(2), 60)
    )
    assert wide.contains(9)
    assert wide.contains(Fraction(1, 3))
    assert wide.width < 9 - Fraction(1, 3) + Fraction(1, 1 << 50)


def test_steps() -> None:
    for numerator in range(-41, 42):
        for bottom in (1, 2, 4, 8):
            x = Fraction(numerator, bottom)
            assert enclosure.floor(Interval.of(x, 20)) == x.__floor__()
            assert enclosure.ceil(Interval.of(x, 20)) == x.__ceil__()
            assert enclosure.round_even(Interval.of(x, 20)) == round(x)
            assert enclosure.relu(Interval.of(x, 20)) == max(0, x)
    wide = Interval.between(Fraction(-5, 2), Fraction(7, 2), 30)
    for function, low, high in [(enclosure.floor, -3, 3), (enclosure.ceil, -2, 4), (enclosure.round_even, -2, 4)]:
        found = function(wide)
        assert (found.lower, found.upper) == (low, high)
    tiny = Interval(-1, 1, -(10**12), 30)
    assert enclosure.floor(tiny).contains(Interval.between(Fraction(-1), Fraction(0), 30))
    assert enclosure.round_even(tiny) == 0


def test_largest_and_smallest() -> None:
    a, b = Interval.between(Fraction(1), Fraction(5), 40), Interval.between(Fraction(2), Fraction(3), 90)
    assert ends(enclosure.maximum(a, b)) == (2, 5)
    assert ends(enclosure.minimum(a, b)) == (1, 3)
    assert ends(enclosure.maximum(a, 4, Fraction(1, 2))) == (4, 5)
    assert enclosure.maximum(a, 4).bits == 40
    assert enclosure.maximum(a, b).bits == 90


def ends(interval: Interval) -> tuple[Fraction, Fraction]:
    return interval.lower, interval.upper


def test_where_nothing_is_said() -> None:
    around_zero = Interval.between(Fraction(-1, 3), Fraction(1), 40)
    for ask in (
        lambda: 1 / around_zero,
        lambda: around_zero / Interval.of(0, 40),
        lambda: around_zero**-2,
        lambda: enclosure.log(around_zero),
        lambda: enclosure.log(Interval.of(0, 40)),
        lambda: enclosure.log(Interval.of(-1, 40)),
        lambda: enclosure.sqrt(around_zero),
        lambda: enclosure.rsqrt(around_zero),
        lambda: enclosure.rsqrt(Interval.of(0, 40)),
        lambda: enclosure.power(around_zero, Fraction(1, 2)),
        lambda: around_zero < 0,
        lambda: around_zero >= 1,
        lambda: around_zero == around_zero,
        lambda: around_zero != 0,
    ):
        with pytest.raises(Unsettled):
            ask()
    for refused in (enclosure.sqrt, enclosure.rsqrt):
        with pytest.raises(ValueError, match="negative"):
            refused(Interval.of(-2, 40))
    with pytest.raises(ValueError, match="between"):
        Interval.between(Fraction(1), Fraction(0), 40)
    assert around_zero.sign() is None
    assert ends(enclosure.sqrt(Interval.between(Fraction(0), Fraction(4), 40))) == (0, 2)
    with pytest.raises(TypeError):
        operator.add(around_zero, 0.5)
    with pytest.raises(TypeError):
        operator.truediv(0.5, around_zero)
    with pytest.raises(TypeError):
        operator.lt(around_zero, 0.5)
    with pytest.raises(TypeError):
        hash(around_zero)


FRACTIONS = st.one_of(
    st.fractions(max_denominator=1000, min_value=-1000, max_value=1000),
    st.builds(lambda m, e: m * Fraction(2) ** e, st.integers(-(1 << 80), 1 << 80), st.integers(-400, 400)),
    st.just(Fraction(0)),
)
SHARES = st.fractions(min_value=0, max_value=1, max_denominator=64)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Interval, Fraction]:
    """An interval, and a point in it."""
    low, high = sorted((draw(FRACTIONS), draw(FRACTIONS)))
    if draw(st.booleans()):
        high = low
    bits = draw(st.sampled_from([4, 20, 60, 200]))
    return Interval.between(low, high, bits), low + (high - low) * draw(SHARES)


@examples(6)
@given(intervals(), intervals(), st.booleans(), st.sampled_from("+-*/"))
def test_arithmetic_encloses_that_of_the_points(
    left: tuple[Interval, Fraction], right: tuple[Interval, Fraction], scalar: bool, symbol: str
) -> None:
    (a, x), (b, y) = left, right
    assert a.contains(x)
    compute = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol]
    pairs: list[tuple[Number, Number]] = [(a, b)]
    if scalar:
        pairs += [(a, y), (x, b)]
    for one, other in pairs:
        divisor = Interval.of(other, a.bits) if isinstance(other, Fraction) else other
        if symbol == "/" and divisor.contains(0):
            with pytest.raises(Unsettled):
                compute(one, other)
            continue
        found = compute(one, other)
        assert found.low <= found.high
        assert found.contains(compute(x, y))
        assert max(abs(found.low), abs(found.high)).bit_length() <= found.bits + interval.SLACK + 1
    assert compute(a, 3).contains(compute(x, 3))


@examples(5)
@given(intervals(), st.integers(-9, 33))
def test_powers_enclose_those_of_the_points(given: tuple[Interval, Fraction], power: int) -> None:
    a, x = given
    if power < 0 and a.contains(0):
        return
    found = a**power
    assert found.contains(x**power)
    if power % 2 == 0:
        assert found.low >= 0
    if power >= 0 and a.bits >= 20:
        powers = [a.lower**power, a.upper**power]
        least = Fraction(0) if power and power % 2 == 0 and a.contains(0) else min(powers)
        room = max(map(abs, powers)) * Fraction(8, 1 << a.bits)
        assert found.lower >= least - room
        assert found.upper <= max(powers) + room
    assert abs(a).contains(abs(x))
    assert (-a).contains(-x)


ORDERS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@examples(6)
@given(intervals(), intervals(), st.booleans())
def test_an_order_is_that_of_all_points_or_is_not_settled(
    left: tuple[Interval, Fraction], right: tuple[Interval, Fraction], scalar: bool
) -> None:
    (a, _), (b, y) = left, right
    other, low, high = (y, y, y) if scalar else (b, b.lower, b.upper)
    # An interval of more than one point has inner points too, which no end of the other can equal throughout.
    corners = [
        (one, two) for one in (a.lower, (a.lower + a.upper) / 2, a.upper) for two in (low, (low + high) / 2, high)
    ]
    for order in ORDERS:
        answers = {order(one, two) for one, two in corners}
        overlap = a.lower <= high and low <= a.upper
        single = a.width == 0 and low == high
        if order in (operator.eq, operator.ne) and overlap and not single:
            answers = {True, False}
        if len(answers) == 1:
            assert order(a, other) is answers.pop()
        else:
            with pytest.raises(Unsettled):
                order(a, other)


@given(FRACTIONS, st.sampled_from(BITS))
def test_a_number_is_enclosed_by_its_neighbours(value: Fraction, bits: int) -> None:
    found = Interval.of(value, bits)
    assert found.contains(value)
    assert found.width <= abs(value) * Fraction(2, 1 << bits)
    dyadic_ones = value.denominator & (value.denominator - 1) == 0
    if dyadic_ones and value.numerator.bit_length() <= bits:
        assert found == value


def test_far_apart_sums_stay_short_and_true() -> None:
    far, near = Interval(3, 3, 10**12, 50), Interval(-5, 7, 0, 50)
    for found in (far + near, near + far, far - near):
        assert found.sign() == 1
        assert found.contains(far)
        assert found.high.bit_length() < 100
    assert (far > near) is True
    assert (near == far) is False
