"""Laws of products that terms do not show: powers, roots and exponentials are one thing, `exp` of a sum of logarithms.

`10^(log(2)/log(10))` is 2, `√(pi²)` is pi, `2^pi` is `exp(pi·log(2))`. It is asked only where no enclosure tells a
number from 0, and says only that it is 0, never that it is not.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from . import exponentials
from .surds import Surd, root
from .terms import NOTHING, Monomial, Polynomial, Term, is_same, name
from .tower import Number, TooManyTerms, Undecidable, divide, enclose, sign

# A number to a higher power is not multiplied out, and a root of a longer sum is not looked for.
_MOST_FACTORS = 64
_LONGEST_SUM = 200
# Exponents in exponents are compared so deep, and only where enclosures of so many bits do not tell them apart.
_DEEPEST = 2
_BITS = 256


def products_cancel(value: Polynomial, depth: int = 0) -> bool:
    """Whether a sum is 0 once each of its products is a factor times `exp` of a sum of logarithms. It has no symbols:
    then every term has a sign. Of two exponents it is asked in turn whether they are equal, a few times."""
    if value.is_formal or depth > _DEEPEST:
        return False
    try:
        found = _Rewriting().polynomial(value)
        found = found.cleared() if isinstance(found, Polynomial) else found
        return _cancel(found, depth) if isinstance(found, Polynomial) else not found
    except Undecidable:
        return False


def _cancel(value: Polynomial, depth: int) -> bool:
    found: list[tuple[Any, Any]] = []
    for monomial, coefficient in value.terms.items():
        exponent: Any = 0
        for atom, power in monomial:
            exponent = exponent + _log_of_atom(atom) * power
            if power % 2 and sign(_alone(atom)) < 0:
                coefficient = -coefficient
        exponent, factor = _split(exponent)
        coefficient = coefficient * factor
        for number, (other, total) in enumerate(found):
            if _are_equal(exponent, other, depth):
                found[number] = (other, total + coefficient)
                break
        else:
            found.append((exponent, coefficient))
    return all(_is_nothing(total) for _, total in found)


def _is_nothing(value: Any) -> bool:
    return value.is_zero() is True if isinstance(value, Number) else value == 0


def _are_equal(a: Any, b: Any, depth: int) -> bool:
    gap = a - b
    if not isinstance(gap, Polynomial) or enclose(gap, _BITS).sign() is not None:
        return _is_nothing(gap)
    from .identities import vanishes

    return vanishes(gap.cleared(), depth + 1)


def _alone(atom: Any) -> Polynomial:
    return Polynomial({frozenset(((atom, 1),)): 1})


def _split(exponent: Any) -> tuple[Any, Any]:
    """`exp` of a sum as `exp` of a part of it, with a number of the field as its factor: `exp(log(2) + x)` is
    `2·exp(x)`."""
    if not isinstance(exponent, Polynomial):
        if isinstance(exponent, int | Fraction | Surd):
            return 0, exponentials.exp(exponent)
        return exponent, 1
    factor: Any = 1
    rest: dict[Monomial, Any] = {}
    exponent = _divided(exponent)
    if not isinstance(exponent, Polynomial):
        return _split(exponent)
    for monomial, coefficient in exponent.terms.items():
        match list(monomial), coefficient:
            case [], int() | Fraction() | Surd():
                factor = factor * exponentials.exp(coefficient)
            case [(Term(function="log", arguments=(int() | Fraction() | Surd() as inside,)), 1)], int() | Fraction():
                whole = math.floor(coefficient)
                if abs(whole) > _MOST_FACTORS:
                    raise TooManyTerms(f"a power of {whole}")
                factor = factor * (inside if isinstance(inside, Number) else Fraction(inside)) ** whole
                part = coefficient - whole
                if part == Fraction(1, 2) and not isinstance(inside, Surd):
                    factor = factor * root(inside)
                elif part:
                    rest[monomial] = part
            case _:
                rest[monomial] = coefficient
    return (Polynomial(rest) if rest else 0), factor


def _divided(value: Polynomial) -> Any:
    """`(m·p)·(1/p) + rest` as `m + rest`, where `m` is one term."""
    atoms = {atom for monomial in value.terms for atom, _ in monomial if isinstance(atom, Term)}
    for atom in (atom for atom in atoms if atom.function == "inverse"):
        beside = {m - {(atom, 1)}: c for m, c in value.terms.items() if (atom, 1) in m}
        below = atom.arguments[0]
        if not isinstance(below, Polynomial) or len(beside) != len(below.terms):
            continue
        (first, coefficient), *_ = beside.items()
        above = Polynomial(beside)
        for monomial, other in below.terms.items():
            term = divide(_one(first, coefficient), _one(monomial, other))
            if is_same(term * below, above):
                rest = {m: c for m, c in value.terms.items() if (atom, 1) not in m}
                found = term + Polynomial(rest) if rest else term
                return _divided(found) if isinstance(found, Polynomial) else found
    return value


def _one(monomial: Monomial, coefficient: Any) -> Any:
    return Polynomial({monomial: coefficient}) if monomial else coefficient


# ---------------------------------------------------------------------- logarithms


def _log_of_atom(atom: Any) -> Any:
    """The logarithm of the magnitude of a term."""
    match atom.function, atom.arguments:
        case "exp", (inside,):
            return inside
        case "power", (base, exponent):
            return exponent * log_of(base)
        case "sqrt", (inside,):
            return log_of(inside) * Fraction(1, 2)
        case "inverse", (inside,):
            return -log_of(inside)
    return name("log", _alone(atom) * sign(_alone(atom)))


def log_of(value: Any) -> Any:
    """The logarithm of the magnitude of a number that is not 0: of a product it is a sum."""
    from .functions import log

    if not isinstance(value, Polynomial):
        return log(abs(value))
    if len(value.terms) > 1:
        found = square_root(value)
        if found is not None:
            factor, squared = found
            return log(factor) + log_of(squared) * 2
        # The first term comes out, in an order that multiples share, so that these have one logarithm.
        _, places = _placed(value)
        monomial = places[max(places)]
        unit = _one(monomial, value.terms[monomial])
        rest = divide(value, unit)
        return log_of(unit) + name("log", rest * sign(rest))
    ((monomial, coefficient),) = value.terms.items()
    result = log(abs(coefficient))
    for atom, power in monomial:
        result = result + _log_of_atom(atom) * power
    return result


class _Rewriting:
    """Terms in which logarithms of products are sums, and roots of squares are what was squared."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def polynomial(self, value: Polynomial) -> Any:
        changed = {atom for monomial in value.terms for atom, _ in monomial if self.term(atom) is not None}
        if not changed:
            return value
        result: Any = 0
        for monomial, coefficient in value.terms.items():
            kept = frozenset((atom, power) for atom, power in monomial if atom not in changed)
            part = _one(kept, coefficient)
            for atom, power in monomial:
                if atom in changed:
                    new = self.known[atom]
                    part = part * (new if isinstance(new, Number) else Fraction(new)) ** power
            result = result + part
        return result

    def term(self, atom: Any) -> Any:
        """A term written anew; None where it stays what it is."""
        if atom not in self.known:
            self.known[atom] = self._written(atom)
        return self.known[atom]

    def _written(self, atom: Any) -> Any:
        from .functions import ExactNumbers, power

        inside = tuple(self.polynomial(x) if isinstance(x, Polynomial) else x for x in atom.arguments)
        same = all(one is other for one, other in zip(inside, atom.arguments, strict=True))
        if atom.function == "log":
            found = log_of(inside[0])
            return None if is_same(found, _alone(atom)) else found
        if atom.function == "sqrt" and isinstance(inside[0], Polynomial):
            squared = square_root(inside[0])
            if squared is not None:
                factor, found = squared
                return ExactNumbers.functions["sqrt"](factor) * found * sign(found)
        if atom.function == "power" and (opened := _opened(inside[1] * log_of(inside[0]))) is not None:
            return opened
        if same:
            return None
        if atom.function == "power":
            return power(*inside)
        return divide(1, inside[0]) if atom.function == "inverse" else ExactNumbers.functions[atom.function](*inside)


