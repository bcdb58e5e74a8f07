"""Whole layers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import Array, agree, attend, draw, gelu, heads, lower, merge, norm, sigmoid

import indexical as ix

LEADS = [(), (2,), (1, 2), (0,)]


def weights(seed: int, width: int = 3, out: int = 3) -> list[Array]:
    """W_Q, W_K, W_V, W_O of two heads that compare two features and carry one."""
    return draw(seed, (2, width, 2), (2, width, 2), (2, width, 1), (2, 1, out))


def layer(x: Array, y: Array, w: list[Array], allowed: Array | None = None) -> Array:
    return merge(attend(heads(x, w[0]), heads(y, w[1]), heads(y, w[2]), allowed), w[3])


@pytest.mark.parametrize("lead", LEADS)
def test_projections(lead: tuple[int, ...]) -> None:
    x, w, o, w_o = draw(1, (*lead, 4, 3), (2, 3, 5), (*lead, 2, 4, 5), (2, 5, 3))
    agree(ix.std.project_heads(x, w), heads(x, w))
    agree(ix.std.merge_heads(o, w_o), merge(o, w_o))


@pytest.mark.parametrize("lead", LEADS)
def test_multi_head_attention(lead: tuple[int, ...]) -> None:
    (x,) = draw(2, (*lead, 4, 3))
    w = weights(3, out=5)
    agree(ix.std.multi_head_attention(x, *w), layer(x, x, w))
    agree(ix.std.causal_multi_head_attention(x, *w), layer(x, x, w, lower(4, 4)))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("keys", [1, 5])
def test_cross_attention(lead: tuple[int, ...], keys: int) -> None:
    x, y, w_q = draw(4, (*lead, 2, 3), (*lead, keys, 4), (2, 3, 2))
    w = [w_q, *weights(5, width=4)[1:]]
    agree(ix.std.cross_attention(x, y, *w), layer(x, y, w))


@pytest.mark.parametrize("lead", LEADS)
def test_sublayer(lead: tuple[int, ...]) -> None:
    (x,) = draw(6, (*lead, 4, 3))
    w = weights(7)
    agree(ix.std.causal_sublayer(x, *w), x + layer(x, x, w, lower(4, 4)))
    allowed = np.ones((4, 4), dtype=bool)
    allowed[2] = False
    found = ix.std.guarded_sublayer(x, *w, allowed)
    agree(found, x + layer(x, x, w, allowed))
    assert np.array_equal(found[..., 2, :], x[..., 2, :])


def test_sublayer_of_one_position() -> None:
    (x,) = draw(8, (1, 3))
    w = weights(9)
    agree(ix.std.causal_sublayer(x, *w), x + np.einsum("im,hme,hen->in", x, w[2], w[3]))


@pytest.mark.parametrize("lead", LEADS)
def test_feed_forward(lead: tuple[int, ...]) -> None:
    x, w_in, b_in, w_out, b_out = draw(10, (*lead, 3), (3, 5), (5,), (5, 2), (2,))
    agree(ix.std.feed_forward(x, w_in, b_in, w_out, b_out), gelu(x @ w_in + b_in) @ w_out + b_out)
    gate, up = w_in, draw(11, (3, 5))[0]
    inner = x @ gate * sigmoid(x @ gate) * (x @ up)
    agree(ix.std.gated_feed_forward(x, gate, up, w_out), inner @ w_out)


@pytest.mark.parametrize("lead", LEADS)
def test_transformer_block(lead: tuple[int, ...]) -> None:
    x, gain_1, bias_1, gain_2, bias_2 = draw(12, (*lead, 3, 3), (3,), (3,), (3,), (3,))
    w_in, b_in, w_out, b_out = draw(13, (3, 4), (4,), (4, 3), (3,))
    w = weights(14)
    heard = norm(x, gain_1, bias_1, 1e-5)
    y = x + layer(heard, heard, w, lower(3, 3))
    wanted = y + gelu(norm(y, gain_2, bias_2, 1e-5) @ w_in + b_in) @ w_out + b_out
    found = ix.std.transformer_block(x, gain_1, bias_1, *w, gain_2, bias_2, w_in, b_in, w_out, b_out)
    agree(found, wanted)


def test_transformer_block_with_nothing_to_say_changes_nothing() -> None:
    x, gain, bias, w_in, b_in = draw(15, (2, 3), (3,), (3,), (3, 4), (4,))
    *w, w_o = weights(16)
    silent = ix.std.transformer_block(
        x, gain, bias, *w, 0 * w_o, gain, bias, w_in, b_in, np.zeros((4, 3)), np.zeros(3), eps=1e-6
    )
    assert np.array_equal(silent, x)
