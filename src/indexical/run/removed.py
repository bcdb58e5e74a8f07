"""Points that are not there: removed by a guard, or made of such points, found at all points at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir import nodes as ir
from ..ir.needs import members
from ..ir.types import Coordinate

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def from_zero(let: ir.Let, arrays: Arrays, sizes: Mapping[Coordinate, int]) -> Array:
    """A definition inside a step, with zeros for the steps before its first."""
    array = arrays[let.name]
    extents = [_vectorised(axis.extent, {}, sizes, arrays) for axis in let.axes]
    if array.ndim != len(extents) or any(extent is None for extent in extents):
        return array
    missing = [max(0, int(extent) - length) for extent, length in zip(extents, array.shape, strict=True)]
    return np.pad(array, [(count, 0) for count in missing]) if any(missing) else array


def removed_points(program: ir.Program, arrays: Arrays, sizes: Mapping[Coordinate, int]) -> dict[str, Array]:
    """The points of each definition that a guard on coordinates and on what is known removes, and those made of
    them."""
    found: dict[str, Array] = {}
    for order in program.order:
        for let in program.lets:
            if let.name in arrays and let.name in members(order):
                removed = _removed(let, arrays, sizes, found)
                if removed is not None and removed.any():
                    found[let.name] = removed
    return found


def _removed(let: ir.Let, arrays: Arrays, sizes: Mapping[Coordinate, int], known: Mapping[str, Array]) -> Array | None:
    """The points of a definition that are removed; None where nothing says so."""
    if len(let.clauses) > 1:
        return None
    array, clause = arrays[let.name], let.clauses[0]
    if not all(isinstance(slot, ir.Coord) for slot in clause.slots) or array.ndim != len(clause.slots):
        return None
    coordinates = (slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord))
    grids = dict(zip(coordinates, np.indices(array.shape), strict=True))
    kept = None if clause.guard is None else _vectorised(clause.guard, grids, sizes, arrays)
    absent = _absent(clause.body, grids, sizes, arrays, known)
    parts = [*([] if kept is None else [~kept]), *([] if absent is None else [absent])]
    return np.broadcast_to(np.logical_or.reduce(np.broadcast_arrays(*parts)), array.shape) if parts else None


def _absent(
    expr: ir.Expr,
    grids: Mapping[Coordinate, Any],
    sizes: Mapping[Coordinate, int],
    arrays: Arrays,
    known: Mapping[str, Array],
) -> Any:
    """The mask of points where an expression is made of a point that was removed; None where that is nowhere, or not
    known."""
    match expr:
        case ir.Normalize(guard=guard) if guard is not None:
            kept = _vectorised(guard, grids, sizes, arrays)
            return None if kept is None else ~kept
        case ir.Read(tensor, indices) if tensor in known and known[tensor].ndim == len(indices):
            places = _places(indices, known[tensor].shape, grids, sizes, arrays)
            return None if places is None else known[tensor][places]
        case ir.Map("*", arguments):
            parts = [_absent(argument, grids, sizes, arrays, known) for argument in arguments]
            some = [part for part in parts if part is not None]
            return np.logical_or.reduce(np.broadcast_arrays(*some)) if some else None
        case ir.Map("/" | "neg", (first, *_)):
            return _absent(first, grids, sizes, arrays, known)
        case _:
            return None


def _places(
    indices: tuple[ir.Expr, ...],
    shape: tuple[int, ...],
    grids: Mapping[Coordinate, Any],
    sizes: Mapping[Coordinate, int],
    arrays: Arrays,
) -> tuple[Array, ...] | None:
    """The places that a read has at all points; None where they are not known. An index may be out of bounds where
    another part of a guard fails: there it does not matter."""
    places = [_vectorised(index, grids, sizes, arrays) for index in indices]
    if any(place is None for place in places):
        return None
    return tuple(np.clip(place, 0, size - 1).astype(int) for place, size in zip(places, shape, strict=True))


_NUMPY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
    "!": np.logical_not,
    "//": lambda a, b: np.trunc(a / b).astype(int),
    "%": np.fmod,
}


def _vectorised(
    expr: ir.Expr,
    grids: Mapping[Coordinate, Any],
    sizes: Mapping[Coordinate, int],
    arrays: Arrays,
) -> Any:
    """A relation among coordinates and elements at all points at once; None where it has other parts."""
    match expr:
        case ir.Const(value):
            return np.asarray(value if isinstance(value, bool | int) else float(value))
        case ir.Map("pi"):
            return np.asarray(np.pi)
        case ir.Coord(coordinate):
            return grids.get(coordinate)
        case ir.Size(coordinate):
            return None if coordinate not in sizes else np.asarray(sizes[coordinate])
        case ir.Read(tensor, indices) if (
            tensor in arrays and arrays[tensor].ndim == len(indices) and arrays[tensor].size
        ):
            places = _places(indices, arrays[tensor].shape, grids, sizes, arrays)
            return None if places is None else arrays[tensor][places]
        case ir.Map(op, arguments) if op in _NUMPY:
            parts = [_vectorised(argument, grids, sizes, arrays) for argument in arguments]
            return None if any(part is None for part in parts) else _NUMPY[op](*parts)
        case _:
            return None
