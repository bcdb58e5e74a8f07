"""Sums over keys with weights that a normaliser makes of scores: what the finder says of one, as an operation."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.types import SHORT, Coordinate
from ...ir.walk import walk
from ...records import dataclass, replace
from ...source import Span
from ..ops import Axis, Either, Fold, Iota, Read, Value, apply, value
from . import elementwise
from .lowering import Lowering
from .ranges import axis_of, bind
from .scope import Scope


@dataclass(frozen=True, slots=True)
class Found:
    """A `definition` that is `sum[key](weights * value)`, with the weights that a `normaliser` of the table makes of
    the `score` where all `guards` hold, and of `more`. `row` is the coordinate of the queries, which hear the keys from
    `low` up to `beyond`, where these are given, and all of these where it `is_interval`. Over no keys it is 0, or where
    it `divides` NaN. `totals` are definitions that are the logarithm of what weights are divided by, each with the
    coordinates of its axes here. `few` and `hears_itself` are those of a fold. `texts` are its lines. A query that is
    `alone` hears all keys."""

    definition: str
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
    is_interval: bool
    totals: tuple[tuple[str, tuple[Coordinate, ...]], ...]
    few: int | None
    hears_itself: bool
    texts: tuple[str, ...]
    alone: bool = False


def fold(low: Lowering, let: ir.Let, found: Found, many: Value | None = None) -> Value:
    """The definition as a fold, 0 where its own guard fails; or as the logarithm of what its weights are divided by.
    Where there is another way for `many` pairs, it is a fold of few."""
    main = low.lets[found.definition]
    low.turn_to(main)
    op = _fold(low, main, found)
    if many is not None:
        assert found.few is not None
        whole = _part(low, let, found, replace(op, few=None, at_once=True))
        rows = (axis.extent for axis in op.score.axes if axis.name == op.row and found.alone)
        return value(Either(op.pairs, int(op.divides), found.few, many, op.texts, next(rows, None), (whole,)))
    return _part(low, let, found, op)


def _part(low: Lowering, let: ir.Let, found: Found, op: Fold) -> Value:
    """What a fold is for one of its definitions."""
    main = low.lets[found.definition]
    totals = dict(found.totals)
    low.turn_to(let)
    body = value(op)
    if let.name in totals:
        home = low.home(let.name)
        names = {axis.coordinate: other.name for axis, other in zip(main.axes, low.home(main.name), strict=True)}
        body = value(replace(op, part="logarithm"))
        there = ((names[c], axis) for c, axis in zip(totals[let.name], home, strict=True))
        moved = sorted((name, value(Iota(axis))) for name, axis in there if axis.name != name and name in body.names)
        body = value(Read(body, tuple(moved))) if moved else body
    return _finished(low, let, body)


def _finished(low: Lowering, let: ir.Let, body: Value) -> Value:
    """A definition that is a value where its guard holds."""
    (clause,), scope = let.clauses, _scope(low, let)
    guard = None if clause.guard is None else low.value(clause.guard, scope)
    body = elementwise.as_kind(low, body, let, scope.where(clause.guard))
    return body if guard is None else elementwise.where(low, guard, body, elementwise.zero("real", clause.span))


def _scope(low: Lowering, let: ir.Let) -> Scope:
    """The scope of a definition of one clause."""
    (clause,), home = let.clauses, low.home(let.name)
    scope = Scope({}, within=let.name)
    ranges = {range.coordinate: range for range in clause.ranges}
    for slot, axis in zip(clause.slots, home, strict=True):
        assert isinstance(slot, ir.Coord)
        scope = bind(low, ranges[slot.coordinate], scope, axis.name)
    return scope


def _fold(low: Lowering, let: ir.Let, found: Found) -> Fold:
    scope = _scope(low, let)
    rows = scope.where(let.clauses[0].guard)
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
    return Fold(
        found.normaliser,
        score,
        carried,
        key,
        row,
        where,
        first,
        beyond,
        more,
        given,
        found.divides,
        found.is_interval,
        "result",
        found.few,
        False,
        found.hears_itself,
        found.texts,
    )


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
