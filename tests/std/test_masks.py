"""Guards against the same relations written with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.std.plain import pairs

import indexical as ix

here, there = pairs(6, 7)


def test_causal() -> None:
    assert np.array_equal(ix.std.causal(here, there), np.tri(6, 7, dtype=bool))
    assert ix.std.causal(2, 2)
    assert not ix.std.causal(2, 3)


@pytest.mark.parametrize("offset", [-2, 0, 1, 7])
def test_causal_from(offset: int) -> None:
    assert np.array_equal(ix.std.causal_from(here, there, offset), np.tri(6, 7, offset, dtype=bool))


def test_causal_from_starts_at_the_beginning() -> None:
    assert np.array_equal(ix.std.causal_from(here, there), ix.std.causal(here, there))


@pytest.mark.parametrize("w", [0, 1, 3, 20])
def test_window(w: int) -> None:
    assert np.array_equal(ix.std.window(here, there, w), np.abs(here - there) < w)
    assert np.array_equal(ix.std.causal_window(here, there, w), (np.abs(here - there) < w) & (there <= here))


@pytest.mark.parametrize("p", [0, 1, 4, 9])
def test_prefix(p: int) -> None:
    assert np.array_equal(ix.std.prefix(here, there, p), np.tri(6, 7, dtype=bool) | (there < p))


@pytest.mark.parametrize(("w", "s"), [(2, 1), (1, 0), (3, 9), (0, 2)])
def test_streaming(w: int, s: int) -> None:
    wanted = np.tri(6, 7, dtype=bool) & ((there < s) | (here - there < w))
    assert np.array_equal(ix.std.streaming(here, there, w, s), wanted)


@pytest.mark.parametrize("n", [1, 2, 4, 10])
def test_same_block(n: int) -> None:
    assert np.array_equal(ix.std.same_block(here, there, n), here // n == there // n)


def test_documents() -> None:
    document = np.array([4, 4, 0, 0, 0, 4, 1])
    mine, theirs = document[:6, None], document[None, :]
    assert np.array_equal(ix.std.same_document(mine, theirs), mine == theirs)
    found = ix.std.causal_document(here, there, mine, theirs)
    assert np.array_equal(found, (mine == theirs) & (there <= here))


def test_guard_stands_after_where() -> None:
    program = ix.compile(
        """
        use std::masks::{causal, same_document};
        input s[i, j], document[i];
        let w[i, j] = softmax[j](s[i, j]) where causal(i, j), same_document(document[i], document[j]);
        """
    )
    weights = program(np.zeros((4, 4)), np.array([0, 1, 1, 0]))
    assert np.array_equal(weights, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0.5, 0.5, 0], [0.5, 0, 0, 0.5]])
