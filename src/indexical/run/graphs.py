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
from .rooms import tables_in_room, without_room
from .states import State
from .stores import Store

# So many steps of one kind run as they are before one is captured: kernels are compiled and loaded by then.
_FIRST = 2


@dataclass(eq=False)
class Places:
    """The places that captured steps read beside the arrays of a store: how many positions are past, the last rows that
    are handed on, and a table of pages, where there is one. They have those of `state`, and the table that is made of
    `tabled`."""

    at: Any
    tails: tuple[Any, ...]
    table: Any = None
    tabled: Any = None
    state: Callable[[], object] | None = None  # A weak reference: the state has the store, and the store has this.

    def hold(self, state: State) -> None:
        """Have what a state has."""
        if self.state is None or self.state() is not state:
            self.at.copy_(state._before())
            for own, tail in zip(self.tails, state._tails, strict=True):
                own.copy_(tail)
        store = state._store
        if store.tabled is not self.tabled:
            self.table.copy_(tensors.load_torch().as_tensor(store.table()))
            self.tabled = store.tabled


@dataclass(eq=False)
class Captured:
    """A step for new positions at fixed places, and the outputs that it gives there. Of what stays the same it reads
    `weights`, which lie at `pointers`."""

    graph: Any
    new: dict[str, Any]
    outputs: tuple[Any, ...]
    fixed: dict[str, Any]
    weights: list[Any]
    pointers: list[int]
    function: Any  # It has arrays that the graph reads.


def replayed(decoder: Any, new: dict[str, Any], state: State, count: int) -> tuple[State, tuple[Any, ...]] | None:
    """A step by a graph; None where it is to run as it is."""
    store = state._store
    if not decoder.graph or store.captures is None or not new or not all(map(_is_on_gpu, new.values())):
        return None
    if store.tip is not state or (not store.memories and not state._tails):
        return None
    # A graph is of one device, which need not be the current one.
    with tensors.load_torch().cuda.device(next(iter(new.values())).device):
        return _replayed(decoder, new, state, store, count)


def _replayed(
    decoder: Any, new: dict[str, Any], state: State, store: Store, count: int
) -> tuple[State, tuple[Any, ...]] | None:
    key = tuple((value.shape, value.dtype, value.device) for value in new.values())
    captures = store.captures
    assert captures is not None
    found = captures.graphs.get(key, 0)
    if isinstance(found, Captured) and found.fixed is not state._fixed:
        found = 0  # It was given other weights.
    elif isinstance(found, Captured) and found.pointers != _pointers(found.weights):
        found = _FIRST  # They have moved.
    if isinstance(found, int):
        # What runs on several devices is not captured.
        apart = len({value.device for value in (*new.values(), *store.written, *state._tails)}) > 1
        captures.graphs[key] = None if apart else found + 1
    if captures.graphs[key] is None or (isinstance(found, int) and found < _FIRST):
        return None
    store.with_room_for(None, count)
    if isinstance(found, int) or key not in captures.graphs:  # What is kept may have moved, to have that room.
        found = captures.graphs[key] = _captured(decoder, new, state, store, count)
        if found is None:
            return None
    captures.places.hold(state)
    for name, place in found.new.items():
        place.copy_(new[name])
    found.graph.replay()
    lengths = tuple(length + count for length in state.lengths)
    outputs = tuple(output.clone() for output in without_room(decoder, found.outputs, lengths, store.room))
    tails = tuple(tail.clone() for tail in captures.places.tails)
    after = state._but(lengths, None, tails, store.after(count))
    captures.places.state = ref(after)
    return after, outputs


def _captured(decoder: Any, new: dict[str, Any], state: State, store: Store, count: int) -> Captured | None:
    """A graph of a step like this one; None, with a warning, where it cannot be captured."""
    captures = store.captures
    assert captures is not None
    if captures.places is None:
        at = state._before()
        table = None if store.tabled is None else tensors.load_torch().as_tensor(store.table()).to(at, copy=True)
        captures.places = Places(at.clone(), tuple(tail.clone() for tail in state._tails), table)
    places, arrays = captures.places, list(store.written)
    places.hold(state)
    own = {name: value.detach().clone() for name, value in new.items()}

    def values(at: Any, tails: tuple[Any, ...]) -> dict[str, Any]:
        found = {**own, **store.inputs(at, count, places.table), **state._tails_by_input(tails)}
        return found | tables_in_room(decoder, state._fixed, state.length + count, store.room)

    like = decoder._step_arguments(state._fixed, values(places.at, places.tails), places.at)
    function = decoder._caller.of_one_size(like, state._backend)

    def step(at: Any, tails: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(decoder._stepped(state._fixed, values(at, tails), at, state._backend, function))

    def whole() -> tuple[Any, ...]:
        found = step(places.at, places.tails)
        tails = state._keep(places.at, count, found[len(decoder._wanted) :])
        for place, tail in zip(places.tails, tails, strict=True):
            place.copy_(tail)
        places.at.add_(count)
        return found[: len(decoder._wanted)]

    # It is run as it is first, and writes the rows that are to be written: where it waits, nothing is captured. The
    # first time may wait for what is made once and kept.
    run = partial(step, state._before(), state._tails)
    reason = _waits(run) and _waits(run)
    try:
        if reason is None:
            graph, outputs = _recorded(whole)
            moved = any(array is not before for array, before in zip(store.written, arrays, strict=True))
            reason = "what is kept is not written in place" if moved else None
    except RuntimeError as problem:
        reason = _first(problem)
        _settle()
    if reason is None:
        weights = [value for value in state._fixed.values() if tensors.is_tensor(value)]
        return Captured(graph, own, outputs, state._fixed, weights, _pointers(weights), function)
    store.written[:] = arrays
    decoder.uncaptured = reason
    warnings.warn(f"a step runs without a CUDA graph: {reason}", RuntimeWarning, stacklevel=5)
    return None


def _recorded(call: Callable[[], Any]) -> tuple[Any, Any]:
    """A graph of what a call does, and its result, which is there when the graph has been replayed."""
    cuda = tensors.load_torch().cuda
    graph = cuda.CUDAGraph()
    with warnings.catch_warnings(), cuda.graph(graph, capture_error_mode="thread_local"):
        warnings.simplefilter("ignore")  # Of a capture that ends early PyTorch says that it is empty.
        found = call()
    return graph, found


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
    with suppress(RuntimeError):
        _recorded(lambda: None)


def _pointers(arrays: list[Any]) -> list[int]:
    """The places in memory of arrays: a step that reads one that has moved is captured anew."""
    return list(map(tensors.load_torch().Tensor.data_ptr, arrays))


def _first(problem: BaseException) -> str:
    """The problem that came first: the end of a capture that failed fails too."""
    while problem.__context__ is not None:
        problem = problem.__context__
    return (str(problem) or type(problem).__name__).splitlines()[0]


def _is_on_gpu(value: Any) -> bool:
    return bool(tensors.is_tensor(value) and value.is_cuda)
