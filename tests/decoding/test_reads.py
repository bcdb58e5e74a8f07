"""Reads that cannot look ahead, however they are written, and those that can."""

from __future__ import annotations

import numpy as np
import pytest
from tests.decoding.law import check

import indexical as ix

HEAD = "space position(i, j), feature(d, e); input x[i, d], a[d, e];"
SCORES = "let s[i, j] = sum[d](x[i, d] * x[j, d]);"
DRAW = np.random.default_rng(0)
ARRAYS = {"x": DRAW.normal(size=(5, 3)), "a": DRAW.normal(size=(3, 3))}


@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize(
    "text",
    [
        "let out[i, e] = sum[t in 0..3](x[i + t - 2, e] * a[t, e] where 0 <= i + t - 2 < size(i));",
        f"{SCORES} let best[i] = argmax[j](s[i, j] where j <= i); let out[i, e] = x[best[i], e];",
        f"{SCORES} let out[i, e] = x[argmin[j in 0..=i](s[i, j]), e];",
        "let out[0, e] = x[0, e]; let out[1, e] = x[1, e]; "
        "let out[i in 2..size(i), e] = 0.5 * out[i - 1, e] - out[i - 2, e] + x[i, e];",
    ],
)
def test_these_do_not_look_ahead(text: str, first: int) -> None:
    check(ix.incremental(HEAD + text, "i"), ARRAYS, (first, 1, 4 - first))


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("let out[i, e] = sum[t in 0..3](x[i + t - 1, e] * a[t, e] where 0 <= i + t - 1 < size(i));", (0, 1)),
        ("let out[i, e] = x[size(i) - 1 - i, e];", (0, 3)),
        (
            "let out[0, e] = x[0, e]; "
            "let out[i in 1..size(i), e] = out[i - 1, e] + (if i + 1 < size(i) { x[i + 1, e] } else { 0 });",
            (1, 2),
        ),
        (f"{SCORES} let out[i, e] = x[argmax[j](s[i, j] where j <= i + 1), e];", (0, 1)),
    ],
)
def test_these_are_refused_by_the_read_and_two_positions(text: str, pair: tuple[int, int]) -> None:
    words = f"`out` at position {pair[0]} reads `x` at position {pair[1]}, which comes after it"
    with pytest.raises(ix.CallError, match=words):
        ix.incremental(HEAD + text, "i")


def test_a_recurrence_may_have_any_leading_axes() -> None:
    text = "input x[..r, i, m]; let s[..r, i, m] = (if i > 0 { s[..r, i - 1, m] } else { 0 }) * 0.5 + x[..r, i, m];"
    decode = ix.incremental(text, "i")
    x = DRAW.normal(size=(2, 1, 4, 3))
    whole = decode.program(x)
    state, _ = decode.prefill(x[:, :, :1])
    _, out = decode.step(x[:, :, 1:], state)
    np.testing.assert_allclose(out, whole[:, :, 1:])
