"""Attention, in any spelling: weights that are normalised over what a sum then gathers.

Deciding where to look (the score) and what arrives (the values) are two steps, and are kept apart here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Condition, Factor, Factored, Forms, Summed, varying
from ..ir.algebra.predicates import is_exponential, is_root
from ..ir.algebra.weights import carried
from ..ir.types import Coordinate
from ..ir.walk import children, walk
from ..records import dataclass, replace
from ..source import Span
from .weights import Weights, added, find_weights, is_addition, may_add_weights, may_contain_weights


@dataclass(frozen=True, slots=True)
class Site:
    """A product as it stands in a clause, written out as far as its weights need it. `beside` are other
    terms that are added under the same sum."""

    let: ir.Let
    clause: ir.Clause
    expr: ir.Expr
    product: Factored
    weights: tuple[Weights, ...]
    beside: tuple[ir.Expr, ...] = ()

    @property
    def survives(self) -> frozenset[Coordinate]:
        """The coordinates of the definition's own slots."""
        return build.varying(self.clause.slots)

    def spans(self, weights: Weights) -> set[Span]:
        """The places of the factors of the weights, and of their normaliser."""
        return {weights.span, *(self.product.factors[n].expr.span for n in weights.used)}

    def values(self, weights: Weights) -> list[Factor]:
        """The factors that are not part of the weights."""
        return [factor for n, factor in enumerate(self.product.factors) if n not in weights.used]


@dataclass(frozen=True, slots=True)
class Weighed:
    """The weights of a site, and what is done with them."""

    site: Site
    weights: Weights

    @property
    def name(self) -> str:
        return self.site.let.name

    @property
    def coordinate(self) -> Coordinate:
        """The key."""
        return self.weights.coordinate

    @property
    def span(self) -> Span:
        """The place of the normaliser."""
        return self.weights.span

    @property
    def values(self) -> list[Factor]:
        return self.site.values(self.weights)

    @property
    def weight_coordinates(self) -> frozenset[Coordinate]:
        return varying(self.site.product.factors[n] for n in self.weights.used) - {self.coordinate}


@dataclass(frozen=True, slots=True)
class Gather(Weighed):
    """A site whose weights are normalised over a coordinate that its own sum consumes."""

    key: Summed

    @property
    def span(self) -> Span:
        """The sum that gathers."""
        return self.key.reduce.span

    @property
    def asks(self) -> frozenset[Coordinate]:
        """The coordinates of the weights that do not come with the values: the query is among them."""
        links = self.site.product.bound - {self.coordinate}
        gathered = [f for f in self.values if self.coordinate in f.coordinates and reads_something(f)]
        for factor in gathered:
            here = factor.coordinates & links
            gathered += [f for f in self.values if f not in gathered and f.coordinates & here]
        return self.weight_coordinates.difference(*(carried(factor.expr, self.coordinate) for factor in gathered))


@dataclass(frozen=True, slots=True)
class Ungathered(Weighed):
    """A site that is weights, times numbers at most, with which nothing is gathered: query, key and what is compared
    are known all the same."""

    # The query is among these.
    asks: frozenset[Coordinate]
    # The definitions that are these weights, under further conditions or none.
    again: tuple[Site, ...] = ()

    @property
    def values(self) -> list[Factor]:
        return []


# --------------------------------------------------------------------- weights


def sites(forms: Forms, lets: Iterable[ir.Let] | None = None) -> Iterator[Site]:
    """Every product that stands in the text, or in these definitions, the largest first, then those inside its
    factors."""
    for let in forms.program.lets if lets is None else lets:
        for clause in let.clauses:
            waiting = [clause.body]
            if _is_root(clause.body):
                yield from _site(forms, let, clause, clause.body)
            while waiting:
                expr = waiting.pop()
                if (isinstance(expr, ir.Map) and expr.op in ("*", "/", "neg")) or isinstance(expr, ir.Reduce | ir.Read):
                    yield from _site(forms, let, clause, expr)
                    waiting += _inner(expr)
                else:
                    waiting += children(expr)


