"""What is kept in fewer bits: the error is that of rounding, and so are the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding.law import rows_of
from tests.decoding.test_states import CAUSAL, WEIGHTS, X

import indexical as ix

GIVEN = """
space position(i, j), feature(d, e);
input q[i, d], k[j, d], v[j, e];
let w[i, j] = softmax[j](sum[d](q[i, d] * k[j, d]) where j <= i, i - j < 4);
let out[i, e] = sum[j](w[i, j] * v[j, e]);
"""
# The largest error of a number beside the largest of its row.
ERROR = {"bf16": 2.0**-8, "i8": 0.5 / 127}


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("keep", ["bf16", "i8"])
def test_values_that_are_read_back_are_rounded(keep: Any, kind: str) -> None:
    """Weights that hear one position alone hand out what was kept of it."""
    decode = ix.incremental("input x[i, d]; let y[i, d] = sum[j](x[j, d] where j <= i, i - j == 1);", "i", keep=keep)
    make: Any = torch.tensor if kind == "torch" else np.array
    x = X[0]
    if keep == "bf16" and kind == "numpy":
        with pytest.raises(ix.CallError, match="NumPy has no numbers of 16 bits"):
            decode.prefill(make(x))
        return
    state, _ = decode.prefill(make(x[:3]))
    for at in range(3, 8):
        state, out = decode.step(make(x[at : at + 1]), state)
        bound = ERROR[keep] * np.abs(x[at - 1]).max()
        assert 0 < np.abs(np.asarray(out)[0] - x[at - 1]).max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize(("keep", "bytes_"), [("bf16", 2 * 6), ("i8", 6 + 2 * 4)])
def test_bytes_are_fewer_and_printed(keep: Any, bytes_: int) -> None:
    weights = {name: torch.tensor(value, dtype=torch.float32) for name, value in WEIGHTS.items()}
    decode, plain = ix.incremental(CAUSAL, "i", keep=keep, **weights), ix.incremental(CAUSAL, "i", **weights)
    x = torch.tensor(X, dtype=torch.float32)
    state, _ = decode.prefill(x[:, :5])
    assert state.nbytes == 64 * 2 * bytes_
    assert f"in all {bytes_} * size(b) bytes a position" in str(decode)
    _, expected = plain.step(x[:, 5:], plain.prefill(x[:, :5])[0])
    _, out = decode.step(x[:, 5:], state)
    assert (out - expected).abs().max() < 0.05 * expected.abs().max()
    turned = state.reorder([1, 0])
    _, out = decode.step(x[:, 5:].flip(0), turned)
    assert (out.flip(0) - expected).abs().max() < 0.05 * expected.abs().max()


def test_inputs_and_windows_are_kept_so_too() -> None:
    decode, plain = ix.incremental(GIVEN, "position", keep="i8"), ix.incremental(GIVEN, "position")
    draw = np.random.default_rng(1)
    arrays = {name: draw.normal(size=(200, 3)) for name in "qkv"}
    states = [one.prefill(**{name: rows_of(one, name, array, 0, 5) for name, array in arrays.items()})[0]
              for one in (decode, plain)]
    for at in range(5, 200):
        (states[0], out), (states[1], expected) = (
            one.step(*(array[at : at + 1] for array in arrays.values()), state)
            for one, state in zip((decode, plain), states, strict=True)
        )
        np.testing.assert_allclose(out, expected, atol=0.1)
    assert states[0].nbytes < states[1].nbytes / 2


def test_no_other_way_is_known() -> None:
    with pytest.raises(ix.CallError, match="cannot be held as `i4`"):
        ix.incremental(CAUSAL, "i", keep="i4")  # type: ignore[arg-type]
