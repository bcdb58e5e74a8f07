"""How large a page would be: one that is too large is refused before it is made, with what to leave out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from .document import MOST_LISTED, Shown

# A larger file is not sent around, and a browser takes long to open it.
MOST_BYTES = 25 * 2**20

# Of a number that is written out, with its exact form; of one that travels as bytes, four of them in base 64.
_LISTED, _PACKED = 24, 16 / 3


def check_extent(shown: list[Shown]) -> None:
    """Refuse programs whose tensors would make a page that is too large."""
    sizes: dict[str, tuple[float, np.ndarray[Any, Any]]] = {}
    for found in shown:
        for name, array in found.arrays.items():
            each = _LISTED if array.size <= MOST_LISTED else _PACKED
            sizes[name] = (sizes.get(name, (0.0,))[0] + array.size * each, array)
    total = sum(size for size, _ in sizes.values())
    if total <= MOST_BYTES:
        return
    size, name, array = max(((size, name, array) for name, (size, array) in sizes.items()), key=lambda entry: entry[0])
    shape = " × ".join(f"{length:,}" for length in array.shape)
    note = f"`{name}` alone, {shape} numbers, has {_mebibytes(size)}"
    help = "leave out positions, heads or batches; weights alone have a smaller page: `ix show --weights weights.npy`"
    raise CallError([Diagnostic("IX515", _too_large(total), notes=(note,), help=help)])


def check_page(html: str, help: str = "leave out what need not be shown") -> None:
    """Refuse a page that turned out to be too large."""
    if 4 * len(html) > MOST_BYTES and (size := len(html.encode())) > MOST_BYTES:
        raise CallError([Diagnostic("IX515", _too_large(size), help=help)])


def _too_large(size: float) -> str:
    return f"the page would have {_mebibytes(size)}, and a page has at most {_mebibytes(MOST_BYTES)}"


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
