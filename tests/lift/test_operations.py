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
        x.sort(-1)
        return x.softmax(-1)

    assert "softmax" in str(ix.read(attention, drawn(2, 3)))

    def sorted_later(x: Any) -> Any:
        return x.sort(-1).values.exp()

    with pytest.raises(ix.Error, match="`sort` cannot be read") as caught:
        ix.read(sorted_later, drawn(2, 3))
    assert caught.value.diagnostics[0].labels[0].span.source.name.endswith("test_operations.py")


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
