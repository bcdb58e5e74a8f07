"""The rows that a decoder keeps of positions, in pages: all its states share arrays of them, and each has some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..transform.memory import Memory, Paging
from . import tensors
from .growing import shares, wholes_like
from .pool import Pool, Rows, put_at
from .stores import SPARE, Captures, Store

_USUAL = "pages of 16 positions are usual"


def check_pages(size: int | None, most: int | None) -> None:
    """Refuse pages that hold nothing, and a pool of none."""
    for name, value in (("pages", size), ("pool", most)):
        if value is not None and type(value) is not int:
            raise _refusal(f"`{name}` is a whole number from 1 on, not {value!r:.40}", _USUAL)
    if size is not None and size < 1:
        raise _refusal(f"a page cannot hold {size} positions", _USUAL)
    if most is not None and (size is None or most < 1):
        message = "there are no pages of which a pool could have some" if size is None else f"a pool of {most} pages"
        raise _refusal(message, "`pages=16, pool=4096`: pages of 16 positions, 4096 of them")


class Pools:
    """The pools of a decoder: one for all states whose arrays are alike."""

    def __init__(self, memories: tuple[Memory, ...], paging: Paging, capacity: int | None, most: int | None) -> None:
        self.memories, self.paging, self.most = memories, paging, most
        # The pages that a table has a place for, where that never changes.
        self.width = None if capacity is None else -(-capacity // paging.size)
        self._known: dict[tuple[Any, ...], Pool] = {}

    @property
    def known(self) -> tuple[Pool, ...]:
        """The pools that there are."""
        return tuple(self._known.values())

    def begin(self, arrays: Sequence[Any], lengths: Sequence[int], reach: int | None) -> Rows:
        """The first rows of arrays in pages: of each sequence so many, or those that later ones may reach back to."""
        rows = [self.by_rows(memory, array) for memory, array in zip(self.memories, arrays, strict=True)]
        key = tuple((type(x), x.dtype, getattr(x, "device", None), tuple(x.shape[2:])) for x in rows)
        if key not in self._known:
            self._known[key] = Pool(self.paging.size, self.most, rows)
        counts = np.array(lengths, int)
        held = Rows.none(self._known[key], len(counts)).with_room(counts, still_read(counts, reach))
        return held.put(counts, rows)

    def room(self, rows: Rows) -> int:
        """The rows that the pages of a table have."""
        return int(self.paging.size * (rows.table.shape[1] if self.width is None else self.width))

    def table(self, rows: Rows) -> Any:
        """The pages of each sequence as a step takes them."""
        lacking = 0 if self.width is None else self.width - rows.table.shape[1]
        table = np.pad(rows.table, ((0, 0), (0, lacking)))
        return table if self.paging.sequences else table[0]

    def by_rows(self, memory: Memory, array: Any) -> Any:
        """An array with sequences first, then positions; one sequence where a position has one row."""
        own = self.paging.sequences.get(memory.tensor)
        if own is None:
            return _moved(array, (memory.axis,), (0,))[None]
        return _moved(array, (own, memory.axis), (0, 1))


def still_read(lengths: Any, window: int | None) -> Any:
    """The first row of each sequence of some length that later positions read, or that can be gone back to."""
    return lengths * 0 if window is None else np.maximum(lengths - window - SPARE, 0)


class Paged(Store):
    """The rows of one state. A step is given the pool with places for its new rows, and writes to these alone. Where a
    window bounds how far back all rows are read (`window`), pages behind it are let go of."""

    def __init__(self, pools: Pools, held: Rows, window: int | None, table: tuple[Any, Any] = (None, None)) -> None:
        super().__init__(pools.memories, window or 0)
        self._window = window
        self._pools, self._held, self._ready = pools, held, held
        self._table = table  # As it is known here, and as steps take it.
        self._places: tuple[Any, Any] = (None, None)  # The page and the slot of each new row.
        self.room = pools.room(held)

    @property
    def nbytes(self) -> int:
        return self._held.nbytes

    def goes_back_to(self, lengths: Sequence[int]) -> bool:
        if self._window is None:
            return True
        return bool((np.maximum(np.array(lengths, int) - self._window, 0) >= self._held.first).all())

    def with_room_for(self, length: Any, count: int) -> Paged:
        held = self._held.lengths
        self._ready = self._held.with_room(np.full(len(held), count), still_read(held, self._window))
        self.room = self._pools.room(self._ready)
        return self

    @property
    def captures(self) -> Captures | None:
        """The captured steps of as many sequences; None where a table can get longer."""
        return None if self._pools.width is None else self._held.pool.captures(len(self._held.lengths))

    @property
    def written(self) -> list[Any]:
        return self._ready.pool.arrays

    @property
    def tabled(self) -> Any:
        return self._ready.table

    def table(self) -> Any:
        return self._pools.table(self._ready)

    def rows(self, length: Any, count: int) -> dict[str, Any]:
        """The pools, the pages of each sequence in them, and the places of new rows, by the inputs of a step."""
        ready, paging = self._ready, self._pools.paging
        arrays = ready.pool.arrays
        positions = ready.lengths[:, None] + np.arange(count)
        places = np.stack((np.take_along_axis(ready.table, positions // paging.size, 1), positions % paging.size))
        if self._table[0] is not ready.table:
            self._table = ready.table, wholes_like(self._pools.table(ready), arrays)
        page, slot = wholes_like(places if paging.sequences else places[:, 0], arrays)
        return self._by_input(self._table[1], page, slot)

    def inputs(self, at: Any, count: int, table: Any) -> dict[str, Any]:
        """The same by a table and lengths on a GPU, which nobody looks at."""
        size, own = self._pools.paging.size, self._pools.paging.sequences
        positions = at[:, None] + tensors.load_torch().arange(count, device=at.device)
        page, slot = (table if own else table[None]).gather(1, positions // size), positions % size
        return self._by_input(table, *((page, slot) if own else (page[0], slot[0])))

    def _by_input(self, table: Any, page: Any, slot: Any) -> dict[str, Any]:
        self._places, paging = (page, slot), self._pools.paging
        found = {memory.past: array for memory, array in zip(self.memories, self.written, strict=True)}
        return {**found, paging.table: table, paging.page: page, paging.slot: slot}

    def take(self, length: Any, count: int, found: Iterable[Any]) -> None:
        """Have the pools that a step gave with new rows in them, or new rows that are kept in fewer bits."""
        pool = self._ready.pool
        for number, (memory, array) in enumerate(zip(self.memories, found, strict=True)):
            if memory.keep is not None:
                rows = self._pools.by_rows(memory, array)
                rows = rows if self._pools.paging.sequences else rows[0]
                pool.arrays[number] = put_at(pool.arrays[number], self._places, rows)
            elif not shares(array, pool.arrays[number]):
                pool.arrays[number] = array

    def after(self, count: int) -> Paged:
        """The rows with those that a step wrote."""
        ready, self._ready = self._ready, self._held
        return Paged(self._pools, ready.behind(count), self._window, self._table)

    def back_to(self, lengths: Sequence[int]) -> Paged:
        """The first rows of each sequence. Others keep those that they have."""
        return Paged(self._pools, self._held.shorter(lengths), self._window)

    def reordered(self, axes: Mapping[str, int], indices: Sequence[int]) -> Paged:
        """The rows of these sequences, in the pages that they are in."""
        own = self._pools.paging.sequences
        if not own or any(axes[memory.tensor] != own[memory.tensor] for memory in self.memories):
            message = "pages hold what is kept of these together: it cannot be put into another order"
            raise _refusal(message, "leave out `pages=`")
        return Paged(self._pools, self._held.reordered(list(indices)), self._window)


def _refusal(message: str, help: str) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])


# -------------------------------------------------------------------------------------- arrays


def _moved(array: Any, axes: tuple[int, ...], to: tuple[int, ...]) -> Any:
    if tensors.is_tensor(array):
        return array.movedim(axes, to)
    return array.transpose(_order(array.ndim, axes, to))


def _order(rank: int, axes: tuple[int, ...], to: tuple[int, ...]) -> list[int]:
    moved = [axis % rank for axis in axes]
    order = [axis for axis in range(rank) if axis not in moved]
    for place, axis in sorted(zip(to, moved, strict=True)):
        order.insert(place, axis)
    return order
