"""Decoding, derived: a program along positions, as a pass over those that are given and a step for further ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from .api import Program
from .calculus import Told, derived_program, known_program
from .checker.names import counted
from .diagnostics import CallError, Diagnostic
from .ir import nodes as ir
from .ir import whole
from .ir.text import shown
from .ir.types import DTYPES_BY_NAME
from .plan.steps import WIDTH
from .records import dataclass
from .run import tensors
from .run.asked import packed
from .run.calling import Caller
from .run.growing import last_rows, rows_of, with_room
from .run.stores import SPARE, Store, most_rows
from .transform.causality import split
from .transform.incremental import Stepping, step_of
from .transform.memory import Memory
from .transform.past import Split, Unsplit


def incremental(
    program: Told, /, along: str, outputs: str | Iterable[str] | None = None, **weights: Any
) -> Decoder:
    """The program, one position after another: `prefill` takes those that are there, `step` one more or a few.

    `along` is a coordinate of the positions, or their space. `weights` are inputs that stay what they are, by name:
    they need not be given in every call. One that has positions, such as a table of embeddings, is there for all of
    them. The parameters of an `ix.nn.Module` are its weights.

    Raises `ix.Error` where a position depends on one after it, with the read and the two positions.
    """
    module: Any = program
    if isinstance(getattr(module, "program", None), Program):
        weights = {name: getattr(module, name) for name in module.given} | weights
        outputs = module.outputs if outputs is None else outputs
        program = module.program
    known = known_program(program)
    for name in weights:
        if name not in known.inputs:
            raise _error("IX501", f"no input is called `{name}`", f"this program takes {', '.join(known.inputs)}")
    wanted = known.wanted(outputs)
    try:
        found = split(known._program, along, weights.keys(), wanted)
        stepping = step_of(found, wanted)
    except Unsplit as problem:
        raise CallError([Diagnostic("IX518", str(problem), problem.labels, help=problem.help)]) from None
    alone = isinstance(outputs, str) or (outputs is None and len(wanted) == 1)
    return Decoder(known, along, found, stepping, wanted, alone, weights)


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
    ) -> None:
        self.program, self.along = program, along
        self._split, self._stepping, self._wanted, self._alone = split, stepping, wanted, alone
        self._weights = weights
        self._memories = stepping.memories
        self._growing = tuple(memory for memory in self._memories if memory.rows is None)
        kept = tuple(m.tensor for m in self._memories if m.tensor not in program.inputs)
        self._given = tuple(dict.fromkeys((*wanted, *kept)))
        outputs = (*wanted, *(memory.after for memory in self._memories))
        self._step = derived_program(program, replace(stepping.program, outputs=outputs), "step", (along, "in place"))
        self._caller = Caller(self._step._engine, by_sizes=False)
        self._pack = packed(wanted)
        self._least = split.least
        # The inputs that are given for new positions, in their order; all others stay what they were.
        self.inputs = tuple(t.name for t in split.program.inputs if split.along[t.name] and t.name not in weights)
        self.fixed = tuple(name for name in program.inputs if name not in self.inputs)
        self._fixed_axes = [
            (tensor.name, number - len(tensor.axes))
            for tensor in split.program.inputs
            if tensor.name in self.fixed
            for number, axis in enumerate(tensor.axes)
            if isinstance(axis.extent, ir.Size) and axis.extent.coordinate == split.row
        ]

    # ----------------------------------------------------------------------------------- calls

    def prefill(
        self,
        /,
        *arrays: Any,
        capacity: int | None = None,
        backend: str | None = None,
        **named: Any,
    ) -> tuple[State, Any]:
        """The state after these positions, and the outputs at them. Arrays are given as to the program, without those
        that were given before. There is room for `capacity` positions before anything has to be moved."""
        names = tuple(name for name in self.program.inputs if name not in self._weights)
        given = {**self._weights, **self._named(names, arrays, named)}
        missing = [name for name in self.program.inputs if name not in given]
        if missing:
            raise _error("IX501", f"the input `{missing[0]}` is missing", "give it here, or to `ix.incremental`")
        fixed = {name: given[name] for name in self.fixed}
        length = self._length(given)
        call = dict(given)
        for name, axis in self._fixed_axes:
            call[name] = rows_of(call[name], axis, 0, length)
        with _no_gradients(call.values()):
            found = self._first_pass(call, fixed, length, backend)
            kept = {**call, **dict(zip(self._given, found, strict=True))}
            state = self._first_state(kept, fixed, length, capacity, backend)
        return state, self._packed(found)

    def _first_pass(
        self, call: dict[str, Any], fixed: dict[str, Any], length: int, backend: str | None
    ) -> tuple[Any, ...]:
        """Every definition that is wanted or kept, at the positions of a call. A program whose first cases stand at
        fixed positions says nothing of fewer: it is given zeros there, which earlier positions do not hear."""
        if length >= self._least:
            found: tuple[Any, ...] = self.program(outputs=self._given, backend=backend, **call)
            return found
        tensors_, along = self._split.program.tensors, self._split.along
        for name in self.inputs:
            axis = along[name][0] - len(tensors_[name].axes)
            call[name] = rows_of(with_room(call[name], axis, length, self._least), axis, 0, self._least)
        for name, axis in self._fixed_axes:
            call[name] = rows_of(fixed[name], axis, 0, self._least)
        result = []
        for name, array in zip(self._given, self.program(outputs=self._given, backend=backend, **call), strict=True):
            for number in along[name]:
                offset = self._split.offset[name] if number == self._split.axis.get(name) else 0
                array = rows_of(array, number - len(tensors_[name].axes), 0, length + offset)
            result.append(array)
        return tuple(result)

    def step(self, /, *arrays: Any, state: State | None = None, **named: Any) -> tuple[State, Any]:
        """The state after some more positions, and the outputs at them. `state` is the last argument, or given by
        name; it stays what it is. Arrays are those that have positions, in the order of `inputs`, or by name."""
        if state is None and arrays and isinstance(arrays[-1], State):
            *rest, state = arrays
            arrays = tuple(rest)
        if not isinstance(state, State) or state._decoder is not self:
            raise _error("IX515", "a step needs the state of a `prefill` or of a step before", "`step(x, state)`")
        given = self._named(self.inputs, arrays, named) if named or len(arrays) != len(self.inputs) else None
        new = dict(zip(self.inputs, arrays, strict=True)) if given is None else given
        count = self._length(new)
        state._check()
        with _no_gradients((*new.values(), *state._fixed.values())):
            values = {**state._fixed, **new, **state._rows(count)}
            if self._stepping.before is not None:
                values[self._stepping.before] = state.length
            arguments = tuple(values[name] for name in self._step.inputs)
            found = self._caller.call(arguments, {}, None, state._backend, False, True)
            found = found if len(self._step.outputs) > 1 else (found,)
            result = state._after(count, found[len(self._wanted) :])
        return result, self._packed(found)

    def _named(self, names: tuple[str, ...], arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Each input with its array."""
        if len(arrays) > len(names):
            raise _error("IX501", f"{len(arrays)} arrays for {len(names)} inputs", f"pass {', '.join(names) or 'none'}")
        found = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name not in names or name in found:
                words = "is given twice" if name in found else "is no input of this call"
                raise _error("IX501", f"`{name}` {words}", f"it takes {', '.join(names)}")
            found[name] = value
        missing = [name for name in self.inputs if name not in found]
        if missing:
            raise _error("IX501", f"the input `{missing[0]}` is missing", f"pass {', '.join(self.inputs)}")
        return found

    def _length(self, given: dict[str, Any]) -> int:
        """The number of positions in a call."""
        for name in self.inputs:
            # A leading axis may stand for several: it is counted from the end.
            axis = self._split.along[name][0] - len(self._split.program.tensors[name].axes)
            shape = np.shape(given[name])
            if len(shape) >= -axis:
                return int(shape[axis])
        return 0  # What is wrong with such an array, the call says.

    def _packed(self, found: Any) -> Any:
        return found[0] if self._alone else self._pack(*found[: len(self._wanted)])

    def _first_state(
        self, kept: dict[str, Any], fixed: dict[str, Any], length: int, capacity: int | None, backend: str | None
    ) -> State:
        tails = []
        for memory in self._memories:
            if memory.rows is not None:
                tails.append(last_rows(kept[memory.tensor], memory.axis, length + memory.offset, memory.rows))
        reach = [whole.value(far, lambda leaf: self._known(leaf, kept)) for far in self._stepping.reach]
        store = Store(self._growing, max(0, 0, *reach))
        store.begin([kept[memory.tensor] for memory in self._growing], length, max(length, capacity or 0))
        return State(self, store, length, tuple(tails), fixed, backend)

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

    # ----------------------------------------------------------------------------------- words

    def _most_rows(self, memory: Memory) -> float:
        """The rows that are ever held of what is not kept of all positions, where steps are of one."""
        if memory.rows is not None:
            return memory.rows
        try:
            return most_rows(max(whole.value(far, self._told) for far in self._stepping.reach))
        except whole.Unknown:
            return math.inf

    def _told(self, leaf: ir.Size | ir.Read) -> int:
        if isinstance(leaf, ir.Read) and leaf.tensor in self._weights:
            return int(self._weights[leaf.tensor])
        if isinstance(leaf, ir.Size) and leaf in self._sizes():
            return self._sizes()[leaf]
        raise whole.Unknown

    def _sizes(self) -> dict[ir.Expr, int]:
        """The sizes that the weights tell."""
        found: dict[ir.Expr, int] = {}
        for tensor in self._split.program.inputs:
            if tensor.name in self._weights and len(tensor.axes) == np.ndim(self._weights[tensor.name]):
                pairs = zip(tensor.axes, np.shape(self._weights[tensor.name]), strict=True)
                found |= {axis.extent: size for axis, size in pairs if axis.coordinate != self._split.row}
        return found

    def _width(self) -> tuple[int, str]:
        """The bytes of a number, and its dtype: those of the weights, or 4."""
        for value in self._weights.values():
            name = str(getattr(value, "dtype", "")).removeprefix("torch.")
            if "float" in name and name in DTYPES_BY_NAME:
                return WIDTH[DTYPES_BY_NAME[name]], DTYPES_BY_NAME[name]
        return 4, "f32"

    @cached_property
    def step_program(self) -> Program:
        """The relation of a step, as a program: it takes what is past, and writes to none of its arrays."""
        inputs = tuple(replace(tensor, owned=False) for tensor in self._stepping.program.inputs)
        return derived_program(self.program, replace(self._stepping.program, inputs=inputs), "step", (self.along,))

    @property
    def text(self) -> str:
        """The text of the step."""
        return self.step_program.source_text

    def __repr__(self) -> str:
        return f"<indexical decoder ({', '.join(self.inputs)}) -> ({', '.join(self._wanted)})>"

    def __str__(self) -> str:
        return "\n".join(_words(self))


