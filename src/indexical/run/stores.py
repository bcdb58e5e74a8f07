"""The rows that a decoder keeps of positions: arrays that states share, each with room behind its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

from ..records import dataclass, field
from ..transform.memory import Memory
from .growing import rows_of, shares, taken, with_room, written

# The positions that a state with windows can go back at least.
SPARE = 64


def most_rows(reach: int) -> int:
    """The rows that an array with a window has room for at most, where steps are of one position."""
    return 2 * (reach + SPARE) + 1


def _nobody() -> None:
    return None


@dataclass(eq=False)
class Captures:
    """Steps that were captured in CUDA graphs, by the shapes of what is new, or how often one was made, or None where
    it cannot be; and the places where they read, if any was."""

    graphs: dict[Any, Any] = field(default_factory=dict)
    places: Any = None


class Store:
    """The arrays that grow. `tip` is the state that may be written behind; states have had `most` positions. Those
    with a window begin at position `first`, and reach so many positions back: when they are full, rows that nothing
    reads any more are left behind."""

    def __init__(self, memories: tuple[Memory, ...], reach: int) -> None:
        self.memories, self.reach = memories, reach
        self.arrays: list[Any] = []
        self.views: list[Any] = []
        self.cuts: list[tuple[int, ...]] = []
        self._tip: Callable[[], object] = _nobody
        self.most = 0
        self.first = 0
        self._fits: int | None = None
        self.room = 0

    @property
    def tip(self) -> object:
        """The state that may be written behind. It has the store: that the store keeps it too would hold the memory of
        both until the garbage collector comes."""
        return self._tip()

    @tip.setter
    def tip(self, state: object) -> None:
        self._tip = _nobody if state is None else ref(state)

    @property
    def captures(self) -> Captures | None:
        """The captured steps; None where what is kept does not stay in its place."""
        return None

    @property
    def written(self) -> list[Any]:
        """The arrays that a step writes to."""
        return self.arrays

    @property
    def tabled(self) -> Any:
        """The object that a table of pages is made of, another one for another table; None where there is no table."""
        return None

    def table(self) -> Any:
        """The table of pages as steps take it."""
        raise AssertionError("there are no pages")

    def inputs(self, at: Any, count: int, table: Any) -> dict[str, Any]:
        """The inputs of a step, of which places on the device say where it stands."""
        return self.rows(at, count)

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays)

    @property
    def _least(self) -> int:
        """The rows that are held of what has a window, at least."""
        return self.reach + SPARE

    def begin(self, arrays: Iterable[Any], lengths: tuple[int, ...], room: int) -> None:
        """Take over the first rows of arrays."""
        length = max(lengths)
        room = max(length, room)
        self.first = max(0, length - self._least)
        for memory, array in zip(self.memories, arrays, strict=True):
            begins, held = self.first if memory.window else 0, room
            if memory.window:
                array, held = rows_of(array, memory.axis, begins, length), min(room, most_rows(self.reach))
            rows = length + memory.offset - begins
            self.arrays.append(with_room(array, memory.axis, rows, held + memory.offset))

    def goes_back_to(self, lengths: Sequence[int]) -> bool:
        """Whether all rows are held that the step after so many positions reads."""
        has_window = any(memory.window for memory in self.memories)
        return not has_window or max(0, min(lengths, default=0) - self.reach) >= self.first

    def with_room_for(self, length: Any, count: int) -> Store:
        """A store with room behind so many positions for some more: this one, unless rows have to be left behind."""
        if self._fits is not None and length + count <= self._fits:
            return self
        store = self
        begins = max(self.first, length - self._least)
        needed = [length + count + m.offset - (self.first if m.window else 0) for m in self.memories]
        full = [array.shape[m.axis] < n for m, array, n in zip(self.memories, self.arrays, needed, strict=True)]
        if begins > self.first and any(is_full and m.window for m, is_full in zip(self.memories, full, strict=True)):
            store = Store(self.memories, self.reach)
            store.arrays, store.cuts, store.first = [*self.arrays], self.cuts, begins
            self.tip = None  # A step from here copies: rows behind may be those of the other store.
        for number, memory in enumerate(self.memories):
            array = self.arrays[number]
            if store is not self and memory.window:
                array = rows_of(array, memory.axis, begins - self.first, length - self.first)
                store.arrays[number] = with_room(array, memory.axis, length - begins, most_rows(self.reach) - 1 + count)
            elif full[number]:
                rows = length + memory.offset - (self.first if memory.window else 0)
                store.arrays[number] = with_room(array, memory.axis, rows, self._next_room(memory, needed[number]))
        store._fits = min(map(store._most, store.memories, store.arrays), default=None)
        return store

    def _most(self, memory: Memory, array: Any) -> int:
        """The positions that an array has room for, counted from the first."""
        return int(array.shape[memory.axis]) - memory.offset + (self.first if memory.window else 0)

    def _next_room(self, memory: Memory, needed: int) -> int:
        return max(needed, min(2 * needed, most_rows(self.reach))) if memory.window else 2 * needed

    def rows(self, length: int, count: int) -> dict[str, Any]:
        """The past rows, with room for some more behind them, by the inputs of a step."""
        begins = max(0, length - self.reach)
        self.views = [
            rows_of(array, memory.axis, begins - self.first, length + count + memory.offset - self.first)
            if memory.window
            else rows_of(array, memory.axis, 0, length + count + memory.offset)
            for memory, array in zip(self.memories, self.arrays, strict=True)
        ]
        return {memory.past: view for memory, view in zip(self.memories, self.views, strict=True)}

    def clear(self, lengths: tuple[int, ...]) -> None:
        """Forget rows behind those of each sequence: nothing reads them."""

    def copied(self, lengths: tuple[int, ...]) -> Store:
        """Arrays of its own for a state behind which another step was made."""
        length = max(lengths)
        new = Store(self.memories, self.reach)
        new.first = self.first
        for memory, array in zip(self.memories, self.arrays, strict=True):
            rows = length + memory.offset - (self.first if memory.window else 0)
            new.arrays.append(with_room(array, memory.axis, rows, array.shape[memory.axis]))
        return new

    def reordered(self, axes: Mapping[str, int], indices: Sequence[int]) -> Store:
        """Arrays of their own for these points along an axis of each tensor."""
        new = Store(self.memories, self.reach)
        new.first = self.first
        for memory, array in zip(self.memories, self.arrays, strict=True):
            if memory.tensor in axes:
                new.arrays.append(taken(array, axes[memory.tensor], indices))
            else:
                new.arrays.append(with_room(array, memory.axis, array.shape[memory.axis], 0))
        return new

    def back_to(self, lengths: tuple[int, ...]) -> Store:
        """The store of a state with the first rows alone: those behind them are given up."""
        if self.memories:
            self.cuts.append(lengths)
        self.clear(lengths)
        return self

    def take(self, length: int, count: int, found: Iterable[Any]) -> None:
        """Have the rows that a step gave, where it did not write them here itself."""
        for number, (memory, array) in enumerate(zip(self.memories, found, strict=True)):
            if array is not self.views[number] and not shares(array, self.views[number]):
                beyond = length + count + memory.offset - (self.first if memory.window else 0)
                rows, end = array.shape[memory.axis] - count, array.shape[memory.axis]
                new = rows_of(array, memory.axis, rows, end)
                self.arrays[number] = written(self.arrays[number], new, memory.axis, beyond - count, beyond)
        self.views = []

    def after(self, count: int) -> Store:
        """The store of the state after a step for so many positions."""
        return self
