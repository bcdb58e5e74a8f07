"""Attentions whose weights nothing normalises, each as a definition of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction

from ....facts.attention import Gather
from ....ir import build
from ....ir import nodes as ir
from ....ir.algebra.canonical import text
from ....ir.algebra.contents import Contents
from ....ir.algebra.factors import Factor, product_of
from ....ir.algebra.normal import (
    EMPTY,
    ONE,
    Atom,
    Form,
    Function,
    Group,
    Leaf,
    Number,
    Product,
    Sum,
    TooLarge,
    form,
    function,
    multiplied,
    product,
    times,
)
from ....ir.algebra.normalize import Algebra
from ....ir.algebra.predicates import holds_exponential
from ....ir.algebra.sums import opened
from ....ir.algebra.writing import named, written
from ....ir.context import Trail, visit_clause
from ....ir.types import Coordinate
from ....ir.walk import reads_of, walk
from ....plan.steps import Attention
from ....records import dataclass
from .duality import chunks_of
from .placement import Placement, place_attention
from .weights import Gathered, has_keys, held_beside, widened


@dataclass(frozen=True, slots=True)
class Freed:
    """A sum as it stands in a definition, the definitions that compute it, and what replaces it. `inlined` are the
    definitions that its weights are made of, none of which it needs."""

    total: ir.Expr
    placements: tuple[Placement, ...]
    instead: ir.Expr
    inlined: frozenset[str]


def free_attention(algebra: Algebra, gather: Gather, names: Iterator[str]) -> Freed | str | None:
    """The sum of a gather under weights that nothing normalises; why not, or None where there is nothing to say. What
    weights are multiplied with or divided by for all keys alike, such as a sum of others, stands outside."""
    site, key, query = gather.site, gather.coordinate, gather.asks
    total = site.expr
    assert isinstance(total, ir.Reduce)
    trail = next((trail for expr, trail in visit_clause(site.clause) if expr is total), None)
    if trail is None:
        return None  # A sum of another definition, which was written out in this one.
    weights = [site.product.factors[n] for n in sorted(gather.weights.used)]
    values = [f for f in gather.values if key in f.coordinates]
    rest = [f for f in gather.values if key not in f.coordinates]
    algebra.work = algebra.depth = 0
    inlined = frozenset(_opened(algebra, weights, key, query))
    try:
        found = _described(algebra, gather, total, trail, weights, values, inlined)
    except TooLarge:
        return "what its weights are made of grows too large when it is written out"
    if found is None:
        return None
    if any(holds_exponential(atom) for atom, _ in found.outside.factors):
        return "a sum of exponentials outside of it might overflow where what is written does not"
    placements: list[Placement] = []

    def place(one: Gathered) -> ir.Read | str:
        placed = place_attention(algebra, one, next(names), site.let, site.clause, trail, total.span)
        if isinstance(placed, str):
            return placed
        placements.append(placed)
        return placed.read

    read = place(found)
    outside = _outside(algebra, found.outside, query, place)
    if isinstance(read, str) or isinstance(outside, str):
        return read if isinstance(read, str) else str(outside)
    read_again = any(part.tensor in inlined for placed in placements for part in reads_of(placed.let))
    if read_again or any(_compares_others(placed.attention) for placed in placements):
        return "the weight of a key is made of the scores of others, which are built"
    factors = [Factor(read), *rest]
    taken = [step.coordinate.name for step in trail if isinstance(step, ir.Range)]
    if found.outside is not EMPTY:
        factors.append(Factor(named(written(outside, total.span), taken)))
    instead = product_of(factors, total)
    beside = times(outside, algebra.plain(product_of(rest, total))) if rest else outside
    held = [*held_beside(algebra, trail, (found.key,), found.key, found.guard, beside).values()]
    if any(power < 0 and isinstance(atom, Sum) for atom, power in found.outside.factors):
        held.append(has_keys(total.ranges[0]))  # A sum over no keys is 0, whatever each is divided by.
    condition = build.conjunction(held)
    if condition is not None:
        instead = build.select(named(condition, taken), instead, build.real(Fraction(0), total.span), total.span)
    return Freed(total, tuple(placements), instead, inlined)


def _compares_others(attention: Attention) -> bool:
    """Whether the weight of a key is made of something that is compared with the query at all other keys, too."""
    score, key = attention.score, attention.key
    asks = score.type.coordinates - {key.coordinate}
    return any(
        text(r.upper) == text(key.upper) and part.body.type.coordinates & asks
        for part in walk(score)
        if isinstance(part, ir.Reduce)
        for r in part.ranges
    )


def _outside(
    algebra: Algebra, term: Product, query: frozenset[Coordinate], place: Callable[[Gathered], ir.Read | str]
) -> Form | str:
    """A product of what does not vary with the key; sums of weights in it are attentions, too, that carry nothing."""
    factors: list[tuple[Atom, Number]] = []
    for atom, power in term.factors:
        if not isinstance(atom, Sum) or len(atom.binders) != 1 or not atom.coordinates & query:
            factors.append((atom, power))
            continue
        (binder,), body = opened(atom, algebra)
        number, inner = body.terms[0]
        weights = form(((number, product(inner.factors, inner.exponent)),))
        read = place(Gathered(binder, weights, inner.conditions, ONE, "zero", (), EMPTY, EMPTY, 1, (), None, True))
        if isinstance(read, str):
            return read
        factors.append((Leaf(read, f"1{text(read)}", read.type.coordinates, 0), power))
    return form(((1, product(factors, term.exponent, term.conditions)),))


def _described(
    algebra: Algebra,
    gather: Gather,
    total: ir.Reduce,
    trail: Trail,
    weights: list[Factor],
    values: list[Factor],
    inlined: frozenset[str],
) -> Gathered | None:
    """The gather of weights that nothing normalises; None where they are separable, and matrix products are better."""
    key = gather.coordinate
    scope = {step.coordinate: step for step in (*trail, *total.ranges) if isinstance(step, ir.Range)}
    whole = algebra.form(product_of(weights, total), scope)
    whole = _stable(algebra.opened(whole, lambda read: read.tensor in inlined))
    held = [condition.expr for condition in gather.site.product.conditions]
    guard = {k: c for expr in held for k, c in algebra.conditions(expr).items()}
    every = [term.conditions for _, term in whole.terms]
    guard |= {k: c for k, c in every[0].items() if all(k in held for held in every)}
    whole = form((number, _less(term, guard)) for number, term in whole.terms)
    outside = EMPTY
    if len(whole.terms) == 1:
        number, term = whole.terms[0]
        apart = [factor for factor in term.factors if key not in factor[0].coordinates and factor[0].coordinates]
        outside = product(apart) if apart else EMPTY
        left = [factor for factor in term.factors if factor not in apart]
        whole = form(((number, product(left, term.exponent, term.conditions)),))
    if not guard and _is_separable(whole):
        return None
    value = algebra.plain(product_of(values, total)) if values else ONE
    binder, bounds = widened(algebra, algebra.binder(total.ranges[0]), [f for _, t in value.terms for f in t.factors])
    guard |= bounds
    return Gathered(binder, whole, guard, value, "zero", (), EMPTY, outside, 1, (), None, True)


def _less(term: Product, guard: Mapping[str, ir.Expr]) -> Product:
    """A term where a guard holds."""
    left = {k: c for k, c in term.conditions.items() if k not in guard}
    return product(term.factors, term.exponent, left)


# Weights are made of no more definitions than these: a deep network is not looked through to its first layer.
_MOST_OPENED = 5


def _asks(read: ir.Read, query: frozenset[Coordinate]) -> bool:
    return bool(read.type.coordinates & query)


def _opened(
    algebra: Algebra, weights: Iterable[Factor], key: Coordinate, query: frozenset[Coordinate]
) -> Iterator[str]:
    """The definitions with a point for every query and key that the weights are made of, the nearest ones."""
    waiting = [factor.expr for factor in weights]
    seen: set[ir.Expr] = set()
    while waiting and len(seen) < _MOST_OPENED:
        for part in walk(waiting.pop(0)):
            if isinstance(part, ir.Read) and part not in seen and key in part.type.coordinates and _asks(part, query):
                seen.add(part)
                found = algebra.canonical.opened(part)
                if found is not None:
                    yield part.tensor
                    waiting.append(found[0])


def _is_separable(value: Form) -> bool:
    """Whether weights are products of both sides, and none of these to a power: then values may be summed with the keys
    first."""
    atoms = [factor for _, term in value.terms for factor in term.factors if len(factor[0].coordinates) > 1]
    plain = all(term.exponent is None and not term.conditions for _, term in value.terms)
    return plain and not any(isinstance(atom, Function | Group) or power > 1 for atom, power in atoms)


# ------------------------------------------------------------- causal products


def causal_product(
    algebra: Algebra,
    let: ir.Let,
    clause: ir.Clause,
    total: ir.Reduce,
    trail: Trail,
    name: Callable[[], str],
    comparing: AbstractSet[str],
) -> Freed | None:
    """A sum over all that comes before, under weights that are a product of two sides and a decay; None for others.
    Something must compare query and key, in the sum or in a definition that does (`comparing`): this is known without
    normal forms."""
    held = _conditions(walk(total.body), total.guard)
    if not held and not comparing:
        return None
    for key in total.ranges:
        body = None if key.depends_on else _summed_to(total, key)
        if body is None:
            continue
        forms: dict[frozenset[str], Form | None] = {}
        for row in sorted(total.type.coordinates):
            pair = {key.coordinate, row}
            inlined = frozenset(_opened(algebra, [Factor(total.body)], key.coordinate, frozenset((row,))))
            if inlined & comparing or any(pair <= condition.type.coordinates for condition in held):
                if inlined not in forms:
                    forms[inlined] = _normal(algebra, body, (*trail, *total.ranges), inlined)
                found = _causal(algebra, let, clause, total, trail, key, row, inlined, forms[inlined], name)
                if found is not None:
                    return found
    return None


def compares_own(let: ir.Let, contents: Contents) -> bool:
    """Whether a condition in a definition is one on two of its own coordinates."""
    clause = let.clauses[0]
    own = {range.coordinate for range in clause.ranges}
    parts = contents.operations(let) if len(let.clauses) == 1 else walk(clause.body)
    return any(len(held.type.coordinates & own) > 1 for held in _conditions(parts, clause.guard))


def has_conditions(parts: Iterable[ir.Expr]) -> bool:
    """Whether one of these is a choice, or a sum under a guard."""
    return bool(_conditions(parts, None))


def _conditions(parts: Iterable[ir.Expr], guard: ir.Expr | None) -> list[ir.Expr]:
    held = [] if guard is None else [guard]
    for part in parts:
        if isinstance(part, ir.Select):
            held.append(part.condition)
        elif isinstance(part, ir.Reduce) and part.guard is not None:
            held.append(part.guard)
    return held


def _summed_to(total: ir.Reduce, key: ir.Range) -> ir.Expr | None:
    """What is summed over a key, the sum over all others done; None where a guard is in the way."""
    others = tuple(step for step in total.ranges if step is not key)
    if not others:
        return total.body
    if total.guard is not None and total.guard.type.coordinates & {step.coordinate for step in others}:
        return None
    return build.reduce("sum", others, total.body, None, "real", total.span)


def _normal(algebra: Algebra, body: ir.Expr, trail: Trail, inlined: frozenset[str]) -> Form | None:
    """An expression with some definitions written out in it; None where it grows too large."""
    scope = {step.coordinate: step for step in trail if isinstance(step, ir.Range)}
    algebra.work = algebra.depth = 0
    try:
        return algebra.opened(algebra.form(body, scope), lambda read: read.tensor in inlined)
    except TooLarge:
        return None


def _causal(
    algebra: Algebra,
    let: ir.Let,
    clause: ir.Clause,
    total: ir.Reduce,
    trail: Trail,
    key: ir.Range,
    row: Coordinate,
    inlined: frozenset[str],
    whole: Form | None,
    name: Callable[[], str],
) -> Freed | None:
    """The sum over earlier keys as chunks of matrix products; None where it is none."""
    if whole is None or len(whole.terms) != 1:
        return None
    number, term = whole.terms[0]
    try:
        guard = {**({} if total.guard is None else algebra.conditions(total.guard)), **term.conditions}
        pair = {row, key.coordinate}
        weights = [f for f in term.factors if pair <= f[0].coordinates or not f[0].coordinates]
        values = [f for f in term.factors if key.coordinate in f[0].coordinates and f not in weights]
        apart = [f for f in term.factors if key.coordinate not in f[0].coordinates and f not in weights]
        outside = product(apart)
        if not any(isinstance(atom, Sum) for atom, _ in weights):
            return None
        score, value = form(((number, product(weights, term.exponent)),)), form(((1, product(values)),))
        found = Gathered(algebra.binder(key), score, guard, value, "zero", (), EMPTY, outside, 1, (), None, True)
        placed = place_attention(algebra, found, name(), let, clause, trail, total.span)
    except TooLarge:
        return None
    chunks = placed if isinstance(placed, str) else chunks_of(placed.attention)
    if isinstance(placed, str) or isinstance(chunks, str) or chunks.row != row:
        return None
    if any(part.tensor in inlined for part in reads_of(placed.let)):
        return None
    factors = [Factor(placed.read)]
    if outside.factors:
        taken = [step.coordinate.name for step in trail if isinstance(step, ir.Range)]
        factors.append(Factor(named(written(form(((1, outside),)), total.span), taken)))
    return Freed(total, (placed,), product_of(factors, total), inlined)


# ------------------------------------------------------------------- sigmoids


def _stable(value: Form) -> Form:
    """A form in which one over `1 + e^x` is a sigmoid, whatever way it is written: nothing overflows in that."""
    result: list[tuple[Number, Product]] = []
    for number, term in value.terms:
        result += [(number * own, found) for own, found in _stable_term(term).terms]
    return form(result)


def _stable_term(term: Product) -> Form:
    for atom, power in term.factors:
        exponent = _logistic(atom) if power == -1 and isinstance(atom, Group) else None
        if exponent is None:
            continue
        rest = product([f for f in term.factors if f[0] is not atom], term.exponent, term.conditions, term.absent)
        above = multiplied(rest, product((), times(form(((-1, EMPTY),)), exponent)))
        if rest.exponent is not None and above.exponent is None:
            return _stable(times(form(((1, above),)), function("sigmoid", (exponent,))))
        opposite = times(form(((-1, EMPTY),)), exponent)
        return _stable(times(form(((1, rest),)), function("sigmoid", (opposite,))))
    return form(((1, term),))


def _logistic(atom: Group) -> Form | None:
    """The `x` of a factor `1 + e^x`; None for any other."""
    terms = atom.form.terms
    if len(terms) != 2 or any(number != 1 or term.factors or term.conditions for number, term in terms):
        return None
    exponents = [term.exponent for _, term in terms if term.exponent is not None]
    return exponents[0] if len(exponents) == 1 else None
