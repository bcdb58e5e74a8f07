"""A clause at the points of each of several blocks: what it reads there, found for all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from ..ir import nodes as ir
from ..ir.context import Trail, bound_by, visit_clause
from ..records import dataclass, replace
from ..transform.local import Interval, number_of, rows_needed
from .reach import Ends, Reach, open_range, reach_of
from .units import Rows, within


@dataclass(frozen=True)
class Parted:
    """A clause of which each block has some points; None where it has none. They are those of one range, which is open
    in `clause`, or all where there is no such `range`."""

    clause: ir.Clause
    range: ir.Range | None
    points: tuple[Interval | None, ...]
    lets: Mapping[str, ir.Let]

    @classmethod
    def of(
        cls, clause: ir.Clause, range: ir.Range, beside: Sequence[ir.Range], points: Rows, lets: Mapping[str, ir.Let]
    ) -> Parted:
        """A clause one of whose ranges is cut at these points; it stands `beside` others."""
        ends: list[Interval | None] = [None] * len(points)
        if not any(_is_empty(other) for other in beside):
            lower, upper = _numbers(range)
            for block, (first, last) in enumerate(points):
                first, last = max(lower, first), min(upper, last)
                ends[block] = (first, last) if first < last else None
        return cls(_with(clause, range, open_range(range)), range, tuple(ends), lets)

    @property
    def alive(self) -> list[int]:
        """The blocks that have points."""
        return [block for block, points in enumerate(self.points) if points is not None]

    @property
    def ends(self) -> Ends:
        """The ends of the range that is cut, of all blocks that have points."""
        assert self.range is not None
        found = np.array([points for points in self.points if points is not None], np.int64)
        return {self.range.coordinate: (found[:, 0], found[:, 1])}

    def at(self, block: int) -> ir.Clause:
        """The clause at the points of one block."""
        points = self.points[block]
        assert points is not None
        if self.range is None:
            return self.clause
        return _with(self.clause, open_range(self.range), within(self.range, *points))

    def needed(self, number: int, trail: Trail, index: ir.Expr, extent: int, axis: int) -> Rows:
        """The points of an axis that every block needs for a read, which is the expression of this number in the clause
        and has this index there."""
        alive = self.alive
        rows: list[Interval] = [(0, 0)] * len(self.points)
        if not alive:
            return tuple(rows)
        found = self._plain(trail, index, extent) or self._affine(trail, index, extent)
        for place, block in enumerate(alive):
            if found is not None:
                rows[block] = found[place]
            else:
                read, there = next(islice(visit_clause(self.at(block)), number, None))
                assert isinstance(read, ir.Read)
                rows[block] = rows_needed(read.indices[axis], there, extent, self.lets)
        return tuple(rows)

    def _plain(self, trail: Trail, index: ir.Expr, extent: int) -> list[Interval] | None:
        """The points that need no proof: all of a range, or the same in every block; None of any others."""
        if isinstance(index, ir.Coord) and all(isinstance(step, ir.Range) for step in trail):
            range = bound_by(index.coordinate, trail)
            lower, upper = number_of(range.lower), number_of(range.upper)
            if lower is not None and upper is not None:
                return [_clipped(lower, upper, extent)] * len(self.alive)
            if self.range is not None and range.lower == open_range(self.range).lower:
                return [_clipped(*points, extent) for points in self.points if points is not None]
        return [rows_needed(index, trail, extent, self.lets)] * len(self.alive) if self.range is None else None

    def _affine(self, trail: Trail, index: ir.Expr, extent: int) -> list[Interval] | None:
        """The rows of all blocks from one proof. Where a guard removes all points of a block, its code may still look
        at those that the ranges have, or at any where these have none."""
        rows: list[Interval] | None = None
        for steps in (trail, tuple(step for step in trail if isinstance(step, ir.Range))):
            found = self.reach(index, steps, extent)
            if found is None:
                return None
            first, last = found.rows(self.ends)
            these = list(zip(first.tolist(), last.tolist(), strict=True))
            rows = these if rows is None else [a if a[0] < a[1] else b for a, b in zip(rows, these, strict=True)]
            if all(a < b for a, b in rows):
                return rows
        assert rows is not None
        return [(a, b) if a < b else (0, extent) for a, b in rows]

    def reach(self, index: ir.Expr, trail: Trail, extent: int, *others: ir.Range) -> Reach | None:
        """The points that an index reaches, as a function of the ends of the range that is cut, and of others that are
        open."""
        assert self.range is not None
        opened = [range.coordinate for range in (self.range, *others)]
        return reach_of(index, trail, opened, extent, self.lets)


def _with(clause: ir.Clause, old: ir.Range, new: ir.Range) -> ir.Clause:
    """A clause with another range in the place of one, of its own or of its reduction."""
    if old in clause.ranges:
        return replace(clause, ranges=tuple(new if range == old else range for range in clause.ranges))
    assert isinstance(clause.body, ir.Reduce)
    ranges = tuple(new if range == old else range for range in clause.body.ranges)
    return replace(clause, body=replace(clause.body, ranges=ranges))


def _clipped(lower: int, upper: int, extent: int) -> Interval:
    lower = min(lower, extent)
    return lower, max(lower, min(upper, extent))


def _numbers(range: ir.Range) -> Interval:
    lower, upper = number_of(range.lower), number_of(range.upper)
    assert lower is not None
    assert upper is not None
    return lower, upper


def _is_empty(range: ir.Range) -> bool:
    lower, upper = number_of(range.lower), number_of(range.upper)
    return lower is not None and upper is not None and lower >= upper
