"""Sums of square roots of rationals: ℚ(√2, √3, …).

Square roots of whole numbers of distinct square classes are linearly independent over ℚ, so a sum of them is 0 only
where every coefficient is. `n` and `m` are of one class where `n·m` is a square, which takes no factoring to see.
A class is known by one member: its small primes, each once, times the first number without them that was met.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from . import enclosure
from .interval import Interval
from .tower import Number, Rational, TooManyTerms

_PRIMES = [p for p in range(2, 1000) if all(p % q for q in range(2, math.isqrt(p) + 1))]
# Two numbers without small primes are of one class only where they are squares modulo the same of these.
_SQUARES = [(p, {n * n % p for n in range(1, p)}) for p in _PRIMES[-32:]]
_MET: dict[tuple[bool, ...], list[int]] = {}

_MOST_TERMS = 1 << 12


@lru_cache(maxsize=1 << 16)
def square_root(value: Rational) -> tuple[Rational, int]:
    """`√value` as `coefficient · √key`, for a rational that is not negative; the key is 1 for a square."""
    rational = Fraction(value)
    factor, key = _representative(rational.numerator * rational.denominator)
    return factor / rational.denominator, key


def _representative(n: int) -> tuple[Fraction, int]:
    """`√n` as a rational times the root of the one representative of its square class."""
    if n == 0:
        return Fraction(0), 1
    outside = inside = 1
    for prime in _PRIMES:
        if prime > n:
            break
        while n % prime == 0:
            n //= prime
            outside, inside = (outside * prime, inside // prime) if inside % prime == 0 else (outside, inside * prime)
    root = math.isqrt(n)
    if root * root == n:
        return Fraction(outside * root), inside
    met = _MET.setdefault(tuple(n % prime in squares for prime, squares in _SQUARES), [])
    for known in met:
        root = math.isqrt(n * known)
        if root * root == n * known:
            return Fraction(outside * root, known), inside * known
    met.append(n)
    return Fraction(outside), inside * n


@lru_cache(maxsize=1 << 16)
def _product_of_roots(a: int, b: int) -> tuple[Rational, int]:
    """`√a · √b`, for keys."""
    common = math.gcd(a, b)
    factor, key = square_root((a // common) * (b // common))
    return common * factor, key


class Surd(Number):
    """A sum of rational multiples of square roots; `terms` has its coefficients by key, none of them 0.

    Some key is not 1: a rational is no Surd.
    """

    __slots__ = ("_hash", "terms")
    level = 1

    terms: dict[int, Rational]

    def __init__(self, terms: dict[int, Rational]) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    @classmethod
    def lift(cls, value: Any) -> Surd:
        return cls({1: value})

    def plus(self, other: Surd) -> Any:
        terms = dict(self.terms)
        for key, coefficient in other.terms.items():
            terms[key] = terms.get(key, 0) + coefficient
        return _settled(terms)

    def times(self, other: Surd) -> Any:
        if len(self.terms) * len(other.terms) > _MOST_TERMS:
            raise TooManyTerms(f"a product of sums of {len(self.terms)} and {len(other.terms)} square roots")
        terms: dict[int, Rational] = {}
        for a, left in self.terms.items():
            for b, right in other.terms.items():
                factor, key = _product_of_roots(a, b)
                terms[key] = terms.get(key, 0) + factor * left * right
        return _settled(terms)

    def scaled(self, factor: Rational) -> Surd:
        return Surd({key: coefficient * factor for key, coefficient in self.terms.items()})

    def inverse(self) -> Any:
        """By conjugates: `1 / (x + y)` is `(x - y) / (x² - y²)`, where `y` has all roots that a generator is in."""
        places = _places(tuple(self.terms))
        last = max(places[key] for key in self.terms).bit_length() - 1
        apart = {key: -c if places[key] >> last & 1 else c for key, c in self.terms.items()}
        conjugate = Surd(apart)
        norm = self.times(conjugate)
        return conjugate * (norm.inverse() if isinstance(norm, Surd) else 1 / Fraction(norm))

    def enclose(self, bits: int) -> Interval:
        total = Interval.of(0, bits)
        for key, coefficient in self.terms.items():
            total = total + (_root(key, bits) * coefficient if key != 1 else coefficient)
        return total

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Surd):
            return self.terms == other.terms
        return False if isinstance(other, int | Fraction) else super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return " + ".join(f"{c}·√{key}" for key, c in self.terms.items())


def _settled(terms: dict[int, Rational]) -> Any:
    left = {key: coefficient for key, coefficient in terms.items() if coefficient}
    if not left:
        return 0
    return left[1] if len(left) == 1 and 1 in left else Surd(left)


@lru_cache(maxsize=1 << 12)
def _root(key: int, bits: int) -> Interval:
    return enclosure.sqrt(Interval.of(key, bits))


@lru_cache(maxsize=1 << 10)
def _places(keys: tuple[int, ...]) -> dict[int, int]:
    """Every root that these generate, as the set (in bits) of the generators whose product it is."""
    places = {1: 0}
    generators = 0
    for key in keys:
        if key in places:
            continue
        if 2 * len(places) > _MOST_TERMS:
            raise TooManyTerms(f"{generators} independent square roots under a fraction")
        places.update({_product_of_roots(key, other)[1]: place | 1 << generators for other, place in places.items()})
        generators += 1
    return places


def root(value: Rational) -> Any:
    """The square root of a rational that is not negative."""
    factor, key = square_root(value)
    return factor if key == 1 else Surd({key: factor}) if factor else 0
