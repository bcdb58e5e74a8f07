"""Index arithmetic, read backwards: at which points of a statement is this one element read?

`x[i + k]` is read at `n` where `i = n - k`; `x[h * 64 + d]` where `h = n / 64` and `d = n % 64`. What cannot be
solved for, a gather say, stays a condition: `p[i] == n`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import ONE, Constants, Polynomial, expression, number, of_atom, polynomial
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, substitute, walk
from ..records import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Inverse:
    """Each coordinate that could be solved for, as an expression of the element's own; that these lie in their ranges;
    what must hold besides; and the ranges of the coordinates that are left to run."""

    values: dict[Coordinate, ir.Expr]
    bounds: tuple[ir.Expr, ...]
    equations: tuple[ir.Expr, ...]
    ranges: tuple[ir.Range, ...]


@dataclass(slots=True)
class _Equations:
    """`left == right` for every axis; a coordinate that is not solved is in `ranges`."""

    ranges: list[ir.Range]
    free: frozenset[Coordinate]
    pinned: frozenset[Coordinate]
    left: list[tuple[ir.Expr, ir.Expr]]
    constants: Constants
    values: dict[Coordinate, ir.Expr] = field(default_factory=dict)
    bounds: list[tuple[ir.Range, ir.Expr]] = field(default_factory=list)
    conditions: list[ir.Expr] = field(default_factory=list)

    def is_open(self, coordinate: Coordinate) -> bool:
        return any(range.coordinate == coordinate for range in self.ranges)

    def solve(self, coordinate: Coordinate, value: ir.Expr, checked: bool) -> None:
        """`checked` is False where it is known that the value lies in the coordinate's range."""
        found = next(range for range in self.ranges if range.coordinate == coordinate)
        self.ranges.remove(found)
        step = {coordinate: value}
        self.values = {name: substitute(old, step) for name, old in self.values.items()}
        self.values[coordinate] = value
        self.left = [(substitute(index, step), substitute(place, step)) for index, place in self.left]
        self.conditions = [substitute(condition, step) for condition in self.conditions]
        self.ranges = [_substituted(range, step) for range in self.ranges]
        self.bounds = [(_substituted(range, step), substitute(at, step)) for range, at in self.bounds]
        if checked:
            self.bounds.append((found, value))

    def polynomial(self, expr: ir.Expr) -> Polynomial:
        return polynomial(expr, self.constants)


def _substituted(range: ir.Range, values: dict[Coordinate, ir.Expr]) -> ir.Range:
    return replace(range, lower=substitute(range.lower, values), upper=substitute(range.upper, values))


def invert(
    indices: Sequence[ir.Expr],
    home: Sequence[ir.Range],
    ranges: Sequence[ir.Range],
    own: frozenset[Coordinate],
    pinned: frozenset[Coordinate],
    constants: Constants,
) -> Inverse:
    """The points at which a statement with these ranges reads its tensor at the point `home`.

    Coordinates of the left-hand side (`own`) are solved for before those that a reduction binds: the kernel of a
    convolution stays what is summed over. Those `pinned` by a normaliser can only be renamed.
    """
    places = [build.coord(range.coordinate, range.span) for range in home]
    equations = _Equations(list(ranges), own, pinned, list(zip(indices, places, strict=True)), constants)
    for rule in (_bare, _quotients, _affine):
        while rule(equations):
            pass
    left = tuple(_equal(index, place) for index, place in equations.left)
    return Inverse(equations.values, tuple(_bounds(equations)), left, tuple(_in_order(equations.ranges)))


def _in_order(ranges: list[ir.Range]) -> list[ir.Range]:
    """Every range after those that it depends on. Where they depend on each other, nothing may be solved for."""
    waiting, result = list(ranges), []
    while waiting:
        open = {range.coordinate for range in waiting}
        ready = [r for r in waiting if not open & r.depends_on]
        if not ready:
            raise Inexpressible
        result.append(ready[0])
        waiting.remove(ready[0])
    return result


def _equal(index: ir.Expr, place: ir.Expr) -> ir.Expr:
    sides = (index, place) if index.type.coordinates else (place, index)
    return build.apply("==", sides, "bool", index.span)


