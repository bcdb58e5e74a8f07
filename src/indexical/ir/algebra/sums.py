"""Sums over coordinates, and coordinates replaced, in normal forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from ...records import replace
from .. import build
from .. import nodes as ir
from ..functions import operation
from ..types import Coordinate
from ..walk import Inexpressible, substitute, walk
from .canonical import text
from .normal import (
    EMPTY,
    ONE,
    Atom,
    Binder,
    Form,
    Function,
    Group,
    Leaf,
    Logarithm,
    Number,
    Product,
    Reader,
    Sum,
    divisors,
    form,
    function,
    height,
    product,
    single,
    times,
    ungrouped,
)
from .powers import power
from .predicates import are_opposed
from .safety import Caution, is_open, is_safe

Values = Mapping[Coordinate, ir.Expr]

_fresh = count()


def summed(value: Form, binders: Sequence[Binder], reader: Reader) -> Form:
    """The sum of a form over coordinates, term by term. What does not vary with them leaves the sum, but what may be
    NaN or infinite stays under a guard; a sum whose range depends on another coordinate stands inside of that one's."""
    if not binders:
        return value
    names = {binder.coordinate for binder in binders}
    mentioned = {name for binder in binders for name in _bounds(binder) & names}
    inner = [binder for binder in binders if binder.coordinate not in mentioned and _bounds(binder) & names]
    if inner:
        rest = [binder for binder in binders if binder not in inner]
        return summed(summed(value, inner, reader), rest, reader)
    result: list[tuple[Number, Product]] = []
    for number, term in value.terms:
        result += [(number * own, found) for own, found in _sum(term, binders, reader).terms]
    return form(result)


def _has_poles(atom: Atom, power: Number) -> bool:
    """Whether a factor that varies may be NaN or infinite of finite numbers; not what a sum divides, as a softmax does.
    """
    match atom:
        case Leaf(expr):
            return bool(atom.coordinates) and (power < 0 or power != int(power) or any(map(is_open, walk(expr))))
        case Function(op):
            return bool(atom.coordinates) and (power < 0 or not operation(op).finite)
        case _:
            return False


def _bounds(binder: Binder) -> frozenset[Coordinate]:
    return binder.lower.type.coordinates | binder.upper.type.coordinates


def _sum(term: Product, binders: Sequence[Binder], reader: Reader) -> Form:
    names = frozenset(binder.coordinate for binder in binders)
    inside = [factor for factor in term.factors if factor[0].coordinates & names]
    within, without = split(term.exponent, names)
    if term.conditions:
        caution = reader.caution.under(term.conditions.values())
        inside = [f for f in term.factors if f in inside or not is_safe_atom(f[0], caution) or _has_poles(*f)]
        if without is not None and not is_safe_form(without, caution):
            within, without = term.exponent, None
    outside = [factor for factor in term.factors if factor not in inside]
    around = form(((1, product(outside, without)),)) if outside or without is not None else ONE
    if len(inside) == 1 and inside[0][1] == 1 and within is None and not term.conditions:
        match inside[0][0]:
            case Group(form=group) if len(group.terms) > 1:
                return times(around, summed(group, binders, reader))
            case Sum() as nested if not any(_bounds(binder) & names for binder in nested.binders):
                merged, inner = opened(nested, reader)
                return times(around, closed(inner, (*binders, *merged), reader))
    kept = (term.absent, term.skipped) if divisors(term) else ()
    body = product(inside, within, term.conditions, *kept)
    if body.key == EMPTY.key:
        return times(around, _counted(binders, reader))
    return times(around, closed(form(((1, body),)), binders, reader))


def _counted(binders: Sequence[Binder], reader: Reader) -> Form:
    """The number of points."""
    if all(text(b.lower) == "0" and isinstance(b.upper, ir.Size) for b in binders):
        result = ONE
        for binder in binders:
            result = times(result, reader.again(binder.upper))
        return result
    return closed(ONE, binders, reader)


