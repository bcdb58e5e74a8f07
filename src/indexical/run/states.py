"""States of a decoder: what is kept of the positions so far, as a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..records import dataclass
from .growing import copied, rounded, rows_of, taken
from .ragged import lengths_of, places, shorter, whole_numbers
from .rooms import check_apart
from .stores import SPARE, Store


@dataclass(frozen=True, eq=False)
class Latest:
    """A step for several positions, so that it can be taken once more for fewer: the lengths and the last rows before
    it, and what was new."""

    lengths: tuple[int, ...]
    tails: tuple[Any, ...]
    new: dict[str, Any]


@dataclass(eq=False)
class State:
    """The rows that are kept of the positions so far. It is a value: a step makes another one, and this stays what it
    is.

    States share their arrays: a step writes behind the rows of the state that it is made from. A second step from the
    same state copies them, so that neither changes the other. `back_to` gives up later positions instead: states that
    have them can no longer be used.
    """

    _decoder: Any
    _store: Store
    lengths: tuple[int, ...]
    _at: Any
    _tails: tuple[Any, ...]
    _fixed: dict[str, Any]
    _backend: str | None

    def __post_init__(self) -> None:
        self._born = len(self._store.cuts)
        self._latest: Latest | None = None
        self._store.tip = self
        self._store.most = max(self._store.most, self.length)

    @property
    def length(self) -> int:
        """The number of positions; where sequences have lengths of their own, that of the longest."""
        return max(self.lengths, default=0)

    @property
    def nbytes(self) -> int:
        """The bytes of what is kept, with the room that there is for more."""
        earlier = () if self._latest is None else (*self._latest.tails, *self._latest.new.values())
        return self._store.nbytes + sum(int(array.nbytes) for array in (*self._tails, *earlier))

    def _check(self) -> None:
        cuts = self._store.cuts[self._born :]
        if any(least < length for cut in cuts for least, length in zip(cut, self.lengths, strict=True)):
            message = "this state has positions that were given up: another one went back before them"
            raise _refusal(message, "keep the state that `back_to` gives")

    def _rows(self, count: int) -> dict[str, Any]:
        """The past rows, with room for some more positions, by the inputs of a step."""
        store = self._store
        if store.memories and store.tip is not self:
            store, self._born = store.copied(self.lengths), 0
        store = store.with_room_for(self._before(), count)
        store.tip, self._store = self, store
        return {**store.rows(self._before(), count), **self._tails_by_input(self._tails)}

    def _before(self) -> Any:
        """The number of positions that are past, as a step takes it."""
        if self._at is None:
            self._at = self._decoder._before(self.lengths, (*self._store.written, *self._tails))
        return self._at

    def _tails_by_input(self, tails: tuple[Any, ...]) -> dict[str, Any]:
        """The last rows that are handed on, by the inputs of a step."""
        handed = (memory for memory in self._decoder._memories if memory.rows is not None)
        return {memory.past: tail for memory, tail in zip(handed, tails, strict=True)}

    def _after(self, count: int, found: tuple[Any, ...]) -> State:
        """The state after a step, which gave these."""
        tails = self._keep(self._before(), count, found)
        lengths = tuple(length + count for length in self.lengths)
        return self._but(lengths, self._before() + count, tails, self._store.after(count))

    def _keep(self, at: Any, count: int, found: tuple[Any, ...]) -> tuple[Any, ...]:
        """Keep what a step behind so many positions gave; the last rows of it that are handed on."""
        pairs = list(zip(self._decoder._memories, found, strict=True))
        arrays = [
            part
            for memory, array in pairs
            if memory.rows is None
            for part in (rounded(array, memory.keep) if memory.keep else (array,))
        ]
        self._store.take(at, count, arrays)
        return tuple(array for memory, array in pairs if memory.rows is not None)

    def _follows(self, state: State, new: dict[str, Any]) -> None:
        """Remember the state that a step for several positions was made from, where it has rows that are handed on."""
        if state._tails and self.length > state.length + 1:
            self._latest = Latest(state.lengths, state._tails, {name: copied(value) for name, value in new.items()})

    def _but(self, lengths: tuple[int, ...], at: Any, tails: tuple[Any, ...], store: Store | None = None) -> State:
        return State(self._decoder, store or self._store, lengths, at, tails, self._fixed, self._backend)

    def _by_tensor(self, tails: tuple[Any, ...]) -> dict[str, Any]:
        """The rows that are handed on from step to step, by their tensors."""
        names = [memory.tensor for memory in self._decoder._memories if memory.rows is not None]
        return dict(zip(names, tails, strict=True))

    def _count(self, axes: dict[str, int]) -> int | None:
        """The number of sequences along these axes; None where nothing that is kept has them."""
        if axes == self._decoder._sequences:
            return len(self.lengths)
        grown = [memory.tensor for memory in self._store.memories]
        arrays = [*zip(grown, self._store.arrays, strict=False), *self._by_tensor(self._tails).items()]
        arrays += self._fixed.items()
        return next((np.shape(array)[axes[name]] for name, array in arrays if name in axes), None)

    def reorder(self, indices: Any, along: str | None = None) -> State:
        """The state of these sequences: the first is the one at the first index, and so on, as beams ask for. They are
        told apart by the first coordinate before the positions, or that called `along`."""
        self._check()
        axes = self._decoder._batch(along)
        apart = axes == self._decoder._sequences
        rows = places(indices, self._count(axes))
        lengths = tuple(self.lengths[row] for row in rows) if apart else self.lengths
        store = self._store.reordered(axes, rows)
        store.clear(lengths)

        def of(arrays: dict[str, Any]) -> dict[str, Any]:
            return {name: taken(value, axes[name], rows) if name in axes else value for name, value in arrays.items()}

        at = self._decoder._before(lengths, (self._before(),))
        tails = tuple(of(self._by_tensor(self._tails)).values())
        fixed = self._fixed if axes.keys().isdisjoint(self._fixed) else of(self._fixed)
        after = State(self._decoder, store, lengths, at, tails, fixed, self._backend)
        if self._latest is not None:
            before = tuple(self._latest.lengths[row] for row in rows) if apart else self._latest.lengths
            ends = tuple(of(self._by_tensor(self._latest.tails)).values())
            after._latest = Latest(before, ends, of(self._latest.new))
        return after

    def back_to(self, length: Any) -> Any:
        """The state after the first positions, so many; those after them are given up. With a number for each sequence,
        each has its own length."""
        self._check()
        if np.ndim(length) and not self._decoder._is_data:
            return shorter(self, length, None)
        if np.ndim(length):
            check_apart(self._decoder)
            lengths = lengths_of(length, len(self.lengths), self.length)
        else:
            lengths = (*whole_numbers([length], "positions"),) * len(self.lengths)
        wrong = [pair for pair in zip(self.lengths, lengths, strict=True) if not 0 <= pair[1] <= pair[0]]
        if wrong:
            raise _refusal("a state of {} positions cannot go back to {}".format(*wrong[0]))
        if self._tails and lengths != self.lengths:
            return self._again(lengths)
        return self._shorter(lengths, self._tails)

    def _again(self, lengths: tuple[int, ...]) -> State:
        """The state in the midst of the latest step, which is taken once more for fewer positions."""
        before = self._latest.lengths if self._latest is not None else self.lengths
        counts = {length - earlier for length, earlier in zip(lengths, before, strict=True)}
        if self._latest is None or len(counts) > 1 or min(counts) < 0:
            names = ", ".join(f"`{memory.tensor}`" for memory in self._decoder._memories if memory.rows is not None)
            message = f"of {names} only the last rows are kept: earlier ones cannot be gone back to"
            help = "hold on to the earlier state: it stays what it is. A step of several positions can be cut short"
            raise _refusal(message, help)
        state, (count,) = self._shorter(before, self._latest.tails), counts
        if not count:
            return state
        along = dict(self._decoder._counted)
        new = {name: rows_of(value, along[name], 0, count) for name, value in self._latest.new.items()}
        after: State = self._decoder._one_step(new, state)[0]
        return after

    def _shorter(self, lengths: tuple[int, ...], tails: tuple[Any, ...]) -> State:
        if not self._store.goes_back_to(lengths):
            message = f"position {min(lengths)} reads rows that have left their window of {self._store.reach}"
            raise _refusal(message, f"{SPARE} positions can always be gone back, further ones not")
        before = self._decoder._before(lengths, (self._before(),))
        return self._but(lengths, before, tails, self._store.back_to(lengths))

    def __repr__(self) -> str:
        lengths = self.lengths if len({*self.lengths}) > 1 else self.lengths[:1]
        return f"<state after {', '.join(map(str, lengths))} positions>"


def _refusal(message: str, help: str | None = None) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])
