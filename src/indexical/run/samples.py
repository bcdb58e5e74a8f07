"""Random arrays for the inputs of a program."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir import whole
from ..ir.types import NUMPY_NAMES, STORED_ONLY, Coordinate, Dtype
from ..records import dataclass

DEFAULT_SIZE = 3

# The points of an array whose bytes NumPy can still count, though it has none of them in memory.
_COUNTED = 2**59


@dataclass(frozen=True, slots=True)
class Sample:
    """Arrays by input, and the coordinates whose sizes may be chosen."""

    arrays: dict[str, Any]
    coordinates: tuple[str, ...]


def random_arrays(
    program: ir.Program, given: Mapping[str, Any], chosen: Mapping[str, int], seed: int
) -> tuple[Sample, dict[str, int]]:
    """An array for every input that is not given, and the sizes that had to be assumed.

    Real inputs are normal, whole ones index any axis, Booleans are fair coins, a whole scalar is 1.
    """
    sizes, names, assumed = _sizes(program, given, chosen)
    generator = np.random.default_rng(seed)
    arrays = {
        tensor.name: _draw(tensor, sizes, given, generator) for tensor in program.inputs if tensor.name not in given
    }
    return Sample(arrays, names), assumed


def stand_ins(program: ir.Program, chosen: Mapping[str, int], dtype: Dtype) -> tuple[Sample, dict[str, int]]:
    """Arrays of zeros that take no memory, for every input, and the sizes that had to be assumed. A scalar is 1."""
    sizes, names, assumed = _sizes(program, {}, chosen)
    arrays: dict[str, Any] = {}
    for tensor in program.inputs:
        usual = dtype if tensor.kind == "real" else "i64" if tensor.kind == "whole" else "bool"
        zero = np.zeros((), NUMPY_NAMES[tensor.dtype or usual])
        one = {"bool": True, "whole": 1, "real": 1.0}[tensor.kind]
        arrays[tensor.name] = np.broadcast_to(zero, _shape(tensor, sizes, {}, _COUNTED)) if tensor.axes else one
    return Sample(arrays, names), assumed


def _sizes(
    program: ir.Program, given: Mapping[str, Any], chosen: Mapping[str, Any]
) -> tuple[dict[Coordinate, int], tuple[str, ...], dict[str, int]]:
    """The size of every coordinate, their names, and which had to be assumed. One without a size takes that of
    another of its space, so that `i=6` also sizes the keys."""
    for name, size in chosen.items():
        if not isinstance(size, int) or size < 0:
            message = f"`{name}={size!r:.40}` is no size: sizes are whole numbers from 0 on"
            raise CallError([Diagnostic("IX515", message)])
    sizes: dict[Coordinate, int] = {}
    assumed: dict[str, int] = {}
    for tensor in program.inputs:
        if tensor.name in given:
            try:
                shape = np.shape(given[tensor.name])
            except ValueError:  # Rows of different lengths: whoever takes the array says so.
                continue
            for axis, length in zip(reversed(tensor.axes), reversed(shape), strict=False):
                if not axis.coordinate.rest:
                    sizes.setdefault(axis.coordinate, length)
    open_axes = [
        axis.coordinate
        for tensor in program.inputs
        if tensor.name not in given
        for axis in tensor.axes
        if isinstance(axis.extent, ir.Size) and axis.coordinate not in sizes
    ]
    by_space = {c.space: chosen[c.name] for c in open_axes if c.space is not None and c.name in chosen}
    for coordinate in dict.fromkeys(open_axes):
        usual = by_space.get(coordinate.space or "", DEFAULT_SIZE)
        size = 1 if coordinate.rest else chosen.get(coordinate.name, usual)
        if coordinate.name not in chosen and not coordinate.rest:
            assumed[coordinate.name] = size
        sizes[coordinate] = size
    names = tuple(dict.fromkeys(axis.coordinate.name for t in program.inputs for axis in t.axes))
    return sizes, names, assumed


def _shape(tensor: ir.Input, sizes: Mapping[Coordinate, int], given: Mapping[str, Any], most: int) -> tuple[int, ...]:
    """The shape of an input; one of more points than `most` is refused."""

    def lookup(leaf: ir.Size | ir.Read) -> int:
        if isinstance(leaf, ir.Size):
            return sizes[leaf.coordinate]
        return int(given.get(leaf.tensor, 1))

    shape = tuple(max(0, whole.value(axis.extent, lookup)) for axis in tensor.axes if not axis.coordinate.rest)
    if prod(shape) > most:
        message = f"`{tensor.name}` would have {prod(shape):,} points, too many for this machine"
        raise CallError([Diagnostic("IX507", message, (Label(tensor.span),), help="choose smaller sizes")])
    return shape


def _draw(
    tensor: ir.Input, sizes: Mapping[Coordinate, int], given: Mapping[str, Any], generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    from .kernel import MEMORY  # Plans need none of what a call needs.

    shape = _shape(tensor, sizes, given, MEMORY // 8)
    if tensor.kind == "bool":
        return generator.random(shape) < 0.5
    if tensor.kind == "whole":
        most = max(1, min(sizes.values(), default=1))
        most = min(most, 128) if tensor.dtype in STORED_ONLY else most
        drawn = generator.integers(0, most, shape) if shape else np.array(1)
        return drawn.astype(NUMPY_NAMES[tensor.dtype or "i64"])
    return generator.standard_normal(shape).astype(NUMPY_NAMES[tensor.dtype or "f64"])
