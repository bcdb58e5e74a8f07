"""A normal form of real expressions: sums of products, in which every spelling of one value is one form.

A form is a sum of terms. A term is a number times a product: factors with rational exponents, conditions that
must hold, and e to a form. So `sqrt(x)` is `x` to one half, `exp(a) * exp(b)` is e to `a + b`, and
`if c { x } else { 0 }` is `x` under the condition `c`. A sum over coordinates is a factor; what does not vary
with them stands outside of it. Bound coordinates go by their height (`'0`, `'1`, …), so that forms which
differ in names alone are equal.

A rewrite may give a number where the expression as written gives an infinity or NaN, never the other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Protocol, TypeAlias

from ...records import dataclass, replace
from .. import nodes as ir
from ..types import NOWHERE, Coordinate
from ..walk import LEAVES, walk
from .safety import Caution, arranged

Number: TypeAlias = int | Fraction


class TooLarge(Exception):
    """A form that grew past all use."""


NONE: Mapping[str, ir.Expr] = {}
NEVER: frozenset[str] = frozenset()

# A form is given up past this many characters of its text.
LONGEST = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """An expression that is not taken apart: a read, a size, whole arithmetic, a reduction other than a sum."""

    expr: ir.Expr
    key: str
    coordinates: frozenset[Coordinate]
    level: int


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An elementwise function of forms."""

    op: str
    arguments: tuple[Form, ...]
    key: str
    coordinates: frozenset[Coordinate]
    level: int


@dataclass(frozen=True, slots=True, eq=False)
class Logarithm:
    """The logarithm of weights, or of a sum of exponentials; `expr` is how it is written."""

    expr: ir.Expr
    weights: Form
    key: str
    coordinates: frozenset[Coordinate]
    level: int


