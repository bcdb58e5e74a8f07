"""Quotients of sums of exponentials: the axioms of a field, equality that is decided, and order against mpmath."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

from indexical.numbers.exponentials import Exponent, Quotient, Sum, exp, total
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.surds import Surd, root
from indexical.numbers.tower import TooManyTerms, compare, divide, enclose, floor, sign

FUNCTIONS = ExactNumbers.functions
sigmoid, tanh, silu = FUNCTIONS["sigmoid"], FUNCTIONS["tanh"], FUNCTIONS["silu"]

small = st.builds(Fraction, st.integers(-6, 6), st.sampled_from((1, 1, 2, 3)))
algebraic = st.one_of(small, small, st.builds(lambda a, n: a * root(n), small, st.sampled_from((2, 3, 5))))
monomials = st.builds(lambda c, a: c * exp(a), algebraic, algebraic)


@st.composite
def quotients(draw: st.DrawFn) -> Any:
    above = sum(draw(st.lists(monomials, min_size=1, max_size=3)), 0)
    below = sum(draw(st.lists(monomials, min_size=1, max_size=2)), 0)
    return divide(above, below) if below != 0 else above


def value(number: Any) -> Any:
    """By mpmath, from the terms."""
    if isinstance(number, Quotient):
        result = value_of_sum(number.top)
        for factor, power in number.factors.items():
            result *= value_of_sum(factor) ** power
        return result
    if isinstance(number, Surd):
        return sum((value(c) * mpmath.sqrt(key) for key, c in number.terms.items()), mpmath.mpf(0))
    return mpmath.mpf(Fraction(number).numerator) / Fraction(number).denominator


def value_of_sum(part: Sum) -> Any:
    return sum((value(c) * mpmath.exp(value(a)) for a, c in part.terms.items()), mpmath.mpf(0))


@examples(3)
@given(quotients(), quotients(), quotients())
def test_quotients_are_a_field(a: Any, b: Any, c: Any) -> None:
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + b == b + a
    assert a * b == b * a
    assert a - a == 0
    assert 0 - (-a) == a
    if a != 0:
        assert divide(a, a) == 1
        assert divide(b, a) * a == b
        assert divide(1, divide(1, a)) == a


@examples(3)
@given(quotients(), quotients())
def test_operations_are_those_of_the_real_numbers(a: Any, b: Any) -> None:
    with mpmath.workdps(120):
        pairs = [(a + b, value(a) + value(b)), (a - b, value(a) - value(b)), (a * b, value(a) * value(b))]
        pairs += [(divide(a, b), value(a) / value(b))] if b != 0 else []
        for number, expected in pairs:
            assert abs(value(number) - expected) <= mpmath.mpf(10) ** -100 * (1 + abs(expected))
            interval = enclose(number, 100)
            scale = mpmath.mpf(10) ** -90 * (1 + abs(expected))
            assert value(interval.lower) - scale <= expected <= value(interval.upper) + scale


@examples(3)
@given(quotients(), quotients())
def test_order_is_that_of_the_real_numbers(a: Any, b: Any) -> None:
    with mpmath.workdps(200):
        difference = value(a) - value(b)
        expected = 0 if abs(difference) < mpmath.mpf(10) ** -150 else int(mpmath.sign(difference))
    assert compare(a, b) == expected
    assert (a < b, a <= b, a == b, a >= b, a > b) == (
        expected < 0,
        expected <= 0,
        expected == 0,
        expected >= 0,
        expected > 0,
    )
    assert sign(a - b) == expected


@given(small, small)
def test_a_fraction_that_is_a_key_is_the_fraction(a: Fraction, b: Fraction) -> None:
    assert Exponent(a) == a
    assert hash(Exponent(a)) == hash(a)
    assert {a: 1}[Exponent(a)] == 1
    assert Exponent(a) + Exponent(b) == a + b
    assert (Exponent(a) == Exponent(b)) == (a == b)


@examples(3)
@given(st.lists(st.tuples(algebraic, algebraic), min_size=1, max_size=4))
def test_terms_are_collected_in_any_order(parts: list[tuple[Any, Any]]) -> None:
    """A sum has one form, and with it one hash, however it is added up."""
    forward = sum((c * exp(a) for c, a in parts), 0)
    backward = sum((exp(a) * c for c, a in reversed(parts)), 0)
    assert forward == backward
    assert hash(forward) == hash(backward)


# ---------------------------------------------------------------------- equal


@examples(2)
@given(st.lists(algebraic, min_size=2, max_size=4), algebraic)
def test_a_softmax_does_not_hear_a_shift(scores: list[Any], shift: Any) -> None:
    numbers = ExactNumbers()
    plain = numbers.softmax(scores)
    moved = numbers.softmax([score - shift for score in scores])
    assert plain == moved
    assert [hash(weight) for weight in plain] == [hash(weight) for weight in moved]
    assert numbers.total(plain) == 1
    assert sum(plain, 0) == 1
    top = FUNCTIONS["max"](*scores)
    naive = [divide(exp(score - top), total_of([exp(other - top) for other in scores])) for score in scores]
    assert naive == plain


def total_of(values: list[Any]) -> Any:
    return ExactNumbers().total(values)


@given(algebraic, algebraic, algebraic)
def test_products_multiply_out(a: Any, b: Any, c: Any) -> None:
    assert (exp(a) + exp(b)) * exp(c) == exp(a + c) + exp(b + c)
    assert (exp(a) + exp(b)) ** 2 == exp(2 * a) + 2 * exp(a + b) + exp(2 * b)
    assert (exp(a) + 1) * (exp(a) - 1) == exp(2 * a) - 1
    if a != 0:
        assert divide(exp(3 * a) - 1, exp(a) - 1) == exp(2 * a) + exp(a) + 1
        assert divide(exp(2 * a) - 1, exp(a) - 1) - exp(a) == 1


@given(algebraic)
def test_functions_of_the_field(x: Any) -> None:
    assert tanh(x) == 2 * sigmoid(2 * x) - 1
    assert sigmoid(-x) == 1 - sigmoid(x)
    assert tanh(-x) == -tanh(x)
    assert sigmoid(x) == divide(1, 1 + exp(-x))
    assert silu(x) - silu(-x) == x
    assert tanh(x) == divide(exp(x) - exp(-x), exp(x) + exp(-x))
    assert tanh(2 * x) == divide(2 * tanh(x), 1 + tanh(x) * tanh(x))
    assert FUNCTIONS["sqrt"](exp(x)) == exp(x / 2)
    assert exp(x) ** -3 == exp(-3 * x)


@pytest.mark.parametrize("count", [2, 5, 12])
def test_sums_telescope(count: int) -> None:
    parts = [divide(1, exp(n) + 1) - divide(1, exp(n + 1) + 1) for n in range(count)]
    assert sum(parts, 0) == Fraction(1, 2) - divide(1, exp(count) + 1)
    assert total([*parts, divide(1, exp(count) + 1)]) == Fraction(1, 2)
    product: Any = 1
    for n in range(1, count):
        product = product * divide(exp(n) + 1, exp(n + 1) + 1)
    assert product == divide(exp(1) + 1, exp(count) + 1)
    assert sum((exp(n) for n in range(count)), 0) * (exp(1) - 1) == exp(count) - 1


# ------------------------------------------------------------------ not equal


@examples(1.5)
@given(quotients(), st.integers(1, 9))
def test_a_near_miss_is_no_equality(a: Any, digit: int) -> None:
    near = a + Fraction(digit, 10**41)
    assert near != a
    assert near > a
    assert not near <= a
    assert a - Fraction(digit, 10**41) < a


def test_what_agrees_to_many_digits_is_told_apart() -> None:
    with mpmath.workdps(120):
        near = Fraction(int(mpmath.e * mpmath.mpf(10) ** 100), 10**100)
    assert near < exp(1)
    assert exp(1) - near < Fraction(1, 10**100)
    assert exp(near) != exp(near + Fraction(1, 10**90))
    assert 1 + exp(-400) != 1
    assert tanh(300) < 1
    assert sigmoid(-1000) > 0
    assert divide(1, 1 + exp(-5000)) < 1
    assert exp(root(2)) != exp(Fraction(665857, 470832))
    assert exp(root(2)) < exp(Fraction(665857, 470832))


def test_exponents_that_are_roots_of_one_class() -> None:
    assert exp(root(8)) == exp(root(2)) ** 2
    assert exp(root(2 * 1000003**2)) == exp(1000003 * root(2))
    assert exp(root(2)) * exp(-root(2)) == 1
    assert exp(root(2) + root(3)) == exp(root(2)) * exp(root(3))
    assert exp(root(2)) + exp(root(3)) != exp(root(5))


# -------------------------------------------------------------------- wholes


@pytest.mark.parametrize("exponent", [1, 2, 10, 100, 1000, -1, -1000, Fraction(1, 3)])
def test_whole_parts(exponent: Any) -> None:
    with mpmath.workdps(1000):
        expected = int(mpmath.floor(mpmath.exp(value(exponent))))
        assert floor(exp(exponent)) == expected
        assert floor(-exp(exponent)) == -expected - 1
        assert FUNCTIONS["ceil"](exp(exponent)) == expected + 1
        assert FUNCTIONS["round"](exp(exponent)) == int(mpmath.nint(mpmath.exp(value(exponent))))
        assert int(-exp(exponent)) == -expected


def test_whole_parts_that_a_form_hides() -> None:
    one = divide(divide(exp(2) - 1, exp(1) + 1), exp(1) - 1)
    for number in (Fraction(3), Fraction(-3), Fraction(1, 2), Fraction(3, 2), Fraction(-5, 2), Fraction(7, 3)):
        for name in ("floor", "ceil", "round"):
            assert FUNCTIONS[name](one * number) == FUNCTIONS[name](number)
        assert int(one * number) == int(number)
    assert ExactNumbers().remainder(one * 7, 2) == 1
    assert ExactNumbers().remainder(one * -7, 2) == -1


def test_the_whole_part_of_a_huge_number_is_refused() -> None:
    assert floor(exp(20000)) > 10**8685
    with pytest.raises(OverflowError):
        floor(exp(10**9))
    with pytest.raises(OverflowError):
        enclose(exp(2**16385), 64)


def test_what_grows_too_large_is_refused() -> None:
    generator = random.Random(3)
    many = sum((exp(Fraction(generator.randint(1, 10**9), 10**6)) for _ in range(2000)), 0)
    assert many**1 is not None
    assert len(many.top) == 2000
    with pytest.raises(TooManyTerms):
        many * (many + 1) + 1
