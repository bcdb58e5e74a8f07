"""Coordinates of different spaces never share an axis, in any spelling."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checker.reporting import codes

import indexical as ix

SPACES = "space position(i, j), feature(d, e); input Q[i, d], K[j, d]; "


@pytest.mark.parametrize(
    "text",
    [
        "let s[i, j] = sum[d](Q[i, d] * K[d, j]);",
        "let s[i] = Q[i, i];",
        "let s[d] = sum[i](Q[d, i]);",
        "let s[i, j] = sum[k](Q[i, k] * K[k, j]);",
        "let s[i] = sum[j](Q[j + 1, j] where j > 9);",
        "let t[d, i] = Q[i, d]; let s[i] = sum[d](t[i, d]);",
        "fn f(x[a, b], y[b]) -> [a] { sum[b](x[a, b] * y[b]) } input v[j]; let s = f(Q, v);",
        "let w[d] = softmax[d](Q[d, 0]);",
    ],
)
def test_conflict(text: str) -> None:
    assert set(codes(SPACES + text)) == {"IX303"}


@pytest.mark.parametrize(
    "text",
    [
        "let s[i, j] = sum[d](Q[i, d] * K[j, d]);",
        "let s[i, j] = sum[k](Q[i, k] * K[j, k]);",
        "let s = sum[k](Q[k, 0]) + sum[k](Q[0, k]);",
        "let s[i] = sum[d](Q[i, d] where d < i);",
        "let s[m in 0..4] = Q[m / 2, m % 2];",
        "fn f(x[i]) { sum[i](x[i]) } input v[d]; let s = f(v);",
    ],
)
def test_no_conflict(text: str) -> None:
    assert codes(SPACES + text) == []


JOINED = "space memory(m), context(i, j), feature(d, e); input M[m, d], C[i, d], Q[j, d]; "
BY_IF = "let K[p in 0..size(m) + size(i), d] = if p < size(m) { M[p, d] } else { C[p - size(m), d] }; "
BY_RANGES = "let K[p in 0..size(m), d] = M[p, d]; let K[p in size(m)..size(m) + size(i), d] = C[p - size(m), d]; "
BY_GUARDS = (
    "let K[p in 0..size(m) + size(i), d] = M[p, d] where p < size(m); "
    "let K[p in 0..size(m) + size(i), d] = C[p - size(m), d] where p >= size(m); "
)
GATHER = """
let s[j, p] = sum[d](Q[j, d] * K[p, d]);
let w[j, p] = softmax[p](s[j, p]) where p <= j + size(m);
let out[j, d] = sum[p](w[j, p] * K[p, d]);
attention out(query j, key p, compare d, causal);
"""


@pytest.mark.parametrize("declared", ["", "space sequence(p); "])
@pytest.mark.parametrize("join", [BY_IF, BY_RANGES, BY_GUARDS])
def test_sequences_of_two_spaces_are_joined(join: str, declared: str) -> None:
    text = JOINED + declared + join + GATHER
    assert [found.code for found in ix.check(text) if found.severity == "error"] == []
    noise = np.random.default_rng(0)
    memory, context, queries = (noise.standard_normal((n, 2)) for n in (3, 4, 4))
    keys = np.concatenate([memory, context])
    scores = np.where(np.arange(7) <= np.arange(4)[:, None] + 3, queries @ keys.T, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True) @ keys
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(ix.compile(text)(memory, context, queries, backend=backend), wanted)
    wrong = ix.check(text.replace("p <= j + size(m)", "p <= j + size(m) + 1"))
    assert "IX423" in [found.code for found in wrong]


@pytest.mark.parametrize(
    "text",
    [
        "let K[p in 0..4, d] = M[p, d] + C[p, d];",
        "let K[p in 0..4, d] = if p < 3 { M[p, d] } else { 0 } + if p > 1 { C[p, d] } else { 0 };",
        "space sequence(p); let K[p in 0..4, d] = if p < 3 { M[p, d] } else { 0 };",
        f"{BY_IF} let s[i] = sum[d](K[i, d]);",
        f"space sequence(p); {BY_RANGES} let s[m] = sum[d](K[m, d]);",
        "let s = sum[p in 0..3](M[p, 0] * C[p, 0]);",
    ],
)
def test_what_is_not_on_points_of_its_own_is_not_joined(text: str) -> None:
    assert "IX303" in codes(JOINED + text)