def _is_root(expr: ir.Expr) -> bool:
    """Whether a body that is no product may be weights as a whole."""
    match expr:
        case ir.Map("**"):
            return True
        case ir.Select(_, then, otherwise):
            return any(isinstance(side, ir.Const) and side.value == 0 for side in (then, otherwise))
        case _:
            return is_exponential(expr) or is_root(expr)


def _site(forms: Forms, let: ir.Let, clause: ir.Clause, expr: ir.Expr) -> Iterator[Site]:
    if expr.type.kind != "real" or (isinstance(expr, ir.Reduce) and expr.op != "sum"):
        return
    taken = [range.coordinate for range in clause.ranges]
    for term, beside in _terms(forms, expr):
        product = forms.expand(term, taken, lambda read: may_contain_weights(forms, read.tensor))
        if expr is clause.body and clause.guard is not None and not product.summed:
            product = Factored(conditions=(Condition(clause.guard, True),)).times(product)
        yield Site(let, clause, term, product, tuple(find_weights(forms, product, clause.ranges)), beside)


def _terms(forms: Forms, expr: ir.Expr) -> Iterator[tuple[ir.Expr, tuple[ir.Expr, ...]]]:
    """A sum of several terms as several sums, each with the terms beside it; also where the terms have a name."""
    terms = _apart(forms, expr)
    bodies = tuple(term.body if isinstance(term, ir.Reduce) else term for term in terms)
    for number, term in enumerate(terms):
        yield term, (*bodies[:number], *bodies[number + 1 :])


# So many terms are told apart at most.
_MOST_TERMS = 8


def _apart(forms: Forms, expr: ir.Expr) -> list[ir.Expr]:
    """A product as the terms that it adds up: of a sum, all of them; of a factor, where each may be weights."""
    found = _distributed(forms, expr)
    return found if len(found) <= _MOST_TERMS else [expr]


def _distributed(forms: Forms, expr: ir.Expr) -> list[ir.Expr]:
    match expr:
        case ir.Map("*" | "/" as op, (left, right), _, span) if expr.type.kind == "real":
            rights = _distributed(forms, right) if op == "*" else [right]
            lefts = _distributed(forms, left)
            if len(lefts) == len(rights) == 1:
                return [expr]
            return [build.apply(op, (one, other), "real", span) for one in lefts for other in rights]
        case ir.Map("neg", (inner,)):
            return [build.apply("neg", (term,), "real", expr.span) for term in _distributed(forms, inner)]
        case ir.Reduce("sum", ranges, body, guard):
            body = forms.written_out(body)
            whole = added(body) if is_addition(body) else [expr.body]
            terms = [term for one in whole for term in _distributed(forms, one)]
            if len(terms) == 1:
                return [expr]
            return [build.reduce("sum", ranges, term, guard, expr.type.kind, expr.span) for term in terms]
        case _:
            inner = forms.written_out(expr)
            if not may_add_weights(forms, inner):
                return [expr]
            return [term for one in added(inner) for term in _distributed(forms, one)]


def _inner(expr: ir.Expr) -> list[ir.Expr]:
    """The expressions inside the factors of a product, below the product itself."""
    match expr:
        case ir.Map("*" | "/" | "neg", arguments):
            return [inner for argument in arguments for inner in _inner(argument)]
        case ir.Reduce("sum", _, body, guard):
            return _inner(body) + ([] if guard is None else [guard])
        case _:
            return list(children(expr))


def gathers(forms: Forms, found: list[Site]) -> Iterator[Gather]:
    """The sites that gather: their own sum consumes what their weights are normalised over, and only one
    side of the scores varies with it."""
    for site in found:
        for weights in site.weights:
            for step in site.product.summed:
                if step.coordinate == weights.coordinate and step.local and not is_shared(forms, weights):
                    yield Gather(site, weights, step)


