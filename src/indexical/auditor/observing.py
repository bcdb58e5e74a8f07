"""Weights, recovered through values that are zero everywhere but at one key."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .access import Access
from .settings import Setting


@dataclass(frozen=True)
class Draw:
    """Queries and keys, the setting, and the weights that were seen: over (lane, query, lane of the values, key)."""

    q: Any
    k: Any
    setting: Setting
    full: Any
    astray: float  # The largest part of an output that is in another feature than the value's.
    place: tuple[int, ...]  # Where that is: lane and key of the value, lane and query of the output.


def draw_inputs(access: Access, rng: Any, size: float) -> tuple[Any, Any, Any]:
    """Queries, keys and values. `size` is about the largest score, were the scale 1."""
    width = (size / np.sqrt(access.D)) ** 0.5
    q, k = rng.normal(size=access.shape("q")) * width, rng.normal(size=access.shape("k")) * width
    return q, k, rng.normal(size=access.shape("v"))


def observe(
    access: Access, q: Any, k: Any, setting: Setting, each: bool = True, places: list[tuple[int, int]] | None = None
) -> Draw:
    """The weights for these queries and keys. With `each`, one value at a time (those at `places`, by lane and key);
    otherwise all lanes at once."""
    lanes, keys, features = access.shape("v")
    base = access.forward(q, k, np.zeros(access.shape("v")), setting.arrays)
    outs = access.count["out"]
    with np.errstate(invalid="ignore"):
        floor = 64 * access.rounding * float(np.nanmax(np.abs(base), initial=0.0))
    full = np.zeros((outs, access.I, lanes, keys))
    astray, place = 0.0, (0, 0, 0, 0)
    if not each:
        for first in range(0, keys, features):
            v = np.zeros(access.shape("v"))
            for feature in range(min(features, keys - first)):
                v[:, first + feature, feature] = 1.0
            out = access.forward(q, k, v, setting.arrays) - base
            for feature in range(min(features, keys - first)):
                full[np.arange(outs), :, access.maps["v"], first + feature] = out[:, :, feature]
        full[np.abs(full) <= floor] = 0.0
        return Draw(q, k, setting, full, astray, place)
    code = np.linspace(1.0, 2.0, features) if features > 1 else np.ones(1)
    for lane, key in places or itertools.product(range(lanes), range(keys)):
        v = np.zeros(access.shape("v"))
        v[lane, key] = code
        out = access.forward(q, k, v, setting.arrays) - base
        weights = out @ code / (code @ code)
        full[:, :, lane, key] = weights
        with np.errstate(invalid="ignore"):
            rest = np.nan_to_num(np.abs(out - weights[..., None] * code).max(2))
        if rest.max() > astray:
            astray = float(rest.max())
            where = np.unravel_index(rest.argmax(), rest.shape)
            place = (lane, key, int(where[0]), int(where[1]))
    full[np.abs(full) <= floor] = 0.0
    return Draw(q, k, setting, full, 0.0 if astray <= floor else astray, place)


def own(access: Access, full: Any, lanes: Any = None) -> Any:
    """The weights of each lane over the keys of its own values, or of those in other lanes."""
    return full[np.arange(access.count["out"]), :, access.maps["v"] if lanes is None else lanes, :]


def moved(before: Any, after: Any, tolerance: float) -> Any:
    """Which (lane, query) of an output moved."""
    with np.errstate(invalid="ignore"):
        change = np.abs(after - before)
        scale = max(1.0, float(np.nanmax(np.abs(before), initial=0.0)))
    strange = np.isnan(after) != np.isnan(before)
    return (np.nan_to_num(change, nan=0.0, posinf=np.inf).max(2) > tolerance * scale) | strange.any(2)
