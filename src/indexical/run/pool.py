"""Rows of many sequences in pages that states share: who has which page, and copies before a page is written to that
another state has."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from . import jax_arrays, tensors
from .growing import filled, filling
from .stores import Captures

# The pages that a pool has at least, when it is first made.
_LEAST_PAGES = 16
# Steps of so many numbers of sequences are kept as graphs, each with memory of its own.
_MOST_CAPTURES = 16


class Pool:
    """Arrays (page, place, …) that hold rows, `size` of them in a page. There are as many pages as are needed: when all
    are held, the arrays double. With `most`, there are that many from the beginning, and no more.

    Page 0 is nobody's: tables name it behind the last page of a sequence. What is not a row of somebody is computed
    with, and left out: so that it is finite, ones stand there."""

    def __init__(self, size: int, most: int | None, rows: Sequence[Any]) -> None:
        """`rows` are arrays (sequence, position, …) like those that will be held."""
        self.size, self.most = size, most
        self.arrays = [_pages_like(array, 1 + (most or 0), size) for array in rows]
        self._counts = np.zeros(1, int)  # The holdings that have a page, each as often as it does.
        self._filled = np.zeros(1, int)  # The rows of a page that were written, from the first one on.
        self._free: list[int] = []
        self._captures: dict[int, Captures] = {}  # The captured steps of so many sequences.
        # What is let go of is counted off later: Python may let go of it at any time.
        self._gone: list[Any] = []
        self._enlarge(most or 0)

    @property
    def page_bytes(self) -> int:
        """The bytes of one page, in all arrays."""
        return sum(int(array.nbytes) // array.shape[0] for array in self.arrays)

    @property
    def pages(self) -> int:
        """The pages that there are for rows."""
        return len(self._counts) - 1

    @property
    def held(self) -> int:
        """The pages that some state has."""
        self._collect()
        return self.pages - len(self._free)

    def captures(self, sequences: int) -> Captures:
        """The captured steps of so many sequences, whichever they are. Of numbers that were not asked for of late, they
        are forgotten."""
        found = self._captures.pop(sequences, None) or Captures()
        if len(self._captures) == _MOST_CAPTURES:
            del self._captures[next(iter(self._captures))]
        self._captures[sequences] = found
        return found

    def _collect(self) -> None:
        """Count off the pages of holdings that are no more."""
        while self._gone:
            pages = self._gone.pop()
            np.subtract.at(self._counts, pages, 1)
            unheld = np.unique(pages[self._counts[pages] == 0])
            self._free.extend(unheld[::-1].tolist())

    def _enlarge(self, pages: int) -> None:
        more = pages - self.pages
        self._free[:0] = range(pages, self.pages, -1)
        self._counts = np.concatenate((self._counts, np.zeros(more, int)))
        self._filled = np.concatenate((self._filled, np.zeros(more, int)))

    def _take(self, count: int) -> list[int]:
        """Pages that nobody has, with no rows."""
        self._collect()
        if count > len(self._free):
            if self.most is not None:
                message = f"{len(self._free)} of {self.most} pages are free, and {count} are needed"
                help = "let go of states that are not needed any more, or give a larger `pool=`"
                raise CallError([Diagnostic("IX515", message, help=help)])
            pages = max(2 * self.pages, self.pages + count - len(self._free), _LEAST_PAGES)
            self.arrays = [_enlarged(array, 1 + pages) for array in self.arrays]
            for captures in self._captures.values():
                captures.graphs.clear()  # They write to the arrays before.
            self._enlarge(pages)
        found = [self._free.pop() for _ in range(count)]
        used = [page for page in found if self._filled[page]]
        self._clear(used, np.zeros(len(used), int))
        return found

    def _copy(self, old: list[int], new: list[int]) -> None:
        if old:
            self.arrays = [put_at(array, (new,), _at(array, (old,))) for array in self.arrays]

    def _clear(self, pages: Sequence[int], first: Any) -> None:
        """Forget the rows of pages, of each from one on."""
        if not len(pages):
            return
        number, slot = np.nonzero(np.arange(self.size) >= first[:, None])
        places = np.array(pages, int)[number], slot
        self.arrays = [put_at(array, places, filling(array)) for array in self.arrays]
        self._filled[pages] = first

    def put(self, number: int, table: Any, first: Any, counts: Any, rows: Any) -> None:
        """Write the first rows of each sequence (sequence, position, …), so many, into its pages from `first` on, in
        one of the arrays. One that lies in no page is left out."""
        sequence, row = np.nonzero(np.arange(max(counts, default=0)) < counts[:, None])
        position = first[sequence] + row
        page = table[sequence, position // self.size]
        held = page > 0
        places, rows = (page[held], position[held] % self.size), _at(rows, (sequence[held], row[held]))
        self.arrays[number] = put_at(self.arrays[number], places, rows)


class _Holding:
    """The pages of some sequences, counted: row by row as many as are `used`, or 0 for one that was let go of since,
    and 0 behind them."""

    def __init__(self, pool: Pool, table: Any, used: Any) -> None:
        self.table, self.used = table, used
        self.views: weakref.WeakSet[Rows] = weakref.WeakSet()
        pages = table[(np.arange(table.shape[1]) < used[:, None]) & (table > 0)]
        np.add.at(pool._counts, pages, 1)
        self.pages = len(np.unique(pages))
        weakref.finalize(self, pool._gone.append, pages).atexit = False


class Rows:
    """The rows of some sequences: the pages that each has, and how many rows lie in them. A value: what gives up rows,
    takes other sequences or gets room for more makes another one, and this stays what it is."""

    def __init__(self, pool: Pool, held: _Holding, lengths: Any) -> None:
        self.pool, self._held, self.lengths = pool, held, lengths
        held.views.add(self)

    @staticmethod
    def none(pool: Pool, sequences: int) -> Rows:
        """The rows of so many sequences that have none yet."""
        lengths = np.zeros(sequences, int)
        return Rows(pool, _Holding(pool, np.zeros((sequences, 0), int), lengths), lengths)

    @property
    def table(self) -> Any:
        """The pages of each sequence, in order; 0 behind the last one, and for those that it has let go of."""
        return self._held.table

    @property
    def first(self) -> Any:
        """The first row of each sequence that lies in a page."""
        used = np.arange(self.table.shape[1]) < self._held.used[:, None]
        return self.pool.size * np.cumprod(used & (self.table == 0), 1).sum(1)

    @property
    def nbytes(self) -> int:
        """The bytes of the pages that it has."""
        return self._held.pages * self.pool.page_bytes

    def with_room(self, counts: Any, first: Any = 0) -> Rows:
        """The same rows, and places for so many more behind those of every sequence that nobody else has. The last page
        of a sequence is copied where others have rows in those places. Where pages are added, those are let go of that
        have only rows before the `first` that is still read."""
        pool, size = self.pool, self.pool.size
        pool._collect()
        used = -(-(self.lengths + counts) // size)
        gone = first // size + 0 * used
        begin = np.maximum(self._held.used, gone)
        missing = np.maximum(used - begin, 0)
        copied = self._shared(counts)
        new = pool._take(len(copied) + int(missing.sum()))
        result = self
        if new:
            table = np.zeros((len(used), max(used)), int)
            table[:, : self.table.shape[1]] = self.table
            last = self.lengths[copied] // size
            old, table[copied, last] = table[copied, last].tolist(), new[: len(copied)]
            places = np.arange(table.shape[1])
            table[(places >= begin[:, None]) & (places < used[:, None])] = new[len(copied) :]
            table[places < gone[:, None]] = 0
            pool._copy(old, new[: len(copied)])
            pool._clear(new[: len(copied)], self.lengths[copied] % size)
            result = Rows(pool, _Holding(pool, table, used), self.lengths)
        result._claim(counts)
        return result

    def _shared(self, counts: Any) -> list[int]:
        """The sequences whose last page has to be copied before it is written to behind its rows. Rows there that
        nobody has any more are forgotten."""
        slots = self.lengths % self.pool.size
        alone = len(self._held.views) == 1
        copied: list[int] = []
        given_up: dict[int, int] = {}
        claimed: set[int] = set()
        for row in np.flatnonzero(slots * counts).tolist():
            page = int(self.table[row, self.lengths[row] // self.pool.size])
            if page in claimed:
                copied.append(row)
            elif self.pool._filled[page] > slots[row]:
                if not alone or self.pool._counts[page] > 1:
                    copied.append(row)
                    continue
                given_up[page] = slots[row]
            claimed.add(page)
        self.pool._clear(list(given_up), np.array([*given_up.values()], int))
        return copied

    def _claim(self, counts: Any) -> None:
        """Mark the places behind the rows as written."""
        size = self.pool.size
        first = self.lengths // size * size
        ends = self.lengths + counts - first
        for place in range(int(max(-(-ends // size), default=0))):
            rows = np.flatnonzero((ends > size * place) & (counts > 0))
            pages = self.table[rows, first[rows] // size + place]
            self.pool._filled[pages] = np.minimum(size, ends[rows] - size * place) * (pages > 0)

    def behind(self, counts: Any) -> Rows:
        """The rows of each sequence, and so many more that were written behind them."""
        return Rows(self.pool, self._held, self.lengths + counts)

    def put(self, counts: Any, rows: Sequence[Any]) -> Rows:
        """These rows with the first of new ones (sequence, position, …) behind them, so many of each sequence, for
        which there is room."""
        for number, new in enumerate(rows):
            self.pool.put(number, self.table, self.lengths, counts, new)
        return self.behind(counts)

    def shorter(self, lengths: Sequence[int]) -> Rows:
        """The first rows of each sequence, so many."""
        new = np.array(lengths, int)
        used = -(-new // self.pool.size)
        if (used == self._held.used).all():
            return Rows(self.pool, self._held, new)
        return Rows(self.pool, _Holding(self.pool, self.table[:, : max(used, default=0)], used), new)

    def reordered(self, indices: Sequence[int]) -> Rows:
        """The rows of these sequences. Nothing is copied: they share pages."""
        held = _Holding(self.pool, self.table[indices], self._held.used[indices])
        return Rows(self.pool, held, self.lengths[indices])


# -------------------------------------------------------------------------------------- arrays


def _pages_like(array: Any, pages: int, size: int) -> Any:
    return filled(array, (pages, size, *array.shape[2:]), filling(array))


def _enlarged(array: Any, pages: int) -> Any:
    """An array with more pages behind its own."""
    new = _pages_like(array, pages, array.shape[1])
    if jax_arrays.is_jax(array):
        return new.at[: array.shape[0]].set(array)
    new[: array.shape[0]] = array
    return new


def _places(array: Any, places: tuple[Any, ...]) -> tuple[Any, ...]:
    if not tensors.is_tensor(array):
        return tuple(np.asarray(place, int) for place in places)
    return tuple(tensors.load_torch().as_tensor(place, device=array.device) for place in places)


def _at(array: Any, places: tuple[Any, ...]) -> Any:
    return array[_places(array, places)]


def put_at(array: Any, places: tuple[Any, ...], rows: Any) -> Any:
    """The array with rows at some places of its first axes: the same one, where it can be written to."""
    at = _places(array, places)
    if not isinstance(rows, int) and rows.dtype != array.dtype:  # What was given in 8 bits is kept in 32.
        rows = rows.to(array.dtype) if tensors.is_tensor(rows) else rows.astype(array.dtype)
    if jax_arrays.is_jax(array):
        return array.at[at].set(rows)
    array[at] = rows
    return array
