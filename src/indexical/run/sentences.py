"""Sentences about a scan: the weight that a query gives each key, or the share of a sum that comes from each term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, substitute
from .wholes import Point

if TYPE_CHECKING:
    from .trace import Term, Tracer

# Of more keys than that, a sentence names the largest few.
MOST_KEYS = 12
MOST_NAMED = 5


def named(coordinate: Coordinate) -> str:
    """A coordinate as a person writes it."""
    return str(coordinate).rstrip("'")


def spoken_sum(
    tracer: Tracer, expr: ir.Reduce, point: Point, kept: list[Point], terms: Sequence[Term]
) -> Iterator[str]:
    """Yield the weights that a query gives its keys, where one factor is a distribution over them; else the share of
    the sum that each key has, where every share has the sign of the sum."""
    if len(expr.ranges) != 1 or not kept:
        return
    key = expr.ranges[0].coordinate
    places = [inner[key] for inner in kept]
    for factor in _flat(tracer, expr.body):
        weights = _distribution(tracer, factor, key, kept)
        if weights is not None:
            yield _attention(tracer, weights, key, places, _asking(factor, key, point))
            return
    shares = [term.share for term in terms]
    if len(shares) > 1 and all(share is not None and share >= 0 for share in shares):
        yield _listed(tracer, shares, key, places, "of the sum comes from", "from")


def spoken_row(tracer: Tracer, expr: ir.Normalize, point: Point, terms: Sequence[Term]) -> Iterator[str]:
    """Yield the weights that a query gives its keys, of a softmax whose weights are known."""
    weights = [term.share for term in terms]
    places = [at for term in terms for _, at in term.point]
    if weights and _is_distribution(tracer, weights):
        yield _attention(tracer, weights, expr.coordinate, places, _asking(expr, expr.coordinate, point))


def _attention(
    tracer: Tracer, weights: list[Any], key: Coordinate, places: list[int], asking: list[tuple[Coordinate, int]]
) -> str:
    who = [pair for pair in asking if key.space is not None and pair[0].space == key.space] or asking
    where = [pair for pair in asking if pair not in who]
    lead = f"in {_together(where)}, " if where else ""
    subject = _together(who) or "whoever asks"
    return f"{lead}{subject} gives {_listed(tracer, weights, key, places, 'of its attention to', 'to')}"


def _together(pairs: list[tuple[Coordinate, int]]) -> str:
    return " and ".join(_spoken(coordinate, at) for coordinate, at in pairs)


def _asking(factor: ir.Expr, key: Coordinate, point: Point) -> list[tuple[Coordinate, int]]:
    """The query of a row of weights. One without a query coordinate belongs to the point in the key's space."""
    asks = [c for c in point if c != key and c in factor.type.coordinates]
    asks = asks or [c for c in point if c != key and key.space is not None and c.space == key.space]
    return [(c, point[c]) for c in asks]


def _distribution(tracer: Tracer, factor: ir.Expr, key: Coordinate, kept: list[Point]) -> list[Any] | None:
    """The values of a factor at the keys, if it is a softmax over them, or figures that might be: none is negative,
    they sum to 1, and each row of them belongs to someone in the key's space."""
    if key not in factor.type.coordinates or factor.type.kind != "real":
        return None
    if not _is_softmax(tracer, factor, key):
        others = factor.type.coordinates - {key}
        rows = key.space is not None and any(c.space == key.space for c in others)
        if not isinstance(factor, ir.Read) or (others and not rows):
            return None
    weights = [tracer.evaluation.value(factor, inner) for inner in kept]
    return weights if _is_distribution(tracer, weights) else None


def _is_distribution(tracer: Tracer, weights: list[Any]) -> bool:
    try:
        return all(w >= 0 for w in weights) and bool(tracer.numbers.total(weights) == 1)
    except tracer.unknown:
        return False


def _is_softmax(tracer: Tracer, factor: ir.Expr, key: Coordinate) -> bool:
    """Whether a factor is a softmax over the key, by name too."""
    if isinstance(factor, ir.Normalize):
        return factor.op == "softmax" and factor.coordinate == key
    if not isinstance(factor, ir.Read) or factor.tensor not in tracer.lets:
        return False
    axes = [n for n, index in enumerate(factor.indices) if isinstance(index, ir.Coord) and index.coordinate == key]
    clauses = tracer.lets[factor.tensor].clauses
    if len(axes) != 1 or len(clauses) != 1:
        return False
    slot = clauses[0].slots[axes[0]]
    return isinstance(slot, ir.Coord) and _is_softmax(tracer, clauses[0].body, slot.coordinate)


def _listed(tracer: Tracer, weights: list[Any], key: Coordinate, places: list[int], first: str, then: str) -> str:
    """`50 % of its attention to position 0, 30 % to position 1`; of many, the largest few."""
    pairs = list(zip(weights, places, strict=True))
    rest = ""
    if len(pairs) > MOST_KEYS:
        pairs = sorted(pairs, key=lambda pair: -tracer.approximate(pair[0]))[:MOST_NAMED]
        others = tracer.numbers.number(1) - tracer.numbers.total([weight for weight, _ in pairs])
        rest = f", and {tracer.percent(others)} {then} the other {len(weights) - MOST_NAMED}"
    words = [
        f"{tracer.percent(weight)} {then if n else first} {_spoken(key, at)}" for n, (weight, at) in enumerate(pairs)
    ]
    return ", ".join(words) + rest


def _spoken(coordinate: Coordinate, at: int) -> str:
    """A coordinate in a sentence: by its space, if it has one."""
    return f"{coordinate.space} {at}" if coordinate.space else f"`{named(coordinate)} = {at}`"


def _flat(tracer: Tracer, body: ir.Expr, depth: int = 3) -> list[ir.Expr]:
    """The factors of a product, also of one that has a name of its own."""
    if isinstance(body, ir.Map) and body.op == "*":
        return [factor for argument in body.arguments for factor in _flat(tracer, argument, depth)]
    let = tracer.lets.get(body.tensor) if isinstance(body, ir.Read) else None
    if not isinstance(body, ir.Read) or let is None or depth == 0 or len(let.clauses) > 1:
        return [body]
    clause = let.clauses[0]
    if clause.guard is not None or not isinstance(clause.body, ir.Map) or clause.body.op != "*":
        return [body]
    slots = [slot.coordinate for slot in clause.slots if isinstance(slot, ir.Coord)]
    if len(slots) < len(clause.slots):
        return [body]
    try:
        inside = substitute(clause.body, dict(zip(slots, body.indices, strict=True)))
    except Inexpressible:
        return [body]
    return _flat(tracer, inside, depth - 1)
