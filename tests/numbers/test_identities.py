"""Equalities by laws: angle sums, roots of any index, exponentials of sums; drawn, shifted by little, and refuted."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import pytest

import indexical as ix
from indexical.numbers import enclosure
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.interval import Interval
from indexical.numbers.tower import Undecidable, compare, sign

EXACT = ExactNumbers()
sin, cos, exp, sqrt, erf, gelu = (EXACT.functions[name] for name in ("sin", "cos", "exp", "sqrt", "erf", "gelu"))
power = EXACT.power


def drawn(generator: random.Random, depth: int) -> tuple[Any, Any]:
    """A number of roots, multiples of pi and waves, and what mpmath computes for it."""
    kind = generator.random()
    if depth == 0 or kind < 0.2:
        value = Fraction(generator.randint(1, 30), generator.choice([1, 2, 3, 4, 8]))
        index = Fraction(generator.randint(1, 5), generator.choice([1, 2, 3, 4, 6]))
        plain = mpmath.mpf(value.numerator) / value.denominator
        if kind < 0.05:
            return EXACT.pi * value, mpmath.pi * plain
        return power(value, index), plain ** (mpmath.mpf(index.numerator) / index.denominator)
    a, left = drawn(generator, depth - 1)
    if kind < 0.4:
        return (sin(a), mpmath.sin(left)) if kind < 0.3 else (cos(a), mpmath.cos(left))
    if kind < 0.5 and left > 0.01:
        return sqrt(a), mpmath.sqrt(left)
    b, right = drawn(generator, depth - 1)
    if kind < 0.7:
        return a + b, left + right
    return (a - b, left - right) if kind < 0.85 else (a * b, left * right)


@pytest.mark.parametrize("seed", range(3))
def test_order_is_that_of_mpmath(seed: int) -> None:
    generator = random.Random(seed)
    with mpmath.workdps(200):
        numbers = [drawn(generator, generator.randint(1, 3)) for _ in range(40)]
        for (a, left), (b, right) in pairwise(numbers):
            apart = left - right
            expected = 0 if abs(apart) < mpmath.mpf(10) ** -150 else mpmath.sign(apart)
            try:
                assert compare(a, b) == expected
            except Undecidable:
                assert expected == 0


def identities(generator: random.Random) -> list[tuple[Any, Any]]:
    a, b = drawn(generator, 1)[0], drawn(generator, 1)[0]
    f, g = (Fraction(generator.randint(1, 30), generator.randint(1, 8)) for _ in range(2))
    index = Fraction(1, generator.choice([2, 3, 4]))
    return [
        (sin(a) * sin(a) + cos(a) * cos(a), 1),
        (sin(a + b), sin(a) * cos(b) + cos(a) * sin(b)),
        (cos(a - b), cos(a) * cos(b) + sin(a) * sin(b)),
        (cos(a * 3), 4 * cos(a) * cos(a) * cos(a) - 3 * cos(a)),
        (sin(EXACT.pi * f + a), sin(EXACT.pi * f) * cos(a) + cos(EXACT.pi * f) * sin(a)),
        (power(f, index) * power(g, index), power(f * g, index)),
        (power(f, Fraction(1, 3)) * power(f, Fraction(2, 3)), f),
        (sqrt(f + g + 2 * sqrt(f * g)), sqrt(f) + sqrt(g)),
        (exp(a + 1), exp(a) * exp(1)),
        (exp(exp(f) + g), exp(exp(f)) * exp(g)),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_identities_are_seen_and_what_is_near_them_is_not_one(seed: int) -> None:
    generator = random.Random(seed)
    for left, right in identities(generator):
        assert left == right
        for small in (Fraction(1, 10**6), Fraction(-1, 10**150)):
            assert compare(left + small, right) == (1 if small > 0 else -1)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("8 ** (1 / 3.0)", "2"),
        ("10000 ** 0.25", "10"),
        ("4.0 ** 0.25", "sqrt(2.0)"),
        ("(27 / 8.0) ** (-2 / 3.0)", "4 / 9.0"),
        ("(2 + sqrt(5.0)) ** (1 / 3.0)", "(1 + sqrt(5.0)) / 2"),
        ("sqrt(sqrt(2.0))", "2.0 ** 0.25"),
        ("4 * cos(pi / 5)", "1 + sqrt(5.0)"),
        ("cos(2 * pi / 7) + cos(4 * pi / 7) + cos(6 * pi / 7)", "-0.5"),
        ("sin(1e22) ** 2", "1 - cos(1e22) ** 2"),
        ("exp(log(3.0) / 3)", "3.0 ** (1 / 3.0)"),
        ("log(exp(pi))", "pi"),
    ],
)
def test_published_equalities(left: str, right: str) -> None:
    found = ix.exact(f"let left = {left}; let right = {right};")
    assert found["left"] == found["right"]


@pytest.mark.parametrize("size", [4, 9, 60, 100, 10**6, 10**30])
def test_what_is_all_but_a_bound_is_below_it(size: int) -> None:
    assert sign(erf(size) - 1) == -1
    assert sign(erf(-size) + 1) == 1
    assert sign(gelu(-size)) == -1
    assert sign(gelu(size) - size) == -1
    assert sign(erf(size) + erf(-size)) == 0


@pytest.mark.parametrize("x", [Fraction(1, 50), 1, 4, Fraction(41, 3), 40, 300])
def test_what_erf_lacks_to_one(x: Any) -> None:
    for bits in (40, 200):
        found = enclosure.erfc(Interval.of(x, bits))
        with mpmath.workprec(4 * bits + 2000):
            argument = Interval.of(x, bits)
            ends = [mpmath.erfc(mpmath.ldexp(end, argument.exponent)) for end in (argument.high, argument.low)]
            assert mpmath.ldexp(found.low, found.exponent) <= ends[0]
            assert ends[1] <= mpmath.ldexp(found.high, found.exponent)
        assert (found.high - found.low).bit_length() < found.low.bit_length() - bits // 2


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("sin(x) ** 2 + cos(x) ** 2", "1.0", True),
        ("sin(x + y)", "sin(x) * cos(y) + cos(x) * sin(y)", True),
        ("sin(x - y)", "sin(x) * cos(y) + cos(x) * sin(y)", False),
        ("cos(2 * x)", "1 - 2 * sin(x) ** 2", True),
        ("exp(x + 1)", "exp(1.0) * exp(x)", True),
        ("exp(x + 1)", "exp(1.1) * exp(x)", False),
        ("cos(x)", "cos(y)", False),
    ],
)
def test_laws_with_symbols(left: str, right: str, equal: bool) -> None:
    found = ix.exact(f"input x, y; let a = {left}; let b = {right};")
    assert (found["a"] == found["b"]) is equal
