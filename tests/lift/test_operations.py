"""Single operations: convolutions, what no result needs, what is no array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix


def drawn(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def test_what_no_result_needs_may_be_unreadable() -> None:
    def attention(x: Any) -> Any:
        x.logcumsumexp(-1)
        return x.softmax(-1)

    assert "softmax" in str(ix.read(attention, drawn(2, 3)))

    def largest_so_far(x: Any) -> Any:
        return x.cummax(-1).indices + 1

    with pytest.raises(ix.Error, match="the places that `cummax` gives") as caught:
        ix.read(largest_so_far, drawn(2, 3))
    assert caught.value.diagnostics[0].labels[0].span.source.name.endswith("test_operations.py")


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda x: x.cumprod(1), "cumprod[i](x[b, i, d])"),
        (lambda x: x.cummax(1).values * 2, "cummax[i](x[b, i, d])"),
        (lambda x: torch.cummin(x, -1)[0], "cummax[d](-x[b, i, d])"),
        (lambda x: x.flip(1).cummax(1).values.flip(1), "cummax["),
        (lambda x: (x > 0).cumprod(1) * x, "cumprod["),
    ],
)
def test_scans_are_read(function: Any, line: str) -> None:
    program = ix.read(function, drawn(2, 5, 4))
    assert line in str(program)
    torch.testing.assert_close(program(drawn(3, 7, 2)), function(drawn(3, 7, 2)))


def test_weights_that_are_read_backwards_are_bound_so() -> None:
    weight = torch.nn.Parameter(drawn(6, 4))

    def projected(x: Any) -> Any:
        return (x @ weight.T).view(-1, 3, 2).flip(1)

    program = ix.read(projected, drawn(5, 4))
    torch.testing.assert_close(program(drawn(7, 4)), projected(drawn(7, 4)).detach())


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (6, {"groups": 6, "padding": 2}),
        (4, {"padding": 1}),
        (5, {"dilation": 2}),
        (3, {"bias": False}),
    ],
    ids=["depthwise", "padded", "dilated", "plain"],
)
def test_a_convolution_is_a_sum_over_the_points_around(channels: int, options: dict[str, Any]) -> None:
    layer = torch.nn.Conv1d(6, channels, 3, **options)

    def convolved(x: Any) -> Any:
        return layer(x.mT).mT

    program = ix.read(convolved, drawn(2, 9, 6))
    torch.testing.assert_close(program(drawn(1, 12, 6)), convolved(drawn(1, 12, 6)).detach())


def test_a_convolution_in_steps_is_refused() -> None:
    layer = torch.nn.Conv1d(6, 4, 3, stride=2)
    with pytest.raises(ix.Error, match="steps of several points"):
        ix.read(lambda x: layer(x.mT), drawn(2, 9, 6))


def test_a_causal_convolution_is_read_as_one() -> None:
    layer = torch.nn.Conv1d(6, 6, 3, groups=6, padding=2)
    text = str(ix.read(lambda x: layer(x.mT)[..., : x.shape[1]].mT, drawn(2, 9, 6)))
    assert "sum[" in text
    assert "layer_weight" in text


def test_what_is_returned_and_no_array_is_said() -> None:
    assert str(ix.read(lambda x: (x.exp(), 3.5, None), drawn(2, 3))).startswith("// Also returned, and not read: 3.5.")


def test_numpy_is_left_to_the_audit() -> None:
    with pytest.raises(ix.Error, match="asks it from outside"):
        ix.read(lambda x: np.exp(np.asarray(x)), drawn(2, 3))
    with pytest.raises(ix.Error, match="asks it from outside"):
        ix.read(lambda x: x + torch.from_numpy(np.exp(x.numpy())), drawn(2, 3))


def by_threshold(s: Any) -> Any:
    return s.masked_fill(s < s.topk(3, -1).values[..., -1:], float("-inf")).softmax(-1)


def by_places(s: Any) -> Any:
    kept = torch.zeros_like(s, dtype=torch.bool).scatter(-1, s.topk(3, -1).indices, True)
    return s.masked_fill(~kept, float("-inf")).softmax(-1)


def set_in_place(s: Any) -> Any:
    mask = torch.full_like(s, float("-inf"))
    mask.scatter_(-1, s.argsort(-1, descending=True)[..., :2], 0.0)
    return (s + mask).softmax(-1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("function", "line"),
    [
        (by_threshold, "== 2)"),
        (by_places, "softmax[j](s[b, i, j]) where kept[b, i, j] < 3"),
        (set_in_place, "any[c]("),
        (lambda x: x.sort(-1).values, "sum[d](x[b, i, d] where part[b, i, d] == c)"),
        (lambda x: x.argsort(-2, descending=True), "rank["),
        (lambda x: x.kthvalue(2, -1, keepdim=True).values, "== 1)"),
    ],
)
def test_elements_by_their_order_are_read_as_ranks(function: Any, line: str) -> None:
    x = drawn(2, 5, 7)
    program = ix.read(function, x)
    assert line in str(program)
    assert "rank[" in str(program)
    assert torch.allclose(program(x).double(), function(x).double(), atol=1e-6)
