"""Programs along positions that run step by step: the first pass, further steps, and the states between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from .api import Program
from .bound import Layouts
from .calculus import derived_program
from .diagnostics import CallError, Diagnostic
from .ir import nodes as ir
from .ir import whole
from .ir.text import shown
from .records import replace
from .run import tensors
from .run.asked import packed
from .run.calling import Caller
from .run.graphs import replayed
from .run.growing import last_rows, rounded, rows_of, wholes_like, with_room
from .run.paged import Paged, Pools
from .run.ragged import Ragged, assembled, first_pass, lengths_of, step_each
from .run.rooms import (
    Room,
    check_asked_room,
    check_capacity,
    check_room,
    first_pass_in_room,
    on_device,
    tables_in_room,
    without_room,
)
from .run.sizes import Repeated
from .run.states import State
from .run.stores import Store
from .transform.causality import split
from .transform.incremental import Stepping, step_of
from .transform.memory import arrays_of
from .transform.paged import paged_step_of
from .transform.past import Split
from .views.decoder import words


def stepping_of(
    found: Split,
    wanted: tuple[str, ...],
    keep: str | None,
    capacity: int | None,
    weights: Collection[str],
    pages: int | None,
) -> Stepping:
    """The step of a program, with what is kept in pages where a number of rows for each is given."""
    if pages is None:
        return step_of(found, wanted, keep, capacity, _leading(found, weights))
    return paged_step_of(found, wanted, keep, capacity, _leading(found, weights), pages)


def _leading(split: Split, weights: Collection[str], along: str | None = None) -> ir.Expr | None:
    """The extent of the first axis before the positions, or of that called `along`: it tells sequences apart."""
    inputs = [t for t in split.program.inputs if split.along[t.name] and t.name not in weights]
    leading = [axis for t in inputs for axis in t.axes[: split.along[t.name][0]] if not axis.coordinate.rest]
    return next((axis.extent for axis in leading if along in (None, axis.coordinate.name)), None)


class Decoder:
    """A program, one position after another. `print` it to see what is kept of each."""

    def __init__(
        self,
        program: Program,
        along: str,
        split: Split,
        stepping: Stepping,
        wanted: tuple[str, ...],
        alone: bool,
        weights: dict[str, Any],
        laid: Program,
        layouts: Layouts,
        keep: str | None,
        capacity: int | None,
        graph: bool,
        pool: int | None,
    ) -> None:
        self.program, self.along = program, along
        self._split, self._stepping, self._wanted, self._alone = split, stepping, wanted, alone
        self._weights, self._whole, self._layouts = weights, laid, layouts
        self._memories, self._keep, self.capacity = stepping.memories, keep, capacity
        # Whether steps on a GPU are captured, and why one was not.
        self.graph, self.uncaptured = graph, ""
        self._growing = tuple(part for memory in self._memories if memory.rows is None for part in arrays_of(memory))
        kept = tuple(m.tensor for m in self._memories if m.tensor not in program.inputs)
        ends = {name: split.ends[name].name for name in kept if name in split.ends}
        self._given = tuple(dict.fromkeys((*wanted, *(ends.get(name, name) for name in kept))))
        # All that the text of a step follows from, beside the program: emitted functions are kept by it.
        pages = None if stepping.paging is None else stepping.paging.size
        self._said = (along, f"keep {keep}", f"capacity {capacity}", f"pages {pages}", *sorted(weights))
        self._first = laid
        if split.plain is not None:
            lets = (*split.plain.lets, *(split.ends[name] for name in ends))
            first = replace(split.plain, lets=lets, outputs=self._given, order=(), contracts=())
            self._first = derived_program(laid, first, "first pass", self._said)
        outputs = (*wanted, *(memory.after for memory in self._memories))
        # What is wanted may be what is kept, in fewer bits: a program has each output once.
        once = tuple(dict.fromkeys(outputs))
        self._again = None if len(once) == len(outputs) else tuple(map(once.index, outputs))
        step = replace(stepping.program, outputs=once)
        self._step = derived_program(laid, step, "step", (*self._said, "in place"))
        paging = stepping.paging
        self._pools = None if paging is None else Pools(self._growing, paging, capacity, pool)
        # Whether how many positions are past is data, and no number.
        self._is_data = capacity is not None or self._pools is not None
        # The place of each argument of a step; the arguments of the latest that stay what they are.
        self._takes = {name: place for place, name in enumerate(self._step.inputs)}
        self._placed: tuple[dict[str, Any], list[Any]] = ({}, [])
        # What stays the same as the latest `prefill` was given it, the GPU it was for, and as steps take it.
        self._latest: tuple[dict[str, Any], Any, dict[str, Any]] = ({}, None, {})
        self._caller = Caller(self._step._engine, None if self._is_data else self._repeated())
        if sum(value.numel() for value in weights.values() if tensors.is_tensor(value)) > _MANY:
            self._caller.wait(_LATE)
        self._pack = packed(wanted)
        self._least = split.least
        # The inputs that are given for new positions, in their order; all others stay what they were.
        self.inputs = tuple(t.name for t in split.program.inputs if split.along[t.name] and t.name not in weights)
        self.fixed = tuple(name for name in program.inputs if name not in self.inputs)
        # A leading axis may stand for several: that of the positions is counted from the end.
        tensors_ = split.program.tensors
        self._counted = [(name, split.along[name][0] - len(tensors_[name].axes)) for name in self.inputs]
        self._fixed_axes = [
            (tensor.name, number - len(tensor.axes))
            for tensor in split.program.inputs
            if tensor.name in self.fixed
            for number, axis in enumerate(tensor.axes)
            if isinstance(axis.extent, ir.Size) and axis.extent.coordinate == split.row
        ]

        # Where each sequence may have its own length, the axis of each tensor that tells them apart.
        apart = self._is_data and stepping.shared is None
        self._sequences = self._batch(None) if apart else {}

    # ----------------------------------------------------------------------------------- calls

    def prefill(
        self,
        /,
        *arrays: Any,
        capacity: int | None = None,
        lengths: Sequence[int] | None = None,
        backend: str | None = None,
        **named: Any,
    ) -> tuple[Any, Any]:
        """The state after these positions, and the outputs at them. Arrays are given as to the program, without those
        that were given before. There is room for `capacity` positions before anything has to be moved: where
        `ix.incremental` has made room, not for more than that.

        `lengths` are those of the sequences of a batch, where they differ: what stands behind the end of one is not
        looked at, and its outputs there are 0."""
        check_capacity(capacity)
        names = tuple(name for name in self.program.inputs if name not in self._weights)
        given = {**self._layouts.of(self._weights), **self._named(names, arrays, named)}
        missing = [name for name in self.program.inputs if name not in given]
        if missing:
            raise error("IX501", f"the input `{missing[0]}` is missing", "give it here, or to `ix.incremental`")
        if self._is_data:
            check_asked_room(self, capacity)
            with _no_gradients(given.values()):
                return first_pass_in_room(self, given, lengths, backend)
        if lengths is None:
            state, found = self._prefill(given, capacity, backend)
            return state, self._packed(found)
        batch = self._batch(None)
        lengths = lengths_of(lengths, np.shape(given[self.inputs[0]])[batch[self.inputs[0]]], self._length(given))
        along = dict(self._counted)
        parts, outputs = first_pass(lambda call: self._prefill(call, capacity, backend), given, lengths, batch, along)
        return Ragged(parts, None), self._packed(self._assembled(outputs, [rows for _, rows in parts], batch))

    def _prefill(self, given: dict[str, Any], capacity: int | None, backend: str | None) -> tuple[State, Any]:
        with _no_gradients(given.values()):
            kept, found = self._first_kept(given, backend)
            return self._first_state(kept, given, (self._length(given),), capacity, backend), found

    def _first_kept(self, given: dict[str, Any], backend: str | None) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The rows that are kept of a call's positions, by their tensor, and the outputs at them."""
        length = self._length(given)
        call = dict(given)
        for name, axis in self._fixed_axes:
            call[name] = rows_of(call[name], axis, 0, length)
        found = self._first_pass(call, given, length, backend)
        kept = {**call, **dict(zip(self._given, found, strict=True))}
        return kept | {name: kept[end.name] for name, end in self._split.ends.items() if end.name in kept}, found

    def _assembled(self, outputs: list[Any], places: list[tuple[int, ...]], batch: dict[str, int]) -> tuple[Any, ...]:
        """The outputs of all sequences."""
        result = []
        for number, name in enumerate(self._wanted):
            axes = [axis - len(self._split.program.tensors[name].axes) for axis in self._split.along[name]]
            result.append(assembled([found[number] for found in outputs], places, batch[name], axes))
        return tuple(result)

    def _batch(self, along: str | None) -> dict[str, int]:
        """The axis, counted from the end, that each tensor has of a coordinate: of the first before the positions."""
        extent = _leading(self._split, self._weights, along)
        if extent is None:
            what = "has a coordinate before its positions" if along is None else f"has `{along}` before its positions"
            raise error("IX515", f"no input {what}: there are no sequences to tell apart", None)
        found = {
            tensor.name: number - len(tensor.axes)
            for tensor in self._split.program.tensors.values()
            for number, axis in reversed(tuple(enumerate(tensor.axes)))
            if axis.extent == extent
        }
        found |= {memory.scale: found[memory.tensor] + 1 for memory in self._memories if memory.scale}
        shared = [name for name in (*self.inputs, *self._wanted) if name not in found]
        if shared:
            message = f"`{shared[0]}` has no `{shown(extent)}`: all sequences share it"
            raise error("IX515", message, None)
        return found

    def _first_pass(
        self, call: dict[str, Any], fixed: dict[str, Any], length: int, backend: str | None
    ) -> tuple[Any, ...]:
        """Every definition that is wanted or kept, at the positions of a call. A program whose first cases stand at
        fixed positions says nothing of fewer: it is given zeros there, which earlier positions do not hear."""
        if length >= self._least:
            # Of no positions nothing is read: but for totals, which there are then too, it would be.
            alone = [self._given] if length else [(name,) for name in self._given]
            return tuple(one for names in alone for one in self._first(outputs=names, backend=backend, **call))
        tensors_, along = self._split.program.tensors, self._split.along
        for name, axis in self._counted:
            call[name] = rows_of(with_room(call[name], axis, length, self._least), axis, 0, self._least)
        for name, axis in self._fixed_axes:
            call[name] = rows_of(fixed[name], axis, 0, self._least)
        result = []
        for name, array in zip(self._given, self._whole(outputs=self._given, backend=backend, **call), strict=True):
            for number in along[name]:
                offset = self._split.offset[name] if number == self._split.axis.get(name) else 0
                array = rows_of(array, number - len(tensors_[name].axes), 0, length + offset)
            result.append(array)
        return tuple(result)

    def step(self, /, *arrays: Any, state: State | Ragged | None = None, **named: Any) -> tuple[Any, Any]:
        """The state after some more positions, and the outputs at them. `state` is the last argument, or given by
        name; it stays what it is. Arrays are those that have positions, in the order of `inputs`, or by name."""
        if state is None and arrays and isinstance(arrays[-1], State | Ragged):
            *rest, state = arrays
            arrays = tuple(rest)
        if not isinstance(state, State | Ragged):
            raise error("IX515", "a step needs the state of a `prefill` or of a step before", "`step(x, state)`")
        given = self._named(self.inputs, arrays, named) if named or len(arrays) != len(self.inputs) else None
        new = dict(zip(self.inputs, arrays, strict=True)) if given is None else given
        if isinstance(state, Ragged):
            batch = self._batch(state._along)
            after, outputs = step_each(self._one_step, new, state, batch)
            return after, self._packed(self._assembled(outputs, [rows for _, rows in state._parts], batch))
        result, found = self._one_step(new, state)
        return result, self._packed(found)

    def _one_step(self, new: dict[str, Any], state: State) -> tuple[State, Any]:
        if state._decoder is not self:
            raise error("IX515", "this state is of another decoder", "step from the states of this decoder's `prefill`")
        count = self._length(new)
        state._check()
        check_room(self, state.length + count)
        self._layouts.renew(self._weights)
        with _no_gradients(chain(new.values(), state._fixed.values())):
            if not state.length and not count:  # Nothing is there yet: a first position can be read by none.
                return state, self._first_kept({**new, **state._fixed}, state._backend)[1]
            known = replayed(self, new, state, count) if self.capacity is not None else None
            after, found = known or self._run_step(new, state, count)
            after._follows(state, new)
            return after, found

    def _run_step(self, new: dict[str, Any], state: State, count: int) -> tuple[State, Any]:
        values = {**new, **state._rows(count)}
        if self._pools is not None:
            values |= tables_in_room(self, state._fixed, state.length + count, state._store.room)
        found = self._stepped(state._fixed, values, state._before(), state._backend)
        after = state._after(count, found[len(self._wanted) :])
        return after, without_room(self, found, after.lengths, after._store.room) if self._is_data else found

    def _stepped(
        self, fixed: dict[str, Any], values: dict[str, Any], before: Any, backend: str | None, function: Any = None
    ) -> tuple[Any, ...]:
        """The results of a step: what is wanted, then what is kept. Where a `function` is known for it, it is that."""
        given = self._step_arguments(fixed, values, before)
        found = function(*given) if function else self._caller.call(given, {}, None, backend, False, True)
        if self._again is not None:
            found = found if len({*self._again}) > 1 else (found,)
            return tuple(found[place] for place in self._again)
        return found if len(self._wanted) + len(self._memories) > 1 else (found,)

    def _step_arguments(self, fixed: dict[str, Any], values: dict[str, Any], before: Any) -> tuple[Any, ...]:
        """The arguments of a step, in the order of its inputs."""
        if self._stepping.before is not None:
            values[self._stepping.before] = before
        arguments = self._arguments(fixed)
        for name, value in values.items():
            if name in self._takes:
                arguments[self._takes[name]] = value
        return tuple(arguments)

    def _repeated(self) -> Repeated:
        """The inputs of steps that stay what they are, and those that grow."""
        held = tuple(place for name, place in self._takes.items() if name in self._weights)
        copied = frozenset(self._takes[name] for name in self._layouts.orders if name in self._takes)
        return Repeated(held, {self._takes[memory.past]: memory.axis for memory in self._growing}, copied)

    def _arguments(self, fixed: dict[str, Any]) -> list[Any]:
        """The arguments of a step, with those that stay what they are in their places."""
        if self._placed[0] is not fixed:
            self._placed = fixed, [fixed.get(name) for name in self._takes]
        return self._placed[1].copy()

    def _named(self, names: tuple[str, ...], arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Each input with its array."""
        if len(arrays) > len(names):
            raise error("IX501", f"{len(arrays)} arrays for {len(names)} inputs", f"pass {', '.join(names) or 'none'}")
        found = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name not in names or name in found:
                words = "is given twice" if name in found else "is no input of this call"
                raise error("IX501", f"`{name}` {words}", f"it takes {', '.join(names)}")
            found[name] = value
        missing = [name for name in self.inputs if name not in found]
        if missing:
            help = f"pass {', '.join(self.inputs)}; what is known for all positions, give to `ix.incremental`"
            raise error("IX501", f"the input `{missing[0]}` is missing", help)
        return found

    def _length(self, given: dict[str, Any]) -> int:
        """The number of positions in a call."""
        for name, axis in self._counted:
            shape = np.shape(given[name])
            if len(shape) >= -axis:
                return int(shape[axis])
        return 0  # What is wrong with such an array, the call says.

    def _packed(self, found: Any) -> Any:
        return found[0] if self._alone else self._pack(*found[: len(self._wanted)])

    def _first_state(
        self,
        kept: dict[str, Any],
        given: dict[str, Any],
        lengths: tuple[int, ...],
        capacity: int | None,
        backend: str | None,
    ) -> State:
        tails = []
        for memory in self._memories:
            if memory.tensor in self._split.ends:
                tails.append(kept[memory.tensor])
            elif memory.rows is not None:
                rows = [length + memory.offset for length in lengths]
                batch = self._sequences.get(memory.tensor)
                tails.append(last_rows(kept[memory.tensor], memory.axis, rows, memory.rows, batch))
        reach = [whole.value(far, lambda leaf: self._known(leaf, kept)) for far in self._stepping.reach]
        growing = [memory for memory in self._memories if memory.rows is None]
        arrays = [array for memory in growing for array in rounded(kept[memory.tensor], memory.keep)]
        store = Store(self._growing, max(0, 0, *reach))
        if self._pools is not None:
            window = max(0, *reach) if reach else None
            store = Paged(self._pools, self._pools.begin(arrays, lengths, window), window)
        else:
            if self.capacity is not None:
                store = Room(self._growing, self.capacity, self._sequences)
            store.begin(arrays, lengths, capacity or 0)
        fixed = self._fixed_for_steps({name: given[name] for name in self.fixed}, kept.values())
        at = self._before(lengths, kept.values())
        return State(self, store, lengths, at, tuple(tails), fixed, backend)

    def _fixed_for_steps(self, fixed: dict[str, Any], like: Iterable[Any]) -> dict[str, Any]:
        """The inputs that stay the same, as steps take them: one object for all states that were given the same."""
        gpu = next((array.device for array in like if tensors.is_tensor(array) and array.is_cuda), None)
        latest, device, taken = self._latest
        same = device == gpu and latest.keys() == fixed.keys() and all(fixed[n] is value for n, value in latest.items())
        # An array of NumPy may have changed since, which nobody counts: it is copied again.
        if same and all(tensors.is_tensor(value) or np.isscalar(value) for value in fixed.values()):
            return taken
        taken = fixed if gpu is None or not self._is_data else on_device(self, fixed, gpu)
        self._latest = fixed, gpu, taken
        return taken

    def _before(self, lengths: tuple[int, ...], like: Iterable[Any]) -> Any:
        """The number of positions that are past, as a step takes it."""
        return wholes_like(lengths, like) if self._is_data else lengths[0]

    def _known(self, leaf: ir.Size | ir.Read, given: dict[str, Any]) -> int:
        """A size or a whole scalar of a call."""
        if isinstance(leaf, ir.Read):
            return int(given[leaf.tensor])
        places = [
            (tensor.name, number - len(tensor.axes))
            for tensor in self._split.program.inputs
            for number, axis in enumerate(tensor.axes)
            if axis.extent == leaf
        ]
        name, axis = places[0]
        return int(np.shape(given[name])[axis])

    @cached_property
    def step_program(self) -> Program:
        """The relation of a step, as a program: it takes what is past, and writes to none of its arrays."""
        program = self._stepping.program
        if self._whole is not self.program:
            found = split(self.program._program, self.along, self._weights, self._wanted)
            pages = None if self._stepping.paging is None else self._stepping.paging.size
            program = stepping_of(found, self._wanted, self._keep, self.capacity, self._weights, pages).program
        inputs = tuple(replace(tensor, owned=False, counts=False) for tensor in program.inputs)
        return derived_program(self.program, replace(program, inputs=inputs), "step", self._said)

    @property
    def text(self) -> str:
        """The text of the step."""
        return self.step_program.source_text

    def __repr__(self) -> str:
        return f"<indexical decoder ({', '.join(self.inputs)}) -> ({', '.join(self._wanted)})>"

    def __str__(self) -> str:
        return "\n".join(words(self))


# ------------------------------------------------------------------------------------- words


_NOTHING: Any = nullcontext()

# With as many numbers in its weights, what a step spends beside its products is little, and a function of its own is
# made after so many steps alone: it takes as long as some steps do.
_MANY, _LATE = 1 << 25, 1024


def _no_gradients(values: Iterable[Any]) -> Any:
    """PyTorch records nothing for a way back: decoding has none."""
    if not any(map(tensors.is_tensor, values)):
        return _NOTHING
    torch = tensors.load_torch()
    return torch.no_grad() if torch.is_grad_enabled() else _NOTHING


def error(code: str, message: str, help: str | None) -> CallError:
    return CallError([Diagnostic(code, message, help=help)])
