"""Coordinates in force, while a statement is emitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import extreme
from ...ir.context import Trail
from ...ir.types import Coordinate
from ...records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Place:
    """A coordinate that runs from `start` up to `stop`, both free of coordinates. `within` holds where it is inside a
    range that depends on others. `measured` says that its size is that of every axis it indexes bare."""

    start: ir.Expr
    stop: ir.Expr
    measured: bool
    within: ir.Expr | None = None


@dataclass(frozen=True)
class Scope:
    """The coordinates in force, in the order of the axes of all that is computed; and what holds here.

    Conditions that Python has `tested` hold wherever the emitted code computes. Where one of the others on the trail
    fails, the emitted code may compute, but the value is not used.

    Where one of the `asked` facts fails, no reader asks for the point of the definition that is computed. They say
    nothing inside a normaliser or a reduction that binds their coordinate anew: it needs all of its points.
    """

    places: Mapping[Coordinate, Place]
    trail: Trail = ()
    tested: tuple[tuple[ir.Expr, bool], ...] = ()
    asked: tuple[ir.Expr, ...] = ()

    @cached_property
    def order(self) -> tuple[Coordinate, ...]:
        return tuple(self.places)

    @cached_property
    def box(self) -> Trail:
        """The facts wherever the emitted code computes: coordinates within their bounds, and tested conditions."""
        result: list[ir.Range | tuple[ir.Expr, bool]] = []
        for coordinate, place in self.places.items():
            result.append(ir.Range(coordinate, place.start, place.stop, True, place.start.span))
        return (*result, *self.tested)

    @cached_property
    def standing(self) -> Trail:
        """The facts that hold whether or not coordinates have points: tested conditions."""
        return self.tested

    def sort(self, coordinates: Iterable[Coordinate]) -> tuple[Coordinate, ...]:
        """Coordinates in the order of axes."""
        wanted = set(coordinates)
        return tuple(c for c in self.places if c in wanted)

    def binding(self, range: ir.Range, place: Place) -> Scope:
        places, trail = {**self.places, range.coordinate: place}, (*self.trail, range)
        return Scope(places, trail, self.tested, self._asked_beside(range.coordinate))

    def _asked_beside(self, coordinate: Coordinate) -> tuple[ir.Expr, ...]:
        """What readers ask for, but for what they ask of a coordinate that is bound anew."""
        return tuple(fact for fact in self.asked if coordinate not in fact.type.coordinates)

    def where(self, condition: ir.Expr | None, holds: bool = True) -> Scope:
        return self if condition is None else replace(self, trail=(*self.trail, (condition, holds)))

    def settled(self, condition: ir.Expr, holds: bool = True) -> Scope:
        """Inside a branch of the emitted code that is only taken where the condition holds."""
        step = (condition, holds)
        return replace(self, trail=(*self.trail, step), tested=(*self.tested, step))

    def conditions(self) -> list[tuple[ir.Expr, bool]]:
        """The conditions that removed points fail: those of dependent ranges, then those on the trail. One on a
        coordinate that is not in force here cannot be asked."""
        inside = [(place.within, True) for place in self.places.values() if place.within is not None]
        asked = (step for step in self.trail if not isinstance(step, ir.Range) and step not in self.tested)
        return inside + [step for step in asked if self.places.keys() >= step[0].type.coordinates]

    def plainly(self) -> Scope:
        """The same, with no conditions but those that Python has tested."""
        ranges = tuple(step for step in self.trail if isinstance(step, ir.Range))
        return replace(self, trail=(*ranges, *self.tested))

def static_bounds(range: ir.Range, scope: Scope) -> tuple[ir.Expr, ir.Expr] | None:
    """Bounds of a range that depends on other coordinates, wide enough for all of them; None where that takes
    more than arithmetic."""
    ends: dict[Coordinate, tuple[ir.Expr, ir.Expr]] = {}
    for coordinate, place in scope.places.items():
        last = build.apply("-", (place.stop, build.whole(1, range.span)), "whole", range.span)
        ends[coordinate] = place.start, last
    lower, upper = extreme(range.lower, ends, least=True), extreme(range.upper, ends, least=False)
    return None if lower is None or upper is None else (lower, upper)
