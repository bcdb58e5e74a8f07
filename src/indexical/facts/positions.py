"""Positions: which axes are numbered alike, so that one point may be said to come before another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..checker.spaces import tied
from ..ir import nodes as ir
from ..ir.affine import no_constants
from ..ir.context import look_through
from ..ir.prove import conjuncts, inequalities
from ..ir.types import NOWHERE, Coordinate
from ..ir.walk import walk
from ..records import dataclass, field
from .attention import Gather
from .roles import query_of, spaces_of
from .transposes import Transposed
from .view import View


@dataclass
class Positions:
    """Spaces, and those that belong together though nothing declares it: of who asks and of who answers, in any
    gather, and of two coordinates that a guard puts in order. Two spaces that were declared apart stay apart."""

    view: View
    _joined: dict[object, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found: list[Gather | Transposed] = [*self.view.gathers, *self.view.transposes]
        for gather in found:
            asks = query_of(self.view, gather)
            if len(asks) == 1:
                self._join_all([*spaces_of(self.view, gather, asks | {gather.coordinate})])
        for let in self.view.program.lets:
            for clause in let.clauses:
                for pair in _ordered(self.view, clause):
                    self._join_all([space for c in pair for space in _spaces(self.view, let, clause, c)])

    def group(self, space: object) -> object:
        """A mark that all spaces share that are numbered alike."""
        while space in self._joined:
            space = self._joined[space]
        return space

    def _join_all(self, spaces: list[object]) -> None:
        for one, other in pairwise(spaces):
            self._join(one, other)

    def _join(self, one: object, other: object) -> None:
        first, second = self.group(one), self.group(other)
        if first == second or (is_declared(first) and is_declared(second)):
            return
        # A declared space keeps its name, so that it is never joined with another one later.
        moved, kept = (second, first) if is_declared(first) else (first, second)
        self._joined[moved] = kept


def is_declared(space: object) -> bool:
    """Whether a space has a name: all others are only inferred."""
    return isinstance(space, str)


def counted_from(index: ir.Expr) -> frozenset[Coordinate]:
    """The coordinates that an index is counted from. What is looked up at a position, such as a token, is not."""
    match index:
        case ir.Coord(coordinate):
            return frozenset((coordinate,))
        case ir.Read() | ir.Array() | ir.Reduce() | ir.Normalize():
            return NOWHERE
        case ir.Map(arguments=parts):
            return NOWHERE.union(*map(counted_from, parts))
        case ir.Select(condition, then, otherwise):
            return NOWHERE.union(*map(counted_from, (condition, then, otherwise)))
        case _:
            return NOWHERE


def _ordered(view: View, clause: ir.Clause) -> Iterator[tuple[Coordinate, Coordinate]]:
    """The pairs of coordinates that a guard of a clause puts in order: `j <= i`, `i - j < w`."""
    parts = [part.guard for part in walk(clause.body) if isinstance(part, ir.Reduce | ir.Normalize)]
    for guard in (clause.guard, *parts):
        facts = [] if guard is None else conjuncts(guard, True, look_through(view.lets))
        for row in (row for fact in facts for row in inequalities(fact, no_constants) or ()):
            signs = {c: row.terms.get(frozenset({(c, 1)}), 0) for c in row.atoms if isinstance(c, Coordinate)}
            if len(signs) == 2 and sorted(signs.values()) == [-1, 1]:
                first, second = sorted(signs, key=str)
                yield first, second


def _spaces(view: View, let: ir.Let, clause: ir.Clause, coordinate: Coordinate) -> Iterator[object]:
    """The spaces of the axes of a clause that a coordinate stands at."""
    for number, slot in enumerate(clause.slots):
        if tied(slot) == coordinate:
            yield view.space_of(let.name, number)
    for part in walk(clause.body):
        if isinstance(part, ir.Read):
            for number, index in enumerate(part.indices):
                if tied(index) == coordinate:
                    yield view.space_of(part.tensor, number)
