"""Contractions of several factors as contractions of pairs, in the order that costs least."""

from __future__ import annotations

from itertools import combinations

from ...ir.types import SHORT, Coordinate, widest
from ..ops import Axis, Contract, Reduce, Value, apply, axes_of, cast, value
from ..products import cells, is_pair
from .patterns import Found, Target

# A cell of a product of matrices takes so much less time than one of an elementwise product.
MATRIX = 1 / 16
# So many factors are paired in the best of all orders; more of them greedily.
EXACT = 4


def pair_by_pair(one: Value, found: Found, target: Target) -> Value | None:
    """A contraction of pairs, of axes that both sides have; None where it is one already.

    An axis that one factor alone has is summed before. Two factors of which nothing is summed yet, or which have the
    same axes and keep some, are multiplied cell by cell; of 16 bits they are summed in 32.
    """
    op = one.op
    assert isinstance(op, Contract)
    if is_pair(op):
        return None
    over = frozenset(axis.name for axis in op.over)
    return _contracted(tuple(_summed(part, op.factors, over) for part in op.factors), over)[1]


def pairs_cost(op: Contract) -> float:
    """The cost of a contraction of several factors, pair by pair."""
    return _contracted(op.factors, frozenset(axis.name for axis in op.over))[0]


def _summed(part: Value, factors: tuple[Value, ...], over: frozenset[Coordinate]) -> Value:
    """A factor, summed over the axes that no other one has."""
    others = frozenset[Coordinate]().union(*(other.names for other in factors if other is not part))
    if sum(other is part for other in factors) > 1:
        return part
    alone = tuple(axis for axis in part.axes if axis.name in over - others)
    return value(Reduce("sum", part, alone)) if alone else part


def _contracted(factors: tuple[Value, ...], over: frozenset[Coordinate]) -> tuple[float, Value]:
    """The cost of a contraction, and what is computed: of every first pair the best, as far as that can be tried."""
    if len(factors) == 1:
        return 0.0, factors[0]
    found: list[tuple[float, Value, tuple[Value, ...]]] = []
    for n, m in combinations(range(len(factors)), 2):
        others = tuple(part for k, part in enumerate(factors) if k not in (n, m))
        cost, made = _pair(factors[n], factors[m], others, over)
        found.append((cost, made, others))
    if len(factors) > EXACT:
        found = [min(found, key=lambda way: way[0])]
    best: tuple[float, Value] | None = None
    for cost, made, others in found:
        rest, result = _contracted((made, *others), over)
        if best is None or cost + rest < best[0]:
            best = (cost + rest, result)
    assert best is not None
    return best


def _pair(left: Value, right: Value, others: tuple[Value, ...], over: frozenset[Coordinate]) -> tuple[float, Value]:
    """Two factors, summed over what no other one has."""
    needed = frozenset[Coordinate]().union(*(other.names for other in others))
    left, right = (_summed(one, (left, right, *others), over) for one in (left, right))
    gone = tuple(axis for axis in left.axes if axis.name in (over & right.names) - needed)
    union = axes_of(left, right)
    if not gone:
        return cells(union), apply("*", left, right)
    if left.names == right.names and len(gone) < len(union):
        return 2 * cells(union), _by_cells(left, right, gone)
    made = value(Contract((left, right), gone))
    is_matrix = left.names - right.names and right.names - left.names
    return cells(union) * (MATRIX if is_matrix else 1) + cells(made.axes), made


def _by_cells(left: Value, right: Value, over: tuple[Axis, ...]) -> Value:
    """Products of cells, and their sums."""
    dtype = widest((left.dtype, right.dtype))
    if dtype not in SHORT:
        return value(Reduce("sum", apply("*", left, right), over))
    product = apply("*", cast(left, "f32"), cast(right, "f32"))
    return apply(f"as {dtype}", value(Reduce("sum", product, over)))


