"""Weights as data for a page: what is exact, how near the rest is, and that it fits."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest

from indexical.diagnostics import CallError
from indexical.run.patterns import find_patterns
from indexical.views.heads import (
    DECADES,
    LEAST,
    STEPS,
    heads_data,
    largest_keys,
    largest_of_blocks,
    plain_weights,
    quantised,
)


def softmax(shape: tuple[int, ...], spread: float = 3.0) -> np.ndarray[Any, Any]:
    scores = np.random.default_rng(0).normal(size=shape) * spread
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def unpacked(text: str) -> tuple[bytes, np.ndarray[Any, Any]]:
    data = base64.b64decode(text)
    end = 4 + int.from_bytes(data[:4], "little")
    return zlib.decompress(data[4:end]), np.frombuffer(zlib.decompress(data[end:]), np.uint8)


def test_bytes_are_near_the_weight_and_zeros_are_exact() -> None:
    cells = plain_weights(softmax((40, 60)))
    cells[:, ::7] = 0
    codes = quantised(cells)
    scale = cells.max(-1, keepdims=True)
    again = np.where(codes >= LEAST, scale * 10 ** ((codes.astype(float) - 255) / STEPS * DECADES), 0)
    heard = codes >= LEAST
    assert ((codes == 0) == (cells == 0)).all()
    assert np.abs(again[heard] / cells[heard] - 1).max() < 0.029
    assert quantised(np.array([[1, 1e-9, np.nan, 0]], np.float32)).tolist() == [[255, 2, 1, 0]]
    assert quantised(plain_weights(np.array([[-1.0, np.inf]]))).tolist() == [[1, 1]]


@pytest.mark.parametrize("shape", [(8, 8), (7, 9), (1, 5), (5, 1)])
def test_a_block_shows_its_largest_weight(shape: tuple[int, int]) -> None:
    cells = plain_weights(softmax(shape))
    for block in (1, 2, 4):
        found = largest_of_blocks(cells, block)
        rows, columns = (range(0, size, block) for size in shape)
        assert found.tolist() == [[cells[r : r + block, c : c + block].max() for c in columns] for r in rows]


def test_the_largest_keys_come_in_order_and_of_equal_ones_the_earlier() -> None:
    keys, values = largest_keys(np.array([[0.1, 0.4, 0.1, 0.4], [0, 0, 1, 0]], np.float32), 3)
    assert keys[0, :2].tolist() == [1, 3]
    assert values.tolist()[1][:2] == [1, 0]
    assert (np.diff(values) <= 0).all()


def test_rows_travel_exactly() -> None:
    weights = softmax((2, 3, 20, 20)).astype(np.float32)
    found = find_patterns(weights)
    data = heads_data([found], found.weights.shape, None, ["layer", "head"])
    rows, codes = unpacked(data.attached["head-4"])
    totals = np.frombuffer(rows, "<f4", 20)
    top = np.frombuffer(rows, "<f4", 20 * 8, 20 * 8).reshape(20, 8)
    keys = np.frombuffer(rows, "<u2", 20 * 8, 20 * 8 + 20 * 8 * 4).reshape(20, 8)
    assert top.tolist() == np.take_along_axis(weights[1, 1], keys.astype(int), -1).tolist()
    assert top.tolist() == (-np.sort(-weights[1, 1], -1))[:, :8].tolist()
    assert totals == pytest.approx(weights[1, 1].sum(-1))
    assert codes.size == 400
    assert data.block["block"] == 1
    assert [entry["at"] for entry in data.block["heads"]] == [list(place) for place in np.ndindex(2, 3)]


def test_less_room_means_larger_blocks_and_in_the_end_a_refusal() -> None:
    found = find_patterns(softmax((4, 64, 64)))
    sizes = []
    for room in (60_000, 20_000, 8_000):
        data = heads_data([found], found.weights.shape, None, ["head"], room)
        sizes.append((data.block["block"], data.block["top"]))
        assert sum(map(len, data.attached.values())) <= room * 4 / 3 + 16
    assert sizes == sorted(sizes, key=lambda size: (size[0], -size[1]))
    assert sizes[0][0] == 1 < sizes[-1][0]
    with pytest.raises(CallError, match="do not fit into a page of 25 MiB"):
        heads_data([found], found.weights.shape, None, ["head"], 1_000)
