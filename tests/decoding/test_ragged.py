"""Batches: sequences of different lengths, other orders of them, and roll-backs of each by its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

HEAD = "space batch(b), position(i, j), feature(d, e); input x[b, i, d], bias[b, d];"
TEXTS = [
    "let w[b, i, j] = softmax[j](sum[d](x[b, i, d] * x[b, j, d]) - 0.1 * (i - j) where j <= i);"
    "let y[b, i, e] = bias[b, e] + sum[j](w[b, i, j] * x[b, j, e]);",
    "let y[b, i, e] = (if i > 0 { 0.5 * y[b, i - 1, e] } else { 0 }) + x[b, i, e] * bias[b, e];",
    "let y[b, i, e] = bias[b, e] * sum[j](x[b, j, e] where j <= i);",
    "let w[b, i, j] = softmax[j](sum[d](x[b, i, d] * x[b, j, d]) where j <= i, i - j < 3);"
    "let y[b, i, e] = bias[b, e] + sum[j](w[b, i, j] * x[b, j, e]);",
]
DRAW = np.random.default_rng(0)
X, BIAS = DRAW.normal(size=(4, 9, 3)), DRAW.normal(size=(4, 3))
LENGTHS = [3, 0, 5, 3]


def alone(program: Any, x: Any, bias: Any) -> Any:
    return np.asarray(program(x[None], bias[None]))[0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize("text", TEXTS)
def test_each_sequence_is_as_it_is_alone(text: str, make: Any) -> None:
    decode = ix.incremental(HEAD + text, "i")
    state, out = decode.prefill(make(X[:, :5]), make(BIAS), lengths=LENGTHS)
    assert out.shape == (4, 5, 3)
    assert state.lengths == (3, 0, 5, 3)
    behind = [X[n, length : length + 3] for n, length in enumerate(LENGTHS)]
    after, more = decode.step(make(np.stack(behind))[:, :2], state)
    _, last = decode.step(make(np.stack(behind))[:, 2:], after)
    for n, length in enumerate(LENGTHS):
        whole = alone(decode.program, X[n, : length + 3], BIAS[n])
        np.testing.assert_allclose(np.asarray(out)[n, :length], whole[:length])
        assert not np.asarray(out)[n, length:].any()
        np.testing.assert_allclose(np.asarray(more)[n], whole[length : length + 2])
        np.testing.assert_allclose(np.asarray(last)[n], whole[length + 2 :])
    order = [3, 1, 1]
    _, last = decode.step(make(np.stack([behind[n][2:] for n in order])), after.reorder(order))
    for place, n in enumerate(order):
        whole = alone(decode.program, X[n, : LENGTHS[n] + 3], BIAS[n])
        np.testing.assert_allclose(np.asarray(last)[place], whole[-1:])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", TEXTS)
def test_beams_take_other_sequences_further(text: str) -> None:
    decode = ix.incremental(HEAD + text, "i")
    state, _ = decode.prefill(X[:2, :5], BIAS[:2])
    beams = state.reorder(torch.tensor([1, 1, 0]))
    _, out = decode.step(X[1:, 5:6], beams)
    _, other = decode.step(X[:2, 5:6], state)
    for place, n in enumerate((1, 1, 0)):
        whole = alone(decode.program, np.concatenate((X[n, :5], X[1 + place, 5:6])), BIAS[n])
        np.testing.assert_allclose(out[place], whole[-1:])
    np.testing.assert_allclose(other, decode.program(X[:2, :6], BIAS[:2])[:, 5:])


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[3]])
def test_each_sequence_goes_back_by_its_own(text: str) -> None:
    decode = ix.incremental(HEAD + text, "i")
    state, _ = decode.prefill(X[:2, :4], BIAS[:2])
    tried, _ = decode.step(X[2:, 4:7], state)
    accepted = tried.back_to([5, 7])
    _, out = decode.step(X[:2, 7:8], accepted.back_to((4, 7)))
    for n, length in enumerate((4, 7)):
        x = np.concatenate((X[n, :4], X[2 + n, 4:length], X[n, 7:8]))
        np.testing.assert_allclose(out[n], alone(decode.program, x, BIAS[n])[-1:])


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("3 lengths for 4 sequences", lambda d: d.prefill(X, BIAS, lengths=[1, 2, 3])),
        ("has no first 10", lambda d: d.prefill(X, BIAS, lengths=[1, 2, 3, 10])),
        ("no input has `q`", lambda d: d.prefill(X, BIAS)[0].reorder([0], along="q")),
        ("no sequence 4", lambda d: d.prefill(X, BIAS)[0].reorder([4])),
        ("no sequence 4", lambda d: d.prefill(X, BIAS, lengths=LENGTHS)[0].reorder([4])),
    ],
)
def test_mistakes_are_findings(words: str, call: Any) -> None:
    with pytest.raises(ix.CallError, match=words):
        call(ix.incremental(HEAD + TEXTS[0], "i"))
