"""Sums and maxima over all positions so far are carried as one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding.law import check, pieces

import indexical as ix

HEAD = "space batch(b), position(i, j, k), feature(d, e); input x[b, i, d], label[b, i] : i64;"
DRAW = np.random.default_rng(0)
ARRAYS = {"x": DRAW.normal(size=(2, 6, 3)), "label": DRAW.integers(0, 2, (2, 6))}
# What a position keeps, in numbers, and definitions of it.
CASES = [
    (3, "let y[b, i, e] = sum[j](x[b, j, e] where j <= i) / (i + 1);"),
    (3, "let y[b, i, e] = cumsum[i](x[b, i, e]);"),
    (3, "let y[b, i, e] = cumsum[i](x[b, i, e] where i % 2 == 1);"),
    (3, "let y[b, i, e] = cumprod[i](x[b, i, e] where label[b, i] == 1);"),
    (3, "let y[b, i, e] = cummax[i](x[b, i, e]) + 1;"),
    (3, "let y[b, i, e] = tanh(cummax[i](x[b, i, e])) where i != 2;"),
    (3, "let y[b, i, e] = sum[j in 0..=i](exp(x[b, j, e]) where label[b, j] == 1) * x[b, i, e];"),
    (3, "let y[b, i, e] = 1 + sum[j](x[b, j, e] where i > j);"),
    (3, "let y[b, i, e] = max[j](x[b, j, e] where i >= j) - x[b, i, e];"),
    (3, "let y[b, i, e] = min[j](x[b, j, e] where 0 <= i - j);"),
    (3, "let y[b, i, e] = max[j](x[b, j, e] where j <= i, j % 2 == 0);"),
    (1, "let y[b, i, e] = x[b, i, e] * prod[j, d](cos(x[b, j, d]) where j < i + 1);"),
    (6, "let y[b, i, e] = sum[k in 0..size(i)](sum[j](x[b, j, e] where j < k) where k <= i);"),
    (
        12,
        "let s[b, i, d, e] = sum[j](exp(x[b, j, d]) * x[b, j, e] where j <= i);"
        "let z[b, i, d] = sum[j](exp(x[b, j, d]) where j <= i);"
        "let y[b, i, e] = sum[d](exp(x[b, i, d]) * s[b, i, d, e]) / sum[d](exp(x[b, i, d]) * z[b, i, d]);",
    ),
    (9, "let y[b, i, e] = sum[d](x[b, i, d] * sum[j](x[b, j, d] * tanh(x[b, j, e]) where j <= i));"),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("numbers", "text"), CASES)
def test_a_total_is_carried(numbers: int, text: str, seed: int) -> None:
    decode = ix.incremental(HEAD + text, "i")
    arrays: dict[str, Any] = ARRAYS if seed % 2 else {n: torch.tensor(a) for n, a in ARRAYS.items()}
    check(decode, arrays, pieces(6, seed), "reference" if seed == 3 else None)
    state, _ = decode.prefill(**arrays)
    assert state.nbytes == 2 * 8 * numbers
    state, _ = decode.step(arrays["x"], arrays["label"], state)
    # What a step of several positions keeps, so that it can be cut short, the next one lets go of.
    state, _ = decode.step(arrays["x"][:, :1], arrays["label"][:, :1], state)
    assert state.nbytes == 2 * 8 * numbers


def test_a_total_begins_beside_a_read_of_the_first_position() -> None:
    decode = ix.incremental(HEAD + "let y[b, i, e] = sum[j](x[b, j, e] where j <= i) * x[b, 0, e];", "i")
    check(decode, ARRAYS, (0, 1, 5))


@pytest.mark.parametrize(
    "text",
    [
        "let y[b, i, e] = sum[j](x[b, j, e] * x[b, i, e] where j <= i);",
        "let y[b, i, e] = sum[j](x[b, j, e] where j <= i, label[b, i] == label[b, j]);",
        "let y[b, i, e] = sum[j](x[b, j, e] where j <= i / 2);",
        "let y[b, i, e] = max[j](x[b, j, e] where j < i) where i > 0;",
        "let y[b, i, e] = mean[j](x[b, j, e] where j <= i);",
    ],
)
def test_what_depends_on_the_position_in_some_other_way_is_no_total(text: str) -> None:
    decode = ix.incremental(HEAD + text, "i")
    check(decode, ARRAYS, (2, 1, 3))
    assert "_total" not in decode.text
