"""Normal forms as expressions again."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import assert_never

from ...source import Span
from .. import build
from .. import nodes as ir
from ..types import Coordinate
from ..walk import fresh, rebuild, substitute, walk
from .normal import Atom, Binder, Form, Function, Group, Leaf, Logarithm, Number, Product, Sum, magnitude
from .predicates import are_opposed

_HALF = Fraction(1, 2)


def written(value: Form, span: Span) -> ir.Expr:
    """A form as an expression: its terms in order, those that are added first. Terms that may nearly cancel are
    subtracted before anything else is added."""
    result: ir.Expr | None = None
    removed = [term for term in value.terms if term[0] < 0]
    for number, term in (term for term in value.terms if term[0] > 0):
        part = written_term(number, term, span)
        other = next((other for other in removed if are_opposed(other, (number, term))), None)
        if other is not None:
            removed.remove(other)
            part = build.apply("-", (part, written_term(number, other[1], span)), "real", span)
        result = part if result is None else build.apply("+", (result, part), "real", span)
    for number, term in removed:
        if result is None:
            result = written_term(number, term, span)
        else:
            result = build.apply("-", (result, written_term(magnitude(number), term, span)), "real", span)
    return build.real(Fraction(0), span) if result is None else result


def written_term(number: Number, term: Product, span: Span) -> ir.Expr:
    """A term: its number, its factors, then what it is divided by; under its conditions."""
    value = _quotient(number, term, span)
    condition = build.conjunction(term.conditions.values())
    if condition is None:
        return value
    return build.select(condition, value, build.real(Fraction(0), span), span)


def _quotient(number: Number, term: Product, span: Span) -> ir.Expr:
    above = [_raised(atom, power, span) for atom, power in term.factors if power > 0]
    below = [_raised(atom, -power, span) for atom, power in term.factors if power < 0]
    if term.exponent is not None:
        above.append(build.apply("exp", (written(term.exponent, span),), "real", span))
    if number == -1 and above:
        above[0] = build.apply("neg", (above[0],), "real", span)
    elif number != 1 or not above:
        above.insert(0, build.real(Fraction(number), span))
    value = _multiplied(above, span)
    if below:
        value = build.apply("/", (value, _multiplied(below, span)), "real", span)
    return value


def _multiplied(parts: list[ir.Expr], span: Span) -> ir.Expr:
    result = parts[0]
    for part in parts[1:]:
        result = build.apply("*", (result, part), "real", span)
    return result


def _raised(atom: Atom, power: Number, span: Span) -> ir.Expr:
    base = written_atom(atom, span)
    if power == 1:
        return base
    if power == _HALF:
        return build.apply("sqrt", (base,), "real", span)
    return build.apply("**", (base, build.real(Fraction(power), span)), "real", span)


def written_atom(atom: Atom, span: Span) -> ir.Expr:
    match atom:
        case Leaf(expr) | Logarithm(expr):
            return expr
        case Function(op, arguments):
            return build.apply(op, tuple(written(argument, span) for argument in arguments), "real", span)
        case Group(value):
            return written(value, span)
        case Sum(binders, body):
            ranges = tuple(_range(binder, span) for binder in binders)
            inner = _quotient(1, body, span)
            guard = build.conjunction(body.conditions.values())
            return build.reduce("sum", ranges, inner, guard, "real", span)
        case _:
            assert_never(atom)


def _range(binder: Binder, span: Span) -> ir.Range:
    return ir.Range(binder.coordinate, binder.lower, binder.upper, binder.stated, span)


# ------------------------------------------------------------------------------- names


def named(expr: ir.Expr, taken: Iterable[str]) -> ir.Expr:
    """The expression with a name for everything that it binds: that of the size that it runs up to."""
    return _named(expr, frozenset(taken))


def _named(expr: ir.Expr, taken: frozenset[str]) -> ir.Expr:
    if not isinstance(expr, ir.Reduce):
        return rebuild(expr, lambda child: _named(child, taken))
    values: dict[Coordinate, ir.Expr] = {}
    ranges: list[ir.Range] = []
    for r in expr.ranges:
        lower, upper = (substitute(bound, values) for bound in (r.lower, r.upper))
        name = name_for(upper, set(taken))
        taken |= {name.name}
        values[r.coordinate] = build.coord(name, r.span)
        ranges.append(ir.Range(name, _named(lower, taken), _named(upper, taken), r.stated, r.span))
    body = _named(substitute(expr.body, values), taken)
    guard = None if expr.guard is None else _named(substitute(expr.guard, values), taken)
    return build.reduce(expr.op, tuple(ranges), body, guard, expr.type.kind, expr.span)


def name_for(upper: ir.Expr, taken: set[str]) -> Coordinate:
    """A name for a coordinate that runs up to here, and is none of those that are taken."""
    if isinstance(upper, ir.Size):
        return fresh(upper.coordinate, taken)
    sizes = sorted(part.coordinate.name for part in walk(upper) if isinstance(part, ir.Size))
    return fresh(Coordinate(sizes[0] if sizes else "k"), taken)
