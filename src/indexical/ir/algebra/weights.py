"""Weights in normal form: e to a score, divided by the sum of what it is over one coordinate, or by more than that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from ...records import dataclass
from .. import build
from .. import nodes as ir
from ..types import Coordinate
from ..walk import children
from .normal import (
    ZERO,
    Atom,
    Form,
    Group,
    Number,
    Product,
    Sum,
    TooLarge,
    constant,
    form,
    function,
    is_total,
    plus,
    present,
    single,
    times,
)
from .normalize import Algebra
from .powers import is_never_negative
from .sums import replaced


@dataclass(frozen=True, slots=True)
class Total:
    """A divisor of weights: the factor `atom` is `number` times the sum of exponentials `sum` and the `sink`, which is
    added to it and may be nothing."""

    atom: Atom
    sum: Sum
    number: Number = 1
    sink: Form = ZERO


def totals(factors: Iterable[tuple[Atom, Number]]) -> Iterator[Total]:
    """The sums of exponentials that something is divided by, each with what is added to it."""
    for atom, power in factors:
        if power >= 0:
            continue
        if isinstance(atom, Sum) and atom.body.exponential:
            yield Total(atom, atom)
        if isinstance(atom, Group):
            sums = [(number, term) for number, term in atom.form.terms if _is_total(term)]
            if len(sums) == 1:
                ((number, term),) = sums
                rest = [(Fraction(own) / number, other) for own, other in atom.form.terms if other is not term]
                total = term.factors[0][0]
                assert isinstance(total, Sum)
                yield Total(atom, total, number, form(rest))


def _is_total(term: Product) -> bool:
    """Whether a term is a sum of exponentials alone."""
    if len(term.factors) != 1 or term.factors[0][1] != 1 or term.exponent is not None or term.conditions:
        return False
    return is_total(term.factors[0][0])


def log_of(sink: Form) -> Form | None:
    """The logarithm of what is added to a total; None where that may be negative."""
    result: Form | None = None
    for number, term in sink.terms:
        own = _log_of_term(number, term)
        if own is None:
            return None
        # log(e^a + e^b) is a + softplus(b - a).
        result = own if result is None else plus(result, function("softplus", (plus(own, result, -1),)))
    return result


def _log_of_term(number: Number, term: Product) -> Form | None:
    if number <= 0 or term.conditions or not all(is_never_negative(atom) for atom, _ in term.factors):
        return None
    result = ZERO if term.exponent is None else term.exponent
    if number != 1:
        result = plus(result, function("log", (constant(number),)))
    for atom, power in term.factors:
        result = plus(result, times(constant(power), function("log", (single(atom),))))
    return result


def summand(algebra: Algebra, total: Sum, coordinate: Coordinate) -> Product | str:
    """The summand of a total over one coordinate, at another one; or why it sums no plain exponentials, or not the same
    ones for all points of that other one."""
    if coordinate in total.coordinates:
        return "what its weights are divided by varies with the key"
    at_key = {total.binders[0].coordinate: build.coord(coordinate, total.binders[0].lower.span)}
    found = replaced(form(((1, total.body),)), at_key, algebra).terms
    if len(found) != 1 or found[0][0] != 1 or found[0][1].exponent is None:
        return "what is summed is not what its weights are normalised by"
    if found[0][1].factors:
        return "its weights are more than exponentials before they are normalised"
    return found[0][1]


def matched(
    algebra: Algebra, exponent: Form, share: Product, key: Coordinate, brought: frozenset[Coordinate]
) -> tuple[Form, Form] | None:
    """The exponents of the numerator and of the denominator, where they differ by nothing that varies with the key.
    Coordinates that are `brought` along with the values are not taken for those of the query."""
    assert share.exponent is not None
    above, below = inlined(algebra, exponent, share.exponent, key, brought)
    return None if key in plus(above, below, -1).coordinates else (above, below)


def carried(value: ir.Expr, key: Coordinate) -> frozenset[Coordinate]:
    """The coordinates that a value carries: those in it apart from the key. In `V[i - j, e]`, read at a distance from
    the query, `i` is not one of them."""
    if isinstance(value, ir.Read | ir.Array):
        return frozenset().union(*(i.type.coordinates for i in value.indices if key not in i.type.coordinates))
    parts = children(value)
    found = frozenset().union(*(carried(part, key) for part in parts)) if parts else value.type.coordinates
    return found & value.type.coordinates


def _are_same(one: Form, other: Form) -> bool:
    """Whether two forms are equal, and guards have removed the same points of both."""
    if one.key != other.key:
        return False
    return all(here.absent == there.absent for (_, here), (_, there) in zip(one.terms, other.terms, strict=True))


def inlined(
    algebra: Algebra, above: Form, below: Form, key: Coordinate, brought: frozenset[Coordinate]
) -> tuple[Form, Form]:
    """Both exponents, with every definition inlined that varies with the query and the key, once where they are equal;
    as they are where that grows too large."""
    work = algebra.work
    asks = (above.coordinates | below.coordinates) - {key}
    asks = asks - brought or asks

    def opens(read: ir.Read) -> bool:
        coordinates = read.type.coordinates
        return key in coordinates and (not asks or not coordinates.isdisjoint(asks))

    try:
        found = present(algebra.opened(below, opens))
        return found if _are_same(above, below) else present(algebra.opened(above, opens)), found
    except TooLarge:
        algebra.work, algebra.depth = work, 0
        return above, below