def ungathered(forms: Forms, found: list[Site], used: set[Span]) -> list[Ungathered]:
    """The definitions that are weights, of which nothing that gathers has `used` a part. Weights that are normalised
    again, or have a second name, are said once: by the last that is made of them, by the first name that is seen."""
    result: dict[Span, Ungathered] = {}
    for site in found:
        if site.expr is not site.clause.body or site.product.summed or len(site.weights) != 1:
            continue
        (weights,) = site.weights
        apart = [f for f in site.values(weights) if f.coordinates and as_condition(forms, f) is None]
        if apart or weights.coordinate not in site.survives or weights.span in used or is_shared(forms, weights):
            continue
        known = result.get(weights.span)
        again = (*(() if known is None else known.again), site)
        if known is None or (known.site.let.hidden and not site.let.hidden):
            known = Ungathered(site, weights, _who_asks(forms, site, weights))
        result[weights.span] = replace(known, again=again)
    inner = {span for each in result.values() for span in each.site.spans(each.weights) - {each.weights.span}}
    return [each for span, each in result.items() if span not in inner]


def _who_asks(forms: Forms, site: Site, weights: Weights) -> frozenset[Coordinate]:
    """The coordinates that the scores compare with the key. Inside of one side, such as in a projection of the keys,
    others may be compared with it too: the comparison that varies with most is the one of the scores."""
    others = site.expr.type.coordinates - {weights.coordinate}
    compared = {c: compare(forms, weights.basis, weights.coordinate, frozenset((c,))) for c in others}
    reach = {c: max(len(one.expr.type.coordinates & others) for one in found) for c, found in compared.items() if found}
    most = max(reach.values(), default=0)
    asks = frozenset(c for c, size in reach.items() if size == most)
    # What both sides vary with where another asks is a head, whichever of its factors it is asked for.
    shared = [varying(one.query_side) & varying(one.key_side) for c in asks for one in compared[c]]
    return asks.difference(*shared) or asks or others


def is_shared(forms: Forms, weights: Weights) -> bool:
    """Whether every side of the scores varies with what is normalised over: then it is a head, not a key."""
    expr = weights.basis
    while isinstance(expr, ir.Read):
        found = forms.opened(expr)
        expr = None if found is None else found[0]
    if expr is None:
        return False
    data = [factor for factor in forms.expand(expr, opens=lambda read: False).factors if _is_data(factor)]
    if len({factor.expr for factor in data}) == 1:
        # A square has one side, in which both may be: `u[i, j, d]` may be a difference.
        return False
    return len(data) > 1 and all(weights.coordinate in factor.coordinates for factor in data if not factor.inverse)


# --------------------------------------------------------------------- scores


@dataclass(frozen=True, slots=True)
class Comparison:
    """A product inside a score, one side of which varies with who asks and the other with who answers."""

    product: Factored
    query_side: tuple[Factor, ...]
    key_side: tuple[Factor, ...]
    expr: ir.Expr

    @property
    def compared(self) -> frozenset[Coordinate]:
        """The coordinates that are summed over both sides at once, or through a factor that joins them."""
        bound, mine, theirs = self.product.bound, varying(self.query_side), varying(self.key_side)
        return bound & mine & theirs | self.bridged

    @property
    def bridged(self) -> frozenset[Coordinate]:
        """The coordinates that a factor between the sides, such as `W` in `q[m] * W[m, n] * k[n]`, joins."""
        return self.between & self.product.bound & (varying(self.query_side) | varying(self.key_side))

    @property
    def between(self) -> frozenset[Coordinate]:
        """The coordinates of factors between the sides, but not of those that vary with who asks and who answers."""
        bound, mine, theirs = self.product.bound, varying(self.query_side), varying(self.key_side)
        return varying(
            factor
            for factor in self.product.factors
            if factor not in self.query_side and factor not in self.key_side
            if factor.coordinates & bound & mine and factor.coordinates & bound & theirs
            if not (factor.coordinates & (mine - theirs - bound) and factor.coordinates & (theirs - mine - bound))
        )


