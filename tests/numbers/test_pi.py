"""`pi`: a real number that has a name, in every kind of number."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import indexical as ix
from indexical.numbers.digits import decimal
from indexical.numbers.functions import PI, ExactNumbers, cos, sin
from indexical.numbers.tower import compare

BELL = """
input x[i];
let y[i] = exp(-x[i] ** 2 / 2) / sqrt(2 * pi) + sin(pi * x[i]);
assert pi < 22 / 7.0, "Archimedes";
"""


def test_every_backend_has_its_nearest_float() -> None:
    program = ix.compile(BELL)
    x = np.linspace(-2, 2, 9)
    wanted = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) + np.sin(np.pi * x)
    for backend in ("reference", "numpy"):
        np.testing.assert_allclose(program(x, backend=backend), wanted, rtol=1e-14, atol=1e-15)
    found = program(torch.tensor(x, dtype=torch.float32))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)
    assert ix.compile("let y = pi;")() == math.pi


def test_a_derivative_keeps_its_name() -> None:
    derived = ix.grad(ix.compile(BELL), of="y", by="x")
    assert "pi" in derived.source_text
    assert "3.14" not in derived.source_text
    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    ix.compile(BELL)(x).sum().backward()
    np.testing.assert_allclose(derived(x.detach().numpy(), np.ones(9)), x.grad, rtol=1e-12, atol=1e-12)


def test_it_stays_exact_and_its_digits_are_proven() -> None:
    found = ix.exact(ix.compile("let a[k in 0..3] = (k + 1) * pi / 2 + 1;"))
    assert "1/2·pi + 1  pi + 1  3/2·pi + 1" in str(found)
    assert decimal(PI, 40) == "3.141592653589793238462643383279502884197"
    assert compare(PI, Fraction(math.pi)) == 1


@pytest.mark.parametrize("twelfths", range(-30, 31))
def test_angles_that_are_twelfths_have_roots_for_sine_and_cosine(twelfths: int) -> None:
    angle = PI * Fraction(twelfths, 12)
    assert float(decimal(sin(angle), 20)) == pytest.approx(math.sin(math.pi * twelfths / 12), abs=1e-13)
    assert float(decimal(cos(angle), 20)) == pytest.approx(math.cos(math.pi * twelfths / 12), abs=1e-13)
    assert ExactNumbers().total([sin(angle) * sin(angle), cos(angle) * cos(angle)]) == 1


def test_other_multiples_are_named_once() -> None:
    assert sin(PI * Fraction(7, 5)) == -cos(PI * Fraction(1, 10))
    assert cos(PI * Fraction(9, 5)) == cos(PI * Fraction(1, 5))


def test_claims_about_it() -> None:
    text = "let y = pi; expect y == 3.14159; expect pi == 3.1416; expect sin(pi / 6) == 0.5;"
    text += "expect y ** 2 / pi - pi == 0; expect y == 3;"
    claims = [line.split()[0] for line in str(ix.verify(ix.compile(text))).splitlines() if line]
    assert claims[:5] == ["holds", "holds", "holds", "holds", "fails"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("let y = pi[0];", "IX209"),
        ("let y[i in 0..pi] = 1;", "IX351"),
    ],
)
def test_it_is_a_number_and_a_word_of_the_language(text: str, code: str) -> None:
    with pytest.raises(ix.Error, match=code):
        ix.compile(text)


def test_it_is_laid_out_and_traced_by_its_name() -> None:
    program = ix.compile("let y = 2 * pi + sin(pi / 6);")
    assert "2·pi + sin(pi/6) = 2·pi + 1/2" in str(ix.trace(program, at="y"))