def _bounds(equations: _Equations) -> list[ir.Expr]:
    """The conditions that each solution lies in its range, and is whole."""
    wanted = []
    for range, value in equations.bounds:
        wanted.append(build.apply("<=", (range.lower, value), "bool", range.span))
        wanted.append(build.apply("<", (value, range.upper), "bool", range.span))
    return [tidied(condition, equations.constants) for condition in (*wanted, *equations.conditions)]


def tidied(condition: ir.Expr, constants: Constants) -> ir.Expr:
    """Return `0 <= n - k` in its usual form, `k <= n`; `t < s + 1` as `t <= s`."""
    match condition:
        case ir.Map("<", (left, right)) if left.type.kind == right.type.kind == "whole":
            below, above = polynomial(left, constants), polynomial(right, constants)
            common = {m: f for m, f in below.terms.items() if above.terms.get(m) == f}
            below, above = below - Polynomial(common), above - Polynomial(common)
            if above.terms.get(ONE, 0) > 0 and len(above.terms) > 1:
                sides = (expression(below, condition.span), expression(above - 1, condition.span))
                return build.apply("<=", sides, "bool", condition.span)
            if not common:
                return condition
            sides = (expression(below, condition.span), expression(above, condition.span))
            return build.apply("<", sides, "bool", condition.span)
        case ir.Map("<=", (ir.Const() as left, right)):
            terms = (polynomial(right, constants) - polynomial(left, constants)).terms
            above = Polynomial({m: f for m, f in terms.items() if f > 0})
            below = Polynomial({m: -f for m, f in terms.items() if f < 0})
            if not below.terms or not above.terms:
                return condition
            sides = (expression(below, condition.span), expression(above, condition.span))
            return build.apply("<=", sides, "bool", condition.span)
        case _:
            return condition


# ------------------------------------------------------------------------- rules


def _bare(equations: _Equations) -> bool:
    """`x[i]` is read at `n` where `i` is `n`. A range that was not stated has just these points."""
    for equation in equations.left:
        index, place = equation
        if isinstance(index, ir.Coord) and equations.is_open(index.coordinate):
            if index.coordinate in equations.pinned and not isinstance(place, ir.Coord):
                continue
            equations.left.remove(equation)
            range = next(r for r in equations.ranges if r.coordinate == index.coordinate)
            equations.solve(index.coordinate, place, range.stated)
            return True
    return False


def _quotients(equations: _Equations) -> bool:
    """`x[m / k, m % k]` is read at `(p, q)` where `m` is `p * k + q`, and `q` is less than `k`."""
    for first in equations.left:
        match first[0]:
            case ir.Map("//", (ir.Coord(coordinate), size)) if equations.is_open(coordinate):
                pass
            case _:
                continue
        if coordinate in equations.pinned:
            continue
        for second in equations.left:
            match second[0]:
                case ir.Map("%", (ir.Coord(other), divisor)) if other == coordinate and divisor == size:
                    span = first[0].span
                    product = build.apply("*", (first[1], size), "whole", span)
                    equations.left.remove(first)
                    equations.left.remove(second)
                    equations.conditions.append(build.apply("<", (second[1], size), "bool", span))
                    equations.solve(coordinate, build.apply("+", (product, second[1]), "whole", span), True)
                    return True
    return False


def _affine(equations: _Equations) -> bool:
    for equation in equations.left:
        left = equations.polynomial(equation[0])
        open = {c: k for c in _candidates(left, equations) if (k := _coefficient(left, c)) is not None}
        if not open:
            continue
        if _mixed_radix(equations, equation, left, open):
            return True
        if _linear(equations, equation, left, open):
            return True
    return False


def _candidates(left: Polynomial, equations: _Equations) -> list[Coordinate]:
    hidden = build.varying(atom for atom in left.atoms if not isinstance(atom, Coordinate))
    open = [range.coordinate for range in equations.ranges]
    return [c for c in open if c in left.atoms and c not in hidden and c not in equations.pinned]


