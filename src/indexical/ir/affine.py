"""Whole expressions as polynomials, so that indices, bounds and sizes can be compared, and their extremes found.

The atoms are coordinates, sizes, scalars and whatever cannot be taken apart (`i / 2`, a gather).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ..records import Hashed, dataclass
from ..source import Span
from . import build
from .nodes import Const, Coord, Expr, Map, Read, Size
from .types import Coordinate
from .walk import rebuild, substitute

Atom: TypeAlias = Coordinate | Expr
Monomial: TypeAlias = frozenset[tuple[Atom, int]]
ONE: Monomial = frozenset()

# The first and the last point of coordinates.
Ends: TypeAlias = Mapping[Coordinate, tuple[Expr, Expr]]

_WHOLE = frozenset(("+", "-", "*", "//", "%", "neg"))
_SAME, _UP, _DOWN = 0, 1, -1

# A lookup of the value of a scalar of this name, where that is known: a whole constant of the program.
Constants: TypeAlias = Callable[[str], Expr | None]


def no_constants(name: str) -> Expr | None:
    return None


@dataclass(frozen=True, slots=True)
class Polynomial(Hashed):
    """A sum of whole multiples of products of atoms; no term is zero."""

    terms: Mapping[Monomial, int]

    @property
    def constant(self) -> int | None:
        """The value, where it varies with nothing."""
        if not self.terms:
            return 0
        return self.terms.get(ONE) if len(self.terms) == 1 else None

    @property
    def atoms(self) -> set[Atom]:
        return {atom for monomial in self.terms for atom, _ in monomial}

    def __add__(self, other: Polynomial | int) -> Polynomial:
        return self.plus(other, 1) if isinstance(other, Polynomial) else self._moved(other)

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self.plus(other, -1) if isinstance(other, Polynomial) else self._moved(-other)

    def __neg__(self) -> Polynomial:
        return Polynomial({monomial: -factor for monomial, factor in self.terms.items()})

    def _moved(self, by: int) -> Polynomial:
        terms = dict(self.terms)
        terms[ONE] = terms.get(ONE, 0) + by
        if not terms[ONE]:
            del terms[ONE]
        return Polynomial(terms)

    def plus(self, other: Polynomial, times: int) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in other.terms.items():
            total = terms.get(monomial, 0) + times * factor
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Polynomial(terms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        result = Polynomial({})
        for left, factor in self.terms.items():
            row = {_product(left, right): factor * other_factor for right, other_factor in other.terms.items()}
            result = result.plus(Polynomial(row), 1)
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and dict(self.terms) == dict(other.terms)

    def __hash__(self) -> int:
        try:
            return self.hashed
        except AttributeError:
            found = hash(frozenset(self.terms.items()))
            object.__setattr__(self, "hashed", found)
            return found


def _product(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return frozenset(powers.items())


def number(value: int) -> Polynomial:
    return Polynomial({ONE: value} if value else {})


def of_atom(atom: Atom) -> Polynomial:
    return Polynomial({frozenset(((atom, 1),)): 1})


def polynomial(expr: Expr, constants: Constants = no_constants) -> Polynomial:
    """A whole expression as a polynomial; what cannot be taken apart is an atom of its own."""
    # The commonest first.
    if isinstance(expr, Map):
        return _of_map(expr, constants)
    if isinstance(expr, Coord):
        return of_atom(expr.coordinate)
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return number(int(expr.value))
    if isinstance(expr, Read) and not expr.indices:
        known = constants(expr.tensor)
        return of_atom(expr) if known is None else polynomial(known, constants)
    return of_atom(expr)


def _of_map(expr: Map, constants: Constants) -> Polynomial:
    match expr.op, expr.arguments:
        case "+", (left, right):
            return _reunited(polynomial(left, constants) + polynomial(right, constants), constants)
        case "-", (left, right):
            return polynomial(left, constants) - polynomial(right, constants)
        case "neg", (operand,):
            return -polynomial(operand, constants)
        case "*", (left, right):
            return _bounded(polynomial(left, constants) * polynomial(right, constants), expr)
        case "//" | "%" as op, (left, right):
            return _divide(op, polynomial(left, constants), polynomial(right, constants), _resolved(expr, constants))
        case _:
            return of_atom(expr)


def _resolved(expr: Expr, constants: Constants) -> Expr:
    """An expression with the values of constants in the place of their names, so that `j / P` is `j / size(p)`."""
    if constants is no_constants:
        return expr
    if isinstance(expr, Read) and not expr.indices:
        known = constants(expr.tensor)
        return expr if known is None else _resolved(known, constants)
    return rebuild(expr, lambda part: _resolved(part, constants))


def step_of(expr: Expr, coordinate: Coordinate) -> int | None:
    """The number by which a whole expression changes with each step of a coordinate; None where that varies."""
    further = build.apply("+", (build.coord(coordinate, expr.span), build.whole(1, expr.span)), "whole", expr.span)
    return (polynomial(substitute(expr, {coordinate: further})) - polynomial(expr)).constant


def _reunited(total: Polynomial, constants: Constants) -> Polynomial:
    """A sum in which a quotient and its remainder are what was divided: `n * (x / n) + x % n` is `x`."""
    for monomial, factor in total.terms.items():
        if len(monomial) != 1:
            continue
        ((atom, power),) = monomial
        if power != 1 or not isinstance(atom, Map) or atom.op != "%":
            continue
        dividend, divisor = atom.arguments
        divides = polynomial(divisor, constants)
        if is_counted(divides):
            quotient = of_atom(Map("//", atom.arguments, atom.type, atom.span))
            parts = divides * quotient * number(factor)
            if parts.terms and all(total.terms.get(one) == times for one, times in parts.terms.items()):
                rest = (total - parts).plus(of_atom(atom), -factor)
                return _reunited(rest + polynomial(dividend, constants) * number(factor), constants)
    return total


def _bounded(product: Polynomial, expr: Expr) -> Polynomial:
    """A product that grew past all use is an atom."""
    return product if len(product.terms) <= 64 else of_atom(expr)


def _divide(op: str, left: Polynomial, right: Polynomial, expr: Expr) -> Polynomial:
    """A quotient that comes out even is taken apart; two constants truncate toward zero."""
    divisor = right.constant
    if divisor is None:
        even = _even_quotient(left, right)
        if even is None:
            return of_atom(expr)
        return even if op == "//" else number(0)
    if divisor == 0:
        return of_atom(expr)
    value = left.constant
    if value is not None:
        quotient = abs(value) // abs(divisor) * (1 if (value >= 0) == (divisor > 0) else -1)
        return number(quotient if op == "//" else value - quotient * divisor)
    return of_atom(expr) if (even := evenly(op, left, divisor)) is None else even


def evenly(op: str, left: Polynomial, divisor: int) -> Polynomial | None:
    """A quotient, or the remainder, of a polynomial all of whose terms a number divides; None of another."""
    if divisor == 0 or any(factor % divisor for factor in left.terms.values()):
        return None
    return Polynomial({one: factor // divisor for one, factor in left.terms.items()} if op == "//" else {})


def _even_quotient(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """A polynomial divided by one of a single term, or by itself, where that comes out even; None where it does not."""
    if left == right:
        return number(1)
    if len(right.terms) != 1:
        return None
    ((divisor, times),) = right.terms.items()
    terms: dict[Monomial, int] = {}
    for monomial, factor in left.terms.items():
        powers = dict(monomial)
        for atom, power in divisor:
            powers[atom] = powers.get(atom, 0) - power
        if factor % times or min(powers.values()) < 0:
            return None
        terms[frozenset((atom, power) for atom, power in powers.items() if power)] = factor // times
    return Polynomial(terms)


def expression(value: Polynomial, span: Span) -> Expr:
    """A polynomial as an expression again."""
    terms = sorted(value.terms.items(), key=lambda term: (not term[0], term[1] < 0))
    return sum_of([(_term(monomial, abs(factor), span), factor) for monomial, factor in terms], span)


def sum_of(terms: Iterable[tuple[Expr, int]], span: Span) -> Expr:
    """The sum of whole expressions, each with the sign of a number."""
    result: Expr | None = None
    for term, factor in terms:
        if result is None:
            result = term if factor > 0 else _negative(term, span)
        else:
            result = build.apply("+" if factor > 0 else "-", (result, term), "whole", span)
    return build.whole(0, span) if result is None else result


def _negative(term: Expr, span: Span) -> Expr:
    if isinstance(term, Const):
        return build.whole(-int(term.value), span)
    return build.apply("neg", (term,), "whole", span)


def _term(monomial: Monomial, factor: int, span: Span) -> Expr:
    result: Expr | None = None if factor == 1 and monomial else build.whole(factor, span)
    for atom, power in sorted(monomial, key=str) if len(monomial) > 1 else monomial:
        for _ in range(power):
            leaf = build.coord(atom, span) if isinstance(atom, Coordinate) else atom
            result = leaf if result is None else build.apply("*", (result, leaf), "whole", span)
    assert result is not None
    return result


def tidied(expr: Expr) -> Expr:
    """The expression with its whole parts collected: `(2 * q + r - 2 * a - r) / 2` is `q - a`."""
    if expr.type.kind == "whole" and isinstance(expr, Map) and expr.op in _WHOLE:
        inner = rebuild(expr, tidied)
        return expression(polynomial(inner), expr.span)
    return rebuild(expr, tidied)


def is_counted(value: Polynomial) -> bool:
    """A sum of products of sizes, quotients of such sums and positive numbers: never negative. One that is divided by
    is not 0 either."""
    return all(
        factor > 0 and all(_is_counted_atom(atom) for atom, _ in monomial) for monomial, factor in value.terms.items()
    )


def _is_counted_atom(atom: Atom) -> bool:
    match atom:
        case Size():
            return True
        case Map("//" | "%" | "max" | "min", arguments) if atom.type.kind == "whole":
            return all(is_counted(polynomial(argument)) for argument in arguments)
        case _:
            return False


def replaced(value: Polynomial, atom: Atom, by: Polynomial) -> Polynomial:
    """A polynomial with another one in the place of an atom."""
    result = number(0)
    for monomial, factor in value.terms.items():
        term = Polynomial({frozenset((a, p) for a, p in monomial if a != atom): factor})
        for _ in range(dict(monomial).get(atom, 0)):
            term = term * by
        result = result + term
    return result


def vanishes(value: Polynomial, size: Polynomial) -> bool:
    """Whether a polynomial is 0 where a size is."""
    if len(atoms := size.atoms) != 1 or size != of_atom(atom := next(iter(atoms))):
        return False
    return not replaced(value, atom, number(0)).terms


# By how much a place changes with each coordinate.
Steps: TypeAlias = dict[Coordinate, Polynomial]


def affine_parts(value: Polynomial, names: frozenset[Coordinate]) -> tuple[Steps, Polynomial] | None:
    """The steps of a place along each coordinate, and where it begins; None where it is not affine in them."""
    steps: dict[Coordinate, Polynomial] = {}
    start = number(0)
    for monomial, factor in value.terms.items():
        inside = [(atom, power) for atom, power in monomial if isinstance(atom, Coordinate) and atom in names]
        if any(not isinstance(atom, Coordinate) and atom.type.coordinates & names for atom, _ in monomial):
            return None
        if not inside:
            start = start + Polynomial({monomial: factor})
        elif len(inside) == 1 and inside[0][1] == 1:
            others = Polynomial({frozenset(one for one in monomial if one != inside[0]): factor})
            steps[inside[0][0]] = steps.get(inside[0][0], number(0)) + others
        else:
            return None
    return steps, start


# ---------------------------------------------------------------------- extremes


def extreme(expr: Expr, ends: Ends, least: bool) -> Expr | None:
    """The least (or largest) value for coordinates that run from a first point to a last one, both included.

    It is taken at an end of each interval, so that it is a value of the expression wherever no interval is empty. None
    where the expression is not known to grow or to fall with one of them.
    """
    for coordinate in sorted(expr.type.coordinates & ends.keys()):
        way = direction(expr, coordinate)
        if way is None:
            return None
        first, last = ends[coordinate]
        expr = _decided(substitute(expr, {coordinate: first if (way >= 0) == least else last}))
    return expr


def _decided(expr: Expr) -> Expr:
    """The expression with the larger or smaller of two figures as that figure."""
    if not isinstance(expr, Map):
        return expr
    figures = [polynomial(argument).constant for argument in expr.arguments] if expr.op in ("max", "min") else []
    known = [figure for figure in figures if figure is not None]
    if known and len(known) == len(figures):
        return build.whole(max(known) if expr.op == "max" else min(known), expr.span)
    return rebuild(expr, _decided)


def direction(expr: Expr, coordinate: Coordinate) -> int | None:
    """1 where a whole expression never falls as a coordinate grows, -1 where it never grows, 0 where it stays the same;
    None where that is not plain."""
    return _along(polynomial(expr), coordinate)


def _along(value: Polynomial, coordinate: Coordinate) -> int | None:
    ways: list[int | None] = []
    for monomial, factor in value.terms.items():
        moving = [(atom, power) for atom, power in monomial if _varies(atom, coordinate)]
        if not moving:
            continue
        others = [atom for atom, _ in monomial if not _varies(atom, coordinate)]
        if len(moving) > 1 or moving[0][1] != 1 or not all(isinstance(atom, Size) for atom in others):
            return None
        way = _way_of(moving[0][0], coordinate)
        ways.append(None if way is None else way if factor > 0 else -way)
    return _both(ways)


def _varies(atom: Atom, coordinate: Coordinate) -> bool:
    return atom == coordinate if isinstance(atom, Coordinate) else coordinate in atom.type.coordinates


def _way_of(atom: Atom, coordinate: Coordinate) -> int | None:
    """A quotient rounds toward 0, which keeps an order; so does the larger or smaller of two."""
    match atom:
        case Coordinate():
            return _UP
        case Map("//", (dividend, divisor)) if is_counted(polynomial(divisor)):
            return direction(dividend, coordinate)
        case Map("max" | "min", arguments):
            return _both([direction(argument, coordinate) for argument in arguments])
        case _:
            return None


def _both(ways: list[int | None]) -> int | None:
    found = set(ways) - {_SAME}
    if None in found or found == {_UP, _DOWN}:
        return None
    return found.pop() if found else _SAME
