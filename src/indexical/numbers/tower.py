"""The tower of exact numbers: rationals, square roots, exponentials, named terms.

A rational is a Python `int` or `Fraction`. Each storey above is a class here, whose numbers have no simpler form: an
operation that leads down gives the lower number. Beside the tower stand the infinities, and what is undefined. There
is no float in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Any, TypeAlias

from .interval import Interval, Unsettled

Rational: TypeAlias = int | Fraction


class TooManyTerms(Exception):
    """An exact number would have more terms than anybody reads, or take too long."""


class _Budget:
    """The number of terms that may still be multiplied or added; a whole evaluation has one budget.

    Of these, `eager` may be multiplied out at once. Where they are spent, `defer` makes a number that is not computed
    yet; without it, all are.
    """

    left: float = math.inf
    eager: float = math.inf
    defer: Callable[[str, Sequence[Any]], Any] | None = None


# One operation of more terms is put off; one of as few as the second never is.
_AT_ONCE = 5_000
_FEW = 8


def spend(terms: int) -> None:
    """So many terms are multiplied or added now."""
    _Budget.left -= terms
    if _Budget.left < 0:
        raise TooManyTerms("its arithmetic takes too many steps")


def put_off(work: int, function: str, *arguments: Any) -> Any:
    """The function of these numbers, not computed, where it is work of too many terms; else None."""
    if _Budget.defer is None or work <= _FEW:
        return None
    if work <= _AT_ONCE and work <= _Budget.eager:
        _Budget.eager -= work
        return None
    return _Budget.defer(function, arguments)


@contextmanager
def budget(
    terms: float, eager: float = math.inf, defer: Callable[[str, Sequence[Any]], Any] | None = None
) -> Iterator[None]:
    """Inside, at most so many terms are multiplied or added; outside, they count as well."""
    before = _Budget.left, _Budget.eager, _Budget.defer
    terms = min(terms, _Budget.left)
    _Budget.left, _Budget.eager, _Budget.defer = terms, eager, defer
    try:
        yield
    finally:
        left, _Budget.eager, _Budget.defer = before
        _Budget.left = left - (terms - max(0, _Budget.left)) if left != math.inf else left


class Undecidable(Exception):
    """Neither identical nor apart: whether two numbers are equal is not known."""


class Valueless(Exception):
    """A symbol stands where a value is needed."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        super().__init__(f"`{symbol}` has no value")


class Number:
    """A number that is not rational, or is not seen to be. `level` is its storey.

    A storey says how its own numbers add, multiply and are turned over. (No abstract base class: `isinstance` is asked
    for every number of a sum, and would take longer.)
    """

    __slots__ = ()
    level: int
    # How deep functions stand in each other, and those that left the field.
    depth = 0
    outside: frozenset[str] = frozenset()

    @classmethod
    def lift(cls, value: Any) -> Any:
        """A number of a lower storey, in the form of this one."""
        raise NotImplementedError

    def plus(self, other: Any) -> Any:
        """The sum with another of this storey."""
        raise NotImplementedError

    def times(self, other: Any) -> Any:
        """The product with another of this storey."""
        raise NotImplementedError

    def inverse(self) -> Any:
        """One over this, which is not 0."""
        raise NotImplementedError

    def enclose(self, bits: int) -> Interval:
        """An interval that holds this number. `Unsettled` where it needs more bits to have one."""
        raise NotImplementedError

    def __neg__(self) -> Any:
        return self.scaled(-1)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Number):
            if other.level > self.level:
                return other + self if other.level > 3 else other.lift(self).plus(other)
            return self.plus(other if other.level == self.level else self.lift(other))
        return self.plus(self.lift(other)) if other else self

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Number):
            if other.level > self.level:
                return other * self if other.level > 3 else other.lift(self).times(other)
            return self.times(other if other.level == self.level else self.lift(other))
        return self.scaled(other) if other else 0

    __rmul__ = __mul__

    def scaled(self, factor: Rational) -> Any:
        """The product with a rational that is not 0."""
        return self.times(self.lift(factor))

    def __truediv__(self, other: Any) -> Any:
        return divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return divide(other, self)

    def __pow__(self, exponent: int) -> Any:
        """To a whole power."""
        base, left = (self, exponent) if exponent >= 0 else (self.inverse(), -exponent)
        result: Any = 1
        while left:
            if left & 1:
                result = result * base
            left >>= 1
            base = base * base if left else base
        return result

    def __abs__(self) -> Any:
        return -self if sign(self) < 0 else self

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, int | Fraction | Number):
            return NotImplemented
        return compare(self, other) == 0

    def __hash__(self) -> int:
        raise NotImplementedError

    def __lt__(self, other: Any) -> bool:
        return compare(self, other) == -1

    def __le__(self, other: Any) -> bool:
        return compare(self, other) in (-1, 0)

    def __gt__(self, other: Any) -> bool:
        return compare(self, other) == 1

    def __ge__(self, other: Any) -> bool:
        return compare(self, other) in (0, 1)

    def __bool__(self) -> bool:
        zero = self.is_zero()
        return sign(self) != 0 if zero is None else not zero

    def is_zero(self) -> bool | None:
        """Whether this is 0; None where only an enclosure may tell."""
        return False

    def decide(self) -> int:
        """-1, 0 or 1. One whose terms say that it is not 0 is enclosed until it is seen on which side it is."""
        zero = self.is_zero()
        if zero:
            return 0
        for interval in refined(self, _MOST_BITS if zero is False else _MOST_BITS_OUTSIDE):
            found = interval.sign()
            if found is not None:
                return found
        if self.cancels():
            return 0
        raise Undecidable

    def cancels(self) -> bool:
        """Whether this is 0 by a law that its terms do not show. It is asked where no enclosure tells it from 0."""
        return False

    @property
    def is_formal(self) -> bool:
        """Whether this varies with symbols. It may then be divided by, unless it is seen to be 0."""
        return False

    def __trunc__(self) -> int:
        whole = floor(self)
        return whole if whole >= 0 or self == whole else whole + 1

    def __int__(self) -> int:
        return self.__trunc__()


