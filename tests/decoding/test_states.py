"""States of a decoder: values that share their arrays, and never change each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

CAUSAL = """
space batch(b), position(i, j), feature(d, e), model(m);
input x[b, i, m], W_Q[m, d], W_K[m, d], W_V[m, e];
let Q[b, i, d] = sum[m](x[b, i, m] * W_Q[m, d]);
let K[b, j, d] = sum[m](x[b, j, m] * W_K[m, d]);
let V[b, j, e] = sum[m](x[b, j, m] * W_V[m, e]);
let weights[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d]) / sqrt(size(d))) where j <= i;
let out[b, i, e] = sum[j](weights[b, i, j] * V[b, j, e]);
"""
RECURRENT = """
input x[t, m];
let total[t, m] = (if t > 0 { total[t - 1, m] } else { 0 }) * 0.5 + x[t, m];
"""
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(2, 8, 3))
WEIGHTS = {"W_Q": DRAW.normal(size=(3, 4)), "W_K": DRAW.normal(size=(3, 4)), "W_V": DRAW.normal(size=(3, 2))}


def made(kind: str) -> tuple[Any, Any, Any]:
    """A decoder, the positions and the outputs at all of them."""
    make: Any = torch.tensor if kind == "torch" else np.array
    if kind == "jax":
        make = pytest.importorskip("jax.numpy").asarray
    weights = {name: make(value) for name, value in WEIGHTS.items()}
    decode = ix.incremental(CAUSAL, "i", **weights)
    x = make(X)
    return decode, x, decode.program(x, **weights)


@pytest.fixture(params=["numpy", "torch"])
def case(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    return made(request.param)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6, atol=1e-6)


def test_an_old_state_can_be_stepped_from_again(case: Any) -> None:
    decode, x, full = case
    start, _ = decode.prefill(x[:, :4])
    other, _ = decode.step(x[:, 6:8], start)
    state, out = decode.step(x[:, 4:6], start)
    same(out, full[:, 4:6])
    _, out = decode.step(x[:, 6:], state)
    same(out, full[:, 6:])
    # The state that went another way is still what it was.
    expected = decode.program(x[:, [0, 1, 2, 3, 6, 7, 5]], **decode._weights)
    _, out = decode.step(x[:, 5:6], other)
    same(out, expected[:, 6:])


def test_going_back_gives_up_what_comes_after(case: Any) -> None:
    decode, x, full = case
    state, _ = decode.prefill(x[:, :3])
    far, _ = decode.step(x[:, [7, 7, 7]], state)
    back = far.back_to(4).back_to(3)
    assert back.length == 3
    again, out = decode.step(x[:, 3:5], back)
    same(out, full[:, 3:5])
    with pytest.raises(ix.CallError, match="positions that were given up"):
        decode.step(x[:, :1], far)
    with pytest.raises(ix.CallError, match="cannot go back to 9"):
        again.back_to(9)
    _, out = decode.step(x[:, 5:], again)
    same(out, full[:, 5:])


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("positions are given as whole numbers", lambda decode, x, state: state.back_to("one")),
        ("positions are given as whole numbers", lambda decode, x, state: state.back_to(1.5)),
        ("3 lengths for 2 sequences", lambda decode, x, state: state.back_to([1, 1, 1])),
        ("lengths are given as whole numbers", lambda decode, x, state: state.back_to([1.5, 2])),
        ("lengths are given as whole numbers", lambda decode, x, state: decode.prefill(x, lengths=3)),
        ("1 lengths for 2 sequences", lambda decode, x, state: decode.prefill(x, lengths=[2, 1])[0].back_to([1])),
        ("sequences are given as whole numbers", lambda decode, x, state: state.reorder("ab")),
        ("sequences are given as whole numbers", lambda decode, x, state: state.reorder(0)),
        ("`capacity` is a whole number from 1 on", lambda decode, x, state: decode.prefill(x, capacity="8")),
        ("a step needs the state", lambda decode, x, state: decode.step(x[:, :1], None)),
        ("of another decoder", lambda decode, x, state: ix.incremental(decode.program, "i").step(x, state)),
        ("did you mean `capacity`", lambda decode, x, state: ix.incremental(decode.program, "i", capasity=8)),
    ],
)
def test_what_is_no_number_or_no_state_is_refused(case: Any, words: str, call: Any) -> None:
    decode, x, _ = case
    with pytest.raises(ix.CallError, match=words):
        call(decode, x, decode.prefill(x[:, :3])[0])


def test_one_length_is_for_all_sequences(case: Any) -> None:
    decode, x, _ = case
    assert decode.prefill(x, lengths=[4, 3])[0].back_to(2).lengths == (2, 2)


def test_arrays_grow(case: Any) -> None:
    decode, x, _ = case
    long = x[:, [n % 8 for n in range(150)]]
    full = decode.program(long, **decode._weights)
    state, _ = decode.prefill(long[:, :10], capacity=20)
    for at in range(10, 150, 35):
        state, out = decode.step(long[:, at : at + 35], state)
        same(out, full[:, at : at + 35])


def test_arrays_of_the_caller_are_not_written_to(case: Any) -> None:
    decode, x, _ = case
    kept = np.asarray(x).copy()
    state, _ = decode.prefill(x[:, :4])
    decode.step(x[:, 4:], state)
    same(x, kept)
    # The relation of a step, called with arrays of one's own, leaves them alone too.
    past = [x.new_zeros(2, 5, n) if isinstance(x, torch.Tensor) else np.zeros((2, 5, n)) for n in (4, 2)]
    decode.step_program(x[:, :1], *decode._weights.values(), *past)
    assert not any(np.asarray(array).any() for array in past)


@pytest.mark.sampled(0)
def test_arrays_of_jax_are_made_anew() -> None:
    decode, x, full = made("jax")
    state, _ = decode.prefill(x[:, :6])
    after, _ = decode.step(x[:, :1], state)
    _, out = decode.step(x[:, 6:7], after.back_to(6))
    same(out, full[:, 6:7])


def test_a_recurrence_keeps_its_last_row_and_goes_back_to_states_that_are_held() -> None:
    decode = ix.incremental(RECURRENT, along="t")
    full = decode.program(X[0])
    state, _ = decode.prefill(X[0, :3])
    far, _ = decode.step(X[0, 4:5], state)
    with pytest.raises(ix.CallError, match="only the last rows are kept"):
        far.back_to(3)
    _, out = decode.step(X[0, 3:], state)
    same(out, full[3:])


def test_leading_axes_may_stand_for_several() -> None:
    decode = ix.incremental("""
        input x[..r, i, m];
        let seen[..r, i, m] = sum[j](x[..r, j, m] where j <= i);
        """, "i")
    whole = decode.program(X[None])
    state, _ = decode.prefill(X[None, :, :5])
    _, out = decode.step(X[None, :, 5:], state)
    same(out, whole[:, :, 5:])


def test_no_gradient_is_recorded_for_parameters() -> None:
    weights = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in WEIGHTS.items()}
    decode = ix.incremental(ix.nn.Module(CAUSAL, weights), "i")
    state, out = decode.prefill(torch.tensor(X))
    assert decode.inputs == ("x",)
    _, more = decode.step(torch.tensor(X[:, :1]), state)
    assert not out.requires_grad
    assert not more.requires_grad


def test_what_is_kept_is_printed() -> None:
    decode = ix.incremental(CAUSAL, "position", **{name: np.float32(value) for name, value in WEIGHTS.items()})
    assert str(decode).splitlines() == [
        "out: one position of `position` after another",
        "kept of each position:",
        "  K: 4 * size(b) numbers",
        "  V: 2 * size(b) numbers",
        "in all 24 * size(b) bytes a position, in f32",
        "computed for new positions alone: Q, weights, out",
    ]
    assert "K_past[b, so_far, d]" in decode.text


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("no input is called `W`", lambda d: ix.incremental(CAUSAL, "i", W=1)),
        ("no coordinate and no space is called `q`", lambda d: ix.incremental(CAUSAL, "q")),
        ("needs the state", lambda d: d.step(X)),
        ("`W_Q` is missing", lambda d: d.prefill(X)),
        ("`y` is no input of this call", lambda d: d.prefill(X, y=1)),
        ("`x` has 3 axes, and the array has 1", lambda d: d.step(X[0, 0], d.prefill(X, **WEIGHTS)[0])),
        ("2 arrays for 1 inputs", lambda d: d.step(X, X, d.prefill(X, **WEIGHTS)[0])),
    ],
)
def test_mistakes_are_findings(words: str, call: Any) -> None:
    with pytest.raises(ix.CallError, match=words):
        call(ix.incremental(CAUSAL, "i"))


BACK = {
    "recurrence": "let y[b, i, d] = (if i > 0 { y[b, i - 1, d] } else { 0 }) * g[d] + x[b, i, d];",
    "total": "let S[b, i, d, e] = sum[j](x[b, j, d] * x[b, j, e] where j <= i);"
    "let y[b, i, e] = sum[d](S[b, i, d, e] * x[b, i, d] * g[d]);",
}


@pytest.mark.parametrize("room", [None, 12])
@pytest.mark.parametrize("name", BACK)
def test_a_step_of_several_positions_is_cut_short(name: str, room: int | None) -> None:
    draw = np.random.default_rng(4)
    x, g = draw.normal(size=(3, 10, 2)), draw.normal(size=2)
    head = "space batch(b), position(i, j), feature(d, e); input x[b, i, d], g[d];"
    decode = ix.incremental(head + BACK[name], "i", capacity=room, g=g)
    whole = decode.program(x, g)
    state, _ = decode.prefill(x[:, :4])
    new = x[:, 4:8].copy()
    for length in (4, 5, 8):
        tried, _ = decode.step(new, state)
        other, _ = decode.step(new, state)
        new[:] = np.nan  # An array of the caller, who may write to it.
        same(decode.step(x[:, length : length + 2], tried.back_to(length))[1], whole[:, length : length + 2])
        turned = other.reorder([2, 0]).back_to(length)
        same(decode.step(x[[2, 0], length : length + 1], turned)[1], whole[[2, 0], length : length + 1])
        new[:] = x[:, 4:8]
    with pytest.raises(ix.CallError, match="A step of several positions can be cut short"):
        decode.step(x[:, 4:5], state)[0].back_to(4)
