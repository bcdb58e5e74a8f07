"""Results as text for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import nodes as ir
from ..ir.text import shown


def show_output(let: ir.Let, array: np.ndarray[Any, Any], precision: int = 4) -> str:
    """A definition with its coordinates, its shape and its numbers."""
    home = ", ".join(map(home_of, let.axes))
    sizes = " × ".join(map(str, array.shape))
    head = f"{let.name}[{home}]  {sizes}  {array.dtype}" if let.axes else f"{let.name}  {array.dtype}"
    body = np.array2string(array, precision=precision, suppress_small=True, threshold=400, max_line_width=100)
    return f"{head}\n{body}"


def home_of(axis: ir.Axis) -> str:
    """A coordinate of a home, with its first point where that is not 0."""
    return str(axis.coordinate) if axis.origin is None else f"{axis.coordinate} from {shown(axis.origin)}"


def show_json(let: ir.Let, array: np.ndarray[Any, Any]) -> dict[str, object]:
    """A definition as plain lists; numbers that JSON has no word for become text."""
    return {
        "name": let.name,
        "coordinates": [str(axis.coordinate) for axis in let.axes],
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "values": _plain(array.tolist()),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
