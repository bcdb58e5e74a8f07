"""Equalities of symbols: those that do not hold for all values tell for which they do."""

from __future__ import annotations

import math
import random

import pytest

import indexical as ix


def equal(left: str, right: str) -> str:
    program = ix.compile(f"input x, y, s[j]; let a = {left}; let b = {right} + 0 * y * s[0]; output a, b;")
    found = ix.exact(program, sizes={"j": 3})
    return str(found["a"] == found["b"])


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        ("sqrt(x) ** 2", "x", "true for x >= 0"),
        ("x / x * x", "x", "true for x != 0"),
        ("x / x", "1", "true for x != 0"),
        ("exp(log(x))", "x", "true for x > 0"),
        ("log(exp(x))", "x", "True"),
        ("(x ** 2 - 1) / (x - 1)", "x + 1", "true for x != 1"),
        ("(4 * x ** 2 - 1) / (1 - 2 * x)", "-2 * x - 1", "true for x != 1/2"),
        ("x / (x - y) * (x - y)", "x", "true for x != y"),
        ("sqrt(x ** 2)", "x", "true for x >= 0"),
        ("sqrt(x * y)", "sqrt(x) * sqrt(y)", "true for x >= 0 and y >= 0"),
        ("log(x ** 2)", "2 * log(x)", "true for x > 0"),
        ("log(x * y)", "log(x) + log(y)", "true for x > 0 and y > 0"),
        ("(x ** 3) ** (1 / 3.0)", "x", "true for x >= 0"),
        ("x ** -1 * x", "1", "true for x != 0"),
        ("x ** 0.5 * x ** 0.5", "x", "true for x >= 0"),
        ("rsqrt(x) * x", "sqrt(x)", "true for x > 0"),
        ("y / sqrt(x) * sqrt(x)", "y", "true for x > 0"),
        ("sqrt(x ** 2 + 1) ** 2", "x ** 2 + 1", "True"),
        ("(1 + exp(x)) / (1 + exp(x))", "1", "True"),
        ("sum[j](softmax[j](s[j]))", "1", "True"),
        ("sum[j](s[j] / sum[k](s[k]))", "1", "true for s[0] + s[1] + s[2] != 0"),
        ("sigmoid(x) + sigmoid(-x)", "1", "True"),
        ("tanh(x) * (exp(2 * x) + 1)", "exp(2 * x) - 1", "True"),
        ("(x + y) ** 2", "x ** 2 + 2 * x * y + y ** 2", "True"),
        ("x / x", "2", "False"),
    ],
)
def test_the_condition_is_told(left: str, right: str, answer: str) -> None:
    assert equal(left, right) == answer


def test_what_holds_under_a_condition_is_not_plainly_true() -> None:
    found = ix.exact("input x; let root = sqrt(x); let same = root ** 2 - x; let one = (x + 1) / (x + 1);")
    with pytest.raises(ix.Undecided, match="equal for x >= 0, and not for all values"):
        assert found["same"] == 0
    assert str(found["one"] == 1) == "true for x != -1"
    assert str(found["one"] / found["one"] == 1) == "true for x != -1"
    assert str((found["same"] + 3) / (found["same"] + 3) == 1) == "true for x >= 0"


def test_verdicts_tell_the_condition() -> None:
    found = ix.verify("input x; expect sqrt(x) ** 2 == x; expect x / x == 1; expect x - x == 0;")
    assert [claim.cells[0].condition for claim in found.claims] == ["x >= 0", "x != 0", ""]
    assert "for x >= 0)" in str(found)
    assert ix.verify("input x; expect sqrt(x) ** 2 == x;", x=4).claims[0].cells[0].condition == ""


_WRAPPED = (
    "sqrt({0}) ** 2", "exp(log({0}))", "({0}) / ({1}) * ({1})", "({0}) + ({1}) - ({1})", "(({0}) ** 2) ** 0.5",
    "log(exp({0}))", "({0}) * ({1}) / ({1})", "sqrt(({0}) ** 2)", "({0}) * exp({1}) / exp({1})", "1 / (1 / ({0}))",
)  # fmt: skip
_INNER = ("x", "y", "x + y", "x * y", "x - 1", "x ** 2 + 1", "2 * x - y", "x / y", "-x")


def _value(text: str, x: float, y: float) -> float | None:
    """As Python computes it; None where it has no value."""
    names = {"x": x, "y": y, "sqrt": math.sqrt, "log": math.log, "exp": math.exp}
    try:
        found = eval(text, names)
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    return found if isinstance(found, float) and math.isfinite(found) else None


def test_plainly_true_is_true_everywhere() -> None:
    """Where something that was divided by, or rooted, loses its value, the answer is not plainly true."""
    rng = random.Random(5)
    for _ in range(60):
        inner, other = rng.choice(_INNER), rng.choice(_INNER)
        wrapped = rng.choice(_WRAPPED).format(inner, other)
        try:
            answer = equal(wrapped, inner)
        except ix.Undecided:
            continue
        allowed = answer.removeprefix("true for ").replace(" = ", " == ").replace("^", "**").replace("·", "*")
        for _ in range(20):
            x, y = rng.choice([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0]), rng.choice([-1.0, 0.0, 0.25, 2.0])
            if answer != "True" and not _value(f"float({allowed})", x, y):
                continue
            left, right = _value(wrapped, x, y), _value(inner, x, y)
            assert left is not None, (wrapped, answer, x, y)
            assert right is not None, (wrapped, answer, x, y)
            assert math.isclose(left, right, abs_tol=1e-9), (wrapped, answer, x, y)
