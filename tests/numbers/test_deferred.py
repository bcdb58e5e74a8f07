"""Numbers that are not multiplied out: their digits and order against mpmath, their equality against the terms."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import pytest

import indexical as ix
from indexical.numbers import tower
from indexical.numbers.deferred import Deferred, is_alike, make
from indexical.numbers.functions import ExactNumbers
from indexical.numbers.tower import budget, compare, enclose, sign

EXACT = ExactNumbers()
FUNCTIONS = ["exp", "tanh", "sigmoid", "silu", "gelu", "sin", "cos", "erf"]
PLAIN = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
}


@contextmanager
def nothing_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every operation on exponentials and named terms is put off."""
    with monkeypatch.context() as patched, budget(math.inf, 0, make):
        patched.setattr(tower, "_FEW", 0)
        yield


def drawn(generator: random.Random, depth: int) -> Any:
    """A tree: a fraction, a function of a tree, or two trees."""
    if depth <= 0:
        return Fraction(generator.randint(-20, 20), generator.randint(1, 9))
    if generator.random() < 0.45:
        return (generator.choice(FUNCTIONS), drawn(generator, depth - 1))
    return (generator.choice("+-*/"), drawn(generator, depth - 1), drawn(generator, depth - generator.randint(1, 2)))


def computed(tree: Any) -> Any:
    match tree:
        case ("+" | "-" | "*" | "/" as op, left, right):
            a, b = computed(left), computed(right)
            return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else EXACT.divide(a, b)
        case (function, inside):
            return EXACT.functions[function](computed(inside))
        case value:
            return value


def true(tree: Any) -> Any:
    match tree:
        case ("+" | "-" | "*" | "/" as op, left, right):
            a, b = true(left), true(right)
            return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b
        case (function, inside):
            return PLAIN.get(function, getattr(mpmath, function, None))(true(inside))
        case value:
            return mpmath.mpf(value.numerator) / value.denominator


