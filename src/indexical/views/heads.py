"""Weights of many heads as data for a page: pictures of 8 bits a cell, and the largest weights of each row exactly."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass
from ..run.patterns import THRESHOLDS, WORDS, Array, Head, Patterns
from .extent import MOST_BYTES
from .patterns import meaning_of

# Of the largest weight of a row, a picture goes down to this many powers of ten.
DECADES = 6
# What a cell of a picture says: nothing is heard, no number from 0 on, less than the picture goes down to; from
# `LEAST` to 255, equal steps of the logarithm up to the largest weight of the row.
NOTHING, STRANGE, BELOW, LEAST = 0, 1, 2, 3
STEPS = 255 - LEAST

# The small picture of a head has at most this many cells a side.
SMALL = 56
# So many of the largest weights of a row are kept exactly, where there is room.
MOST_TOP = 8
# What of a page is left for its data, in bytes before they are written in base 64.
MOST_DATA = (MOST_BYTES - 2 * 2**20) * 3 // 4
# Cells of a picture stand for blocks of at most this many weights a side.
MOST_BLOCK = 64


@dataclass(frozen=True, slots=True)
class HeadsData:
    """A block for a page, and what is attached to it: for each head, its rows and its picture, packed."""

    block: dict[str, Any]
    attached: dict[str, str]


def heads_data(
    parts: Iterable[Patterns],
    shape: tuple[int, ...],
    tokens: Sequence[str] | None,
    axes: Sequence[str],
    room: int = MOST_DATA,
) -> HeadsData:
    """Everything that a page needs of weights, in at most `room` bytes: with more heads or longer rows, fewer of the
    largest weights are exact, and a cell of the picture stands for a block of weights and shows their largest.

    `shape` is that of all weights. They come in parts, one after the other, so that not all need be there at once."""
    *leading, queries, keys = shape
    if not math.prod(shape):
        raise CallError([Diagnostic("IX515", "there are no weights to show: one of the axes has no points")])
    count = math.prod(leading)
    top = MOST_TOP
    while top > 1 and count * queries * top * 6 > room // 2:
        top //= 2
    block, rows, cells, entries = 1, [], [], []
    while count * math.ceil(queries / block) * math.ceil(keys / block) > 4 * room:
        block *= 2
    indices = np.ndindex(*leading)
    for patterns in parts:
        for head, weights in zip(patterns.heads, patterns.weights.reshape(-1, queries, keys), strict=True):
            plain = plain_weights(weights)
            rows.append(zlib.compress(_rows(patterns, head, plain, top), 6))
            cells.append(largest_of_blocks(plain, block))
            entries.append(_head(head, next(indices), _small(plain)))
    block, packed = _packed(shape, rows, cells, block, room)
    return HeadsData(
        {
            "kind": "heads",
            "axes": list(axes),
            "shape": leading,
            "queries": queries,
            "keys": keys,
            "offset": max(0, keys - queries),
            "tokens": None if tokens is None else [str(token) for token in tokens],
            "block": block,
            "top": min(top, keys),
            "decades": DECADES,
            "least": LEAST,
            "words": [[word, meaning_of(word)] for word in WORDS],
            "thresholds": [[name, entry.value, entry.meaning] for name, entry in THRESHOLDS.items()],
            "heads": entries,
        },
        {f"head-{number}": base64.b64encode(data).decode("ascii") for number, data in enumerate(packed)},
    )


def _packed(
    shape: tuple[int, ...], rows: list[bytes], cells: list[Array], block: int, room: int
) -> tuple[int, list[bytes]]:
    """The data of each head, by the smallest blocks that leave it within the room; and how large these are."""
    left = room - sum(map(len, rows))
    while block <= MOST_BLOCK:
        pictures = _within(left, (zlib.compress(quantised(part).tobytes(), 6) for part in cells))
        if pictures is not None:
            return block, [
                len(row).to_bytes(4, "little") + row + picture for row, picture in zip(rows, pictures, strict=True)
            ]
        block *= 2
        cells = [largest_of_blocks(part, 2) for part in cells]
    sizes = " × ".join(f"{size:,}" for size in shape)
    message = f"weights of {sizes} do not fit into a page of {MOST_BYTES // 2**20} MiB, not even coarsely"
    raise CallError([Diagnostic("IX515", message, help="leave out layers, heads or positions")])


def _within(room: int, parts: Iterator[bytes]) -> list[bytes] | None:
    """All parts; None where they take more room."""
    found: list[bytes] = []
    for part in parts:
        room -= len(part)
        if room < 0:
            return None
        found.append(part)
    return found


def _rows(patterns: Patterns, head: Head, weights: Array, top: int) -> bytes:
    """The sum, how many keys are heard, the word and the largest weights with their keys, of every row."""
    keys, values = largest_keys(weights, min(top, patterns.keys))
    totals = np.nan_to_num(patterns.figures.total[head.index], posinf=0, neginf=0)
    heard, code = patterns.figures.heard[head.index], patterns.figures.code[head.index]
    places = keys.astype("<u4" if patterns.keys > 1 << 16 else "<u2")
    parts = (totals.astype("<f4"), heard.astype("<u4"), values.astype("<f4"), places, code.astype("u1"))
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def plain_weights(weights: Array) -> Array:
    """Weights in single precision, with NaN for what is negative or not finite."""
    cells = weights.astype(np.float32)
    with np.errstate(invalid="ignore"):
        return np.where((cells >= 0) & (cells < np.inf), cells, np.float32(np.nan))


def largest_keys(cells: Array, count: int) -> tuple[Array, Array]:
    """The keys of the largest weights of each row, the largest first, and the weights; of equal ones, earlier keys."""
    cells = np.where(np.isnan(cells), np.float32(0), cells)
    if count == 0 or cells.size == 0:
        return np.zeros((len(cells), 0), int), np.zeros((len(cells), 0), np.float32)
    found = np.argpartition(-cells, count - 1, axis=-1)[:, :count]
    values = np.take_along_axis(cells, found, -1)
    order = np.lexsort((found, -values), axis=-1)
    return np.take_along_axis(found, order, -1), np.take_along_axis(values, order, -1)


def largest_of_blocks(cells: Array, block: int) -> Array:
    """The largest weight of each block, a power of two a side; NaN where one is strange. The last may be smaller."""
    while block > 1:
        block //= 2
        for _ in range(2):
            odd = cells[1::2]
            cells = np.concatenate([np.maximum(cells[: 2 * len(odd) : 2], odd), cells[2 * len(odd) :]]).T
    return np.ascontiguousarray(cells)


def quantised(cells: Array) -> Array:
    """Cells as bytes: equal steps of the logarithm, from the largest cell of their row down."""
    scale = np.nan_to_num(cells, nan=0.0).max(-1, keepdims=True, initial=0)
    heard = cells > 0
    part = np.log10(
        np.divide(cells, scale, where=heard, out=np.ones_like(cells)), where=heard, out=np.zeros_like(cells)
    )
    steps = np.rint(255 + part * (STEPS / DECADES))
    codes = np.where(heard, np.where(steps < LEAST, BELOW, steps), NOTHING)
    return np.where(np.isnan(cells), STRANGE, codes).astype(np.uint8)


def _small(cells: Array) -> str:
    """A small picture, each line against its own largest cell; every cell shows the largest weight of its part."""
    for axis in (0, 1):
        size = cells.shape[axis]
        if size > SMALL:
            cells = np.maximum.reduceat(cells, np.arange(SMALL) * size // SMALL, axis)
    cells = np.where(np.isnan(cells), np.float32(0), cells)
    largest = cells.max(-1, keepdims=True, initial=0)
    part = np.divide(cells, largest, out=np.zeros_like(cells), where=largest > 0)
    return base64.b64encode(np.ceil(part * 255).astype(np.uint8).tobytes()).decode("ascii")


def _head(head: Head, index: tuple[int, ...], picture: str) -> dict[str, Any]:
    names = ("entropy", "effective_keys", "on_self", "on_previous", "on_first", "distance")
    figures = [getattr(head, name) for name in names]
    return {
        "at": list(index),
        "counts": list(head.counts.values()),
        "evidence": head.evidence,
        "causal": head.causal,
        "figures": [None if not math.isfinite(value) else round(value, 6) for value in figures],
        "picture": picture,
    }
