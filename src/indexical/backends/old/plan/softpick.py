"""Weights that are picked: what e to a score is above 1, over the sum of how far it is from 1 for all keys, and more.

`relu(exp(s) - 1) / (sum[j](abs(exp(s) - 1)) + 1e-6)`, in any spelling: with exponents less the largest score, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from ....facts.attention import Gather
from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.factors import Factor, product_of
from ....ir.algebra.normal import (
    EMPTY,
    ONE,
    ZERO,
    Atom,
    Binder,
    Form,
    Function,
    Group,
    Leaf,
    Number,
    Product,
    Sum,
    TooLarge,
    constant,
    form,
    function,
    magnitude,
    multiplied,
    plus,
    product,
    under,
)
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.sums import opened, replaced
from ....ir.algebra.weights import log_of
from ....ir.algebra.writing import named, written
from ....ir.context import Trail, visit_clause
from ....ir.types import Coordinate
from ....ir.walk import walk
from ....plan.steps import Origin
from ....records import dataclass, replace
from .free_weights import Freed
from .placement import place_attention
from .weights import Gathered, held_beside, widened

Conditions = Mapping[str, ir.Expr]


@dataclass(frozen=True, slots=True)
class _Shares:
    """A sum over keys of a function of `e^a - e^b`, in which `a` varies with the key and `b` does not, times other
    factors, where conditions hold."""

    binder: Binder
    above: Form
    below: Form
    conditions: Conditions
    factors: tuple[tuple[Atom, Number], ...]
    number: Number


def picked_attention(algebra: Algebra, gather: Gather, names: Iterator[str]) -> Freed | None:
    """The quotient around the sum of a gather as an attention of the next name; None where it is none."""
    site = gather.site
    around = [(e, trail) for e, trail in visit_clause(site.clause) if _holds(e, site.expr)]
    for expr, trail in sorted(around, key=lambda one: sum(1 for _ in walk(one[0]))):
        algebra.work = algebra.depth = 0
        try:
            found = _picked(algebra, expr, trail, gather.coordinate, gather.asks)
        except TooLarge:
            return None
        if found is None:
            continue
        gathered, inlined = found
        placed = place_attention(algebra, gathered, next(names), site.let, site.clause, trail, expr.span)
        if isinstance(placed, str):
            return None
        outside = form(((gathered.number, gathered.outside),))
        taken = [step.coordinate.name for step in trail if isinstance(step, ir.Range)]
        factors = [Factor(placed.read)]
        if outside.key != ONE.key:
            factors.append(Factor(named(written(outside, expr.span), taken)))
        return Freed(expr, (placed,), product_of(factors, expr), inlined)
    return None


def _holds(expr: ir.Expr, total: ir.Expr) -> bool:
    """Whether an expression is a sum, or a product or quotient that it is part of."""
    if expr is total:
        return True
    return isinstance(expr, ir.Map) and expr.op in ("*", "/") and any(_holds(part, total) for part in expr.arguments)


def _picked(
    algebra: Algebra, expr: ir.Expr, trail: Trail, key: Coordinate, query: frozenset[Coordinate]
) -> tuple[Gathered, frozenset[str]] | None:
    """The attention that a quotient is, and the definitions that were written out for it; None where it is none."""
    inlined: set[str] = set()

    def opens(read: ir.Read) -> bool:
        clause = algebra.canonical.clause(read.tensor)
        if clause is None or read.tensor in algebra.kept or not read.type.coordinates & query:
            return False
        pairs = key in read.type.coordinates
        found = pairs or any(isinstance(part, ir.Reduce) or _is_part(part) for part in walk(clause.body))
        inlined.update({read.tensor} if found else ())
        return found

    scope = {step.coordinate: step for step in trail if isinstance(step, ir.Range)}
    whole = algebra.opened(algebra.form(expr, scope), opens)
    if len(whole.terms) != 1:
        return None
    number, term = whole.terms[0]
    for atom, power in term.factors:
        shares = _shares(algebra, atom, "relu") if power == 1 and isinstance(atom, Sum) else None
        if shares is None:
            continue
        for divisor, below in term.factors:
            found = _divided(algebra, trail, shares, divisor, opens) if below == -1 else None
            if found is not None:
                rest = [factor for factor in term.factors if factor[0] not in (atom, divisor)]
                outside = multiplied(found.outside, product(rest, term.exponent, term.conditions))
                return replace(found, outside=outside, number=number * found.number), frozenset(inlined)
    return None


def _is_part(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Map) and expr.op in ("relu", "abs", "max", "exp")


def _shares(algebra: Algebra, total: Sum, op: str) -> _Shares | None:
    """A sum of this function of such a difference; None where it is another."""
    if len(total.binders) != 1:
        return None
    (binder,), body = opened(total, algebra)
    if len(body.terms) != 1 or body.terms[0][1].exponent is not None:
        return None
    number, term = body.terms[0]
    for atom, power in term.factors:
        difference = _difference(_argument(atom, op), binder.coordinate) if power == 1 else None
        if difference is not None:
            above, below, held = difference
            rest = tuple(factor for factor in term.factors if factor[0] is not atom)
            return _Shares(binder, above, below, {**term.conditions, **held}, rest, number)
    return None


def _argument(atom: Atom, op: str) -> Form:
    """The argument of a function; of a maximum with 0, which is a `relu`, the other one."""
    match atom:
        case Function(name, (inner,)) if name == op:
            return inner
        case Function("max", (one, other)) if op == "relu" and ZERO.key in (one.key, other.key):
            return other if one.key == ZERO.key else one
        case _:
            return ZERO


def _difference(value: Form, key: Coordinate) -> tuple[Form, Form, Conditions] | None:
    """The `a` and `b` of `e^a - e^b`, of which the one varies with the key and the other does not, and the conditions
    under which it is not 0."""
    terms = list(_multiplied_out(value))
    if len(terms) != 2 or terms[0][1].conditions.keys() != terms[1][1].conditions.keys():
        return None
    found = [(number, _exponent(number, term)) for number, term in terms]
    (_, above), (sign, below) = sorted(found, key=lambda one: one[0] < 0)
    if above is None or below is None or found[0][0] * found[1][0] >= 0 or sign >= 0:
        return None
    if key not in above.coordinates or key in below.coordinates:
        return None
    return above, below, terms[0][1].conditions


def _multiplied_out(value: Form) -> Iterator[tuple[Number, Product]]:
    """The terms of a form, of which one that is a sum times something is several."""
    for number, term in value.terms:
        sums = [atom for atom, power in term.factors if power == 1 and isinstance(atom, Group)]
        if len(sums) != 1:
            yield number, term
            continue
        rest = [factor for factor in term.factors if factor[0] is not sums[0]]
        beside = product(rest, term.exponent, term.conditions, term.absent)
        yield from ((number * own, multiplied(beside, inner)) for own, inner in sums[0].form.terms)


def _exponent(number: Number, term: Product) -> Form | None:
    """The logarithm of a term that is an exponential times a number, whatever its sign."""
    result = ZERO if term.exponent is None else term.exponent
    for atom, power in term.factors:
        if not isinstance(atom, Function) or atom.op != "exp" or power not in (1, -1):
            return None
        result = plus(result, atom.arguments[0], power)
    size = magnitude(number)
    return result if size == 1 else plus(result, function("log", (constant(size),)))


def _divided(
    algebra: Algebra, trail: Trail, shares: _Shares, divisor: Atom, opens: Callable[[ir.Read], bool]
) -> Gathered | None:
    """Shares over the sum of all of them and more; None where they are divided by something else."""
    if not isinstance(divisor, Group):
        return None
    key = shares.binder.coordinate
    sums = [(number, term) for number, term in divisor.form.terms if _is_sum(term)]
    if len(sums) != 1:
        return None
    ((count, total),) = sums
    atom = total.factors[0][0]
    assert isinstance(atom, Sum)
    all_of = _shares(algebra, atom, "abs")
    sink = log_of(form((Fraction(own) / count, term) for own, term in divisor.form.terms if term is not total))
    if all_of is None or sink is None or all_of.factors or all_of.number != 1 or count <= 0:
        return None
    here = {all_of.binder.coordinate: build.coord(key, atom.binders[0].lower.span)}
    score = plus(shares.above, shares.below, -1)
    other = replaced(plus(all_of.above, all_of.below, -1), here, algebra)
    held = algebra.conditions_at(product((), None, all_of.conditions), here)
    bounds = [(text(b.lower), text(b.upper)) for b in (shares.binder, all_of.binder)]
    if score.key != other.key or held.keys() != shares.conditions.keys() or bounds[0] != bounds[1]:
        return None
    if shares.below.key != all_of.below.key or key in sink.coordinates:
        return None
    sink = plus(sink, shares.below, -1)
    sink, origin = _counted(algebra, sink, score, shares, opens)
    values = [factor for factor in shares.factors if key in factor[0].coordinates]
    rest = [factor for factor in shares.factors if factor not in values]
    binder, more = widened(algebra, shares.binder, values)
    guard = {**shares.conditions, **more}
    value = form(((1, product(values)),)) if values else ONE
    number = Fraction(shares.number) / count
    held = held_beside(algebra, trail, (binder,), binder, guard, form(((1, product(rest)),)))
    sink = under(sink, held_beside(algebra, trail, (binder,), binder, guard, sink), False)
    outside = product(rest, None, held)
    return Gathered(binder, score, guard, value, "zero", (), EMPTY, outside, number, (), sink, False, origin)


def _is_sum(term: Product) -> bool:
    """Whether a term is one sum and nothing else."""
    if len(term.factors) != 1 or term.exponent is not None or term.conditions:
        return False
    return term.factors[0][1] == 1 and isinstance(term.factors[0][0], Sum)


def _counted(
    algebra: Algebra, sink: Form, score: Form, shares: _Shares, opens: Callable[[ir.Read], bool]
) -> tuple[Form, Origin]:
    """A sink less the largest score of its row, or less that or 0, and which of them was in it."""
    for number, term in sink.terms:
        if number != 1 or len(term.factors) != 1 or term.exponent is not None or term.conditions:
            continue
        atom, power = term.factors[0]
        rest = form(other for other in sink.terms if other[1] is not term)
        inner = _argument(atom, "relu")
        highest = inner.terms[0][1].factors[0][0] if _is_atom(inner) else atom
        if power != 1 or not _is_highest(algebra, highest, score, shares, opens):
            continue
        return rest, "floor" if highest is not atom else "peak"
    return sink, "zero"


def _is_atom(value: Form) -> bool:
    """Whether a form is one factor."""
    if len(value.terms) != 1 or value.terms[0][0] != 1:
        return False
    term = value.terms[0][1]
    plain = len(term.factors) == 1 and term.factors[0][1] == 1
    return plain and term.exponent is None and not term.conditions


def _is_highest(algebra: Algebra, atom: Atom, score: Form, shares: _Shares, opens: Callable[[ir.Read], bool]) -> bool:
    """Whether a factor is the largest score of a row."""
    match atom:
        case Leaf(ir.Reduce("max", (key,), body, guard)):
            here: dict[Coordinate, ir.Expr] = {key.coordinate: build.coord(shares.binder.coordinate, body.span)}
            found = algebra.opened(replaced(algebra.plain(body), here, algebra), opens)
            held = {} if guard is None else algebra.conditions(guard)
            held = algebra.conditions_at(product((), None, held), here)
            if any(term.conditions for _, term in found.terms):
                held = {**held, **found.terms[0][1].conditions}
                found = form((n, product(t.factors, t.exponent)) for n, t in found.terms)
            binder = algebra.binder(key)
            same = [(text(b.lower), text(b.upper)) for b in (binder, shares.binder)]
            return found.key == score.key and held.keys() == shares.conditions.keys() and same[0] == same[1]
    return False