def compare(forms: Forms, score: ir.Expr | None, key: Coordinate, asks: frozenset[Coordinate]) -> list[Comparison]:
    """The places in a score where a query is compared with a key. Definitions are inlined only until both sides are in
    sight, so that `Q[i, d]` and `K[j, d]` stay what the reader wrote. Each part is looked at once: a definition may
    be read in many ways."""
    if score is None:
        return []
    asked = (score, score.span, key, asks, len(forms.gathering))
    if asked not in forms.compared:
        forms.compared[asked] = tuple(_compare(forms, score, key, asks))
    return list(forms.compared[asked])  # type: ignore[arg-type]


def _compare(forms: Forms, score: ir.Expr, key: Coordinate, asks: frozenset[Coordinate]) -> list[Comparison]:
    result = []
    waiting = [score]
    while waiting:
        expr = waiting.pop()
        if isinstance(expr, ir.Read):
            found = forms.opened(expr)
            waiting += [] if found is None else [found[0]]
            continue
        closed = forms.expand(expr, (key, *asks), lambda read: False)
        comparison = _level(forms, two_sided(closed, key, asks, expr), key, asks)
        data = [factor for factor in closed.factors if _is_data(factor) and not factor.inverse]
        if comparison is not None:
            result.append(comparison)
        elif len(closed.factors) == 1 and closed.factors[0].expr is expr:
            waiting += [child for child in children(expr) if key in child.type.coordinates]
        elif len(data) < 2 or not all(key in factor.coordinates for factor in data):
            # Where every side varies with it, it keeps them apart: it is no key, and nothing inside makes it one.
            result += _inside_factors(forms, closed, key, asks, expr)
    return result


def meet(forms: Forms, score: ir.Expr | None, key: Coordinate, asks: frozenset[Coordinate]) -> Iterator[Comparison]:
    """The sums in a score over features that a query and a key do not multiply, but add or subtract: additive scores,
    distances."""
    waiting: list[tuple[ir.Expr, tuple[Summed, ...]]] = [] if score is None else [(score, ())]
    seen = 0
    while waiting and seen < _MOST_PARTS:
        expr, summed = waiting.pop()
        seen += 1
        match expr:
            case ir.Read() if (found := forms.opened(expr)) is not None:
                waiting.append((found[0], summed))
            case ir.Reduce(_, ranges, body):
                waiting.append((body, (*summed, *(Summed(range, expr, True) for range in ranges))))
            case _:
                if is_addition(expr):
                    terms = [Factor(term) for term in added(expr)]
                    theirs = tuple(f for f in terms if key in f.coordinates and not asks & f.coordinates)
                    mine = tuple(f for f in terms if key not in f.coordinates and asks & f.coordinates)
                    met = Comparison(Factored(summed, (), (*mine, *theirs)), mine, theirs, expr)
                    if met.compared:
                        yield met
                        continue
                waiting += [(part, summed) for part in children(expr) if key in part.type.coordinates]


# So many parts of a score are looked at.
_MOST_PARTS = 200


def _inside_factors(
    forms: Forms, closed: Factored, key: Coordinate, asks: frozenset[Coordinate], expr: ir.Expr
) -> list[Comparison]:
    """The comparisons in the factors that vary with the key; or, where nothing is compared in them alone, in
    the product with these written out: a sum may stand outside of what it compares."""
    inner = [
        comparison
        for factor in closed.factors
        if key in factor.coordinates and not factor.inverse
        for comparison in compare(forms, factor.expr, key, asks)
    ]
    if any(comparison.compared for comparison in inner):
        return inner
    opened = forms.expand(
        expr, (key, *asks), lambda read: key in read.type.coordinates and bool(asks & read.type.coordinates)
    )
    found = _level(forms, two_sided(opened, key, asks, expr), key, asks)
    if found is not None:
        return [found]
    return _by_terms(forms, opened, key, asks, expr) or inner


def _by_terms(
    forms: Forms, product: Factored, key: Coordinate, asks: frozenset[Coordinate], expr: ir.Expr
) -> list[Comparison]:
    """The comparisons in the terms of a factor that adds up what varies with both: `q * (k * cos(t) + l * sin(t))`."""
    for number, factor in enumerate(product.factors):
        if is_addition(factor.expr) and not factor.inverse and key in factor.coordinates:
            others = (*product.factors[:number], *product.factors[number + 1 :])
            taken = (*product.bound, key, *asks)
            terms = [forms.expand(term, taken, lambda read: False) for term in added(factor.expr)]
            rest = replace(product, factors=others)
            found = [two_sided(rest.times(term), key, asks, expr) for term in terms]
            compared = [comparison for comparison in found if comparison is not None and comparison.compared]
            if compared:
                return compared
    return []


