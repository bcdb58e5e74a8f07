"""Steps of a decoder as CUDA graphs: captured once, then replayed with other numbers in the same places.

Nothing is allocated in a replay and nothing waits for the device. What it reads is copied to where it was captured, and
what it gives is copied out, so that the next one does not overwrite it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

from ..records import dataclass
from . import tensors
from .rooms import Room, without_room
from .states import State

# So many steps of one kind run as they are before one is captured: kernels are compiled and loaded by then.
_FIRST = 2


@dataclass(eq=False)
class Places:
    """The places that captured steps of one room read beside its arrays: how many positions are past, and the last rows
    that are handed on. They have those of `state`."""

    at: Any
    tails: tuple[Any, ...]
    state: Callable[[], object] | None = None  # A weak reference: the state has the room, and the room has this.

    def hold(self, state: State) -> None:
        """Have what a state has."""
        if self.state is None or self.state() is not state:
            self.at.copy_(state._before())
            for own, tail in zip(self.tails, state._tails, strict=True):
                own.copy_(tail)


@dataclass(eq=False)
class Captured:
    """A step for new positions at fixed places, and the outputs that it gives there. It reads weights at `pointers`."""

    graph: Any
    new: dict[str, Any]
    outputs: tuple[Any, ...]
    pointers: list[int]


def replayed(decoder: Any, new: dict[str, Any], state: State, count: int) -> tuple[State, tuple[Any, ...]] | None:
    """A step by a graph; None where it is to run as it is."""
    room = state._store
    if not decoder.graph or not isinstance(room, Room) or not all(map(_is_on_gpu, new.values())):
        return None
    if room.tip is not state or (not room.arrays and not state._tails):
        return None
    torch = tensors.load_torch()
    # A graph is of one device, which need not be the current one: what runs on another is not captured.
    device, *others = {value.device for value in (*new.values(), *room.arrays, *state._tails)}
    if others:
        return None
    with torch.cuda.device(device):
        return _replayed(decoder, new, state, room, count)


def _replayed(
    decoder: Any, new: dict[str, Any], state: State, room: Room, count: int
) -> tuple[State, tuple[Any, ...]] | None:
    key = tuple((value.shape, value.dtype, value.device) for value in new.values())
    found = room.graphs.get(key, 0)
    if found is None:
        return None
    if isinstance(found, Captured) and found.pointers != _pointers(state):
        found = _FIRST
    if isinstance(found, int):
        room.graphs[key] = found + 1
        if found < _FIRST:
            return None
        found = room.graphs[key] = _captured(decoder, new, state, room, count)
        if found is None:
            return None
    room.places.hold(state)
    for name, place in found.new.items():
        place.copy_(new[name])
    found.graph.replay()
    lengths = tuple(length + count for length in state.lengths)
    outputs = tuple(output.clone() for output in without_room(decoder, found.outputs, lengths, room.room))
    after = state._but(lengths, None, tuple(tail.clone() for tail in room.places.tails))
    room.places.state = ref(after)
    return after, outputs


def _captured(decoder: Any, new: dict[str, Any], state: State, room: Room, count: int) -> Captured | None:
    """A graph of a step like this one; None, with a warning, where it cannot be captured."""
    torch = tensors.load_torch()
    if room.places is None:
        room.places = Places(state._before().clone(), tuple(tail.clone() for tail in state._tails))
    places, arrays = room.places, list(room.arrays)
    own = {name: value.detach().clone() for name, value in new.items()}

    def step(at: Any, tails: tuple[Any, ...]) -> tuple[Any, ...]:
        values = {**own, **room.rows(at, count), **state._tails_by_input(tails)}
        return tuple(decoder._stepped(state._fixed, values, at, state._backend))

    # It is run as it is first, and writes the rows that are to be written: where it waits, nothing is captured. The
    # first time may wait for what is made once and kept.
    run = partial(step, state._before(), state._tails)
    reason = _waits(run) and _waits(run)
    graph = torch.cuda.CUDAGraph()
    try:
        if reason is None:
            with warnings.catch_warnings(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                warnings.simplefilter("ignore")  # Of a capture that ends early PyTorch says that it is empty.
                found = step(places.at, places.tails)
                tails = state._keep(places.at, count, found[len(decoder._wanted) :])
                for place, tail in zip(places.tails, tails, strict=True):
                    place.copy_(tail)
                places.at.add_(count)
            moved = any(array is not before for array, before in zip(room.arrays, arrays, strict=True))
            reason = "what is kept is not written in place" if moved else None
    except RuntimeError as problem:
        reason = _first(problem)
        _settle()
    if reason is None:
        return Captured(graph, own, found[: len(decoder._wanted)], _pointers(state))
    room.arrays[:] = arrays
    decoder.uncaptured = reason
    warnings.warn(f"a step runs without a CUDA graph: {reason}", RuntimeWarning, stacklevel=5)
    return None


def _waits(run: Callable[[], Any]) -> str | None:
    """Why something cannot be captured: it waits for the device, or copies to it; None where it does not. A capture
    would find out too, but one that ends early leaves PyTorch unable to draw random numbers on the device."""
    cuda = tensors.load_torch().cuda
    before = cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # All threads share the mode: one that waits meanwhile is warned, and goes on.
        cuda.set_sync_debug_mode("warn")
        try:
            run()
        except RuntimeError as problem:
            return _first(problem)
        finally:
            cuda.set_sync_debug_mode(before)
    for warning in said:
        if "called a synchronizing" in str(warning.message):
            return f"it waits for the device, or copies to it ({Path(warning.filename).name}, line {warning.lineno})"
    return None


def _settle() -> None:
    """End what a capture that failed has left open, by one that does not."""
    torch = tensors.load_torch()
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It is empty.
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            pass


def _pointers(state: State) -> list[int]:
    """The places in memory of what stays the same: one that has moved since a step was captured is captured anew."""
    return [value.data_ptr() for value in state._fixed.values() if tensors.is_tensor(value)]


def _first(problem: BaseException) -> str:
    """The problem that came first: the end of a capture that failed fails too."""
    while problem.__context__ is not None:
        problem = problem.__context__
    return (str(problem) or type(problem).__name__).splitlines()[0]


def _is_on_gpu(value: Any) -> bool:
    return bool(tensors.is_tensor(value) and value.is_cuda)
