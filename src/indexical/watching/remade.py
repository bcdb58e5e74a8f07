"""Queries and keys of a head, kept so small that a page has those of all heads and makes weights again from them.

The scores are `q @ k.T`, and so are those of any `q @ a` and `k @ inverse(a).T`: the axes are chosen so that the first
ones say most, and all are rounded to the same step. What says little then costs next to nothing. A vector that is the
same for all keys shifts a row as a whole, which its weights do not see: it is taken out.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records import dataclass
from .relation import Array, HeadInputs, heard_by

# How far scores may be off, by standard deviation: weights are off by about this part of themselves.
FINEST, COARSEST = 2**-13, 2**-3
# Steps are counted in two bytes at most, with a sign.
MOST_STEPS = (1 << 15) - 1
# On so many rows of a head it is measured how far its weights are off.
CHECKED = 64
# A weight is compared where it is at least this part of the largest of its row.
LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Queries and keys along axes that say most first, scaled so that their products are the scores."""

    queries: Array
    keys: Array
    inputs: HeadInputs


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Queries and keys of a head as bytes; `errors` say how far weights made from them are off, as part of themselves,
    in the rows that were checked: by the root of the mean square, and at most."""

    rank: int
    steps: tuple[float, float]
    errors: tuple[float, float]
    data: bytes


def remade(factors: Sequence[Factors | None], room: int) -> tuple[dict[str, Any] | None, dict[str, str], int]:
    """Queries and keys for the page in at most `room` bytes, what is attached, and how many bytes they take. Of heads
    whose scores have something added, and of those for which there is no room, there are none."""
    masks = _masks(factors)
    room -= sum(map(len, masks.values()))
    packed = _fitting(factors, room)
    if not any(packed):
        return None, {}, 0
    named = {mask: f"mask-{number}" for number, mask in enumerate(masks)}
    entries = [_entry(found, factor, named) for found, factor in zip(packed, factors, strict=True)]
    attached = {f"again-{number}": found.data for number, found in enumerate(packed) if found is not None}
    attached |= {named[mask]: data for mask, data in masks.items()}
    texts = {name: base64.b64encode(data).decode("ascii") for name, data in attached.items()}
    return {"heads": entries, "checked": CHECKED}, texts, sum(map(len, attached.values()))


def _fitting(factors: Sequence[Factors | None], room: int) -> list[Packed | None]:
    """The heads as finely as there is room for all of them; at the coarsest, the first ones that fit."""
    numbers = sum(factor.queries.size + factor.keys.size for factor in factors if factor is not None)
    fineness = FINEST
    while True:
        packed = [None if factor is None else pack(factor, fineness) for factor in factors]
        used = sum(len(found.data) for found in packed if found is not None)
        if used <= room:
            return packed
        if fineness >= COARSEST:
            break
        # Steps that are twice as large save a bit of every number.
        fineness = min(COARSEST, fineness * 2 ** max(1, round(8 * (used - room) / numbers)))
    ends = np.cumsum([0 if found is None else len(found.data) for found in packed])
    return [found if end <= room else None for found, end in zip(packed, ends.tolist(), strict=True)]


def factors_of(inputs: HeadInputs) -> Factors | None:
    """The factors of a head's scores; None where the scores have something added, or there is nothing."""
    queries, keys = (inputs.arrays[name].astype(np.float64) for name in ("Q", "K"))
    if inputs.kind.mask == "added" or not queries.size or not keys.size or not np.isfinite(queries.sum() + keys.sum()):
        return None
    keys = keys - keys.mean(0)
    outer, q = np.linalg.qr(queries * inputs.kind.scale)
    across, k = np.linalg.qr(keys)
    left, sizes, right = np.linalg.svd(q @ k.T, full_matrices=False)
    scale = np.sqrt(sizes)
    # Both sides get the same length by row, so that both are rounded alike.
    even = (len(queries) / len(keys)) ** 0.25
    found = [outer @ (left * scale) * even, across @ (right.T * scale) / even]
    return Factors(found[0].astype(np.float32), found[1].astype(np.float32), inputs)


def pack(factors: Factors, fineness: float) -> Packed:
    """The factors in whole steps, axis by axis, so that scores are off by about `fineness`."""
    lengths = [max(float(np.sqrt((part**2).sum(-1).mean())), 1e-30) for part in (factors.queries, factors.keys)]
    # The error of a score: a step's twelfth of a square, on each axis, times what it is multiplied with.
    steps = (fineness * np.sqrt(6) / lengths[1], fineness * np.sqrt(6) / lengths[0])
    parts = (factors.queries, factors.keys)
    if max(np.abs(part).max() / step for part, step in zip(parts, steps, strict=True)) > MOST_STEPS:
        return pack(factors, 2 * fineness)
    codes = [np.rint(part / step).astype(np.int64) for part, step in zip(parts, steps, strict=True)]
    used = np.flatnonzero((codes[0] != 0).any(0) & (codes[1] != 0).any(0))
    codes = [part[:, used] for part in codes]
    flat = np.concatenate([part.T.reshape(-1) for part in codes])
    whole = np.where(flat < 0, -2 * flat - 1, 2 * flat)
    planes = [whole & 255] + ([whole >> 8] if whole.max(initial=0) > 255 else [])
    data = zlib.compress(b"".join(plane.astype(np.uint8).tobytes() for plane in planes), 6)
    queries, keys = (part * step for part, step in zip(codes, steps, strict=True))
    return Packed(len(used), steps, _errors(factors.inputs, queries, keys), data)


def _errors(inputs: HeadInputs, queries: Array, keys: Array) -> tuple[float, float]:
    """How far weights are off, as part of themselves, on some rows: on the whole, and at most."""
    count = len(queries)
    rows = np.unique(np.linspace(0, count - 1, min(count, CHECKED)).astype(int))
    heard = heard_by(inputs, rows)
    true = _shared(inputs.arrays["Q"][rows].astype(np.float64) @ inputs.arrays["K"].T * inputs.kind.scale, heard)
    found = _shared(queries[rows] @ keys.T, heard)
    seen = true > LEAST * true.max(-1, keepdims=True, initial=0)
    off = found[seen] / true[seen] - 1
    return (float(np.sqrt((off**2).mean())), float(np.abs(off).max())) if off.size else (0.0, 0.0)


def _shared(scores: Array, heard: Array) -> Array:
    scores = np.where(heard, scores, -np.inf)
    most = scores.max(-1, keepdims=True, initial=-1e300)
    raised = np.exp(scores - most)
    return np.asarray(raised / np.maximum(raised.sum(-1, keepdims=True), 1e-300))


def _masks(factors: Sequence[Factors | None]) -> dict[bytes, bytes]:
    """Each mask that is given once, packed, by its bits."""
    found: dict[bytes, bytes] = {}
    for factor in factors:
        if factor is not None and factor.inputs.kind.mask == "given":
            bits = np.packbits(factor.inputs.arrays["allowed"], axis=-1, bitorder="little").tobytes()
            if bits not in found:
                found[bits] = zlib.compress(bits, 6)
    return found


def _entry(found: Packed | None, factors: Factors | None, named: dict[bytes, str]) -> dict[str, Any] | None:
    if found is None or factors is None:
        return None
    mask = factors.inputs.kind.mask
    if mask == "given":
        mask = named[np.packbits(factors.inputs.arrays["allowed"], axis=-1, bitorder="little").tobytes()]
    return {
        "rank": found.rank,
        "steps": list(found.steps),
        "mask": mask,
        "errors": [float(f"{error:.2g}") for error in found.errors],
    }
