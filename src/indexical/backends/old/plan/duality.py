"""Causal products of two sides, read as a sum over all earlier positions or as a recurrence: one and the same.

`sum[j]((sum[d](Q[i, d] * K[j, d])) * decay(i, j) * V[j, e] where j <= i)` takes a step for every pair of positions.
Where the decay from j to i is a product over the steps between them, it is `sum[d](Q[i, d] * S[i, d, e])` with
`S[i, d, e] = decay * S[i - 1, d, e] + K[i, d] * V[i, e]`, and takes chunks of matrix products, linear in their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import Polynomial, of_atom, polynomial
from ....ir.affine import expression as whole_of
from ....ir.algebra.factors import added, multiplied
from ....ir.conditions import conjuncts_of
from ....ir.types import Coordinate
from ....ir.walk import substitute, walk
from ....plan.steps import Attention, Chunks
from ....records import dataclass, field
from ....source import Span
from .scores import factors_of_product as _factors
from .scores import terms_of_sum as _terms

# A factor of a product and whether it stands above the line; a term of a sum and whether it is added.
Signed = tuple[ir.Expr, bool]


class _Entangled(Exception):
    """Weights are no product of two sides and a decay: why, in words."""


@dataclass
class _Sides:
    """The two sides of weights as they are taken apart, and the exponents of their decay: whether each is inside of the
    products that are summed."""

    row: Coordinate
    key: Coordinate
    backward: bool
    guard: tuple[ir.Expr, ...]
    query: list[Signed] = field(default_factory=list)
    answer: list[Signed] = field(default_factory=list)
    exponents: list[tuple[ir.Expr, bool]] = field(default_factory=list)
    dots: list[ir.Reduce] = field(default_factory=list)
    times: list[ir.Expr] = field(default_factory=list)

    def add(self, factor: ir.Expr, above: bool) -> None:
        """A factor to the side that it varies with."""
        coordinates = factor.type.coordinates
        if self.key not in coordinates:
            self.query.append((factor, above))
        elif self.row not in coordinates:
            self.answer.append((factor, above))
        else:
            self._add_pair(factor, above)

    def _add_pair(self, factor: ir.Expr, above: bool) -> None:
        match factor:
            case ir.Map("exp", (exponent,)):
                self.exponents.append((exponent, above))
            case ir.Map("**", (base, exponent)) if not {self.row, self.key} & base.type.coordinates and above:
                steps = _steps(exponent, self.row, self.key)
                if steps is None or steps[1].terms or steps[0] != (-1 if self.backward else 1):
                    raise _Entangled("a factor of its weights is raised to more than the steps from key to query")
                self.times.append(base)
            case ir.Reduce("sum", _, body) if self._is_dot(factor, above):
                self.dots.append(factor)
                for part, upper in _factors(body):
                    self.add(part, upper)
            case _:
                raise _Entangled("a factor of its weights varies with query and key at once, and is no decay")

    def _is_dot(self, total: ir.Reduce, above: bool) -> bool:
        """Whether a sum is the first, and over all points of its own where the guard holds."""
        plain = above and not self.dots and not any(range.depends_on for range in total.ranges)
        return plain and all(condition in self.guard for condition in conjuncts_of(total.guard))


def chunks_of(attention: Attention) -> Chunks | str:
    """The chunks that an attention is computed by; or why it is not: its weights must be one product of a query and a
    key, times a decay."""
    key = attention.coordinate
    guard = _causal(attention)
    if guard is None:
        return f"its guard is no more and no less than `{key.name} <= i` nowhere"
    row, strict, backward = guard
    sides = _Sides(row, key, backward, attention.guard)
    try:
        for factor, above in _factors(attention.score):
            sides.add(factor, above)
        if not sides.dots:
            return "no query is compared with a key"
        decay = _decay(sides)
    except _Entangled as reason:
        return str(reason)
    span = attention.score.span
    query, answer = (
        _product([*side, *more], span) for side, more in zip((sides.query, sides.answer), decay.more, strict=True)
    )
    features = sides.dots[0].ranges
    return Chunks(
        row,
        attention.key,
        features,
        query,
        answer,
        attention.value,
        decay.rate,
        decay.levels,
        decay.times,
        strict,
        backward,
    )


def _causal(attention: Attention) -> tuple[Coordinate, bool, bool] | None:
    """The query of a guard that lets each hear what comes before it, up to itself: whether it does not hear itself, and
    whether it hears what comes after it instead. None for any other guard."""
    if len(attention.guard) != 1 or not build.is_number(attention.key.lower, 0):
        return None
    match attention.guard[0]:
        case ir.Map("<=" | "<" as op, (ir.Coord(left), ir.Coord(right))):
            if left == attention.coordinate:
                return right, op == "<", False
            if right == attention.coordinate:
                return left, op == "<", True
    return None


# ------------------------------------------------------------------------ decays


@dataclass(frozen=True, slots=True)
class _Decay:
    """e to `rate` for each step, e to the difference of `levels`, a factor `times` for each step; and factors that each
    side has besides."""

    rate: ir.Expr | None
    levels: ir.Expr | None
    times: ir.Expr | None
    more: tuple[list[Signed], list[Signed]]


def _decay(sides: _Sides) -> _Decay:
    """The exponents of weights as one decay: what the query has and the key takes away, at the same rate."""
    row, key, backward = sides.row, sides.key, sides.backward
    rates: list[Signed] = []
    asked: list[Signed] = []
    answered: list[Signed] = []
    for exponent, above in sides.exponents:
        for term, positive in _spread(exponent, above, row, key):
            coordinates = term.type.coordinates
            if row in coordinates and key in coordinates:
                rate, rises, rest = _rated(term, row, key)
                rates.append((rate, positive == (rises != backward)))
                asked += [(rest, positive)] if rest is not None else []
            else:
                (answered if key in coordinates else asked).append((term, positive))
    levels: list[Signed] = []
    place = {row: build.coord(key, sides.dots[0].span)}
    for term, positive in list(asked):
        if row not in term.type.coordinates:
            continue
        mirrored = _bag(substitute(term, place))
        opposite = next((one for one in answered if one[1] != positive and _bag(one[0]) == mirrored), None)
        if opposite is not None:
            answered.remove(opposite)
            asked.remove((term, positive))
            steps = _along(term, row)
            (levels if steps is None else rates).append(
                (term, positive) if steps is None else (steps, positive != backward)
            )
    if _tensors(asked, row) & _tensors(answered, key):
        raise _Entangled("what its queries decay by is not what its keys decay by")
    here = place if backward else {}
    level = _sum(levels)
    times = None if not sides.times else _product([(factor, True) for factor in sides.times], sides.dots[0].span)
    return _Decay(
        _sum(rates),
        None if level is None else substitute(level, here),
        times,
        (_raised(asked), _raised(answered)),
    )


def _spread(expr: ir.Expr, positive: bool, row: Coordinate, key: Coordinate) -> Iterator[Signed]:
    """The terms of an exponent. A product is multiplied out over a difference of what query and key have."""
    for term, sign in _terms(expr, positive):
        pairs = [
            f for f, above in _factors(term) if above and {row, key} <= f.type.coordinates and f.type.kind == "real"
        ]
        wide = next((f for f in pairs if isinstance(f, ir.Map) and f.op in ("+", "-")), None)
        if wide is None or wide is term:
            yield term, sign
            continue
        rest = [(f, above) for f, above in _factors(term) if f is not wide]
        for part, plus in _terms(wide, True):
            yield from _spread(_product([*rest, (part, True)], term.span), sign == plus, row, key)


def _steps(expr: ir.Expr, row: Coordinate, key: Coordinate) -> tuple[int, Polynomial] | None:
    """A whole number that is a multiple of the steps from key to query: the multiple, and what is left."""
    inner, sign = expr, 1
    while isinstance(inner, ir.Map) and inner.op == "neg":
        inner, sign = inner.arguments[0], -sign
    if inner.type.kind != "whole":
        return None
    value = polynomial(inner) if sign > 0 else -polynomial(inner)
    one = frozenset(((row, 1),))
    multiple = value.terms.get(one, 0)
    rest = value - Polynomial({m: multiple * f for m, f in (of_atom(row) - of_atom(key)).terms.items()})
    varies = {c for atom in rest.atoms for c in ((atom,) if isinstance(atom, Coordinate) else atom.type.coordinates)}
    return None if not multiple or {row, key} & varies else (multiple, rest)


def _rated(term: ir.Expr, row: Coordinate, key: Coordinate) -> tuple[ir.Expr, bool, ir.Expr | None]:
    """A term `rate * (i - j + n)` as its rate, whether it rises with i, and what `n` makes of it."""
    factors = list(_factors(term))
    pairs = [(f, above) for f, above in factors if {row, key} & f.type.coordinates]
    steps = _steps(pairs[0][0], row, key) if len(pairs) == 1 and pairs[0][1] else None
    if steps is None:
        raise _Entangled("an exponent of its weights varies with query and key at once, and is no decay")
    multiple, rest = steps
    others = [factor for factor in factors if factor is not pairs[0] and factor[0] is not pairs[0][0]]
    times = abs(multiple)
    rate = _product([*others, (build.whole(times, term.span), True)] if times != 1 else others, term.span)
    if not rest.terms:
        return rate, multiple > 0, None
    return rate, multiple > 0, _product([*others, (whole_of(rest, term.span), True)], term.span)


def _along(term: ir.Expr, row: Coordinate) -> ir.Expr | None:
    """The rate of a level that is a multiple of the position; None for any other."""
    factors = list(_factors(term))
    own = [(f, above) for f, above in factors if row in f.type.coordinates]
    if len(own) != 1 or not own[0][1] or not isinstance(own[0][0], ir.Coord):
        return None
    return _product([factor for factor in factors if factor[0] is not own[0][0]], term.span)


def _raised(terms: list[Signed]) -> list[Signed]:
    total = _sum(terms)
    return [] if total is None else [(build.apply("exp", (total,), "real", total.span), True)]


def _tensors(terms: Iterable[Signed], at: Coordinate) -> set[str]:
    """The tensors that are read at a coordinate."""
    parts = [part for term, _ in terms for part in walk(term)]
    return {part.tensor for part in parts if isinstance(part, ir.Read) and at in part.type.coordinates}


def _bag(term: ir.Expr) -> frozenset[tuple[ir.Expr, bool]]:
    return frozenset(_factors(term))


def _sum(terms: list[Signed]) -> ir.Expr | None:
    return added(sorted(terms, key=lambda pair: not pair[1]), terms[0][0].span) if terms else None


def _product(factors: list[Signed], span: Span) -> ir.Expr:
    return multiplied(factors, span) or build.whole(1, span)
