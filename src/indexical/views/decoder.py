"""A decoder in words: what it keeps of each position, in how many bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..checker.names import counted
from ..ir import nodes as ir
from ..ir import whole
from ..ir.text import shown
from ..ir.types import DTYPES_BY_NAME
from ..plan.steps import WIDTH
from ..run.stores import most_rows
from ..transform.memory import Memory


def words(decoder: Any) -> Iterable[str]:
    """Lines that say what is kept of each position, and what is computed again."""
    split, tensors_ = decoder._split, decoder._split.program.tensors
    sizes = _sizes(decoder)
    width, dtype = _width(decoder)
    yield f"{', '.join(decoder._wanted)}: one position of `{decoder.along}` after another"
    totals: dict[str, int] = {}
    fixed: dict[str, float] = {}
    lines = []
    for memory in decoder._memories:
        rows_at = split.axis[memory.tensor]
        extents = [axis.extent for n, axis in enumerate(tensors_[memory.tensor].axes) if n != rows_at]
        known = [sizes[extent] for extent in extents if extent in sizes]
        letters = " * ".join(shown(extent) for extent in extents if extent not in sizes)
        own = math.prod(known)
        if memory.window or memory.rows is not None:
            far = " or ".join(map(shown, decoder._stepping.reach)) if memory.window else f"{memory.rows}"
            rows = f", of the last {counted(int(far), 'position') if far.isdigit() else f'`{far}` positions'} alone"
            rows = ", one total of all" if memory.tensor in split.ends else rows
            fixed[letters] = fixed.get(letters, 0) + own * _most_rows(decoder, memory)
        else:
            rows, totals[letters] = "", totals.get(letters, 0) + own
        lines.append(f"  {memory.tensor}: {_product(own, letters)} numbers{rows}")
    yield "kept of each position:" if lines else "nothing is kept"
    yield from lines
    if totals:
        bytes_ = " + ".join(_product(number * width, letters) for letters, number in totals.items())
        yield f"in all {bytes_} bytes a position, in {dtype}"
    if fixed and all(map(math.isfinite, fixed.values())):
        bytes_ = " + ".join(_product(int(number) * width, letters) for letters, number in fixed.items())
        yield f"{'and ' if totals else ''}at most {bytes_} bytes however many positions there are, in {dtype}"
    if split.again:
        yield f"computed again in every step: {', '.join(split.again)}"
    local = [let.name for let in split.program.lets if let.name in split.axis and not let.hidden]
    yield f"computed for new positions alone: {', '.join(name for name in local if name not in split.kept)}"


def _product(number: int, letters: str) -> str:
    return letters if letters and number == 1 else f"{number:,} * {letters}" if letters else f"{number:,}"


def _most_rows(decoder: Any, memory: Memory) -> float:
    """The rows that are ever held of what is not kept of all positions, where steps are of one."""
    if memory.rows is not None:
        return memory.rows
    try:
        return most_rows(max(whole.value(far, lambda leaf: _told(decoder, leaf)) for far in decoder._stepping.reach))
    except whole.Unknown:
        return math.inf


def _told(decoder: Any, leaf: ir.Size | ir.Read) -> int:
    if isinstance(leaf, ir.Read) and leaf.tensor in decoder._weights:
        return int(decoder._weights[leaf.tensor])
    if isinstance(leaf, ir.Size) and leaf in _sizes(decoder):
        return _sizes(decoder)[leaf]
    raise whole.Unknown


def _sizes(decoder: Any) -> dict[ir.Expr, int]:
    """The sizes that the weights tell."""
    found: dict[ir.Expr, int] = {}
    for tensor in decoder._split.program.inputs:
        if tensor.name in decoder._weights and len(tensor.axes) == np.ndim(decoder._weights[tensor.name]):
            pairs = zip(tensor.axes, np.shape(decoder._weights[tensor.name]), strict=True)
            found |= {axis.extent: size for axis, size in pairs if axis.coordinate != decoder._split.row}
    return found


def _width(decoder: Any) -> tuple[int, str]:
    """The bytes of a number, and its dtype: those of the weights, or 4."""
    for value in decoder._weights.values():
        name = str(getattr(value, "dtype", "")).removeprefix("torch.")
        if "float" in name and name in DTYPES_BY_NAME:
            return WIDTH[DTYPES_BY_NAME[name]], DTYPES_BY_NAME[name]
    return 4, "f32"
