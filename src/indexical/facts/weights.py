"""Weights, in any spelling: factors of a product that sum to 1 over a coordinate, or to less beside a sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Literal, TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra import normal
from ..ir.algebra.canonical import text
from ..ir.algebra.factors import Factor, Factored, Forms
from ..ir.algebra.normal import Binder, Form, Sum, plus
from ..ir.algebra.powers import is_never_negative
from ..ir.algebra.predicates import is_exponential, is_root
from ..ir.algebra.weights import Total, log_of, matched, summand, totals
from ..ir.types import NOWHERE, Coordinate
from ..ir.walk import walk
from ..records import dataclass, replace
from ..source import Span
from .scores import Score, in_words, is_exponent, is_shifted, score_of

Ranges = Mapping[Coordinate, ir.Range]

# What the weights of a query sum to: 1; 1 with what is kept back for nobody; whatever a difference of such weights
# does; or anything.
Rows: TypeAlias = Literal["sum to 1", "at most 1", "signed", "free"]


@dataclass(frozen=True, slots=True)
class Weights:
    """Factors of a product that sum to 1 over `coordinate`, by softmax or by hand.

    `score` is what is exponentiated, without a shift, or None where that cannot be told. `kept` are the
    conditions on the points that take part; `used` are the numbers of the factors. Where they are not `exact`, they
    sum to something else that does not vary over it.
    """

    coordinate: Coordinate
    score: ir.Expr | None
    kept: tuple[ir.Expr, ...]
    used: frozenset[int]
    span: Span
    shifted: bool
    by_hand: bool
    normalizer: ir.Normalize | None
    exact: bool = True
    # The factor that is normalised, where nothing is exponentiated.
    raw: ir.Expr | None = None
    rows: Rows = "sum to 1"
    # The form that is added to the total, which no key has.
    sink: Form = normal.ZERO

    @property
    def basis(self) -> ir.Expr | None:
        """The expression in which who asks is compared with who answers."""
        return self.raw if self.score is None else self.score


def may_contain_weights(forms: Forms, name: str) -> bool:
    """Whether a definition could be weights, or a part of them: something is left in it that is exponentiated
    or divided by, and that its own sums do not use up."""
    if name not in forms.holding_weights:
        forms.holding_weights[name] = False
        clause = forms.clause(name)
        if clause is not None:
            product = forms.expand(clause.body, opens=lambda read: may_contain_weights(forms, read.tensor))
            found = find_weights(forms, product, clause.ranges)
            spent = {n for w in found if w.coordinate in product.bound for n in w.used}
            if spent:
                forms.gathering.add(name)
            left = [factor for number, factor in enumerate(product.factors) if number not in spent]
            forms.holding_weights[name] = any(_is_weight_like(forms, factor) for factor in left)
    return forms.holding_weights[name]


def _is_weight_like(forms: Forms, factor: Factor) -> bool:
    if factor.inverse:
        return bool(factor.coordinates)
    match factor.expr:
        case ir.Normalize("softmax"):
            return True
        case ir.Select(_, then, otherwise):
            return any(is_exponential(part) and isinstance(part, ir.Map) for part in (then, otherwise))
        case ir.Map(op):
            rooted = op == "**" or is_root(factor.expr)
            return is_exponential(factor.expr) or (rooted and _may_be_normalised(forms, factor))
        case _:
            return False


def _exponentiates(forms: Forms, expr: ir.Expr) -> tuple[bool, bool]:
    """Whether something is exponentiated in an expression, or in a definition that may be written out in it; and
    whether such a thing is summed there, or normalised."""
    parts = list(walk(expr))
    reads = [_of_definition(forms, part.tensor) for part in parts if isinstance(part, ir.Read)]
    exponential = any(map(is_exponential, parts)) or any(found for found, _ in reads)
    summed = any(isinstance(part, ir.Reduce) and part.op in ("sum", "mean") for part in parts)
    normalised = any(isinstance(part, ir.Normalize) and is_exponential(part) for part in parts)
    return exponential, normalised or (exponential and summed) or any(total for _, total in reads)


def _of_definition(forms: Forms, name: str) -> tuple[bool, bool]:
    """As `_exponentiates`, of a definition; neither where it gathers under weights."""
    if name not in forms.exponential:
        forms.exponential[name] = (False, False)
        clause = forms.clause(name)
        if clause is not None:
            may_contain_weights(forms, name)
            if name not in forms.gathering:
                forms.exponential[name] = _exponentiates(forms, clause.body)
    return forms.exponential[name]


def may_add_weights(forms: Forms, expr: ir.Expr) -> bool:
    """Whether an expression adds up several terms, in each of which there could be weights."""
    return is_addition(expr) and all(_exponentiates(forms, term)[1] for term in added(expr))


def is_addition(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Map) and expr.op in ("+", "-")


def added(expr: ir.Expr) -> list[ir.Expr]:
    """The terms of an addition; an expression that is none is its only term."""
    if isinstance(expr, ir.Map) and is_addition(expr):
        return [term for argument in expr.arguments for term in added(argument)]
    return [expr]


def _may_be_normalised(forms: Forms, factor: Factor) -> bool:
    """Whether the total of some weights could be in a factor: known without its normal form."""
    if factor.expr.type.kind != "real" or (isinstance(factor.expr, ir.Read) and not factor.inverse):
        return False
    return _exponentiates(forms, factor.expr)[1]


def _may_be_weights(forms: Forms, factor: Factor) -> bool:
    return isinstance(factor.expr, ir.Normalize) or _may_be_normalised(forms, factor)


def find_weights(forms: Forms, product: Factored, ranges: Iterable[ir.Range]) -> Iterator[Weights]:
    """The factors of a product that sum to 1 over some coordinate. `ranges` are those around the product."""
    if not any(factor.inverse or _may_be_weights(forms, factor) for factor in product.factors):
        return
    scope = {r.coordinate: r for r in (*ranges, *(step.range for step in product.summed))}
    softmaxes = {n: f.expr for n, f in enumerate(product.factors) if isinstance(f.expr, ir.Normalize) and not f.inverse}
    softmaxes = {number: expr for number, expr in softmaxes.items() if expr.op == "softmax"}
    divided = any(
        factor.coordinates and (factor.inverse or (n not in softmaxes and _may_be_normalised(forms, factor)))
        for n, factor in enumerate(product.factors)
    )
    covered: frozenset[int] = frozenset() if divided else frozenset(softmaxes)
    found = list(_exponentials(forms, product, scope, covered))
    done = frozenset().union(*(weights.used for weights in found))
    equal = list(_by_hand(forms, product, scope, done))
    found += [weights for weights in equal if not any(other.used >= weights.used for other in found)]
    # Weights that are divided again, by what a guard left of them, are the weights.
    made = [weights for weights in found if not any(other.used > weights.used for other in found)]
    covered = frozenset().union(*(weights.used for weights in made))
    for number, expr in softmaxes.items():
        if number not in covered:
            kept = () if expr.guard is None else (expr.guard,)
            yield Weights(expr.coordinate, expr.body, kept, frozenset((number,)), expr.span, True, False, expr)
    yield from made


# ------------------------------------------------------------------------ equal factors


def _by_hand(forms: Forms, product: Factored, scope: Ranges, done: frozenset[int]) -> Iterator[Weights]:
    """`f(j) / sum[k](f(k))`: whatever is divided by its own sum, by other divisors than those that are done; weights
    that are shared out again also by more than their sum, such as that and a small number."""
    again = any(isinstance(factor.expr, ir.Normalize) for factor in product.factors)
    taken = {c for factor in product.factors for c in factor.coordinates}
    for number, divisor in enumerate(product.factors):
        if number in done or not divisor.inverse or not (taken - divisor.coordinates):
            continue
        choices = [
            (coordinate, total, rows)
            for total, rows in _totals(forms, divisor.expr, scope)
            if rows == "sum to 1" or again
            for coordinate in sorted(taken - divisor.coordinates, key=str)
        ]
        for coordinate, total, rows in choices:
            found = _share(forms, product, divisor, total, coordinate, scope)
            if found is not None:
                used, kept = found
                parts = [_in_algebra(forms, product.factors[n], scope) for n in used]
                exponent = _exponent(part for part in parts if part is not None)
                weights = _described(forms, product, coordinate, used | {number}, divisor.expr.span, kept, exponent)
                yield replace(weights, exact=rows == "sum to 1", rows=rows)
                break


def _totals(forms: Forms, expr: ir.Expr, scope: Ranges) -> Iterator[tuple[Form, Rows]]:
    """The sums in normal form that a divisor is, or is no less than, and what the rows of weights then sum to. A name
    for one is written out."""
    expr = forms.written_out(expr)
    floor = isinstance(expr, ir.Map) and expr.op == "max"
    if isinstance(expr, ir.Map) and floor:
        summed = [inner for argument in expr.arguments if _reduces(inner := forms.written_out(argument))]
        if len(summed) != 1:
            return
        (expr,) = summed
    if expr.type.kind != "real" or not _reduces(expr):
        return
    value = forms.form(expr, scope)
    if value is None or not _sums(value):
        return
    yield value, _rows(value, normal.ZERO) if floor else "sum to 1"
    beside = [(number, term) for number, term in value.terms if not _has_sum(term)]
    if beside:
        kept = normal.form([(number, term) for number, term in value.terms if _has_sum(term)])
        yield kept, _rows(kept, normal.form(beside))


def _reduces(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.Reduce) for part in walk(expr))


def _has_sum(term: normal.Product) -> bool:
    return any(n == 1 and isinstance(atom, Sum) for atom, n in term.factors)


def _rows(total: Form, sink: Form) -> Rows:
    """The sums of rows that are divided by more than their total: less than 1 where nothing is negative."""
    parts = [atom for found in _sums(total) for atom, _ in found.body.factors]
    positive = all(number > 0 for number, _ in total.terms) and all(map(is_never_negative, parts))
    return "at most 1" if positive and (not sink.terms or log_of(sink) is not None) else "free"


def _sums(value: Form) -> list[Sum]:
    return [atom for _, term in value.terms for atom, n in term.factors if n == 1 and isinstance(atom, Sum)]


# Weights have so many factors at most where they are none of the exponential kind.
_MOST_FACTORS = 3


def _share(
    forms: Forms, product: Factored, divisor: Factor, total: Form, coordinate: Coordinate, scope: Ranges
) -> tuple[frozenset[int], list[ir.Expr]] | None:
    """The factors of a product that sum to a total over a coordinate, and the conditions under which they do."""
    (first, *_) = _sums(total)
    (over, *rest) = first.binders
    if rest or not _same_range(forms, over, scope.get(coordinate)):
        return None
    algebra = forms.algebra
    at_key = {over.coordinate: build.coord(coordinate, divisor.expr.span)}
    wanted = algebra.conditions_at(first.body, at_key)
    held = [(c.expr, algebra.conditions(c.expr)) for c in product.conditions]
    kept = [expr for expr, keys in held if keys.keys() <= wanted.keys()]
    if wanted.keys() - {key for _, keys in held for key in keys}:
        return None
    own = divisor.coordinates | {coordinate}
    candidates = [n for n, f in enumerate(product.factors) if f is not divisor and f.coordinates <= own]
    binder = Binder(coordinate, over.lower, over.upper, over.stated)
    for size in range(1, min(len(candidates), _MOST_FACTORS) + 1):
        for used in combinations(candidates, size):
            if forms.is_same(total, forms.total([product.factors[n] for n in used], wanted, binder, scope)):
                return frozenset(used), kept
    return None


# ------------------------------------------------------------------------- exponentials


def _exponentials(forms: Forms, product: Factored, scope: Ranges, covered: frozenset[int]) -> Iterator[Weights]:
    """The weights that are e to a score over the sum of what it is, whatever the words: `exp(log_softmax[j](s))`,
    `exp(s - log(sum[j](exp(s))))`, powers of 2."""
    factors = [(n, f) for n, f in enumerate(product.factors) if n not in covered]
    if not any(_may_be_normalised(forms, factor) for _, factor in factors):
        return
    parts = {n: part for n, f in factors if (part := _in_algebra(forms, f, scope)) is not None}
    held = {key for part in parts.values() for key in part.conditions}
    held |= {key for condition in product.conditions for key in forms.algebra.conditions(condition.expr)}
    for number, part in parts.items():
        for total in totals(part.factors):
            found = _over(forms, parts, number, total, scope, held)
            if found is not None:
                span = product.factors[number].expr.span
                held_here = [(c.expr, forms.algebra.conditions(c.expr).keys()) for c in product.conditions]
                own = [expr for expr, keys in held_here if keys <= found.kept.keys()]
                weights = _described(forms, product, found.coordinate, found.used, span, own, found.exponent)
                kept = _worded(forms, weights.kept, found.kept)
                exact = found.alone and found.rows == "sum to 1"
                yield replace(weights, kept=kept, exact=exact, rows=found.rows, sink=found.sink)
                break


def _in_algebra(forms: Forms, factor: Factor, scope: Ranges) -> normal.Product | None:
    """A factor in normal form that is exponential, a condition as a number, or 1; None for any other."""
    if factor.expr.type.kind != "real":
        return None
    value = forms.product_form((factor,), scope)
    if value is None or len(value.terms) != 1 or value.terms[0][0] < 0:
        return None
    number, part = value.terms[0]
    return part if part.exponential or (number == 1 and not part.factors) else None


@dataclass(frozen=True, slots=True)
class _Found:
    """The coordinate that weights are normalised over, the factors that they are made of, what holds of the points
    that take part, and what is exponentiated. They are `alone` where nothing else is among the factors."""

    coordinate: Coordinate
    used: frozenset[int]
    kept: Mapping[str, ir.Expr]
    exponent: Form
    alone: bool
    rows: Rows
    sink: Form


def _over(
    forms: Forms, parts: Mapping[int, normal.Product], number: int, total: Total, scope: Ranges, held: set[str]
) -> _Found | None:
    """The weights that a total makes of a factor, alone or together with the other exponentials."""
    if len(total.sum.binders) != 1:
        return None
    varying = {c for part in parts.values() if part.exponent is not None for c in part.exponent.coordinates}
    for coordinate in sorted(varying - total.atom.coordinates, key=str):
        if not _same_range(forms, total.sum.binders[0], scope.get(coordinate)):
            continue
        share = summand(forms.algebra, total.sum, coordinate)
        if isinstance(share, str) or not held >= share.conditions.keys():
            continue
        fitting = {n: p for n, p in parts.items() if p.exponential or p.conditions.keys() <= share.conditions.keys()}
        beside = {n for n, p in parts.items() if p.exponent is not None and coordinate in p.exponent.coordinates}
        every, some = frozenset(fitting), frozenset(beside | {number})
        for used, exactly in ((every, True), (some, False), (frozenset((number,)), False)):
            found = _made_of(forms, {n: parts[n] for n in used}, total, share, coordinate)
            if found is not None and (found.alone or not exactly):
                return found
    return None


def _made_of(
    forms: Forms, parts: Mapping[int, normal.Product], total: Total, share: normal.Product, coordinate: Coordinate
) -> _Found | None:
    """The weights over a coordinate that are all of these factors, where that is so."""
    whole = normal.EMPTY
    for part in parts.values():
        whole = normal.multiplied(whole, part)
    if whole.exponent is None or coordinate not in whole.exponent.coordinates:
        return None
    others = [(atom, n + 1 if atom.key == total.atom.key else n) for atom, n in whole.factors]
    others = [(atom, n) for atom, n in others if n]
    if any(coordinate in atom.coordinates for atom, _ in others):
        return None
    found = matched(forms.algebra, whole.exponent, share, coordinate, NOWHERE)
    if found is None:
        return None
    alone = not others and not plus(found[0], found[1], -1).terms
    rows: Rows = "sum to 1" if not total.sink.terms else "free" if log_of(total.sink) is None else "at most 1"
    return _Found(coordinate, frozenset(parts), share.conditions, whole.exponent, alone, rows, total.sink)


def _exponent(parts: Iterable[normal.Product]) -> Form | None:
    """The exponent of a product of these."""
    result: Form | None = None
    for part in parts:
        if part.exponent is not None:
            result = part.exponent if result is None else plus(result, part.exponent)
    return result


def _same_range(forms: Forms, over: Binder, around: ir.Range | None) -> bool:
    """Whether a total runs over the points of a range; two sizes that were never stated are one, or no call fits."""
    if around is None or not (around.stated or over.stated):
        return True
    lower, upper = (text(forms.algebra.whole(bound)) for bound in (around.lower, around.upper))
    return (lower, upper) == (text(over.lower), text(over.upper))


def _worded(forms: Forms, kept: tuple[ir.Expr, ...], conditions: Mapping[str, ir.Expr]) -> tuple[ir.Expr, ...]:
    """The conditions on the points that take part: as they are written where that is known, else in normal form."""
    said = {key for expr in kept for key in forms.algebra.conditions(expr)}
    return (*kept, *(condition for key, condition in conditions.items() if key not in said))


def _described(
    forms: Forms,
    product: Factored,
    coordinate: Coordinate,
    used: frozenset[int],
    span: Span,
    kept: list[ir.Expr],
    exponent: Form | None = None,
) -> Weights:
    """Weights that are made of these factors. The score is told from how they are written; or else it is what is
    exponentiated in normal form."""
    found: Score | None = None
    for number in sorted(used):
        factor = product.factors[number]
        if coordinate in factor.coordinates and not factor.inverse:
            found = score_of(forms, factor.expr, coordinate) or found
    if exponent is not None and (found is None or not is_exponent(forms, found.expr, exponent, coordinate)):
        found = Score(in_words(exponent, coordinate, span))
    if found is None:
        varying = [product.factors[n] for n in sorted(used) if coordinate in product.factors[n].coordinates]
        raw = next((factor.expr for factor in varying if not factor.inverse), None)
        return Weights(coordinate, None, tuple(kept), used, span, False, True, None, raw=raw)
    normalizer = found.normalizer
    guard = () if normalizer is None or normalizer.guard is None else (normalizer.guard,)
    shifted = normalizer is not None or all(
        is_shifted(forms, product.factors[n].expr, lambda name: _of_definition(forms, name)[0]) for n in used
    )
    return Weights(coordinate, found.expr, (*kept, *guard), used, span, shifted, True, normalizer)
