"""Reads of tensors and of array literals, staged: their indices never wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..ir import nodes as ir
from ..ir.types import Coordinate
from .tables import Stage, Uncomputed
from .wholes import Point, failure

if TYPE_CHECKING:
    from .reference import Evaluation

# The offset of a cell in row-major order, given a point and the shape of the table.
Offset: TypeAlias = Callable[[Point, tuple[int, ...]], int]


def element(evaluation: Evaluation, expr: ir.Read) -> Stage:
    """One element of a tensor; 0 where a guard removed it."""
    tensors, tensor = evaluation.tensors, expr.tensor
    offset = offset_of(evaluation, expr, f"`{tensor}`")
    absent = {"bool": False, "whole": 0, "real": evaluation.zero}[expr.type.kind]

    def read(point: Point) -> Any:
        table = tensors[tensor]
        at = offset(point, table.shape)
        value = table.cells[at]
        if value is None:
            return absent
        if value is Uncomputed:
            place = ", ".join(map(str, table.place(at)))
            raise failure("IX308", f"`{tensor}[{place}]` is not there yet", expr.span, point)
        return value

    return read


def cell(evaluation: Evaluation, expr: ir.Array) -> Stage:
    """One cell of an array literal."""
    cells = list(map(evaluation.compiled, expr.cells))
    offset = offset_of(evaluation, expr, "this array")
    return lambda point: cells[offset(point, expr.shape)](point)


def offset_of(evaluation: Evaluation, expr: ir.Read | ir.Array, name: str) -> Offset:
    """Return the flat offset of the indices. Each is evaluated, and checked against its axis, before the next."""
    indices = tuple(enumerate(map(evaluation.compiled, expr.indices)))

    def offset(point: Point, shape: tuple[int, ...]) -> int:
        result = 0
        for axis, index in indices:
            at, length = index(point), shape[axis]
            if not 0 <= at < length:
                let = evaluation.lets.get(expr.tensor) if isinstance(expr, ir.Read) else None
                origin = None if let is None else let.axes[axis].origin
                first = 0 if origin is None else evaluation.value(origin, {})
                held = f"has {length} points" if origin is None else f"has {length} points from {first} on"
                message = f"index {at + first} is out of bounds for axis {axis} of {name}, which {held}"
                raise failure("IX305", message, expr.indices[axis].span, point, f"in `{expr.span.text}`")
            result = result * length + at
        return result

    match expr.indices:
        case (ir.Coord(row), ir.Coord(column)):
            return _offset_in_matrix(row, column, offset)
        case _:
            return offset


def _offset_in_matrix(row: Coordinate, column: Coordinate, offset: Offset) -> Offset:
    """The same for two bare coordinates, without a loop: here is where the time goes."""

    def quickly(point: Point, shape: tuple[int, ...]) -> int:
        height, width = shape
        down, across = point[row], point[column]
        if 0 <= down < height and 0 <= across < width:
            return down * width + across
        return offset(point, shape)

    return quickly
