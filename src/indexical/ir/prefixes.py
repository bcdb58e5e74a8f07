"""Prefixes: reductions over all points up to one, or from one on, which a running total has for all of them at once.

`sum[k](x[k] where k <= i)` is the running sum of `x` at `i`; `max`, `prod`, `any` and `all` are alike. With a factor
that only counts the steps between the two, `g ** (i - k)`, it is the recurrence that multiplies by `g` in every step;
with the product of what stands between them, `prod[m](g[m] where k < m && m <= i)`, by `g` at that step.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ..records import dataclass
from . import build
from . import nodes as ir
from .affine import Constants, Polynomial, expression, number, of_atom, polynomial
from .algebra.factors import Factor, factors_of, product_of
from .algebra.predicates import BASES
from .conditions import conjuncts_of
from .elimination import in_range
from .prove import inequalities
from .types import Coordinate
from .walk import substitute, walk

RUNNING = ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin")


@dataclass(frozen=True, slots=True)
class Order:
    """`key <= query + shift`; where it is not `forward`, `key >= query + shift`."""

    key: Coordinate
    query: Coordinate
    shift: Polynomial
    forward: bool


@dataclass(frozen=True, slots=True)
class Decay:
    """`base ** (distance * rate)`, or with a base of None the exponential `op` of the product; the distance counts
    `speed` for every step from the key to the query, and `extra`."""

    op: str
    base: ir.Expr | None
    rate: ir.Expr | None
    speed: int
    extra: Polynomial

    def at(self, distance: Polynomial, like: ir.Expr) -> ir.Expr:
        """The factor at a distance."""
        exponent = expression(distance, like.span)
        if self.rate is not None:
            exponent = build.apply("*", (exponent, self.rate), "real", like.span)
        if self.base is None:
            return build.apply(self.op, (exponent,), "real", like.span)
        if distance == number(1) and self.rate is None:
            return self.base
        return build.apply("**", (self.base, exponent), "real", like.span)


@dataclass(frozen=True, slots=True)
class Steps:
    """The product of `body` at the points between a key and a query, where `guard` holds: the step to a key multiplies
    by the one that is `ahead` of it. Its points are those of the keys, unless it is only `between` them."""

    point: Coordinate
    body: ir.Expr
    guard: ir.Expr | None
    ahead: int
    between: bool

    def at(self, key: ir.Expr) -> ir.Expr:
        """The factor of the step to a key."""
        place = expression(polynomial(key) + self.ahead, key.span)
        body = substitute(self.body, {self.point: place})
        if self.guard is None:
            return body
        guard = substitute(self.guard, {self.point: place})
        return build.select(guard, body, build.real(Fraction(1), key.span), key.span)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The running reduction of `body` in this order, times `fixed` factors that do not vary with the key. Only points
    at which the `others` hold take part, and these do not vary with the query either. Queries at which the `asked`
    do not hold, which vary with them alone, have no points."""

    order: Order
    body: ir.Expr
    others: tuple[ir.Expr, ...]
    asked: tuple[ir.Expr, ...]
    fixed: tuple[Factor, ...]
    decay: Decay | Steps | None


def find(
    expr: ir.Reduce, facts: Iterable[ir.Expr], queries: Iterable[Coordinate], constants: Constants
) -> Prefix | None:
    """The prefix that a reduction over one coordinate is, where these facts say which of its points take part; None
    where it is none."""
    key, queries = expr.ranges[0].coordinate, frozenset(queries)
    if expr.ranges[0].depends_on and is_normalised(expr, key):
        return None  # It runs over the points of the reduction, which are others for each query.
    facts = list(facts)
    orders = [(order_of(fact, key, queries, constants), fact) for fact in facts]
    # What is compared with one coordinate may be bounded by another, too: `j < k < i`.
    found = [
        (order, [other for other in facts if other is not fact])
        for order, fact in orders
        if order is not None
        and not any({key, order.query} <= other.type.coordinates for other in facts if other is not fact)
    ]
    found.sort(key=lambda one: one[0].query in expr.body.type.coordinates)
    if not found:
        return None
    order = found[0][0]
    others = tuple(other for other in found[0][1] if order.query not in other.type.coordinates)
    asked = tuple(other for other in found[0][1] if order.query in other.type.coordinates)
    if order.query not in expr.body.type.coordinates:
        return Prefix(order, expr.body, others, asked, (), None)
    if expr.op not in ("sum", "mean") or expr.type.kind != "real":
        return None
    factors = factors_of(expr.body)
    fixed = tuple(factor for factor in factors if key not in factor.coordinates)
    plain = [factor for factor in factors if key in factor.coordinates and order.query not in factor.coordinates]
    mixed = [factor for factor in factors if {key, order.query} <= factor.coordinates]
    decay: Decay | Steps | None = None
    if len(mixed) == 1 and not mixed[0].inverse:
        decay = _decay(mixed[0], order, constants) or _steps(mixed[0].expr, expr.ranges[0], order, constants)
    if mixed and decay is None:
        return None
    body = product_of(plain, expr.body) if plain else build.whole(1, expr.body.span)
    return Prefix(order, body, others, asked, fixed, decay)


