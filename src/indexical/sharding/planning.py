"""From coordinates to a layout: which definitions are split along what, what each block reads of others, and in which
order that is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

from ..ir import nodes as ir
from ..ir.context import visit_clause
from ..ir.needs import depends_on_data
from ..ir.types import Coordinate
from ..ir.walk import reads_of, walk
from ..plan.steps import Attention
from ..records import replace
from ..transform.local import hull, number_of, with_sizes
from .grouping import Grouping
from .keys import ring_of, still_rows
from .mesh import Mesh, outside
from .parts import Parted
from .prepared import TOTALS, Prepared, Split, input_axes, own_axes
from .recurrences import cut_group
from .units import Cut, Layout, Needs, Ring, Rows, summed_points


def lay_out(
    prepared: Prepared,
    mesh: Mesh,
    split: Split,
    sizes: Mapping[Coordinate, int],
    scalars: Mapping[str, int],
    parameters: str | None = None,
    at_once: bool = False,
) -> Layout:
    """The layout of a program for these sizes. Inputs that `parameters` would not split are split along one axis. Where
    all blocks compute `at_once`, keys are gathered in place of going round, and no state is handed on."""
    return Planner(prepared, mesh, split, sizes, scalars, parameters, at_once).layout()


class Planner:
    """The definitions of a program as they are gone through, each with its cuts."""

    def __init__(
        self,
        prepared: Prepared,
        mesh: Mesh,
        split: Split,
        sizes: Mapping[Coordinate, int],
        scalars: Mapping[str, int],
        parameters: str | None,
        at_once: bool,
    ) -> None:
        self.at_once = at_once
        self.prepared, self.mesh, self.split, self.kinds = prepared, mesh, split, prepared.kinds
        self.program = with_sizes(prepared.program, sizes, scalars)
        self.lets = self.program.definitions
        self.tensors = self.program.tensors
        self.extents = {name: tuple(_extent(axis) for axis in t.axes) for name, t in self.tensors.items()}
        self.homes: dict[str, dict[str, int]] = {}
        self.cuts: dict[str, dict[str, Cut]] = {}
        self.needs: dict[str, dict[str, Needs]] = {}
        self.rings: dict[str, Ring] = {}
        self.reach: dict[str, int] = {}
        self.handed: dict[str, str] = {}
        self.merged: dict[str, Attention] = {}
        self.free: set[str] = set()
        for tensor in self.program.inputs:
            self.homes[tensor.name] = input_axes(tensor, self.kinds, split, parameters)

    def own_axes(self, let: ir.Let) -> dict[str, int]:
        """The axis of a definition that each dimension would split."""
        found = own_axes(let, self.kinds, self.split)
        return {name: axis for name, axis in found.items() if self.extents[let.name][axis] is not None}

    @property
    def apart(self) -> set[str]:
        """The definitions that are units of their own: rings, merged attentions and recurrences that are handed on."""
        return {*self.rings, *self.handed, *self.merged}

    # ------------------------------------------------------------------------- cuts

    def layout(self) -> Layout:
        for item in self.program.order:
            if isinstance(item, ir.Once):
                self._once(self.lets[item.name])
            else:
                cut_group(self, item)
        units = tuple(Grouping(self).all())
        homes = {name: dict(found) for name, found in self.homes.items()}
        return Layout(self.program, self.mesh, homes, self.extents, units, frozenset(self.free))

    def _once(self, let: ir.Let) -> None:
        """Choose along each dimension the way to compute a definition that sends the fewest bytes."""
        own = self.own_axes(let)
        made = all(read.tensor in self.free for read in reads_of(let))
        if made and not any(depends_on_data(e, self.lets) for c in let.clauses for e in (c.body, c.guard) if e):
            self.free.add(let.name)
            if let.name not in self.program.outputs:
                self.homes[let.name] = {d: axis for d, axis in own.items() if self.can_be_split(let, axis)}
                return
        self.homes[let.name], self.cuts[let.name], self.needs[let.name] = {}, {}, {}
        for dimension in self.mesh.names:
            options = [*self._own_options(let, dimension, own), *self._sum_options(let, dimension, own)]
            if not options:
                reason = f"`{let.name}` is needed at all its points at once" if dimension in own else ""
                options = [Cut("whole", reason=reason)]
            found = [(cut, self.needs_of(let, dimension, cut)) for cut in options]
            cut, needs = min(found, key=lambda pair: self._bytes(let, dimension, *pair))
            ring = ring_of(self, let, dimension, cut) if cut.way == "own" else None
            if ring is not None:
                cut = replace(cut, way="ring")
                needs = {name: rows for name, rows in needs.items() if name not in ring.passed}
                needs |= still_rows(self, let, dimension, cut, ring)
                self.rings[let.name] = ring
            elif cut.way == "sum" and let.name in self.prepared.attentions:
                self.merged[let.name] = self.prepared.attentions[let.name]
            self.settle(let, dimension, cut, needs)

    def settle(self, let: ir.Let, dimension: str, cut: Cut, needs: Needs) -> None:
        """Note how a definition is cut along a dimension, and what it then needs."""
        self.cuts[let.name][dimension] = cut
        self.needs[let.name][dimension] = needs
        axis = cut.scatter if cut.way == "sum" else cut.axis
        if axis is not None:
            self.homes[let.name][dimension] = axis

    def _own_options(self, let: ir.Let, dimension: str, own: Mapping[str, int]) -> Iterator[Cut]:
        if dimension in own and self.can_be_split(let, own[dimension]):
            yield Cut("own", own[dimension])

    def can_be_split(self, let: ir.Let, axis: int) -> bool:
        """Whether a definition can be computed at some points of an axis: nothing in it runs over all of them."""
        for clause in let.clauses:
            slot = clause.slots[axis]
            if not isinstance(slot, ir.Coord):
                if number_of(slot) is None:
                    return False
                continue
            range = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
            if number_of(range.lower) is None or number_of(range.upper) is None:
                return False
            parts = [part for expr in (clause.body, clause.guard) if expr is not None for part in walk(expr)]
            if any(isinstance(part, ir.Normalize) and part.coordinate == slot.coordinate for part in parts):
                return False
        return True

    def _sum_options(self, let: ir.Let, dimension: str, own: Mapping[str, int]) -> Iterator[Cut]:
        """The ways to compute a reduction in parts that are added up, along a dimension that cuts what it reduces
        over."""
        clause = let.clauses[0]
        body = clause.body
        if let.kind == "whole" and isinstance(body, ir.Reduce) and body.op in ("max", "min"):
            return  # Over no points there is none, and a block may have none.
        if (
            len(let.clauses) != 1
            or clause.guard is not None
            or not isinstance(body, ir.Reduce)
            or body.op not in TOTALS
        ):
            return
        running = {part.coordinate for part in walk(body) if isinstance(part, ir.Normalize)}
        for range in body.ranges:
            if range.coordinate in running and let.name not in self.prepared.attentions:
                continue
            counted = number_of(range.lower) is not None and number_of(range.upper) is not None
            if counted and self.split(self.kinds.of_letter(let.name, range.coordinate)) == dimension:
                scatter = own.get(dimension)
                if scatter is None or (body.op == "sum" and let.name not in self.prepared.attentions):
                    yield Cut("sum", None, range.coordinate, scatter)

    # ------------------------------------------------------------------------ needs

    def needs_of(self, let: ir.Let, dimension: str, cut: Cut) -> Needs:
        """The points of what a definition reads that each block needs, of tensors that the dimension splits."""
        read = {r.tensor for r in reads_of(let) if dimension in self.homes.get(r.tensor, {})}
        if not read:
            return {}
        found = {name: [(0, 0)] * self.mesh.blocks(dimension) for name in sorted(read)}
        for clause in let.clauses:
            for part, rows in self.reached(let, clause, dimension, cut, lambda part: part.tensor in found):
                found[part.tensor] = [hull(*both) for both in zip(found[part.tensor], rows, strict=True)]
        return {name: tuple(rows) for name, rows in found.items()}

    def reached(
        self, let: ir.Let, clause: ir.Clause, dimension: str, cut: Cut, asked: Callable[[ir.Read], bool]
    ) -> Iterator[tuple[ir.Read, Rows]]:
        """The reads of a clause that are asked for, each with the points along a dimension that it reaches from every
        block; none from blocks that have no point of the clause."""
        parted = self.parted(let, clause, dimension, cut)
        for number, (read, trail) in enumerate(visit_clause(parted.clause)):
            if isinstance(read, ir.Read) and asked(read):
                axis = self.homes[read.tensor][dimension]
                extent = self.extents[read.tensor][axis]
                assert extent is not None
                yield read, parted.needed(number, trail, read.indices[axis], extent, axis)

    def parted(self, let: ir.Let, clause: ir.Clause, dimension: str, cut: Cut) -> Parted:
        """A clause at the points of each block, in the coordinates of the whole."""
        blocks = self.mesh.blocks(dimension)
        if cut.way == "sum":
            assert isinstance(clause.body, ir.Reduce)
            range = next(range for range in clause.body.ranges if range.coordinate == cut.coordinate)
            return Parted.of(clause, range, clause.body.ranges, summed_points(self.mesh, range, dimension), self.lets)
        if cut.axis is None:
            return Parted(clause, None, ((0, 0),) * blocks, self.lets)
        slot = clause.slots[cut.axis]
        extent = self.extents[let.name][cut.axis]
        assert extent is not None
        points = self.mesh.points(extent, dimension)
        if not isinstance(slot, ir.Coord):
            place = number_of(slot)
            here = tuple((0, 0) if place is not None and first <= place < last else None for first, last in points)
            return Parted(clause, None, here, self.lets)
        range = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
        return Parted.of(clause, range, clause.ranges, points, self.lets)

    def _bytes(self, let: ir.Let, dimension: str, cut: Cut, needs: Needs) -> int:
        """Elements that all blocks together are sent for a definition."""
        total = sum(self._missing(name, dimension, rows) for name, rows in needs.items() if name not in self.free)
        if cut.way == "sum":
            blocks = self.mesh.blocks(dimension)
            total += (blocks - 1) * prod(e or 1 for e in self.extents[let.name]) * (1 if cut.scatter is not None else 2)
        return total

    def _missing(self, name: str, dimension: str, rows: Rows) -> int:
        axis = self.homes[name][dimension]
        extents = self.extents[name]
        held = self.mesh.points(extents[axis] or 0, dimension)
        lacking = sum(outside(need, own) for need, own in zip(rows, held, strict=True))
        return lacking * prod(extent or 1 for number, extent in enumerate(extents) if number != axis)


def _extent(axis: ir.Axis) -> int | None:
    found = None if axis.coordinate.rest else number_of(axis.extent)
    return None if found is None else max(found, 0)
