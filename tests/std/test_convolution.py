"""Convolution and pooling against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import LEADS, agree, convolve, draw, pad, same, windows

import indexical as ix


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize(("length", "width", "stride"), [(6, 3, 1), (7, 2, 2), (7, 3, 3), (3, 3, 5), (4, 1, 1)])
def test_convolve_1d(lead: tuple[int, ...], length: int, width: int, stride: int) -> None:
    x, w = draw(1, (*lead, 2, length), (3, 2, width))
    agree(ix.std.convolve_1d(x, w, stride), convolve(x, w, stride))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_short_signal_gives_nothing(length: int, stride: int) -> None:
    assert ix.std.convolve_1d(np.ones((1, length)), np.ones((1, 1, 5)), stride).shape == (1, 0)
    assert ix.std.max_pool_1d(np.ones(length), 5, stride).shape == (0,)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
def test_convolve_1d_same_and_causal(lead: tuple[int, ...], width: int) -> None:
    x, w, apart = draw(2, (*lead, 2, 5), (3, 2, width), (2, width))
    agree(ix.std.convolve_1d_same(x, w), convolve(pad(x, same((width,))), w))
    padded = pad(x, [(width - 1, 0)])
    wanted = np.stack([convolve(padded[..., [c], :], apart[None, [c]])[..., 0, :] for c in range(2)], -2)
    agree(ix.std.convolve_1d_causal(x, apart), wanted)


def test_stride_is_one_unless_said() -> None:
    x, w = draw(3, (1, 5), (1, 1, 2))
    agree(ix.std.convolve_1d(x, w), convolve(x, w))


@pytest.mark.parametrize("lead", [(), (2,), (0,)])
@pytest.mark.parametrize(("kernel", "stride"), [((2, 3), 1), ((3, 2), 2), ((1, 1), 3), ((6, 1), 1)])
def test_convolve_2d(lead: tuple[int, ...], kernel: tuple[int, int], stride: int) -> None:
    x, w = draw(4, (*lead, 2, 5, 4), (2, 2, *kernel))
    agree(ix.std.convolve_2d(x, w, stride), convolve(x, w, stride))


@pytest.mark.parametrize("lead", [(), (2,), (0,)])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 1), (1, 4)])
def test_convolve_2d_same(lead: tuple[int, ...], kernel: tuple[int, int]) -> None:
    x, w = draw(5, (*lead, 2, 4, 3), (2, 2, *kernel))
    agree(ix.std.convolve_2d_same(x, w), convolve(pad(x, same(kernel)), w))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize(("width", "stride"), [(1, 1), (2, 2), (3, 1), (2, 3)])
def test_pooling(lead: tuple[int, ...], width: int, stride: int) -> None:
    x, image = draw(6, (*lead, 7), (*lead, 4, 5))
    spots = [part for _, part in windows(7, width, stride)]
    agree(ix.std.max_pool_1d(x, width, stride), np.stack([x[..., s].max(-1) for s in spots], -1))
    agree(ix.std.mean_pool_1d(x, width, stride), np.stack([x[..., s].mean(-1) for s in spots], -1))
    rows, columns = list(windows(4, width, stride)), list(windows(5, width, stride))
    most, mean = np.zeros((*lead, len(rows), len(columns))), np.zeros((*lead, len(rows), len(columns)))
    for y, high in rows:
        for z, wide in columns:
            most[..., y, z] = image[..., high, wide].max((-1, -2))
            mean[..., y, z] = image[..., high, wide].mean((-1, -2))
    agree(ix.std.max_pool_2d(image, width, stride), most)
    agree(ix.std.mean_pool_2d(image, width, stride), mean)
