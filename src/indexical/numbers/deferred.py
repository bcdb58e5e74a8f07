"""Numbers that are kept as they were computed, their terms not multiplied out.

What stands in several places is one node, so that two layers of attention are as many nodes as they have operations.
Digits and most comparisons need an enclosure alone. Where two numbers may be equal, the terms are multiplied out:
first with the arguments of functions left as they are, then all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from . import enclosure
from .interval import NOT_YET, Interval, serves
from .terms import Polynomial, name
from .tower import (
    Number,
    Rational,
    Special,
    TooManyTerms,
    Undecidable,
    budget,
    enclose,
    refined,
    sign,
)

# A number that is nested deeper is not multiplied out.
_DEEPEST = 60
# To decide whether a number is 0, at most so many terms are multiplied and added: some seconds.
_MOST_WORK = 5_000_000
# Enclosures of so many bits are tried before terms are multiplied out.
_BITS_BEFORE = 512
# Sums in a sum are opened where they are as short as this: then `a - b + b` is `a`.
_SHORT = 8


class Deferred(Number):
    """A function of numbers, among them `sum` (of `coefficients · arguments`), `product` and `inverse`."""

    __slots__ = ("_enclosed", "_expanded", "_hash", "arguments", "coefficients", "depth", "function", "outside")
    level = 4

    def __init__(self, function: str, arguments: tuple[Any, ...], coefficients: tuple[Rational, ...] = ()) -> None:
        self.function, self.arguments, self.coefficients = function, arguments, coefficients
        parts = frozenset(zip(arguments, coefficients, strict=True)) if coefficients else arguments
        self._hash = hash((function, parts))
        self._enclosed = NOT_YET
        self._expanded: dict[bool, Any] = {}
        depth, outside = 0, _NOTHING
        for part in arguments:
            if isinstance(part, Number):
                depth = max(depth, part.depth)
                if part.outside is not outside:
                    outside = outside | part.outside
        self.depth: int = depth + 1
        # The functions that left the field.
        self.outside: frozenset[str] = outside
        if function not in _ARITHMETIC:
            self.outside = outside | {_SHOWN.get(function, function)}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether two are built alike, or else by their values."""
        if isinstance(other, Deferred) and is_alike(self, other):
            return True
        return super().__eq__(other)

    def __repr__(self) -> str:
        return f"Deferred({self.function}, {len(self.arguments)})"

    def __add__(self, other: Any) -> Any:
        return other + self if isinstance(other, Special) else total([self, other])

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Special):
            return other * self
        if not isinstance(other, Number):
            return self.scaled(other) if other else 0
        return product(self, other)

    __rmul__ = __mul__

    def scaled(self, factor: Rational) -> Any:
        if self.function == "sum":
            return _sum(dict(zip(self.arguments, (c * factor for c in self.coefficients), strict=True)))
        return _sum({self: factor})

    def inverse(self) -> Any:
        return self.arguments[0] if self.function == "inverse" else Deferred("inverse", (self,))

    def is_zero(self) -> bool | None:
        return None

    def decide(self) -> int:
        """Return the sign: by enclosures, and where they do not tell it from 0, by its terms."""
        for interval in refined(self, _BITS_BEFORE):
            found = interval.sign()
            if found is not None:
                return found
        for deep in (False, True):
            try:
                found = self.expanded(deep)
            except (TooManyTerms, Undecidable):
                break
            if isinstance(found, Deferred):
                break
            if not isinstance(found, Polynomial) or found.is_zero() or deep:
                return sign(found)
        for interval in refined(self, 8 * _BITS_BEFORE, 2 * _BITS_BEFORE):
            if (side := interval.sign()) is not None:
                return side
        raise Undecidable

    def enclose(self, bits: int) -> Interval:
        if serves(self._enclosed, bits):
            return self._enclosed[1]
        waiting = [self]
        while waiting:
            node = waiting[-1]
            inner = [part for part in node.arguments if isinstance(part, Deferred)]
            missing = [part for part in inner if not serves(part._enclosed, bits)]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if not serves(node._enclosed, bits):
                node._enclosed = bits, node._computed(bits)
        return self._enclosed[1]

    def _computed(self, bits: int) -> Interval:
        if self.function != "sum":
            return _ENCLOSURES[self.function](*(enclose(argument, bits) for argument in self.arguments))
        result = Interval.of(0, bits)
        for argument, coefficient in zip(self.arguments, self.coefficients, strict=True):
            part = enclose(argument, bits)
            result = result + (part if coefficient == 1 else part * coefficient)
        return result

    def expanded(self, deep: bool) -> Any:
        """This as a number of the storeys below. Without `deep`, arguments of functions are left as they are."""
        if deep not in self._expanded:
            if self.depth > _DEEPEST:
                raise TooManyTerms("its terms are nested too deeply")
            with budget(_MOST_WORK):
                self._expanded[deep] = self._multiplied(deep)
        return self._expanded[deep]

    def _multiplied(self, deep: bool) -> Any:
        from .functions import ExactNumbers

        arithmetic = self.function in _ARITHMETIC
        if not arithmetic and not deep:
            return name(self.function, *self.arguments)
        inner = [
            part._multiplied(deep) if isinstance(part, Deferred) and (deep or arithmetic) else part
            for part in self.arguments
        ]
        if self.function == "sum":
            return ExactNumbers().total([part * c for part, c in zip(inner, self.coefficients, strict=True)])
        if self.function == "product":
            return inner[0] * inner[1]
        if self.function == "inverse":
            return inner[0].inverse() if isinstance(inner[0], Number) else 1 / Fraction(inner[0])
        if self.function == "power":
            return ExactNumbers().power(*inner)
        if self.function == "erfc":
            return 1 - ExactNumbers().functions["erf"](*inner)
        return ExactNumbers().functions[self.function](*inner)