def _level(forms: Forms, found: Comparison | None, key: Coordinate, asks: frozenset[Coordinate]) -> Comparison | None:
    """A comparison with both sides written out, where one alone makes a factor of its own look like a bridge."""
    if found is None or not found.bridged:
        return found
    sides = [factor.expr for factor in (*found.query_side, *found.key_side)]
    if not any(isinstance(side, ir.Read) and forms.opened(side) is not None for side in sides):
        return found
    deeper = two_sided(forms.expand(found.expr, (key, *asks)), key, asks, found.expr)
    return deeper if deeper is not None and not deeper.bridged else found


def as_condition(forms: Forms, factor: Factor) -> ir.Expr | None:
    """The condition that a factor is, in place or by name: `(j <= i) as f64`, `if j <= i { 1 } else { 0 }`."""
    match forms.written_out(factor.expr):
        case ir.Map(op, (inner,)) if op.startswith("as ") and inner.type.kind == "bool" and not factor.inverse:
            return inner
        case ir.Select(condition, ir.Const(one), ir.Const(zero)) if one == 1 and zero == 0 and not factor.inverse:
            return condition
        case _:
            return None


def reads_something(factor: Factor) -> bool:
    return any(isinstance(part, ir.Read) for part in walk(factor.expr))


def _is_data(factor: Factor) -> bool:
    return isinstance(factor.expr, ir.Read) and bool(factor.expr.indices)


def two_sided(product: Factored, key: Coordinate, asks: frozenset[Coordinate], expr: ir.Expr) -> Comparison | None:
    """A product in which some factors vary with the key and others with who asks, none with both; or one in which some
    do, such as the cosine of a distance, beside others that share a feature without them."""
    plain = [factor for factor in product.factors if not factor.inverse]
    found = _apart_by_side(product, plain, key, asks, expr)
    pairs = [factor for factor in plain if key in factor.coordinates and asks & factor.coordinates]
    if found is not None or not pairs:
        return found
    beside = _apart_by_side(product, [f for f in plain if f not in pairs], key, asks, expr)
    return beside if beside is not None and beside.compared else None


def _apart_by_side(
    product: Factored, plain: list[Factor], key: Coordinate, asks: frozenset[Coordinate], expr: ir.Expr
) -> Comparison | None:
    key_side = [factor for factor in plain if key in factor.coordinates]
    query_side = [factor for factor in plain if key not in factor.coordinates and asks & factor.coordinates]
    if not asks and key_side:
        links = varying(key_side) & product.bound
        query_side = [factor for factor in plain if key not in factor.coordinates and factor.coordinates & links]
    mine, theirs = varying(query_side), varying(key_side)
    if not query_side or not key_side or (theirs & asks) - mine or (asks and not (mine - theirs) & asks):
        return None
    return Comparison(product, *_connected(product, query_side, key_side), expr)


def _connected(
    product: Factored, query_side: list[Factor], key_side: list[Factor]
) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
    """Both sides with the factors that hang on them by a summed coordinate of their own, such as the
    projection in `sum[m](x[j, m] * W[m, d])`."""
    sides = (list(query_side), list(key_side))
    free = [f for f in product.factors if f not in query_side and f not in key_side and f.coordinates & product.bound]
    while free:
        reach = [varying(side) & product.bound for side in sides]
        joining = [
            [f for f in free if f.coordinates & mine and not f.coordinates & other]
            for mine, other in (reach, reversed(reach))
        ]
        if not any(joining):
            break
        for side, factors in zip(sides, joining, strict=True):
            side += factors
            free = [factor for factor in free if factor not in factors]
    return tuple(sides[0]), tuple(sides[1])
