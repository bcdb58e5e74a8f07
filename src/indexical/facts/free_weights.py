"""Weights that nothing normalises: a query is compared with keys, and values are summed under what comes of it.

`sum[f](relu(sum[m](x[i, m] * A[m, f])) * B[f, e])`, two layers of a network, has the same form. It is an attention only
where something says that the one hears the other: a guard or a distance between them, a space that they share, or a
contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Condition, Factor, Factored, Forms, Summed, factors_of, product_of, varying
from ..ir.types import Coordinate
from ..ir.walk import children, of_kinds, walk
from ..records import replace
from .attention import Comparison, Gather, Site, compare, sites, two_sided
from .weights import Weights

if TYPE_CHECKING:
    from .view import View


def free_gathers(view: View, lets: Iterable[ir.Let]) -> Iterator[Gather]:
    """The sums in definitions that gather under such weights; also those that sum weights alone, and gather nothing."""
    for let in lets:
        found = [
            gather
            for clause in let.clauses
            for part in of_kinds((clause.body,), ir.Reduce)
            if sums_one(part)
            for gather in _gather(view, let, clause, part)
        ]
        if found:
            normalised = [site for site in sites(view.forms, (let,)) if site.weights]
            known = {step.reduce.span for site in normalised for step in site.product.summed}
            yield from (gather for gather in found if gather.key.reduce.span not in known)


def sums_one(expr: ir.Reduce) -> bool:
    """Whether reals are summed over one coordinate."""
    return expr.op == "sum" and expr.type.kind == "real" and len(expr.ranges) == 1


def _gather(view: View, let: ir.Let, clause: ir.Clause, total: ir.Reduce) -> Iterator[Gather]:
    forms, key = view.forms, total.ranges[0].coordinate
    product = _product(total)
    data = _at(product, key)
    if len(data) == 1 and isinstance(data[0].expr, ir.Read) and (inner := forms.opened(data[0].expr)) is not None:
        body, guard = inner
        rest = tuple(factor for factor in product.factors if factor is not data[0])
        held = () if guard is None else (Condition(guard, False),)
        opened = replace(product, factors=(*rest, *factors_of(body)), conditions=(*product.conditions, *held))
        product = opened if len(_at(opened, key)) > 1 else product
        data = _at(product, key)
    weights = _weights(view, let, product, data, key)
    if weights is not None:
        yield Gather(Site(let, clause, total, product, (weights,)), weights, product.summed[0])


def _product(total: ir.Reduce) -> Factored:
    """A sum as it is written: a sum inside of it stays one factor."""
    guard = () if total.guard is None else (Condition(total.guard, True),)
    return Factored((Summed(total.ranges[0], total, True),), guard, tuple(factors_of(total.body)))


def _at(product: Factored, key: Coordinate) -> list[Factor]:
    return [factor for factor in product.factors if key in factor.coordinates]


def _weights(view: View, let: ir.Let, product: Factored, data: list[Factor], key: Coordinate) -> Weights | None:
    """The factors that are weights. What says so is asked first: to look for what is compared takes longer."""
    tried: set[frozenset[Coordinate]] = set()
    for factor in data:
        others = [other for other in data if other is not factor and not other.inverse] if len(data) > 1 else [None]
        for value in others:
            asks = factor.coordinates - {key} - (frozenset() if value is None else value.coordinates)
            if not asks or asks in tried or not _may_compare(factor):
                continue
            tried.add(asks)
            used = [f for f in data if f.coordinates & asks]
            if not _is_said(view, let, product, used, key, asks):
                continue
            compared = [c for f in used for c in _comparisons(view.forms, f.expr, key, asks) if c.compared]
            query = asks & (varying(f for c in compared for f in c.query_side) - {key})
            if query and _is_said(view, let, product, used, key, query):
                numbers = frozenset(n for n, f in enumerate(product.factors) if f in used)
                kept = tuple(c.expr for c in product.conditions if key in c.expr.type.coordinates)
                kept += tuple(g for f in used for g in _guards(view.forms, f.expr))
                raw = used[0].expr if compare(view.forms, used[0].expr, key, asks) else compared[0].expr
                return Weights(key, None, kept, numbers, factor.expr.span, True, True, None, False, raw, "free")
    return None


def _comparisons(forms: Forms, expr: ir.Expr, key: Coordinate, asks: frozenset[Coordinate]) -> list[Comparison]:
    """The comparisons in weights, also below a line: `1 / (1 + exp(-s))`; or beside what depends on both: a decay."""
    found = compare(forms, expr, key, asks)
    if found:
        return found
    while isinstance(expr, ir.Read) and (inner := forms.opened(expr)) is not None:
        expr = inner[0]
    closed = forms.expand(expr, (key, *asks), lambda read: False)
    apart = tuple(f for f in closed.factors if not _relates(f.coordinates, key, asks))
    beside = two_sided(replace(closed, factors=apart), key, asks, expr)
    if beside is not None:
        return [beside]
    return [c for f in closed.factors if f.inverse for c in compare(forms, f.expr, key, asks)]


def _may_compare(factor: Factor) -> bool:
    """Whether something in a factor is computed: what is only given compares nothing."""
    return not isinstance(factor.expr, ir.Const | ir.Coord)


def _guards(forms: Forms, expr: ir.Expr) -> Iterator[ir.Expr]:
    """The guards of the definitions that an expression reads on to."""
    while isinstance(expr, ir.Read) and (found := forms.opened(expr)) is not None:
        expr, guard = found
        if guard is not None:
            yield guard


# --------------------------------------------------------------- what says so


def _is_said(
    view: View,
    let: ir.Let,
    product: Factored,
    used: list[Factor],
    key: Coordinate,
    query: frozenset[Coordinate],
) -> bool:
    """Whether something says that the one hears the other."""
    # Of plain products `Q (K V)` and `(Q K) V` are the same: features that share a space are no query and key.
    shared = key.space is not None and any(key.space == asks.space for asks in query)
    if shared and any(_is_bent(view.forms, factor.expr, key, query, 0) for factor in used):
        return True
    step = product.summed[0].range
    if any(bound.type.coordinates & query for bound in (step.lower, step.upper)):
        return True
    guards = [c.expr for c in product.conditions]
    guards += [guard for factor in used for guard in _guards(view.forms, factor.expr)]
    if any(_relates(guard.type.coordinates, key, query) for guard in guards):
        return True
    if any(_is_placed(view.forms, factor.expr, key, query, 0) for factor in used):
        return True
    return _is_claimed(view, let, key, query)


def _is_bent(forms: Forms, expr: ir.Expr, key: Coordinate, query: frozenset[Coordinate], depth: int) -> bool:
    """Whether weights are a function of what is compared, and not the sum of products itself."""
    if not _relates(expr.type.coordinates, key, query) or depth > _DEEPEST:
        return False
    match expr:
        case ir.Read():
            found = forms.opened(expr)
            return found is not None and _is_bent(forms, found[0], key, query, depth + 1)
        case ir.Map("+" | "-" | "*" | "/" | "neg", arguments):
            return any(_is_bent(forms, part, key, query, depth) for part in arguments)
    return isinstance(expr, ir.Map | ir.Select)


def _relates(coordinates: frozenset[Coordinate], key: Coordinate, query: frozenset[Coordinate]) -> bool:
    return key in coordinates and bool(coordinates & query)


# Definitions are looked through so many deep.
_DEEPEST = 2


def _is_placed(forms: Forms, expr: ir.Expr, key: Coordinate, query: frozenset[Coordinate], depth: int) -> bool:
    """Whether weights depend on where query and key stand: on a distance, or on a condition on both."""
    coordinates = expr.type.coordinates
    if not _relates(coordinates, key, query) or depth > _DEEPEST:
        return False
    if expr.type.kind in ("whole", "bool"):
        return True
    if isinstance(expr, ir.Read):
        if any(_relates(index.type.coordinates, key, query) for index in expr.indices):
            return True
        found = forms.opened(expr)
        if found is None:
            return False
        body, guard = found
        if guard is not None and _relates(guard.type.coordinates, key, query):
            return True
        return _is_placed(forms, body, key, query, depth + 1)
    return any(_is_placed(forms, part, key, query, depth) for part in children(expr))


def _is_claimed(view: View, let: ir.Let, key: Coordinate, query: frozenset[Coordinate]) -> bool:
    """Whether a contract calls them query and key."""
    for contract in view.program.contracts:
        keys = {name for role, name in contract.roles if role == "key"}
        asking = {name for role, name in contract.roles if role == "query"}
        named = view.shown(key) in keys and any(view.shown(asks) in asking for asks in query)
        if named and let.name in view.made_of(contract.name):
            return True
    return False


# ------------------------------------------------------- what they are divided by


def is_shared_out(view: View, gather: Gather) -> bool:
    """Whether what such a gather brings is divided by what its weights sum to, in its own definition or in the next."""
    forms = view.forms
    for let in view.program.lets:
        for clause in let.clauses:
            scope = {range.coordinate: range for range in clause.ranges}
            for part in walk(clause.body):
                match part:
                    case ir.Map("/", (above, below)) if _is_result(view, let, gather, above):
                        divisor = forms.form(forms.written_out(below), scope)
                        if any(forms.is_same(divisor, forms.form(total, scope)) for total in _totals(view, gather)):
                            return True
    return False


def _is_result(view: View, let: ir.Let, gather: Gather, expr: ir.Expr) -> bool:
    """Whether an expression is the sum that gathers, in place or by its name, at the same coordinates."""
    if let is gather.site.let or not isinstance(expr, ir.Read):
        return expr is gather.site.expr
    return expr.tensor == gather.name and view.forms.opened(expr) == (gather.site.expr, None)


def _totals(view: View, gather: Gather) -> Iterator[ir.Expr]:
    """The sum of the weights, in each order in which it may be taken: first over what is compared, at once, or first
    over the keys."""
    total, product = gather.site.expr, gather.site.product
    assert isinstance(total, ir.Reduce)
    weights = [product.factors[n] for n in sorted(gather.weights.used)]
    keys, kept = total.ranges, total.guard
    whole = product_of(weights, total)
    yield build.reduce("sum", keys, whole, kept, "real", total.span)
    match view.forms.written_out(whole):
        case ir.Reduce("sum", inner, body, None):
            yield build.reduce("sum", (*keys, *inner), body, kept, "real", total.span)
            at_key = [factor for factor in factors_of(body) if gather.coordinate in factor.coordinates]
            others = [factor for factor in factors_of(body) if gather.coordinate not in factor.coordinates]
            if at_key and others:
                there = build.reduce("sum", keys, product_of(at_key, body), kept, "real", total.span)
                both = build.apply("*", (product_of(others, body), there), "real", total.span)
                yield build.reduce("sum", inner, both, None, "real", total.span)
