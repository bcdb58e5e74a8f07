"""Arrays of one width or another, for one library or the other, and how far two of them are apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tests.laws.guarded_grids import Array

# How far a number may be from what is right, by the largest that took part.
CLOSE = {"float64": 1e-10, "float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}


def narrowed(arrays: Mapping[str, Array], dtype: str) -> dict[str, Array]:
    return {name: array.astype(dtype) if array.dtype.kind == "f" else array for name, array in arrays.items()}


def as_tensors(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def as_numpy(found: Any) -> tuple[Array, str]:
    """Cells, and the name of their dtype."""
    if isinstance(found, torch.Tensor):
        found = found.detach()
        dtype = str(found.dtype).removeprefix("torch.")
        return (found.double() if dtype == "bfloat16" else found).numpy(), dtype
    cells = np.asarray(found)
    return cells, str(cells.dtype)


def closeness(given: Mapping[str, Any]) -> float:
    """Narrow numbers are rounded at every step, and the reference's only once."""
    names = {str(array.dtype).removeprefix("torch.").lstrip("<>=") for array in given.values()}
    return max(CLOSE.get(_WIDTHS.get(name, name), 0.0) for name in names)


_WIDTHS = {"f8": "float64", "f4": "float32", "f2": "float16"}


def distance(found: Array, expected: Array) -> float:
    """The largest difference; infinite where NaN and infinities are at other places."""
    one, other = np.asarray(found, float), np.asarray(expected, float)
    with np.errstate(all="ignore"):
        apart = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))
