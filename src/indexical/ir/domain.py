"""Domains: sets of points, given by ranges and conditions: pairs of a query and a key, points that are needed, bounds.

Every answer is proved, or it is no. A set that is larger than the one asked for says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import product

from ..records import dataclass, field
from ..source import Span
from . import build
from . import nodes as ir
from .affine import Ends, extreme, polynomial
from .algebra.canonical import disjuncts
from .context import Trail, assume
from .elimination import in_range, without
from .prove import Assumptions, conjuncts, inequalities
from .slices import MOST_PIECES, Slice, slices
from .types import Coordinate

__all__ = ["Domain", "Piece", "Slice"]

_OPPOSITE = {"!=": "==", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Piece:
    """Points at which all facts hold, in the order in which they may be asked: comparisons of wholes, which are bounds
    of a coordinate that are affine in the others, equalities of labels (`doc[i] == doc[j]`), congruences
    (`(i - j) % 2 == 0`), and any other condition. What a fact is to a coordinate says its `Slice`."""

    facts: tuple[ir.Expr, ...] = ()


@dataclass(frozen=True)
class Domain:
    """The points of `box` at which some piece holds; pieces may overlap. No piece is no point.

    A range of the box may depend on coordinates before it. Where it is not `exact`, the points that are meant are among
    these.
    """

    box: tuple[ir.Range, ...]
    pieces: tuple[Piece, ...] = (Piece(),)
    exact: bool = True
    lets: Mapping[str, ir.Let] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls, box: Iterable[ir.Range], conditions: Iterable[ir.Expr] = (), lets: Mapping[str, ir.Let] | None = None
    ) -> Domain:
        """The points at which all conditions hold. Guards that are definitions are looked through."""
        result = cls(tuple(box), lets=lets or {})
        given = tuple(conditions)
        return result._of_pieces(result._pieces(given), True)

    @classmethod
    def along(cls, trail: Trail, lets: Mapping[str, ir.Let]) -> Domain:
        """The points that a trail leads to."""
        box = [step for step in trail if isinstance(step, ir.Range)]
        conditions = [_stated(*step) for step in trail if not isinstance(step, ir.Range)]
        return cls.of(box, conditions, lets)

    # ------------------------------------------------------------------------ construction

    def _of_pieces(self, pieces: tuple[Piece, ...], exact: bool) -> Domain:
        """Other points of the same box, which knows what holds at all of it."""
        found = Domain(self.box, pieces, exact, self.lets)
        if "known" in vars(self):
            vars(found)["known"] = self.known
        return found

    def _pieces(self, conditions: tuple[ir.Expr, ...]) -> tuple[Piece, ...]:
        try:
            cases = self._alternatives(conditions)
        except _TooMany:
            facts = (fact for c in conditions for fact in conjuncts(c, True, self.known.definitions))
            cases = [tuple(facts)]
        return _without_impossible(cases)

    def _alternatives(self, conditions: Iterable[ir.Expr]) -> list[tuple[ir.Expr, ...]]:
        """Conditions as several conjunctions, one of which must hold."""
        cases: list[tuple[ir.Expr, ...]] = [()]
        for condition in conditions:
            for fact in conjuncts(condition, True, self.known.definitions):
                cases = [(*case, *choice) for case, choice in product(cases, self._choices(fact))]
                if len(cases) > MOST_PIECES:
                    raise _TooMany
        return cases

    def _choices(self, fact: ir.Expr) -> list[tuple[ir.Expr, ...]]:
        match fact:
            case ir.Map("||"):
                return [case for side in disjuncts(fact) for case in self._alternatives((side,))]
            case ir.Map("!", (ir.Map("&&", sides),)):
                opposites = [build.apply("!", (side,), "bool", side.span) for side in sides]
                return [case for side in opposites for case in self._alternatives((side,))]
        return [(fact,)]

    # ------------------------------------------------------------------------------ facts

    @cached_property
    def known(self) -> Assumptions:
        """The assumptions that hold at every point of the box."""
        return assume(self.box, self.lets)

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        return tuple(range.coordinate for range in self.box)

    def range(self, coordinate: Coordinate) -> ir.Range:
        """The range of a coordinate."""
        return next(range for range in self.box if range.coordinate == coordinate)

    @cached_property
    def contexts(self) -> tuple[Assumptions, ...]:
        """The assumptions that hold at every point of each piece."""
        found = []
        for piece in self.pieces:
            known = self.known
            for fact in piece.facts:
                known = known.assuming(fact)
            found.append(known)
        return tuple(found)

    def condition(self, span: Span) -> ir.Expr | None:
        """The condition that a point of the box is one of the domain; None where all are."""
        cases = [build.conjunction(piece.facts) for piece in self.pieces]
        if not cases:
            return build.truth(False, span)
        result = cases[0]
        for case in cases[1:]:
            if case is None or result is None:
                return None
            result = build.apply("||", (result, case), "bool", span)
        return result

    # ---------------------------------------------------------------------------- answers

    def is_empty(self) -> bool:
        """Whether there is no point, whatever the sizes."""
        return not any(known.consistent for known in self.contexts)

    def contains(self, index: ir.Expr, extent: ir.Expr) -> bool:
        """Whether an index is in bounds of an axis at every point."""
        place = polynomial(index, self.known.constants)
        length = polynomial(extent, self.known.constants)
        return all(known.entails(place) and known.entails(length - place - 1) for known in self.contexts)

    def proves(self, condition: ir.Expr) -> bool:
        """Whether a condition holds at every point."""
        return all(known.proves(condition) for known in self.contexts)

    def implies(self, other: Domain) -> bool:
        """Whether every point is also one of the other domain, of which just that is known that it says."""
        if not other.exact or not set(other.coordinates) <= set(self.coordinates):
            return False
        if not all(self.proves(fact) for range in other.box if range not in self.box for fact in in_range(range)):
            return False
        return all(
            any(all(known.proves(fact) for fact in piece.facts) for piece in other.pieces) for known in self.contexts
        )

    # ------------------------------------------------------------------------- operations

    def where(self, *conditions: ir.Expr) -> Domain:
        """The points at which these conditions hold as well."""
        return self.intersect(Domain.of(self.box, conditions, self.lets))

    def intersect(self, other: Domain) -> Domain:
        """The points of both, each coordinate in the range that either gives it."""
        own = {range.coordinate: range for range in self.box}
        more = tuple(range for range in other.box if range.coordinate not in own)
        ranges = [range for range in other.box if own.get(range.coordinate, range) != range]
        bounds = tuple(fact for range in ranges for fact in in_range(range))
        cases = [(*bounds, *a.facts, *b.facts) for a, b in product(self.pieces, other.pieces)]
        if len(cases) > MOST_PIECES:
            cases = [(*bounds, *self._folded(), *other._folded())]
        return Domain((*self.box, *more), _without_impossible(cases), self.exact and other.exact, self.lets)

    def union(self, other: Domain) -> Domain:
        """The points of either, over the same coordinates. Ranges that differ become conditions of a wider one."""
        box: list[ir.Range] = []
        for mine in self.box:
            theirs = other.range(mine.coordinate)
            lower, upper = mine.lower, mine.upper
            if theirs.lower != lower:
                lower = build.apply("min", (lower, theirs.lower), "whole", mine.span)
            if theirs.upper != upper:
                upper = build.apply("max", (upper, theirs.upper), "whole", mine.span)
            box.append(ir.Range(mine.coordinate, lower, upper, True, mine.span) if mine != theirs else mine)
        cases: list[tuple[ir.Expr, ...]] = []
        for side in (self, other):
            bounds = tuple(fact for range in side.box if range not in box for fact in in_range(range))
            cases += [(*bounds, *piece.facts) for piece in side.pieces]
        unique = list(dict.fromkeys(cases))
        exact = self.exact and other.exact
        if len(unique) > MOST_PIECES:
            whole = Domain(tuple(box), tuple(map(Piece, unique)), exact, self.lets)
            unique = [whole._folded()]
        return Domain(tuple(box), tuple(map(Piece, unique)), exact, self.lets)

    def _folded(self) -> tuple[ir.Expr, ...]:
        """The condition of all pieces as facts of one."""
        condition = self.condition(self.box[0].span) if self.box else None
        return () if condition is None else tuple(conjuncts(condition, True, self.known.definitions))

    def project(self, gone: Collection[Coordinate], tidy: bool = True) -> Domain | None:
        """The points of all other coordinates for which there is some point of those that are `gone`: exactly these, or
        more. None where the range of one that stays cannot be told without one that is gone. What is `tidy` has no
        new condition that follows from the others."""
        box: list[ir.Range] = []
        ends = {range.coordinate: _ends(range) for range in self.box if range.coordinate in gone}
        tied: list[ir.Expr] = []
        for range in self.box:
            if range.coordinate in gone:
                continue
            if range.depends_on & ends.keys():
                lower, upper = _widest(range, ends)
                if lower is None or upper is None:
                    return None
                tied += in_range(range)
                range = ir.Range(range.coordinate, lower, upper, True, range.span)
            box.append(range)
        result = Domain(tuple(box), (), self.exact, self.lets)
        cases: list[tuple[ir.Expr, ...]] = []
        exact = self.exact
        for piece in self.pieces:
            found, sure = self._eliminated((*tied, *piece.facts), gone)
            cases += [_needed(facts, piece.facts, result.known) if tidy else facts for facts in found]
            exact = exact and sure
        return result._of_pieces(_without_impossible(cases), exact)

    def _eliminated(
        self, facts: tuple[ir.Expr, ...], gone: Collection[Coordinate]
    ) -> tuple[list[tuple[ir.Expr, ...]], bool]:
        """Facts without the coordinates that are gone, as conjunctions of which one must hold; and whether they say no
        less."""
        cases, exact = [facts], True
        for range in reversed([range for range in self.box if range.coordinate in gone]):
            found = [without(range, case, self.known) for case in cases]
            cases = [case for some, _ in found for case in some]
            exact = exact and all(sure for _, sure in found)
        return cases, exact

    # ----------------------------------------------------------------------- one coordinate

    def bounds(self, coordinate: Coordinate, apart: Iterable[Coordinate] | None = None) -> tuple[Slice, ...]:
        """The points of a coordinate, seen from all others. Its labels do not vary with what stands `apart` from it,
        which is all others where nothing is said."""
        others = tuple(fact for range in self.box for fact in in_range(range) if coordinate in range.depends_on)
        away = frozenset(set(self.coordinates) - {coordinate} if apart is None else apart)
        pieces = ((*others, *piece.facts) for piece in self.pieces)
        return slices(pieces, self.range(coordinate), away, self.known)


class _TooMany(Exception):
    """More alternatives than are worth telling apart."""


def _stated(condition: ir.Expr, holds: bool) -> ir.Expr:
    return condition if holds else build.apply("!", (condition,), "bool", condition.span)


def _without_impossible(cases: Iterable[tuple[ir.Expr, ...]]) -> tuple[Piece, ...]:
    """Conjunctions as pieces, without those that say that they never hold."""
    result = []
    for facts in cases:
        decided = [_decided(fact) for fact in facts]
        if False not in decided:
            result.append(Piece(tuple(fact for fact, known in zip(facts, decided, strict=True) if known is None)))
    return tuple(dict.fromkeys(result))


def _decided(fact: ir.Expr) -> bool | None:
    """Whether a fact holds, where it says so itself."""
    match fact:
        case ir.Const(value):
            return bool(value)
        case ir.Map("==" | "!=" | "<" | "<=" | ">" | ">=" as op, (ir.Const(left), ir.Const(right))):
            orders = {"==": left == right, "<": left < right, "<=": left <= right}
            return orders[op] if op in orders else not orders[_OPPOSITE[op]]
    return None


def _needed(facts: tuple[ir.Expr, ...], stated: tuple[ir.Expr, ...], known: Assumptions) -> tuple[ir.Expr, ...]:
    """Facts without comparisons that were found, and follow from all else."""
    kept: list[ir.Expr] = []
    for place, fact in enumerate(facts):
        if fact not in stated and inequalities(fact, known.constants) is not None:
            around = known
            for other in (*kept, *facts[place + 1 :]):
                around = around.assuming(other)
            if around.proves(fact):
                continue
        kept.append(fact)
    return tuple(kept)


def _ends(range: ir.Range) -> tuple[ir.Expr, ir.Expr]:
    """The first point of a range and the last."""
    return range.lower, build.apply("-", (range.upper, build.whole(1, range.span)), "whole", range.span)


def _widest(range: ir.Range, ends: Ends) -> tuple[ir.Expr | None, ir.Expr | None]:
    """Bounds that hold for all points of the coordinates that have ends, which may depend on each other."""
    lower: ir.Expr | None = range.lower
    upper: ir.Expr | None = range.upper
    for coordinate in reversed(tuple(ends)):
        one = {coordinate: ends[coordinate]}
        lower = None if lower is None else extreme(lower, one, True)
        upper = None if upper is None else extreme(upper, one, False)
    return lower, upper
