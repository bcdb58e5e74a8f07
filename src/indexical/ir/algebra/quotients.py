"""Quotients as they are written, and sums of them: nothing is left over when they are written again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from ...records import dataclass, replace
from ...source import Source, Span
from .. import build
from .. import nodes as ir
from ..types import Coordinate
from ..walk import substitute
from .factors import factors_of

_ZERO = build.real(Fraction(0), Span(Source("", ""), 0, 0))


@dataclass(frozen=True, slots=True)
class Quotient:
    """A number times `factors`, over `divisors`. The empty one is 1."""

    number: Fraction = Fraction(1)
    factors: tuple[ir.Expr, ...] = ()
    divisors: tuple[ir.Expr, ...] = ()

    def times(self, other: Quotient) -> Quotient:
        return Quotient(
            self.number * other.number, (*self.factors, *other.factors), (*self.divisors, *other.divisors)
        ).reduced()

    def over(self, other: Quotient) -> Quotient:
        if other.number == 0:  # `x / 0` is an infinity or NaN, and is written as it stands.
            return self.times(Quotient(Fraction(1), other.divisors, (*other.factors, _ZERO)))
        return self.times(Quotient(1 / other.number, other.divisors, other.factors))

    def scaled(self, number: int | Fraction) -> Quotient:
        return replace(self, number=self.number * number)

    def reduced(self) -> Quotient:
        """The quotient without what stands above and below, where that cannot be 0: a size, or the root of one."""
        factors, divisors = list(self.factors), list(self.divisors)
        for divisor in self.divisors:
            if divisor in factors and _is_size(divisor):
                factors.remove(divisor)
                divisors.remove(divisor)
        return Quotient(self.number, tuple(factors), tuple(divisors))

    @property
    def coordinates(self) -> frozenset[Coordinate]:
        return build.varying((*self.factors, *self.divisors))

    def substituted(self, values: Mapping[Coordinate, ir.Expr]) -> Quotient:
        return self.changed(lambda expr: substitute(expr, values))

    def changed(self, change: Callable[[ir.Expr], ir.Expr]) -> Quotient:
        return Quotient(self.number, tuple(map(change, self.factors)), tuple(map(change, self.divisors)))

    def split(self, inside: Callable[[ir.Expr], bool]) -> tuple[Quotient, Quotient]:
        """The part that stays inside, and the rest, with the number."""
        kept = tuple(expr for expr in self.factors if inside(expr))
        below = tuple(expr for expr in self.divisors if inside(expr))
        others = tuple(expr for expr in self.factors if not inside(expr))
        rest = tuple(expr for expr in self.divisors if not inside(expr))
        return Quotient(Fraction(1), kept, below), Quotient(self.number, others, rest)

    def expression(self, span: Span) -> ir.Expr:
        """The product as an expression; a number in front, divisors behind."""
        number, over = self.number, 1
        if self.divisors or (number.denominator > 1 and not _is_short(number)):
            number, over = Fraction(number.numerator), number.denominator
        result: ir.Expr | None = None
        if abs(number) != 1 or not self.factors:
            result = build.real(abs(number), span)
        for factor in _powers(self.factors, span):
            result = factor if result is None else build.apply("*", (result, factor), "real", span)
        assert result is not None
        divisors = _powers(self.divisors, span)
        if over > 1:
            divisors = [build.real(Fraction(over), span), *divisors]
        if divisors:
            below = divisors[0]
            for divisor in divisors[1:]:
                below = build.apply("*", (below, divisor), "real", span)
            result = build.apply("/", (result, below), "real", span)
        if number < 0:
            result = build.apply("neg", (result,), "real", span)
        return result


def _powers(factors: Sequence[ir.Expr], span: Span) -> list[ir.Expr]:
    """Factors, with three or more of a kind as a power."""
    result = []
    for factor in dict.fromkeys(factors) if len(set(factors)) + 2 <= len(factors) else factors:
        times = factors.count(factor) if len(set(factors)) + 2 <= len(factors) else 1
        if times > 2:
            factor = build.apply("**", (factor, build.whole(times, span)), "real", span)
        result += [factor] * (times if times == 2 else 1)
    return result


def _is_short(number: Fraction) -> bool:
    """Whether it is a decimal that one would write: 0.5, 0.125."""
    below = number.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below == 1 and number.denominator <= 1000


def _is_size(expr: ir.Expr) -> bool:
    match expr:
        case ir.Size():
            return True
        case ir.Map("sqrt" | "rsqrt" | "as f64" | "as f32", (inner,)):
            return _is_size(inner)
        case _:
            return False


def quotient_of(expr: ir.Expr) -> Quotient:
    """An expression as a quotient: numbers, signs, factors and divisors."""
    result = Quotient()
    for factor in factors_of(expr):
        match factor.expr:
            case ir.Const(value, rounding=None) if not isinstance(value, bool):
                if factor.inverse and value == 0:
                    return Quotient(factors=(expr,))
                part = Quotient(Fraction(value))
            case ir.Map("neg", (inner,)):
                part = quotient_of(inner).scaled(-1)
            case plain:
                part = Quotient(factors=(plain,))
        result = result.over(part) if factor.inverse else result.times(part)
    return result


def sorted_by(product: Quotient, order: Sequence[Coordinate]) -> Quotient:
    """Factors in the order in which their coordinates stand on the left, as matrices are multiplied."""
    places = {coordinate: number for number, coordinate in enumerate(order)}

    def key(expr: ir.Expr) -> list[int]:
        return sorted(places[coordinate] for coordinate in expr.type.coordinates if coordinate in places)

    return replace(product, factors=tuple(sorted(product.factors, key=key)))


def total(terms: Iterable[ir.Expr], span: Span) -> ir.Expr | None:
    """The sum of these, written with `-` where one is negative; None for none."""
    result: ir.Expr | None = None
    for term in terms:
        opposite = without_sign(term)
        if result is None:
            result = term
        elif opposite is not None:
            result = build.apply("-", (result, opposite), "real", span)
        else:
            result = build.apply("+", (result, term), "real", span)
    return result


def without_sign(expr: ir.Expr) -> ir.Expr | None:
    """The expression without the minus that it begins with; None where it has none."""
    match expr:
        case ir.Map("neg", (inner,)):
            return inner
        case ir.Const(value) if not isinstance(value, bool) and value < 0:
            return replace(expr, value=-value)
        case ir.Map("*" | "/" as op, (left, right), type, span):
            first = without_sign(left)
            return None if first is None else ir.Map(op, (first, right), type, span)
        case _:
            return None
