"""Which keys go round to which queries, where an attention runs along a coordinate that is split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import build
from ..ir import nodes as ir
from ..ir.context import Trail
from ..ir.domain import Domain
from ..ir.types import Coordinate
from ..ir.walk import reads_of
from ..transform.local import Interval, hull, number_of, rows_read
from .units import Cut, Needs, Ring, within

if TYPE_CHECKING:
    from .planning import Planner


def ring_of(planner: Planner, let: ir.Let, dimension: str, cut: Cut) -> Ring | None:
    """The way round of the keys of an attention; None where its keys are all there, or are not read one by one."""
    attention = planner.prepared.attentions.get(let.name)
    clause = let.clauses[0]
    alone = planner.mesh.blocks(dimension) == 1 or planner.at_once
    if attention is None or not isinstance(clause.body, ir.Reduce) or alone:
        return None
    (key,) = clause.body.ranges
    upper = number_of(key.upper)
    passed: dict[str, int] = {}
    for read in reads_of(let):
        axis = None if read.tensor in planner.free else planner.homes.get(read.tensor, {}).get(dimension)
        if axis is None or key.coordinate not in read.indices[axis].type.coordinates:
            continue
        if not isinstance(read.indices[axis], ir.Coord) or planner.extents[read.tensor][axis] != upper:
            return None
        passed[read.tensor] = axis
    if not passed or number_of(key.lower) != 0 or upper is None:
        return None
    table = [_keys(planner, let, clause, dimension, cut, b, key, upper) for b in range(planner.mesh.blocks(dimension))]
    return Ring(dimension, attention, passed, tuple(table))


def _keys(
    planner: Planner, let: ir.Let, clause: ir.Clause, dimension: str, cut: Cut, block: int, key: ir.Range, upper: int
) -> tuple[Interval | None, ...]:
    """The keys of every block of keys that some query of a block has to do with."""
    blocks = planner.mesh.points(upper, dimension)
    narrowed = planner.narrowed(let, clause, dimension, cut, block)
    if narrowed is None:
        return (None,) * len(blocks)
    assert isinstance(narrowed.body, ir.Reduce)
    guard = narrowed.body.guard
    around: Trail = (*narrowed.ranges, *(() if narrowed.guard is None else ((narrowed.guard, True),)))
    result: list[Interval | None] = []
    pieces = 1 if guard is None else len(Domain.of((*narrowed.ranges, key), (guard,), planner.lets).pieces)
    reached = (0, upper)
    here = build.coord(key.coordinate, key.span)
    if guard is not None:
        reached = rows_read(here, (*around, key, (guard, True)), upper, planner.lets)
    for first, last in blocks:
        first, last = max(first, reached[0]), min(last, reached[1])
        if first < last and guard is not None and pieces > 1:
            first, last = rows_read(here, (*around, within(key, first, last), (guard, True)), upper, planner.lets)
        result.append((first, last) if first < last else None)
    return tuple(result)


def still_rows(planner: Planner, let: ir.Let, dimension: str, cut: Cut, ring: Ring) -> Needs:
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
        for block in range(planner.mesh.blocks(dimension)):
            reached: Interval = (0, 0)
            for part, trail in planner.visited(let, clause, dimension, cut, block):
                if isinstance(part, ir.Read) and part.tensor == name and not _varies(part.indices[axis], key):
                    reached = hull(reached, planner.reached(part, dimension, trail))
            rows.append(reached)
        found[name] = tuple(rows)
    return found


def _varies(expr: ir.Expr, coordinate: Coordinate) -> bool:
    return coordinate in expr.type.coordinates
