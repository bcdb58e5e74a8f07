"""Clauses of one definition that are told apart by their guards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix

X = np.array([1.0, -2.0, 0.0, 3.0])
CHOLESKY = """
input A[i, j];
let L[i, j] = sqrt(A[i, i] - sum[k](L[i, k] ** 2 where k < i)) where i == j;
let L[i, j] = (A[i, j] - sum[k](L[i, k] * L[j, k] where k < j)) / L[j, j] where i > j;
"""


def test_a_cholesky_factor() -> None:
    noise = np.random.default_rng(0).standard_normal((5, 5))
    square = noise @ noise.T + np.eye(5)
    program = ix.compile(CHOLESKY)
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(program(square, backend=backend), np.linalg.cholesky(square), atol=1e-12)
    ours, theirs = (torch.tensor(square, requires_grad=True) for _ in range(2))
    weights = torch.arange(25.0).reshape(5, 5).double()
    (program(ours) * weights).sum().backward()
    (torch.linalg.cholesky(theirs) * weights).sum().backward()
    # The library's derivative is of a symmetric matrix: half of it is above the diagonal.
    assert ours.grad is not None
    assert theirs.grad is not None
    np.testing.assert_allclose(ours.grad + ours.grad.T, theirs.grad + theirs.grad.T, atol=1e-10)


def test_what_no_guard_keeps_is_absent_and_a_reader_that_repeats_the_union_may_read_it() -> None:
    ix.compile(CHOLESKY + "let e[i, j] = exp(L[i, j]) where j <= i;")
    assert "IX309" in [found.code for found in ix.check(CHOLESKY + "let e[i, j] = exp(L[i, j]);")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("let y[i] = x[i] where x[i] > 0; let y[i] = -x[i] where x[i] <= 0;", [1, 2, 0, 3]),
        ("let y[i] = x[i] where i < 2; let y[k] = 0 * x[k] + k where k >= 2;", [1, -2, 2, 3]),
        ("let y[i] = 1 where i == 1; let y[i] = 2 where i == 2; let y[i] = 3 where i == 0;", [3, 1, 2, 0]),
        ("let y[0] = x[3]; let y[i] = y[i - 1] + x[i] where i > 0;", [3, 1, 1, 4]),
        ("let y[k in 1..3] = 9.5; let y[i in 0..4] = x[i] where i < 1 || i > 2;", [1, 9.5, 9.5, 3]),
        ("let y[i in 1..4] = x[i] where i < 2; let y[i in 1..4] = 1 where i > 2;", [-2, 0, 1]),
        ("let p[i] = x[i] > 0; let y[i] = 1 where p[i]; let y[i] = { let s = sum[k](x[k]); s } where !p[i]; output y;",
         [1, 2, 2, 1]),
        ("let y[i] = x[i] > 0 where i < 2; let y[i] = true where i >= 2;", [True, False, True, True]),
        ("let y[i, k in 0..size(i)] = x[i] where k < i; let y[i, k in 0..size(i)] = 9 where k == i;",
         [[9, 0, 0, 0], [-2, 9, 0, 0], [0, 0, 9, 0], [3, 3, 3, 9]]),
    ],
)  # fmt: skip
def test_every_way_is_what_it_says(text: str, wanted: object) -> None:
    program = ix.compile("input x[i]; " + text)
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(program(X, backend=backend), wanted)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("let y[i] = x[i] where i < 2; let y[i] = 1 where i >= 1;", "IX307", "`y[1]` is defined by two clauses"),
        ("let y[i in 1..9] = 2 where i < 3; let y[i in 1..9] = 1 where i > 1;", "IX307",
         "`y[2]` is defined by two clauses"),
        ("let y[i] = x[i] where x[i] > 0; let y[i] = 1 where x[i] < 1;", "IX307",
         "`y[0]` may be defined by two clauses"),
        ("let y[i] = x[i] where i < 2; let y[i] = 1;", "IX307", "`y[0]` is defined by two clauses"),
        ("let y[i] = x[i]; let y[i] = 1;", "IX202", "`y` is defined twice"),
        ("let y[i in 0..3] = x[i] where i < 1; let y[i in 2..4] = 1 where i > 2;", "IX307",
         "`y[2]` is in the ranges of two clauses"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, code: str, words: str) -> None:
    assert (code, words) in [(found.code, found.message) for found in ix.check("input x[i]; " + text)]
