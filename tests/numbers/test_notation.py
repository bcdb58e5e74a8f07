"""Printed forms, read back: no text may be read as another number, and brackets stand only where they are needed."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from tests.numbers.test_digits import Outside, draw, exact, truth

from indexical.numbers import terms
from indexical.numbers.exponentials import exp
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.notation import Added, Call, E, Name, Node, Over, Plain, Power, Times, canonical, write
from indexical.numbers.surds import root
from indexical.numbers.terms import Symbol
from indexical.numbers.tower import INFINITY, UNDEFINED, divide

FUNCTIONS = ExactNumbers.functions

# --------------------------------------------------------------------- reading

_TOKENS = re.compile(r"\s*(\d+|[A-Za-z_]\w*(?:\[[^\]]*\])?|[-+·/^()√,])")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


WORDS: dict[str, Any] = {
    "log": mpmath.log,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "gelu": lambda x: x / 2 * mpmath.erfc(-x / mpmath.sqrt(2)),
    "sigmoid": sigmoid,
    "floor": mpmath.floor,
    "ceil": mpmath.ceil,
    "round": mpmath.nint,
    "remainder": lambda a, b: a - b * int(a / b),
    "max": max,
    "min": min,
    "abs": abs,
}


class Reader:
    """Reads as a person does: `^` binds tightest, `√` takes one word, and `·` and `/` go from left to right."""

    def __init__(self, text: str, symbols: dict[str, Any] | None = None) -> None:
        self.tokens = _TOKENS.findall(text)
        assert "".join(self.tokens).replace(" ", "") == text.replace(" ", ""), text
        self.symbols = {**(symbols or {}), "e": mpmath.e}
        self.at = 0

    def value(self) -> Any:
        result = self.sum()
        assert self.at == len(self.tokens)
        return result

    def next(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def sum(self) -> Any:
        result = self.product()
        while sign := self.next("+", "-"):
            result = result + self.product(signed=False) * (1 if sign == "+" else -1)
        return result

    def product(self, signed: bool = True) -> Any:
        negative = signed and self.next("-")
        result = self.power()
        while True:
            if operator := self.next("·", "/"):
                right = self.power()
                result = result * right if operator == "·" else result / right
            elif self.at < len(self.tokens) and self.tokens[self.at] == "√":
                result = result * self.power()  # `3√2`
            else:
                return -result if negative else result

    def power(self) -> Any:
        base = self.word()
        if self.next("^"):
            negative = self.next("-")
            exponent = self.word()
            assert self.at == len(self.tokens) or self.tokens[self.at] != "^", "a tower of powers has no brackets"
            return mpmath.power(base, -exponent if negative else exponent)
        return base

    def word(self) -> Any:
        if self.next("√"):
            return mpmath.sqrt(self.word())
        if self.next("("):
            result = self.sum()
            assert self.next(")")
            return result
        token = self.tokens[self.at]
        self.at += 1
        if token.isdigit():
            return mpmath.mpf(int(token))
        if token in self.symbols:
            return self.symbols[token]
        if token == "pi":
            return mpmath.pi
        assert self.next("("), token
        arguments = [self.sum()]
        while self.next(","):
            arguments.append(self.sum())
        assert self.next(")")
        return WORDS[token](*arguments)


def read(text: str, **symbols: Any) -> Any:
    return Reader(text, symbols).value()


def agree(text: str, value: Any, **symbols: Any) -> bool:
    found = read(text, **symbols)
    return bool(abs(found - value) <= mpmath.mpf(10) ** -40 * max(1, abs(value)))


# ----------------------------------------------------------------------- trees

SYMBOLS = {"x": mpmath.mpf("1.37"), "y": mpmath.mpf("0.61"), "z": mpmath.mpf("2.9")}


def drawn(generator: random.Random, depth: int) -> Node:
    """Any tree at all, well-behaved or not; values stay positive where that is needed."""
    if depth == 0:
        leaf = generator.randrange(5)
        if leaf == 0:
            return Name(Symbol(generator.choice("xyz"), ()))
        if leaf == 1:
            return Plain(Fraction(generator.randint(-5, 5), generator.choice((1, 2, 3))))
        if leaf == 2:
            return Plain(root(generator.choice((2, 3, 8))) * Fraction(generator.choice((-3, -1, 1, 2)), 2))
        if leaf == 3:
            return Plain(1 - root(2) + generator.choice((-3, 2)) * root(5))
        return E
    parts = tuple(drawn(generator, depth - 1) for _ in range(generator.choice((2, 2, 3))))
    match generator.randrange(6):
        case 0:
            return Added(parts)
        case 1:
            return Times((Plain(-1), *parts) if generator.random() < 0.3 else parts)
        case 2:
            return Over(parts[0], parts[1])
        case 3:
            return Power(E, parts[0])
        case 4:
            return Power(parts[0], Plain(generator.choice((2, 3, -1, -2))))
        case _:
            return Call(generator.choice(("sin", "erf")), parts[:1])


def meaning(node: Node) -> Any:
    match node:
        case Plain(value):
            pairs = value.terms.items() if hasattr(value, "terms") else ((1, value),)
            return sum(
                mpmath.mpf(Fraction(c).numerator) / Fraction(c).denominator * mpmath.sqrt(key) for key, c in pairs
            )
        case Name(symbol):
            return SYMBOLS.get(str(symbol), mpmath.e)
        case Power(base, exponent):
            return mpmath.power(meaning(base), meaning(exponent))
        case Added(parts):
            return sum(map(meaning, parts))
        case Times(parts):
            return mpmath.fprod(map(meaning, parts))
        case Over(top, below):
            return meaning(top) / meaning(below)
        case Call("√", (inside,)):
            return mpmath.sqrt(meaning(inside))
        case Call(function, arguments):
            return WORDS[function](*map(meaning, arguments))


def test_any_tree_is_read_as_it_was_meant() -> None:
    generator = random.Random(5)
    compared = 0
    with mpmath.workdps(120):
        for _ in range(1500):
            node = drawn(generator, generator.choice((1, 2, 3)))
            try:
                expected = meaning(node)
            except (ZeroDivisionError, OverflowError, ValueError):
                continue
            if isinstance(expected, mpmath.mpf) and 0 < abs(expected) < 10**30:
                compared += 1
                assert agree(write(node), expected, **SYMBOLS), (write(node), node)
    assert compared > 800


def test_canonical_forms_are_read_as_their_number() -> None:
    generator = random.Random(11)
    compared = 0
    for _ in range(900):
        tree = draw(generator, generator.choice((2, 3)))
        try:
            with mpmath.workdps(200):
                expected = truth(tree)
        except Outside:
            continue
        if abs(expected) > 10**30:
            continue
        text = write(canonical(exact(tree)))
        compared += 1
        with mpmath.workdps(200):
            assert agree(text, expected), (text, tree)
    assert compared > 500


@pytest.mark.parametrize("power", [1, 2, -1, -2, 3])
def test_symbols_and_named_terms_are_read_as_their_number(power: int) -> None:
    x, y = terms.symbol("x", ()), terms.symbol("y", ())
    with mpmath.workdps(80):
        for number, value in (
            (x + y, SYMBOLS["x"] + SYMBOLS["y"]),
            (x * y - 1, SYMBOLS["x"] * SYMBOLS["y"] - 1),
            (FUNCTIONS["sqrt"](x + 1), mpmath.sqrt(SYMBOLS["x"] + 1)),
            (FUNCTIONS["exp"](x - y), mpmath.exp(SYMBOLS["x"] - SYMBOLS["y"])),
            (terms.name("power", 2, Fraction(1, 3)), mpmath.power(2, mpmath.mpf(1) / 3)),
            (terms.name("power", root(2), root(2)), mpmath.power(mpmath.sqrt(2), mpmath.sqrt(2))),
            (FUNCTIONS["sqrt"](exp(1) + 1) * FUNCTIONS["log"](3) / 2, mpmath.sqrt(mpmath.e + 1) * mpmath.log(3) / 2),
            (divide(x, exp(1) + 1) - divide(exp(2), y), SYMBOLS["x"] / (mpmath.e + 1) - mpmath.e**2 / SYMBOLS["y"]),
        ):
            raised = ExactNumbers().power(number, power)
            text = write(canonical(raised))
            assert agree(text, value**power, **SYMBOLS), (text, power)


# ----------------------------------------------------------------------- texts

X, Y = Name(Symbol("x", ())), Name(Symbol("y", ()))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Power(E, Plain(Fraction(1, 2))), "e^(1/2)"),
        (Power(E, Plain(-1)), "e^-1"),
        (Power(E, Plain(Fraction(-1, 2))), "e^(-1/2)"),
        (Power(E, Plain(root(2))), "e^√2"),
        (Power(E, Plain(-root(2))), "e^(-√2)"),
        (Power(E, Plain(3 * root(2))), "e^(3√2)"),
        (Power(E, Plain(1 + root(2))), "e^(1+√2)"),
        (Power(E, Power(E, Plain(2))), "e^(e^2)"),
        (Power(Power(Plain(2), Plain(Fraction(1, 3))), Plain(2)), "(2^(1/3))^2"),
        (Power(Plain(-2), Plain(2)), "(-2)^2"),
        (Power(Plain(Fraction(1, 2)), X), "(1/2)^x"),
        (Power(Plain(root(2)), Plain(2)), "(√2)^2"),
        (Power(Call("log", (Plain(2),)), Plain(2)), "log(2)^2"),
        (Over(X, Over(X, Y)), "x/(x/y)"),
        (Over(Over(X, Y), X), "x/y/x"),
        (Over(X, Times((Plain(2), Y))), "x/(2·y)"),
        (Over(X, Plain(-2)), "x/(-2)"),
        (Over(Added((X, Y)), Added((X, Plain(-1)))), "(x+y)/(x-1)"),
        (Times((Plain(Fraction(1, 2)), X)), "1/2·x"),
        (Times((X, Plain(Fraction(1, 2)))), "x·(1/2)"),
        (Times((Added((X, Y)), Added((X, Y)))), "(x+y)·(x+y)"),
        (Times((X, Plain(-2))), "x·(-2)"),
        (Times((Plain(-1), X)), "-x"),
        (Times((Plain(-1), Added((X, Y)))), "-(x+y)"),
        (Call("√", (Added((X, Plain(1))),)), "√(x+1)"),
        (Call("√", (Power(X, Plain(2)),)), "√(x^2)"),
        (Call("√", (X,)), "√x"),
        (Call("√", (Plain(Fraction(1, 2)),)), "√(1/2)"),
        (Added((X, Plain(-1))), "x - 1"),
        (Added((X, Plain(root(2) - 1))), "x - 1 + √2"),
        (Added((X, Times((Plain(-1), Y)))), "x - y"),
        (Added((Times((Plain(-1), X)), Y)), "-x + y"),
        (Call("log", (Added((X, Plain(1))),)), "log(x + 1)"),
        (Plain(root(2) / 2), "√2/2"),
        (Plain(-3 * root(2) / 4), "-3√2/4"),
        (Plain(1 + root(2)), "1 + √2"),
        (Plain(INFINITY), "∞"),
        (Plain(-INFINITY), "-∞"),
        (Plain(UNDEFINED), "undefined"),
    ],
)
def test_brackets(node: Node, text: str) -> None:
    assert write(node) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (exp(1), "e"),
        (exp(-1), "e^-1"),
        (-exp(1), "-e"),
        (exp(1) / 2, "e/2"),
        (exp(1) * root(2), "√2·e"),
        (exp(Fraction(1, 2)), "e^(1/2)"),
        (exp(2) - exp(1), "-e + e^2"),
        (divide(1, exp(1) + 1), "1/(1+e)"),
        (divide(-1, exp(1) + 1), "-1/(1+e)"),
        (divide(exp(1), 2 * exp(1) + 2), "e/(2·(1+e))"),
        (divide(1, (exp(1) + 1) ** 2), "1/(1+2·e+e^2)"),
        (divide(1, exp(1) + 1) ** 2, "1/(1+e)^2"),
        (exp(1) - 1, "-1 + e"),
        (FUNCTIONS["sqrt"](exp(1) + 1), "√(1+e)"),
        (FUNCTIONS["log"](3) / 2, "1/2·log(3)"),
        (-FUNCTIONS["log"](3), "-log(3)"),
        (ExactNumbers().power(2, Fraction(1, 3)) ** 2, "(2^(1/3))^2"),
        (FUNCTIONS["exp"](exp(1)), "e^(e)"),
    ],
)
def test_canonical_texts(number: Any, text: str) -> None:
    assert write(canonical(number)).replace("e^(e)", "e^e") == text.replace("e^(e)", "e^e")


def test_whole_numbers_of_any_length_are_written() -> None:
    large = 10**5000
    assert write(Plain(large)) == f"1{'0' * 5000}"
    assert write(canonical(exp(1) * large)).startswith("1000")
    assert "√2" in write(Plain(root(2) * large + Fraction(1, large)))