_NOTHING: frozenset[str] = frozenset()
_ARITHMETIC = {"sum", "product", "inverse"}
# The named terms that functions are made of.
_SHOWN = {"tanh": "exp", "sigmoid": "exp", "silu": "exp", "gelu": "erf", "erfc": "erf"}
_ENCLOSURES: dict[str, Callable[..., Interval]] = {
    "product": lambda x, y: x * y,
    "inverse": lambda x: 1 / x,
    "exp": enclosure.exp,
    "log": enclosure.log,
    "sqrt": enclosure.sqrt,
    "tanh": enclosure.tanh,
    "sigmoid": enclosure.sigmoid,
    "silu": enclosure.silu,
    "gelu": enclosure.gelu,
    "erf": enclosure.erf,
    "erfc": enclosure.erfc,
    "sin": enclosure.sin,
    "cos": enclosure.cos,
    "power": enclosure.power,
}


def is_alike(a: Any, b: Any) -> bool:
    """Whether two numbers are built of the same parts in the same way."""
    waiting = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        one, other = waiting.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        if not (isinstance(one, Deferred) and isinstance(other, Deferred)):
            if isinstance(one, Deferred) or isinstance(other, Deferred) or hash(one) != hash(other) or one != other:
                return False
            continue
        seen.add((id(one), id(other)))
        if one._hash != other._hash or one.function != other.function or len(one.arguments) != len(other.arguments):
            return False
        # Parts of a sum are in no order: those of one hash belong together.
        left, right = (_parts(node) for node in (one, other))
        if [key for key, _ in left] != [key for key, _ in right]:
            return False
        waiting += [(x, y) for (_, x), (_, y) in zip(left, right, strict=True)]
    return True


def _parts(node: Deferred) -> list[tuple[Any, Any]]:
    """The arguments with what tells them apart: in a sum the coefficient and the hash."""
    if node.function != "sum":
        return [(0, part) for part in node.arguments]
    keyed = [((hash(part), c), part) for part, c in zip(node.arguments, node.coefficients, strict=True)]
    return sorted(keyed, key=lambda item: item[0])


def make(function: str, arguments: Sequence[Any]) -> Any:
    """A function of numbers, put off."""
    if function == "sum":
        return total(arguments)
    return product(*arguments) if function == "product" else Deferred(function, tuple(arguments))


def total(values: Sequence[Any]) -> Any:
    """A sum that is not computed; with symbols in it, it has to be."""
    if any(_has_symbols(value) for value in values):
        return sum((_opened(value) for value in values), 0)
    parts: dict[Any, Rational] = {}
    for value in values:
        short = isinstance(value, Deferred) and value.function == "sum" and len(value.arguments) <= _SHORT
        if short:
            for part, coefficient in zip(value.arguments, value.coefficients, strict=True):
                parts[part] = parts.get(part, 0) + coefficient
        elif isinstance(value, Number):
            parts[value] = parts.get(value, 0) + 1
        else:
            parts[1] = parts.get(1, 0) + value
    return _sum({part: coefficient for part, coefficient in parts.items() if coefficient})


def _sum(parts: dict[Any, Rational]) -> Any:
    if not parts:
        return 0
    if len(parts) == 1:
        ((part, coefficient),) = parts.items()
        if coefficient == 1 or not isinstance(part, Number):
            return part if coefficient == 1 else part * coefficient
    return Deferred("sum", tuple(parts), tuple(parts.values()))


def product(a: Any, b: Any) -> Any:
    """A product that is not computed; of numbers with symbols, it has to be."""
    if _has_symbols(a) or _has_symbols(b):
        return _opened(a) * _opened(b)
    for one, other in ((a, b), (b, a)):
        if not isinstance(one, Number):
            return other.scaled(one) if isinstance(other, Deferred) else _sum({other: one})
        if isinstance(one, Deferred) and one.function == "inverse" and one.arguments[0] is other:
            return 1
    return Deferred("product", (a, b))


def _has_symbols(value: Any) -> bool:
    return isinstance(value, Polynomial) and bool(value.symbols)


def _opened(value: Any) -> Any:
    return value.expanded(True) if isinstance(value, Deferred) else value
