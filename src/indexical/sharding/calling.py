"""A call of a program that is split: the parts that a rank was given, cut into blocks, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..diagnostics import CallError, Diagnostic
from ..ir import nodes as ir
from ..ir.dtypes import definition_dtypes
from ..ir.types import DTYPES_BY_NAME, NUMPY_NAMES, Dtype
from ..run.asked import packed
from ..run.bind import Bound, bind
from .moving import Block, Values
from .running import Run
from .units import Layout

if TYPE_CHECKING:
    from .spread import Spread

# The figures that processes compare before a call are padded to a multiple of this.
_FIGURES = 1024


def call(spread: Spread, given: Mapping[str, Any]) -> Any:
    """The outputs on this rank."""
    arrays = _tensors(spread, given)
    bound = _agreed(spread, arrays)
    layout, programs = spread.layout(bound)
    whole = {t.name for t in spread.program._program.inputs if not t.axes and t.kind == "whole"}
    names = [name for name in spread.inputs if name not in whole]
    learned = tuple(name for name in names if arrays[name].requires_grad) if torch.is_grad_enabled() else ()
    dtypes, _ = definition_dtypes(layout.program, {t.name: bound.dtypes[t.name] for t in layout.program.inputs})
    run = Run(layout, programs, spread.carrier, {**dtypes, **bound.dtypes}, learned)
    found = _Call.apply(  # type: ignore[no-untyped-call]
        run, names, spread.outputs, *(arrays[name] for name in names)
    )
    return found[0] if len(spread.outputs) == 1 else packed(spread.outputs)(*found)


class _Call(torch.autograd.Function):
    """The whole call as one step for PyTorch, whose way back goes through the same units."""

    @staticmethod
    def forward(ctx: Any, run: Run, names: list[str], outputs: tuple[str, ...], *arrays: Any) -> tuple[Any, ...]:
        inputs = {name: _blocks(run, name, array.detach()) for name, array in zip(names, arrays, strict=True)}
        run.forward(inputs)
        ctx.run, ctx.names, ctx.outputs = run, names, outputs
        found = tuple(_joined(run, name, run.values[name]) for name in outputs)
        ctx.mark_non_differentiable(*(x for x in found if not x.is_floating_point()))
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        run: Run = ctx.run
        given = {}
        for name, cotangent in zip(ctx.outputs, cotangents, strict=True):
            if name in run.learned:
                given[name] = _blocks(run, name, cotangent)
        wanted = [name for name in ctx.names if name in run.learned]
        found = run.backward(given, wanted)
        gradients = {name: _joined(run, name, values) for name, values in found.items()}
        return (None, None, None, *(gradients.get(name) for name in ctx.names))


def _tensors(spread: Spread, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as tensors."""
    result = {}
    for tensor in spread.program._program.inputs:
        value = given[tensor.name]
        if not isinstance(value, torch.Tensor):
            if tensor.axes:
                kind = type(value).__name__
                message = f"`{tensor.name}` is a {kind}: a program that is split takes PyTorch's tensors"
                raise CallError([Diagnostic("IX504", message, (), help="`torch.as_tensor` makes one")])
            value = torch.as_tensor(value, dtype=None if tensor.kind != "real" else _real(given))
        elif tensor.kind == "real" and not value.is_floating_point():
            value = value.to(torch.float64)
        result[tensor.name] = value
    return result


