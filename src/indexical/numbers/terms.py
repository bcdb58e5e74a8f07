"""Numbers outside the field: symbols, and named terms such as `log(2)`, with polynomials in them.

Out here identical terms are equal, numbers with disjoint enclosures are not, and of all else it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, TypeGuard

from ..records import dataclass
from . import enclosure, exponentials
from .interval import NOT_YET, Interval, serves
from .surds import Surd
from .tower import Number, Rational, TooManyTerms, Valueless, divide, enclose, put_off, spend

MOST_TERMS = 20_000
# A logarithm with a larger factor is not multiplied out.
_MOST_FACTORS = 64


@dataclass(frozen=True, slots=True)
class Symbol:
    """An element of an input that has no values. A name in `place` is a coordinate of unknown size: a whole row."""

    tensor: str
    place: tuple[int | str, ...]

    def at(self, rows: Mapping[str, int]) -> Symbol:
        """One point of a row."""
        return Symbol(self.tensor, tuple(rows.get(at, at) if isinstance(at, str) else at for at in self.place))

    def __str__(self) -> str:
        shown = list(self.place)
        while shown and isinstance(shown[-1], str):
            shown.pop()
        inside = ", ".join(":" if isinstance(at, str) else str(at) for at in shown)
        return f"{self.tensor}[{inside}]" if shown else self.tensor


class Term:
    """A function at exact arguments, named because its value has no other name. Without arguments it is `pi`."""

    __slots__ = ("_enclosed", "_hash", "arguments", "depth", "function", "inside", "size")

    def __init__(self, function: str, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self._hash = hash((function, arguments))
        # Terms share their arguments, so that walking down would take ever longer: what is inside is kept.
        found = [argument.atoms for argument in arguments if isinstance(argument, Polynomial)]
        self.inside: frozenset[Atom] = frozenset().union(*found)
        self.size = 1 + sum(size_of(argument) for argument in arguments)
        self.depth: int = 1 + max((argument.depth for argument in arguments if isinstance(argument, Number)), default=0)
        self._enclosed = NOT_YET

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Term)
            and self.function == other.function
            and len(self.arguments) == len(other.arguments)
            and all(is_same(a, b) for a, b in zip(self.arguments, other.arguments, strict=True))
        )

    def at(self, rows: Mapping[str, int]) -> Term:
        inside = (argument.at(rows) if isinstance(argument, Polynomial) else argument for argument in self.arguments)
        return Term(self.function, tuple(inside))

    def enclose(self, bits: int) -> Interval:
        if not serves(self._enclosed, bits):
            arguments = [enclose(argument, bits) for argument in self.arguments]
            found = ENCLOSURES[self.function](*arguments) if arguments else enclosure.pi(bits)
            self._enclosed = (bits, found)
        return self._enclosed[1]

    def __repr__(self) -> str:
        return f"{self.function}{self.arguments}"


ENCLOSURES: dict[str, Callable[..., Interval]] = {
    "exp": enclosure.exp,
    "log": enclosure.log,
    "sqrt": enclosure.sqrt,
    "erf": enclosure.erf,
    "erfc": enclosure.erfc,
    "sin": enclosure.sin,
    "cos": enclosure.cos,
    "power": enclosure.power,
    "inverse": lambda x: 1 / x,
}

Atom: TypeAlias = Symbol | Term
Monomial: TypeAlias = frozenset[tuple[Atom, int]]

NOTHING: Monomial = frozenset()


def size_of(value: Any) -> int:
    """About how many numbers and names stand in a number when it is written out."""
    if isinstance(value, Polynomial):
        atoms = (atom for monomial in value.terms for atom, _ in monomial)
        inside = sum(atom.size if isinstance(atom, Term) else 1 for atom in atoms)
        return inside + sum(size_of(coefficient) for coefficient in value.terms.values())
    if isinstance(value, exponentials.Quotient):
        return len(value.top) + sum(len(factor) for factor in value.factors)
    return 1


def is_same(a: Any, b: Any) -> bool:
    """Whether two numbers are seen to be one, by their terms alone."""
    if isinstance(a, Polynomial) or isinstance(b, Polynomial):
        return isinstance(a, Polynomial) and isinstance(b, Polynomial) and bool(a.terms == b.terms)
    if any(isinstance(x, Number) and x.level > 3 for x in (a, b)) and hash(a) != hash(b):
        return False  # Their values are not asked for.
    return bool(a == b)


class Polynomial(Number):
    """`Σ coefficient · Π atom^power`, by monomial; the coefficients are numbers of the field, none of them 0."""

    __slots__ = ("_atoms", "_hash", "_outside", "terms")
    level = 3

    def __init__(self, terms: dict[Monomial, Any]) -> None:
        self.terms = terms
        self._atoms: frozenset[Atom] | None = None
        self._hash: int | None = None
        self._outside: frozenset[str] | None = None

    @classmethod
    def lift(cls, value: Any) -> Polynomial:
        return cls({NOTHING: value})

    def plus(self, other: Polynomial) -> Any:
        return total([self, other])

    def times(self, other: Polynomial) -> Any:
        if not self.is_formal and not other.is_formal:
            later = put_off(10 * len(self.terms) * len(other.terms), "product", self, other)
            if later is not None:
                return later
        if len(self.terms) * len(other.terms) > 50 * MOST_TERMS:
            raise TooManyTerms(f"a product of sums of {len(self.terms):,} and {len(other.terms):,} terms")
        spend(10 * len(self.terms) * len(other.terms))
        terms: dict[Monomial, Any] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                factor, product = _joined(left, right)
                _add_to(terms, product, a * b * factor)
        return settled(terms)

    def inverse(self) -> Any:
        """One term is turned over; a sum becomes a named term, with its first term as a factor outside."""
        (monomial, coefficient), *more = self.terms.items()
        unit = settled({frozenset(_turned(atom, power) for atom, power in monomial): divide(1, coefficient)})
        if not more:
            return unit
        inside = unit * self
        return unit * _alone(Term("inverse", (inside,)))

    def scaled(self, factor: Rational) -> Polynomial:
        return Polynomial({monomial: coefficient * factor for monomial, coefficient in self.terms.items()})

    def enclose(self, bits: int) -> Interval:
        result = Interval.of(0, bits)
        for monomial, coefficient in self.terms.items():
            part = enclose(coefficient, bits)
            for atom, power in monomial:
                if isinstance(atom, Symbol):
                    raise Valueless(str(atom))
                value = atom.enclose(bits) ** abs(power)
                part = part * value if power > 0 else part / value
            result = result + part
        return result

    def is_zero(self) -> bool | None:
        """Without denominators, no terms are 0, and a polynomial in symbols alone is not; named terms may cancel."""
        above = self.cleared()
        if not isinstance(above, Polynomial):
            return not above
        if not any(isinstance(atom, Term) for atom in above.atoms):
            return False
        if not above.is_formal:
            return None
        from .identities import differs_somewhere, vanishes

        return True if vanishes(above) else False if differs_somewhere(above) else None

    def cancels(self) -> bool:
        """Whether this is 0 by the laws of its functions, or is the logarithm of 1."""
        from .identities import vanishes

        return vanishes(self.cleared()) or self._is_log_of_one()

    def _is_log_of_one(self) -> bool:
        """Whether this is a sum of logarithms with whole factors, and what it is the logarithm of is 1."""
        product: Any = 1
        scale = math.lcm(*(c.denominator for c in self.terms.values() if isinstance(c, int | Fraction)))
        for monomial, coefficient in self.terms.items():
            match list(monomial), coefficient:
                case [(Term(function="log", arguments=(inside,)), 1)], int() | Fraction():
                    times = int(coefficient * scale)
                    if isinstance(inside, Polynomial) or abs(times) > _MOST_FACTORS:
                        return False
                    product = product * (inside if isinstance(inside, Number) else Fraction(inside)) ** times
                case [], int() | Fraction() | Surd():
                    product = product * exponentials.exp(coefficient * scale)
                case _:
                    return False
        return bool(product == 1)

    @property
    def is_formal(self) -> bool:
        return bool(self.symbols)

    @property
    def depth(self) -> int:  # type: ignore[override]
        return max((atom.depth for atom in self.atoms if isinstance(atom, Term)), default=0)

    @property
    def outside(self) -> frozenset[str]:  # type: ignore[override]
        if self._outside is None:
            self._outside = frozenset("erf" if term.function == "erfc" else term.function for term in self.named)
        return self._outside

    def cleared(self) -> Any:
        """This, multiplied by every sum that it is divided by."""
        powers = [(atom, power) for monomial in self.terms for atom, power in monomial if _is(atom, "inverse")]
        if not powers:
            return self
        inverse = powers[0][0]
        most = max(power for atom, power in powers if atom == inverse)
        result: Any = 0
        for monomial, coefficient in self.terms.items():
            power = dict(monomial).get(inverse, 0)
            rest = settled({monomial - {(inverse, power)}: coefficient})
            result = result + rest * inverse.arguments[0] ** (most - power)
        return result.cleared() if isinstance(result, Polynomial) else result

    @property
    def atoms(self) -> frozenset[Atom]:
        """Every symbol and term, those inside of terms too."""
        if self._atoms is None:
            here = {atom for monomial in self.terms for atom, _ in monomial}
            self._atoms = frozenset(here).union(*(atom.inside for atom in here if isinstance(atom, Term)))
        return self._atoms

    @property
    def symbols(self) -> set[Symbol]:
        return {atom for atom in self.atoms if isinstance(atom, Symbol)}

    @property
    def named(self) -> list[Term]:
        """The terms that took this number out of the field; an inverse alone does not, and one of symbols has no value
        to be known better."""
        return [
            atom
            for atom in self.atoms
            if isinstance(atom, Term)
            and atom.function != "inverse"
            and not any(isinstance(inner, Symbol) for inner in atom.inside)
        ]

    def at(self, rows: Mapping[str, int]) -> Any:
        """One point of a row."""
        result: Any = 0
        for monomial, coefficient in self.terms.items():
            moved = frozenset((atom.at(rows), power) for atom, power in monomial)
            result = result + (Polynomial({moved: coefficient}) if moved else coefficient)
        return result

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Polynomial) and is_same(self, other):
            return True
        return super().__eq__(other)

    def __repr__(self) -> str:
        return f"Polynomial({self.terms})"


def _alone(atom: Atom) -> Polynomial:
    return Polynomial({frozenset(((atom, 1),)): 1})


def _is(atom: Atom, function: str) -> TypeGuard[Term]:
    return isinstance(atom, Term) and atom.function == function


def _turned(atom: Atom, power: int) -> tuple[Atom, int]:
    """One over a power. An exponential has the power 1 always, so that it has one name."""
    if _is(atom, "exp"):
        return Term("exp", (-atom.arguments[0],)), power
    return atom, -power


def _add_to(terms: dict[Monomial, Any], monomial: Monomial, value: Any) -> None:
    found = terms.get(monomial)
    terms[monomial] = value if found is None else found + value


def _joined(left: Monomial, right: Monomial) -> tuple[Any, Monomial]:
    """The product of two monomials, and a number of the field that came out of it: exponentials become one."""
    if not left or not right:
        return 1, left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    raised = [atom for atom in powers if _is(atom, "exp")]
    factor: Any = 1
    if sum(powers[atom] for atom in raised) > 1:
        exponent = sum((atom.arguments[0] * powers.pop(atom) for atom in raised), 0)
        if isinstance(exponent, Number) and exponent.level > 1:
            powers[Term("exp", (exponent,))] = 1
        else:
            factor = exponentials.exp(exponent)
    return factor, frozenset((atom, power) for atom, power in powers.items() if power)


def settled(terms: dict[Monomial, Any]) -> Any:
    """The simplest form at hand: squares of roots are what they are roots of, and `p` times `1/p` is 1."""
    left = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if len(left) > MOST_TERMS:
        raise TooManyTerms(f"a sum of {len(left):,} terms, and at most {MOST_TERMS:,} are kept")
    for monomial, coefficient in left.items():
        for atom, power in monomial:
            opened, kept = _opened(atom, power)
            if opened and isinstance(atom, Term):
                rest = monomial - {(atom, power)} | ({(atom, kept)} if kept else set())
                others = {m: c for m, c in left.items() if m != monomial}
                inside = atom.arguments[0]
                opened_up = (inside if isinstance(inside, Number) else Fraction(inside)) ** opened
                return settled(others) + settled({rest: coefficient}) * opened_up
            if _is(atom, "inverse") and power > 0:
                found = _cancelled(left, atom)
                if found is not None:
                    return settled(found)
    if not left:
        return 0
    return left[NOTHING] if len(left) == 1 and NOTHING in left else Polynomial(left)


def _opened(atom: Atom, power: int) -> tuple[int, int]:
    """A power of a term as a power of what is inside, and the power of the term that is left.

    A root of the field stands above, as `√2/2` does; one over an inverse is the sum that was inverted.
    """
    if _is(atom, "sqrt"):
        in_field = not isinstance(atom.arguments[0], Polynomial)
        return divmod(power, 2) if in_field or power > 0 else (-(-power // 2), -(-power % 2))
    if _is(atom, "power") and isinstance(atom.arguments[1], Fraction) and not isinstance(atom.arguments[0], Polynomial):
        whole, kept = divmod(power, atom.arguments[1].denominator)
        return whole * atom.arguments[1].numerator, kept
    return (-power, 0) if _is(atom, "inverse") and power < 0 else (0, power)


def _cancelled(terms: dict[Monomial, Any], inverse: Term) -> dict[Monomial, Any] | None:
    """`c·p·(1/p) + rest` as `c + rest`; None where it is not that."""
    spend(len(terms))
    beside: dict[Monomial, Any] = {}
    rest: dict[Monomial, Any] = {}
    for monomial, coefficient in terms.items():
        if (inverse, 1) in monomial:
            beside[monomial - {(inverse, 1)}] = coefficient
        else:
            rest[monomial] = coefficient
    inverted = inverse.arguments[0]
    if not isinstance(inverted, Polynomial) or beside.keys() != inverted.terms.keys():
        return None
    inside = inverted.terms
    ratios = [divide(beside[monomial], coefficient) for monomial, coefficient in inside.items()]
    if any(ratio != ratios[0] for ratio in ratios):
        return None
    _add_to(rest, NOTHING, ratios[0])
    return rest


def total(values: Sequence[Polynomial]) -> Any:
    """The sum of polynomials."""
    if not any(value.is_formal for value in values):
        later = put_off(10 * sum(len(value.terms) for value in values), "sum", *values)
        if later is not None:
            return later
    terms: dict[Monomial, Any] = {}
    for value in values:
        spend(10 * len(value.terms))
        for monomial, coefficient in value.terms.items():
            _add_to(terms, monomial, coefficient)
    return settled(terms)


def name(function: str, *arguments: Any) -> Polynomial:
    """A function at these arguments as a term of its own."""
    return _alone(Term(function, arguments))


def symbol(tensor: str, place: tuple[int | str, ...]) -> Polynomial:
    return _alone(Symbol(tensor, place))
