"""Definitions that write new rows into an array that the caller gave away: nothing else of it is touched or copied."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.cache_writes import Append, Put, find_append, find_put
from ...ir.types import Coordinate
from ...ir.walk import fresh
from ...records import replace
from .. import ops
from ..ops import Axis, Iota, Value, apply, value
from . import elementwise
from .lowering import Lowering
from .ranges import bind
from .scope import Scope


def define(low: Lowering, let: ir.Let) -> Value | None:
    """A definition that puts new rows behind those of an array, or at places of it; None for any other one. What a
    guard removed is to be told from what is 0 where it is isolated, so that nothing is written then."""
    append, put = find_append(let, low.tensors), find_put(let, low.tensors)
    found = append or put
    if found is None or low.isolate or low.given.get(found.past) != low.dtypes[let.name]:
        return None
    return _append(low, let, append) if append is not None else _put(low, let, put) if put is not None else None


def _append(low: Lowering, let: ir.Let, append: Append) -> Value | None:
    """New rows from a first place on: the rows that there are of them."""
    (clause,) = let.clauses
    assert isinstance(clause.body, ir.Select)
    assert isinstance(clause.body.then, ir.Read)
    new, axis = clause.body.then, append.axis
    count = low.tensors[new.tensor].axes[axis].extent
    room = polynomial(low.extent(let.axes[axis].extent))
    if append.count is None and room - polynomial(append.first) != polynomial(count):
        return None  # There are more rows, or fewer, than places for them.
    names = {other.coordinate.name for other in let.axes} | {other.coordinate.name for other in clause.ranges}
    own = fresh(low.tensors[new.tensor].axes[axis].coordinate, names)
    here = build.coord(own, clause.span)
    row = ir.Range(own, build.whole(0, clause.span), count, True, clause.span)
    scope = bind(low, row, _scope(low, let, skipped=range(axis, axis + 1)))
    indices = tuple(here if n == axis else index for n, index in enumerate(new.indices))
    place = build.apply("+", (append.first, here), "whole", clause.span)
    values = low.value(replace(new, indices=indices), scope)
    index = ((low.home(let.name)[axis].name, low.value(place, scope)),)
    return _written(low, let, append.past, index, values, scope, (own,))


def _put(low: Lowering, let: ir.Let, put: Put) -> Value:
    """New rows at places that arrays name, for each of the first axes."""
    scope = _scope(low, let, skipped=range(len(put.places)))
    for over in put.over:
        scope = bind(low, over, scope)
    points = tuple(build.coord(over.coordinate, over.span) for over in put.over)
    home = low.home(let.name)
    at = [low.value(build.read(name, points, "whole", let.span), scope) for name in put.places]
    index = tuple(sorted(zip((axis.name for axis in home), at, strict=False), key=lambda pair: pair[0]))
    values = low.value(put.new, scope)
    return _written(low, let, put.past, index, values, scope, tuple(over.coordinate for over in put.over))


def _scope(low: Lowering, let: ir.Let, skipped: range) -> Scope:
    """The scope of a definition's points, but for some of its axes."""
    scope, home = Scope({}, within=let.name), low.home(let.name)
    for number, each in enumerate(let.clauses[0].ranges):
        if number not in skipped:
            scope = bind(low, each, scope, home[number].name)
    return scope


def _written(
    low: Lowering,
    let: ir.Let,
    past: str,
    index: tuple[tuple[Coordinate, Value], ...],
    values: Value,
    scope: Scope,
    rows: tuple[Coordinate, ...],
) -> Value:
    into = low.values[past]
    pairs = zip(low.home(past), low.home(let.name), strict=True)
    names = sorted((old.name, new) for old, new in pairs if old.name != new.name)
    if names:
        into = value(ops.Read(into, tuple((old, value(Iota(new))) for old, new in names)))
    values = elementwise.as_kind(low, values, let, scope)
    if values.dtype != into.dtype:
        values = apply(f"as {into.dtype}", values)
    gone: list[Axis] = [axis for row in rows for axis in scope.places[row].axes]
    made = value(ops.Put(into, index, values, tuple(sorted(gone, key=lambda axis: axis.name))))
    low.spans.setdefault(made, let.clauses[0].span)
    return made