def _coefficient(left: Polynomial, coordinate: Coordinate) -> Polynomial | None:
    """The factor of a coordinate; None where it is squared."""
    terms = {}
    for monomial, factor in left.terms.items():
        powers = dict(monomial)
        power = powers.pop(coordinate, 0)
        if power > 1:
            return None
        if power:
            terms[frozenset(powers.items())] = factor
    return Polynomial(terms)


def _linear(
    equations: _Equations, equation: tuple[ir.Expr, ir.Expr], left: Polynomial, open: dict[Coordinate, Polynomial]
) -> bool:
    """Solved for the coordinate that divides least; a left-hand side's before a reduction's."""
    scaled = {c: k.constant for c, k in open.items() if k.constant and not _bounds_another(c, left, equations)}
    choices = [(c not in equations.free, abs(k or 0) != 1, -place, c) for place, (c, k) in enumerate(scaled.items())]
    if not choices:
        return False
    coordinate = min(choices)[-1]
    factor = scaled[coordinate]
    assert factor
    index, place = equation
    rest = equations.polynomial(place) - (left - _times(coordinate, factor))
    value = expression(rest if factor > 0 else -rest, index.span)
    if abs(factor) != 1:
        divisor = build.whole(abs(factor), index.span)
        remainder = build.apply("%", (value, divisor), "whole", index.span)
        even = _equal(remainder, build.whole(0, index.span))
        value = build.apply("//", (value, divisor), "whole", index.span)
    equations.left.remove(equation)
    equations.solve(coordinate, value, True)
    if abs(factor) != 1:
        equations.conditions.append(even)
    return True


def _bounds_another(coordinate: Coordinate, left: Polynomial, equations: _Equations) -> bool:
    """Whether the range of another coordinate of the equation depends on this one: then that would bound itself."""
    others = [r for r in equations.ranges if r.coordinate in left.atoms and r.coordinate != coordinate]
    return any(coordinate in r.depends_on for r in others)


def _times(coordinate: Coordinate, factor: int) -> Polynomial:
    return of_atom(coordinate) * number(factor)


def _mixed_radix(
    equations: _Equations, equation: tuple[ir.Expr, ir.Expr], left: Polynomial, open: dict[Coordinate, Polynomial]
) -> bool:
    """`h * k + d == n` with `d` below `k`: `d` is `n % k`, and `h == n / k` is left."""
    for digit, factor in open.items():
        if factor.constant != 1 or len(open) < 2:
            continue
        range = next(r for r in equations.ranges if r.coordinate == digit)
        lower, base = equations.polynomial(range.lower), equations.polynomial(range.upper)
        if lower.constant != 0 or len(base.terms) != 1 or not _is_width(base):
            continue
        quotient = _divided(left - of_atom(digit), base)
        if quotient is None or not quotient.terms:
            continue
        index, place = equation
        divisor = expression(base, index.span)
        equations.left.remove(equation)
        above = build.apply("//", (place, divisor), "whole", index.span)
        equations.left.append((expression(quotient, index.span), above))
        equations.solve(digit, build.apply("%", (place, divisor), "whole", index.span), False)
        return True
    return False


def _is_width(base: Polynomial) -> bool:
    """Whether a digit's base is the same everywhere, and more than 0 where there is a digit."""
    closed = not any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in base.atoms)
    return closed and (base.constant or 1) > 0


def _divided(value: Polynomial, base: Polynomial) -> Polynomial | None:
    """A polynomial divided by one term; None where a remainder is left."""
    ((divisor, scale),) = base.terms.items()
    terms = {}
    for monomial, factor in value.terms.items():
        powers = dict(monomial)
        for atom, power in divisor:
            powers[atom] = powers.get(atom, 0) - power
        if factor % scale or any(power < 0 for power in powers.values()):
            return None
        terms[frozenset((atom, power) for atom, power in powers.items() if power)] = factor // scale
    return Polynomial(terms)


def normalised(expressions: Sequence[ir.Expr]) -> frozenset[Coordinate]:
    """The coordinates that a normaliser in these runs over: they can be renamed, and nothing else."""
    found = (part for expr in expressions for part in walk(expr))
    return frozenset(part.coordinate for part in found if isinstance(part, ir.Normalize))