def is_normalised(expr: ir.Reduce, coordinate: Coordinate) -> bool:
    """Whether a body or a guard has something that is normalised over a coordinate of its reduction."""
    parts = (part for inner in (expr.body, expr.guard) if inner is not None for part in walk(inner))
    return any(isinstance(part, ir.Normalize) and part.coordinate == coordinate for part in parts)


def order_of(fact: ir.Expr, key: Coordinate, queries: frozenset[Coordinate], constants: Constants) -> Order | None:
    """The order that a fact is, of a key and one of these coordinates; None for any other."""
    rows = inequalities(fact, constants)
    if rows is None or len(rows) != 1:
        return None
    row = rows[0]
    pair = _difference(row, key)
    if pair is None or pair[0] not in queries or pair[1] not in (1, -1):
        return None
    query, slope, rest = pair
    return Order(key, query, rest if slope < 0 else -rest, slope < 0)


def _difference(value: Polynomial, key: Coordinate) -> tuple[Coordinate, int, Polynomial] | None:
    """The other coordinate, the slope and the rest in `slope * (key - other) + rest`."""
    slope = value.terms.get(frozenset(((key, 1),)), 0)
    opposite = [next(iter(m))[0] for m, f in value.terms.items() if slope and f == -slope and len(m) == 1]
    for other in opposite:
        if not isinstance(other, Coordinate):
            continue
        rest = value.plus(of_atom(key) - of_atom(other), -slope)
        if not any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in rest.atoms):
            return other, slope, rest
    return None


def _decay(factor: Factor, order: Order, constants: Constants) -> Decay | None:
    """The decay that a factor is, in any number of steps; None for anything else."""
    base: ir.Expr | None
    match factor.expr:
        case ir.Map("**" as op, (power, exponent)):
            base = power
        case ir.Map(op, (exponent,)) if op == "exp" or op in BASES:
            base = None
        case _:
            return None
    pair = {order.key, order.query}
    sign = 1
    while isinstance(exponent, ir.Map) and exponent.op == "neg":
        exponent, sign = exponent.arguments[0], -sign
    parts = factors_of(exponent)
    moving = [part for part in parts if pair & part.coordinates]
    if (base is not None and pair & base.type.coordinates) or len(moving) != 1 or moving[0].inverse:
        return None
    distance = moving[0].expr
    while isinstance(distance, ir.Map) and (distance.op == "neg" or distance.op in ("as f64", "as f32")):
        sign = -sign if distance.op == "neg" else sign
        distance = distance.arguments[0]
    if distance.type.kind != "whole":
        return None
    found = _difference(polynomial(distance, constants), order.key)
    if found is None or found[0] != order.query:
        return None
    rest = [part for part in parts if part is not moving[0]]
    rate = product_of(rest, exponent) if rest else None
    _, slope, extra = found
    return Decay(op, base, rate, -slope * sign, extra if sign > 0 else -extra)


def _steps(factor: ir.Expr, keys: ir.Range, order: Order, constants: Constants) -> Steps | None:
    """The product of all points between a key and a query that a factor is; None for anything else."""
    pair = frozenset((order.key, order.query))
    if not isinstance(factor, ir.Reduce) or factor.op != "prod" or factor.type.kind != "real":
        return None
    range = factor.ranges[0]
    if len(factor.ranges) > 1 or pair & factor.body.type.coordinates:
        return None
    moving = [fact for fact in in_range(range) if pair & fact.type.coordinates]
    still = zip((range.lower, range.upper), (keys.lower, keys.upper), strict=True)
    if any(one != other and not pair & one.type.coordinates for one, other in still):
        return None
    ends: dict[Coordinate, Order] = {}
    others: list[ir.Expr] = []
    for fact in (*moving, *conjuncts_of(factor.guard)):
        end = order_of(fact, range.coordinate, pair, constants)
        if end is not None and end.query not in ends:
            ends[end.query] = end
        elif pair & fact.type.coordinates:
            return None
        else:
            others.append(fact)
    if ends.keys() != pair:
        return None
    # From the key on, or up to it, and as far as the next step begins.
    near, far, ahead = ends[order.key], ends[order.query], -1 if order.forward else 1
    step = (near.shift + ahead).constant
    if near.forward == order.forward or far.forward != order.forward or step not in (0, ahead):
        return None
    follows = far.shift == order.shift + near.shift + ahead
    return Steps(range.coordinate, factor.body, build.conjunction(others), step, bool(moving)) if follows else None
