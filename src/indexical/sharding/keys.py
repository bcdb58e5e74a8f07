"""Which keys go round to which queries, where an attention runs along a coordinate that is split."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..ir import build
from ..ir import nodes as ir
from ..ir.context import Trail
from ..ir.domain import Domain
from ..ir.types import Coordinate
from ..ir.walk import reads_of
from ..transform.local import hull, number_of, rows_read
from .parts import Parted
from .reach import Numbers, open_range
from .units import Cut, Needs, Ring, Rows, within

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
    parted = planner.parted(let, clause, dimension, cut)
    return Ring(dimension, attention, passed, _table(parted, key, planner.mesh.points(upper, dimension)))


def _table(parted: Parted, key: ir.Range, blocks: Rows) -> Numbers:
    """For every block of queries the keys of every block of keys that some of them has to do with, first and last."""
    assert isinstance(parted.clause.body, ir.Reduce)
    guard = parted.clause.body.guard
    alive = parted.alive
    found = np.broadcast_to(np.array(blocks, np.int64), (len(alive), len(blocks), 2))
    if guard is not None and alive:
        pieces = len(Domain.of((*parted.clause.ranges, key), (guard,), parted.lets).pieces)
        narrowed = _narrowed(parted, key, found, pieces > 1)
        found = _one_by_one(parted, key, found, pieces > 1) if narrowed is None else narrowed
    table = np.zeros((len(parted.points), len(blocks), 2), np.int64)
    table[alive] = found
    return table


def _narrowed(parted: Parted, key: ir.Range, blocks: Numbers, apart: bool) -> Numbers | None:
    """Blocks of keys without those that the guard removes at the front and at the back, of all or of each, where it has
    pieces `apart`; None where that is not affine."""
    if parted.range is None:
        return None
    upper, here = int(blocks[0, -1, 1]), build.coord(key.coordinate, key.span)
    reach = parted.reach(here, _trail(parted.clause, key), upper)
    if reach is None:
        return None
    first, last = reach.rows(parted.ends)
    blocks = np.stack((np.maximum(blocks[..., 0], first[:, None]), np.minimum(blocks[..., 1], last[:, None])), -1)
    if not apart:
        return blocks
    some = open_range(key)
    reach = parted.reach(here, _trail(parted.clause, some), upper, some)
    if reach is None:
        return None
    (queries,) = ((lower[:, None], end[:, None]) for lower, end in parted.ends.values())
    empty = blocks[..., 0] >= blocks[..., 1]
    found = reach.rows({parted.range.coordinate: queries, key.coordinate: (blocks[..., 0], blocks[..., 1])})
    return np.where(empty[..., None], 0, np.stack(found, -1))


def _one_by_one(parted: Parted, key: ir.Range, blocks: Numbers, apart: bool) -> Numbers:
    """The same, block by block."""
    upper, here = int(blocks[0, -1, 1]), build.coord(key.coordinate, key.span)
    found = np.zeros_like(blocks)
    for row, block in enumerate(parted.alive):
        clause = parted.at(block)
        reached = rows_read(here, _trail(clause, key), upper, parted.lets)
        for column, (first, last) in enumerate(blocks[row].tolist()):
            first, last = max(first, reached[0]), min(last, reached[1])
            if first < last and apart:
                first, last = rows_read(here, _trail(clause, within(key, first, last)), upper, parted.lets)
            found[row, column] = first, last
    return found


def _trail(clause: ir.Clause, key: ir.Range) -> Trail:
    """The trail to a key that the guard of a clause's attention leaves."""
    assert isinstance(clause.body, ir.Reduce)
    assert clause.body.guard is not None
    around: Trail = (*clause.ranges, *(() if clause.guard is None else ((clause.guard, True),)))
    return (*around, key, (clause.body.guard, True))


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
        rows = [(0, 0)] * planner.mesh.blocks(dimension)
        asked = partial(_is_still, name, axis, key)
        for _, reached in planner.reached(let, clause, dimension, cut, asked):
            rows = [hull(*both) for both in zip(rows, reached, strict=True)]
        found[name] = tuple(rows)
    return found


def _is_still(name: str, axis: int, key: Coordinate, read: ir.Read) -> bool:
    """Whether a read is one of a tensor that travels, apart from its keys."""
    return read.tensor == name and key not in read.indices[axis].type.coordinates
