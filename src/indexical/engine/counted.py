"""Axes counted, for known sizes: the bytes of arrays, and the work of operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from ..ir import build, whole
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import substitute
from .ops import (
    Axis,
    Carried,
    Contract,
    Iota,
    Library,
    Loop,
    Map,
    Normalize,
    Number,
    Opaque,
    Put,
    Reduce,
    Tiles,
    Value,
    Write,
)
from .order import is_view
from .specialise import Sizes

_WIDTH: Mapping[str, int] = {"bool": 1, "i8": 1, "u8": 1, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}
_WEAK = {"bool": "bool", "whole": "i64", "real": "f64"}
# What a multiplication costs, in bytes that are moved.
_BYTES_A_PRODUCT = 1 / 4


class Counted:
    """Axes counted, for known sizes. The step of a loop counts as its last."""

    def __init__(self, sizes: Sizes, scalars: Mapping[str, int]) -> None:
        self.sizes, self.scalars = sizes, scalars
        self.steps: dict[Coordinate, ir.Expr] = {}
        self.turns: dict[Coordinate, int] = {}
        self.known: dict[ir.Expr, int] = {}
        self.arrays: dict[Value, int] = {}

    def extent(self, expr: ir.Expr) -> int:
        if expr not in self.known:
            self.known[expr] = max(0, whole.value(substitute(expr, self.steps), self._leaf))
        return self.known[expr]

    def _leaf(self, leaf: ir.Size | ir.Read) -> int:
        return self.sizes[leaf.coordinate] if isinstance(leaf, ir.Size) else self.scalars[leaf.tensor]

    def cells(self, axes: Iterable[Axis]) -> int:
        return prod(self.extent(axis.extent) for axis in axes)

    def bytes(self, one: Value) -> int:
        """The bytes of the array of a value, if it has one of its own."""
        if one not in self.arrays:
            self.arrays[one] = 0 if one.is_host else self.cells(one.axes) * _WIDTH[one.dtype or _WEAK[one.kind]]
        return self.arrays[one]

    def enter(self, loop: Loop) -> None:
        """Count what varies with the steps of a loop, from now on."""
        count = loop.count.op
        assert isinstance(count, Number)
        self.turns[loop.symbol] = self.extent(count.expr)
        self.steps[loop.symbol] = build.whole(max(0, self.turns[loop.symbol] - 1), count.expr.span)
        for item in loop.body:
            if isinstance(item, Loop):
                self.enter(item)


def multiplications(one: Value, counted: Counted) -> int:
    """The multiplications of a contraction; the cells that any other operation computes."""
    match one.op:
        case Contract(factors, over):
            return counted.cells(_all_axes((*factors, one), over)) * max(1, len(factors) - 1)
        case Reduce(source=source, over=over):
            return counted.cells(_all_axes((source,), over))
        case Opaque(operands=given, home=home):  # Of each key, as wide as it is, with each row of the result.
            pairs = (counted.cells(_all_axes((one, part), ())) for _, part in given)
            return max(pairs, default=0) // max(1, counted.cells(home[-1:]))
        case Tiles(turn=turn):
            return counted.cells((*one.axes, turn.key))
        case Map() | Normalize() | Write() | Library():
            return max(counted.cells(part.axes) for part in (one, *one.parts))
    return 0


def moved(one: Value, counted: Counted) -> int:
    """The bytes that an operation reads and writes; a view moves none."""
    if isinstance(one.op, Put):
        return 2 * counted.bytes(one.op.values)
    if isinstance(one.op, Carried) or (is_view(one) and not isinstance(one.op, Iota)):
        return 0
    return counted.bytes(one) + sum(counted.bytes(part) for part in dict.fromkeys(one.parts))


def _all_axes(values: Iterable[Value], over: Iterable[Axis]) -> list[Axis]:
    found = {axis.name: axis for one in values for axis in one.axes}
    return [*{**found, **{axis.name: axis for axis in over}}.values()]


def work_of(one: Value, counted: Counted) -> float:
    """The cost of an operation, in bytes that are moved."""
    return moved(one, counted) + multiplications(one, counted) * _BYTES_A_PRODUCT
