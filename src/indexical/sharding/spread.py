"""A program on many machines, split by its coordinates."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any

from ..api import Program, compile
from ..checker.names import suggest
from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..ir.dtypes import definition_dtypes
from ..ir.types import KIND_OF, Dtype
from ..records import replace
from ..run.bind import Bound, bind
from ..run.samples import stand_ins
from ..source import Span
from .mesh import Mesh
from .moving import Carrier, dimensions_of, gathered, on_processes
from .planning import lay_out
from .prepared import Prepared, Split, input_axes, own_axes, prepare, with_copies
from .programs import Programs
from .sheet import SpreadPlan, plan_of
from .spaces import Kinds
from .units import Layout

# The longest wait for another process, in seconds: a year.
_LONGEST = 365 * 24 * 3600


def shard(
    program: Program | str | os.PathLike[str],
    mesh: Any,
    *,
    balanced: str | Sequence[str] = (),
    parameters: str | None = None,
    timeout: float = 60.0,
    **coordinates: str,
) -> Spread:
    """The program on many machines: `b="data", h="tensor", i="context"` splits every axis of the space of `b` along the
    dimension `data` of the mesh, and so on.

    The mesh is a `DeviceMesh` of PyTorch, in whose processes each rank passes its own part of every array; or a mapping
    such as `{"data": 2, "context": 4}`, which plans for so many machines and rehearses them in this process. Along a
    `balanced` dimension a rank has a block from the front and one from the back, so that causal programs give all ranks
    as much to do. Inputs that the dimension `parameters` does not split are cut along their last axis and gathered when
    they are needed. A mesh of JAX takes its arrays, split by `NamedSharding`s. A rank that does not answer for
    `timeout` seconds ends the call with an error.
    """
    known = program if isinstance(program, Program) else compile(program)
    found = dimensions_of(mesh)
    if found is None:
        raise _error(
            f"{mesh!r:.60} is no mesh with named dimensions",
            'pass `init_device_mesh("cpu", (2,), mesh_dim_names=("context",))`, or `{"context": 2}` to rehearse',
        )
    dimensions, has_processes = found
    for name, ranks in dimensions.items():
        if not _is_between(ranks, 1, 1 << 20) or ranks != int(ranks):
            raise _error(f"the dimension `{name}` has {ranks!r:.40} ranks", "each dimension has at least one")
    given: Any = balanced  # Whatever was passed, not only what may be.
    even = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    used = tuple(name for name in dimensions if name in {*coordinates.values(), parameters})
    _check(known, dimensions, coordinates, (*even, *(() if parameters is None else (parameters,))))
    whole = Mesh(used, tuple(int(dimensions[name]) for name in used), frozenset(even) & frozenset(used))
    if not _is_between(timeout, 0.001, _LONGEST):
        raise _error(f"a timeout of {timeout!r:.40} is no number of seconds", "write `timeout=60`")
    carrier = on_processes(mesh, whole, timeout) if has_processes else Carrier(whole, whole.everything)
    if carrier is None:
        raise _error("this process has no place in the mesh", "only the processes of the mesh call the program")
    if hasattr(mesh, "axis_names"):
        from .jax_ import OnDevices  # JAX is an extra.

        if even:
            raise _error("JAX gives each device one block: `balanced` needs two", "leave it out")
        return OnDevices(known, whole, carrier, dict(coordinates), parameters, mesh)
    return Spread(known, whole, carrier, dict(coordinates), parameters)


def _check(
    program: Program, dimensions: Mapping[str, int], coordinates: Mapping[str, str], others: Sequence[str]
) -> None:
    for name in (*coordinates.values(), *others):
        if name not in dimensions:
            shown = ", ".join(f"`{each}`" for each in dimensions) or "none"
            raise _error(f"the mesh has no dimension `{name}`", f"it has {shown}")
    kinds = Kinds(program._program)
    seen: dict[object, tuple[str, str]] = {}
    for name, dimension in coordinates.items():
        kind = kinds.named(program._program, name)
        if kind is None:
            letters = dict.fromkeys(a.coordinate.name for t in program._program.inputs for a in t.axes)
            close, _ = suggest(name, (*letters, *signature(shard).parameters), Span(program.ir.source, 0, 0))
            help = close or f"its inputs have {', '.join(letters)}"
            raise _error(f"`{name}` is no coordinate of this program", help)
        other, along = seen.setdefault(kind, (name, dimension))
        if along != dimension:
            raise _error(f"`{other}` and `{name}` are of one space, and cannot be split along two dimensions", None)
    if program._program.asserts:
        raise _error("this program has assertions, which are about whole arrays", "check them before it is split")


def _is_between(number: Any, least: float, most: float) -> bool:
    return isinstance(number, int | float) and least <= number <= most


def _error(message: str, help: str | None) -> CallError:
    return CallError([Diagnostic("IX515", message, (), help=help)])


class Spread:
    """A program that is split over a mesh. Call it with arrays: each rank with its own part of them."""

    def __init__(
        self, program: Program, mesh: Mesh, carrier: Carrier, coordinates: Mapping[str, str], parameters: str | None
    ) -> None:
        self.program, self.mesh, self.carrier = program, mesh, carrier
        self.coordinates, self.parameters = coordinates, parameters
        self._layouts: dict[object, tuple[Layout, Programs]] = {}
        self._prepared: Prepared | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in the order of the text."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what a call returns."""
        return self.program.outputs

    def __repr__(self) -> str:
        split = ", ".join(f"{name} by {dimension}" for name, dimension in self.coordinates.items())
        shape = " × ".join(f"{name} {ranks}" for name, ranks in zip(self.mesh.names, self.mesh.ranks, strict=True))
        return f"<indexical program ({', '.join(self.inputs)}) -> ({', '.join(self.outputs)}) on {shape}: {split}>"

    # ------------------------------------------------------------------------ layouts

    def _split_by(self, program: ir.Program, kinds: Kinds) -> Split:
        found = {kinds.named(program, name): dimension for name, dimension in self.coordinates.items()}
        return lambda kind: found.get(kind)

    def prepared(self) -> Prepared:
        """The program in the form in which it is cut."""
        if self._prepared is None:
            self._prepared = prepare(self.program._program, self.program.outputs, self._split_by)
        return self._prepared

    at_once = False

    def layout(self, bound: Bound) -> tuple[Layout, Programs]:
        """The layout for arrays of these sizes, and its programs."""
        scalars = {
            tensor.name: int(bound.arrays[tensor.name])
            for tensor in self.program._program.inputs
            if not tensor.axes and tensor.kind == "whole"
        }
        key = (tuple(sorted(bound.sizes.items())), tuple(sorted(bound.rests.items())), tuple(scalars.items()))
        if key not in self._layouts:
            prepared = self.prepared()
            layout = self._laid_out(prepared, bound, scalars)
            wholes = [n for n in self.outputs if not layout.homes[n].keys() >= set(self.axes(n).values())]
            if wholes:  # Every rank has all of it, and gives its own part.
                layout = self._laid_out(with_copies(prepared, wholes), bound, scalars)
            self._layouts[key] = layout, Programs(layout)
        return self._layouts[key]

    def _laid_out(self, prepared: Prepared, bound: Bound, scalars: Mapping[str, int]) -> Layout:
        split = self._split_by(prepared.program, prepared.kinds)
        layout = lay_out(prepared, self.mesh, split, bound.sizes, scalars, self.parameters, self.at_once)
        return replace(layout, rests=bound.rests)

    def axes(self, name: str) -> dict[int, str]:
        """The axes of an input or output that are split, each with its dimension."""
        prepared = self.prepared()
        split = self._split_by(prepared.program, prepared.kinds)
        tensor = prepared.program.tensors[name]
        if isinstance(tensor, ir.Input):
            found = input_axes(tensor, prepared.kinds, split, self.parameters)
        else:
            found = own_axes(tensor, prepared.kinds, split)
        return {axis: dimension for dimension, axis in found.items()}

    # ------------------------------------------------------------------------ plans

    def plan(self, /, *, dtype: Dtype = "f32", train: bool = True, **sizes: int) -> SpreadPlan:
        """The plan of a call: what each rank holds, what is sent in every step, and the memory of a rank. Sizes are
        given by coordinate, whole scalars by name; the way back is counted unless `train=False`."""
        plan = plan_of(*self._planned(dtype, sizes), train)
        return replace(plan, cheaper=tuple(self._cheaper(plan, dtype, sizes, train)))

    def _planned(self, dtype: Dtype, sizes: Mapping[str, int]) -> tuple[Layout, dict[str, Dtype]]:
        program = self.program._program
        scalars = {t.name for t in program.inputs if not t.axes}
        letters = {axis.coordinate.name for t in program.inputs for axis in t.axes}
        unknown = sizes.keys() - scalars - letters
        if unknown:
            known = ", ".join(sorted(letters | scalars))
            raise _error(f"`{min(unknown)}` is no size of this program", f"its inputs have {known}")
        if KIND_OF.get(dtype) != "real":
            reals = [name for name, kind in KIND_OF.items() if kind == "real"]
            raise _error(f"reals have no dtype `{dtype}`", f"choose from {', '.join(reals)}")
        arrays = stand_ins(program, {n: size for n, size in sizes.items() if n not in scalars}, dtype)[0].arrays
        for name in scalars & sizes.keys():
            arrays[name] = sizes[name]
        bound = bind(program, arrays, {t.name: dtype for t in program.inputs if t.kind == "real" and t.dtype is None})
        layout, _ = self.layout(bound)
        given = {t.name: bound.dtypes.get(t.name, dtype) for t in layout.program.inputs}
        return layout, {**given, **definition_dtypes(layout.program, given)[0]}

    def _cheaper(self, plan: SpreadPlan, dtype: Dtype, sizes: Mapping[str, int], train: bool) -> Iterator[str]:
        """Other coordinates to split by, with which less is sent and nothing is computed twice."""
        kinds = Kinds(self.program._program)
        taken = {kinds.named(self.program._program, name) for name in self.coordinates}
        letters = dict.fromkeys(a.coordinate.name for t in self.program._program.inputs for a in t.axes)
        for dimension in self.mesh.names:
            best: tuple[int, str] | None = None
            kept = {name: along for name, along in self.coordinates.items() if along != dimension}
            tried = set(taken)
            for letter in letters:
                kind = kinds.named(self.program._program, letter)
                if kind in tried or not kept.keys() < self.coordinates.keys():
                    continue
                tried.add(kind)
                other = Spread(self.program, self.mesh, self.carrier, {**kept, letter: dimension}, self.parameters)
                layout, dtypes = other._planned(dtype, sizes)
                if all(dimension in unit.varying for unit in layout.units) and _is_full(layout, dimension):
                    bytes = plan_of(layout, dtypes, train).bytes
                    best = min(best or (bytes, letter), (bytes, letter))
            if best is not None and best[0] < plan.bytes:
                gone = ", ".join(f"`{name}`" for name, along in self.coordinates.items() if along == dimension)
                figures = f"sends {best[0]} B in all, and this {plan.bytes} B"
                yield f"`{best[1]}` along {dimension} in place of {gone} {figures}"

    # ------------------------------------------------------------------------ parts

    def local(self, array: Any, name: str) -> Any:
        """The part of a whole array that this rank holds of an input or an output."""
        import torch

        for axis, dimension in self._array_axes(name, array.ndim).items():
            points = self.mesh.points(array.shape[axis], dimension)
            mine = sorted({self.mesh.place(block, dimension) for block in self.carrier.owned})
            pieces = [array.narrow(axis, points[b][0], points[b][1] - points[b][0]) for b in mine]
            array = pieces[0] if len(pieces) == 1 else torch.cat(pieces, axis)
        return array.contiguous()

    def whole(self, array: Any, name: str) -> Any:
        """The whole of an input or an output, on every rank, of the parts that the ranks hold; it has no gradient."""
        for axis, dimension in self._array_axes(name, array.ndim).items():
            array = gathered(self.carrier, array.detach(), axis, dimension)
        return array

    def _array_axes(self, name: str, rank: int) -> dict[int, str]:
        """The axes of an array that are split."""
        if name not in self.prepared().program.tensors:
            known = ", ".join((*self.inputs, *self.outputs))
            raise _error(f"`{name}` is no input or output", f"there are {known}")
        axes = self.prepared().program.tensors[name].axes
        lead = rank - len(axes) if axes and axes[0].coordinate.rest else 0
        return {axis + lead: dimension for axis, dimension in self.axes(name).items()}

    # ------------------------------------------------------------------------ calls

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """The parts of the outputs that this rank holds, of the parts of the inputs that it holds; with gradients.

        An output that no dimension splits is whole on every rank: a loss of it is the same on all of them, and is taken
        once. The gradient of an input that no dimension splits is whole on every rank too.
        """
        from .calling import call

        return call(self, self.program.arguments(arrays, named))


@cache
def digest(program: Program, said: str) -> int:
    """A number that differs for another program, or another way to split it."""
    text = repr((program._texts, said))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _is_full(layout: Layout, dimension: str) -> bool:
    """Whether every rank along a dimension has points of all that it splits."""
    split = [name for name, homes in layout.homes.items() if dimension in homes]
    return bool(split) and all(rows[1] > rows[0] for name in split for rows in layout.rows(name, dimension))
