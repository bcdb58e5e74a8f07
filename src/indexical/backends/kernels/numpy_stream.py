"""Attention by an online softmax over blocks of keys: nothing is ever as large as queries × keys.

This text needs NumPy and nothing else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 4 << 20


def attend_blocks(
    score: Callable[[int, int, int, int], Array],
    value: Callable[[int, int], Array],
    lower: Array | int,
    upper: Array | int,
    rows: int,
    keys: tuple[int, int],
    shape: tuple[int, ...],
    dtype: Any,
    sink: Array | None = None,
    free: bool = False,
    picked: str | None = None,
) -> Array:
    """`softmax(score) @ value`, a block of rows at a time, each against the keys that some row of it may hear.

    `score(r0, r1, k0, k1)` gives a tile `(…, rows, keys)` with -inf where a key is masked, `value(k0, k1)` the
    values `(…, keys, carried)`, of which those that no row of a block hears are not read. `lower` and `upper` bound the
    keys of each row, or of all. A row that hears nobody is 0. A `sink` `(…, rows or 1)` is the score of a further key
    that carries 0. Where scores are `free`, they are the weights, 0 where a key is masked. Where weights are
    `picked`, they are what e to a score is above 1, or 0, over the sum of how far it is from 1 and e to the sink: this
    counts from "zero"; from the largest score, or 0 ("floor"); or from the largest score ("peak"). No score of a key
    that is allowed is -inf then.
    """
    wide = np.result_type(dtype, np.float32)
    result = np.zeros(shape, dtype)
    size = max(1, int(np.prod(shape[:-2])) * np.dtype(wide).itemsize)
    columns = max(16, min(512, keys[1] - keys[0]))
    height = max(1, min(rows, BLOCK_BYTES // (size * columns)))
    first, last = np.broadcast_to(lower, rows), np.broadcast_to(upper, rows)
    for row in range(0, rows, height):
        end = min(row + height, rows)
        start = max(keys[0], int(first[row:end].min()))
        stop = min(keys[1], int(last[row:end].max()))
        if start >= stop:
            continue
        beside = None if sink is None else np.asarray(sink, wide)[..., None]
        if beside is not None and beside.shape[-2] > 1:
            beside = beside[..., row:end, :]
        running = None if free else _Running(picked, beside, wide)
        gathered: Any = 0
        for key in range(start, stop, columns):
            until = min(key + columns, stop)
            scores = weights = score(row, end, key, until).astype(wide, copy=False)
            values = value(key, until).astype(wide, copy=False)
            if not np.isfinite(values).all():
                used = (scores != (0 if free else -np.inf)).any(-2)
                values = np.where(np.expand_dims(used, -1), values, 0)
            if running is not None:
                weights, fade = running.weigh(scores)
                gathered = gathered * fade
            gathered = gathered + weights @ values
        result[..., row:end, :] = gathered if running is None else running.divide(gathered)
    return result


class _Running:
    """The rows of a block as their tiles come: the level from which scores are counted, and the total weight."""

    def __init__(self, picked: str | None, sink: Array | None, wide: Any) -> None:
        self.picked, self.sink = picked, sink
        self.level: Any = np.asarray(-np.inf if picked is None else 0, wide)
        self.highest: Any = np.asarray(-np.inf, wide)
        self.total: Any = np.zeros((), wide)
        if sink is not None and picked in (None, "zero"):
            self.level = np.maximum(self.level, np.minimum(sink, np.finfo(wide).max))
            self.total = np.exp(np.minimum(sink, self.level) - _finite(self.level))

    def weigh(self, scores: Array) -> tuple[Array, Array]:
        """The weights of a tile, and the factor that brings all that came before to their level."""
        peak = scores.max(-1, keepdims=True)
        level, before = np.maximum(self.level, peak), self.level
        self.level, self.highest = level, np.maximum(self.highest, peak)
        shift = _finite(level)
        weights, fade = np.exp(scores - shift), np.exp(before - shift)
        if self.picked is not None:
            weights = np.where(np.isneginf(scores), 0, weights - np.exp(-shift))
        self.total = self.total * fade + np.abs(weights).sum(-1, keepdims=True)
        return weights if self.picked is None else np.maximum(weights, 0), fade

    def divide(self, gathered: Array) -> Array:
        """The gathered values, over the total weight; 0 where every key is masked."""
        if self.sink is None:
            empty = np.isneginf(self.level) & (self.total == 0)
            return np.where(empty, 0, gathered / np.where(self.total == 0, 1, self.total))
        if self.picked in ("floor", "peak"):
            origin = self.level if self.picked == "floor" else _finite(self.highest)
            self.total = self.total + np.exp(self.sink + origin - self.level)
        found: Array = gathered / self.total
        return found


def _finite(level: Any) -> Any:
    return np.where(np.isneginf(level), 0, level)