def _opened(exponent: Any) -> Any:
    """`exp` of a sum of logarithms as the product of what they are of; None where it is none of whole powers alone."""
    exponent = _divided(exponent) if isinstance(exponent, Polynomial) else exponent
    if not isinstance(exponent, Polynomial):
        return None
    result: Any = 1
    for monomial, coefficient in exponent.terms.items():
        match list(monomial), coefficient:
            case [(Term(function="log", arguments=(inside,)), 1)], int() | Fraction():
                times = Fraction(coefficient)
                if times.denominator > 1 or abs(times) > _MOST_FACTORS:
                    return None
                result = result * (inside if isinstance(inside, Number) else Fraction(inside)) ** int(times)
            case _:
                return None
    return result


# ---------------------------------------------------------------------- squares


def _placed(value: Polynomial) -> tuple[list[Any], dict[tuple[int, ...], Monomial]]:
    """The atoms of a sum in some order, and its terms by their powers of these."""
    atoms = sorted({atom for monomial in value.terms for atom, _ in monomial}, key=hash)
    return atoms, {tuple(dict(m).get(atom, 0) for atom in atoms): m for m in value.terms}


def square_root(value: Polynomial) -> tuple[Any, Any] | None:
    """A positive number of the field and a sum such that the first times the square of the second is this sum; None
    where none is found. It is worked out term by term, as a root is by hand."""
    if len(value.terms) > _LONGEST_SUM:
        return None
    atoms, places = _placed(value)
    lead = max(places)
    factor = value.terms[places[lead]]
    if any(power % 2 for power in lead) or any(power < 0 for place in places for power in place) or sign(factor) <= 0:
        return None
    left = {place: divide(value.terms[monomial], factor) for place, monomial in places.items() if place != lead}
    half = tuple(power // 2 for power in lead)
    found: dict[tuple[int, ...], Any] = {half: 1}
    while left:
        top = max(left)
        place: tuple[int, ...] = tuple(a - b for a, b in zip(top, half, strict=True))
        if any(power < 0 for power in place) or place >= half or len(found) > _LONGEST_SUM:
            return None
        new = left[top] * Fraction(1, 2)
        for other, c in [*found.items(), (place, new * Fraction(1, 2))]:
            at = tuple(a + b for a, b in zip(other, place, strict=True))
            rest = left.pop(at, 0) - c * new * 2
            if not _is_nothing(rest):
                left[at] = rest
        found[place] = new
    terms = {frozenset((a, p) for a, p in zip(atoms, place, strict=True) if p): c for place, c in found.items()}
    return factor, terms[NOTHING] if set(terms) == {NOTHING} else Polynomial(dict(terms))
