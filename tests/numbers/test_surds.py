"""Square roots: the axioms of a field, independence of classes, and order against mpmath."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

from indexical.numbers.surds import Surd, root, square_root
from indexical.numbers.tower import TooManyTerms, compare, divide, floor, sign

# Primes above 1,000, which trial division does not reach.
LARGE = (1009, 1013, 10007, 100003, 1000003, 2**31 - 1, 2**61 - 1)

fractions = st.builds(Fraction, st.integers(-30, 30), st.integers(1, 12))


def combined(parts: list[tuple[Fraction, int]]) -> Any:
    total: Any = Fraction(0)
    for coefficient, radicand in parts:
        total = total + root(radicand) * coefficient
    return total


radicands = st.sampled_from([1, 2, 3, 5, 6, 7, 8, 10, 12, 1009, 2 * 1009**2, 1013, 1009 * 1013])
surds = st.lists(st.tuples(fractions, radicands), min_size=1, max_size=3).map(combined)


def value(number: Any) -> mpmath.mpf:
    """By mpmath, at its working precision."""
    terms = number.terms if isinstance(number, Surd) else {1: number}
    return sum(
        (mpmath.mpf(Fraction(c).numerator) / Fraction(c).denominator * mpmath.sqrt(key) for key, c in terms.items()),
        mpmath.mpf(0),
    )


@given(surds, surds, surds)
def test_sums_of_roots_are_a_field(a: Any, b: Any, c: Any) -> None:
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + b == b + a
    assert a * b == b * a
    assert a - a == 0
    assert a + 0 == a == a * 1
    if a != 0:
        assert divide(a, a) == 1
        assert divide(b, a) * a == b
        assert divide(1, divide(1, a)) == a


@given(surds, surds)
def test_equal_sums_have_one_hash_and_never_look_rational(a: Any, b: Any) -> None:
    again = (a + b) - b
    assert again == a
    assert hash(again) == hash(a)
    assert isinstance(again, Surd) == isinstance(a, Surd)
    for number in (a, a + b, a * b):
        if isinstance(number, Surd):
            assert all(number.terms.values())
            assert set(number.terms) != {1}


@given(surds, surds)
def test_order_is_that_of_the_real_numbers(a: Any, b: Any) -> None:
    with mpmath.workdps(60):
        difference = value(a) - value(b)
        expected = 0 if abs(difference) < mpmath.mpf(10) ** -50 else int(mpmath.sign(difference))
    assert compare(a, b) == expected
    assert sign(a - b) == expected
    assert (a < b, a == b, a > b) == (expected < 0, expected == 0, expected > 0)


@pytest.mark.parametrize("prime", LARGE)
@pytest.mark.parametrize("beside", [2, 3, 6, 997, 1019, 1019 * 1021, 2 * 1000033])
def test_a_square_of_a_large_prime_leaves_the_root(prime: int, beside: int) -> None:
    """Whichever of the two is met first."""
    assert root(prime**2 * beside) == prime * root(beside)
    assert root(beside * 7) * prime == root(beside * 7 * prime**2)
    assert root(prime**2 * beside) - prime * root(beside) == 0
    assert root(Fraction(beside, prime**2)) == root(beside) / prime
    assert isinstance(root(beside), Surd)


def test_a_large_member_of_a_class_may_be_met_first() -> None:
    p, q = 2**89 - 1, 2**107 - 1
    large = root(p**2 * q * 5)
    assert large == p * root(5 * q)
    assert large * large == p**2 * q * 5
    assert root(q) * root(5) * p == large


def test_products_of_large_primes_are_independent() -> None:
    p, q, r = 2**61 - 1, 10**18 + 9, 2**89 - 1
    numbers = [root(math.prod(some)) for n in (1, 2, 3) for some in itertools.combinations((p, q, r), n)]
    keys = {next(iter(number.terms)) for number in numbers}
    assert len(keys) == len(numbers)
    assert root(p) * root(q) == root(p * q)
    assert root(p * q) * root(q * r) == q * root(p * r)
    assert root(p * q) * root(q * r) * root(p * r) == p * q * r
    total = sum(numbers, 1)
    assert divide(1, total) * total == 1


@given(st.integers(1, 10**14), st.integers(1, 10**8))
def test_the_class_of_a_product_with_a_square_is_the_same(n: int, m: int) -> None:
    factor, key = square_root(n * m * m)
    once, other = square_root(n)
    assert key == other
    assert factor == once * m
    assert factor**2 * key == n * m * m


def test_the_inverse_of_many_roots() -> None:
    for count in range(1, 5):
        total = 1 + sum((root(p) for p in (2, 3, 5, 7)[:count]), Fraction(1, 3))
        inverse = divide(1, total)
        assert inverse * total == 1
        with mpmath.workdps(50):
            assert abs(value(inverse) * value(total) - 1) < mpmath.mpf(10) ** -40
    with pytest.raises(TooManyTerms):
        divide(1, sum((root(p) for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)), 1))


def test_a_near_miss_is_no_equality() -> None:
    """Denesting: √(2 + √3) is (√6 + √2)/2; and a fraction within 10⁻⁴⁰ of √2 is not √2."""
    assert ((root(6) + root(2)) / 2) ** 2 == 2 + root(3)
    p, q = 1, 1
    while q < 10**20:
        p, q = p + 2 * q, p + q
    near = Fraction(p, q)
    assert abs(value(near) - mpmath.sqrt(2)) < mpmath.mpf(10) ** -15
    assert near != root(2)
    assert (near < root(2)) == (near * near < 2)
    assert root(2) + Fraction(1, 10**40) != root(2)
    assert root(2) + Fraction(1, 10**40) > root(2)
    # Sums of roots that differ in the 37th digit.
    left, right = root(10**36 + 1) + root(10**36 + 4), root(10**36 + 2) + root(10**36 + 3)
    assert compare(left, right) == -1


@pytest.mark.parametrize("count", range(-3, 4))
def test_whole_parts(count: int) -> None:
    for number in (root(2), root(3) * 5, 1 + root(5), root(10**30 + 1)):
        with mpmath.workdps(60):
            assert floor(number * count + 1) == int(mpmath.floor(value(number) * count + 1))
            assert int(number * count) == int(value(number) * count)
    assert floor(root(2) * root(2) * count) == 2 * count


@examples(1.5)
@given(surds, st.integers(0, 6))
def test_powers_are_repeated_products(a: Any, exponent: int) -> None:
    expected: Any = 1
    for _ in range(exponent):
        expected = expected * a
    assert a**exponent == expected
    if isinstance(a, Surd) and len(a.terms) == 1:
        assert a**-exponent * expected == 1


def test_large_sums_are_raised_to_the_first_power() -> None:
    """Nothing is multiplied that the power does not ask for."""
    many = sum((root(n) for n in range(2, 120)), Fraction(0))
    assert many**1 == many
    generator = random.Random(1)
    assert many * generator.randint(2, 9) != many
