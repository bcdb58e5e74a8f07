"""Guards as arithmetic: from which key up to which, of which groups.

`j <= i` is an upper bound, `document[b, i] == document[b, j]` a group for each side, `j < p || j <= i` two pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Monomial, Polynomial, number, of_atom, polynomial
from ..ir.algebra.canonical import disjuncts, text, written
from ..ir.context import assume
from ..ir.prove import Assumptions, conjuncts, inequalities
from ..ir.types import Coordinate
from ..ir.walk import is_bare
from .steps import Mask, Piece

# A guard with more alternatives than this is asked point by point.
MOST_PIECES = 8


def analyze(
    guard: tuple[ir.Expr, ...],
    key: ir.Range,
    ranges: tuple[ir.Range, ...],
    lets: Mapping[str, ir.Let],
    asks: frozenset[Coordinate],
) -> Mask:
    """What a guard leaves of the keys. `ranges` bind the other coordinates; `asks` are those among them that the
    queries have and the keys do not: what varies with them is no group of a key.

    No piece at all means that no key is heard.
    """
    reading = _Reading(key, asks, assume((*ranges, key), lets))
    try:
        cases = reading.alternatives(guard)
    except _TooMany:
        return Mask((Piece((), (), (), guard),))
    pieces: dict[str, Piece] = {}
    for facts in cases:
        piece = reading.piece(facts)
        if piece is not None:
            pieces.setdefault(_shown(piece), piece)
    whole = next((piece for piece in pieces.values() if piece == Piece((), (), (), ())), None)
    return Mask((whole,) if whole is not None else tuple(pieces.values()))


def kind(
    mask: Mask, key: ir.Range, rows: tuple[ir.Range, ...], lets: Mapping[str, ir.Let]
) -> Literal["full", "causal"] | None:
    """`full` where every query hears every key, `causal` where the query at `i` hears the keys up to `i`."""
    if len(mask.pieces) != 1:
        return None
    piece = mask.pieces[0]
    if piece == Piece((), (), (), ()):
        return "full"
    if piece.lower or piece.groups or piece.rest or len(piece.upper) != 1 or len(rows) != 1:
        return None
    if text(key.lower) != "0" or text(rows[0].lower) != "0":
        return None
    known = assume(rows, lets)
    past = polynomial(piece.upper[0], known.constants) - of_atom(rows[0].coordinate)
    return "causal" if past == number(1) else None


def _shown(piece: Piece) -> str:
    parts = (piece.lower, piece.upper, [side for pair in piece.groups for side in pair], piece.rest)
    return "|".join(" ".join(map(text, part)) for part in parts)


class _TooMany(Exception):
    """More alternatives than are worth telling apart."""


@dataclass
class _Bounds:
    """A piece as it is put together. `labels` are those groups that are real numbers, each with its fact."""

    lower: list[Polynomial] = field(default_factory=list)
    upper: list[Polynomial] = field(default_factory=list)
    choices: list[ir.Expr] = field(default_factory=list)
    groups: list[tuple[ir.Expr, ir.Expr]] = field(default_factory=list)
    labels: list[tuple[tuple[ir.Expr, ir.Expr], ir.Expr]] = field(default_factory=list)
    rest: list[ir.Expr] = field(default_factory=list)


@dataclass(frozen=True)
class _Reading:
    """The keys of one guard, and what is known around it."""

    key: ir.Range
    asks: frozenset[Coordinate]
    known: Assumptions

    # ---------------------------------------------------------------------- alternatives

    def alternatives(self, guard: Iterable[ir.Expr]) -> list[list[ir.Expr]]:
        """The guard as several conjunctions, one of which must hold."""
        cases: list[list[ir.Expr]] = [[]]
        for condition in guard:
            for fact in conjuncts(condition, True, self.known.definitions):
                choices = self._choices(fact)
                cases = [[*case, *choice] for case, choice in product(cases, choices)]
                if len(cases) > MOST_PIECES:
                    raise _TooMany
        return cases

    def _choices(self, fact: ir.Expr) -> list[list[ir.Expr]]:
        match fact:
            case ir.Map("||"):
                return [case for side in disjuncts(fact) for case in self.alternatives((side,))]
            case ir.Map("!", (ir.Map("&&", sides),)):
                opposites = [build.apply("!", (side,), "bool", side.span) for side in sides]
                return [case for side in opposites for case in self.alternatives((side,))]
            case ir.Map("!=", (left, right)) if self._is_linear(left, right):
                below = build.apply("<", (left, right), "bool", fact.span)
                above = build.apply("<", (right, left), "bool", fact.span)
                return [[below], [above]]
            case ir.Map("<" | "<=" | ">" | ">=", (left, right)) if left.type.kind == right.type.kind == "whole":
                return self._distances(fact)
        return [[fact]]

    def _is_linear(self, left: ir.Expr, right: ir.Expr) -> bool:
        if left.type.kind != "whole" or right.type.kind != "whole":
            return False
        parted = self._part(self._polynomial(left) - self._polynomial(right))
        return parted is not None and parted[0] != 0

    def _distances(self, fact: ir.Expr) -> list[list[ir.Expr]]:
        """`abs(i - j) >= n` as the one side or the other."""
        (row,) = inequalities(fact, self.known.constants) or (None,)
        found = None if row is None else self._absolute(row)
        if row is None or found is None or found[1] < 0:
            return [[fact]]
        inner, factor, rest = found
        sides = [inner, -inner]
        return [[_at_least(_scaled(side, factor) + rest, fact)] for side in sides]

    def _absolute(self, row: Polynomial) -> tuple[Polynomial, int, Polynomial] | None:
        """The distance in a row that varies with the key, its factor, and what else there is."""
        for monomial, factor in row.terms.items():
            match [atom for atom, _ in monomial]:
                case [ir.Map("abs", (inner,)) as atom] if self.key.coordinate in atom.type.coordinates:
                    rest = Polynomial({m: f for m, f in row.terms.items() if m != monomial})
                    return self._polynomial(inner), factor, rest
        return None

    # ---------------------------------------------------------------------------- pieces

    def piece(self, facts: list[ir.Expr]) -> Piece | None:
        """A conjunction as a piece; None where it never holds."""
        found = _Bounds()
        for fact in facts:
            if isinstance(fact, ir.Const):
                if not fact.value:
                    return None
            else:
                self._sort(fact, found)
        if len(found.groups) > 1:
            # Several groups become one by arithmetic, which real labels have none of.
            found.rest += [fact for _, fact in found.labels]
            found.groups = [pair for pair in found.groups if all(pair is not label for label, _ in found.labels)]
        start, end = self._polynomial(self.key.lower), self._polynomial(self.key.upper)
        lower = self._strongest([bound for bound in found.lower if not self.known.entails(start - bound)], 1)
        upper = self._strongest([bound for bound in found.upper if not self.known.entails(bound - end)], -1)
        span = self.key.span
        return Piece(
            tuple(sorted((written(bound, span) for bound in lower), key=text)),
            (*sorted((written(bound, span) for bound in upper), key=text), *found.choices),
            tuple(found.groups),
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

    def _sort(self, fact: ir.Expr, found: _Bounds) -> None:
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
            found.groups.append(pair)
            found.labels += [(pair, fact)] if "real" in (pair[0].type.kind, pair[1].type.kind) else []
        elif not fact.type.coordinates & self.asks:
            one, zero = build.whole(1, fact.span), build.whole(0, fact.span)
            found.groups.append((one, build.select(fact, one, zero, fact.span)))
        else:
            found.rest.append(fact)

    # ---------------------------------------------------------------------------- bounds

    def _bound(self, rows: list[Polynomial], found: _Bounds) -> bool:
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
        """A quotient rounded down, or up; `/` rounds toward 0."""
        if all(factor % divisor == 0 for factor in value.terms.values()):
            return Polynomial({monomial: factor // divisor for monomial, factor in value.terms.items()})
        span = self.key.span
        by = build.whole(divisor, span)
        above = written(value + (divisor - 1 if up else 0), span)
        below = written(-value + (0 if up else divisor - 1), span)
        plain = build.apply("//", (above, by), "whole", span)
        if self.known.entails(value):
            return of_atom(plain)
        other = build.apply("//", (below, by), "whole", span)
        if self.known.entails(-value):
            return -of_atom(other)
        condition = build.apply("<=", (build.whole(0, span), written(value, span)), "bool", span)
        negative = build.apply("neg", (other,), "whole", span)
        return of_atom(build.select(condition, plain, negative, span))

    def _polynomial(self, expr: ir.Expr) -> Polynomial:
        return polynomial(expr, self.known.constants)

    # ---------------------------------------------------------------------------- groups

    def _pair(self, fact: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
        """The two sides of an equation, the one free of the key and the other of who asks."""
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
        return self.key.coordinate not in asked.type.coordinates and not answered.type.coordinates & self.asks

    def _whole_pair(self, difference: Polynomial) -> tuple[ir.Expr, ir.Expr] | None:
        remainder = self._remainder(difference)
        if remainder is not None:
            return remainder
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

    def _remainder(self, difference: Polynomial) -> tuple[ir.Expr, ir.Expr] | None:
        """`(i - j) % n == 0` says that `i % n` is `j % n`, for numbers that are not negative."""
        match [(list(monomial), factor) for monomial, factor in difference.terms.items()]:
            case [([(ir.Map("%", (inner, divisor)), 1)], _)]:
                here, there = self._sides(self._polynomial(inner))
                if all(factor > 0 for factor in there.terms.values()):
                    here, there = -here, -there
                there = -there
                if not self.known.entails(here) or not self.known.entails(there):
                    return None
                span = self.key.span
                sides = [build.apply("%", (written(part, span), divisor), "whole", span) for part in (here, there)]
                pair = sides[0], sides[1]
                return pair if self._are_sides(*pair) and not divisor.type.coordinates else None
        return None


def _scaled(value: Polynomial, factor: int) -> Polynomial:
    return Polynomial({monomial: factor * own for monomial, own in value.terms.items()}) if factor else number(0)


def _at_least(row: Polynomial, fact: ir.Expr) -> ir.Expr:
    """A row that is at least 0, as a condition."""
    return build.apply("<=", (build.whole(0, fact.span), written(row, fact.span)), "bool", fact.span)