@dataclass(eq=False)
class State:
    """What is kept of the positions so far. It is a value: a step makes another one, and this stays what it is.

    States share their arrays: a step writes behind the rows of the state that it is made from. A second step from the
    same state copies them, so that neither changes the other. `back_to` gives up later positions instead: states that
    have them can no longer be used.
    """

    _decoder: Decoder
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
            raise _error("IX515", message, "keep the state that `back_to` gives")

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
        self._store.take(self.length, count, [array for memory, array in pairs if memory.rows is None])
        tails = tuple(array for memory, array in pairs if memory.rows is not None)
        return State(self._decoder, self._store, self.length + count, tails, self._fixed, self._backend)

    def back_to(self, length: int) -> State:
        """The state after the first positions, so many; those after them are given up."""
        self._check()
        if not 0 <= length <= self.length:
            raise _error("IX515", f"a state of {self.length} positions cannot go back to {length}", None)
        if self._tails and length < self.length:
            names = ", ".join(f"`{memory.tensor}`" for memory in self._decoder._memories if memory.rows is not None)
            message = f"of {names} only the last rows are kept: earlier ones cannot be gone back to"
            raise _error("IX515", message, "hold on to the earlier state itself: it stays what it is")
        if not self._store.goes_back_to(length):
            message = f"position {length} reads rows that have left their window of {self._store.reach}"
            raise _error("IX515", message, f"{SPARE} positions can always be gone back, further ones not")
        self._store.cuts.append(length)
        return State(self._decoder, self._store, length, self._tails, self._fixed, self._backend)

    def __repr__(self) -> str:
        return f"<state after {self.length} positions>"