def _real(given: Mapping[str, Any]) -> Any:
    found = [x.dtype for x in given.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return max(found, key=lambda dtype: dtype.itemsize, default=torch.float64)


def _agreed(spread: Spread, arrays: Mapping[str, Any]) -> Bound:
    """The whole arrays that the parts of all ranks make up; an error on every rank, where they do not."""
    from .spread import digest

    shapes = {name: list(x.shape) for name, x in arrays.items()}
    said = [hash_of((str(x.dtype), x.dim(), x.requires_grad and torch.is_grad_enabled())) for x in arrays.values()]
    scalars = [int(x) for name, x in arrays.items() if x.dim() == 0 and not x.is_floating_point()]
    setting = f"{spread.mesh!r}{spread.coordinates!r}{spread.parameters!r}"
    figures = [digest(spread.program, setting), hash_of(scalars), *said]
    figures += [length for shape in shapes.values() for length in shape]
    figures += [0] * (-len(figures) % _FIGURES)
    problem = ""
    split = {name: spread._array_axes(name, len(shapes[name])) for name in arrays}
    for dimension in spread.mesh.names:
        everybody = spread.carrier.compared(figures, dimension)
        problem = problem or _differs(everybody, [*arrays])
        if len(everybody) > 1 and not problem:
            problem = _gather_shapes(spread, shapes, split, dimension, everybody)
    failed = int(bool(problem))
    for dimension in spread.mesh.names:
        failed = max(figures[0] for figures in spread.carrier.compared([failed], dimension))
    if failed:
        message = problem or "other ranks do not agree about this call"
        raise CallError(
            [Diagnostic("IX522", message, (), help="all ranks call the same program with parts of the same arrays")]
        )
    return _bound(spread.program._program, arrays, shapes)


def hash_of(said: object) -> int:
    """A number that differs for other words, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.sha256(repr(said).encode()).digest()[:7], "big")


def _differs(everybody: list[list[int]], names: list[str]) -> str:
    words = [
        "the program, or the way that it is split",
        "whole scalars",
        *(f"the dtype or number of axes of `{name}`, or in whether it has a gradient" for name in names),
    ]
    for number, what in enumerate(words):
        if len({figures[number] for figures in everybody}) > 1:
            return f"the ranks differ in {what}"
    return ""


def _gather_shapes(
    spread: Spread,
    shapes: dict[str, list[int]],
    split: Mapping[str, Mapping[int, str]],
    dimension: str,
    everybody: list[list[int]],
) -> str:
    """Lengthen axes that a dimension splits to what all ranks along it have. Where they do not fit: why."""
    at = 2 + len(shapes)
    mine = spread.carrier.rank(spread.carrier.owned[0])[spread.mesh.names.index(dimension)]
    for name, shape in shapes.items():
        for axis in range(len(shape)):
            lengths, here = [figures[at] for figures in everybody], f"axis {axis} of `{name}`"
            at += 1
            if split[name].get(axis) != dimension:
                if len(set(lengths)) > 1:
                    return f"{here} is {lengths} long on the ranks along `{dimension}`, which does not split it"
                continue
            whole = sum(lengths)
            points = spread.mesh.points(whole, dimension)
            right = [
                sum(points[block][1] - points[block][0] for block in spread.mesh.held_by(dimension, rank))
                for rank in range(len(lengths))
            ]
            if lengths != right:
                parts = f"{whole} points are split into {right}"
                return f"{here} is {lengths} long on the ranks along `{dimension}`: {parts}"
            assert shape[axis] == lengths[mine]
            shape[axis] = whole
    return ""


def _bound(program: ir.Program, arrays: Mapping[str, Any], shapes: Mapping[str, list[int]]) -> Bound:
    """The sizes and dtypes of a call with whole arrays; nothing of them is there but their shapes."""
    stand_ins: dict[str, Any] = {}
    given: dict[str, Dtype] = {}
    for tensor in program.inputs:
        array = arrays[tensor.name]
        dtype = DTYPES_BY_NAME[str(array.dtype).removeprefix("torch.")]
        if not tensor.axes:
            stand_ins[tensor.name] = np.asarray(array.detach().item(), NUMPY_NAMES[dtype])
        else:
            stand_ins[tensor.name] = np.broadcast_to(np.zeros((), NUMPY_NAMES[dtype]), tuple(shapes[tensor.name]))
        if dtype == "bf16":  # NumPy has no word for it.
            given[tensor.name] = dtype
    return bind(program, stand_ins, given)


def _places(layout: Layout, run: Run, name: str) -> list[tuple[int, str]]:
    return [(run.axis(name, dimension), dimension) for dimension in layout.homes[name]]


def _blocks(run: Run, name: str, array: Any) -> Values:
    """The part of an array that a rank has, cut into its blocks."""
    result: Values = {}
    for block in run.owned:
        piece = array
        for axis, dimension in _places(run.layout, run, name):
            start, length = _place(run, name, block, dimension)
            piece = piece.narrow(axis, start, length)
        result[block] = piece
    return result


def _place(run: Run, name: str, block: Block, dimension: str) -> tuple[int, int]:
    """The place where a block begins in the part of a rank along a dimension, and how many points it has there."""
    rows = run.layout.rows(name, dimension)
    mine = sorted({run.mesh.place(other, dimension) for other in run.owned})
    place = run.mesh.place(block, dimension)
    before = sum(rows[other][1] - rows[other][0] for other in mine if other < place)
    return before, rows[place][1] - rows[place][0]


def _joined(run: Run, name: str, values: Values) -> Any:
    """The part of a tensor that a rank has, put together of its blocks."""
    places = _places(run.layout, run, name)
    if not places or len(run.owned) == 1:
        return values[run.owned[0]]
    first = values[run.owned[0]]
    shape = list(first.shape)
    for axis, dimension in places:
        mine = {run.mesh.place(block, dimension): block for block in run.owned}
        shape[axis] = sum(_place(run, name, block, dimension)[1] for block in mine.values())
    result = first.new_zeros(shape)
    for block, piece in values.items():
        target = result
        for axis, dimension in places:
            target = target.narrow(axis, *_place(run, name, block, dimension))
        target.copy_(piece)
    return result
