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
) -> Array:
    """`softmax(score) @ value`, a block of rows at a time, each against the keys that some row of it may hear.

    `score(r0, r1, k0, k1)` gives a tile `(…, rows, keys)` with -inf where a key is not heard, `value(k0, k1)` the
    values `(…, keys, carried)`, of which those that no row of a block hears are not read. `lower` and `upper` bound the
    keys of each row, or of all. A row that hears nobody is 0. A `sink` `(…, rows or 1)` is the score of a further key
    that carries 0. Where scores are `free`, they are the weights, 0 where a key is not heard.
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
        if start < stop and free:
            result[..., row:end, :] = _gather_rows(score, value, row, end, start, stop, columns, wide)
        elif start < stop:
            beside = None if sink is None else np.asarray(sink, wide)[..., None]
            if beside is not None and beside.shape[-2] > 1:
                beside = beside[..., row:end, :]
            result[..., row:end, :] = _attend_rows(score, value, row, end, start, stop, columns, wide, beside)
    return result


def _gather_rows(
    weigh: Callable[[int, int, int, int], Array],
    value: Callable[[int, int], Array],
    row: int,
    end: int,
    start: int,
    stop: int,
    columns: int,
    wide: Any,
) -> Array:
    """The rows of one block under weights that are there."""
    gathered: Any = 0
    for key in range(start, stop, columns):
        until = min(key + columns, stop)
        weights = weigh(row, end, key, until).astype(wide, copy=False)
        gathered = gathered + weights @ _heard_values(value(key, until).astype(wide, copy=False), weights != 0)
    found: Array = gathered
    return found


def _heard_values(values: Array, heard: Array) -> Array:
    """Values, 0 where no row hears them."""
    if np.isfinite(values).all():
        return values
    return np.where(np.expand_dims(heard.any(-2), -1), values, 0)


def _attend_rows(
    score: Callable[[int, int, int, int], Array],
    value: Callable[[int, int], Array],
    row: int,
    end: int,
    start: int,
    stop: int,
    columns: int,
    wide: Any,
    sink: Array | None,
) -> Array:
    """The rows of one block: the largest score so far, the total weight, and what was gathered with it."""
    top: Any = None if sink is None else np.minimum(sink, np.finfo(wide).max)
    total: Any = None if sink is None else np.where(np.isneginf(sink), 0.0, 1.0).astype(wide)
    gathered: Any = 0
    for key in range(start, stop, columns):
        until = min(key + columns, stop)
        scores = score(row, end, key, until).astype(wide, copy=False)
        peak = scores.max(-1, keepdims=True)
        new = peak if top is None else np.maximum(top, peak)
        shift = np.where(np.isneginf(new), 0, new)
        part = np.exp(scores - shift)
        here = part @ _heard_values(value(key, until).astype(wide, copy=False), part > 0)
        if top is None:
            total, gathered = part.sum(-1, keepdims=True), here
        else:
            fade = np.exp(top - shift)
            total = total * fade + part.sum(-1, keepdims=True)
            gathered = gathered * fade + here
        top = new
    found: Array = gathered / np.where((total == 0) & (sink is None), 1, total)
    return found if sink is not None else np.where(np.isneginf(top) & (total == 0), 0, found)
