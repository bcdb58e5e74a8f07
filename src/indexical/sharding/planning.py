"""From coordinates to a layout: which definitions are split along what, what each block reads of others, and in which
order that is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..ir import build
from ..ir import nodes as ir
from ..ir.context import Trail, visit_clause
from ..ir.domain import Domain
from ..ir.needs import depends_on_data
from ..ir.types import Coordinate
from ..ir.walk import reads_of, walk
from ..plan.steps import Attention
from ..transform.local import Interval, hull, number_of, rows_needed, rows_read, with_sizes
from .grouping import Grouping
from .mesh import Mesh, outside
from .prepared import TOTALS, Prepared, Split, input_axes, own_axes
from .units import Cut, Layout, Ring, Rows, summed_points

Needs = dict[str, Rows]


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

    def _own_axes(self, let: ir.Let) -> dict[str, int]:
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
                self._group(item)
        units = tuple(Grouping(self).all())
        homes = {name: dict(found) for name, found in self.homes.items()}
        return Layout(self.program, self.mesh, homes, self.extents, units, frozenset(self.free))

    def _once(self, let: ir.Let) -> None:
        own = self._own_axes(let)
        made = all(read.tensor in self.free for read in reads_of(let))
        if made and not any(depends_on_data(e, self.lets) for c in let.clauses for e in (c.body, c.guard) if e):
            self.free.add(let.name)
            if let.name not in self.program.outputs:
                self.homes[let.name] = {d: axis for d, axis in own.items() if self._can_be_split(let, axis)}
                return
        self.homes[let.name], self.cuts[let.name], self.needs[let.name] = {}, {}, {}
        for dimension in self.mesh.names:
            options = [*self._own_options(let, dimension, own), *self._sum_options(let, dimension, own)]
            if not options:
                reason = f"`{let.name}` is needed at all its points at once" if dimension in own else ""
                options = [Cut("whole", reason=reason)]
            found = [(cut, self._needs_of(let, dimension, cut)) for cut in options]
            cut, needs = min(found, key=lambda pair: self._bytes(let, dimension, *pair))
            ring = self._ring(let, dimension, cut) if cut.way == "own" else None
            if ring is not None:
                cut = replace(cut, way="ring")
                needs = {name: rows for name, rows in needs.items() if name not in ring.passed}
                needs |= self._stationary(let, dimension, cut, ring)
                self.rings[let.name] = ring
            elif cut.way == "sum" and let.name in self.prepared.attentions:
                self.merged[let.name] = self.prepared.attentions[let.name]
            self._settle(let, dimension, cut, needs)

    def _settle(self, let: ir.Let, dimension: str, cut: Cut, needs: Needs) -> None:
        self.cuts[let.name][dimension] = cut
        self.needs[let.name][dimension] = needs
        axis = cut.scatter if cut.way == "sum" else cut.axis
        if axis is not None:
            self.homes[let.name][dimension] = axis

    def _own_options(self, let: ir.Let, dimension: str, own: Mapping[str, int]) -> Iterator[Cut]:
        if dimension in own and self._can_be_split(let, own[dimension]):
            yield Cut("own", own[dimension])

    def _can_be_split(self, let: ir.Let, axis: int) -> bool:
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

    def _needs_of(self, let: ir.Let, dimension: str, cut: Cut) -> Needs:
        """The points of what a definition reads that each block needs, of tensors that the dimension splits."""
        read = {r.tensor for r in reads_of(let) if dimension in self.homes.get(r.tensor, {})}
        if not read:
            return {}
        found: dict[str, list[Interval]] = {name: [] for name in sorted(read)}
        for block in range(self.mesh.blocks(dimension)):
            rows = dict.fromkeys(found, (0, 0))
            for clause in let.clauses:
                for part, trail in self._visited(let, clause, dimension, cut, block):
                    if isinstance(part, ir.Read) and part.tensor in rows:
                        rows[part.tensor] = hull(rows[part.tensor], self._reached(part, dimension, trail))
            for name, interval in rows.items():
                found[name].append(interval)
        return {name: tuple(rows) for name, rows in found.items()}

    def _reached(self, read: ir.Read, dimension: str, trail: Trail) -> Interval:
        axis = self.homes[read.tensor][dimension]
        extent = self.extents[read.tensor][axis]
        assert extent is not None
        index = read.indices[axis]
        if isinstance(index, ir.Coord) and all(isinstance(step, ir.Range) for step in trail):
            range = next(s for s in reversed(trail) if isinstance(s, ir.Range) and s.coordinate == index.coordinate)
            lower, upper = number_of(range.lower), number_of(range.upper)
            if lower is not None and upper is not None:
                return min(lower, extent), max(min(lower, extent), min(upper, extent))
        return rows_needed(index, trail, extent, self.lets)

    def _visited(
        self, let: ir.Let, clause: ir.Clause, dimension: str, cut: Cut, block: int
    ) -> Iterator[tuple[ir.Expr, Trail]]:
        """Every expression of a clause with its trail, at the points that a block computes."""
        narrowed = self.narrowed(let, clause, dimension, cut, block)
        if narrowed is not None:
            yield from visit_clause(narrowed)

    def narrowed(self, let: ir.Let, clause: ir.Clause, dimension: str, cut: Cut, block: int) -> ir.Clause | None:
        """A clause at the points of one block, in the coordinates of the whole; None where it has none."""
        if cut.way == "sum":
            assert isinstance(clause.body, ir.Reduce)
            ranges = tuple(
                self._part(range, dimension, block) if range.coordinate == cut.coordinate else range
                for range in clause.body.ranges
            )
            if any(_is_empty(range) for range in ranges):
                return None
            return replace(clause, body=replace(clause.body, ranges=ranges))
        if cut.axis is None:
            return clause
        slot = clause.slots[cut.axis]
        extent = self.extents[let.name][cut.axis]
        assert extent is not None
        first, last = self.mesh.points(extent, dimension)[block]
        if not isinstance(slot, ir.Coord):
            place = number_of(slot)
            return clause if place is not None and first <= place < last else None
        ranges = tuple(_within(r, first, last) if r.coordinate == slot.coordinate else r for r in clause.ranges)
        return None if any(_is_empty(range) for range in ranges) else replace(clause, ranges=ranges)

    def _part(self, range: ir.Range, dimension: str, block: int) -> ir.Range:
        """The points of a range that a block sums over."""
        return _within(range, *summed_points(self.mesh, range, dimension)[block])

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

    # ------------------------------------------------------------------------ rings

    def _ring(self, let: ir.Let, dimension: str, cut: Cut) -> Ring | None:
        """The way round of the keys of an attention; None where its keys are all there, or are not read one by one."""
        attention = self.prepared.attentions.get(let.name)
        clause = let.clauses[0]
        alone = self.mesh.blocks(dimension) == 1 or self.at_once
        if attention is None or not isinstance(clause.body, ir.Reduce) or alone:
            return None
        (key,) = clause.body.ranges
        upper = number_of(key.upper)
        passed: dict[str, int] = {}
        for read in reads_of(let):
            axis = None if read.tensor in self.free else self.homes.get(read.tensor, {}).get(dimension)
            if axis is None or key.coordinate not in read.indices[axis].type.coordinates:
                continue
            if not isinstance(read.indices[axis], ir.Coord) or self.extents[read.tensor][axis] != upper:
                return None
            passed[read.tensor] = axis
        if not passed or number_of(key.lower) != 0 or upper is None:
            return None
        table = [self._keys(let, clause, dimension, cut, b, key, upper) for b in range(self.mesh.blocks(dimension))]
        return Ring(dimension, attention, passed, tuple(table))

    def _keys(
        self, let: ir.Let, clause: ir.Clause, dimension: str, cut: Cut, block: int, key: ir.Range, upper: int
    ) -> tuple[Interval | None, ...]:
        """The keys of every block of keys that some query of a block has to do with."""
        blocks = self.mesh.points(upper, dimension)
        narrowed = self.narrowed(let, clause, dimension, cut, block)
        if narrowed is None:
            return (None,) * len(blocks)
        assert isinstance(narrowed.body, ir.Reduce)
        guard = narrowed.body.guard
        around: Trail = (*narrowed.ranges, *(() if narrowed.guard is None else ((narrowed.guard, True),)))
        result: list[Interval | None] = []
        pieces = 1 if guard is None else len(Domain.of((*narrowed.ranges, key), (guard,), self.lets).pieces)
        reached = (0, upper)
        here = build.coord(key.coordinate, key.span)
        if guard is not None:
            reached = rows_read(here, (*around, key, (guard, True)), upper, self.lets)
        for first, last in blocks:
            first, last = max(first, reached[0]), min(last, reached[1])
            if first < last and guard is not None and pieces > 1:
                first, last = rows_read(here, (*around, _within(key, first, last), (guard, True)), upper, self.lets)
            result.append((first, last) if first < last else None)
        return tuple(result)

    def _stationary(self, let: ir.Let, dimension: str, cut: Cut, ring: Ring) -> Needs:
        """The points of tensors that travel which a definition also reads apart from its keys."""
        clause = let.clauses[0]
        assert isinstance(clause.body, ir.Reduce)
        key = clause.body.ranges[0].coordinate
        found: Needs = {}
        for name, axis in ring.passed.items():
            still = [r for r in reads_of(let) if r.tensor == name and key not in r.indices[axis].type.coordinates]
            if not still:
                continue
            rows = []
            for block in range(self.mesh.blocks(dimension)):
                reached: Interval = (0, 0)
                for part, trail in self._visited(let, clause, dimension, cut, block):
                    if isinstance(part, ir.Read) and part.tensor == name and not _varies(part.indices[axis], key):
                        reached = hull(reached, self._reached(part, dimension, trail))
                rows.append(reached)
            found[name] = tuple(rows)
        return found

    # ------------------------------------------------------------------------ recurrences

    def _group(self, item: ir.Stepwise) -> None:
        """Definitions that are made of each other: split where they do not step, or handed on where they do."""
        names = [name for name, _ in item.axes]
        stepped = dict(item.axes)
        own = {name: self._own_axes(self.lets[name]) for name in names}
        for name in names:
            self.homes[name], self.cuts[name], self.needs[name] = {}, {}, {}
        for dimension in self.mesh.names:
            cuts = self._group_cuts(item, names, stepped, own, dimension)
            for name, cut in cuts.items():
                if cut.axis is not None:
                    self.homes[name][dimension] = cut.axis
            needs = {name: self._needs_of(self.lets[name], dimension, cut) for name, cut in cuts.items()}
            if not self._is_kept(names, needs, cuts, dimension):
                reason = "its points read each other across blocks"
                for name in names:
                    self.homes[name].pop(dimension, None)
                    if self.handed.get(name) == dimension:
                        del self.handed[name]
                cuts = {name: Cut("whole", reason=reason) for name in names}
                needs = {name: self._needs_of(self.lets[name], dimension, cuts[name]) for name in names}
            for name, cut in cuts.items():
                self._settle(self.lets[name], dimension, cut, {n: r for n, r in needs[name].items() if n not in names})

    def _group_cuts(
        self,
        item: ir.Stepwise,
        names: Sequence[str],
        stepped: Mapping[str, int],
        own: Mapping[str, Mapping[str, int]],
        dimension: str,
    ) -> dict[str, Cut]:
        axes = {name: own[name].get(dimension) for name in names}
        if not any(axis is not None for axis in axes.values()):
            return {name: Cut("whole") for name in names}
        handed = [name for name in names if axes[name] == stepped[name]]
        reason = ""
        if any(axis is None or not self._can_be_split(self.lets[n], axis) for n, axis in axes.items()):
            reason = "not all that it is made of has that coordinate"
        elif handed and (len(handed) < len(names) or any(isinstance(inner, ir.Stepwise) for inner in item.body)):
            reason = "it steps along several coordinates"
        elif handed:
            reach = self._reach(names, stepped, item.forward)
            if isinstance(reach, str):
                reason = reach
            else:
                for name in names:
                    self.reach[name] = reach[name]
                    self.handed[name] = dimension
                return {name: Cut("handed", axes[name]) for name in names}
        if reason:
            return {name: Cut("whole", reason=reason) for name in names}
        return {name: Cut("own", axes[name]) for name in names}

    def _reach(self, names: Sequence[str], stepped: Mapping[str, int], forward: bool) -> dict[str, int] | str:
        """How many steps back each part of a recurrence is read; or why its state cannot be handed on."""
        if not forward:
            return "it steps backward"
        if self.at_once:
            return "all ranks compute at once"
        if len({self.extents[name][axis] for name, axis in stepped.items()}) > 1:
            return "what it is made of has other lengths"
        reach = dict.fromkeys(names, 0)
        for name in names:
            for clause in self.lets[name].clauses:
                slot = clause.slots[stepped[name]]
                for part, _ in visit_clause(clause):
                    if isinstance(part, ir.Read) and part.tensor in stepped:
                        index = part.indices[stepped[part.tensor]]
                        back = number_of(build.apply("-", (slot, index), "whole", index.span))
                        if back is None or back < 0:
                            return "it reads other steps than those a fixed number before"
                        reach[part.tensor] = max(reach[part.tensor], back)
        return reach

    def _is_kept(
        self, names: Sequence[str], needs: Mapping[str, Needs], cuts: Mapping[str, Cut], dimension: str
    ) -> bool:
        """Whether each block reads of the group just what it computes, or what is handed on to it."""
        for name in names:
            for other in needs[name].keys() & set(names):
                axis = cuts[other].axis
                held = self.mesh.points(self.extents[other][axis or 0] or 0, dimension)
                reach = self.reach.get(other, 0) if cuts[other].way == "handed" else 0
                for need, (first, last) in zip(needs[name][other], held, strict=True):
                    if need[0] < need[1] and not (first - reach <= need[0] and need[1] <= last):
                        return False
        return True


def _extent(axis: ir.Axis) -> int | None:
    found = None if axis.coordinate.rest else number_of(axis.extent)
    return None if found is None else max(found, 0)


def _within(range: ir.Range, first: int, last: int) -> ir.Range:
    lower, upper = number_of(range.lower), number_of(range.upper)
    assert lower is not None
    assert upper is not None
    first = max(lower, first)
    last = max(first, min(upper, last))
    return replace(range, lower=build.whole(first, range.span), upper=build.whole(last, range.span), stated=True)


def _is_empty(range: ir.Range) -> bool:
    lower, upper = number_of(range.lower), number_of(range.upper)
    return lower is not None and upper is not None and lower >= upper


def _varies(expr: ir.Expr, coordinate: Coordinate) -> bool:
    return coordinate in expr.type.coordinates