def split(exponent: Form | None, names: frozenset[Coordinate]) -> tuple[Form | None, Form | None]:
    """The terms of an exponent that vary with these coordinates, or are opposed to some that do; and the rest."""
    if exponent is None:
        return None, None
    varying = [term for term in exponent.terms if term[1].coordinates & names]
    without = [term for term in exponent.terms if not term[1].coordinates & names]
    opposed = [term for term in without if any(are_opposed(term, other) for other in varying)]
    without = [term for term in without if term not in opposed]
    within = varying + opposed
    return form(within) if within else None, form(without) if without else None


def closed(body: Form, binders: Sequence[Binder], reader: Reader, softmax: bool = False) -> Form:
    """A form under a sum, its bound coordinates named by their height."""
    base = max(body.level, *(height(bound) for b in binders for bound in (b.lower, b.upper)))
    ordered = list(binders)
    if len(ordered) > 1:
        ordered.sort(key=lambda binder: _occurrences(body, binder, binders, reader))
    names = [Coordinate(f"'{base + number}") for number, _ in enumerate(ordered)]
    values = {b.coordinate: build.coord(name, b.lower.span) for b, name in zip(ordered, names, strict=True)}
    named = tuple(replace(b, coordinate=name) for b, name in zip(ordered, names, strict=True))
    found = replaced(body, values, reader)
    return form((number, _factor(term, named, softmax)) for number, term in found.terms)


def _factor(body: Product, binders: tuple[Binder, ...], softmax: bool) -> Product:
    return product(((_made(body, binders, softmax), 1),))


def _made(body: Product, binders: tuple[Binder, ...], softmax: bool) -> Sum:
    ranges = ",".join(f"{b.coordinate}:{text(b.lower)}..{text(b.upper)}" for b in binders)
    bounds = [_bounds(binder) for binder in binders]
    coordinates = body.coordinates.union(*bounds) - {binder.coordinate for binder in binders}
    level = max(body.level, *(int(binder.coordinate[1:]) + 1 for binder in binders))
    return Sum(binders, body, softmax, f"4sum({ranges})({body.key})", coordinates, level)


def _occurrences(body: Form, binder: Binder, binders: Sequence[Binder], reader: Reader) -> str:
    """A description of where a coordinate occurs that does not depend on any bound coordinate's name; its range alone,
    where a normaliser cannot have two of them by one name."""
    mark = {b.coordinate: build.coord(Coordinate("!" if b is binder else "?"), b.lower.span) for b in binders}
    range_ = f"{text(binder.lower)}..{text(binder.upper)}"
    try:
        return f"{range_} {replaced(body, mark, reader).key}"
    except Inexpressible:
        return range_


def opened(atom: Sum, reader: Reader) -> tuple[tuple[Binder, ...], Form]:
    """The ranges and the body of a sum, under names that nothing else has."""
    binders, values = _renamed(atom.binders)
    return binders, replaced(form(((1, atom.body),)), values, reader)


def _renamed(binders: tuple[Binder, ...]) -> tuple[tuple[Binder, ...], Values]:
    names = [Coordinate(f"`{next(_fresh)}") for _ in binders]
    values = {b.coordinate: build.coord(name, b.lower.span) for b, name in zip(binders, names, strict=True)}
    return tuple(replace(b, coordinate=name) for b, name in zip(binders, names, strict=True)), values


# --------------------------------------------------------------------------- caution


def is_safe_atom(atom: Atom, caution: Caution) -> bool:
    match atom:
        case Leaf(expr):
            return is_safe(expr, caution)
        case Function(arguments=arguments):
            return all(is_safe_form(argument, caution) for argument in arguments)
        case Group(inner) | Logarithm(weights=inner):
            return is_safe_form(inner, caution)
        case Sum(body=body):
            return is_safe_product(body, caution)


def is_safe_product(value: Product, caution: Caution) -> bool:
    if value.exponent is not None and not is_safe_form(value.exponent, caution):
        return False
    if not all(is_safe(condition, caution) for condition in value.conditions.values()):
        return False
    return all(is_safe_atom(atom, caution) for atom, _ in value.factors)


def is_safe_form(value: Form, caution: Caution) -> bool:
    return all(is_safe_product(term, caution) for _, term in value.terms)


