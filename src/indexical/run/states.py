"""States of a decoder: what is kept of the positions so far, as a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass
from .growing import rounded, taken
from .ragged import places, shorter
from .stores import SPARE, Store


@dataclass(eq=False)
class State:
    """What is kept of the positions so far. It is a value: a step makes another one, and this stays what it is.

    States share their arrays: a step writes behind the rows of the state that it is made from. A second step from the
    same state copies them, so that neither changes the other. `back_to` gives up later positions instead: states that
    have them can no longer be used.
    """

    _decoder: Any
    _store: Store
    length: int
    _tails: tuple[Any, ...]
    _fixed: dict[str, Any]
    _backend: str | None

    def __post_init__(self) -> None:
        self._born = len(self._store.cuts)
        self._store.tip = self

    @property
    def nbytes(self) -> int:
        """The bytes of what is kept, with the room that there is for more."""
        return self._store.nbytes + sum(int(tail.nbytes) for tail in self._tails)

    def _check(self) -> None:
        if any(cut < self.length for cut in self._store.cuts[self._born :]):
            message = "this state has positions that were given up: another one went back before them"
            raise _refusal(message, "keep the state that `back_to` gives")

    def _rows(self, count: int) -> dict[str, Any]:
        """What is past, with room for some more positions, by the inputs of a step."""
        store = self._store
        if store.memories and store.tip is not self:
            store, self._born = store.copied(self.length), 0
        store = store.with_room_for(self.length, count)
        store.tip, self._store = self, store
        tails = (memory for memory in self._decoder._memories if memory.rows is not None)
        kept = {memory.past: tail for memory, tail in zip(tails, self._tails, strict=True)}
        return {**store.rows(self.length, count), **kept}

    def _after(self, count: int, found: tuple[Any, ...]) -> State:
        """The state after a step, which gave these."""
        pairs = list(zip(self._decoder._memories, found, strict=True))
        grown = [(memory, array) for memory, array in pairs if memory.rows is None]
        arrays = [part for memory, array in grown for part in rounded(array, memory.keep)]
        self._store.take(self.length, count, arrays)
        tails = tuple(array for memory, array in pairs if memory.rows is not None)
        return State(self._decoder, self._store, self.length + count, tails, self._fixed, self._backend)

    def reorder(self, indices: Any, along: str | None = None) -> State:
        """The state of these sequences: the first is the one at the first index, and so on, as beams ask for. They are
        told apart by the first coordinate before the positions, or that called `along`."""
        self._check()
        axes = self._decoder._batch(along)
        kept = [memory.tensor for memory in self._decoder._memories if memory.rows is not None]
        tails = list(zip(kept, self._tails, strict=True))
        grown = [memory.tensor for memory in self._store.memories]
        arrays = [*zip(grown, self._store.arrays, strict=True), *tails, *self._fixed.items()]
        rows = places(indices, next((np.shape(array)[axes[name]] for name, array in arrays if name in axes), None))
        return State(
            self._decoder,
            self._store.reordered(axes, rows),
            self.length,
            tuple(taken(tail, axes[name], rows) if name in axes else tail for name, tail in tails),
            {name: taken(value, axes[name], rows) if name in axes else value for name, value in self._fixed.items()},
            self._backend,
        )

    def back_to(self, length: Any) -> Any:
        """The state after the first positions, so many; those after them are given up. With a number for each sequence,
        each has its own length."""
        self._check()
        if np.ndim(length):
            return shorter(self, length, None)
        if not 0 <= length <= self.length:
            raise _refusal(f"a state of {self.length} positions cannot go back to {length}")
        if self._tails and length < self.length:
            names = ", ".join(f"`{memory.tensor}`" for memory in self._decoder._memories if memory.rows is not None)
            message = f"of {names} only the last rows are kept: earlier ones cannot be gone back to"
            raise _refusal(message, "hold on to the earlier state itself: it stays what it is")
        if not self._store.goes_back_to(length):
            message = f"position {length} reads rows that have left their window of {self._store.reach}"
            raise _refusal(message, f"{SPARE} positions can always be gone back, further ones not")
        self._store.cuts.append(length)
        return State(self._decoder, self._store, length, self._tails, self._fixed, self._backend)

    def __repr__(self) -> str:
        return f"<state after {self.length} positions>"


def _refusal(message: str, help: str | None = None) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])
