"""The rows that a decoder keeps where shapes never change: arrays with room for a fixed number of them, of which
data says how many are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic
from ..ir.types import DEFAULT_DTYPE, DTYPES_BY_NAME, STORED_ONLY
from ..transform.memory import Memory
from . import tensors
from .growing import (
    beside,
    filling,
    first_rows_of_each,
    joined,
    only_where,
    put_rows,
    rows_of,
    shares,
    taken,
    with_last_repeated,
    written,
)
from .ragged import assembled, first_pass, lengths_of
from .stores import Captures, Store

Lengths = tuple[int, ...]


class Room(Store):
    """The arrays of sequences, whichever of their positions are there. `sequences` is the axis of each tensor, counted
    from the end, along which these have lengths of their own; without one they have the same."""

    def __init__(self, memories: tuple[Memory, ...], capacity: int, sequences: Mapping[str, int]) -> None:
        super().__init__(memories, 0)
        self.capacity, self.sequences = capacity, sequences
        self._captures = Captures()
        self.room = capacity

    @property
    def captures(self) -> Captures:
        return self._captures

    def begin(self, arrays: Iterable[Any], lengths: Lengths, room: int = 0) -> None:
        """Take over the first rows of arrays."""
        self.arrays, longest = [], max(lengths, default=0)
        for memory, array in zip(self.memories, arrays, strict=True):
            there = rows_of(array, memory.axis, 0, longest + memory.offset)
            behind = beside(there, memory.axis, self.capacity - longest, filling(array))
            self.arrays.append(joined((there, behind), memory.axis))
        self.most = longest
        self.clear(lengths)

    def clear(self, lengths: Lengths) -> None:
        """Forget the rows behind those of each sequence."""
        beyond, self.most = self.most, max(lengths, default=0)
        first = min(lengths, default=beyond)
        if first >= beyond:
            return
        for number, (memory, array) in enumerate(zip(self.memories, self.arrays, strict=True)):
            ends = first + memory.offset, beyond + memory.offset
            rows = beside(array, memory.axis, beyond - first, filling(array))
            if max(lengths) > first:
                kept = np.arange(first, beyond) < np.array(lengths)[:, None]
                rows = rows_of(array, memory.axis, *ends)
                rows = only_where(rows, self.sequences[memory.tensor], memory.axis, kept, filling(array))
            self.arrays[number] = written(array, rows, memory.axis, *ends)

    def goes_back_to(self, lengths: Sequence[int]) -> bool:
        return True

    def with_room_for(self, length: Any, count: int) -> Store:
        return self

    def rows(self, length: Any, count: int) -> dict[str, Any]:
        """All rows, those that are there and all others, by the inputs of a step."""
        return {memory.past: array for memory, array in zip(self.memories, self.arrays, strict=True)}

    def copied(self, lengths: Lengths) -> Store:
        """Arrays of its own for a state behind which another step was made."""
        new = Room(self.memories, self.capacity, self.sequences)
        new.begin(self.arrays, lengths)
        return new

    def reordered(self, axes: Mapping[str, int], indices: Sequence[int]) -> Store:
        """Arrays of their own for these points along an axis of each tensor."""
        new = self.copied((self.most,))
        for number, (memory, array) in enumerate(zip(self.memories, self.arrays, strict=True)):
            if memory.tensor in axes:
                new.arrays[number] = taken(array, axes[memory.tensor], indices)
        return new

    def take(self, length: Any, count: int, found: Iterable[Any]) -> None:
        """Have the rows that a step gave, where it did not write them here itself: as they are kept, or all of them."""
        for number, (memory, array) in enumerate(zip(self.memories, found, strict=True)):
            own = self.arrays[number]
            if memory.keep is not None:
                first = length + memory.offset
                axis = self.sequences.get(memory.tensor)
                if axis is not None:
                    first = first.reshape([-1 if n - own.ndim == axis else 1 for n in range(own.ndim)])
                self.arrays[number] = put_rows(own, memory.axis, first, count, array)
            elif not shares(array, own):
                self.arrays[number] = array


# ------------------------------------------------------------------------------------- decoders


def first_pass_in_room(
    decoder: Any, given: dict[str, Any], lengths: Sequence[int] | None, backend: str | None
) -> tuple[Any, Any]:
    """The state after the positions that are given, and the outputs at them. Sequences of different lengths are padded
    to the longest: what stands behind their ends nobody hears."""
    positions = decoder._length(given)
    check_tables(decoder, given)
    if lengths is None:
        check_room(decoder, positions)
        count = _count(decoder, given) if decoder._sequences else 1
        kept, found = decoder._first_kept(given, backend)
        return decoder._first_state(kept, given, (positions,) * count, None, backend), decoder._packed(found)
    check_apart(decoder)
    batch = decoder._sequences
    own = lengths_of(lengths, _count(decoder, given), positions)
    longest = max(own, default=0)
    check_room(decoder, longest)
    if decoder._split.ends:
        kept, found = _each_length(decoder, given, own, batch, backend)
    else:
        call = dict(given)
        for name, axis in decoder._counted:
            call[name] = with_last_repeated(rows_of(call[name], axis, 0, longest), batch[name], axis, own)
        kept, found = decoder._first_kept(call, backend)
        found = tuple(
            _behind(decoder, name, array, own, longest, decoder._split.along[name])
            for name, array in zip(decoder._wanted, found, strict=False)
        )
    return decoder._first_state(kept, given, own, None, backend), decoder._packed(found)


def _count(decoder: Any, given: dict[str, Any]) -> int:
    """The number of sequences in a call."""
    name = decoder.inputs[0]
    return int(np.shape(given[name])[decoder._sequences[name]])


def _each_length(
    decoder: Any, given: dict[str, Any], lengths: Lengths, batch: dict[str, int], backend: str | None
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The same, with a call for each length: a total over all positions would have those behind the end."""
    parts, outputs = first_pass(
        lambda call: decoder._first_kept(call, backend), given, lengths, batch, dict(decoder._counted)
    )
    rows = [own for _, own in parts]
    kept = {}
    for memory in decoder._memories:
        axes = [] if memory.tensor in decoder._split.ends else [memory.axis]
        kept[memory.tensor] = assembled([one[memory.tensor] for one, _ in parts], rows, batch[memory.tensor], axes)
    return kept, decoder._assembled(outputs, rows, batch)


