"""Losses against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import Array, agree, draw, softmax

import indexical as ix


def drawn(lead: tuple[int, ...]) -> tuple[Array, Array, Array]:
    (logits,) = draw(1, (*lead, 4))
    target = np.random.default_rng(2).integers(0, 4, lead)
    return logits, target, -np.log(np.take_along_axis(softmax(logits), target[..., None], -1)[..., 0])


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_cross_entropy(lead: tuple[int, ...]) -> None:
    logits, target, surprise = drawn(lead)
    agree(ix.std.surprise(logits, target), surprise)
    agree(ix.std.cross_entropy(logits, target), surprise.mean())
    agree(ix.std.perplexity(logits, target), np.exp(surprise.mean()))


@pytest.mark.parametrize("lead", [(3,), (2, 3)])
def test_cross_entropy_where(lead: tuple[int, ...]) -> None:
    logits, target, surprise = drawn(lead)
    counts = np.arange(surprise.size).reshape(lead) % 2 == 0
    agree(ix.std.cross_entropy_where(logits, target, counts), surprise[counts].mean())


def test_targets_that_do_not_count_may_be_anything() -> None:
    logits, _, _ = drawn((2,))
    target, counts = np.array([1, -100]), np.array([True, False])
    agree(ix.std.cross_entropy_where(logits, target, counts), -np.log(softmax(logits))[0, 1])


def test_one_class_is_no_surprise() -> None:
    assert ix.std.cross_entropy(np.array([[3.0], [-2.0]]), np.array([0, 0])) == 0
    assert ix.std.perplexity(np.array([[3.0], [-2.0]]), np.array([0, 0])) == 1


@pytest.mark.parametrize("target", [[0, 4], [-1, 0]])
def test_target_must_be_a_class(target: list[int]) -> None:
    with pytest.raises(ix.Error, match="out of bounds"):
        ix.std.cross_entropy(np.zeros((2, 4)), np.array(target))


def test_targets_are_whole() -> None:
    with pytest.raises(ix.Error, match="whole"):
        ix.std.cross_entropy(np.zeros((2, 4)), np.array([0.0, 1.0]))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_mean_squared_error(lead: tuple[int, ...]) -> None:
    x, y = draw(3, lead, lead)
    agree(ix.std.mean_squared_error(x, y), ((x - y) ** 2).mean())
    assert ix.std.mean_squared_error(x, x) == 0
