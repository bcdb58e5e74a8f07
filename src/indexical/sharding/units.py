"""The parts of a plan for many machines: units that each machine computes alone, and what is sent between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import reads_of
from ..plan.steps import Attention
from ..records import dataclass, field, replace
from ..transform.local import Interval, number_of
from .mesh import Mesh

# For every block along one dimension, the points of an axis.
Rows: TypeAlias = tuple[Interval, ...]
# The points that each block reads, by tensor.
Needs: TypeAlias = dict[str, Rows]
Way: TypeAlias = Literal["own", "sum", "ring", "handed", "whole"]


@dataclass(frozen=True, slots=True)
class Cut:
    """How a definition is split along one dimension: by a coordinate of its `own`; by one that it sums over, so that
    each block has a part of the `sum`; by one of its own while keys go round a `ring`; along a coordinate that it steps
    along, so that its state is `handed` on; or not at all: every rank computes the `whole`.

    `scatter` is the axis of a sum's result that is split after it. `reason` says why it is whole.
    """

    way: Way
    axis: int | None = None
    coordinate: Coordinate | None = None
    scatter: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Ring:
    """An attention whose keys go round: for every block of queries and every block of keys the keys that they have to
    do with, from the first up to the last, none for most where a guard says so. `passed` are the tensors that travel,
    each with its axis of keys."""

    dimension: str
    attention: Attention
    passed: Mapping[str, int]
    keys: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of keys, by the block of queries and the block of keys."""
        found: NDArray[np.int64] = np.maximum(self.keys[..., 1] - self.keys[..., 0], 0)
        return found

    def points(self, queries: int, keys: int) -> Interval | None:
        """The keys of one block that another one's queries have to do with; None where there is none."""
        first, last = self.keys[queries, keys].tolist()
        return (first, last) if first < last else None


@dataclass(frozen=True)
class Unit:
    """Definitions that a machine computes at once, of what it holds and of what was sent to it.

    `needs` are the points of other tensors that each block reads, along each dimension that splits them. Along the
    dimensions in which it is `varying` the blocks compute different things.
    """

    number: int
    names: tuple[str, ...]
    wanted: tuple[str, ...]
    varying: frozenset[str]
    cuts: Mapping[str, Mapping[str, Cut]]
    needs: Mapping[str, Mapping[str, Rows]]
    ring: Ring | None = None
    reach: Mapping[str, int] = field(default_factory=dict)
    handed: str | None = None
    merged: Attention | None = None


@dataclass(frozen=True)
class Layout:
    """A program that is cut: its units in order, and along which axis each dimension splits each tensor."""

    program: ir.Program
    mesh: Mesh
    homes: Mapping[str, Mapping[str, int]]
    extents: Mapping[str, tuple[int | None, ...]]
    units: tuple[Unit, ...]
    free: frozenset[str]
    rests: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def rows(self, tensor: str, dimension: str) -> Rows:
        """The points of a tensor that each block along a dimension holds."""
        extent = self.extents[tensor][self.homes[tensor][dimension]]
        assert extent is not None
        return self.mesh.points(extent, dimension)

    def read_by(self, unit: Unit) -> tuple[str, ...]:
        """The tensors that a unit reads, but for those that every block makes itself."""
        lets, found = self.program.definitions, dict[str, None]()
        waiting, inside = list(unit.names), set(unit.names)
        for name in waiting:
            for other in (read.tensor for read in reads_of(lets[name])):
                if other in self.free and other not in inside:
                    inside.add(other)
                    waiting.append(other)
                elif other not in inside:
                    found[other] = None
        return tuple(found)

    def shape(self, tensor: str, block: tuple[int, ...], needs: Mapping[str, Rows] | None = None) -> tuple[int, ...]:
        """The lengths of what a block holds of a tensor, or needs of it."""
        lengths: list[int] = []
        homes = {axis: dimension for dimension, axis in self.homes[tensor].items()}
        for number, (axis, extent) in enumerate(
            zip(self.program.tensors[tensor].axes, self.extents[tensor], strict=True)
        ):
            if extent is None:
                lengths += self.rests.get(axis.coordinate.name, ())
            elif number in homes:
                rows = (needs or {}).get(homes[number]) or self.rows(tensor, homes[number])
                first, last = rows[self.mesh.place(block, homes[number])]
                lengths.append(last - first)
            else:
                lengths.append(extent)
        return tuple(lengths)

    def shape_beside(self, name: str, block: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in which the total of an attention's weights stands beside its result on a block: 1 along the axes
        that only the values have."""
        let = self.program.definitions[name]
        body = let.clauses[0].body
        assert isinstance(body, ir.Reduce)
        assert isinstance(body.body, ir.Map)
        varying = body.body.arguments[0].type.coordinates
        lengths: list[int] = []
        whole = iter(self.shape(name, block))
        for slot, axis in zip(let.clauses[0].slots, let.axes, strict=True):
            count = len(self.rests.get(axis.coordinate.name, ())) if axis.coordinate.rest else 1
            found = [next(whole) for _ in range(count)]
            lengths += found if slot.type.coordinates & varying else [1] * count
        return tuple(lengths)


def summed_points(mesh: Mesh, range: ir.Range, dimension: str) -> Rows:
    """The points of a range that each block along a dimension sums over."""
    upper = number_of(range.upper)
    assert upper is not None
    return mesh.points(max(upper, 0), dimension)


def within(range: ir.Range, first: int, last: int) -> ir.Range:
    """A range from one point up to another, as far as it has them."""
    lower, upper = number_of(range.lower), number_of(range.upper)
    assert lower is not None
    assert upper is not None
    first = max(lower, first)
    last = max(first, min(upper, last))
    return replace(range, lower=build.whole(first, range.span), upper=build.whole(last, range.span), stated=True)
