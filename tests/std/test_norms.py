"""Norms against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import LEADS, agree, draw, norm

import indexical as ix


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("width", [1, 5])
def test_layer_norm(lead: tuple[int, ...], width: int) -> None:
    x, gain, bias = draw(1, (*lead, width), (width,), (width,))
    agree(ix.std.layer_norm(x, gain, bias), norm(x, gain, bias, 1e-5))
    agree(ix.std.layer_norm(x, gain, bias, eps=0.1), norm(x, gain, bias, 0.1))


def test_layer_norm_of_equal_features_is_the_bias() -> None:
    gain, bias = draw(2, (3,), (3,))
    agree(ix.std.layer_norm(np.full((2, 3), 7.0), gain, bias), np.stack([bias, bias]))


@pytest.mark.parametrize("lead", LEADS)
def test_rms_norm(lead: tuple[int, ...]) -> None:
    x, gain = draw(3, (*lead, 4), (4,))
    agree(ix.std.rms_norm(x, gain), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain)
    agree(ix.std.rms_norm(x, gain, 0.5), x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.5) * gain)


@pytest.mark.parametrize("lead", LEADS)
def test_unit_norm(lead: tuple[int, ...]) -> None:
    (x,) = draw(4, (*lead, 4))
    found = ix.std.unit_norm(x, eps=1e-12)
    agree(found, x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-12))
    np.testing.assert_allclose((found**2).sum(-1), np.ones(lead))


def test_norms_of_nothing_but_zeros() -> None:
    zero = np.zeros((2, 3))
    assert not ix.std.rms_norm(zero, np.ones(3)).any()
    assert not ix.std.unit_norm(zero).any()


def test_float32_stays_float32() -> None:
    x, gain, bias = draw(5, (2, 4), (4,), (4,), dtype="float32")
    found = ix.std.layer_norm(x, gain, bias)
    assert found.dtype == np.float32
    agree(found, norm(x.astype(float), gain, bias, 1e-5).astype("f4"), rtol=1e-6, atol=1e-6)
    assert ix.std.rms_norm(x, gain).dtype == np.float32