@dataclass(frozen=True, slots=True)
class Binder:
    """A bound coordinate and its range."""

    coordinate: Coordinate
    lower: ir.Expr
    upper: ir.Expr
    stated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """The sum of a product over coordinates. Its conditions stay inside. `softmax` is True for what a softmax
    divides by: where it has no points, nothing is divided."""

    binders: tuple[Binder, ...]
    body: Product
    softmax: bool
    key: str
    coordinates: frozenset[Coordinate]
    level: int


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A form as a factor, where multiplying it out would multiply the work."""

    form: Form
    key: str
    coordinates: frozenset[Coordinate]
    level: int


Atom: TypeAlias = Leaf | Function | Logarithm | Sum | Group


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Factors with their exponents, e to `exponent`, and 0 where one of `conditions` fails.

    Where a condition of `absent` fails a guard has removed the point, and nothing is divided; where one of
    `skipped` does, the quotients that are in it so far are never reached. Neither takes part in equality.
    """

    factors: tuple[tuple[Atom, Number], ...]
    exponent: Form | None
    conditions: Mapping[str, ir.Expr]
    absent: frozenset[str]
    skipped: frozenset[str]
    key: str
    coordinates: frozenset[Coordinate]
    level: int

    @property
    def scalar(self) -> bool:
        """Whether it is a number that varies with nothing: multiplying by it never multiplies work."""
        return not self.coordinates and not self.conditions and self.exponent is None

    @property
    def exponential(self) -> bool:
        """Whether something in it is exponentiated, is a sum of what is, or is divided by such a sum and more."""
        if self.exponent is not None:
            return True
        if any(isinstance(atom, Sum) and atom.body.exponential for atom, _ in self.factors):
            return True
        return any(n < 0 and isinstance(atom, Group) and has_total(atom.form) for atom, n in self.factors)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A sum of products, each with its number; none where it is 0."""

    terms: tuple[tuple[Number, Product], ...]
    key: str
    coordinates: frozenset[Coordinate]
    level: int

    @property
    def weights(self) -> bool:
        """Whether every term is exponential: then it may be weights, or what they are made of."""
        return bool(self.terms) and all(product.exponential for _, product in self.terms)


class Reader(Protocol):
    """The reader that puts an expression into normal form again, once its coordinates have been replaced."""

    @property
    def caution(self) -> Caution: ...
    def again(self, expr: ir.Expr) -> Form: ...
    def conditions(self, expr: ir.Expr) -> Mapping[str, ir.Expr]: ...
    def whole(self, expr: ir.Expr) -> ir.Expr: ...


# ----------------------------------------------------------------- building blocks


def product(
    factors: Iterable[tuple[Atom, Number]],
    exponent: Form | None = None,
    conditions: Mapping[str, ir.Expr] = NONE,
    absent: frozenset[str] = NEVER,
    skipped: frozenset[str] = NEVER,
) -> Product:
    """A product of these, in order."""
    if exponent is not None and not exponent.terms:
        exponent = None
    ordered = tuple(factors)
    if len(ordered) > 1:
        ordered = tuple(sorted(ordered, key=_key))
    elif ordered and exponent is None and not conditions:
        atom, power = ordered[0]
        key = atom.key if power == 1 else f"{atom.key}^{power}"
        return Product(ordered, None, conditions, absent, skipped, key, atom.coordinates, atom.level)
    key = "·".join([atom.key if power == 1 else f"{atom.key}^{power}" for atom, power in ordered])
    coordinates = [atom.coordinates for atom, _ in ordered if atom.coordinates]
    level = max([atom.level for atom, _ in ordered], default=0)
    if exponent is not None:
        key = f"{key}e^({exponent.key})"
        coordinates.append(exponent.coordinates)
        level = max(level, exponent.level)
    if conditions:
        conditions = arranged(conditions)
        key = f"[{'&'.join(sorted(conditions))}]{key}"
        coordinates += [condition.type.coordinates for condition in conditions.values()]
        level = max([level, *(height(c) for text, c in conditions.items() if "'" in text)])
    found = frozenset().union(*coordinates) if len(coordinates) > 1 else coordinates[0] if coordinates else NOWHERE
    if len(key) > LONGEST:
        raise TooLarge
    return Product(ordered, exponent, conditions, absent, skipped, key, found, level)


def _key(factor: tuple[Atom, Number]) -> str:
    return factor[0].key


def height(expr: ir.Expr) -> int:
    """One more than the highest coordinate that an expression binds."""
    if type(expr) in LEAVES:
        return 0
    if isinstance(expr, ir.Read) and all(isinstance(index, ir.Coord) for index in expr.indices):
        return 0
    names = [r.coordinate for part in walk(expr) if isinstance(part, ir.Reduce) for r in part.ranges]
    return max((int(name[1:]) + 1 for name in names if name.startswith("'")), default=0)


def form(terms: Iterable[tuple[Number, Product]]) -> Form:
    """The sum of these terms: equal products are added up."""
    terms = tuple(terms)
    if len(terms) == 1 and terms[0][0]:
        number, term = terms[0]
        return Form(terms, f"{number}*{term.key}", term.coordinates, term.level)
    found: dict[str, tuple[Number, Product]] = {}
    for number, term in terms:
        known = found.get(term.key)
        found[term.key] = (number, term) if known is None else (known[0] + number, term)
    ordered = tuple(found[key] for key in sorted(found) if found[key][0])
    key = "+".join([f"{number}*{term.key}" for number, term in ordered])
    if len(key) > LONGEST:
        raise TooLarge
    coordinates = [term.coordinates for _, term in ordered if term.coordinates]
    free = frozenset().union(*coordinates) if len(coordinates) > 1 else coordinates[0] if coordinates else NOWHERE
    return Form(ordered, key, free, max([term.level for _, term in ordered], default=0))


EMPTY = product(())
ZERO = form(())
ONE = form(((1, EMPTY),))


def magnitude(value: Number) -> Number:
    return value if value >= 0 else -value


def constant(value: Number) -> Form:
    return form(((value, EMPTY),))


def single(atom: Atom, power: Number = 1) -> Form:
    return form(((1, product(((atom, power),))),))


def leaf(expr: ir.Expr, key: str) -> Form:
    return single(Leaf(expr, key, expr.type.coordinates, height(expr) if "'" in key else 0))


def function(op: str, arguments: tuple[Form, ...]) -> Form:
    key = f"2{op}({','.join(argument.key for argument in arguments)})"
    coordinates = frozenset().union(*(argument.coordinates for argument in arguments))
    level = max(argument.level for argument in arguments)
    return single(Function(op, arguments, key, coordinates, level))


def divisors(term: Product) -> set[str]:
    """The sums in the denominator."""
    return {atom.key for atom, power in term.factors if power < 0 and isinstance(atom, Sum)}


def under(value: Form, conditions: Mapping[str, ir.Expr], absent: bool) -> Form:
    """The value where all of these hold, else 0. `absent`: by a guard, so that nothing there is evaluated."""
    if not conditions:
        return value
    result = []
    for number, term in value.terms:
        merged = {**conditions, **term.conditions}
        removed = term.absent.union(conditions) if absent else term.absent
        skipped = term.skipped.union(conditions) if divisors(term) else term.skipped
        result.append((number, product(term.factors, term.exponent, merged, removed, skipped)))
    return form(result)


def present(value: Form) -> Form:
    """A form where no term of it may be absent, as in an exponent or below the line: the checker has made sure
    that what its guards say holds wherever it is read."""
    if not any(term.absent for _, term in value.terms):
        return value
    terms = []
    for number, term in value.terms:
        left = {key: condition for key, condition in term.conditions.items() if key not in term.absent}
        terms.append((number, product(term.factors, term.exponent, left, NEVER, term.skipped & left.keys())))
    return form(terms)


# ----------------------------------------------------------------------- arithmetic


def plus(left: Form, right: Form, times_right: Number = 1) -> Form:
    if not right.terms:
        return left
    return form((*left.terms, *((number * times_right, term) for number, term in right.terms)))


def times(left: Form, right: Form) -> Form:
    """The product of two forms. It is multiplied out only over numbers that vary with nothing, and over weights."""
    if left is ONE or right is ONE:
        return right if left is ONE else left
    for one, other in ((left, right), (right, left)):
        plain = len(one.terms) == 1 and one.terms[0][1].scalar
        if not one.terms or plain or (len(one.terms) > 1 and one.weights):
            rest = other.terms if plain else () if not other.terms else (grouped(other),)
            return form(_joined(a, b) for a in one.terms for b in rest)
    number, joined = _joined(grouped(left), grouped(right))
    return ungrouped(number, joined)


def _joined(left: tuple[Number, Product], right: tuple[Number, Product]) -> tuple[Number, Product]:
    return left[0] * right[0], multiplied(left[1], right[1])


def multiplied(left: Product, right: Product) -> Product:
    """Exponents of equal factors add up; conditions hold once."""
    if left is EMPTY or right is EMPTY:
        return right if left is EMPTY else left
    factors = {atom.key: (atom, power) for atom, power in left.factors}
    for atom, power in right.factors:
        known = factors.get(atom.key)
        if known is None:
            factors[atom.key] = (atom, power)
        elif known[1] + power:
            worse = known[0] if not getattr(known[0], "softmax", True) else atom
            factors[atom.key] = (worse, known[1] + power)
        else:
            del factors[atom.key]
    exponent = left.exponent or right.exponent
    if left.exponent is not None and right.exponent is not None:
        exponent = plus(left.exponent, right.exponent)
    if not left.conditions and not right.conditions:
        return product(factors.values(), exponent)
    conditions = {**left.conditions, **right.conditions}
    result = product(factors.values(), exponent, conditions, left.absent | right.absent)
    below = divisors(result)
    skipped = [side.skipped for side in (left, right) if side.skipped and below <= divisors(side)]
    return replace(result, skipped=NEVER.union(*skipped)) if skipped else result


def grouped(value: Form) -> tuple[Number, Product]:
    """A form as one term: its only one, or a group of them, less what all of them share."""
    if len(value.terms) == 1:
        return value.terms[0]
    number = _content(value)
    shared = _shared(value)
    if number != 1 or shared is not EMPTY:
        inverse = inverted(shared)
        value = form((Fraction(own) / number, multiplied(term, inverse)) for own, term in value.terms)
    group = Group(value, f"3({value.key})", value.coordinates, value.level)
    return number, multiplied(product(((group, 1),)), shared)


def _content(value: Form) -> Number:
    """The number of the first of the largest terms that are no numbers themselves: what is left is at most 1."""
    varying = [number for number, term in value.terms if term is not EMPTY] or [number for number, _ in value.terms]
    return max(varying, key=magnitude)


def _shared(value: Form) -> Product:
    """The scalar factors that every term of a form has to the same power."""
    first = [(atom, power) for atom, power in value.terms[0][1].factors if not atom.coordinates]
    for _, term in value.terms[1:]:
        here = {atom.key: power for atom, power in term.factors}
        first = [(atom, power) for atom, power in first if here.get(atom.key) == power]
    return product(first) if first else EMPTY


def inverted(value: Product) -> Product:
    """One over a product without conditions."""
    exponent = None if value.exponent is None else form((-own, part) for own, part in value.exponent.terms)
    return product(((atom, -power) for atom, power in value.factors), exponent)


def is_total(atom: Atom) -> bool:
    """Whether a factor is a sum of exponentials and of nothing else."""
    return isinstance(atom, Sum) and atom.body.exponent is not None and not atom.body.factors


def has_total(value: Form) -> bool:
    """Whether something is added to a sum of exponentials: weights may be divided by that."""
    sums = [term for _, term in value.terms if any(is_total(atom) and power == 1 for atom, power in term.factors)]
    return len(value.terms) > 1 and len(sums) == 1 and not any(divisors(term) for _, term in value.terms)


def levelled(value: Form) -> tuple[Product, Form]:
    """A form as a product and another form, in which a sum of exponentials that something is added to stands alone:
    `e^-m·Σ + e^(a - m)` is `e^-m` times `Σ + e^a`, and `1 + a/Σ` is `1/Σ` times `Σ + a`."""
    if len(value.terms) < 2 or any(term.conditions for _, term in value.terms):
        return EMPTY, value
    factors = [factor for _, term in value.terms for factor in term.factors]
    below = {atom.key: atom for atom, power in factors if is_total(atom) and power == -1}
    outside = product((atom, -1) for atom in below.values()) if len(below) == 1 else EMPTY
    terms = [(number, multiplied(term, inverted(outside))) for number, term in value.terms]
    sums = [(term, atom) for _, term in terms for atom, power in term.factors if is_total(atom) and power == 1]
    if len(sums) != 1:
        return EMPTY, value
    pivot, total = sums[0]
    beside = multiplied(pivot, product(((total, -1),)))
    found = multiplied(outside, beside)
    if found.key == EMPTY.key:
        return EMPTY, value
    return found, form((number, multiplied(term, inverted(beside))) for number, term in terms)


def ungrouped(number: Number, term: Product) -> Form:
    """A term; a group that stands alone among numbers that vary with nothing is multiplied out again."""
    groups = [atom for atom, n in term.factors if n == 1 and isinstance(atom, Group) and len(atom.form.terms) > 1]
    if len(groups) != 1 or term.conditions or term.exponent is not None:
        return form(((number, term),))
    rest = product(factor for factor in term.factors if factor[0] is not groups[0])
    if rest.coordinates:
        return form(((number, term),))
    return form((number * own, multiplied(rest, inner)) for own, inner in groups[0].form.terms)