class Special(Number):
    """An infinity of some `side`, or, where that is 0, what is undefined: infinity less infinity, 0 over 0."""

    __slots__ = ("side",)
    level = 9

    def __init__(self, side: int) -> None:
        self.side = side

    @classmethod
    def lift(cls, value: Any) -> Any:
        raise AssertionError("a finite number is none of these")

    plus = times = lift  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        return UNDEFINED if isinstance(other, Special) and other.side != self.side else self

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        side = other.side if isinstance(other, Special) else sign(other)
        return _SPECIAL[self.side * side]

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return _SPECIAL[-self.side]

    def __abs__(self) -> Any:
        return _SPECIAL[abs(self.side)]

    def inverse(self) -> Any:
        return 0 if self.side else self

    def enclose(self, bits: int) -> Interval:
        raise Unsettled

    def __eq__(self, other: object) -> bool:
        """Compare by sign of infinity; an undefined value is not even equal to itself."""
        return isinstance(other, Special) and self.side == other.side != 0

    def __hash__(self) -> int:
        return hash(("special", self.side))

    def __trunc__(self) -> int:
        raise ValueError("not a whole number")

    def __repr__(self) -> str:
        return ("undefined", "∞", "-∞")[self.side]


UNDEFINED, INFINITY = Special(0), Special(1)
_SPECIAL = (UNDEFINED, INFINITY, Special(-1))


# ---------------------------------------------------------------------- order

_FIRST_BITS = 64
# Enclosures separate a nonzero number of the exact storeys from 0 in the end; one with named terms perhaps never.
_MOST_BITS_OUTSIDE = 1 << 12
_MOST_BITS = 1 << 22
_LONGEST_WHOLE = 1 << 17


def enclose(value: Any, bits: int) -> Interval:
    """An interval that holds a finite number."""
    return value.enclose(bits) if isinstance(value, Number) else Interval.of(value, bits)


def refined(value: Any, most: int = _MOST_BITS, bits: int = _FIRST_BITS) -> Iterator[Interval]:
    """Better and better enclosures of a finite number, as long as that is in reason."""
    while bits <= most:
        with suppress(Unsettled):
            yield enclose(value, bits)
        bits *= 2


def sign(value: Any) -> int:
    """-1, 0 or 1."""
    if isinstance(value, Special):
        return value.side
    return value.decide() if isinstance(value, Number) else int(value > 0) - int(value < 0)


def compare(a: Any, b: Any) -> int | None:
    """-1, 0 or 1; None where one of the two is undefined."""
    if isinstance(a, Special) or isinstance(b, Special):
        left, right = (value.side if isinstance(value, Special) else 0 for value in (a, b))
        return None if a is UNDEFINED or b is UNDEFINED else (left > right) - (left < right)
    return _apart(a, b) or sign(a - b)


def _apart(a: Any, b: Any) -> int:
    """-1 or 1 where first enclosures already tell two numbers apart, before their terms are multiplied out; else 0."""
    if not (isinstance(a, Number) and isinstance(b, Number) and {a.level, b.level} <= {2, 4}):
        return 0
    try:
        left, right = a.enclose(_FIRST_BITS), b.enclose(_FIRST_BITS)
        return -1 if left < right else int(left > right)
    except Unsettled:
        return 0


def floor(value: Any) -> int:
    """The largest whole number that is not above this one."""
    if not isinstance(value, Number):
        return math.floor(value)  # type: ignore[no-any-return]
    for interval in refined(value):
        lengths = [abs(end).bit_length() + interval.exponent for end in (interval.low, interval.high)]
        if max(lengths) > _LONGEST_WHOLE:
            if min(lengths) > _LONGEST_WHOLE and interval.sign():
                raise OverflowError(f"its whole part has more than {_LONGEST_WHOLE:,} bits")
            continue
        low, high = math.floor(interval.lower), math.floor(interval.upper)
        if low == high:
            return low
        if high == low + 1:
            return high if compare(value, high) in (0, 1) else low
    raise Undecidable


# ------------------------------------------------------------------- division


def divide(a: Any, b: Any) -> Any:
    """A quotient. Over 0 it is unbounded, as for floats, or undefined; 0 has no sign here."""
    if isinstance(b, Special):
        return UNDEFINED if isinstance(a, Special) or not b.side else 0
    if isinstance(b, Number) and (b.is_formal if (zero := b.is_zero()) is None else not zero):
        return a * b.inverse()
    if sign(b) == 0:
        return UNDEFINED if sign(a) == 0 else _SPECIAL[sign(a)]
    if isinstance(b, Number):
        return a * b.inverse()
    return a * Fraction(1, b) if isinstance(a, Number) else Fraction(a) / b
