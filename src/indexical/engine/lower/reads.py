"""Reads of tensors and of array literals. An index is proved in bounds once, here: rules carry the answer along."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial, vanishes
from ...ir.types import STORED_ONLY, Coordinate
from ...ir.walk import walk
from ..known import bounds_of
from ..ops import OUTSIDE, Axis, Carried, Iota, Join, Outside, Read, Table, Value, apply, conjuncts, value
from .lowering import Lowering, conjunction, negation, no_points
from .scope import Scope


def read(low: Lowering, expr: ir.Read, scope: Scope) -> Value:
    """One element of an input or a definition."""
    source = low.carried.get(expr.tensor) or low.values[expr.tensor]
    if expr.indices:
        home = source.op.home if isinstance(source.op, Carried) else low.home(expr.tensor)
        extents = [axis.extent for axis in low.tensors[expr.tensor].axes]
        source = _at(low, source, home, expr.indices, extents, scope)
    return apply("as i32", source) if source.dtype in STORED_ONLY else source


def cell(low: Lowering, expr: ir.Array, scope: Scope) -> Value:
    """One cell of an array literal."""
    lengths = [build.whole(length, expr.span) for length in expr.shape]
    home = tuple(Axis(Coordinate(f"cell{n}"), length) for n, length in enumerate(lengths))
    return _at(low, value(Table(home, expr.cells, expr.type.kind)), home, expr.indices, lengths, scope)


def _at(
    low: Lowering,
    source: Value,
    home: tuple[Axis, ...],
    indices: tuple[ir.Expr, ...],
    extents: Sequence[ir.Expr],
    scope: Scope,
) -> Value:
    places = [low.value(expr, scope) for expr in indices]
    found = [_outside(low, expr, extent, scope) for expr, extent in zip(indices, extents, strict=True)]
    outside: Outside = max(found, key=OUTSIDE.index)
    if any(one == "check" and axis.name not in source.names for one, axis in zip(found, home, strict=True)):
        source = _spread(source, home)
    index = [
        (axis.name, place)
        for axis, place in sorted(zip(home, places, strict=True), key=lambda pair: pair[0].name)
        if axis.name in source.names and not (isinstance(place.op, Iota) and place.op.axis == axis)
    ]
    if not index:
        return source
    names = frozenset[Coordinate]().union(*(place.names for _, place in index))
    under = low.mask(scope, names) if outside == "check" else None
    if outside == "check" and not names and not all(at.is_host for _, at in index):
        under = conjunction([*conjuncts(under), *_some(scope, source)])
    return value(Read(source, tuple(index), outside, under))


def _some(scope: Scope, source: Value) -> list[Value]:
    """Whether there are points that ask for one place of a source, which is data: along each axis in force that it does
    not have."""
    axes = [axis for axis in scope.axes if axis not in source.axes]
    return [negation(no_points(axis)) for axis in axes if bounds_of(axis.extent)[0] <= 0]


def _spread(source: Value, home: tuple[Axis, ...]) -> Value:
    """A value that is the same along an axis, with all axes: so that a place outside of it can be refused."""
    slots = tuple(value(Iota(axis)) for axis in home)
    return value(Join(home, ((slots, source),), source.kind, source.dtype))


def _outside(low: Lowering, index: ir.Expr, extent: ir.Expr, scope: Scope) -> Outside:
    """Whether an index is in bounds: at every point, only where it is asked for, or perhaps not.

    That it is at every point is proved of its own coordinates alone: a range around it that is empty proves anything,
    and code that does not vary with that coordinate runs all the same.
    """
    if isinstance(index, ir.Coord):
        range = scope.range_of(index.coordinate)
        same = range.upper == extent if range.stated else low.agreement.holds(range.upper, extent)
        if same and range.from_zero:
            return "never"
    if _is_place_of(low, index, extent, scope):
        return "masked" if scope.facts else "never"  # Where nobody asks for it, it may be a place among no points.
    own: list[ir.Range] = []
    reach = set(index.type.coordinates)
    for range in reversed(scope.box):
        if range.coordinate in reach:
            own.insert(0, range)
            reach |= range.depends_on
    if low.is_inside(index, extent, tuple(own)):
        return "masked" if scope.facts and _may_have_none(index, extent, own) else "never"
    # A range around it speaks of the index only by bounds that vary with its coordinates, or of a number by its points.
    more = bool(scope.facts) or not reach or any(range.depends_on & reach for range in scope.box if range not in own)
    return "masked" if more and low.is_inside(index, extent, scope.trail) else "check"


def _may_have_none(index: ir.Expr, extent: ir.Expr, own: Sequence[ir.Range]) -> bool:
    """Whether an index is below what it is divided by, which may be 0 where no one asks for it."""
    if bounds_of(extent)[0] > 0:
        return False
    size = polynomial(extent)
    divides = (part.arguments[1] for part in walk(index) if isinstance(part, ir.Map) and part.op == "%")
    below = any(polynomial(by) == size for by in divides)
    return below and not any(vanishes(polynomial(range.upper), size) for range in own)


def _is_place_of(low: Lowering, index: ir.Expr, extent: ir.Expr, scope: Scope) -> bool:
    """Whether an index is a place among points that an axis has all of; over no points it is refused, and -1 where a
    guard leaves none, which a fact has to exclude."""
    found = index
    clauses = low.lets[index.tensor].clauses if isinstance(index, ir.Read) and index.tensor in low.lets else ()
    if len(clauses) == 1 and clauses[0].guard is None:
        found = clauses[0].body
    match found:
        case ir.Reduce("argmax" | "argmin", (range,), guard=guard) if not range.depends_on:
            here = build.coord(range.coordinate, index.span)
            same = not range.stated and range.from_zero and low.agreement.holds(range.upper, extent)
            some = guard is None or any(_is_not_negative(fact, index) for fact in scope.facts)
            return some and (same or low.is_inside(here, extent, (range,)))
    return False


def _is_not_negative(fact: ir.Expr, index: ir.Expr) -> bool:
    match fact:
        case ir.Map(">=", (one, ir.Const(0))):
            return one == index
    return False
