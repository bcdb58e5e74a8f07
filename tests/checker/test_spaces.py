"""Coordinates of different spaces never share an axis, in any spelling."""

from __future__ import annotations

import pytest
from tests.checker.reporting import codes

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
