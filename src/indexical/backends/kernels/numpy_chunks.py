"""Causal products of two sides, `out[i] = sum[j <= i](query[i] · key[j] * decay(i, j) * value[j])`, in linear time.

Positions are cut into chunks. Within a chunk this is a product under a mask; what comes from earlier chunks is carried
in one state, the sum of `key[j] * value[j]` that decays from chunk to chunk. Decays are e to differences of levels that
are both in one chunk, or end it: nothing is divided. This text needs NumPy and nothing else.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any

# Positions of a chunk, and how many of them are taken at once, as one.
CHUNK, AT_ONCE = 64, 128
# The shortest chunk of products that decay feature by feature, and how far levels may lie apart in a longer one.
SHORTEST, FARTHEST = 16, {"float32": 60.0, "float64": 500.0}


def chunk_products(
    query: Array,
    key: Array,
    value: Array,
    rate: Array | float | None = None,
    levels: Array | None = None,
    times: Array | float | None = None,
    strict: bool = False,
    backward: bool = False,
) -> Array:
    """The sum over `j <= i` of `(query[i] · key[j]) * decay(i, j) * value[j]`; where `strict` over `j < i`, `backward`
    over `j >= i`.

    Query (…, rows, d), key (…, keys, d) and value (…, keys, e) have the same axes before. The decay is e to `rate` for
    every step from j to i, times e to `levels[i] - levels[j]`, times the product of `times` over the steps after j up
    to i; each of them (…, positions or 1, d or 1), and `rate` and `times` also a number.
    """
    rows, count, lead = query.shape[-2], max(query.shape[-2], key.shape[-2]), query.shape[:-2]
    if 0 in (rows, key.shape[-2], *value.shape):
        return np.zeros((*query.shape[:-1], value.shape[-1]), value.dtype)
    query, key, value = (_chunk_stretched(part, count, backward) for part in (query, key, value))
    decays = [] if rate is None else [(_chunk_stretched(_chunk_array(rate, value), count, backward, True), True)]
    if times is not None:
        factors = _chunk_stretched(_chunk_array(times, value), count, backward, True)
        size = np.abs(factors)
        least = -105.0 if value.dtype == np.float32 else -750.0
        steps = np.maximum(np.log(np.where(size > 0, size, 1)), least)
        decays.append((np.where(size > 0, steps, least).astype(value.dtype), True))
        if (factors < 0).any():
            signs = np.cumprod(np.where(factors < 0, -1, 1).astype(value.dtype), -2)
            query, key = query * signs, key * signs
    if levels is not None:
        decays.append((_chunk_stretched(levels, count, backward, True), False))
    apart = any(part.shape[-1] > 1 for part, _ in decays)
    length = count if count <= AT_ONCE and not apart else CHUNK
    level = _chunk_levels(decays, count, length)
    while (
        level is not None
        and apart
        and length > SHORTEST
        and float(np.ptp(level, -2).max()) > FARTHEST[value.dtype.name]
    ):
        length //= 2
        level = _chunk_levels(decays, count, length)
    if level is not None:
        level = np.broadcast_to(level, (*lead, *level.shape[-3:])).reshape(-1, *level.shape[-3:])
    query, key, value = (_cut_chunks(part, length) for part in (query, key, value))
    out = _chunk_chunked(query, key, value, level, strict)
    out = out.reshape(*lead, -1, value.shape[-1])[..., :count, :]
    return (out[..., ::-1, :] if backward else out)[..., :rows, :]


def _chunk_array(part: Array | float, like: Array) -> Array:
    return np.full((1, 1), part, like.dtype) if np.ndim(part) == 0 else part


def _chunk_stretched(part: Array, count: int, backward: bool, repeats: bool = False) -> Array:
    """An array with so many positions, 0 beyond its own, or the last of them again; in the order of the steps."""
    size = part.shape[-2]
    if repeats and size == 1:
        return np.broadcast_to(part, (*part.shape[:-2], count, part.shape[-1]))
    if size < count:
        ends = [(0, 0)] * (part.ndim - 2) + [(0, count - size), (0, 0)]
        part = np.pad(part, ends, mode="edge" if repeats else "constant")
    part = part[..., :count, :]
    return part[..., ::-1, :] if backward else part


def _cut_chunks(part: Array, length: int) -> Array:
    """The positions as chunks (lead, chunks, length, width), the last filled up with 0."""
    chunks = -(-part.shape[-2] // length)
    return _chunk_stretched(part, chunks * length, False).reshape(-1, chunks, length, part.shape[-1])


def _chunk_levels(decays: Sequence[tuple[Array, bool]], count: int, length: int) -> Array | None:
    """The logarithm of the decay from the end of the chunk before to each position (…, chunks, length, 1 or d): steps
    are added up, levels are compared."""
    total: Array | None = None
    chunks = -(-count // length)
    for part, adds in decays:
        part = _chunk_stretched(part, chunks * length, False, not adds)
        part = part.reshape(*part.shape[:-2], chunks, length, part.shape[-1])
        before = np.concatenate((part[..., :1, :1, :], part[..., :-1, -1:, :]), -3)
        found = part.cumsum(-2) if adds else part - before
        total = found if total is None else total + found
    return total


def _chunk_chunked(query: Array, key: Array, value: Array, level: Array | None, strict: bool) -> Array:
    """The chunks of all products, each from the state before it."""
    turned = value.swapaxes(-1, -2)
    out = _chunk_scores(query, key, level, strict) @ value
    if query.shape[1] == 1:
        return out
    if level is not None:
        last = level[..., -1:, :]
        query, key = query * np.exp(level), key * np.exp(last - level)
    added = (turned @ key).swapaxes(-1, -2)
    state = np.zeros_like(added[:, 0])
    for n in range(1, query.shape[1]):
        state = added[:, n - 1] + (state if level is None else state * np.exp(last[:, n - 1]).swapaxes(-1, -2))
        out[:, n] += query[:, n] @ state
    return out


def _chunk_scores(query: Array, key: Array, level: Array | None, strict: bool) -> Array:
    """The weights of the keys of a chunk, 0 for those that come later."""
    size = query.shape[-2]
    kept = np.tri(size, size, -1 if strict else 0, dtype=bool)
    if level is None:
        return np.where(kept, query @ key.swapaxes(-1, -2), 0).astype(query.dtype)
    if level.shape[-1] == 1:
        decay = np.exp(np.where(kept, level - level.swapaxes(-1, -2), -np.inf))
        return np.where(kept, query @ key.swapaxes(-1, -2), 0).astype(query.dtype) * decay
    if size > SHORTEST:
        middle = level[..., size // 2, None, :]
        return _chunk_scores(query * np.exp(level - middle), key * np.exp(middle - level), None, strict)
    scores = np.zeros((*query.shape[:-1], size), query.dtype)
    for n in range(size):
        first = n + 1 if strict else n
        faded = np.exp(level[..., first:, :] - level[..., n : n + 1, :]) * key[..., n : n + 1, :]
        scores[..., first:, n] = (faded * query[..., first:, :]).sum(-1)
    return scores
