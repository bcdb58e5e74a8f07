"""Sequences of different lengths in one batch: those of one length are computed together, each length by a call of its
own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from .growing import beside, joined, rows_of, taken

Place = tuple[int, ...]


class Ragged:
    """States of sequences of different lengths, with the sequences that each has."""

    def __init__(self, parts: Sequence[tuple[Any, Place]], along: str | None) -> None:
        self._parts, self._along = tuple(parts), along

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of positions of each sequence."""
        found = {row: state.length for state, rows in self._parts for row in rows}
        return tuple(found[row] for row in range(len(found)))

    @property
    def nbytes(self) -> int:
        """The bytes of what is kept, with the room that there is for more."""
        return sum(state.nbytes for state, _ in self._parts)

    def reorder(self, indices: Any) -> Ragged:
        """The state of these sequences: the first is the one at the first index, and so on."""
        wanted = places(indices, len(self.lengths))
        parts = []
        for state, rows in self._parts:
            here = [number for number, index in enumerate(wanted) if index in rows]
            if here:
                local = [rows.index(wanted[number]) for number in here]
                parts.append((state.reorder(local, along=self._along), tuple(here)))
        return Ragged(parts, self._along)

    def back_to(self, lengths: Any) -> Ragged:
        """The state in which each sequence has its first positions, so many: a number for each, or one for all."""
        lengths = lengths_of(lengths if np.ndim(lengths) else [lengths] * len(self.lengths), len(self.lengths))
        parts = []
        for state, rows in self._parts:
            parts += [(part, tuple(rows[n] for n in own)) for part, own in _shorter(state, self._along, lengths, rows)]
        return Ragged(parts, self._along)

    def __repr__(self) -> str:
        return f"<state after {', '.join(map(str, self.lengths))} positions>"


def places(indices: Any, count: int | None) -> list[int]:
    """Sequences by their numbers, of which there are so many."""
    found = whole_numbers(indices, "sequences")
    wrong = [place for place in found if place < 0 or (count is not None and place >= count)]
    if wrong:
        message = f"there is no sequence {wrong[0]}"
        raise CallError([Diagnostic("IX515", message, help=f"there are {count}, counted from 0")])
    return found


def shorter(state: Any, lengths: Sequence[int], along: str | None) -> Ragged:
    """The state in which each sequence has its own number of positions."""
    lengths = lengths_of(lengths, state._count(state._decoder._batch(along)))
    return Ragged(_shorter(state, along, lengths, range(len(lengths))), along)


def _shorter(state: Any, along: str | None, lengths: Sequence[int], rows: Sequence[int]) -> list[tuple[Any, Place]]:
    """Parts of a state by their new lengths, with the rows that each has of it."""
    return [
        (state.reorder(own, along=along).back_to(length), tuple(own))
        for length, own in _by_length([lengths[row] for row in rows]).items()
    ]


def _by_length(lengths: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        found.setdefault(length, []).append(row)
    return found


def first_pass(
    prefill: Callable[[dict[str, Any]], tuple[Any, tuple[Any, ...]]],
    given: Mapping[str, Any],
    lengths: Sequence[int],
    batch: Mapping[str, int],
    along: Mapping[str, int],
) -> tuple[list[tuple[Any, Place]], list[tuple[Any, ...]]]:
    """The states and outputs of sequences that are padded behind their ends, by their lengths."""
    parts, outputs = [], []
    for length, rows in _by_length([int(length) for length in lengths]).items():
        call = dict(given)
        for name in call:
            if name in batch:
                call[name] = taken(call[name], batch[name], rows)
            if name in along:
                call[name] = rows_of(call[name], along[name], 0, length)
        state, found = prefill(call)
        parts.append((state, tuple(rows)))
        outputs.append(found)
    return parts, outputs


def step_each(
    step: Callable[[dict[str, Any], Any], tuple[Any, tuple[Any, ...]]],
    new: Mapping[str, Any],
    state: Ragged,
    batch: Mapping[str, int],
) -> tuple[Ragged, list[tuple[Any, ...]]]:
    """Some more positions for each sequence, each behind its own."""
    parts, outputs = [], []
    for part, rows in state._parts:
        call = {name: taken(value, batch[name], rows) if name in batch else value for name, value in new.items()}
        after, found = step(call, part)
        parts.append((after, rows))
        outputs.append(found)
    return Ragged(parts, state._along), outputs


def assembled(values: Sequence[Any], places: Sequence[Place], batch: int, along: Sequence[int]) -> Any:
    """One output of all sequences in their order, with zeros behind those that are shorter."""
    padded = []
    for value in values:
        for axis in along:
            size = max(other.shape[axis] for other in values)
            if value.shape[axis] < size:
                value = joined((value, beside(value, axis, size - value.shape[axis])), axis)
        padded.append(value)
    order = np.argsort(np.concatenate([np.array(rows, int) for rows in places]))
    return taken(joined(tuple(padded), batch), batch, [int(row) for row in order])


def whole_numbers(values: Any, what: str) -> list[int]:
    """The whole numbers that stand for sequences, or for their lengths; anything else is refused."""
    try:
        return [index(value) for value in values]
    except TypeError:
        raise CallError([Diagnostic("IX515", f"{what} are given as whole numbers, not as {values!r:.40}")]) from None


def lengths_of(lengths: Any, sequences: int | None, most: int | None = None) -> tuple[int, ...]:
    """The lengths of so many sequences; those that sequences of at most so many positions do not have are refused."""
    found = tuple(whole_numbers(lengths, "lengths"))
    if sequences is not None and len(found) != sequences:
        raise CallError([Diagnostic("IX515", f"{len(found)} lengths for {sequences} sequences")])
    wrong = [length for length in found if most is not None and not 0 <= length <= most]
    if wrong:
        raise CallError([Diagnostic("IX515", f"a sequence of {most} positions has no first {wrong[0]}")])
    return found