def trees(seed: int, count: int) -> list[tuple[Any, Any]]:
    """Trees with their values, of those that have one."""
    generator, found = random.Random(seed), []
    while len(found) < count:
        tree = drawn(generator, generator.randint(2, 4))
        try:
            value = true(tree)
        except ZeroDivisionError:
            continue
        if 1e-200 < abs(value) < 1e200:
            found.append((tree, value))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_enclosures_and_order_are_those_of_mpmath(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with mpmath.workdps(700), nothing_at_once(monkeypatch):
        drawn_trees = trees(seed, 25)
        numbers = [(computed(tree), value) for tree, value in drawn_trees]
        assert any(isinstance(number, Deferred) for number, _ in numbers)
        for number, value in numbers:
            found = enclose(number, 100)
            assert mpmath.ldexp(found.low, found.exponent) <= value <= mpmath.ldexp(found.high, found.exponent)
            assert sign(number) == mpmath.sign(value)
        for (a, left), (b, right) in pairwise(numbers):
            assert compare(a, b) == mpmath.sign(left - right)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_put_off_equals_what_was_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = random.Random(seed)
    s = [Fraction(generator.randint(-20, 20), generator.randint(1, 5)) for _ in range(4)]
    x = [Fraction(generator.randint(-20, 20), generator.randint(1, 5)) for _ in range(4)]

    def variances() -> tuple[Any, Any]:
        weights = EXACT.softmax(s)
        mean = EXACT.total([w * v for w, v in zip(weights, x, strict=True)])
        around = EXACT.total([w * (v - mean) * (v - mean) for w, v in zip(weights, x, strict=True)])
        return around, EXACT.total([w * v * v for w, v in zip(weights, x, strict=True)]) - mean * mean

    at_once = variances()
    with nothing_at_once(monkeypatch):
        later = variances()
    assert all(isinstance(value, Deferred) for value in later)
    for a in (*at_once, *later):
        for b in (*at_once, *later):
            assert a == b
            assert a + Fraction(1, 10**30) != b


def test_numbers_built_alike_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_at_once(monkeypatch):
        e, f, g = (EXACT.functions["exp"](EXACT.functions["exp"](n)) for n in (1, 2, 3))
        assert is_alike(e + f + g, g + (f + e))
        assert not is_alike(e + f, e + g)
        assert e + f - f - e == 0
        assert isinstance(e, Deferred)
        assert e * EXACT.divide(1, e) == 1


def test_two_layers_sum_to_one_and_have_digits() -> None:
    """Attention on attention: its weights are exponentials of quotients of exponentials."""
    text = """
        input Q[i, d], K[j, d];
        let w[i, j]    = softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)));
        let h[i, d]    = sum[j](w[i, j] * K[j, d]);
        let then[i, j] = softmax[j](sum[d](h[i, d] * h[j, d]));
        let out[i, d]  = sum[j](then[i, j] * h[j, d]);
        let whole[i]   = sum[j](then[i, j]);
        output out, whole;
    """
    generator = random.Random(5)
    Q, K = ([[Fraction(generator.randint(-9, 9), 10) for _ in range(4)] for _ in range(8)] for _ in range(2))
    found = ix.exact(text, Q, K)
    assert found["whole"][0] == 1
    assert found.ended == ("then",)
    with mpmath.workdps(60):
        h = attended(Q, K, K, mpmath.sqrt(4))
        out = attended(h, h, h, 1)
        for i in range(8):
            for d in range(4):
                assert found["out"][i, d].decimal(30) == mpmath.nstr(out[i][d], 30, strip_zeros=False)
                assert float(found["out"][i, d]) == float(out[i][d])


def attended(Q: Any, K: Any, V: Any, scale: Any) -> Any:
    def number(x: Any) -> Any:
        return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x

    Q, K, V = ([[number(x) for x in row] for row in rows] for rows in (Q, K, V))
    result = []
    for q in Q:
        raised = [mpmath.exp(mpmath.fdot(q, k) / scale) for k in K]
        result.append([mpmath.fdot(raised, column) / mpmath.fsum(raised) for column in zip(*V, strict=True)])
    return result


def test_a_recurrence_of_200_steps_has_digits() -> None:
    found = ix.exact("let h[0] = 0.5; let h[t in 1..201] = tanh(0.9 * h[t - 1] + 0.3); let last = h[200]; output last;")
    with mpmath.workdps(60):
        h = mpmath.mpf("0.5")
        for _ in range(200):
            h = mpmath.tanh(mpmath.mpf("0.9") * h + mpmath.mpf("0.3"))
        assert found["last"].decimal(40) == mpmath.nstr(h, 40, strip_zeros=False)
    assert str(found["last"]) == "h[200]"


def test_a_product_of_40_sums_has_digits() -> None:
    text = "input x[i]; let a[i] = prod[k in 0..40](exp(x[i] * (k + 1)) + exp(x[i] / (k + 2)) + 1);"
    with mpmath.workdps(60):
        x = mpmath.mpf(1) / 7
        true = mpmath.fprod(mpmath.exp(x * (k + 1)) + mpmath.exp(x / (k + 2)) + 1 for k in range(40))
        assert ix.exact(text, [Fraction(1, 7)])["a"][0].decimal(9) == mpmath.nstr(true, 9, strip_zeros=False)


def test_products_stay_factored() -> None:
    factors = " * ".join(f"(1 - w[{j}])" for j in range(12))
    backwards = " * ".join(f"(1 - w[{j}])" for j in reversed(range(12)))
    scores = ", ".join(str(Fraction(j * j, 1)) + ".5" for j in range(12))
    found = ix.exact(f"let s[j] = [{scores}]; let w[j] = softmax[j](s[j] / 9); let a = {factors}; let b = {backwards};")
    assert found["a"] == found["b"]
    assert found["a"] < 1


def test_variance_two_ways_at_80() -> None:
    generator = random.Random(1)
    s, x = ([Fraction(generator.randint(-99, 99), 20) for _ in range(80)] for _ in range(2))
    text = """
        input s[j], x[j];
        let w[j]   = softmax[j](s[j]);
        let m      = sum[j](w[j] * x[j]);
        let around = sum[j](w[j] * (x[j] - m) ** 2);
        let about  = sum[j](w[j] * x[j] ** 2) - m ** 2;
        output around, about;
    """
    found = ix.exact(text, s, x)
    assert found["around"] == found["about"]
    assert found["around"] != found["about"] + Fraction(1, 10**40)