def without_room(decoder: Any, found: Iterable[Any], lengths: Lengths, room: int) -> tuple[Any, ...]:
    """The outputs of a step for pairs of positions, without those that have room and are not there yet."""
    result = []
    for name, array in zip(decoder._wanted, found, strict=False):
        own = decoder._split.axis.get(name)
        columns = [number for number in decoder._split.along[name] if number != own]
        result.append(_behind(decoder, name, array, lengths, room, columns))
    return tuple(result)


def _behind(decoder: Any, name: str, array: Any, lengths: Lengths, rows: int, axes: Sequence[int]) -> Any:
    """An output with so many rows along some axes, cut behind the longest sequence, and 0 behind each other one."""
    rank = len(decoder._split.program.tensors[name].axes) if axes else 0
    for axis in (number - rank for number in axes):
        more = array.shape[axis] - rows
        array = rows_of(array, axis, 0, max(lengths, default=0) + more)
        if len({*lengths}) > 1:
            array = first_rows_of_each(array, decoder._sequences[name], axis, [length + more for length in lengths])
    return array


def on_device(decoder: Any, fixed: Mapping[str, Any], device: Any) -> dict[str, Any]:
    """The inputs that stay the same, with the numbers and arrays of other libraries than PyTorch on a GPU: every step
    would copy them there, and wait for it. A real number of Python stays one: it has no dtype of its own."""
    found = dict(fixed)
    for tensor in decoder.program.ir.inputs:
        value = fixed.get(tensor.name)
        if value is None or tensors.is_tensor(value) or tensor.dtype in STORED_ONLY:
            continue
        dtype = DTYPES_BY_NAME.get(str(getattr(value, "dtype", "")))
        if tensor.kind != "real":
            dtype = tensor.dtype or DEFAULT_DTYPE[tensor.kind]
        found[tensor.name] = tensors.finished(value, dtype, device)
    return found


def check_tables(decoder: Any, given: Mapping[str, Any]) -> None:
    """Refuse a table for all positions that has fewer than there is room for."""
    for name, axis in decoder._fixed_axes if decoder.capacity is not None else ():
        count = int(np.shape(given[name])[axis])
        if count < decoder.capacity:
            message = f"`{name}` has {count} positions, and there is to be room for {decoder.capacity}"
            raise _refusal(message, f"give `ix.incremental` a `capacity` of {count} at most")


def tables_in_room(decoder: Any, given: Mapping[str, Any], length: int, room: int) -> dict[str, Any]:
    """Tables for all positions with as many as there is room for: nobody hears those behind so many."""
    found = {}
    for name, axis in decoder._fixed_axes:
        count = int(np.shape(given[name])[axis])
        if count < length:
            raise _refusal(f"`{name}` has {count} positions, and these are {length}", None)
        if count < room:
            behind = beside(given[name], axis, room - count, filling(given[name]))
            found[name] = joined((given[name], behind), axis)
    return found


def check_capacity(capacity: Any) -> None:
    """Refuse a room that is no number of positions."""
    if capacity is not None and (type(capacity) is not int or capacity < 1):
        raise _refusal(f"`capacity` is a whole number from 1 on, not {capacity!r:.40}")


def check_room(decoder: Any, length: int) -> None:
    """Refuse more positions than there is room for."""
    if decoder.capacity is not None and length > decoder.capacity:
        message = f"there is room for {decoder.capacity} positions, and these are {length}"
        raise _refusal(message, "give `ix.incremental` a larger `capacity`, or none: then arrays grow")


def check_asked_room(decoder: Any, asked: int | None) -> None:
    """Refuse to make room where it is made already, and less, and for rows in pages, which are added when needed."""
    if asked is not None and decoder._pools is not None:
        raise _refusal("pages are added when they are needed: there is no room to make", "leave out `capacity=` here")
    check_room(decoder, asked or 0)


def check_apart(decoder: Any) -> None:
    """Refuse lengths of their own for sequences that cannot have them."""
    if not decoder._sequences:
        raise _refusal(f"sequences have one length: {decoder._stepping.shared}")


def _refusal(message: str, help: str | None = None) -> CallError:
    return CallError([Diagnostic("IX515", message, help=help)])
