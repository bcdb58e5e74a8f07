"""Sequences of several spaces, joined: memory and context, image and text, along one coordinate.

`let K[p in 0..size(m) + size(i)] = if p < size(m) { M[p] } else { C[p - size(m)] };` reads an axis of memory on one
part of its points and one of context on another. So `p` is of neither: it runs through both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from ..ir import nodes as ir
from ..ir.context import Trail, bound_by, visit_clause
from ..ir.domain import Domain
from ..ir.types import Coordinate
from ..records import dataclass
from .spaces import TOGETHER, Classes, Joined, tied


@dataclass(frozen=True, slots=True)
class Tie:
    """A coordinate that indexes an axis of a space, and what holds there."""

    range: ir.Range
    space: str
    clause: int
    trail: Trail


def joined_sequences(program: ir.Program, classes: Classes) -> Joined:
    """The ranges of the coordinates that run through several spaces, each on points of its own, and those spaces."""
    lets = program.definitions
    found: dict[int, str] = {}
    for let in program.lets:
        ties: dict[object, list[Tie]] = defaultdict(list)
        for number, clause in enumerate(let.clauses):
            for tie in _ties(clause, number, classes):
                ties[_owner(clause, tie.range)].append(tie)
        for group in ties.values():
            spaces = sorted({tie.space for tie in group})
            if len(spaces) > 1 and _are_apart(group, lets):
                found.update((id(tie.range), TOGETHER.join(spaces)) for tie in group)
    return found


def _owner(clause: ir.Clause, range: ir.Range) -> object:
    """The axis of a definition for the coordinates of its slots, whichever clause has them; else the range itself."""
    slots = [slot.coordinate if isinstance(slot, ir.Coord) else None for slot in clause.slots]
    own = range in clause.ranges and range.coordinate in slots
    return slots.index(range.coordinate) if own else ("range", id(range))


def _ties(clause: ir.Clause, number: int, classes: Classes) -> Iterator[Tie]:
    """Yield the places of a clause at which a coordinate indexes an axis whose space is declared, and not its own."""
    for expr, trail in visit_clause(clause):
        for axis, index in enumerate(expr.indices if isinstance(expr, ir.Read) else ()):
            assert isinstance(expr, ir.Read)
            coordinate, space = tied(index), classes.known((expr.tensor, axis))
            if coordinate is None or space is None or space == coordinate.space:
                continue
            outside = Coordinate(coordinate.name.rstrip("'"), coordinate.rest, coordinate.space)
            range = bound_by(outside, trail)
            if isinstance(range, ir.Range):
                yield Tie(range, space, number, trail)


def _are_apart(ties: list[Tie], lets: Mapping[str, ir.Let]) -> bool:
    """Whether no point is on axes of two spaces. Two clauses of a definition have no point in common."""
    for one, other in combinations(ties, 2):
        if one.space != other.space and one.clause == other.clause:
            steps = dict.fromkeys((*one.trail, *other.trail))
            if not Domain.along(tuple(steps), lets).is_empty():
                return False
    return True
