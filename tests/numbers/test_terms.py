"""Symbols and named terms: laws of a ring with inverses, what is known to be equal, and what is not known."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

from indexical.numbers import terms
from indexical.numbers.exponentials import exp
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.surds import root
from indexical.numbers.terms import Polynomial
from indexical.numbers.tower import Undecidable, Valueless, compare, divide, refined, sign

FUNCTIONS = ExactNumbers.functions
X, Y, Z = (terms.symbol(name, ()) for name in "xyz")
LOG2, SINE, ERF = terms.name("log", 2), terms.name("sin", 1), terms.name("erf", root(2))

ATOMS = [X, Y, LOG2, SINE, ERF, FUNCTIONS["exp"](exp(1)), FUNCTIONS["sqrt"](exp(1) + 1)]
coefficients = st.one_of(
    st.builds(Fraction, st.integers(-5, 5), st.integers(1, 4)), st.sampled_from([root(2), exp(1), exp(-2) + 1])
)


@st.composite
def polynomials(draw: st.DrawFn) -> Any:
    total: Any = draw(coefficients)
    for _ in range(draw(st.integers(0, 2))):
        part: Any = draw(coefficients)
        for atom in draw(st.lists(st.sampled_from(ATOMS), max_size=2)):
            part = part * atom
        total = total + part
    return total


def same(a: Any, b: Any) -> bool:
    """Whether two numbers are seen to be one without any enclosure."""
    difference = a - b
    return bool(difference.is_zero()) if isinstance(difference, Polynomial) else bool(difference == 0)


@examples(4)
@given(polynomials(), polynomials(), polynomials())
def test_polynomials_are_a_ring(a: Any, b: Any, c: Any) -> None:
    assert same((a + b) + c, a + (b + c))
    assert same((a * b) * c, a * (b * c))
    assert same(a * (b + c), a * b + a * c)
    assert same(a * b, b * a)
    assert same(a - a, 0)
    assert same((a + b) ** 2, a * a + 2 * a * b + b * b)


@examples(2)
@given(polynomials(), polynomials())
def test_a_quotient_is_undone_by_a_product(a: Any, b: Any) -> None:
    if same(a, 0):
        return
    quotient = divide(b, a)
    assert same(quotient * a, b)
    assert same(divide(a, a), 1)
    assert same(divide(1, divide(1, a)), a)
    assert same(divide(b, a) + divide(1, a), divide(b + 1, a))


def test_equal_quotients_of_symbols_are_equal() -> None:
    """In whatever order they were added up, and however often they were divided."""
    assert divide(1, X + Y) == divide(1, Y + X)
    assert divide(1, X) - divide(1, X + 1) == divide(1, X * (X + 1))
    assert divide(X * X - Y * Y, X - Y) == X + Y
    assert divide(1, 1 + divide(1, X)) == divide(X, X + 1)
    assert divide(X, X + Y) + divide(Y, X + Y) == 1
    assert divide(1, LOG2 + SINE) == divide(1, SINE + LOG2)
    assert divide(1, divide(1, X + Y)) == X + Y
    assert not divide(1, X + Y) - divide(1, Y + X)


def test_polynomials_in_symbols_alone_are_told_apart() -> None:
    near = exp(1) + Fraction(1, 10**40)
    for a, b in ((X, Y), (X * X, X), (divide(1, X + 1), divide(1, X + 2)), (X * exp(1), X * near)):
        assert (a - b).is_zero() is False
        assert bool(a - b)
    with pytest.raises(Valueless):
        sign(X)
    with pytest.raises(Valueless):
        compare(X, Y)


def test_functions_of_symbols_may_be_equal_in_ways_that_terms_do_not_show() -> None:
    """sin² + cos² is 1, by the law of the exponentials that they are; in an exponent, no one says so."""
    sine, cosine = FUNCTIONS["sin"](X), FUNCTIONS["cos"](X)
    assert (sine * sine + cosine * cosine - 1).is_zero() is True
    assert (sine * sine + cosine * cosine - 2).is_zero() is False
    raised = FUNCTIONS["exp"](sine * sine) * FUNCTIONS["exp"](cosine * cosine)
    assert (raised - FUNCTIONS["exp"](1)).is_zero() is None
    with pytest.raises(Valueless):
        bool(raised - FUNCTIONS["exp"](1))
    assert (2 * FUNCTIONS["log"](X) - FUNCTIONS["log"](X * X)).is_zero() is not False


def test_dividing_by_what_is_identically_zero() -> None:
    nothing = divide(1, X + Y) - divide(1, Y + X)
    assert divide(0, nothing) is divide(0, 0)
    with pytest.raises(Valueless):
        divide(X, nothing)


# ------------------------------------------------------------------- one name


def test_an_exponential_has_one_name() -> None:
    raise_ = FUNCTIONS["exp"]
    for x in (X, X + Y, exp(1), LOG2 * root(2), SINE):
        assert raise_(x) * raise_(x) == raise_(2 * x)
        assert raise_(x) ** 3 == raise_(3 * x)
        assert divide(1, raise_(x)) == raise_(-x)
        assert raise_(x) * raise_(-x) == 1
        assert divide(raise_(2 * x), raise_(x)) == raise_(x)
    assert raise_(X) * raise_(Y) == raise_(X + Y)
    assert raise_(exp(1)) * raise_(1 - exp(1)) == exp(1)


def test_roots_are_undone() -> None:
    sqrt = FUNCTIONS["sqrt"]
    for x in (X, X + Y, exp(1) + 1, LOG2 + 1, 1 + root(2), sqrt(exp(1) + 1)):
        assert sqrt(x) * sqrt(x) == x
        assert sqrt(x) ** 3 == x * sqrt(x)
        assert divide(1, sqrt(x)) * sqrt(x) == 1
        assert divide(1, sqrt(x) * sqrt(x)) == divide(1, x)
        assert divide(1, sqrt(x)) ** 3 * x * sqrt(x) == 1
    assert sqrt(3 * exp(2) - 3) == root(3) * sqrt(exp(2) - 1)
    assert sqrt(exp(1) + exp(3)) == exp(Fraction(1, 2)) * sqrt(1 + exp(2))
    assert sqrt(divide(1, exp(1) + 1)) ** 2 == divide(1, exp(1) + 1)


def test_logarithms_that_cancel_are_seen_to() -> None:
    log = FUNCTIONS["log"]
    assert log(289) == 2 * log(17)
    assert log(Fraction(17, 19)) - log(17) + log(19) == 0
    assert log((exp(1) + 1) * (exp(2) + 3)) == log(exp(1) + 1) + log(exp(2) + 3)
    assert log(1 + root(2)) + log(root(2) - 1) == 0
    assert log(3 + 2 * root(2)) == 2 * log(1 + root(2))
    assert log(289) / 3 == Fraction(2, 3) * log(17)
    assert log(289) != 2 * log(17) + Fraction(1, 10**60)
    assert log(17) != log(19)


def test_what_is_not_known_is_said() -> None:
    sine, cosine = FUNCTIONS["sin"](1), FUNCTIONS["cos"](1)
    raised = FUNCTIONS["exp"](sine * sine) * FUNCTIONS["exp"](cosine * cosine)
    for number in (raised - FUNCTIONS["exp"](1), FUNCTIONS["sin"](raised) - FUNCTIONS["sin"](FUNCTIONS["exp"](1))):
        with pytest.raises(Undecidable):
            sign(number)
        with pytest.raises(Undecidable):
            number == 0  # noqa: B015
    assert sine * sine + cosine * cosine > Fraction(999, 1000)


# --------------------------------------------------------------------- values


NAMES = ("log", "sin", "erf")


def value(atom: Any) -> Any:
    table = {"log": mpmath.log(2), "sin": mpmath.sin(1), "erf": mpmath.erf(mpmath.sqrt(2))}
    return table[atom]


@examples(3)
@given(st.lists(st.tuples(st.integers(-5, 5), st.lists(st.sampled_from(NAMES), max_size=3)), max_size=3))
def test_enclosures_hold_the_value(parts: list[tuple[int, list[str]]]) -> None:
    atoms = {"log": LOG2, "sin": SINE, "erf": ERF}
    number: Any = 0
    with mpmath.workdps(80):
        expected = mpmath.mpf(0)
        for coefficient, names in parts:
            term: Any = coefficient
            factor = mpmath.mpf(coefficient)
            for name in names:
                term, factor = term * atoms[name], factor * value(name)
            number, expected = number + term, expected + factor
        if not isinstance(number, Polynomial):
            assert number == int(expected)
            return
        interval = next(refined(number, bits=128))
        lower, upper = (mpmath.mpf(end.numerator) / end.denominator for end in (interval.lower, interval.upper))
        assert lower - mpmath.mpf(10) ** -70 <= expected <= upper + mpmath.mpf(10) ** -70
        assert upper - lower < mpmath.mpf(10) ** -30
        if abs(expected) > mpmath.mpf(10) ** -60:
            assert sign(number) == mpmath.sign(expected)


def test_a_symbol_of_a_row_moves_to_a_point() -> None:
    row = terms.symbol("V", (0, "e"))
    moved = (row * 2 + divide(1, row + 1)).at({"e": 3})
    there = terms.symbol("V", (0, 3))
    assert moved == there * 2 + divide(1, there + 1)
    assert FUNCTIONS["exp"](row).at({"e": 3}) == FUNCTIONS["exp"](there)
