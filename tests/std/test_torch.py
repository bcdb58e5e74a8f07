"""The library against PyTorch, where PyTorch has the same function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.std.plain import Array, agree, draw

import indexical as ix


def tensors(*arrays: Array) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def matches(found: Any, wanted: torch.Tensor) -> None:
    agree(np.asarray(found), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_norms() -> None:
    x, gain, bias = draw(1, (2, 3, 4), (4,), (4,))
    matches(ix.std.layer_norm(x, gain, bias), F.layer_norm(torch.from_numpy(x), (4,), *tensors(gain, bias), 1e-5))
    matches(ix.std.rms_norm(x, gain, 1e-6), F.rms_norm(torch.from_numpy(x), (4,), torch.from_numpy(gain), 1e-6))


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    q, k, v = draw(2, (2, 2, 4, 3), (2, 2, 4, 3), (2, 2, 4, 2))
    wanted = F.scaled_dot_product_attention(*tensors(q, k, v), is_causal=causal)
    matches(ix.std.attention(q, k, v, causal=causal), wanted)
    matches((ix.std.causal_attention if causal else ix.std.dot_product_attention)(q, k, v), wanted)


def test_attention_with_mask_bias_and_scale() -> None:
    q, k, v, bias = draw(3, (2, 2, 4, 3), (2, 2, 5, 3), (2, 2, 5, 2), (2, 1, 4, 5))
    mask = bias > -0.5
    wanted = F.scaled_dot_product_attention(*tensors(q, k, v), attn_mask=torch.from_numpy(mask), scale=0.2)
    matches(ix.std.attention(q, k, v, mask=mask, scale=0.2), wanted)
    wanted = F.scaled_dot_product_attention(*tensors(q, k, v), attn_mask=torch.from_numpy(bias))
    matches(ix.std.attention(q, k, v, bias=bias), wanted)


def test_grouped_query_attention() -> None:
    q, k, v = draw(4, (2, 4, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2))
    wanted = F.scaled_dot_product_attention(*tensors(q, k, v), is_causal=True, enable_gqa=True)
    matches(ix.std.causal_grouped_query_attention(q, k, v), wanted)


def test_losses() -> None:
    (logits,) = draw(5, (6, 4))
    target = np.array([0, 3, 2, 2, 1, 0])
    matches(ix.std.cross_entropy(logits, target), F.cross_entropy(*tensors(logits, target)))
    some = np.array([0, 3, -100, 2, -100, 0])
    wanted = F.cross_entropy(*tensors(logits, some))
    matches(ix.std.cross_entropy_where(logits, some, some != -100), wanted)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(stride: int) -> None:
    x, w = draw(6, (2, 3, 7), (2, 3, 4))
    matches(ix.std.convolve_1d(x, w, stride), F.conv1d(*tensors(x, w), stride=stride))
    image, kernel = draw(7, (2, 2, 5, 4), (2, 2, 2, 3))
    matches(ix.std.convolve_2d(image, kernel, stride), F.conv2d(*tensors(image, kernel), stride=stride))
    matches(ix.std.max_pool_2d(image, 2, stride), F.max_pool2d(torch.from_numpy(image), 2, stride))
    matches(ix.std.mean_pool_2d(image, 2, stride), F.avg_pool2d(torch.from_numpy(image), 2, stride))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("width", [3, 4])
def test_same_padding(width: int) -> None:
    x, w = draw(8, (2, 2, 5), (2, 2, width))
    matches(ix.std.convolve_1d_same(x, w), F.conv1d(*tensors(x, w), padding="same"))
    image, kernel = draw(9, (2, 2, 4, 3), (1, 2, 2, width))
    matches(ix.std.convolve_2d_same(image, kernel), F.conv2d(*tensors(image, kernel), padding="same"))


def weights(module: torch.nn.Module, gates: int) -> tuple[Array, Array, Array, Array]:
    """PyTorch stacks the gates along the first axis: W, U, b and c, each by gate."""
    found = [p.detach().numpy() for p in module.parameters()]
    w, u, b, c = (array.reshape(gates, -1, *array.shape[1:]) for array in found)
    return w, u, b, c


def test_recurrent_nets() -> None:
    torch.manual_seed(0)
    x, start, memory = draw(10, (2, 3, 2), (2, 3), (2, 3))
    state, cell = torch.from_numpy(start)[None], torch.from_numpy(memory)[None]
    rnn = torch.nn.RNN(2, 3, batch_first=True, dtype=torch.float64)
    w, u, b, c = weights(rnn, 1)
    matches(ix.std.simple_rnn(x, w[0], u[0], b[0] + c[0], start), rnn(torch.from_numpy(x), state)[0])
    gru = torch.nn.GRU(2, 3, batch_first=True, dtype=torch.float64)
    matches(ix.std.gru(x, *weights(gru, 3), start), gru(torch.from_numpy(x), state)[0])
    lstm = torch.nn.LSTM(2, 3, batch_first=True, dtype=torch.float64)
    w, u, b, c = weights(lstm, 4)
    matches(ix.std.lstm(x, w, u, b + c, start, memory), lstm(torch.from_numpy(x), (state, cell))[0])


def test_feed_forward_bends_as_gelu() -> None:
    x, w_in, b_in, w_out, b_out = draw(11, (2, 3), (3, 4), (4,), (4, 2), (2,))
    inner = F.gelu(torch.from_numpy(x) @ torch.from_numpy(w_in) + torch.from_numpy(b_in))
    matches(ix.std.feed_forward(x, w_in, b_in, w_out, b_out), inner @ torch.from_numpy(w_out) + torch.from_numpy(b_out))