# ------------------------------------------------------------------------------------- words


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _no_gradients(values: Iterable[Any]) -> Any:
    """PyTorch records nothing for a way back: decoding has none."""
    return tensors.load_torch().no_grad() if any(map(tensors.is_tensor, values)) else _Nothing()


def _words(decoder: Decoder) -> Iterable[str]:
    split, tensors_ = decoder._split, decoder._split.program.tensors
    sizes = decoder._sizes()
    width, dtype = decoder._width()
    yield f"{', '.join(decoder._wanted)}: one position of `{decoder.along}` after another"
    totals: dict[str, int] = {}
    fixed: dict[str, float] = {}
    lines = []
    for memory in decoder._memories:
        rows_at = split.axis[memory.tensor]
        extents = [axis.extent for n, axis in enumerate(tensors_[memory.tensor].axes) if n != rows_at]
        known = [sizes[extent] for extent in extents if extent in sizes]
        letters = " * ".join(shown(extent) for extent in extents if extent not in sizes)
        own = math.prod(known)
        if memory.window or memory.rows is not None:
            far = " or ".join(map(shown, decoder._stepping.reach)) if memory.window else f"{memory.rows}"
            rows = f", of the last {counted(int(far), 'position') if far.isdigit() else f'`{far}` positions'} alone"
            fixed[letters] = fixed.get(letters, 0) + own * decoder._most_rows(memory)
        else:
            rows, totals[letters] = "", totals.get(letters, 0) + own
        lines.append(f"  {memory.tensor}: {_product(own, letters)} numbers{rows}")
    yield "kept of each position:" if lines else "nothing is kept"
    yield from lines
    if totals:
        bytes_ = " + ".join(_product(number * width, letters) for letters, number in totals.items())
        yield f"in all {bytes_} bytes a position, in {dtype}"
    if fixed and all(map(math.isfinite, fixed.values())):
        bytes_ = " + ".join(_product(int(number) * width, letters) for letters, number in fixed.items())
        yield f"{'and ' if totals else ''}at most {bytes_} bytes however many positions there are, in {dtype}"
    if split.again:
        yield f"computed again in every step: {', '.join(split.again)}"
    local = [let.name for let in split.program.lets if let.name in split.axis and not let.hidden]
    yield f"computed for new positions alone: {', '.join(name for name in local if name not in split.kept)}"


def _product(number: int, letters: str) -> str:
    return letters if letters and number == 1 else f"{number:,} * {letters}" if letters else f"{number:,}"


def _error(code: str, message: str, help: str | None) -> CallError:
    return CallError([Diagnostic(code, message, help=help)])
