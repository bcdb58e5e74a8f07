"""States that each step asks before it writes to them, `S[t] = decay[t] * S[t - 1] + key[t] * (value[t] + asked[t])`,
where `asked[t] = ask[t] · S[t - 1]`, and what a query is answered by each, `query[t] · S[t]`: in linear time.

Positions are cut into chunks. Within a chunk, what all steps write is the solution of one triangular system, linear in
the state before it. Decays are e to differences of levels that are both in one chunk, or end it: nothing is divided.
This text needs NumPy and nothing else.
"""

from typing import Any

import numpy as np

from .numpy_chunks import _chunk_array, _chunk_levels, _chunk_stretched, _cut_chunks

Array = Any

# Positions of a chunk.
DELTA_CHUNK = 64


def delta_products(
    query: Array,
    key: Array,
    value: Array,
    ask: Array,
    rate: Array | float | None = None,
    times: Array | float | None = None,
) -> Array:
    """The answers `query[t] · S[t]` of the state, which is 0 before the first step.

    Query (…, rows, d), key and ask (…, keys, d) and value (…, keys, e) have the same axes before. The decay of a step
    is e to `rate`, times `times`; each a number, or (…, positions or 1, 1).
    """
    rows, count, width = query.shape[-2], max(query.shape[-2], key.shape[-2]), value.shape[-1]
    if 0 in (rows, key.shape[-2], *value.shape):
        return np.zeros((*query.shape[:-1], width), value.dtype)
    query, key, value, ask = (_chunk_stretched(part, count, False) for part in (query, key, value, ask))
    decays = [] if rate is None else [(_chunk_stretched(_chunk_array(rate, value), count, False, True), True)]
    if times is not None:
        factors = _chunk_stretched(_chunk_array(times, value), count, False, True)
        size = np.abs(factors)
        least = -105.0 if value.dtype == np.float32 else -750.0
        steps = np.maximum(np.log(np.where(size > 0, size, 1)), least)
        decays.append((np.where(size > 0, steps, least).astype(value.dtype), True))
        if (factors < 0).any():
            signs = np.where(factors < 0, -1, 1).astype(value.dtype)
            turned = np.cumprod(signs, -2)
            query, key, ask = query * turned, key * turned, ask * turned * signs
    lead, length = query.shape[:-2], min(count, DELTA_CHUNK)
    level = _chunk_levels(decays, count, length)
    if level is not None:
        level = np.broadcast_to(level, (*lead, *level.shape[-3:])).reshape(-1, *level.shape[-3:])
    query, key, value, ask = (_cut_chunks(part, length) for part in (query, key, value, ask))
    out = _delta_chunks(query, key, value, ask, level).reshape(*lead, -1, width)
    return out[..., :rows, :]


def _delta_chunks(query: Array, key: Array, value: Array, ask: Array, level: Array | None) -> Array:
    """All chunks (lead, chunks, length, width), each from the state before it."""
    size = key.shape[-2]
    turned = key.swapaxes(-1, -2)
    scores = np.where(np.tri(size, dtype=bool), query @ turned, 0).astype(query.dtype)
    asked = np.where(np.tri(size, k=-1, dtype=bool), ask @ turned, 0).astype(query.dtype)
    ending = None
    if level is not None:
        before = np.concatenate((np.zeros_like(level[..., :1, :]), level[..., :-1, :]), -2)
        last = level[..., -1:, :]
        weights = np.exp(np.where(np.tri(size, dtype=bool), level - level.swapaxes(-1, -2), -np.inf))
        # What a step asks has decayed as far as to the step before.
        scores = scores * weights
        asked[..., 1:, :] *= weights[..., :-1, :]
        query, ask = query * np.exp(level), ask * np.exp(before)
        turned, ending = turned * np.exp(last - level).swapaxes(-1, -2), np.exp(last)
    solved = np.concatenate((value, ask), -1)
    for n in range(1, size):
        solved[..., n, :] += (asked[..., n, None, :n] @ solved[..., :n, :])[..., 0, :]
    written, answering = solved[..., : value.shape[-1]], solved[..., value.shape[-1] :]
    out = np.empty_like(value)
    state = np.zeros((len(key), key.shape[-1], value.shape[-1]), value.dtype)
    for n in range(key.shape[1]):
        write = written[:, n] + answering[:, n] @ state
        out[:, n] = query[:, n] @ state + scores[:, n] @ write
        state = (state if ending is None else state * ending[:, n]) + turned[:, n] @ write
    return out
