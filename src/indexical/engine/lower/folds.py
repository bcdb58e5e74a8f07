"""Sums over keys with weights that a normaliser makes of scores: what the finder says of one, as an operation."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import SHORT, Coordinate
from ...ir.walk import walk
from ...records import dataclass, replace
from ...source import Span
from ..ops import Axis, Fold, Iota, Value, apply, value
from . import elementwise
from .lowering import Lowering
from .ranges import axis_of, bind
from .scope import Scope


@dataclass(frozen=True, slots=True)
class Found:
    """A definition that is `sum[key](weights * value)`, with the weights that a `normaliser` of the table makes of the
    `score` where all `guards` hold, and of `more`. `row` is the coordinate of the queries, which hear the keys from
    `low` up to `beyond`, where these are given. Over no keys it is 0, or where it `divides` NaN. `texts` are its lines.
    """

    normaliser: str
    key: ir.Range
    row: Coordinate | None
    score: ir.Expr
    value: ir.Expr
    guards: tuple[ir.Expr, ...]
    more: tuple[ir.Expr, ...]
    low: ir.Expr | None
    beyond: ir.Expr | None
    divides: bool
    texts: tuple[str, ...]


def fold(low: Lowering, let: ir.Let, found: Found) -> Value:
    """The definition as a fold, 0 where its own guard fails."""
    low.turn_to(let)
    (clause,), home = let.clauses, low.home(let.name)
    scope = Scope({}, within=let.name)
    ranges = {range.coordinate: range for range in clause.ranges}
    for slot, axis in zip(clause.slots, home, strict=True):
        assert isinstance(slot, ir.Coord)
        scope = bind(low, ranges[slot.coordinate], scope, axis.name)
    guard = None if clause.guard is None else low.value(clause.guard, scope)
    rows = scope.where(clause.guard)
    pairs = bind(low, found.key, rows)
    test = build.conjunction(found.guards)
    where = None if test is None else low.value(test, pairs)
    kept = pairs.where(test)
    parts = [_real(low, one, kept) for one in (found.score, found.value)]
    more = tuple(_real(low, one, rows) for one in found.more)
    key = axis_of(pairs.places[found.key.coordinate])
    row = None if found.row is None else axis_of(scope.places[found.row]).name
    read = dict.fromkeys(
        one.tensor for part in (found.score, found.value) for one in walk(part) if isinstance(one, ir.Read)
    )
    given = tuple(low.values[name] for name in read if name in low.lets and low.values[name].axes)
    first, beyond = (None if one is None else _bound(low, one, found.key, rows) for one in (found.low, found.beyond))
    score, carried = (_with_axis(low, one, key, found.key.span) for one in parts)
    op = Fold(
        found.normaliser, score, carried, key, row, where, first, beyond, more, given, found.divides, found.texts
    )
    body = value(op)
    body = elementwise.as_kind(low, body, let, rows)
    return body if guard is None else elementwise.where(low, guard, body, elementwise.zero("real", clause.span))


def _real(low: Lowering, expr: ir.Expr, scope: Scope) -> Value:
    """A real value; one of 16 bits in 32."""
    found = low.value(expr, scope)
    dtype = "f32" if found.dtype in SHORT else low.compute if found.kind != "real" or found.dtype is None else None
    return elementwise.cast(found, dtype)


def _with_axis(low: Lowering, one: Value, key: Axis, span: Span) -> Value:
    """A value that varies with the key, also where it is the same for all keys."""
    if key.name in one.names:
        return one
    everywhere = apply("<=", elementwise.constant(0, "whole", span), value(Iota(key)))
    return elementwise.where(low, everywhere, one, elementwise.zero("real", span))


def _bound(low: Lowering, expr: ir.Expr, key: ir.Range, scope: Scope) -> Value:
    """A bound of keys, counted from the first."""
    if key.lower != build.whole(0, expr.span):
        expr = build.apply("-", (expr, key.lower), "whole", expr.span)
    return low.value(expr, replace(scope, facts=()))
