"""Traversal: what is not changed stays the same node, and nothing is captured."""

from __future__ import annotations

from tests.plan.agreement import program_of

from indexical.ir import build
from indexical.ir import nodes as ir
from indexical.ir.types import Coordinate
from indexical.ir.walk import at, rebuild, substitute, walk

PROGRAM = program_of("input A[i, j], x[i];\nlet y[i] = sum[j](A[i, j] * x[j]) + x[i];\n")
CLAUSE = PROGRAM.lets[0].clauses[0]
SLOT = CLAUSE.slots[0]


def test_what_no_change_touches_stays_the_same_node() -> None:
    maps = [part for part in walk(CLAUSE.body) if isinstance(part, ir.Map | ir.Read)]
    assert len(maps) == 5
    assert all(rebuild(part, lambda child: child) is part for part in maps)


def test_a_definition_at_its_own_coordinates_is_its_body() -> None:
    assert at(CLAUSE, CLAUSE.body, CLAUSE.slots) is CLAUSE.body


def test_a_coordinate_of_another_space_is_another_index() -> None:
    other = build.coord(Coordinate("i", space="position"), CLAUSE.span)
    found = at(CLAUSE, CLAUSE.body, (other,))
    assert found is not None
    assert found is not CLAUSE.body
    assert {c.space for c in found.type.coordinates} == {"position"}


def test_what_a_sum_binds_is_renamed_where_it_would_capture() -> None:
    assert isinstance(SLOT, ir.Coord)
    outer = build.coord(Coordinate("j"), CLAUSE.span)
    found = substitute(CLAUSE.body, {SLOT.coordinate: outer})
    total = next(part for part in walk(found) if isinstance(part, ir.Reduce))
    assert found.type.coordinates == {"j"}
    assert "j" not in total.coordinates