# ---------------------------------------------------------------- coordinates replaced


def replaced(value: Form, values: Values, reader: Reader) -> Form:
    """The form with coordinates replaced by whole expressions."""
    if value.coordinates.isdisjoint(values):
        return value
    result: list[tuple[Number, Product]] = []
    for number, term in value.terms:
        if term.coordinates.isdisjoint(values):
            result.append((number, term))
        else:
            result += [(number * own, found) for own, found in _replaced(term, values, reader).terms]
    return form(result)


def _replaced(term: Product, values: Values, reader: Reader) -> Form:
    kept = [factor for factor in term.factors if factor[0].coordinates.isdisjoint(values)]
    others: list[Form] = []
    number: Number = 1
    for atom, times_over in term.factors:
        if atom.coordinates.isdisjoint(values):
            continue
        found = _replaced_atom(atom, values, reader)
        plain = _only(found)
        if plain is None or (times_over != 1 and found.terms[0][0] != 1) or any(plain.key == a.key for a, _ in kept):
            others.append(power(found, times_over))
        else:
            kept.append((plain, times_over))
            number = number * found.terms[0][0]
    exponent = None if term.exponent is None else replaced(term.exponent, values, reader)
    changed = _conditioned(term, kept, exponent, values, reader)
    if not others:
        return ungrouped(number, changed)
    result = form(((number, changed),))
    for other in others:
        result = times(result, other)
    return ungrouped(*result.terms[0]) if len(result.terms) == 1 else result


def _conditioned(
    term: Product, factors: list[tuple[Atom, Number]], exponent: Form | None, values: Values, reader: Reader
) -> Product:
    """These factors under the conditions of a term, coordinates replaced."""
    if not term.conditions:
        return product(factors, exponent)
    conditions: dict[str, ir.Expr] = {}
    absent: set[str] = set()
    skipped: set[str] = set()
    for key, condition in term.conditions.items():
        found = reader.conditions(substitute(condition, values))
        conditions.update(found)
        if key in term.absent:
            absent |= found.keys()
        if key in term.skipped:
            skipped |= found.keys()
    return product(factors, exponent, conditions, frozenset(absent), frozenset(skipped))


def _only(value: Form) -> Atom | None:
    """The only factor of a form that is one, but for a number."""
    if len(value.terms) != 1:
        return None
    term = value.terms[0][1]
    if len(term.factors) != 1 or term.factors[0][1] != 1 or term.conditions or term.exponent is not None:
        return None
    return term.factors[0][0]


def _replaced_atom(atom: Atom, values: Values, reader: Reader) -> Form:
    match atom:
        case Leaf(expr):
            return reader.again(substitute(expr, values))
        case Function(op, arguments):
            return function(op, tuple(replaced(argument, values, reader) for argument in arguments))
        case Group(inner):
            return replaced(inner, values, reader)
        case Logarithm(expr, weights):
            changed = substitute(expr, values)
            return logarithm(changed, replaced(weights, values, reader))
        case Sum(binders, body, softmax):
            return _replaced_sum(binders, body, softmax, values, reader)


def _replaced_sum(binders: tuple[Binder, ...], body: Product, softmax: bool, values: Values, reader: Reader) -> Form:
    changed = tuple(
        replace(b, lower=reader.whole(substitute(b.lower, values)), upper=reader.whole(substitute(b.upper, values)))
        for b in binders
    )
    found = replaced(form(((1, body),)), values, reader)
    if len(binders) == 1 and found.level == body.level:
        return form((number, _factor(term, changed, softmax)) for number, term in found.terms)
    fresh, names = _renamed(changed)
    return closed(replaced(found, names, reader), fresh, reader, softmax)


def logarithm(expr: ir.Expr, weights: Form) -> Form:
    """`log_softmax` as an atom."""
    coordinates = weights.coordinates | expr.type.coordinates
    key = f"2log({weights.key})({','.join(sorted(coordinates - weights.coordinates))})"
    return single(Logarithm(expr, weights, key, coordinates, weights.level))
