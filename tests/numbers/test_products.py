"""Equalities of powers, roots and exponentials: true ones are seen, false ones never."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from typing import Any

import pytest

import indexical as ix
from indexical.numbers.functions import PI, ExactNumbers, power
from indexical.numbers.identities import vanishes
from indexical.numbers.interval import Unsettled
from indexical.numbers.products import square_root
from indexical.numbers.terms import Polynomial
from indexical.numbers.tower import TooManyTerms, Undecidable, budget, divide, enclose, sign

pytestmark = pytest.mark.sampled(8)

FUNCTIONS = ExactNumbers.functions

EQUAL = """
10 ** (log(2) / log(10)) == 2
2 ** (log(3) / log(2)) * 2 ** (log(5) / log(2)) == 15
sqrt(pi * pi) == pi
sqrt(log(0.5) ** 2) == -log(0.5)
sqrt(2 * pi ** 2) == pi * sqrt(2)
sqrt((pi - 4) ** 2) == 4 - pi
sqrt(2 * (1 + pi) ** 2) == sqrt(2) * (1 + pi)
2.0 ** pi == exp(pi * log(2))
pi ** (1 / 3.0) == exp(log(pi) / 3)
(pi ** 3) ** (1 / 3.0) == pi
sqrt(2 ** pi) == 2 ** (pi / 2)
log(pi ** 2) == 2 * log(pi)
log(2 ** pi) == pi * log(2)
2.0 ** sqrt(2) * 2.0 ** (1 - sqrt(2)) == 2
(sin(1) ** 2 + cos(1) ** 2) ** 200 == 1
(sin(1) ** 2 + cos(1) ** 2) ** 80 + (sin(2) ** 2 + cos(2) ** 2) ** 90 == 2
(sin(1) ** 2 + cos(1) ** 2 + sin(2) ** 2 + cos(2) ** 2) ** 60 == 2 ** 60
(sin(1) + cos(1)) ** 40 == (1 + sin(2)) ** 20
""".strip().splitlines()


@pytest.mark.parametrize("claim", EQUAL)
def test_true_equalities_are_seen_soon(claim: str) -> None:
    left, right = claim.split("==")
    started = time.monotonic()
    found = ix.exact(f"let a = ({left}) as f64; let b = ({right}) as f64; let c = b + 1e-60; output a, b, c;")
    assert found["a"] == found["b"]
    assert time.monotonic() - started < 10
    assert found["a"] != found["c"]
    assert found["a"] < found["c"]


def draw(drawn: random.Random, depth: int = 0) -> Any:
    """A number of named terms."""
    if depth >= 3 or drawn.random() < 0.25:
        terms = ("log", 2), ("log", 3), ("sqrt", 2), ("exp", 1), ("sin", 1), ("cos", 2)
        known = [FUNCTIONS[name](x) for name, x in terms]
        return drawn.choice([2, 3, 10, Fraction(1, 2), PI, *known])
    a, b = draw(drawn, depth + 1), draw(drawn, depth + 1)
    match drawn.randrange(8):
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * b
        case 3:
            return divide(a, b)
        case 4:
            return power(a if sign(a) > 0 else a * a + 1, b if drawn.random() < 0.5 else Fraction(1, 3))
        case 5:
            return FUNCTIONS["sqrt"](a * a)
        case 6:
            return FUNCTIONS["log"](a if sign(a) > 0 else a * a + 1)
        case _:
            return power(a, 2)


@pytest.mark.parametrize("seed", range(40))
def test_no_law_says_of_a_number_that_it_is_0_if_it_is_not(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(25):
        try:
            with budget(100_000):
                value = (draw(drawn) - draw(drawn)) * draw(drawn)
            side = enclose(value, 512).sign() if isinstance(value, Polynomial) else 0
        except (Undecidable, TooManyTerms, Unsettled):
            continue
        if side:
            assert not vanishes(value.cleared()), value


def test_roots_of_sums() -> None:
    x, y = FUNCTIONS["log"](2), PI
    for root in (x + y, x - y + 3, x * x + 2 * x * y - Fraction(1, 3), x * y + y + 1):
        found = square_root(root * root * 5)
        assert found is not None
        factor, again = found
        assert again * again * factor - root * root * 5 == 0
        assert square_root(root * root + x) is None
        assert square_root(-root * root) is None
