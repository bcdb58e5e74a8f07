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
from ..run.stores import SPARE, most_rows
from ..transform.memory import Memory

# The bytes of a number that is kept in fewer bits.
_BYTES = {"bf16": 2, "i8": 1}


def words(decoder: Any) -> Iterable[str]:
    """Lines that say what is kept of each position, and what is computed again."""
    split = decoder._split
    width, dtype = _width(decoder)
    yield f"{', '.join(decoder._wanted)}: one position of `{decoder.along}` after another"
    yield "kept of each position:" if decoder._memories else "nothing is kept"
    growing: dict[str, float] = {}
    bounded: dict[str, float] = {}
    for memory in decoder._memories:
        extents = _beside(decoder, memory)
        into, rows = growing, ""
        if memory.window or memory.rows is not None:
            into = bounded
            far = " or ".join(map(shown, decoder._stepping.reach)) if memory.window else f"{memory.rows}"
            rows = f", of the last {counted(int(far), 'position') if far.isdigit() else f'`{far}` positions'} alone"
            rows = ", one total of all" if memory.tensor in split.ends else rows
        yield f"  {memory.tensor}: {_product(*_count(decoder, extents))} numbers{rows}"
        parts = [(extents, _BYTES.get(memory.keep or "", width))]
        parts += [(extents[:-1], width)] if memory.scale else []
        for part, bytes_ in parts:
            number, letters = _count(decoder, part)
            held = 1 if into is growing else _most_rows(decoder, memory)
            into[letters] = into.get(letters, 0) + number * bytes_ * held
    dtype = " and ".join(dict.fromkeys([*(m.keep for m in decoder._memories if m.keep), dtype]))
    if growing:
        yield f"in all {_sum(growing)} bytes a position, in {dtype}"
    if decoder._pools is not None:
        yield from _pages(decoder)
    if bounded and all(map(math.isfinite, bounded.values())):
        yield f"{'and ' if growing else ''}at most {_sum(bounded)} bytes however many positions there are, in {dtype}"
    if decoder.capacity is not None:
        where = "each sequence at its own" if decoder._sequences else "all sequences at the same"
        yield f"room for {counted(decoder.capacity, 'position')}, {where}: shapes never change"
        if decoder.uncaptured:
            yield f"no CUDA graph: {decoder.uncaptured}"
        elif decoder.graph:
            yield "on a GPU a step is captured in a CUDA graph, and replayed"
    elif decoder._pools is not None:
        yield "no CUDA graph on a GPU: without a `capacity` the table of pages grows"
    if split.again:
        yield f"computed again in every step: {', '.join(split.again)}"
    local = [let.name for let in split.program.lets if let.name in split.axis and not let.hidden]
    yield f"computed for new positions alone: {', '.join(name for name in local if name not in split.kept)}"


def _pages(decoder: Any) -> Iterable[str]:
    """Lines that say in which pages rows lie, and how many of them there are."""
    pools = decoder._pools
    size = pools.paging.size
    own = "in pages of a sequence's own" if pools.paging.sequences else "in pages"
    room = "as many as are needed" if pools.most is None else f"{pools.most:,} of them and no more"
    yield f"{own}, of {counted(size, 'position')} each: {room}"
    if decoder._stepping.reach:
        far = " or ".join(map(shown, decoder._stepping.reach))
        yield f"  one is let go of when `{far}` positions after it are there, and {SPARE} more"
    for pool in pools.known:
        yield f"  {counted(pool.pages, 'page')} of {pool.page_bytes:,} bytes, {pool.held:,} of them held"


def _beside(decoder: Any, memory: Memory) -> list[ir.Expr]:
    """The extents of a row."""
    rows_at, tensor = decoder._split.axis[memory.tensor], decoder._split.program.tensors[memory.tensor]
    return [axis.extent for number, axis in enumerate(tensor.axes) if number != rows_at]


def _count(decoder: Any, extents: list[ir.Expr]) -> tuple[int, str]:
    """The product of extents: of those that are known, and of all others by name."""
    sizes = _sizes(decoder)
    known = [sizes[extent] for extent in extents if extent in sizes]
    return math.prod(known), " * ".join(shown(extent) for extent in extents if extent not in sizes)


def _sum(parts: dict[str, float]) -> str:
    return " + ".join(_product(int(number), letters) for letters, number in parts.items())


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
    weights = decoder._layouts.of(decoder._weights)
    found: dict[ir.Expr, int] = {}
    for tensor in decoder._split.program.inputs:
        if tensor.name in weights and len(tensor.axes) == np.ndim(weights[tensor.name]):
            pairs = zip(tensor.axes, np.shape(weights[tensor.name]), strict=True)
            found |= {axis.extent: size for axis, size in pairs if axis.coordinate != decoder._split.row}
    return found


def _width(decoder: Any) -> tuple[int, str]:
    """The bytes of a number, and its dtype: those of the weights, or 4."""
    for value in decoder._weights.values():
        name = str(getattr(value, "dtype", "")).removeprefix("torch.")
        if "float" in name and name in DTYPES_BY_NAME:
            return WIDTH[DTYPES_BY_NAME[name]], DTYPES_BY_NAME[name]
    return 4, "f32"
