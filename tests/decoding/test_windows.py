"""What reads a bounded number of positions back keeps a bounded number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding.law import check, in_pieces

import indexical as ix
from indexical.run.stores import SPARE, most_rows

HEAD = "space position(i, j), feature(d, e); input x[i, d], w : i64;"
WINDOW = "let a[i, j] = softmax[j](sum[d](x[i, d] * x[j, d]) where {}); let y[i, e] = sum[j](a[i, j] * x[j, e]);"
WHOLE = "let k[j, e] = tanh(y[j, e]); let z[i, e] = sum[j](k[j, e] * sum[d](y[i, d] * k[j, d]) where j <= i);"
GUARDS = [
    "j <= i && i - j < 3",
    "i >= j, j > i - w",
    "j <= i && (i - j < 2 || i - j == 4)",
    "j <= i, i - j <= w && w > 1",
]
LENGTH = 5 * SPARE
DRAW = np.random.default_rng(0)
ARRAYS = {"x": 0.5 * DRAW.normal(size=(LENGTH, 2)), "w": np.array(3)}
PIECES = (SPARE, *[1] * (SPARE + 10), 100, 3, LENGTH - 2 * SPARE - 113)


def rows_held(state: Any) -> list[int]:
    return [array.shape[0] for array in state._store.arrays]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["numpy", "torch", "reference"])
@pytest.mark.parametrize("guard", GUARDS)
def test_a_window_is_what_the_whole_pass_has(guard: str, kind: str) -> None:
    decode = ix.incremental(HEAD + WINDOW.format(guard), "i")
    arrays: dict[str, Any] = ARRAYS if kind != "torch" else {n: torch.tensor(a) for n, a in ARRAYS.items()}
    if kind == "reference":
        arrays = {**ARRAYS, "x": ARRAYS["x"][:9]}
        check(decode, arrays, (2, 1, 4, 2), "reference")
        return
    check(decode, arrays, PIECES)


@pytest.mark.parametrize("far", [0, 2])
def test_memory_does_not_grow(far: int) -> None:
    decode = ix.incremental(HEAD + WINDOW.format("j <= i, i - j <= w"), "i", w=far)
    state, _ = decode.prefill(ARRAYS["x"])
    assert state.nbytes <= 2 * 8 * most_rows(far)
    for at in range(3 * SPARE):
        state, _ = decode.step(ARRAYS["x"][at : at + 1], state)
        assert state.nbytes <= 2 * 8 * most_rows(far)
    assert state.length == LENGTH + 3 * SPARE


def test_one_layer_may_have_a_window_and_another_none() -> None:
    decode = ix.incremental(HEAD + WINDOW.format("j <= i, i - j < w") + WHOLE, "i", w=4)
    arrays = {**ARRAYS, "w": 4}
    check(decode, arrays, PIECES, close=1e-7)
    state, _ = decode.prefill(ARRAYS["x"])
    assert min(rows_held(state)) <= most_rows(3) < max(rows_held(state))
    assert [line.partition(" numbers")[2] for line in str(decode).splitlines()[2:4]] == [
        ", of the last `w - 1` positions alone",
        "",
    ]


def test_weights_that_are_asked_for_have_all_positions() -> None:
    decode = ix.incremental(HEAD + WINDOW.format("j <= i, i - j < 3"), "i", ["a", "y"])
    check(decode, {**ARRAYS, "x": ARRAYS["x"][:9]}, (2, 1, 4, 2))


def test_states_with_windows_go_back_and_stay_what_they_are() -> None:
    decode = ix.incremental(HEAD + WINDOW.format("j <= i, i - j < 3") + WHOLE, "i", w=4)
    x = ARRAYS["x"]
    full = decode.program(x, w=4)
    state, _ = decode.prefill(x[:2])
    held = []
    for at in range(2, LENGTH - 1):
        held.append(state)
        state, out = decode.step(x[at : at + 1], state)
        np.testing.assert_allclose(out, full[at : at + 1])
    for old in (held[5], held[SPARE + 70], held[-1]):
        _, out = decode.step(x[old.length : old.length + 2], old)
        np.testing.assert_allclose(out, full[old.length : old.length + 2])
    back = state.back_to(LENGTH - 1 - SPARE)
    _, out = decode.step(x[back.length : back.length + 3], back)
    np.testing.assert_allclose(out, full[back.length : back.length + 3])
    with pytest.raises(ix.CallError, match="given up"):
        decode.step(x[:1], held[-2])
    with pytest.raises(ix.CallError, match="left their window of 2"):
        back.back_to(1)


def test_taps_keep_their_last_rows() -> None:
    text = "let y[i, e] = sum[t in 0..4](x[i - t, e] * 0.5 ** t where i >= t);"
    decode = ix.incremental(HEAD + text, "i", w=0)
    check(decode, {**ARRAYS, "x": ARRAYS["x"][:9]}, (1, 1, 4, 3))
    state, _ = decode.prefill(ARRAYS["x"])
    assert state.nbytes == 3 * 2 * 8
    assert list(in_pieces(decode, {**ARRAYS, "x": ARRAYS["x"][:2]}, (0, 2), None))
