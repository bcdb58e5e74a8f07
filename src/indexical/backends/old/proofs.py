"""Cached proofs from ranges and conditions: they are expensive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Atom, Polynomial, of_atom, polynomial
from ...ir.context import Trail, assume, bound_by, constants_of, look_through
from ...ir.domain import Domain
from ...ir.prove import Assumptions, conjuncts, inequalities
from ...ir.types import Coordinate
from ...ir.walk import walk
from ...records import replace
from .scope import Place, Scope


class Prover:
    """Answers about whole expressions of one program, remembered. `counted` are plain numbers that are never
    negative, `agreed` pairs of extents that are equal in every call that is not refused."""

    agreed: tuple[tuple[ir.Expr, ir.Expr], ...] = ()

    def __init__(self, lets: Mapping[str, ir.Let]) -> None:
        self.lets = lets
        self.counted: set[str] = set()
        self.constants = constants_of(lets)
        self._known: dict[Trail, Assumptions] = {}
        self._answers: dict[tuple[Trail, Polynomial, tuple[Polynomial, ...]], bool] = {}
        self._polynomials: dict[ir.Expr, Polynomial] = {}
        self._projections: dict[object, list[ir.Expr] | None] = {}

    def join(self, other: Prover) -> None:
        """Know what another one of the same program knows, and let it know what is found here."""
        self.agreed, self.counted = other.agreed, other.counted
        self._known, self._answers = other._known, other._answers
        self._polynomials, self._projections = other._polynomials, other._projections

    def polynomial(self, expr: ir.Expr) -> Polynomial:
        """A whole expression as a polynomial, constants of the program looked through."""
        if expr not in self._polynomials:
            self._polynomials[expr] = polynomial(expr, self.constants)
        return self._polynomials[expr]

    def entails(self, trail: Trail, goal: Polynomial, also: tuple[Polynomial, ...] = ()) -> bool:
        """Whether the goal is at least 0 wherever the trail leads and all of `also` are at least 0."""
        value = goal.constant
        if value is not None:
            return value >= 0
        if self.is_count(goal):
            return True
        key = (trail, goal, also)
        if key not in self._answers:
            self._answers[key] = self._entails(trail, goal, also)
        return self._answers[key]

    def is_count(self, value: Polynomial) -> bool:
        """A sum of products of sizes and positive numbers: never negative."""
        return all(
            factor > 0 and all(isinstance(a, ir.Size) or self.is_counted(a) for a, _ in monomial)
            for monomial, factor in value.terms.items()
        )

    def is_counted(self, atom: Atom) -> bool:
        return isinstance(atom, ir.Read) and atom.tensor in self.counted

    def _entails(self, trail: Trail, goal: Polynomial, also: tuple[Polynomial, ...]) -> bool:
        facts: list[Polynomial] = []
        for atom in goal.atoms:
            for part in () if isinstance(atom, Coordinate) else walk(atom):
                if isinstance(part, ir.Map) and part.op in ("//", "%"):
                    facts += self._facts_of(part, trail)
                elif self.is_counted(part) and part != atom:
                    facts.append(of_atom(part))
        return self._assumptions(trail, (*also, *facts)).entails(goal)

    def _facts_of(self, atom: ir.Map, trail: Trail) -> list[Polynomial]:
        """A quotient and a remainder of what is not negative are at most what they are made of."""
        dividend, divisor = (self.polynomial(argument) for argument in atom.arguments)
        if self.is_count(divisor) or not self.entails(trail, dividend) or not self.entails(trail, divisor):
            return []
        here = of_atom(atom)
        return [here, dividend - here] + ([divisor - here - 1] if atom.op == "%" else [])

    def _assumptions(self, trail: Trail, also: tuple[Polynomial, ...]) -> Assumptions:
        if trail not in self._known:
            self._known[trail] = assume(trail, self.lets)
        known = self._known[trail]
        return replace(known, known=(*known.known, *also)) if also else known

    def at_least(self, expr: ir.Expr, least: int, scope: Scope | None) -> bool:
        """Whether a whole expression is at least so much, wherever it is evaluated."""
        return self.entails(() if scope is None else scope.trail, self.polynomial(expr) - least)

    def is_inside(self, index: ir.Expr, extent: ir.Expr, scope: Scope, guarded: bool) -> bool:
        """Whether an index is in bounds at every point that is computed, or only of those where all guards hold."""
        if isinstance(index, ir.Coord):
            place = scope.places[index.coordinate]
            from_zero = isinstance(place.start, ir.Const) and place.start.value >= 0
            if self.is_measured(place, extent) or (place.stop == extent and from_zero):
                return True
        trail = scope.trail if guarded else scope.box
        found = self._place(index)
        if found is not None:
            there = found.guard is None or self.entails(trail, self.polynomial(index))
            return there and self._is_range_inside(found.ranges[0], extent, trail)
        where, length = self.polynomial(index), self.polynomial(extent)
        return self.entails(trail, where) and self.entails(trail, length - where - 1)

    def is_measured(self, place: Place, extent: ir.Expr) -> bool:
        """Whether a coordinate has just the points of an axis that it indexes bare. A read that was brought here from
        another definition may have its own, longer axis."""
        return place.measured and self.agree(place.stop, extent)

    def agree(self, left: ir.Expr, right: ir.Expr) -> bool:
        """Whether two extents are equal, by themselves or because the program takes them to be."""
        start, end = self.polynomial(left), self.polynomial(right)
        reached, waiting = {start}, [start]
        while waiting and end not in reached:
            here = waiting.pop()
            near = self._neighbours.get(here, set()) - reached
            reached |= near
            waiting += near
        return end in reached

    @cached_property
    def _neighbours(self) -> dict[Polynomial, set[Polynomial]]:
        result: dict[Polynomial, set[Polynomial]] = {}
        for pair in self.agreed:
            one, other = map(self.polynomial, pair)
            result.setdefault(one, set()).add(other)
            result.setdefault(other, set()).add(one)
        return result

    def _place(self, index: ir.Expr) -> ir.Reduce | None:
        """The `argmax` or `argmin` that an index is, by name too: a place in its range, or with a guard -1."""
        named = isinstance(index, ir.Read)
        if isinstance(index, ir.Read) and index.tensor in self.lets:
            clause, *others = self.lets[index.tensor].clauses
            index = index if others or clause.guard is not None else clause.body
        if not isinstance(index, ir.Reduce) or index.op not in ("argmax", "argmin"):
            return None
        return None if named and index.ranges[0].depends_on else index

    def _is_range_inside(self, range: ir.Range, extent: ir.Expr, trail: Trail) -> bool:
        lower, upper = self.polynomial(range.lower), self.polynomial(range.upper)
        return self.entails(trail, lower) and self.entails(trail, self.polynomial(extent) - upper)

    # --------------------------------------------------------------- projections

    def projected(self, scope: Scope, own: Iterable[Coordinate], opaque: bool = True) -> Scope:
        """The scope with its conditions put in terms of `own` coordinates alone: they hold exactly where, for some
        point of all others, the conditions hold. Where that takes more than arithmetic it is asked by an `any`, or,
        if nothing `opaque` is wanted, the scope stays as it is."""
        kept = {*own, *(c for c, place in scope.places.items() if place.within is not None)}
        facts: list[ir.Expr] = []
        for condition, holds in scope.conditions():
            facts += conjuncts(condition, holds, look_through(self.lets))
        gone = self._eliminated(facts, kept, scope)
        if not gone:
            return scope
        asked = [fact for fact in facts if fact.type.coordinates & gone.keys()]
        around = tuple(s for s in scope.box if not isinstance(s, ir.Range) or s.coordinate not in gone)
        key = tuple(asked), tuple(gone.values()), around
        if key not in self._projections:
            self._projections[key] = self._projection(asked, gone, around)
        found = self._projections[key]
        if found is None:
            if not opaque:
                return scope
            body = build.conjunction(asked)
            assert body is not None
            found = [build.reduce("any", tuple(gone.values()), body, None, "bool", body.span)]
        # Arithmetic comes first, since a guard that reads may count on it; what reads comes last, for the same reason.
        plain = [fact for fact in found if not any(isinstance(part, ir.Read) for part in walk(fact))]
        kept_facts = [fact for fact in facts if fact not in asked]
        ordered = [*plain, *kept_facts, *(fact for fact in found if fact not in plain)]
        inside = [place.within for place in scope.places.values() if place.within is not None]
        trail = [step for step in scope.trail if isinstance(step, ir.Range) or step in scope.tested]
        trail += [(fact, True) for fact in ordered if fact not in inside]
        return replace(scope, trail=tuple(trail))

    def _eliminated(self, facts: list[ir.Expr], kept: set[Coordinate], scope: Scope) -> dict[Coordinate, ir.Range]:
        """The ranges of all coordinates in facts, and in the bounds of these ranges, other than those that are kept."""
        waiting = [c for fact in facts for c in fact.type.coordinates]
        gone: set[Coordinate] = set()
        while waiting:
            coordinate = waiting.pop()
            if coordinate not in kept | gone:
                gone.add(coordinate)
                range = bound_by(coordinate, scope.trail)
                waiting += [*range.lower.type.coordinates, *range.upper.type.coordinates]
        return {s.coordinate: s for s in scope.trail if isinstance(s, ir.Range) and s.coordinate in gone}

    def _projection(
        self, facts: list[ir.Expr], gone: Mapping[Coordinate, ir.Range], around: Trail
    ) -> list[ir.Expr] | None:
        """Eliminate coordinates from facts, beyond what holds all around; None where that is not decided."""
        # A sum of data that is put another way could overflow where what was written does not.
        if any(isinstance(part, ir.Read) and part.indices for fact in facts for part in walk(fact)):
            return None
        box = (*(step for step in around if isinstance(step, ir.Range)), *gone.values())
        found = Domain.of(box, facts, self.lets).project(gone, tidy=False)
        # Several alternatives are no shorter than the conditions that they stand for.
        if found is None or not found.exact or len(found.pieces) > 1:
            return None
        left = found.pieces[0].facts if found.pieces else (build.truth(False, facts[0].span),)
        for fact in left:
            others = tuple(other for other in left if other is not fact)
            known = tuple(row for other in others for row in inequalities(other, self.constants) or ())
            rows = inequalities(fact, self.constants)
            if rows is not None and all(self.entails(around, row, known) for row in rows):
                left = others
        return list(left)


class WindowProver(Prover):
    """Proofs inside a window: a fact about all points of a coordinate holds of those in its window."""

    def __init__(self, lets: Mapping[str, ir.Let], unbounded: Mapping[Coordinate, Place]) -> None:
        super().__init__(lets)
        self.unbounded = unbounded

    def is_inside(self, index: ir.Expr, extent: ir.Expr, scope: Scope, guarded: bool) -> bool:
        places = {c: self.unbounded.get(c, place) for c, place in scope.places.items()}
        return super().is_inside(index, extent, Scope(places, scope.trail), guarded)
