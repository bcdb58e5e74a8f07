"""Sums of exponentials, and quotients of them.

Exponentials of distinct algebraic numbers are linearly independent over the algebraic numbers (Lindemann and
Weierstrass). So a sum `Σ c·e^a` whose exponents are distinct is 0 only where every coefficient is, and whether two
quotients are equal is decided: multiply across, collect, compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cmp_to_key, lru_cache
from typing import Any

from ..records import dataclass
from . import enclosure, series
from .interval import NOT_YET, Interval, serves, shortened
from .surds import Surd
from .tower import Number, TooManyTerms, compare, divide, enclose, put_off, spend

# An expanded sum has at most this many terms.
MOST_TERMS = 200_000
# A product of two sums multiplies at most this many pairs of coefficients.
MOST_PRODUCTS = 3_000_000
# A product of more pairs than this stays a product, until something is added to it.
_FACTORED = 2_000


# A sum of as few terms is always computed: it becomes no longer than its parts.
_SMALL = 300


class Exponent(Fraction):
    """A fraction that is a key: its hash, which takes a modular inverse, is computed once."""

    __slots__ = ("_known",)
    _known: int

    def __hash__(self) -> int:  # type: ignore[override]
        try:
            return self._known
        except AttributeError:
            self._known = super().__hash__()
            return self._known


class Sum:
    """`Σ coefficient · e^exponent`, by exponent; both are rationals or Surds, and no coefficient is 0."""

    __slots__ = ("_enclosed", "_hash", "_split", "terms")

    def __init__(self, terms: dict[Any, Any]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._enclosed = NOT_YET
        self._split: tuple[Any, Any, Sum] | None = None

    def __len__(self) -> int:
        return len(self.terms)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Sum) and hash(self) == hash(other) and bool(self.terms == other.terms)
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def times(self, other: Sum) -> Sum:
        if len(self.terms) == 1 or len(other.terms) == 1:
            one, many = (self, other) if len(self.terms) == 1 else (other, self)
            ((shift, factor),) = one.terms.items()
            if not shift:
                return many.scaled(factor)
            return Sum({_key(exponent + shift): value * factor for exponent, value in many.terms.items()})
        if self.size() * other.size() > MOST_PRODUCTS:
            raise TooManyTerms(f"a product of sums of {len(self.terms):,} and {len(other.terms):,} exponentials")
        spend(len(self.terms) * len(other.terms))
        if len(self.terms) * len(other.terms) > _BY_WHOLES:
            left, right = _in_wholes(self.terms), _in_wholes(other.terms)
            if left is not None and right is not None and (left.unit == right.unit):
                return left.times(right)
        terms: dict[Any, Any] = {}
        for a, left_one in self.terms.items():
            for b, right_one in other.terms.items():
                exponent = _key(a + b)
                found = terms.get(exponent)
                terms[exponent] = left_one * right_one if found is None else found + left_one * right_one
        return Sum(_without_zeros(terms))

    def size(self) -> int:
        """The number of its rational coefficients."""
        return sum(len(c.terms) if isinstance(c, Surd) else 1 for c in self.terms.values())

    def scaled(self, factor: Any) -> Sum:
        return Sum({exponent: value * factor for exponent, value in self.terms.items()})

    def split(self) -> tuple[Any, Any, Sum]:
        """`(c, a, rest)`: this is `c · e^a · rest`, and `rest` is the same for all sums that differ by such a unit.

        Its smallest exponent is 0; its coefficients are whole and coprime, the first one positive, or, where some
        are not rational, the first one is 1.
        """
        if self._split is None:
            shift = self.least()
            unit = _content(list(self.terms.values()), self.terms[shift])
            if unit == 1 and shift == 0:
                self._split = (1, 0, self)
            else:
                rest = Sum({_key(a - shift): divide(c, unit) for a, c in self.terms.items()})
                rest._split = (1, 0, rest)
                self._split = (unit, shift, rest)
        return self._split

    def least(self) -> Any:
        """The smallest exponent."""
        if all(isinstance(exponent, int | Fraction) for exponent in self.terms):
            return min(self.terms)
        return min(self.terms, key=cmp_to_key(lambda a, b: compare(a, b) or 0))

    def exponents(self) -> list[Any]:
        """From the smallest to the largest."""
        if all(isinstance(exponent, int | Fraction) for exponent in self.terms):
            return sorted(self.terms)
        return sorted(self.terms, key=cmp_to_key(lambda a, b: compare(a, b) or 0))

    def enclose(self, bits: int) -> Interval:
        if not serves(self._enclosed, bits):
            total = Interval.of(0, bits)
            for exponent, coefficient in self.terms.items():
                if coefficient == 1:
                    total = total + exponential(exponent, bits)
                elif isinstance(coefficient, int | Fraction):
                    total = total + exponential(exponent, bits) * coefficient
                else:
                    total = total + exponential(exponent, bits) * enclose(coefficient, bits)
            self._enclosed = (bits, total)
        return self._enclosed[1]


# A product of more pairs than this is computed with whole numbers.
_BY_WHOLES = 64


@dataclass(frozen=True, slots=True)
class _Wholes:
    """A sum by whole numbers: its exponents over one denominator, all of them times one root, and its coefficients
    over another."""

    terms: list[tuple[int, int]]
    unit: int
    below_exponents: int
    below_coefficients: int

    def times(self, other: _Wholes) -> Sum:
        common = math.lcm(self.below_exponents, other.below_exponents)
        left, right = (
            [(a * (common // side.below_exponents), c) for a, c in side.terms] for side in (self, other)
        )
        terms: dict[int, int] = {}
        for a, c in left:
            for b, d in right:
                exponent = a + b
                terms[exponent] = terms.get(exponent, 0) + c * d
        below = self.below_coefficients * other.below_coefficients
        found = {self._exponent(a, common): Fraction(c, below) if below > 1 else c for a, c in terms.items() if c}
        return Sum(_without_zeros(found))

    def _exponent(self, above: int, below: int) -> Any:
        exponent = _key(Fraction(above, below)) if below > 1 else above
        return exponent if self.unit == 1 or not above else Surd({self.unit: exponent})


def _in_wholes(terms: dict[Any, Any]) -> _Wholes | None:
    """A sum by whole numbers; None where its exponents have several roots, or its coefficients any."""
    if not all(isinstance(c, int | Fraction) for c in terms.values()):
        return None
    units = {key for a in terms if a for key in (a.terms if isinstance(a, Surd) else (1,))}
    if len(units) > 1:
        return None
    unit = units.pop() if units else 1
    exponents = [a.terms[unit] if isinstance(a, Surd) else a for a in terms]
    below = math.lcm(*(a.denominator for a in exponents))
    under = math.lcm(*(c.denominator for c in terms.values()))
    pairs = zip(exponents, terms.values(), strict=True)
    wholes = [
        (a.numerator * (below // a.denominator), c.numerator * (under // c.denominator)) for a, c in pairs
    ]
    return _Wholes(wholes, unit, below, under)


def _key(exponent: Any) -> Any:
    """An exponent as the key of a term."""
    if type(exponent) is Fraction:
        return exponent.numerator if exponent.denominator == 1 else Exponent(exponent)
    return exponent


def is_short(exponent: Any) -> bool:
    """Whether many digits of `e^exponent` are quickly had."""
    if isinstance(exponent, Number) or abs(exponent) >= 64:
        return False
    return bool(max(exponent.numerator.bit_length(), exponent.denominator.bit_length()) <= series.SHORT)


@lru_cache(maxsize=1 << 15)
def exponential(exponent: Any, bits: int) -> Interval:
    """An enclosure of `e^exponent`."""
    if bits > enclosure.MANY and is_short(exponent):
        return series.exp_of(Fraction(exponent), bits)
    argument = enclose(exponent, bits)
    # An error in the exponent is one of the result relative to it: a large one is needed to more digits.
    length = max(abs(argument.low), abs(argument.high)).bit_length() + argument.exponent
    if length > 8:
        found = enclosure.exp(enclose(exponent, bits + length))
        return shortened(found.low, found.high, found.exponent, bits)
    return enclosure.exp(argument)


def _without_zeros(terms: dict[Any, Any]) -> dict[Any, Any]:
    left = {exponent: value for exponent, value in terms.items() if value}
    if len(left) > MOST_TERMS:
        raise TooManyTerms(f"a sum of {len(left):,} exponentials, and at most {MOST_TERMS:,} are kept")
    return left


def _content(coefficients: list[Any], first: Any) -> Any:
    """The factor to divide coefficients by: their gcd with the sign of the first; the first where one is irrational."""
    if not all(isinstance(c, int | Fraction) for c in coefficients):
        return first
    above = math.gcd(*(Fraction(c).numerator for c in coefficients))
    below = math.lcm(*(Fraction(c).denominator for c in coefficients))
    return Fraction(above if first > 0 else -above, below)


class Quotient(Number):
    """`top · Π factor^power`: an expanded sum, times primitive sums (as `split` gives them) to whole powers, not 0.

    It is never 0: `top` has terms, and by the theorem no sum with terms is.
    """

    __slots__ = ("_enclosed", "_hash", "factors", "top")
    level = 2

    def __init__(self, top: Sum, factors: dict[Sum, int]) -> None:
        self.top = top
        self.factors = factors
        self._enclosed = NOT_YET
        self._hash: int | None = None

    @classmethod
    def lift(cls, value: Any) -> Quotient:
        return cls(Sum({0: value}), {})

    def plus(self, other: Quotient) -> Any:
        return total([self, other])

    def times(self, other: Quotient) -> Any:
        factors = dict(self.factors)
        for factor, power in other.factors.items():
            factors[factor] = factors.get(factor, 0) + power
        work = len(self.top) * len(other.top)
        later = put_off(work, "product", self, other)
        if later is not None:
            return later
        if min(len(self.top), len(other.top)) == 1 or work <= _FACTORED:
            return _settled(self.top.times(other.top), factors)
        units = []
        for top in (self.top, other.top):
            unit, shift, rest = top.split()
            units.append(Sum({shift: unit}))
            factors[rest] = factors.get(rest, 0) + 1
        return _settled(units[0].times(units[1]), factors)

    def inverse(self) -> Any:
        unit, shift, rest = self.top.split()
        factors = {factor: -power for factor, power in self.factors.items()}
        if len(rest) > 1:
            factors[rest] = factors.get(rest, 0) - 1
        return _settled(Sum({-shift: divide(1, unit)}), factors)

    def scaled(self, factor: Any) -> Any:
        later = put_off(len(self.top), "product", self, factor)
        return Quotient(self.top.scaled(factor), self.factors) if later is None else later

    def enclose(self, bits: int) -> Interval:
        if not serves(self._enclosed, bits):
            result = self.top.enclose(bits)
            for factor, power in self.factors.items():
                found = factor.enclose(bits) ** abs(power)
                result = result / found if power < 0 else result * found
            self._enclosed = (bits, result)
        return self._enclosed[1]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quotient) and self.top == other.top and self.factors == other.factors:
            return True
        return super().__eq__(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.top, frozenset(self.factors.items())))
        return self._hash

    def __repr__(self) -> str:
        return f"Quotient({self.top.terms}, {[(f.terms, k) for f, k in self.factors.items()]})"

    def single(self) -> tuple[Any, Any] | None:
        """`(c, a)` where this is `c · e^a`."""
        if self.factors or len(self.top) > 1:
            return None
        ((exponent, coefficient),) = self.top.terms.items()
        return coefficient, exponent


def _settled(top: Sum, factors: dict[Sum, int]) -> Any:
    """The simplest form at hand: a top that is a unit times a factor below cancels it."""
    factors = {factor: power for factor, power in factors.items() if power}
    if not top.terms:
        return 0
    for factor in factors if len(top) > 1 else ():
        unit = _unit_of(top, factor)
        if unit is not None:
            return _settled(unit, {**factors, factor: factors[factor] + 1})
    if not factors and len(top) == 1 and 0 in top.terms:
        return top.terms[0]
    return Quotient(top, factors)


def _unit_of(top: Sum, factor: Sum) -> Sum | None:
    """The `c·e^a` by which a sum is a multiple of another; None where it is none."""
    if len(top) != len(factor):
        return None
    shift: Any = 0
    if top.terms.keys() != factor.terms.keys():
        shift = top.least()
    unit: Any = None
    for exponent, coefficient in factor.terms.items():
        found = top.terms.get(exponent + shift if shift else exponent)
        if found is None or (unit is not None and found != coefficient * unit):
            return None
        if unit is None:
            unit = divide(found, coefficient)
    return Sum({_key(shift): unit})


def total(values: Sequence[Any]) -> Any:
    """The sum of quotients, multiplied out over what their factors have in common."""
    work = sum(len(value.top) for value in values)
    later = put_off(work, "sum", *values) if work > _SMALL else None
    if later is not None:
        return later
    groups: dict[frozenset[tuple[Sum, int]], dict[Any, Any]] = {}
    last: Any = None
    terms: dict[Any, Any] = {}
    for value in values:
        if value.factors is not last:
            last = value.factors
            terms = groups.setdefault(frozenset(last.items()), {})
        spend(len(value.top.terms))
        for exponent, coefficient in value.top.terms.items():
            found = terms.get(exponent)
            terms[exponent] = coefficient if found is None else found + coefficient
    parts = [(Sum(_without_zeros(terms)), dict(factors)) for factors, terms in groups.items()]
    parts = [(top, factors) for top, factors in parts if top.terms]
    if len(parts) == 1:
        return _settled(*parts[0])
    everything = {factor for _, factors in parts for factor in factors}
    common = {factor: min(factors.get(factor, 0) for _, factors in parts) for factor in everything}
    work = sum(_work(top, factors, common) for top, factors in parts)
    later = put_off(work, "sum", *values) if work > _SMALL else None
    if later is not None:
        return later
    terms = {}
    for top, factors in parts:
        for factor, least in common.items():
            for _ in range(factors.get(factor, 0) - least):
                top = top.times(factor)
        for exponent, coefficient in top.terms.items():
            found = terms.get(exponent)
            terms[exponent] = coefficient if found is None else found + coefficient
    return _settled(Sum(_without_zeros(terms)), common)


def _work(top: Sum, factors: dict[Sum, int], common: dict[Sum, int]) -> int:
    """How many terms are multiplied to bring a part of a sum to the common factors, at most."""
    result = len(top)
    for factor, least in common.items():
        result *= len(factor) ** (factors.get(factor, 0) - least)
    return result


def exp(exponent: Any) -> Any:
    """`e` to a rational or a Surd."""
    return Quotient(Sum({_key(exponent): 1}), {}) if exponent else 1
