"""Reductions: over the axes of their ranges, at the points where their guard holds."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.algebra.factors import factors_of
from ...ir.needs import depends_on_data
from ...ir.types import SHORT, Coordinate
from ...ir.walk import fresh
from ...records import replace
from ..known import bounds_of, fits, repeated
from ..ops import Axis, Iota, Map, Read, Reduce, Value, all_of, apply, host, value
from . import elementwise, wholes
from .lowering import Lowering, either, negation, no_points
from .ranges import axis_of, bind, minus
from .scope import NOWHERE, Scope

# Reductions that have no value over no points.
_NEVER_EMPTY = frozenset(("argmax", "argmin", "mean"))


def reduce(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value:
    """A reduction. One in a loop that does not read what the loop computes is done before it, for all steps."""
    stepped = expr.type.coordinates & scope.stepped
    if stepped and not low.is_carried(expr, *scope.facts):
        return _before_the_loop(low, expr, scope)
    return _reduced(low, expr, scope)


def _reduced(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value:
    inner, before = scope, len(scope.facts)
    for range in expr.ranges:
        inner = bind(low, range, inner)
    axes = tuple(axis_of(inner.places[range.coordinate]) for range in expr.ranges)
    outer = replace(inner, facts=inner.facts[:before])
    own = [low.value(fact, outer) for fact in inner.facts[before:]]
    guard = all_of(*own, None if expr.guard is None else low.value(expr.guard, inner))
    body = low.value(expr.body, replace(inner.where(expr.guard), gathers=_gathers(low, expr)))
    if expr.op in ("sum", "prod") and guard is not None and guard.is_host and body.is_host:
        identity = elementwise.constant(0 if expr.op == "sum" else 1, body.kind, expr.span)
        body, guard = elementwise.where(low, guard, body, identity), None
    if expr.op in ("sum", "prod") and expr.type.kind == "real" and body.is_host and guard is None:
        return _repeated(low, expr, body, axes)
    body = _summed(low, expr, body)
    over = tuple(sorted(axes, key=lambda axis: axis.name))
    if expr.type.kind == "whole" and expr.op in ("sum", "prod"):
        return _whole_sum(low, expr, body, over, guard, scope)
    found = _there(low, expr, value(Reduce(expr.op, body, over, guard)), guard, over, scope)
    return _placed(expr, found, inner) if expr.op in ("argmax", "argmin") else found


def _gathers(low: Lowering, expr: ir.Reduce) -> frozenset[str]:
    """The softmaxes over the points of a sum, with whose weights values are summed, each read at its own."""
    if expr.op != "sum" or low.isolate:
        return frozenset()
    here = {range.coordinate for range in expr.ranges}
    read = (factor.expr for factor in factors_of(expr.body, divided=False) if isinstance(factor.expr, ir.Read))
    return frozenset(part.tensor for part in read if not here.isdisjoint(_normalized(low, part)))


def _normalized(low: Lowering, read: ir.Read) -> Iterator[Coordinate]:
    """The coordinate at which a read asks for a weight of a softmax, along the axis that it normalises."""
    let = low.lets.get(read.tensor)
    body = None if let is None or len(let.clauses) != 1 else let.clauses[0].body
    if let is not None and isinstance(body, ir.Normalize) and body.op == "softmax":
        for slot, index in zip(let.clauses[0].slots, read.indices, strict=True):
            if isinstance(slot, ir.Coord) and slot.coordinate == body.coordinate and isinstance(index, ir.Coord):
                yield index.coordinate


def _whole_sum(
    low: Lowering, expr: ir.Reduce, body: Value, over: tuple[Axis, ...], guard: Value | None, scope: Scope
) -> Value:
    """A sum or a product of whole numbers, which has to fit in 64 bits. Along an axis that nothing varies with it is a
    multiple, or a power."""
    names = body.names if guard is None else body.names | guard.names
    along = tuple(axis for axis in over if axis.name in names)
    checked = not fits(repeated(expr.op, body.known.bounds), "i64")
    identity = elementwise.constant(0 if expr.op == "sum" else 1, "whole", expr.span)
    mask = low.mask(scope, body.names) if checked and scope.facts else None
    body = body if mask is None else elementwise.where(low, mask, body, identity)
    if along:
        found = value(Reduce(expr.op, body, along, guard, checked))
    else:
        found = body if guard is None else elementwise.where(low, guard, body, identity)
    for axis in over:
        if axis not in along:
            found = apply("as i64", found) if found.dtype == "i32" else found
            op = "*" if expr.op == "sum" else "**"
            found = wholes.applied(low, op, (found, host(_count(axis, expr))), expr.span, scope)
    return found


def _count(axis: Axis, expr: ir.Reduce) -> ir.Expr:
    """The number of points of an axis, whose extent may be below 0."""
    if bounds_of(axis.extent)[0] >= 0:
        return axis.extent
    return build.apply("max", (axis.extent, build.whole(0, expr.span)), "whole", expr.span)


def _summed(low: Lowering, expr: ir.Reduce, body: Value) -> Value:
    """The body in the kind and dtype that it is reduced in: of 16 bits sums are taken in 32."""
    if expr.op == "mean" and body.kind == "whole":
        body = elementwise.cast(body, low.compute)
    if expr.op in ("sum", "prod", "mean") and body.dtype in SHORT:
        body = elementwise.cast(body, "f32")
    return body


def _placed(expr: ir.Reduce, found: Value, inner: Scope) -> Value:
    """A place that is counted from the first point of its axis, as the coordinate counts; -1 stays."""
    place = inner.places[expr.ranges[0].coordinate]
    if isinstance(place.op, Iota):
        return found
    assert isinstance(place.op, Map)
    moved = apply("+", found, place.op.args[1])
    if expr.guard is None:
        return moved
    none = apply("<", found, host(build.whole(0, expr.span)))
    return apply("where", none, found, moved)


def _repeated(low: Lowering, expr: ir.Reduce, body: Value, axes: tuple[Axis, ...]) -> Value:
    """The sum, or the product, of as many equal real numbers of the host as there are points."""
    for axis in axes:
        times = host(elementwise.as_real(_count(axis, expr)))
        body = elementwise.applied(low, "*" if expr.op == "sum" else "**", (body, times), "real", expr.span)
    return body


# ------------------------------------------------------------------------ over no points


def _there(
    low: Lowering, expr: ir.Reduce, found: Value, guard: Value | None, over: tuple[Axis, ...], scope: Scope
) -> Value:
    """A reduction that has a value, refused where it is asked for over no points. Where data leave none, a mean is NaN,
    and a place is -1."""
    whole = expr.type.kind == "whole" and expr.op in ("max", "min")
    if not whole and expr.op not in _NEVER_EMPTY:
        return found
    if not whole and expr.guard is not None and depends_on_data(expr.guard, low.lets):
        return found
    message = f"`{expr.op}`{' of whole numbers' if whole else ''} over no points has no value"
    if guard is not None:
        return _required(low, expr, found, value(Reduce("any", guard, over)), scope)
    for axis in over:
        if not _has_points(axis):
            some = host(build.apply(">", (axis.extent, build.whole(0, expr.span)), "bool", expr.span))
            if some.symbols:
                found = _required(low, expr, found, some, scope)
            else:
                home = low.home(scope.within) if scope.within else ()
                low.check(some, "IX310", message, expr.span, scope, (*scope.axes, *home))
    return found


def _required(low: Lowering, expr: ir.Reduce, found: Value, some: Value, scope: Scope) -> Value:
    mask = low.mask(scope, found.names | some.names)
    some = some if mask is None else either(some, negation(mask))
    for axis in scope.axes:
        if axis.name not in some.names and not _has_points(axis):
            some = either(some, no_points(axis))
    return apply(f"some {expr.op}", found, some)


def _has_points(axis: Axis) -> bool:
    """Whether an axis has a point, whatever the sizes are."""
    length = polynomial(axis.extent)
    return length.constant is not None and length.constant > 0


# ------------------------------------------------------------------------------- hoisting


def _before_the_loop(low: Lowering, expr: ir.Reduce, scope: Scope) -> Value:
    """A reduction for all steps of a loop, read at this one."""
    wanted = expr.type.coordinates.union(*(fact.type.coordinates for fact in scope.facts))
    for range in reversed(scope.box):
        if range.coordinate in wanted or range.coordinate not in scope.stepped:
            wanted |= range.depends_on
    outer = Scope({}, within=scope.within)
    steps: list[ir.Range] = []
    for range in scope.box:
        if range.coordinate not in scope.stepped:
            places = {**outer.places, range.coordinate: scope.places[range.coordinate]}
            outer = replace(outer, places=places, box=(*outer.box, range))
        elif range.coordinate in wanted:
            outer = bind(low, range, outer, fresh(range.coordinate, scope.taken | outer.taken))
            steps.append(range)
    outer = replace(outer, facts=tuple(dict.fromkeys((*outer.facts, *scope.facts))))
    found = _reduced(low, expr, outer)
    index = []
    for range in steps:
        axis = axis_of(outer.places[range.coordinate])
        if axis.name in found.names:
            step = elementwise.number(scope.places[range.coordinate])
            index.append((axis.name, host(minus(step, low.number(range.lower, NOWHERE)))))
    return value(Read(found, tuple(sorted(index, key=lambda one: one[0])))) if index else found
