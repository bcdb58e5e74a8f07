"""What is in force where an expression is asked: coordinates, their ranges, and every condition that holds."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir import nodes as ir
from ...ir.context import Trail
from ...ir.prove import conjuncts, no_definitions
from ...ir.types import Coordinate
from ...ir.walk import substitute
from ...records import dataclass, replace
from ..ops import Axis, Value


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The place of every coordinate in force: an axis, perhaps moved by a number, or the step of a loop. `box` has the
    ranges, the outermost first; `facts` are conditions that hold wherever the expression is asked, each asked where
    those before it hold. `stepped` are coordinates that a loop steps. `bounds` are the conditions that make up for an
    axis that is wider than the range of its coordinate: inside a normaliser they hold, where no other guard does.
    `within` is the definition that is lowered, whose readers may all stand under a guard. `gathers` are the
    softmaxes with whose weights values are summed: what they remove is 0 already unless a value is infinite or NaN."""

    places: Mapping[Coordinate, Value]
    box: tuple[ir.Range, ...] = ()
    facts: tuple[ir.Expr, ...] = ()
    stepped: frozenset[Coordinate] = frozenset()
    bounds: tuple[tuple[Coordinate, ir.Expr], ...] = ()
    within: str | None = None
    gathers: frozenset[str] = frozenset()

    def where(self, condition: ir.Expr | None, holds: bool = True) -> Scope:
        """The scope where a condition holds, or fails. Its parts are facts of their own."""
        if condition is None:
            return self
        return replace(self, facts=(*self.facts, *conjuncts(condition, holds, no_definitions)))

    @property
    def taken(self) -> set[str]:
        """The names of the axes in force."""
        return {axis.name.name for axis in self.axes}

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes in force."""
        return tuple(dict.fromkeys(axis for place in self.places.values() for axis in place.axes))

    @property
    def trail(self) -> Trail:
        """Everything that holds, to reason from."""
        return (*self.box, *((fact, True) for fact in self.facts))

    def range_of(self, coordinate: Coordinate) -> ir.Range:
        return next(range for range in reversed(self.box) if range.coordinate == coordinate)

    def speaks_of(self, coordinate: Coordinate) -> bool:
        """Whether a condition, or the range of another coordinate, varies with this one."""
        return any(coordinate in fact.type.coordinates for fact in self.facts) or any(
            coordinate in range.depends_on for range in self.box
        )

    def renamed(self, coordinate: Coordinate, other: ir.Coord, place: Value) -> Scope:
        """The same with a coordinate by another name, at a place of its own; the old name is free again."""
        names: dict[Coordinate, ir.Expr] = {coordinate: other}
        box = []
        for range in self.box:
            new = other.coordinate if range.coordinate == coordinate else range.coordinate
            lower, upper = substitute(range.lower, names), substitute(range.upper, names)
            box.append(replace(range, coordinate=new, lower=lower, upper=upper))
        facts = tuple(substitute(fact, names) for fact in self.facts)
        places = {name: one for name, one in self.places.items() if name != coordinate}
        bounds = tuple((own, substitute(fact, names)) for own, fact in self.bounds if own != coordinate)
        places[other.coordinate] = place
        return Scope(places, tuple(box), facts, self.stepped - {coordinate}, bounds, self.within, self.gathers)


NOWHERE = Scope({})
