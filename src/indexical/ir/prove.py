"""Proofs from guards and ranges, for whole numbers: decided by elimination.

Everything is a list of polynomials that are at least 0. A product or a quotient counts as a
variable of its own, with the few facts about it that are always true. What cannot be proved here
is checked in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import gcd, inf
from typing import TypeAlias, TypeGuard

from ..records import dataclass, field, replace
from . import walk
from .affine import (
    ONE,
    Atom,
    Constants,
    Monomial,
    Polynomial,
    is_counted,
    no_constants,
    of_atom,
    polynomial,
    replaced,
)
from .conditions import negated
from .nodes import Const, Expr, Map, Range, Read, Size
from .types import Coordinate

# A linear form over monomials that is at least 0.
Row: TypeAlias = dict[Monomial, int]
_Numbered: TypeAlias = dict[int, int]  # The same with a number for each monomial, 0 for the constant.

_MOST_ROWS = 160


# A lookup of the body of the definition of this name at these indices, where a guard may be expanded.
Definitions: TypeAlias = Callable[[Read], Expr | None]


def no_definitions(read: Read) -> Expr | None:
    return None


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The facts at a point: polynomials at least 0, and the conditions by their text.

    `opaque` is True where some condition could not be put as polynomials.
    """

    known: tuple[Polynomial, ...] = ()
    stated: frozenset[Expr] = frozenset()
    opaque: bool = False
    constants: Constants = field(default=no_constants, compare=False)
    definitions: Definitions = field(default=no_definitions, compare=False)

    def within(self, *ranges: Range) -> Assumptions:
        """Also: each coordinate is in its range."""
        rows = [row for range in ranges for row in _inside(range, self.constants)]
        return self._also(rows, (), False) if rows else self

    def assuming(self, condition: Expr, holds: bool = True) -> Assumptions:
        """Also: the condition holds (or fails)."""
        known: list[Polynomial] = []
        stated: list[Expr] = []
        opaque = False
        for fact in conjuncts(condition, holds, self.definitions):
            rows = inequalities(fact, self.constants)
            known.extend(rows or self._apart(fact))
            stated.append(fact)
            opaque = opaque or rows is None
        return self._also(known, stated, opaque)

    def sharpened(self) -> Assumptions:
        """The same, with every bound that a fact excludes sharpened: the bound may have come after the fact."""
        found = [row for fact in self.stated if isinstance(fact, Map) and fact.op == "!=" for row in self._apart(fact)]
        return self._also(found, (), False) if found else self

    def _apart(self, fact: Expr) -> list[Polynomial]:
        """Sharpen a bound that a fact excludes: `t != 0` is `t >= 1` where `t >= 0` is known."""
        match fact:
            case Map("!=", (left, right)) if left.type.kind == right.type.kind == "whole":
                difference = polynomial(left, self.constants) - polynomial(right, self.constants)
                return [side - 1 for side in (difference, -difference) if self.entails(side)][:1]
        return []

    def _also(self, known: Iterable[Polynomial], stated: Iterable[Expr], opaque: bool) -> Assumptions:
        return Assumptions(
            (*self.known, *known),
            self.stated.union(stated),
            self.opaque or opaque,
            self.constants,
            self.definitions,
        )

    def entails(self, goal: Polynomial) -> bool:
        """Whether the goal is at least 0 at every point where these hold. The least or largest of some is one of them:
        the goal is to hold whichever it is."""
        value = goal.constant
        if value is not None:
            return value >= 0
        if not satisfiable((*related(self.known, goal), -goal - 1), self):
            return True
        for atom in goal.atoms:
            if isinstance(atom, Map) and atom.op in ("min", "max") and atom.type.kind == "whole":
                return all(self._entails_as(atom, argument, goal) for argument in atom.arguments)
        return False

    def _entails_as(self, atom: Map, chosen: Expr, goal: Polynomial) -> bool:
        """Whether the goal holds where one of several is the least (or largest)."""
        here, sign = polynomial(chosen, self.constants), 1 if atom.op == "min" else -1
        others = [polynomial(argument, self.constants) for argument in atom.arguments if argument != chosen]
        ordered = [other - here if sign > 0 else here - other for other in others]
        return replace(self, known=(*self.known, *ordered)).entails(replaced(goal, atom, here))

    def proves(self, condition: Expr) -> bool:
        """Whether the condition holds wherever these do. Where one of several is known to hold, in every case."""
        if all(self._proves(fact) for fact in conjuncts(condition, True, self.definitions)):
            return True
        for known in self.stated:
            if isinstance(known, Map) and known.op == "||":
                rest = replace(self, stated=self.stated - {known})
                return all(rest.assuming(case).proves(condition) for case in known.arguments)
        return False

    def _proves(self, fact: Expr) -> bool:
        if fact in self.stated:
            return True
        match fact:
            case Const(value):
                return bool(value)
            case Map("||", parts):
                return any(self.proves(part) for part in parts)
            case Map("!=", (left, right)):
                difference = polynomial(left, self.constants) - polynomial(right, self.constants)
                return self.entails(difference - 1) or self.entails(-difference - 1)
        rows = inequalities(fact, self.constants)
        return rows is not None and all(self.entails(row) for row in rows)

    def extremes(self, value: Polynomial) -> tuple[float, float]:
        """The least and the largest that a value may have here: these, or further apart. `entails` may know more."""
        here = Coordinate("the value")
        at = of_atom(here) - value
        rows = eliminate([dict(fact.terms) for fact in (*self.known, at, -at)], frozenset((here,))) or []
        bounds = [(row.get(frozenset(((here, 1),)), 0), row.get(ONE, 0)) for row in rows]
        lower = (-(number // factor) for factor, number in bounds if factor > 0)
        upper = (number // -factor for factor, number in bounds if factor < 0)
        return max(lower, default=-inf), min(upper, default=inf)

    @property
    def consistent(self) -> bool:
        """False only where it is certain that no point satisfies these."""
        return satisfiable(self.known, self)


def _inside(range: Range, constants: Constants) -> tuple[Polynomial, ...]:
    """What is at least 0 in a range: found once where its bounds are numbers and sizes, which no constant decides."""
    if range.inside is not None:
        return range.inside
    point = of_atom(range.coordinate)
    lower = [polynomial(bound, constants) for bound in _each(range.lower, "max")]
    upper = [polynomial(bound, constants) for bound in _each(range.upper, "min")]
    found = (*(point - bound for bound in lower), *(bound - point - 1 for bound in upper))
    if type(range.lower) in walk.LEAVES and type(range.upper) in walk.LEAVES:
        object.__setattr__(range, "inside", found)
    return found


def _each(bound: Expr, op: str) -> tuple[Expr, ...]:
    """Split a bound: a point at least `max(a, b)` is at least each of them, one below `min(a, b)` below each."""
    return (bound, *bound.arguments) if isinstance(bound, Map) and bound.op == op else (bound,)


def conjuncts(condition: Expr, holds: bool, definitions: Definitions) -> list[Expr]:
    """The condition, or its opposite, as facts that all hold; named guards are looked through."""
    match condition:
        case Map("&&", (left, right)) if holds:
            return conjuncts(left, True, definitions) + conjuncts(right, True, definitions)
        case Map("||", (left, right)) if not holds:
            return conjuncts(left, False, definitions) + conjuncts(right, False, definitions)
        case Map("!", (operand,)):
            return conjuncts(operand, not holds, definitions)
        case Read():
            meaning = definitions(condition)
            if meaning is not None:
                return conjuncts(meaning, holds, definitions)
    return [condition if holds else negated(condition)]


def inequalities(fact: Expr, constants: Constants) -> list[Polynomial] | None:
    """A comparison of wholes as polynomials that are at least 0; None for anything else."""
    match fact:
        case Map("<" | "<=" | ">" | ">=" | "==" as op, (left, right)) if left.type.kind == right.type.kind == "whole":
            difference = polynomial(right, constants) - polynomial(left, constants)
            return {
                "<": [difference - 1],
                "<=": [difference],
                ">": [-difference - 1],
                ">=": [-difference],
                "==": [difference, -difference],
            }[op]
        case _:
            return None


def related(known: tuple[Polynomial, ...], goal: Polynomial) -> list[Polynomial]:
    """The facts that have to do with a goal: through atoms that they share, one with another."""
    reached = _leaves(goal)
    waiting = [(fact, _leaves(fact)) for fact in known]
    result: list[Polynomial] = []
    while True:
        apart: list[tuple[Polynomial, set[Atom]]] = []
        for entry in waiting:
            if reached.isdisjoint(entry[1]):
                apart.append(entry)
            else:
                result.append(entry[0])
                reached |= entry[1]
        if len(apart) == len(waiting):
            return result
        waiting = apart


def _leaves(value: Polynomial) -> set[Atom]:
    """The atoms of a polynomial, and what those are made of that are expressions."""
    found: set[Atom] = set()
    for atom in value.atoms:
        found.add(atom)
        if isinstance(atom, Map):
            found |= atom.type.coordinates
            found |= {part for part in walk.walk(atom) if isinstance(part, Size)}
    return found


def satisfiable(known: Iterable[Polynomial], assumptions: Assumptions) -> bool:
    """False only where no whole numbers make all of these at least 0. It is remembered, but for what the constants of
    one program decide."""
    facts = tuple(known)
    constants = assumptions.constants
    if constants is no_constants or not any(_names_constants(fact, constants) for fact in facts):
        return _remembered(facts)
    return _is_satisfiable(facts, assumptions)


def _names_constants(fact: Polynomial, constants: Constants) -> bool:
    """Whether an atom of a fact is made of constants of the program."""
    parts = (part for atom in fact.atoms if isinstance(atom, Map) for part in walk.walk(atom))
    return any(isinstance(part, Read) and constants(part.tensor) is not None for part in parts)


@lru_cache(4096)
def _remembered(facts: tuple[Polynomial, ...]) -> bool:
    return _is_satisfiable(facts, Assumptions())


def _is_satisfiable(known: tuple[Polynomial, ...], assumptions: Assumptions) -> bool:
    facts = list(known)
    facts += _always_true(facts, assumptions)
    return eliminate([dict(fact.terms) for fact in facts], keep=frozenset()) is not None


def _always_true(facts: list[Polynomial], assumptions: Assumptions) -> list[Polynomial]:
    """Sizes are at least 0, remainders are less than their divisor, a factor keeps an order."""
    extra: list[Polynomial] = []
    atoms = _with_parts({atom for fact in facts for atom in fact.atoms}, assumptions)
    for atom in sorted(atoms, key=_depth):
        extra += _facts_of(atom, facts + extra, assumptions)
    atoms |= {atom for fact in extra for atom in fact.atoms}
    extra += [of_atom(atom) for atom in atoms if is_counted(of_atom(atom))]
    extra += [fact * of_atom(atom) for atom, fact in _products(facts + extra, facts)]
    divided = {polynomial(atom.arguments[1], assumptions.constants) for atom in atoms if _is_division(atom)}
    # What is divided by is at least 1 where it is a size: a product with it is no less than its other factor.
    extra += [fact * of_atom(atom) - fact for atom, fact in _products(extra, facts) if of_atom(atom) in divided]
    return extra


def _products(among: list[Polynomial], facts: list[Polynomial]) -> Iterator[tuple[Atom, Polynomial]]:
    """The facts that may be multiplied by a size that stands in a product with one of their atoms."""
    for monomial in {monomial for fact in among for monomial in fact.terms if len(monomial) > 1}:
        for atom, power in monomial:
            if is_counted(of_atom(atom)) and power == 1:
                others = {other for other, _ in monomial if other != atom}
                yield from ((atom, fact) for fact in facts if fact.atoms & others)


def _with_parts(atoms: set[Atom], assumptions: Assumptions) -> set[Atom]:
    """Atoms, and those of what is divided in them: `j / P` in `j / P / R`."""
    waiting, found = list(atoms), set(atoms)
    while waiting:
        match waiting.pop():
            case Map("//" | "%", (left, _)) as atom if _depth(atom) > 1:
                more = polynomial(left, assumptions.constants).atoms - found
                found |= more
                waiting += more
    return found


def _depth(atom: Atom) -> int:
    """The number of divisions in an atom."""
    return sum(map(_is_division, walk.walk(atom))) if isinstance(atom, Map) else 0


def _is_division(atom: Atom) -> TypeGuard[Map]:
    return isinstance(atom, Map) and atom.op in ("//", "%")


def _facts_of(atom: Atom, facts: list[Polynomial], assumptions: Assumptions) -> list[Polynomial]:
    """`a = b·(a // b) + a % b`, for `a` at least 0, and neither part is larger than `a`. Where `b` is 0 nothing is
    evaluated."""
    match atom:
        case Map("//" | "%", (left, right)):
            dividend = polynomial(left, assumptions.constants)
            divisor = polynomial(right, assumptions.constants)
            if not (is_counted(dividend) or _is_never_negative(dividend, divisor, facts)):
                return []
            if not is_counted(divisor):
                # It may be negative: then so is the quotient, and the remainder is not.
                value = of_atom(atom)
                return [dividend - value, dividend + value if atom.op == "//" else value]
            quotient = of_atom(Map("//", atom.arguments, atom.type, atom.span))
            remainder = dividend - quotient * divisor
            rows = [quotient, quotient * divisor, remainder, divisor - remainder - 1, dividend - quotient]
            return rows + (
                [of_atom(atom) - remainder, remainder - of_atom(atom)] if atom.op == "%" else []
            )
        case Map("max", arguments) if atom.type.kind == "whole":
            return [of_atom(atom) - polynomial(argument, assumptions.constants) for argument in arguments]
    return []


def _is_never_negative(dividend: Polynomial, divisor: Polynomial, facts: list[Polynomial]) -> bool:
    """Whether facts say that what is divided is at least 0; what divides it, if it is a size, is not 0."""
    known = [*facts, divisor - 1] if is_counted(divisor) else facts
    for monomial in dividend.terms:
        if len(monomial) > 1 and all(_is_known(atom, facts) for atom, _ in monomial):
            known = [*known, Polynomial({monomial: 1})]
    return plain_entails(Assumptions(tuple(known)), dividend)


def _is_known(atom: Atom, facts: list[Polynomial]) -> bool:
    """Whether an atom is at least 0."""
    value = of_atom(atom)
    return is_counted(value) or plain_entails(Assumptions(tuple(facts)), value)


def plain_entails(assumptions: Assumptions, goal: Polynomial) -> bool:
    """As `entails`, from the facts as they stand."""
    rows = [dict(fact.terms) for fact in (*assumptions.known, -goal - 1)]
    return eliminate(rows, keep=frozenset()) is None


class Inexact(Exception):
    """An elimination that may leave whole numbers in that the eliminated rows excluded."""


def eliminate(rows: list[Row], keep: frozenset[Atom], exact: bool = False) -> list[Row] | None:
    """Fourier and Motzkin: what the rows say of `keep` alone; None where they contradict each other.

    With too many rows the rest is given up, which only ever loses facts. Where the answer is to be `exact`, that is
    `Inexact`, as is a pair of factors larger than 1, between which there may be no whole number.
    """
    numbers: dict[Monomial, int] = {ONE: 0}
    left = _tidy([{numbers.setdefault(m, len(numbers)): factor for m, factor in row.items()} for row in rows])
    unwanted = [n for m, n in numbers.items() if m and not all(atom in keep for atom, _ in m)]
    while left is not None:
        above, below = [0] * len(numbers), [0] * len(numbers)
        for row in left:
            for variable, factor in row.items():
                if factor > 0:
                    above[variable] += 1
                else:
                    below[variable] += 1
        efforts = [((up - 1) * (down - 1), up + down, n) for n in unwanted if (up := above[n]) + (down := below[n])]
        if not efforts:
            monomials = list(numbers)
            return [{monomials[n]: factor for n, factor in row.items()} for row in left]
        left = _without(min(efforts)[2], left, exact)
    return None


def _without(variable: int, rows: list[_Numbered], exact: bool) -> list[_Numbered] | None:
    result = [row for row in rows if variable not in row]
    above = [row for row in rows if row.get(variable, 0) > 0]
    below = [row for row in rows if row.get(variable, 0) < 0]
    many = len(above) * len(below) + len(result) > _MOST_ROWS
    if exact and (many or all(any(abs(row[variable]) > 1 for row in side) for side in (above, below))):
        raise Inexact
    if many:
        return _tidy(result)
    for positive in above:
        for negative in below:
            result.append(_combine(positive, -negative[variable], negative, positive[variable]))
    return _tidy(result)


def _combine(left: _Numbered, times: int, right: _Numbered, other_times: int) -> _Numbered:
    row = {variable: times * factor for variable, factor in left.items()}
    for variable, factor in right.items():
        row[variable] = row.get(variable, 0) + other_times * factor
    return row


def _tidy(rows: list[_Numbered]) -> list[_Numbered] | None:
    """Each row divided by what its factors share (whole numbers: the constant rounds down), the
    stronger of two that differ in the constant alone; None where a row is never true."""
    strongest: dict[tuple[tuple[int, int], ...], int] = {}
    for row in rows:
        constant = row.pop(0, 0)
        factors = sorted(item for item in row.items() if item[1])
        if not factors:
            if constant < 0:
                return None
            continue
        share = gcd(*(factor for _, factor in factors))
        if share > 1:
            factors = [(variable, factor // share) for variable, factor in factors]
            constant //= share
        key = tuple(factors)
        strongest[key] = min(constant, strongest.get(key, constant))
    return [{**dict(key), 0: bound} for key, bound in strongest.items()]


@lru_cache(4096)
def always_possible(facts: tuple[Polynomial, ...]) -> bool:
    """Whether, for all sizes of at least 1, some point makes all of these at least 0.

    Only plain sums and differences of coordinates and sizes are decided; for all else False.
    """
    sizes: set[Atom] = set()
    for fact in facts:
        for monomial, factor in fact.terms.items():
            for atom, power in monomial:
                if power > 1 or len(monomial) > 1:
                    return False
                if isinstance(atom, Size):
                    sizes.add(atom)
                elif not isinstance(atom, Coordinate) or abs(factor) > 1:
                    return False
    left = eliminate([dict(fact.terms) for fact in facts], keep=frozenset(sizes))
    if left is None:
        return False
    generous = Assumptions(tuple(of_atom(size) - 1 for size in sizes))
    return all(plain_entails(generous, Polynomial({m: f for m, f in row.items() if f})) for row in left)
