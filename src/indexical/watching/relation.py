"""The relation that a head computes, as a program on its captured queries, keys and values."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ..api import Program, compile_source
from ..records import dataclass
from ..source import Source

Array = np.ndarray[Any, Any]

_HEAD = """\
space position(i, j), feature(d, e);

input Q[i, d], K[j, d], V[j, e]{more};

let scores[i, j]  = {scores};
let weights[i, j] = softmax[j](scores[i, j]){guard};
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """The differences between heads: who may hear whom, what is added to scores, and their scale."""

    mask: str  # "all", "causal", "given" (Booleans), "added" (numbers)
    scale: float
    features: int

    @property
    def program(self) -> Program:
        return _program(self)


@cache
def _program(kind: Kind) -> Program:
    plain = math.isclose(kind.scale, 1 / math.sqrt(kind.features), rel_tol=1e-6)
    sum = "sum[d](Q[i, d] * K[j, d])" + (" / sqrt(size(d))" if plain else f" * {kind.scale!r}")
    more = {"given": ", allowed[i, j]: bool", "added": ", bias[i, j], allowed[i, j]: bool"}.get(kind.mask, "")
    guard = {"all": "", "causal": " where j <= i"}.get(kind.mask, " where allowed[i, j]")
    scores = f"{sum} + bias[i, j]" if kind.mask == "added" else sum
    return compile_source(Source("head.ix", _HEAD.format(more=more, scores=scores, guard=guard)))


@dataclass(frozen=True, slots=True, eq=False)
class HeadInputs:
    """The arrays that a head's program takes."""

    kind: Kind
    arrays: dict[str, Any]


def head_inputs(
    queries: Array, keys: Array, values: Array, mask: Array | None, causal: bool, scale: float
) -> HeadInputs:
    """The program and the inputs of one head; a mask that is causal is written as a guard."""
    heard, bias = _read_mask(mask, causal, (len(queries), len(keys)))
    arrays = {"Q": queries, "K": keys, "V": values}
    lower = np.tril(np.ones((len(queries), len(keys)), bool))
    if bias is not None:
        word = "added"
        arrays |= {"bias": bias, "allowed": heard}
    elif heard.all():
        word = "all"
    elif len(queries) == len(keys) and (heard == lower).all():
        word = "causal"
    else:
        word = "given"
        arrays["allowed"] = heard
    return HeadInputs(Kind(word, scale, queries.shape[-1]), arrays)


def _read_mask(mask: Array | None, causal: bool, shape: tuple[int, int]) -> tuple[Array, Array | None]:
    """The pairs of query and key that a mask allows, and what it adds to scores, or None."""
    heard = np.tril(np.ones(shape, bool)) if causal else np.ones(shape, bool)
    if mask is None:
        return heard, None
    if mask.dtype == bool:
        return heard & mask, None
    # Numbers so far down are what libraries write for "may not be heard".
    heard = heard & (mask > -1e30)
    bias = np.where(heard, mask, 0)
    return heard, bias if bias.any() else None


def heard_by(inputs: HeadInputs, rows: Array) -> Array:
    """Which keys some rows of a head may hear."""
    count = len(inputs.arrays["K"])
    if "allowed" in inputs.arrays:
        return np.asarray(inputs.arrays["allowed"][rows])
    return np.arange(count) <= rows[:, None] if inputs.kind.mask == "causal" else np.ones((len(rows), count), bool)


def some_rows(inputs: HeadInputs, rows: Array) -> HeadInputs:
    """The program and the inputs of some queries of a head."""
    arrays = {**inputs.arrays, "Q": inputs.arrays["Q"][rows]}
    if inputs.kind.mask == "added":
        arrays["bias"] = inputs.arrays["bias"][rows]
    if inputs.kind.mask != "all":
        arrays["allowed"] = heard_by(inputs, rows)
    mask = "given" if inputs.kind.mask == "causal" else inputs.kind.mask
    return HeadInputs(Kind(mask, inputs.kind.scale, inputs.kind.features), arrays)


def weights_of(inputs: HeadInputs) -> tuple[Array, Array]:
    """The weights of a head and what it gives, by its program."""
    weights, out = inputs.kind.program(outputs=("weights", "out"), **inputs.arrays)
    return np.asarray(weights), np.asarray(out)
