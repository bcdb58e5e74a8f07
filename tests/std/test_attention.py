"""Attention against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import LEADS, Array, agree, attend, draw, lower, pairs, softmax

import indexical as ix

LENGTHS = [(4, 4), (2, 5), (5, 2), (1, 1)]


def operands(seed: int, lead: tuple[int, ...], queries: int, keys: int, dtype: str = "float64") -> list[Array]:
    return draw(seed, (*lead, queries, 3), (*lead, keys, 3), (*lead, keys, 2), dtype=dtype)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_dot_product_and_causal_attention(lead: tuple[int, ...], queries: int, keys: int) -> None:
    q, k, v = operands(1, lead, queries, keys)
    agree(ix.std.dot_product_attention(q, k, v), attend(q, k, v))
    agree(ix.std.causal_attention(q, k, v), attend(q, k, v, lower(queries, keys)))


@pytest.mark.parametrize("lead", LEADS)
def test_scores_and_weights(lead: tuple[int, ...]) -> None:
    q, k, _ = operands(2, lead, 3, 4)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(3)
    agree(ix.std.scaled_scores(q, k), scores)
    agree(ix.std.attention_weights(q, k), softmax(scores))
    agree(ix.std.causal_weights(q, k), softmax(scores, lower(3, 4)))


def test_one_key_and_no_key() -> None:
    q, k, v = operands(3, (2,), 3, 1)
    agree(ix.std.dot_product_attention(q, k, v), np.repeat(v, 3, axis=1), rtol=0, atol=0)
    assert ix.std.dot_product_attention(q, k[:, :0], v[:, :0]).tolist() == np.zeros((2, 3, 2)).tolist()
    assert ix.std.dot_product_attention(q[:, :0], k, v).shape == (2, 0, 2)


def test_float32_stays_float32() -> None:
    q, k, v = operands(4, (2,), 3, 4, dtype="float32")
    found = ix.std.causal_attention(q, k, v)
    assert found.dtype == np.float32
    agree(found, attend(q, k, v, lower(3, 4)).astype("f4"), rtol=1e-5, atol=1e-6)
    assert ix.std.window_attention(q, k, v, 2).dtype == np.float32


@pytest.mark.parametrize("lead", LEADS)
def test_guarded_attention_and_rows_that_hear_nobody(lead: tuple[int, ...]) -> None:
    q, k, v = operands(5, lead, 4, 3)
    allowed = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    found = ix.std.guarded_attention(q, k, v, allowed)
    agree(found, attend(q, k, v, allowed))
    assert not found[..., 1, :].any()


@pytest.mark.parametrize("w", [0, 1, 2, 9])
def test_window_attention(w: int) -> None:
    q, k, v = operands(6, (2,), 4, 4)
    i, j = pairs(4, 4)
    agree(ix.std.window_attention(q, k, v, w), attend(q, k, v, (j <= i) & (i - j < w)))


def test_window_of_one_gathers_its_own_value() -> None:
    q, k, v = operands(7, (), 3, 3)
    assert np.array_equal(ix.std.window_attention(q, k, v, 1), v)


@pytest.mark.parametrize("p", [0, 2, 9])
def test_prefix_attention(p: int) -> None:
    q, k, v = operands(8, (2,), 4, 4)
    agree(ix.std.prefix_attention(q, k, v, p), attend(q, k, v, lower(4, 4) | (np.arange(4) < p)))


@pytest.mark.parametrize("lead", [(), (2,), (2, 1)])
def test_document_attention(lead: tuple[int, ...]) -> None:
    q, k, v = operands(9, (*lead, 2), 5, 5)
    document = np.random.default_rng(0).integers(0, 2, (*lead, 5))
    same = document[..., None, :, None] == document[..., None, None, :]
    agree(ix.std.document_attention(q, k, v, document), attend(q, k, v, same & lower(5, 5)))


@pytest.mark.parametrize("offset", [0, 2, 3])
def test_decoding_attention(offset: int) -> None:
    q, k, v = operands(10, (2,), 2, 5)
    agree(ix.std.decoding_attention(q, k, v, offset), attend(q, k, v, lower(2, 5, offset)))


def test_decoding_one_by_one_is_attending_at_once() -> None:
    q, k, v = operands(11, (), 4, 4)
    whole = ix.std.causal_attention(q, k, v)
    for step in range(4):
        one = ix.std.decoding_attention(q[step : step + 1], k[: step + 1], v[: step + 1], step)
        agree(one, whole[step : step + 1])


@pytest.mark.parametrize("lead", LEADS)
def test_biased_and_capped_attention(lead: tuple[int, ...]) -> None:
    q, k, v = operands(12, lead, 3, 4)
    (bias,) = draw(13, (*lead, 3, 4))
    allowed = lower(3, 4) & (np.arange(3)[:, None] != 1)
    agree(ix.std.biased_attention(q, k, v, bias, allowed), attend(q, k, v, allowed, bias))
    agree(ix.std.capped_attention(q, k, v, 0.5, allowed), attend(q, k, v, allowed, cap=0.5))


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_alibi_attention(heads: int) -> None:
    q, k, v = operands(14, (2, heads), 4, 4)
    i, j = pairs(4, 4)
    slope = {1: [2**-8], 2: [2**-4, 2**-8], 3: [2**-4, 2**-8, 2**-2]}[heads]
    bias = -np.array(slope)[:, None, None] * np.abs(i - j)
    agree(ix.std.alibi_attention(q, k, v), attend(q, k, v, lower(4, 4), bias))


@pytest.mark.parametrize("lead", [(), (2,), (0,)])
def test_sink_attention(lead: tuple[int, ...]) -> None:
    q, k, v = operands(15, (*lead, 2), 4, 3)
    sink = np.array([0.3, -2.0])
    allowed = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    found = ix.std.sink_attention(q, k, v, sink, allowed)
    agree(found, attend(q, k, v, allowed, sink=sink[:, None]))
    assert not found[..., 1, :].any()


def test_sink_takes_its_share() -> None:
    q, k, _ = operands(16, (1,), 2, 3)
    found = ix.std.sink_attention(q, k, np.ones((1, 3, 1)), np.array([1.0]), np.ones((2, 3), bool))
    assert (found < 1).all()
    without = ix.std.sink_attention(q, k, np.ones((1, 3, 1)), np.array([-500.0]), np.ones((2, 3), bool))
    agree(without, np.ones((1, 2, 1)))


@pytest.mark.parametrize("lead", [(), (2,), (0,)])
@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (3, 3), (3, 1), (6, 2)])
def test_grouped_query_attention(lead: tuple[int, ...], heads: int, groups: int) -> None:
    q, k, v = draw(17, (*lead, heads, 3, 2), (*lead, groups, 3, 2), (*lead, groups, 3, 2))
    each = heads // groups
    repeated = np.repeat(k, each, axis=-3), np.repeat(v, each, axis=-3)
    agree(ix.std.grouped_query_attention(q, k, v), attend(q, *repeated))
    agree(ix.std.causal_grouped_query_attention(q, k, v), attend(q, *repeated, lower(3, 3)))


@pytest.mark.parametrize(("heads", "groups"), [(4, 3), (5, 2), (2, 4)])
def test_groups_must_divide_heads(heads: int, groups: int) -> None:
    q, k, v = draw(18, (heads, 2, 2), (groups, 2, 2), (groups, 2, 2))
    with pytest.raises(ix.Error, match=r"out of bounds|divided by zero"):
        ix.std.grouped_query_attention(q, k, v)


@pytest.mark.parametrize("lead", LEADS)
def test_latent_attention(lead: tuple[int, ...]) -> None:
    q, turning, c, k = draw(21, (*lead, 2, 4, 3), (*lead, 2, 4, 6), (*lead, 5, 7), (*lead, 5, 6))
    w_k, w_v = draw(22, (2, 7, 3), (2, 7, 8))
    keys, values = c[..., None, :, :] @ w_k, c[..., None, :, :] @ w_v
    turned = np.broadcast_to(ix.std.rotary_pairs(k)[..., None, :, :], (*lead, 2, 5, 6))
    queries = np.concatenate([q, ix.std.rotary_pairs(turning)], -1)
    wanted = attend(queries, np.concatenate([keys, turned], -1), values, lower(4, 5))
    agree(ix.std.latent_attention(q, turning, c, k, w_k, w_v), wanted)


@pytest.mark.parametrize("lead", LEADS)
def test_bucketed_attention(lead: tuple[int, ...]) -> None:
    q, k, v, bias = draw(23, (*lead, 2, 9, 3), (*lead, 2, 8, 3), (*lead, 2, 8, 4), (2, 6))
    i, j = np.arange(9)[:, None], np.arange(8)
    added = bias[:, ix.std.distance_bucket(i, j, 6, 20)]
    agree(ix.std.bucketed_attention(q, k, v, bias, 20), attend(np.sqrt(3) * q, k, v, lower(9, 8), added))


@pytest.mark.parametrize("lead", LEADS)
def test_attention_with_other_weights(lead: tuple[int, ...]) -> None:
    q, k, q_2, k_2, v = draw(24, *[(*lead, 4, 3), (*lead, 5, 3)] * 2, (*lead, 5, 2))
    allowed = lower(4, 5)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(3) - np.log(5)
    agree(ix.std.sigmoid_attention(q, k, v, allowed), allowed / (1 + np.exp(-scores)) @ v)
    wanted = attend(q, k, v, allowed) - 0.3 * attend(q_2, k_2, v, allowed)
    agree(ix.std.differential_attention(q, k, q_2, k_2, v, 0.3, allowed), wanted)
