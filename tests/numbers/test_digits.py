"""Decimals of exact numbers, against expressions that mpmath evaluates by itself at a far higher precision."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.profiles import examples

from indexical.numbers.digits import decimal
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.series import whole_text
from indexical.numbers.tower import INFINITY, UNDEFINED, Undecidable

EXACT = ExactNumbers()

# A tree: a fraction, or the name of a function and what it is of.
Tree: TypeAlias = Any


class Outside(Exception):
    """A tree without a value, or one that is too large or too near an edge to be compared."""


def _positive(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(x: Any) -> Any:
        if x <= mpmath.mpf(10) ** -40:
            raise Outside
        return function(x)

    return checked


def _small(function: Callable[[Any], Any], most: int = 400) -> Callable[[Any], Any]:
    def checked(x: Any) -> Any:
        if abs(x) > most:
            raise Outside
        return function(x)

    return checked


def _quotient(a: Any, b: Any) -> Any:
    if abs(b) < mpmath.mpf(10) ** -40:
        raise Outside
    return a / b


def _power(a: Any, b: Any) -> Any:
    if a < mpmath.mpf(10) ** -40 or abs(b * mpmath.log(a)) > 200:
        raise Outside
    return mpmath.power(a, b)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


TRUTH: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _quotient,
    "**": _power,
    "exp": _small(mpmath.exp),
    "log": _positive(mpmath.log),
    "sqrt": _positive(mpmath.sqrt),
    "rsqrt": _positive(lambda x: 1 / mpmath.sqrt(x)),
    "tanh": _small(mpmath.tanh, 60),
    "sigmoid": _small(_sigmoid, 60),
    "silu": _small(lambda x: x * _sigmoid(x), 60),
    "gelu": _small(lambda x: x / 2 * mpmath.erfc(-x / mpmath.sqrt(2)), 8),
    "erf": _small(mpmath.erf, 8),
    "sin": _small(mpmath.sin),
    "cos": _small(mpmath.cos),
    "abs": abs,
    "max": max,
    "min": min,
}
# What stays in the field is drawn more often than what leaves it.
WEIGHTS = dict.fromkeys(TRUTH, 2)
WEIGHTS.update({"+": 14, "-": 12, "*": 12, "/": 12, "exp": 14, "sqrt": 8, "sigmoid": 4, "tanh": 4, "silu": 3})
OF_TWO = {"+", "-", "*", "/", "**", "max", "min"}


def truth(tree: Tree) -> Any:
    if isinstance(tree, Fraction):
        return mpmath.mpf(tree.numerator) / tree.denominator
    return TRUTH[tree[0]](*map(truth, tree[1:]))


def exact(tree: Tree) -> Any:
    if isinstance(tree, Fraction):
        return tree
    arguments = list(map(exact, tree[1:]))
    match tree[0]:
        case "+":
            return EXACT.total(arguments)
        case "-":
            return arguments[0] - arguments[1]
        case "*":
            return arguments[0] * arguments[1]
        case "/":
            return EXACT.divide(*arguments)
        case "**":
            return EXACT.power(*arguments)
        case name:
            return EXACT.functions[name](*arguments)


def draw(generator: random.Random, depth: int) -> Tree:
    if depth == 0 or generator.random() < 0.15:
        return Fraction(generator.randint(-12, 12), generator.choice((1, 1, 1, 2, 3, 4, 5, 10)))
    (name,) = generator.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return (name, *(draw(generator, depth - 1) for _ in range(2 if name in OF_TWO else 1)))


def nearest(value: Any, digits: int) -> Decimal:
    """To so many digits, halves to even. What agrees with a half to 150 digits is one."""
    return Context(prec=digits, rounding=ROUND_HALF_EVEN).create_decimal(Decimal(mpmath.nstr(value, 150)))


def check(tree: Tree, digits: list[int]) -> bool:
    """Whether the tree has a value to compare."""
    try:
        with mpmath.workdps(60):
            if abs(truth(tree)) > mpmath.mpf(10) ** 300:
                return False
        with mpmath.workdps(900):
            value = truth(tree)
    except Outside:
        return False
    number = exact(tree)
    with mpmath.workdps(900):
        if abs(value) < mpmath.mpf(10) ** -600:
            assert number == 0, tree
            value = mpmath.mpf(0)
        for count in digits:
            found = decimal(number, count)
            assert Decimal(found) == nearest(value, count), (tree, count, found)
    return True


def test_many_random_numbers() -> None:
    generator = random.Random(20240)
    compared = 0
    for _ in range(850):
        tree = draw(generator, generator.choice((2, 3, 3, 4)))
        compared += check(tree, [1, generator.randint(2, 20), generator.randint(21, 60)])
    assert compared > 500


@st.composite
def trees(drawn: st.DrawFn) -> Tree:
    return draw(drawn(st.randoms(use_true_random=False)), 3)


@examples(7.5)
@given(trees(), st.integers(1, 60))
def test_every_digit_is_right(tree: Tree, digits: int) -> None:
    check(tree, [digits])


# ----------------------------------------------------------------------- edges


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (Fraction(1, 8), 2, "0.12"),
        (Fraction(3, 8), 2, "0.38"),
        (Fraction(-1, 8), 2, "-0.12"),
        (Fraction(5, 2), 1, "2"),
        (Fraction(7, 2), 1, "4"),
        (Fraction(19, 2), 1, "10"),
        (Fraction(9995, 1000), 3, "10.0"),
        (Fraction(99, 10), 1, "10"),
        (Fraction(999999, 10), 3, "100000"),
        (Fraction(999999999, 10), 3, "1.00e+8"),
        (Fraction(35, 1000), 1, "0.04"),
        (Fraction(45, 1000), 1, "0.04"),
        (Fraction(1, 10**9), 1, "1e-9"),
        (0, 5, "0"),
        (INFINITY, 5, "∞"),
        (-INFINITY, 5, "-∞"),
        (UNDEFINED, 5, "undefined"),
    ],
)
def test_halves_and_carries(value: Any, digits: int, expected: str) -> None:
    assert decimal(value, digits) == expected


def ones() -> list[Any]:
    """The number 1, where its form does not show it."""
    e = EXACT.functions["exp"](1)
    sine, cosine = EXACT.functions["sin"](e), EXACT.functions["cos"](e)
    hidden = EXACT.divide(EXACT.divide(e * e - 1, e + 1), e - 1)
    assert hidden == 1
    assert sine != cosine
    return [hidden]


@pytest.mark.parametrize("digits", [1, 2, 3, 10, 40])
def test_halves_that_a_form_hides(digits: int) -> None:
    for one in ones():
        for numerator in (1, 3, 5, 7, 15, 25, 995, -5, -9995):
            for denominator in (1, 2, 4, 8, 10, 1000):
                plain = Fraction(numerator, denominator)
                assert decimal(one * plain, digits) == decimal(plain, digits)


@pytest.mark.parametrize("exponent", [5000, -5000, 20000, -20000, Fraction(1, 10**30), -(10**7), 10**11])
def test_large_and_small_exponents(exponent: Any) -> None:
    number = EXACT.functions["exp"](exponent)
    with mpmath.workdps(200):
        value = mpmath.exp(mpmath.mpf(Fraction(exponent).numerator) / Fraction(exponent).denominator)
        text = mpmath.nstr(value, 150)
    for digits in (1, 7, 60):
        # The exponent alone may be longer than a Decimal likes: the two parts are compared by themselves.
        found, _, power = decimal(number, digits).partition("e")
        expected, _, expected_power = text.partition("e")
        rounded = Context(prec=digits, rounding=ROUND_HALF_EVEN).create_decimal(Decimal(expected))
        assert Decimal(found) == rounded
        assert int(power or 0) == int(expected_power or 0)


@pytest.mark.parametrize("lost", range(5, 200, 13))
@pytest.mark.parametrize("digits", [3, 16, 60])
def test_cancellation(lost: int, digits: int) -> None:
    """A number less its own decimal: nothing is left of the leading digits."""
    for function, argument in (("exp", 1), ("log", 3), ("sqrt", 2), ("sigmoid", Fraction(1, 3))):
        number = EXACT.functions[function](argument)
        with mpmath.workdps(400):
            value = truth((function, Fraction(argument)))
            near = Fraction(int(mpmath.nint(value * mpmath.mpf(10) ** lost)), 10**lost)
            left = value - mpmath.mpf(near.numerator) / near.denominator
            assert Decimal(decimal(number - near, digits)) == nearest(left, digits), (function, near)


@examples(3)
@given(st.integers(1, 10**9), st.integers(2, 40), st.integers(-60, 60))
def test_beside_a_half(significand: int, digits: int, small: int) -> None:
    """Very near the middle of two decimals, on either side."""
    if significand % 10 == 0:
        significand += 1
    length = len(str(significand))
    middle = Fraction(10 * significand + 5) / Fraction(10) ** (length + 1)
    tiny = EXACT.functions["exp"](-200 - digits) * small
    found = Decimal(decimal(tiny + middle, length))
    exponent = Decimal(10) ** -length
    floor_, ceiling = Decimal(significand) * exponent, Decimal(significand + 1) * exponent
    even = floor_ if significand % 2 == 0 else ceiling
    assert found == (floor_ if small < 0 else ceiling if small > 0 else even)


def test_what_is_not_known_is_not_written() -> None:
    """A logarithm that is no other, as far as the terms tell: no digit is made up."""
    sine, cosine, exp = (EXACT.functions[name] for name in ("sin", "cos", "exp"))
    one = exp(sine(1) * sine(1)) * exp(cosine(1) * cosine(1) - 1)
    with pytest.raises(Undecidable):
        decimal(one - 1, 5)
    with pytest.raises(Undecidable):
        decimal(one / 8, 2)
    assert decimal(one / 8, 3) == "0.125"


@given(st.integers(0, 10**30), st.integers(0, 9000))
def test_whole_numbers_of_any_length(value: int, zeros: int) -> None:
    text = whole_text(value * 10**zeros)
    assert text == (f"{value}{'0' * zeros}" if value else "0")
    assert whole_text(-(10**zeros)) == f"-1{'0' * zeros}"


def test_five_thousand_digits() -> None:
    text = decimal(EXACT.functions["exp"](1), 5000)
    assert len(text) == 5001
    with mpmath.workdps(5100):
        assert text == mpmath.nstr(mpmath.e, 5000)
    assert len(decimal(Fraction(1, 3), 5000)) == 5002
