"""Reads → views where the index is affine, gathers where it is not."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.text import shown
from ...ir.types import DEFAULT_DTYPE, Coordinate
from ...ir.walk import fresh, walk
from ...records import dataclass, replace
from . import sizes, views
from .base import Value
from .code import ALL, NONE, List, Node, Number, String, call, fill, infix, method, node
from .elementwise import float_code
from .lowering import Lowering
from .scope import Place, Scope
from .values import aligned, joined, permuted, sliced
from .views import Access


@dataclass(frozen=True, slots=True)
class AxisIndex:
    """The index of one axis: what it is, how long the axis is, and the view that reaches it; None for a gather."""

    expr: ir.Expr
    extent: ir.Expr
    access: Access | None

    @property
    def coordinates(self) -> frozenset[Coordinate]:
        return self.expr.type.coordinates


def figures(low: Lowering, expr: ir.Array, scope: Scope) -> Value:
    """An array literal."""
    dtype = low.compute if expr.type.kind == "real" else DEFAULT_DTYPE[expr.type.kind]
    cells = [_cell(cell) for cell in expr.cells]
    for length in reversed(expr.shape[1:]):
        cells = [List(tuple(cells[n : n + length])) for n in range(0, len(cells), max(1, length))]
    code = low.text.dialect.array(List(tuple(cells)), dtype)
    base = low.text.keep(Value(code, (), expr.type.kind, dtype), "figures")
    extents: list[ir.Expr] = [build.whole(length, expr.span) for length in expr.shape]
    return at(low, base, list(expr.indices), extents, "an index of an array literal is out of bounds", scope)


# ---------------------------------------------------------------- the index


def at(low: Lowering, base: Value, indices: list[ir.Expr], extents: list[ir.Expr], message: str, scope: Scope) -> Value:
    """A tensor at indices, its axes named and in order."""
    merged = merged_read(low, base, indices, extents, message, scope)
    if merged is not None:
        return merged
    plan = planned(low, indices, extents, message, scope)
    value = viewed(low, base, plan, scope)
    if any(index.access is None for index in plan):
        value = gathered(low, value, [(n, i) for n, i in enumerate(plan) if i.access is None], message, scope)
    return permuted(value, scope.sort(value.axes), low.text)


def planned(
    low: Lowering, indices: list[ir.Expr], extents: list[ir.Expr], message: str, scope: Scope
) -> list[AxisIndex]:
    """Decide which axes are views. A coordinate that two axes share is gathered from both."""
    plan = [AxisIndex(i, e, views.access(low, i, scope)) for i, e in zip(indices, extents, strict=True)]
    changed = True
    while changed:
        changed = False
        for n, index in enumerate(plan):
            mine = scope.sort(index.coordinates)
            others = [other for m, other in enumerate(plan) if m != n]
            if index.access is not None and any(other.coordinates & set(mine) for other in others):
                plan[n], changed = replace(index, access=None), True
    for n, index in enumerate(plan):
        check_agreement(low, index, scope)
        if index.access is not None:
            access = views.bounded(low, index.access, index.expr, index.extent, message, scope)
            plan[n] = replace(index, access=access)
    if any(index.access is not None and index.access.how == "split" for index in plan):
        plan = [of_stated_length(low, index, scope) for index in plan]
    return plan


def of_stated_length(low: Lowering, index: AxisIndex, scope: Scope) -> AxisIndex:
    """Windows as long as their coordinates say, even if there are none: next to a split they are reshaped."""
    access = index.access
    if access is None or access.how != "windows" or all(sizes.is_filled(low, c, scope) for c in access.coordinates):
        return index
    return replace(index, access=replace(access, padded=True))


def check_agreement(low: Lowering, index: AxisIndex, scope: Scope) -> None:
    """A coordinate has the size of every axis that it indexes bare."""
    if not isinstance(index.expr, ir.Coord):
        return
    place = scope.places[index.expr.coordinate]
    if low.prover.is_measured(place, index.extent) and not sizes.is_same(low, place.stop, index.extent):
        here, there = sizes.number(low, index.extent, scope), sizes.number(low, place.stop, scope)
        message = f"`{index.expr.coordinate}` has one size here and another there"
        sizes.refuse_once(low, infix("!=", here, there), "IX304", message)


def merged_read(
    low: Lowering, base: Value, indices: list[ir.Expr], extents: list[ir.Expr], message: str, scope: Scope
) -> Value | None:
    """`X[…, c / n, …, c % n, …]` with all c: two axes as one."""
    computed = [(n, index) for n, index in enumerate(indices) if isinstance(index, ir.Map)]
    for n, index in computed:
        for m, other in computed:
            coordinate = merging(low, index, other, extents[n], extents[m], scope)
            alone = all(k in (n, m) or coordinate not in i.type.coordinates for k, i in enumerate(indices))
            if coordinate is None or not alone:
                continue
            inside = [k in (n, m) or low.prover.is_inside(i, extents[k], scope, False) for k, i in enumerate(indices)]
            if all(inside):
                return read_merged(low, base, indices, extents, (n, m), coordinate, message, scope)
    return None


def merging(
    low: Lowering, major: ir.Expr, minor: ir.Expr, extent: ir.Expr, below: ir.Expr, scope: Scope
) -> Coordinate | None:
    """The coordinate that runs over all points of two axes, the second fastest."""
    match major, minor:
        case ir.Map("//", (ir.Coord(c), n)), ir.Map("%", (ir.Coord(d), m)) if c == d and n == m:
            place = scope.places[c]
            product = build.apply("*", (extent, n), "whole", n.span)
            from_zero = isinstance(place.start, ir.Const) and place.start.value == 0
            whole = (
                place.within is None and from_zero and sizes.is_same(low, place.stop, product)
            )
            return c if whole and sizes.is_same(low, n, below) else None
    return None


def read_merged(
    low: Lowering,
    base: Value,
    indices: list[ir.Expr],
    extents: list[ir.Expr],
    axes: tuple[int, int],
    coordinate: Coordinate,
    message: str,
    scope: Scope,
) -> Value:
    """Two axes as one: read apart, next to each other, and reshaped."""
    taken = {c.name for c in scope.places}
    major = fresh(coordinate, taken)
    minor = fresh(coordinate, taken | {major.name})
    places: dict[Coordinate, Place] = {}
    zero = build.whole(0, extents[0].span)
    for c, place in scope.places.items():
        if c == coordinate:
            places[major] = Place(zero, extents[axes[0]], True)
            places[minor] = Place(zero, extents[axes[1]], True)
        else:
            places[c] = place
    inner = Scope(places)
    apart = list(indices)
    apart[axes[0]], apart[axes[1]] = (build.coord(c, zero.span) for c in (major, minor))
    value = at(low, base, apart, extents, message, inner)
    result = tuple(dict.fromkeys(coordinate if c in (major, minor) else c for c in value.axes))
    return value.but(method(value.code, "reshape", *sizes.shape(low, result, scope).items), axes=result)


# -------------------------------------------------------------------- views


def viewed(low: Lowering, base: Value, plan: list[AxisIndex], scope: Scope) -> Value:
    """Slices first, then splits and windows, from the last axis to the first. Axes that are gathered stay,
    named by a coordinate of nothing."""
    return unfolded(low, sliced_view(low, base, plan, scope), held_axes(plan), scope)


def sliced_view(low: Lowering, base: Value, plan: list[AxisIndex], scope: Scope) -> Value:
    """All places that a read reaches, and no others, in the order of its coordinates."""
    padded = {n: i.access for n, i in enumerate(plan) if i.access is not None and i.access.padded}
    code = views.padded(low, base.code, padded, scope)
    if padded:
        code = low.text.keep(base.but(code), low.label).code
    slices: list[Node] = [
        ALL if i.access is None else views.view_slice(low, i.access, i.expr, i.extent, scope) for i in plan
    ]
    code = sliced(code, slices)
    for axis, (_, index) in enumerate(held_axes(plan)):
        if index.access is not None and index.access.backward:
            code = low.text.dialect.flip(code, axis)
    return base.but(code)


def unfolded(low: Lowering, value: Value, held: list[tuple[int, AxisIndex]], scope: Scope) -> Value:
    """Axes that two coordinates share, taken apart."""
    code = value.code
    if any(index.access is not None and index.access.how == "split" for _, index in held):
        code = method(code, "reshape", *split_lengths(low, held, scope))
    names: list[list[Coordinate]] = []
    for n, index in held:
        if index.access is None:
            names.append([_mark(n)])
        elif index.access.how == "windows":
            names.append(list(index.access.coordinates))
        else:
            names += [[coordinate] for coordinate in index.access.coordinates]
    steps = {i.access.coordinates: i for _, i in held if i.access is not None and i.access.how == "windows"}
    for axis in reversed(range(len(names))):
        if len(names[axis]) == 2:
            outer, inner = names[axis]
            index = steps[outer, inner]
            assert index.access is not None
            step = sizes.plain_number(low, index.access.step, scope).code
            lengths = sizes.length(low, outer, scope), sizes.length(low, inner, scope)
            apart = () if index.access.dilation == 1 else (index.access.dilation,)
            code = call(low.text.helper("windows"), code, axis, *lengths, step, *apart)
            names = [*names[:axis], [outer], *names[axis + 1 :], [inner]]
    axes = tuple(name for (name,) in names)
    for coordinate in (c for _, index in held if index.access is not None for c in index.access.flipped):
        code = low.text.dialect.flip(code, axes.index(coordinate))
    return value.but(code, axes=axes)


def split_lengths(low: Lowering, held: list[tuple[int, AxisIndex]], scope: Scope) -> list[Node]:
    """The lengths of the axes after all splits, and before any windows."""
    result: list[Node] = []
    for _, index in held:
        if index.access is None:
            result.append(sizes.number(low, index.extent, scope))
        elif index.access.how == "windows":
            reach, span = index.access.beyond - index.access.first, index.expr.span
            length = sizes.plain_number(low, reach, scope).code
            sure = low.prover.entails(scope.standing, sizes.with_constants(low, reach, span))
            result.append(length if sure else call("max", 0, length))
        else:
            result += [sizes.length(low, coordinate, scope) for coordinate in index.access.coordinates]
    return result


# ------------------------------------------------------------------ gathers


def gathered(low: Lowering, value: Value, plan: list[tuple[int, AxisIndex]], message: str, scope: Scope) -> Value:
    """Axes that no view reaches: by places, first those that are one place, then by arrays of them."""
    places: dict[Coordinate, tuple[Value, bool]] = {}
    for n, index in plan:
        if len(scope.sort(index.coordinates)) > 1 and is_arithmetic(index.expr):
            shared = views.access(low, index.expr, scope) is not None
            reason = "shares a coordinate with another index" if shared else "is no sum of multiples of two coordinates"
            low.decline("windows", f"`{shown(index.expr)}` {reason}: it is gathered")
        with low.labelled("place"):
            place = low.text.keep(low.value(index.expr, scope), "place")
        if len(plan) == 1 and checks_itself(low, index, place, scope):
            return taken(low, value, _mark(n), place, scope, "take_checked", String(message))
        places[_mark(n)] = (place, checked_place(low, index, place, message, scope))
    alone = {mark: place for mark, place in places.items() if not place[0].axes}
    for some in (alone, {mark: place for mark, place in places.items() if place[0].axes}):
        if some:
            value = picked(low, value, some, scope)
    return value


def checks_itself(low: Lowering, index: AxisIndex, place: Value, scope: Scope) -> bool:
    """Whether a place is unknown, and the read can check it by itself: at all points."""
    plain = not (scope.conditions() or low.in_guard or low.unbounded is not None)
    able = low.text.checks and low.text.dialect.gathers_along_one_axis and bool(place.axes)
    return able and plain and not low.prover.is_inside(index.expr, index.extent, scope, guarded=False)


def taken(
    low: Lowering, value: Value, axis: Coordinate, place: Value, scope: Scope, helper: str = "take", *more: Node
) -> Value:
    """A value at an array of places along one axis, by a helper that has more arguments where it checks them."""
    union = joined([place], scope.order)
    at = value.axes.index(axis)
    code = call(low.text.helper(helper), value.code, at, aligned(place, union).code, *more)
    axes = (*value.axes[:at], *union, *value.axes[at + 1 :])
    return low.text.keep(value.but(code, axes=axes), low.label)


def checked_place(low: Lowering, index: AxisIndex, place: Value, message: str, scope: Scope) -> bool:
    """Whether an index is in bounds at all points, and not only where guards hold."""
    if low.prover.is_inside(index.expr, index.extent, scope, guarded=False):
        return True
    if not low.prover.is_inside(index.expr, index.extent, scope, guarded=True):
        views.check_place(low, place, index.expr, index.extent, message, scope)
    low.guarded += bool(scope.conditions())
    return not (scope.conditions() or low.in_guard)


def picked(low: Lowering, value: Value, places: dict[Coordinate, tuple[Value, bool]], scope: Scope) -> Value:
    """A value at places along some of its axes; where these are out of bounds, some number."""
    union = joined([place for place, _ in places.values()], scope.order)
    safe = all(inside for _, inside in places.values())
    # A graph does not have the value of an index that is an array of no axes.
    array = any(not place.python for place, _ in places.values())
    one = not union and array and low.text.dialect.reads_scalar_indices
    # An index for several axes may be slow, with a slower backward pass.
    several = low.text.dialect.gathers_along_one_axis and bool(union) and len(places) > 1
    plain = safe and not several
    if plain and union and low.text.dialect.gathers_along_one_axis:
        ((gone, (only, _)),) = places.items()
        return taken(low, value, gone, only, scope)
    slots: list[Node] = []
    for axis in value.axes:
        place = aligned(places[axis][0], union) if axis in places else None
        if place is None:
            slots.append(ALL if plain else NONE)
        else:
            slots.append(fill("{x}[None]", x=place.code) if one and not place.python else place.code)
    while slots[-1] in (ALL, NONE):
        slots.pop()
    code = sliced(value.code, slots) if plain else call(low.text.helper("pick_some"), value.code, *slots)
    at = [n for n, axis in enumerate(value.axes) if axis in places]
    rest = [axis for axis in value.axes if axis not in places]
    first = at[0] if at[-1] - at[0] == len(at) - 1 or not (union or one) else 0
    if one:
        code = method(code, "squeeze", first)
    axes = (*rest[:first], *union, *rest[first:])
    return low.text.keep(value.but(code, axes=axes), low.label)


def is_arithmetic(index: ir.Expr) -> bool:
    """Whether an index varies with coordinates alone, and not with what stands in an array."""
    return not any(isinstance(part, ir.Read | ir.Reduce | ir.Array) and part.type.coordinates for part in walk(index))


def held_axes(plan: list[AxisIndex]) -> list[tuple[int, AxisIndex]]:
    """The axes that are left of a read: all but those of which it takes a single place."""
    return [(n, index) for n, index in enumerate(plan) if index.access is None or index.access.coordinates]


def _mark(axis: int) -> Coordinate:
    """The name of an axis that is to be gathered."""
    return Coordinate(f"?{axis}")


def _cell(cell: ir.Const) -> Node:
    if cell.type.kind == "bool":
        return node(bool(cell.value))
    return Number(str(cell.value)) if cell.type.kind == "whole" else float_code(cell.value)
