"""One coordinate of a set of points, seen from the others: from which key up to which, with which labels.

`j <= i` is an upper bound of `j`, and a lower bound of `i`; `document[b, i] == document[b, j]` a label for each side.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from ..records import dataclass
from . import build
from . import nodes as ir
from .affine import Constants, Monomial, Polynomial, no_constants, number, of_atom, polynomial
from .algebra.canonical import text, written
from .prove import Assumptions, inequalities
from .types import Coordinate
from .walk import is_bare

# A guard with more alternatives than this is asked point by point.
MOST_PIECES = 8


@dataclass(frozen=True, slots=True)
class Slice:
    """Points of one coordinate, for a point of all others: from the largest of `lower` up to, not including, the
    smallest of `upper`; those whose label is that of the others, for every pair (theirs, its own) of `labels`; those
    for which every condition of `rest` holds. Bounds and the labels of the others are free of the coordinate, its own
    labels of what stands apart from it.
    """

    lower: tuple[ir.Expr, ...] = ()
    upper: tuple[ir.Expr, ...] = ()
    labels: tuple[tuple[ir.Expr, ir.Expr], ...] = ()
    rest: tuple[ir.Expr, ...] = ()

    @property
    def is_interval(self) -> bool:
        """Whether the bounds say all."""
        return not self.labels and not self.rest


WHOLE = Slice()


def slices(
    pieces: Iterable[tuple[ir.Expr, ...]],
    range: ir.Range,
    apart: frozenset[Coordinate],
    known: Assumptions,
    tidy: bool = True,
) -> tuple[Slice, ...]:
    """The points of a coordinate at which all facts of some piece hold: in some slice, and slices may overlap. `known`
    holds wherever a fact is asked; a label of the coordinate does not vary with what stands `apart`. `tidy` ones have
    no bound that another one, or the range, implies.

    No slice at all means no point.
    """
    solver = _Solver(range, apart, known)
    given = list(pieces)
    cases = [case for facts in given for case in solver.cases(facts)]
    found: dict[str, Slice] = {}
    for facts in cases if len(cases) <= MOST_PIECES else given:
        one = solver.slice(facts, tidy)
        if one is not None:
            found.setdefault(_shown(one), one)
    return (WHOLE,) if WHOLE in found.values() else tuple(found.values())


def choice_of(bound: ir.Expr, key: ir.Range) -> ir.Expr | None:
    """The condition of a bound that is all of a range where it holds, and nothing of it elsewhere."""
    match bound:
        case ir.Select(condition, then, otherwise) if then == key.upper and otherwise == key.lower:
            return condition
    return None


def _shown(one: Slice) -> str:
    parts = (one.lower, one.upper, [side for pair in one.labels for side in pair], one.rest)
    return "|".join(" ".join(map(text, part)) for part in parts)


def congruence(fact: ir.Expr, constants: Constants = no_constants) -> tuple[Polynomial, ir.Expr] | None:
    """`x % n == 0` as the multiple and what it is a multiple of; None for any other condition."""
    match fact:
        case ir.Map("==", (left, right)) if left.type.kind == right.type.kind == "whole":
            difference = polynomial(left, constants) - polynomial(right, constants)
            match [list(monomial) for monomial in difference.terms]:
                case [[(ir.Map("%", (multiple, divisor)), 1)]] if not divisor.type.coordinates:
                    return polynomial(multiple, constants), divisor
    return None


class _Found:
    """A slice as it is put together. `real` are those labels that are real numbers, each with its fact."""

    def __init__(self) -> None:
        self.lower: list[Polynomial] = []
        self.upper: list[Polynomial] = []
        self.choices: list[ir.Expr] = []
        self.labels: list[tuple[ir.Expr, ir.Expr]] = []
        self.real: list[tuple[tuple[ir.Expr, ir.Expr], ir.Expr]] = []
        self.rest: list[ir.Expr] = []


class _Solver:
    """The coordinate whose points are wanted, and what is known around it."""

    def __init__(self, key: ir.Range, apart: frozenset[Coordinate], known: Assumptions) -> None:
        self.key, self.apart, self.known = key, apart, known

    # ---------------------------------------------------------------------- alternatives

    def cases(self, facts: tuple[ir.Expr, ...]) -> list[tuple[ir.Expr, ...]]:
        """Facts as several conjunctions, one of which must hold; left as they are where there would be too many."""
        cases: list[tuple[ir.Expr, ...]] = [()]
        for fact in facts:
            cases = [(*case, choice) for case, choice in product(cases, self._choices(fact))]
            if len(cases) > MOST_PIECES:
                return [facts]
        return cases

    def _choices(self, fact: ir.Expr) -> list[ir.Expr]:
        """A fact that leaves points on both sides, as the one side and the other."""
        match fact:
            case ir.Map("!=", (left, right)) if self._is_linear(left, right):
                return [build.apply("<", sides, "bool", fact.span) for sides in ((left, right), (right, left))]
            case ir.Map("<" | "<=" | ">" | ">=", (left, right)) if left.type.kind == right.type.kind == "whole":
                return self._distances(fact)
        return [fact]

    def _is_linear(self, left: ir.Expr, right: ir.Expr) -> bool:
        if left.type.kind != "whole" or right.type.kind != "whole":
            return False
        parted = self._part(self._polynomial(left) - self._polynomial(right))
        return parted is not None and parted[0] != 0

    def _distances(self, fact: ir.Expr) -> list[ir.Expr]:
        """`abs(i - j) >= n` as the one side or the other."""
        (row,) = inequalities(fact, self.known.constants) or (None,)
        found = None if row is None else self._absolute(row)
        if row is None or found is None or found[1] < 0:
            return [fact]
        inner, factor, rest = found
        sides = [inner, -inner]
        return [_at_least(_scaled(side, factor) + rest, fact) for side in sides]

    def _absolute(self, row: Polynomial) -> tuple[Polynomial, int, Polynomial] | None:
        """The distance in a row that varies with the key, its factor, and what else there is."""
        for monomial, factor in row.terms.items():
            match list(monomial):
                case [(ir.Map("abs", (inner,)) as atom, 1)] if self.key.coordinate in atom.type.coordinates:
                    rest = Polynomial({m: f for m, f in row.terms.items() if m != monomial})
                    return self._polynomial(inner), factor, rest
        return None

    # ---------------------------------------------------------------------------- slices

    def slice(self, facts: Iterable[ir.Expr], tidy: bool) -> Slice | None:
        """A conjunction as a slice; None where it never holds."""
        found = _Found()
        for fact in facts:
            if isinstance(fact, ir.Const):
                if not fact.value:
                    return None
            else:
                self._sort(fact, found)
        if len(found.labels) > 1:
            # Several labels become one by arithmetic, which real ones have none of.
            found.rest += [fact for _, fact in found.real]
            found.labels = [pair for pair in found.labels if all(pair is not label for label, _ in found.real)]
        lower, upper, span = found.lower, found.upper, self.key.span
        if tidy:
            start, end = self._polynomial(self.key.lower), self._polynomial(self.key.upper)
            lower = self._strongest([bound for bound in lower if not self.known.entails(start - bound)], 1)
            upper = self._strongest([bound for bound in upper if not self.known.entails(bound - end)], -1)
        return Slice(
            tuple(sorted((written(bound, span) for bound in lower), key=text)),
            (*sorted((written(bound, span) for bound in upper), key=text), *found.choices),
            tuple(found.labels),
            tuple(found.rest),
        )

    def _strongest(self, bounds: list[Polynomial], sign: int) -> list[Polynomial]:
        """Those bounds that no other one implies."""
        result: list[Polynomial] = []
        for bound in bounds:
            if any(self.known.entails(_scaled(other - bound, sign)) for other in result):
                continue
            result = [other for other in result if not self.known.entails(_scaled(bound - other, sign))]
            result.append(bound)
        return result

    def _sort(self, fact: ir.Expr, found: _Found) -> None:
        """Put a fact where it belongs."""
        if self.key.coordinate not in fact.type.coordinates:
            if not self.known.proves(fact):
                found.choices.append(build.select(fact, self.key.upper, self.key.lower, fact.span))
            return
        rows = inequalities(fact, self.known.constants)
        if rows is not None and self._bound(rows, found):
            return
        pair = self._pair(fact)
        if pair is not None:
            found.labels.append(pair)
            found.real += [(pair, fact)] if "real" in (pair[0].type.kind, pair[1].type.kind) else []
        elif not fact.type.coordinates & self.apart:
            one, zero = build.whole(1, fact.span), build.whole(0, fact.span)
            found.labels.append((one, build.select(fact, one, zero, fact.span)))
        else:
            found.rest.append(fact)

    # ---------------------------------------------------------------------------- bounds

    def _bound(self, rows: list[Polynomial], found: _Found) -> bool:
        """Whether rows that are at least 0 are bounds of the key; they are then put down."""
        lower: list[Polynomial] = []
        upper: list[Polynomial] = []
        waiting = list(rows)
        while waiting:
            row = waiting.pop()
            parted = self._part(row)
            if parted is None:
                simpler = self._simpler(row)
                if simpler is None:
                    return False
                waiting += simpler
                continue
            factor, rest = parted
            bound = self._divided(rest if factor < 0 else -rest, abs(factor), up=factor > 0)
            (lower if factor > 0 else upper).append(bound if factor > 0 else bound + 1)
        found.lower += lower
        found.upper += upper
        return True

    def _part(self, row: Polynomial) -> tuple[int, Polynomial] | None:
        """The factor of the key in a row, and the rest, which is free of it; None where it is not so."""
        key: Monomial = frozenset(((self.key.coordinate, 1),))
        factor = row.terms.get(key, 0)
        rest = Polynomial({monomial: number for monomial, number in row.terms.items() if monomial != key})
        return (factor, rest) if factor and not self._varies(rest) else None

    def _varies(self, value: Polynomial) -> bool:
        key = self.key.coordinate
        return any(a == key if isinstance(a, Coordinate) else key in a.type.coordinates for a in value.atoms)

    def _simpler(self, row: Polynomial) -> list[Polynomial] | None:
        """Rows that together say the same, with the key out of an `abs`, a `max`, a `min` or a quotient."""
        distance = self._absolute(row)
        if distance is not None:
            inner, factor, rest = distance
            return [_scaled(inner, factor) + rest, _scaled(inner, -factor) + rest] if factor < 0 else None
        for monomial, factor in row.terms.items():
            rest = Polynomial({m: f for m, f in row.terms.items() if m != monomial})
            match [atom for atom, power in monomial if power == 1]:
                case [ir.Map("max" | "min" as op, arguments)] if (op == "min") == (factor > 0) and len(monomial) == 1:
                    return [_scaled(self._polynomial(argument), factor) + rest for argument in arguments]
                case [ir.Map("//", (dividend, divisor)) as atom] if self._is_only(atom, rest) and len(monomial) == 1:
                    return self._quotient(dividend, divisor, factor, rest)
        return None

    def _is_only(self, atom: ir.Expr, rest: Polynomial) -> bool:
        return self.key.coordinate in atom.type.coordinates and not self._varies(rest)

    def _quotient(self, inner: ir.Expr, divisor: ir.Expr, factor: int, rest: Polynomial) -> list[Polynomial] | None:
        """`x / n <= q` is `x < (q + 1) * n`, and `x / n >= q` is `x >= q * n`, where `x` is not negative."""
        dividend, steps = self._polynomial(inner), self._polynomial(divisor)
        if abs(factor) != 1 or not self.known.entails(dividend) or not self._is_positive(steps):
            return None
        if factor > 0:
            return [dividend + rest * steps]
        return [(rest + 1) * steps - dividend - 1]

    def _is_positive(self, value: Polynomial) -> bool:
        """At least 1. A size that is divided by is not 0, or nothing is evaluated."""
        sizes = all(isinstance(atom, ir.Size) for atom in value.atoms) and all(f > 0 for f in value.terms.values())
        return bool(value.terms) and (sizes or self.known.entails(value - 1))

    def _divided(self, value: Polynomial, divisor: int, up: bool) -> Polynomial:
        """A quotient rounded down, or up; `/` rounds toward 0. Where no point is negative, a bound that is negative may
        be any other that is not positive."""
        if all(factor % divisor == 0 for factor in value.terms.values()):
            return Polynomial({monomial: factor // divisor for monomial, factor in value.terms.items()})
        span, by = self.key.span, build.whole(divisor, self.key.span)

        def quotient(dividend: Polynomial) -> Polynomial:
            return of_atom(build.apply("//", (written(dividend, span), by), "whole", span))

        if self.known.entails(value):
            return quotient(value + (divisor - 1 if up else 0))
        if self.known.entails(-value):
            return -quotient(-value + (0 if up else divisor - 1))
        if self.known.entails(self._polynomial(self.key.lower)):
            return quotient(value + (divisor - 1)) if up else quotient(value + divisor) - 1
        condition = build.apply("<=", (build.whole(0, span), written(value, span)), "bool", span)
        above, below = quotient(value + (divisor - 1 if up else 0)), -quotient(-value + (0 if up else divisor - 1))
        return of_atom(build.select(condition, written(above, span), written(below, span), span))

    def _polynomial(self, expr: ir.Expr) -> Polynomial:
        return polynomial(expr, self.known.constants)

    # ---------------------------------------------------------------------------- labels

    def _pair(self, fact: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
        """The two sides of an equation, the one free of the key and the other of what stands apart."""
        found = congruence(fact, self.known.constants)
        residues = None if found is None else self._residues(*found)
        if residues is not None:
            return residues
        match fact:
            case ir.Map("==", (left, right)) if left.type.kind == right.type.kind == "whole":
                return self._whole_pair(self._polynomial(left) - self._polynomial(right))
            case ir.Map("==", (left, right)) if left.type.kind == right.type.kind == "bool":
                sides = [build.select(s, build.whole(1, s.span), build.whole(0, s.span), s.span) for s in (left, right)]
                if self.key.coordinate in left.type.coordinates:
                    sides.reverse()
                asked, answered = sides
                return (asked, answered) if self._are_sides(asked, answered) else None
            case ir.Map("==", (left, right)) if is_bare(fact):
                labels = (right, left) if self.key.coordinate in left.type.coordinates else (left, right)
                return labels if self._are_sides(*labels) else None
        return None

    def _are_sides(self, asked: ir.Expr, answered: ir.Expr) -> bool:
        return self.key.coordinate not in asked.type.coordinates and not answered.type.coordinates & self.apart

    def _whole_pair(self, difference: Polynomial) -> tuple[ir.Expr, ir.Expr] | None:
        here, there = self._sides(difference)
        first = next(iter(sorted(map(str, there.terms.values()))), "")
        if first.startswith("-"):
            here, there = -here, -there
        pair = written(-here, self.key.span), written(there, self.key.span)
        return pair if self._are_sides(*pair) else None

    def _sides(self, value: Polynomial) -> tuple[Polynomial, Polynomial]:
        """A sum as what is free of the key and what is not."""
        there = {m: f for m, f in value.terms.items() if self._varies(Polynomial({m: f}))}
        here = {m: f for m, f in value.terms.items() if m not in there}
        return Polynomial(here), Polynomial(there)

    def _residues(self, multiple: Polynomial, divisor: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
        """`(i - j) % n == 0` says that `i % n` is `j % n`, for numbers that are not negative."""
        here, there = self._sides(multiple)
        if all(factor > 0 for factor in there.terms.values()):
            here, there = -here, -there
        there = -there
        if not self.known.entails(here) or not self.known.entails(there):
            return None
        span = self.key.span
        sides = [build.apply("%", (written(part, span), divisor), "whole", span) for part in (here, there)]
        pair = sides[0], sides[1]
        return pair if self._are_sides(*pair) else None


def _scaled(value: Polynomial, factor: int) -> Polynomial:
    return Polynomial({monomial: factor * own for monomial, own in value.terms.items()}) if factor else number(0)


def _at_least(row: Polynomial, fact: ir.Expr) -> ir.Expr:
    """A row that is at least 0, as a condition."""
    return build.apply("<=", (build.whole(0, fact.span), written(row, fact.span)), "bool", fact.span)
