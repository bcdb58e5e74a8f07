"""The functions of exact numbers: like floats at every edge, and right in between."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
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
from indexical.numbers.tower import INFINITY, UNDEFINED, Special, TooManyTerms, divide, refined, sign
from indexical.run.floats import Floats

EXACT, FLOATS = ExactNumbers(), Floats()
FUNCTIONS = EXACT.functions

EDGES: list[Any] = [INFINITY, -INFINITY, UNDEFINED, 0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2)]
EXPONENTS: list[Any] = [*EDGES, 3, -3, Fraction(3, 2), Fraction(-3, 2), Fraction(1, 3), Fraction(-1, 3), Fraction(2, 3)]


def as_float(number: Any) -> float:
    if isinstance(number, Special):
        return {1: math.inf, -1: -math.inf}.get(number.side, math.nan)
    for interval in refined(number):
        if math.isclose(float(interval.lower), float(interval.upper), rel_tol=1e-15):
            return float(interval.lower)
    raise AssertionError


def same(found: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(found)
    return found == expected if math.isinf(expected) else math.isclose(found, expected, rel_tol=1e-13)


OF_TWO: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float, float], float]]] = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "/": (EXACT.divide, FLOATS.divide),
    "%": (EXACT.remainder, FLOATS.remainder),
    "**": (EXACT.power, FLOATS.power),
    "max": (FUNCTIONS["max"], FLOATS.functions["max"]),
    "min": (FUNCTIONS["min"], FLOATS.functions["min"]),
}


@pytest.mark.parametrize("name", OF_TWO)
def test_two_arguments_are_as_for_floats(name: str) -> None:
    exact, floats = OF_TWO[name]
    for a, b in itertools.product(EDGES, EXPONENTS if name == "**" else EDGES):
        found, expected = as_float(exact(a, b)), floats(as_float(a), as_float(b))
        assert same(found, expected), (a, b, found, expected)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("clamp", "max", "min")])
def test_one_argument_is_as_for_floats(name: str) -> None:
    for x in EDGES:
        found, expected = as_float(FUNCTIONS[name](x)), FLOATS.functions[name](as_float(x))
        assert same(found, expected), (x, found, expected)


def test_three_arguments_are_as_for_floats() -> None:
    for x, low, high in itertools.product(EDGES, repeat=3):
        found = as_float(FUNCTIONS["clamp"](x, low, high))
        assert same(found, FLOATS.functions["clamp"](*map(as_float, (x, low, high)))), (x, low, high)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_comparisons_are_as_for_floats(compare: Callable[[Any, Any], bool]) -> None:
    for a, b in itertools.product([*EDGES, root(2), exp(1), terms.name("log", 2)], repeat=2):
        assert compare(a, b) == compare(as_float(a), as_float(b)), (a, b)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_normalisers_are_as_for_floats(name: str) -> None:
    for scores in itertools.chain.from_iterable(itertools.product(EDGES[:6], repeat=n) for n in (1, 2, 3)):
        found = [as_float(part) for part in getattr(EXACT, name)(list(scores))]
        expected = getattr(FLOATS, name)([as_float(score) for score in scores])
        assert all(map(same, found, expected)), (scores, found, expected)


def test_sums_are_as_for_floats() -> None:
    numbers = [*EDGES, root(2), exp(1), terms.name("log", 2)]
    for values in itertools.product(numbers, repeat=3):
        found = as_float(EXACT.total(list(values)))
        assert same(found, FLOATS.total([as_float(value) for value in values])) or abs(found) < 1e-15, values


def test_irrational_numbers_beside_infinities() -> None:
    for x in (root(2), exp(1), -exp(1), terms.name("log", 2), -root(2)):
        for special in (INFINITY, -INFINITY, UNDEFINED):
            for exact, floats in OF_TWO.values():
                for a, b in ((x, special), (special, x)):
                    found, expected = as_float(exact(a, b)), floats(as_float(a), as_float(b))
                    assert same(found, expected), (a, b, found, expected)


# --------------------------------------------------------------------- powers


def bases() -> list[Any]:
    return [0, 1, -1, 2, -3, Fraction(4, 9), Fraction(-1, 8), root(2), -root(3), exp(2), -exp(1), terms.name("log", 7)]


def exponents() -> list[Any]:
    parts = [0, 1, -1, 2, -2, 3, -3, 5]
    fractions = [Fraction(n, d) for n in (1, -1, 3, -2, 5) for d in (2, 3, 4)]
    return [*parts, *fractions, root(2), -root(2), exp(1), terms.name("log", 2)]


def test_powers_are_those_of_floats() -> None:
    for a, b in itertools.product(bases(), exponents()):
        found, expected = as_float(EXACT.power(a, b)), FLOATS.power(as_float(a), as_float(b))
        assert same(found, expected), (a, b, found, expected)


def test_a_negative_number_to_a_whole_power_that_a_form_hides() -> None:
    one = divide(divide(exp(2) - 1, exp(1) + 1), exp(1) - 1)
    assert EXACT.power(-2, 3 * one) == -8
    assert EXACT.power(-root(2), 2 * one) == 2
    assert EXACT.power(-2, one / 2) is UNDEFINED
    assert EXACT.power(-2, root(2)) is UNDEFINED


def test_powers_that_stay_in_the_field() -> None:
    assert EXACT.power(2, Fraction(1, 2)) == root(2)
    assert EXACT.power(Fraction(1, 2), Fraction(3, 2)) == root(2) / 4
    assert EXACT.power(exp(2), Fraction(1, 2)) == exp(1)
    assert EXACT.power(exp(1), root(2)) == exp(root(2))
    assert EXACT.power(exp(3), Fraction(1, 3)) == exp(1)
    assert EXACT.power(exp(2), 10**9) == exp(2 * 10**9)
    assert EXACT.power(1 + exp(1), -2) == divide(1, 1 + 2 * exp(1) + exp(2))


@pytest.mark.parametrize("base", [2, Fraction(3, 2), root(2), 1 + root(2), 3 * exp(1)])
def test_a_power_too_long_to_write_is_refused(base: Any) -> None:
    with pytest.raises(TooManyTerms):
        EXACT.power(base, 10**12)
    with pytest.raises(TooManyTerms):
        EXACT.power(base, -(10**12))
    assert EXACT.power(1, 10**12) == 1 == EXACT.power(-1, 10**12)
    assert EXACT.power(0, 10**12) == 0


# -------------------------------------------------------------- named numbers


def test_logarithms_and_exponentials_undo_each_other() -> None:
    log = FUNCTIONS["log"]
    for x in (5, Fraction(6, 35), Fraction(17, 19), root(2), 1 + root(3), exp(1) + 1, 3 * exp(2) - 3, exp(root(2))):
        assert FUNCTIONS["exp"](log(x)) == x
        assert FUNCTIONS["exp"](-log(x)) == divide(1, x)
        assert FUNCTIONS["exp"](2 * log(x) + 1) == x * x * exp(1)
        assert FUNCTIONS["exp"](log(x) / 2) == FUNCTIONS["sqrt"](x)
        assert log(x * x) == 2 * log(x)
        assert log(divide(1, x)) == -log(x)
    for x in (3, Fraction(-2, 7), root(5), -root(2) + 1):
        assert log(FUNCTIONS["exp"](x)) == x


@pytest.mark.parametrize(
    ("a", "b"), [(2, 3), (Fraction(1, 6), 12), (exp(1) + 1, 2), (exp(2) - 1, 3), (exp(1) - exp(2) + 9, exp(1) - 1)]
)
def test_the_logarithm_of_a_product_is_a_sum(a: Any, b: Any) -> None:
    log = FUNCTIONS["log"]
    assert log(a * b) == log(a) + log(b)
    assert log(divide(a, b)) == log(a) - log(b)
    assert log(a * exp(3)) == log(a) + 3


def test_roots_of_what_has_no_root_in_the_field() -> None:
    sqrt = FUNCTIONS["sqrt"]
    for x in (exp(1) + 1, 1 + root(2), terms.name("log", 2) + 1, exp(Fraction(1, 3))):
        assert sqrt(x) * sqrt(x) == x
        assert EXACT.power(x, Fraction(3, 2)) == x * sqrt(x)
        assert FUNCTIONS["rsqrt"](x) * sqrt(x) == 1
        assert FUNCTIONS["rsqrt"](x) ** 2 * x == 1
    for x in (exp(1) + 1, 1 + root(2)):
        assert x * FUNCTIONS["rsqrt"](x) == sqrt(x)


@pytest.mark.parametrize("name", ["erf", "sin", "gelu"])
def test_odd_functions(name: str) -> None:
    for x in (1, Fraction(2, 3), root(2), exp(1)):
        if name == "gelu":
            assert FUNCTIONS["gelu"](x) - FUNCTIONS["gelu"](-x) == x
        else:
            assert FUNCTIONS[name](-x) == -FUNCTIONS[name](x)
    assert FUNCTIONS["cos"](-2) == FUNCTIONS["cos"](2)


# --------------------------------------------------------------------- wholes

WHOLES = [Fraction(n, 2) for n in range(-9, 10)]


def routes() -> list[Any]:
    """The number 1, by ways through irrational numbers."""
    log = FUNCTIONS["log"]
    return [
        root(2) * root(2) / 2,
        FUNCTIONS["exp"](log(5)) / 5,
        divide(FUNCTIONS["exp"](3 + log(2)), 2 * exp(3)),
        divide(log(8), 3 * log(2)),
        divide(exp(1) + exp(2), exp(1)) - exp(1),
        FUNCTIONS["tanh"](1) + divide(2, exp(2) + 1),
        divide(divide(exp(4) - 1, exp(2) + 1), exp(2) - 1),
        log(17**3) - 3 * log(17) + 1,
    ]


@pytest.mark.parametrize("name", ["floor", "ceil", "round"])
def test_whole_and_half_numbers_by_irrational_routes(name: str) -> None:
    for one in routes():
        assert one == 1
        for number in WHOLES:
            assert FUNCTIONS[name](one * number) == FLOATS.functions[name](float(number)), (one, number)


def test_remainders_by_irrational_routes() -> None:
    for one in routes():
        for a, b in itertools.product(WHOLES, WHOLES[::3]):
            if b:
                assert EXACT.remainder(one * a, one * b) == Fraction(math.fmod(a, b)), (one, a, b)


def test_remainders_of_irrational_numbers() -> None:
    for a, b in itertools.product((root(2), -exp(2), terms.name("log", 7), 10 * exp(1), 5), (root(3), -exp(1), 1)):
        found = EXACT.remainder(a, b)
        assert sign(found) in (0, sign(a))
        assert abs(found) < abs(b)
        assert math.isclose(as_float(found), math.fmod(as_float(a), as_float(b)), abs_tol=1e-12)


# -------------------------------------------------------------------- choices


@examples(2.5)
@given(st.lists(st.sampled_from([0, 3, Fraction(-7, 2), root(2), root(3), exp(1), -exp(1), exp(-1)]), min_size=1))
def test_the_largest_and_the_smallest(values: list[Any]) -> None:
    top, bottom = FUNCTIONS["max"](*values), FUNCTIONS["min"](*values)
    assert top in values
    assert all(value <= top for value in values)
    assert all(value >= bottom for value in values)
    assert as_float(top) == max(map(as_float, values))
    assert as_float(bottom) == min(map(as_float, values))
    assert FUNCTIONS["relu"](values[0]) == FUNCTIONS["max"](0, values[0])
    assert FUNCTIONS["abs"](values[0]) == FUNCTIONS["max"](values[0], -values[0])


def test_a_softmax_over_symbols_does_not_hear_what_is_masked_away() -> None:
    x, y = terms.symbol("x", ()), terms.symbol("y", ())
    left, right, nothing = EXACT.softmax([x, y, -INFINITY])
    assert nothing == 0
    assert [left, right] == EXACT.softmax([x, y])
    assert left + right == 1
    assert isinstance(left, Polynomial)
    assert all(part is UNDEFINED for part in EXACT.softmax([x, INFINITY]))


@examples(2)
@given(st.lists(st.builds(Fraction, st.integers(-20, 20), st.integers(1, 6)), min_size=1, max_size=8))
def test_totals_are_sums(values: list[Any]) -> None:
    assert EXACT.total(values) == sum(values)
    mixed = [*values, root(2), exp(1), terms.name("log", 2), -root(2), -exp(1), -terms.name("log", 2)]
    assert EXACT.total(mixed) == sum(values)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "silu", "gelu", "erf", "sin", "cos", "log", "sqrt"])
def test_values_are_right(name: str) -> None:
    truth: dict[str, Callable[[Any], Any]] = {
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
        "silu": lambda x: x / (1 + mpmath.exp(-x)),
        "gelu": lambda x: x / 2 * mpmath.erfc(-x / mpmath.sqrt(2)),
    }
    for argument in (Fraction(1, 3), 2, Fraction(-5, 4), 7, -30):
        if argument < 0 and name in ("log", "sqrt"):
            continue
        x = FUNCTIONS[name](argument)
        with mpmath.workdps(60):
            point = mpmath.mpf(Fraction(argument).numerator) / Fraction(argument).denominator
            expected = truth.get(name) or getattr(mpmath, name)
            interval = next(refined(x, bits=1000))
            lower, upper = (mpmath.mpf(end.numerator) / end.denominator for end in (interval.lower, interval.upper))
            slack = abs(expected(point)) * mpmath.mpf(10) ** -50
            assert lower - slack <= expected(point) <= upper + slack
            assert upper - lower <= abs(expected(point)) * mpmath.mpf(10) ** -30
