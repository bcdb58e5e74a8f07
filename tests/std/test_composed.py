"""`ix.std.attention` and its options against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.std.plain import Array, agree, attend, draw, lower, pairs, softmax

import indexical as ix

QUERIES, KEYS = 3, 5
here, there = pairs(QUERIES, KEYS)
LEADS = [(), (2,), (2, 3), (1, 1, 2), (0,)]


def operands(lead: tuple[int, ...] = (2,), seed: int = 1, dtype: str = "float64") -> list[Array]:
    return draw(seed, (*lead, QUERIES, 4), (*lead, KEYS, 4), (*lead, KEYS, 2), dtype=dtype)


@pytest.mark.parametrize("lead", LEADS)
def test_plain_and_causal(lead: tuple[int, ...]) -> None:
    q, k, v = operands(lead)
    agree(ix.std.attention(q, k, v), attend(q, k, v))
    agree(ix.std.attention(q, k, v, causal=True), attend(q, k, v, lower(QUERIES, KEYS)))


@pytest.mark.parametrize("lead", LEADS)
def test_weights_are_returned(lead: tuple[int, ...]) -> None:
    q, k, v = operands(lead)
    found = ix.std.attention(q, k, v, causal=True, return_weights=True)
    assert isinstance(found, tuple)
    out, weights = found
    agree(weights, softmax(q @ np.swapaxes(k, -1, -2) / 2, lower(QUERIES, KEYS)))
    agree(out, weights @ v)


@pytest.mark.parametrize("window", [1, 2, 9])
@pytest.mark.parametrize("offset", [0, 2])
def test_window(window: int, offset: int) -> None:
    q, k, v = operands()
    distance = here + offset - there
    agree(ix.std.attention(q, k, v, window=window, offset=offset), attend(q, k, v, np.abs(distance) < window))
    both = (distance >= 0) & (distance < window)
    agree(ix.std.attention(q, k, v, causal=True, window=window, offset=offset), attend(q, k, v, both))


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_offset(offset: int) -> None:
    q, k, v = operands()
    agree(ix.std.attention(q, k, v, causal=True, offset=offset), attend(q, k, v, lower(QUERIES, KEYS, offset)))


@pytest.mark.parametrize("prefix", [0, 2, 9])
def test_prefix(prefix: int) -> None:
    q, k, v = operands()
    heard = (lower(QUERIES, KEYS)) | (there < prefix)
    agree(ix.std.attention(q, k, v, causal=True, prefix=prefix), attend(q, k, v, heard))
    near = (np.abs(here - there) < 2) & (there <= here)
    agree(ix.std.attention(q, k, v, causal=True, window=2, prefix=prefix), attend(q, k, v, near | (there < prefix)))
    around = np.abs(here - there) < 2
    agree(ix.std.attention(q, k, v, window=2, prefix=prefix), attend(q, k, v, around | (there < prefix)))


def test_documents() -> None:
    q, k, v = operands((2, 3))
    document = np.array([7, 7, 3, 3, 7])
    same = document[:QUERIES, None] == document
    agree(ix.std.attention(q, k, v, documents=document), attend(q, k, v, same))
    agree(ix.std.attention(q, k, v, documents=document, causal=True), attend(q, k, v, same & lower(QUERIES, KEYS)))
    later = document[2:, None] == document
    agree(ix.std.attention(q, k, v, documents=document.tolist(), offset=2), attend(q, k, v, later))
    each = np.array([[0, 0, 1, 1, 1], [0, 1, 2, 3, 3]])[:, None]
    agree(ix.std.attention(q, k, v, documents=each), attend(q, k, v, each[..., :QUERIES, None] == each[..., None, :]))


SHAPES = [(), (5,), (3, 5), (3, 1), (1, 5), (2, 1, 1, 5), (2, 3, 5), (4, 2, 3, 5), (1, 1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_mask_and_bias_broadcast(shape: tuple[int, ...]) -> None:
    q, k, v = operands((4, 2))
    if len(shape) == 4 and shape[0] == 2:
        q, k, v = operands((2, 4))
    (bias,) = draw(5, shape)
    mask = np.asarray(draw(6, shape)[0] > -0.5)
    agree(ix.std.attention(q, k, v, mask=mask), attend(q, k, v, mask))
    agree(ix.std.attention(q, k, v, bias=bias), attend(q, k, v, bias=bias))
    agree(ix.std.attention(q, k, v, mask=mask, bias=bias, causal=True), attend(q, k, v, mask & lower(3, 5), bias))


def test_rows_that_hear_nobody_gather_nothing() -> None:
    q, k, v = operands((2, 3))
    mask = np.ones((QUERIES, KEYS), bool)
    mask[1] = False
    out, weights = ix.std.attention(q, k, v, mask=mask, return_weights=True)
    assert not out[..., 1, :].any()
    assert not weights[..., 1, :].any()
    agree(out, attend(q, k, v, mask))
    assert not ix.std.attention(q, k, v, mask=False).any()


def test_scale_and_softcap() -> None:
    q, k, v = operands()
    agree(ix.std.attention(q, k, v, scale=1.0), softmax(q @ np.swapaxes(k, -1, -2)) @ v)
    agree(ix.std.attention(q, k, v, scale=1), softmax(q @ np.swapaxes(k, -1, -2)) @ v)
    agree(ix.std.attention(q, k, v, softcap=0.5), attend(q, k, v, cap=0.5))
    (bias,) = draw(7, (QUERIES, KEYS))
    agree(ix.std.attention(q, k, v, softcap=0.5, bias=bias), attend(q, k, v, bias=bias, cap=0.5))


def test_everything_at_once() -> None:
    q, k, v = operands((2, 2), seed=9)
    (bias,) = draw(10, (2, 1, KEYS))
    mask = np.asarray(draw(11, (2, 1, 1, KEYS))[0] > -1)
    document = np.array([0, 0, 0, 1, 1])
    near = (here + 2 - there < 2) & (there <= here + 2) | (there < 1)
    same = document[2:, None] == document
    scores = np.tanh(q @ np.swapaxes(k, -1, -2) * 0.3 / 2) * 2 + bias
    wanted = softmax(scores, near & same & mask)
    out, weights = ix.std.attention(
        q,
        k,
        v,
        causal=True,
        window=2,
        mask=mask,
        bias=bias,
        documents=document,
        prefix=1,
        offset=2,
        scale=0.3,
        softcap=2.0,
        return_weights=True,
    )
    agree(weights, wanted)
    agree(out, wanted @ v)


def test_leading_axes_broadcast() -> None:
    q, k, v = operands((2, 3))
    agree(ix.std.attention(q, k[:, :1], v[:, :1]), attend(q, k[:, :1], v[:, :1]))
    agree(ix.std.attention(q[0, 0], k, v), attend(q[0, 0], k, v))
    out, weights = ix.std.attention(q[:1], k[:1], v, return_weights=True)
    agree(out, attend(q[:1], k[:1], v))
    assert weights.shape == (2, 3, QUERIES, KEYS)


def test_one_key_no_key_no_query() -> None:
    q, k, v = operands()
    agree(ix.std.attention(q, k[:, :1], v[:, :1]), np.repeat(v[:, :1], QUERIES, 1), rtol=0, atol=0)
    assert ix.std.attention(q, k[:, :0], v[:, :0]).tolist() == np.zeros((2, QUERIES, 2)).tolist()
    assert ix.std.attention(q[:, :0], k, v, causal=True).shape == (2, 0, 2)


def test_float32_and_torch() -> None:
    q, k, v = operands(dtype="float32")
    options: dict[str, Any] = {"causal": True, "scale": 0.5, "softcap": 3.0}
    found = ix.std.attention(q, k, v, **options)
    assert found.dtype == np.float32
    tensors = [torch.from_numpy(array) for array in (q, k, v)]
    mask = torch.from_numpy(np.ones((1, 1, KEYS), bool))
    agree(np.asarray(ix.std.attention(*tensors, mask=mask, **options)), found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": 1}, "`causal` must be True or False"),
        ({"window": 0, "causal": True}, "`window` must be at least 1, and is 0"),
        ({"window": 2.0}, "`window` must be a whole number, and is 2.0"),
        ({"window": True}, "`window` must be a whole number, and is True"),
        ({"prefix": -1, "causal": True}, "`prefix` must be at least 0"),
        ({"prefix": 2}, "`prefix` does nothing without `causal` or `window`"),
        ({"offset": -1, "causal": True}, "`offset` must be at least 0"),
        ({"offset": None}, "`offset` must be a whole number, and is None"),
        ({"offset": 3}, "`offset` does nothing without"),
        ({"scale": "x"}, "`scale` must be a number, and is 'x'"),
        ({"softcap": 0}, "`softcap` must be above 0, and is 0"),
        ({"softcap": float("nan")}, "`softcap` must be above 0"),
        ({"mask": np.ones((QUERIES, KEYS))}, "`mask` must be Boolean, and is an array of float64"),
        ({"mask": np.ones((QUERIES, KEYS + 1), bool)}, r"`mask` has the shape \(3, 6\), .* \(h, 3, 5\)"),
        ({"mask": np.ones((1, 1, QUERIES, KEYS), bool)}, "`mask` has the shape"),
        ({"mask": np.ones((3, QUERIES, KEYS), bool)}, r"do not fit: `q` \(2, 3, 4\) and `mask` \(3, 3, 5\)"),
        ({"bias": np.ones((QUERIES, KEYS), bool)}, "`bias` must be real, and is an array of bool"),
        ({"bias": np.ones((QUERIES + 1, KEYS))}, r"`bias` has the shape \(4, 5\)"),
        ({"documents": np.zeros(KEYS)}, "`documents` must be whole numbers, and is an array of float64"),
        ({"documents": np.zeros(QUERIES, int)}, r"`documents` has the shape \(3,\), and there are 5 keys"),
        ({"documents": np.zeros((1, 2, KEYS), int)}, r"`documents` has the shape \(1, 2, 5\)"),
        ({"documents": np.zeros(KEYS, int), "offset": 3}, "the last query stands at position 5, and .* ends at 4"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ix.CallError, match=message):
        ix.std.attention(*operands(), **options)


def test_operands_that_cannot_be() -> None:
    q, k, v = operands((2, 4))
    with pytest.raises(ix.CallError, match="`q` needs at least 2 axes"):
        ix.std.attention(q[0, 0, 0], k, v)
    with pytest.raises(ix.CallError, match="`q` has 3 features to compare and `k` has 4"):
        ix.std.attention(q[..., :3], k, v)
    with pytest.raises(ix.CallError, match="`k` has 5 positions and `v` has 2"):
        ix.std.attention(q, k, v[..., :2, :])
    with pytest.raises(ix.CallError, match="`q` has 4 heads and `k` has 2") as caught:
        ix.std.attention(q, k[:, :2], v[:, :2])
    assert "grouped_query_attention" in str(caught.value)
    with pytest.raises(ix.CallError, match="do not fit: `q`"):
        ix.std.attention(q[:, :3], k, v)
    with pytest.raises(ix.CallError, match="`q` cannot be made an array"):
        ix.std.attention([[1, 2], [3]], k, v)
