"""Values that differ in names alone: what is computed once, and what only looks alike."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix

# Programs, a call in their text, and how often it stands there.
CASES = {
    "two names": ("input x[i]; let a[i] = exp(x[i]); let out[i, j in 0..size(i)] = a[i] * exp(x[j]);", "np.exp(", 1),
    "turned": (
        "input x[i, j in 0..size(i)]; let out[a in 0..size(i), b in 0..size(i)] = exp(x[a, b]) + exp(x[b, a]);",
        "np.exp(",
        1,
    ),
    "a sum": ("input x[i]; let a = sum[i](tanh(x[i])); let out = a - sum[j in 0..size(i)](tanh(x[j]));", "np.tanh(", 1),
    "other places": ("input x[i]; let out[i, j in 0..size(i) - 1] = exp(x[i]) * exp(x[j + 1]);", "np.exp(", 2),
    "other axes": (
        "input x[i, j]; let out = sum[i](exp(sum[j](x[i, j]))) + sum[j](exp(sum[i](x[i, j])));",
        "np.exp(",
        2,
    ),
    "what does not vary along its axis": (
        "input x[i]; let s = mean[i](x[i]); let r[i] = cumsum[i](s); "
        "let a[i] = exp(r[i]); let out[i, j in 0..size(i)] = a[i] * exp(r[j]);",
        "np.exp(",
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_differs_in_names_alone_is_computed_once(name: str) -> None:
    text, found, count = CASES[name]
    program = ix.compile(text)
    x = np.random.default_rng(0).standard_normal((4,) * text.split(";")[0].count(",") + (4,))
    assert program.source(x, backend="numpy").count(found) == count
    np.testing.assert_allclose(program(x), program(x, backend="reference"))
