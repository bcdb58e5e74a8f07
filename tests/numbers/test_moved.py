"""Bounds of what printed figures allow: they hold every value that comes of any figures within the rounding."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest

import indexical as ix
from indexical.ir.functions import FUNCTIONS
from indexical.numbers.interval import Interval, Unsettled
from indexical.numbers.moved import Moved
from indexical.numbers.ranges import Ranges
from indexical.run.floats import Floats

NUMBERS = Ranges(128, wide=True)
FLOATS = Floats()
UNARY = sorted(name for name, row in FUNCTIONS.items() if row.arity == 1)


def drawn(generator: random.Random, depth: int) -> Any:
    """A tree of figures, by their numbers, and functions."""
    if depth == 0 or generator.random() < 0.15:
        return generator.randrange(3)
    kind = generator.random()
    if kind < 0.35:
        return (generator.choice(UNARY), drawn(generator, depth - 1))
    return (generator.choice(["+", "-", "*", "/", "max", "min", "softmax", "square"]),
            drawn(generator, depth - 1), drawn(generator, depth - 1))  # fmt: skip


def computed(numbers: Any, tree: Any, figures: list[Any]) -> Any:
    match tree:
        case int():
            return figures[tree]
        case (function, inside):
            return numbers.functions[function](computed(numbers, inside, figures))
        case (op, left, right):
            a, b = computed(numbers, left, figures), computed(numbers, right, figures)
            match op:
                case "+":
                    return a + b
                case "-":
                    return a - b
                case "*":
                    return a * b
                case "/":
                    return numbers.divide(a, b)
                case "softmax":
                    return numbers.softmax([a, b, a * a])[1]
                case "square":
                    return a**2 - b**3
                case _:
                    return numbers.functions[op](a, b)


@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_what_figures_allow_and_are_no_wider_than_intervals(seed: int) -> None:
    generator = random.Random(seed)
    tighter = kept = 0
    while kept < 40:
        values = [Fraction(generator.randint(-30, 30), 10) for _ in range(3)]
        radii = {k: Fraction(1, generator.choice([5, 20, 200])) for k in range(3)}
        tree = drawn(generator, generator.randint(1, 4))
        wholes = [Interval.between(value - radii[k], value + radii[k], 128) for k, value in enumerate(values)]
        try:
            plain = computed(NUMBERS, tree, list(wholes))
            found = computed(NUMBERS, tree, [Moved.figure(k, value, radii, 128) for k, value in enumerate(values)])
            if not isinstance(plain, Interval) or max(abs(plain.lower), abs(plain.upper)) > 10**6:
                continue
        except (Unsettled, ValueError, OverflowError):
            continue
        kept += 1
        assert isinstance(found, Interval)
        assert plain.lower - Fraction(1, 2**60) <= found.lower
        assert found.upper <= plain.upper + Fraction(1, 2**60)
        tighter += found.width < plain.width * Fraction(99, 100)
        slack = Fraction(1, 10**9) * (1 + max(abs(plain.lower), abs(plain.upper)))
        for _ in range(12):
            steps = [generator.choice([-1.0, 0.0, 1.0, generator.uniform(-1, 1)]) for _ in range(3)]
            at = [float(value + radii[k] * Fraction(steps[k])) for k, value in enumerate(values)]
            true = computed(FLOATS, tree, at)
            if math.isfinite(true) and math.isfinite(sum(at)):
                assert found.lower - slack <= Fraction(float(true)) <= found.upper + slack, (tree, at, true)
    assert tighter > 2


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("let x = ~0.5; let y = x - x; expect y == 0.1; expect y == 0;", ["fails", "holds"]),
        ("let x = ~0.5; let y = x * (1 - x); expect y == 0.26; expect y == 0.247;", ["fails", "rounding"]),
        ("let x = ~2.0; let y = x / x; expect y == 1.01;", ["fails"]),
        ("let x = ~2.0; let y = log(exp(x)) - x; expect y == 0.1;", ["fails"]),
        (
            "let x[i] = ~[1.0, 2.0, 3.0]; let m = mean[i](x[i]); let v = mean[i]((x[i] - m) ** 2);"
            " let y[i] = (x[i] - m) / sqrt(v); expect y == [-1.5, 0, 1.5]; expect y == [-1.25, 0, 1.2];",
            ["fails", "rounding"],
        ),
        (
            "let s[j] = ~[1.2, 0.3, 2.1]; let w[j] = softmax[j](s[j]); expect sum[j](w[j]) == 1.1;"
            " expect w == [0.25, 0.11, 0.64];",
            ["fails", "rounding"],
        ),
    ],
)
def test_figures_that_are_used_twice_move_once(text: str, verdicts: list[str]) -> None:
    assert [claim.verdict for claim in ix.verify(text).claims] == verdicts


def test_figures_without_bounds_leave_it_open() -> None:
    (claim,) = ix.verify("let x = ~1000.0; let y = exp(exp(x)); expect y == 3;").claims
    assert (claim.verdict, claim.cells[0].explained) == ("fails", None)
