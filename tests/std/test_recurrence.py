"""Recurrences against loops."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import LEADS, Array, agree, attend, draw, sigmoid, softmax

import indexical as ix


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_linear_scan(lead: tuple[int, ...], steps: int) -> None:
    a, b = draw(1, (*lead, steps), (*lead, steps))
    wanted, state = np.zeros((*lead, steps)), np.zeros(lead)
    for t in range(steps):
        state = a[..., t] * state + b[..., t]
        wanted[..., t] = state
    agree(ix.std.linear_scan(a, b), wanted)
    agree(ix.std.linear_scan(np.ones_like(a), b), b.cumsum(-1))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_simple_rnn(lead: tuple[int, ...], steps: int) -> None:
    x, w, u, b, start = draw(2, (*lead, steps, 2), (3, 2), (3, 3), (3,), (*lead, 3))
    wanted, state = np.zeros((*lead, steps, 3)), start
    for t in range(steps):
        state = np.tanh(x[..., t, :] @ w.T + state @ u.T + b)
        wanted[..., t, :] = state
    agree(ix.std.simple_rnn(x, w, u, b, start), wanted)


def run_gru(x: Array, w: Array, u: Array, b: Array, c: Array, state: Array) -> Array:
    wanted = np.zeros((*x.shape[:-1], state.shape[-1]))
    for t in range(x.shape[-2]):
        now = [x[..., t, :] @ w[g].T + b[g] for g in range(3)]
        past = [state @ u[g].T + c[g] for g in range(3)]
        reset, keep = sigmoid(now[0] + past[0]), sigmoid(now[1] + past[1])
        state = (1 - keep) * np.tanh(now[2] + reset * past[2]) + keep * state
        wanted[..., t, :] = state
    return wanted


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_gru(lead: tuple[int, ...], steps: int) -> None:
    arrays = draw(3, (*lead, steps, 2), (3, 2, 2), (3, 2, 2), (3, 2), (3, 2), (*lead, 2))
    agree(ix.std.gru(*arrays), run_gru(*arrays))


def run_lstm(x: Array, w: Array, u: Array, b: Array, shown: Array, cell: Array) -> Array:
    wanted = np.zeros((*x.shape[:-1], shown.shape[-1]))
    for t in range(x.shape[-2]):
        write, keep, propose, show = (x[..., t, :] @ w[g].T + shown @ u[g].T + b[g] for g in range(4))
        cell = sigmoid(keep) * cell + sigmoid(write) * np.tanh(propose)
        shown = sigmoid(show) * np.tanh(cell)
        wanted[..., t, :] = shown
    return wanted


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_lstm(lead: tuple[int, ...], steps: int) -> None:
    arrays = draw(4, (*lead, steps, 3), (4, 2, 3), (4, 2, 2), (4, 2), (*lead, 2), (*lead, 2))
    agree(ix.std.lstm(*arrays), run_lstm(*arrays))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("length", [1, 2, 6])
def test_online_softmax(lead: tuple[int, ...], length: int) -> None:
    (x,) = draw(5, (*lead, length))
    agree(ix.std.online_softmax(x), softmax(x))
    agree(ix.std.online_softmax(500 * x), softmax(500 * x))


@pytest.mark.parametrize("lead", [(), (2,), (0,)])
@pytest.mark.parametrize("keys", [1, 5])
def test_online_attention(lead: tuple[int, ...], keys: int) -> None:
    q, k, v = draw(6, (*lead, 3, 2), (*lead, keys, 2), (*lead, keys, 2))
    agree(ix.std.online_attention(q, k, v), attend(q, k, v))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_linear_attention(lead: tuple[int, ...], steps: int) -> None:
    q, k, v = draw(7, (*lead, steps, 2), (*lead, steps, 2), (*lead, steps, 3))
    scores = np.tril(q @ np.swapaxes(k, -1, -2))
    agree(ix.std.linear_attention(q, k, v), scores @ v)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("steps", [1, 4])
def test_linear_attention_that_fades(lead: tuple[int, ...], steps: int) -> None:
    q, k, v, gate = draw(8, *[(*lead, 2, steps, 2)] * 2, (*lead, 2, steps, 3), (*lead, 2, steps, 2))
    decay, keep = np.array([0.9, 0.5]), 1 / (1 + np.exp(-gate))
    back = np.subtract.outer(np.arange(steps), np.arange(steps))
    fading = np.tril(decay[:, None, None] ** np.maximum(back, 0))
    agree(ix.std.retention(q, k, v, decay), fading * (q @ np.swapaxes(k, -1, -2)) / np.sqrt(2) @ v)
    kept = np.cumprod(keep, -2)
    agree(ix.std.gated_linear_attention(q, k, v, keep), np.tril((q * kept) @ np.swapaxes(k / kept, -1, -2)) @ v)
    asked, answered = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    share = np.tril(asked @ np.swapaxes(answered, -1, -2))
    agree(ix.std.positive_linear_attention(q, k, v), share @ v / share.sum(-1, keepdims=True))


@pytest.mark.parametrize("lead", LEADS)
def test_delta_attention(lead: tuple[int, ...]) -> None:
    q, k, v, gate = draw(9, (*lead, 4, 2), (*lead, 4, 2), (*lead, 4, 3), (*lead, 4))
    rate = 1 / (1 + np.exp(-gate))
    memory, rows = np.zeros((*lead, 2, 3)), []
    for t in range(4):
        key = k[..., t, :, None]
        stood = np.swapaxes(key, -1, -2) @ memory
        memory = memory + rate[..., t, None, None] * key * (v[..., t, None, :] - stood)
        rows.append((q[..., t, None, :] @ memory)[..., 0, :])
    agree(ix.std.delta_attention(q, k, v, rate), np.stack(rows, -2))


def test_one_pass_needs_a_point() -> None:
    with pytest.raises(ix.CallError, match="top"):
        ix.std.online_softmax(np.zeros((2, 0)))
    with pytest.raises(ix.CallError, match="top"):
        ix.std.online_attention(np.zeros((2, 1)), np.zeros((0, 1)), np.zeros((0, 1)))
