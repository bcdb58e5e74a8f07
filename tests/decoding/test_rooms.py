"""Decoders with room for a fixed number of positions: the law, lengths of their own, and rows that are not there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.decoding import catalogue
from tests.decoding.drawn import arrays_of, drawn
from tests.decoding.law import check, pieces
from tests.decoding.test_decoding import CASES

import indexical as ix
from indexical.run.rooms import on_device

HEAD = "space batch(b), position(i, j), feature(d, e); input x[b, i, d], table[i, d];"
PROGRAMS = {
    "softmax": "let w[b, i, j] = softmax[j](sum[d](x[b, i, d] * x[b, j, d]) - 0.1 * (i - j) where j <= i);"
    "let y[b, i, e] = table[i, e] + sum[j](w[b, i, j] * x[b, j, e]);",
    "angles": "let turn[i, d] = cos(i * 0.3 + d);"
    "let k[b, i, d] = x[b, i, d] * turn[i, d];"
    "let y[b, i, e] = turn[i, e] * sum[j](sum[d](k[b, j, d] * k[b, i, d]) * k[b, j, e] where j <= i, j > i - 3);",
    "total": "let y[b, i, d] = table[i, d] * sum[j](x[b, j, d] where j <= i);",
    "recurrence": "let y[b, i, d] = (if i > 0 { y[b, i - 1, d] } else { 0 }) * 0.5 + x[b, i, d] * table[i, d];",
    "taps": "let y[b, i, d] = sum[n in 0..3](x[b, i - n, d] * (n + 1) where i >= n);",
    "quotients": "let n[b, i] = sum[d](x[b, i, d] ** 2);"
    "let y[b, i, e] = sum[j](sum[d](x[b, i, d] * x[b, j, d]) / n[b, j] * x[b, j, e] / n[b, j] where j <= i);",
}
DRAW = np.random.default_rng(1)
X, TABLE, ROOM = DRAW.normal(size=(3, 9, 2)), DRAW.normal(size=(10, 2)), 10
LENGTHS = (4, 0, 6)


def made(name: str, **more: Any) -> Any:
    return ix.incremental(HEAD + PROGRAMS[name], "i", capacity=ROOM, table=TABLE, **more)


def alone(decode: Any, x: Any) -> Any:
    """The result of one sequence by itself."""
    return decode.program(np.asarray(x)[None], TABLE[: len(x)])[0]


def check_alone(decode: Any, out: Any, past: Any, new: Any) -> None:
    """One sequence gives at new positions, behind those that are past, what it gives by itself."""
    np.testing.assert_allclose(out, alone(decode, np.concatenate((past, new)))[len(past) :], atol=1e-12)


@lru_cache(maxsize=2)
def decoder_of(name: str, variant: bool) -> Any:
    return ix.incremental(*catalogue.compiled(name, variant), capacity=16)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_pieces_give_what_the_whole_gives(name: str, variant: bool, seed: int) -> None:
    decoder = decoder_of(name, variant)
    arrays, length = catalogue.arrays(name, variant, decoder)
    if seed == 0:
        arrays = {key: torch.as_tensor(np.asarray(value)) for key, value in arrays.items()}
    check(decoder, arrays, pieces(length, seed), "reference" if seed == 1 else None)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_programs_give_the_same_in_pieces(seed: int) -> None:
    arrays = arrays_of(seed)
    check(ix.incremental(drawn(seed), along="position", capacity=8), arrays, pieces(6, seed % 7))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sequences_have_lengths_of_their_own(name: str, kind: str) -> None:
    make: Any = torch.tensor if kind == "torch" else np.array
    decode = made(name)
    padded = np.where(np.arange(9)[None, :, None] < np.array(LENGTHS)[:, None, None], X, np.nan)
    state, out = decode.prefill(make(padded), lengths=LENGTHS)
    behind = np.stack([X[n, length : length + 3] for n, length in enumerate(LENGTHS)])
    state, more = decode.step(make(behind[:, :2]), state)
    assert state.lengths == (6, 2, 8)
    order = [2, 1, 1]
    _, last = decode.step(make(behind[order, 2:]), state.reorder(order))
    for n, length in enumerate(LENGTHS):
        whole = alone(decode, X[n, : length + 3])
        np.testing.assert_allclose(np.asarray(out)[n, :length], whole[:length], atol=1e-12)
        assert not np.asarray(out)[n, length:].any()
        np.testing.assert_allclose(np.asarray(more)[n], whole[length : length + 2], atol=1e-12)
        for place in (place for place, row in enumerate(order) if row == n):
            np.testing.assert_allclose(np.asarray(last)[place], whole[-1:], atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "angles", "quotients"])
def test_what_was_given_up_reaches_nobody(name: str) -> None:
    """Rows that are not finite stay in the room of others, and count for nothing."""
    decode = made(name)
    nan = np.full((3, 4, 2), np.nan)
    for first in (True, False):
        state, _ = decode.prefill(X[:, :4])
        tried, _ = decode.step(nan, state)
        back = (tried if first else state).back_to([4, 3, 2])
        _, out = decode.step(X[:, 4:6], back)
        for n, length in enumerate((4, 3, 2)):
            check_alone(decode, out[n], X[n, :length], X[n, 4:6])


def test_an_old_state_stays_what_it_is() -> None:
    decode = made("softmax")
    start, _ = decode.prefill(X[:, :4])
    other, _ = decode.step(X[:, 6:9], start)
    state, out = decode.step(X[:, 4:6], start)
    whole = decode.program(X[:, :8], TABLE[:8])
    np.testing.assert_allclose(out, whole[:, 4:6])
    np.testing.assert_allclose(decode.step(X[:, 6:8], state)[1], whole[:, 6:])
    turned = X[:, [0, 1, 2, 3, 6, 7, 8, 5]]
    np.testing.assert_allclose(decode.step(X[:, 5:6], other)[1], decode.program(turned, TABLE[:8])[:, 7:])
    with pytest.raises(ix.CallError, match="positions that were given up"):
        decode.step(X[:, :1], (other.back_to(5), other)[1])


@pytest.mark.parametrize("keep", ["bf16", "i8"])
def test_rows_are_kept_in_fewer_bits(keep: Any) -> None:
    decode, growing = made("softmax", keep=keep), ix.incremental(HEAD + PROGRAMS["softmax"], "i", keep=keep)
    x, table = torch.tensor(X, dtype=torch.float32), torch.tensor(TABLE, dtype=torch.float32)
    decode = ix.incremental(HEAD + PROGRAMS["softmax"], "i", keep=keep, capacity=ROOM, table=table)
    state, _ = decode.prefill(x[:, :6], lengths=LENGTHS)
    _, out = decode.step(x[:, 6:8], state)
    for n, length in enumerate(LENGTHS):
        growing = ix.incremental(HEAD + PROGRAMS["softmax"], "i", keep=keep, table=table)
        one, _ = growing.prefill(x[n : n + 1, :length])
        torch.testing.assert_close(out[n : n + 1], growing.step(x[n : n + 1, 6:8], one)[1])


def test_shapes_never_change() -> None:
    """A step takes the same shapes whatever the lengths, and writes to the same arrays."""
    decode = ix.incremental(HEAD + PROGRAMS["softmax"], "i", capacity=ROOM, table=torch.tensor(TABLE))
    state, _ = decode.prefill(torch.tensor(X[:, :2]))
    places = [array.data_ptr() for array in state._store.arrays]
    for n in range(2, 9):
        state, _ = decode.step(torch.tensor(X[:, n : n + 1]), state)
        assert [array.data_ptr() for array in state._store.arrays] == places
        assert {tuple(array.shape) for array in state._store.arrays} == {(3, ROOM, 2)}
    assert "before[b] : i64" in decode.text


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("room for 10 positions, and these are 11", lambda d: d.step(X[:, :3], d.prefill(X[:, :8])[0])),
        ("room for 10 positions, and these are 12", lambda d: d.prefill(X[:, :8], capacity=12)),
        ("pages are added when they are needed", lambda d: made("softmax", pages=4).prefill(X[:, :8], capacity=10)),
        ("2 lengths for 3 sequences", lambda d: d.prefill(X, lengths=[1, 2])),
        ("has no first 10", lambda d: d.prefill(X, lengths=[1, 2, 10])),
        ("cannot go back to 5", lambda d: d.prefill(X, lengths=[4, 8, 9])[0].back_to([5, 8, 9])),
        ("lengths are given as whole numbers", lambda d: d.prefill(X, lengths=[[1, 2, 3]])),
        ("positions are given as whole numbers", lambda d: d.prefill(X)[0].back_to(2.5)),
        ("a whole number from 1 on", lambda d: ix.incremental(HEAD + PROGRAMS["softmax"], "i", capacity=0)),
        (
            "`table` has 10 positions, and there is to be room for 11",
            lambda d: ix.incremental(HEAD + PROGRAMS["softmax"], "i", capacity=11, table=TABLE).prefill(X),
        ),
        (
            "sequences have one length: `y` takes several of them together",
            lambda d: ix.incremental(
                "input x[b, i]; let y[b, i] = sum[j, c](x[c, j] * x[b, i] where j <= i);", "i", capacity=9
            ).prefill(X[..., 0], lengths=[1, 2, 3]),
        ),
    ],
)
def test_mistakes_are_findings(words: str, call: Any) -> None:
    with pytest.raises(ix.CallError, match=words):
        call(made("softmax"))


def test_numbers_are_put_on_a_device_once() -> None:
    text = "input x[i], w : i32, s, t[k]; let y[i] = sum[j](s * x[j] * t[0] where j <= i, i - j < w); output y;"
    decode = ix.incremental(text, "i", capacity=8)
    given = {"w": 3, "s": 0.5, "t": np.ones(8, np.float32)}
    found = on_device(decode, given, torch.device("cpu"))
    assert {name: getattr(value, "dtype", None) for name, value in found.items()} == {
        "w": torch.int32,
        "s": None,
        "t": torch.float32,
    }
    x = torch.arange(8.0)
    for fixed in (given, found):
        state, _ = decode.prefill(x[:4], **fixed)
        assert decode.step(x[4:5], state)[1].tolist() == [0.5 * (2 + 3 + 4)]
