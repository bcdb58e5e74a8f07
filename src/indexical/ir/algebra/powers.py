"""Powers, roots and exponentials of normal forms."""

from __future__ import annotations

from fractions import Fraction

from ...source import Source, Span
from .. import build
from .. import nodes as ir
from ..functions import operation
from .normal import (
    EMPTY,
    ONE,
    ZERO,
    Atom,
    Form,
    Function,
    Group,
    Leaf,
    Logarithm,
    Number,
    Product,
    Sum,
    constant,
    form,
    function,
    grouped,
    leaf,
    levelled,
    plus,
    present,
    product,
    single,
    times,
    ungrouped,
)

# Numbers are taken apart into primes up to here; what is left counts as one.
_LARGEST_PRIME = 1000

_NOWHERE = Span(Source("", ""), 0, 0)


def power(value: Form, exponent: Number) -> Form:
    """A form to a constant power. A root is taken of a whole product, unless its factors are never negative."""
    if exponent == 1:
        return value
    if exponent == 0:
        return ONE
    if not value.terms:
        return ZERO if exponent > 0 else _closed(value, exponent)
    if exponent < 0:
        before, value = levelled(present(value))
        if before is not EMPTY:
            return times(_raised(before, exponent), power(value, exponent))
    number, term = grouped(value)
    if term.conditions and exponent < 0:
        return _closed(form(((number, term),)), exponent)
    if Fraction(exponent).denominator == 1:
        outside = constant_power(number, int(exponent))
        return times(outside, _raised(term, exponent))
    return _root(number, term, exponent)


def _raised(term: Product, exponent: Number) -> Form:
    inner = None if term.exponent is None else form((own * exponent, part) for own, part in term.exponent.terms)
    factors = tuple((atom, power * exponent) for atom, power in term.factors)
    return ungrouped(1, product(factors, inner, term.conditions, term.absent, term.skipped))


def _closed(value: Form, exponent: Number) -> Form:
    return single(Group(value, f"3({value.key})", value.coordinates, value.level), exponent)


def _root(number: Number, term: Product, exponent: Number) -> Form:
    """A power that is not whole: taken factor by factor as far as these are never negative."""
    plain = [factor for factor in term.factors if is_never_negative(factor[0])]
    others = [factor for factor in term.factors if not is_never_negative(factor[0])]
    inner = None if term.exponent is None else form((own * exponent, part) for own, part in term.exponent.terms)
    roots = [(atom, power * exponent) for atom, power in plain]
    result = form(((1, product(roots, inner, term.conditions, term.absent, term.skipped)),))
    if number > 0:
        result = times(result, constant_power(number, exponent))
    if number > 0 and len(others) == 1 and others[0][1] == 1:
        return times(result, single(others[0][0], exponent))
    if others or number < 0:
        rest = form(((1 if number > 0 else number, product(others)),))
        return times(result, _closed(rest, exponent))
    return result


def is_never_negative(atom: Atom) -> bool:
    match atom:
        case Leaf(ir.Size() | ir.Const() | ir.Map(_, ())):
            return True
        case Function(op):
            return operation(op).never_negative
        case Sum(body=body):
            return all(is_never_negative(inner) for inner, _ in body.factors)
        case _:
            return False


def constant_power(number: Number, exponent: Number) -> Form:
    """A number to a power. What has no rational root is left as primes to powers between 0 and 1."""
    if Fraction(exponent).denominator == 1:
        return form(((Fraction(number) ** int(exponent), EMPTY),))
    outside: Number = Fraction(1)
    result = ONE
    for prime, count in _primes(Fraction(number)).items():
        total = count * Fraction(exponent)
        whole = total.numerator // total.denominator
        outside *= Fraction(prime) ** whole
        if total != whole:
            (_, inner) = leaf(build.whole(prime, _NOWHERE), f"0{prime}").terms[0]
            result = times(result, single(inner.factors[0][0], total - whole))
    return form((own * outside, term) for own, term in result.terms)


def _primes(number: Fraction) -> dict[int, int]:
    found: dict[int, int] = {}
    for value, sign in ((number.numerator, 1), (number.denominator, -1)):
        candidate = 2
        while candidate <= _LARGEST_PRIME and candidate * candidate <= value:
            while value % candidate == 0:
                value //= candidate
                found[candidate] = found.get(candidate, 0) + sign
            candidate += 1
        if value > 1:
            found[value] = found.get(value, 0) + sign
    return found


def exponential(value: Form) -> Form:
    """e to a form. Logarithms in it are factors."""
    rest = []
    result = ONE
    for number, term in value.terms:
        alone = not term.conditions and term.exponent is None
        match term.factors:
            case ((Logarithm(weights=weights), 1),) if alone:
                result = times(result, power(weights, number))
            case _:
                rest.append((number, term))
    if not rest:
        return result
    raised = product((), form(rest))
    return times(result, form(((1, raised),))) if result is not ONE else form(((1, raised),))


def exponential_power(base: Form, exponent: Form) -> Form | None:
    """A power whose exponent varies, as e to a form: `2 ** x` is e to `log(2) * x`. None where the base is neither a
    positive number other than 1 nor e to something."""
    if len(base.terms) != 1:
        return None
    number, term = base.terms[0]
    if term.factors or term.conditions or number <= 0:
        return None
    raised = ZERO if term.exponent is None else times(term.exponent, exponent)
    if number != 1:
        raised = plus(raised, times(function("log", (constant(number),)), exponent))
    return exponential(raised) if raised.terms else None
