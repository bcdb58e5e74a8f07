"""Sums in which a condition says where each point goes: `sum[i](x[i] where p[i] == n)`, for every `n`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import expression, number, of_atom, polynomial
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, substitute, walk

# Where coordinates start, and where they end: expressions free of coordinates that are not stepped.
Bounds = Mapping[Coordinate, tuple[ir.Expr, ir.Expr]]


@dataclass(frozen=True, slots=True)
class Scatter:
    """`sum[moved, rest](body where guard)`, of which every point is added at one place for each of `targets`.

    `guard` and `inner` are the conditions that must all hold, in the order of evaluation, none of which mentions a
    target; only those of `inner` mention what is bound by `rest`. `values` are the places, and `present` says of each
    that it is there.
    """

    values: Mapping[Coordinate, ir.Expr]
    moved: tuple[ir.Range, ...]
    rest: tuple[ir.Range, ...]
    guard: tuple[ir.Expr, ...]
    inner: tuple[ir.Expr, ...]
    present: tuple[ir.Expr, ...]
    body: ir.Expr

    @property
    def targets(self) -> tuple[Coordinate, ...]:
        return tuple(self.values)


def find(expr: ir.Reduce, bounds: Bounds) -> Scatter | str | None:
    """The sum as a scatter-add along some of the coordinates that have bounds; why it is none, where it looks like
    one; None for any other."""
    if expr.op != "sum" or expr.guard is None:
        return None
    values: dict[Coordinate, ir.Expr] = {}
    found: list[ir.Expr] = []
    present: list[ir.Expr] = []
    reason: str | None = None
    try:
        for condition in _conjuncts(expr.guard):
            condition = substitute(condition, values)
            place = solve(condition, set(bounds) - set(values), expr.coordinates)
            if place is not None:
                reason = _obstacle(place[0], expr) or reason
            if place is None or reason is not None or any(place[0] in e.type.coordinates for e in values.values()):
                found.append(condition)
                continue
            target, value = place
            values[target] = value
            present.append(_within(value, *bounds[target]))
            found.append(present[-1])
        if not values:
            return reason
        return _taken_apart(expr, values, found, present)
    except Inexpressible:
        return "a normaliser runs along what is scattered to"


def solve(
    condition: ir.Expr, targets: Collection[Coordinate], bound: Collection[Coordinate]
) -> tuple[Coordinate, ir.Expr] | None:
    """A condition as `target == place`, where the place varies with something bound, and not with the target."""
    match condition:
        case ir.Map("==", (left, right)) if left.type.kind == right.type.kind == "whole":
            pass
        case _:
            return None
    for side, other in ((right, left), (left, right)):
        if isinstance(side, ir.Coord) and side.coordinate in targets and _is_place(other, side.coordinate, bound):
            return side.coordinate, other
    difference = polynomial(left) - polynomial(right)
    for target in sorted(condition.type.coordinates & set(targets)):
        factor = difference.terms.get(frozenset(((target, 1),)))
        if factor in (1, -1):
            rest = difference.plus(of_atom(target), -factor)
            place = expression(-rest if factor == 1 else rest, condition.span)
            if _is_place(place, target, bound):
                return target, place
    return None


def _is_place(place: ir.Expr, target: Coordinate, bound: Collection[Coordinate]) -> bool:
    return target not in place.type.coordinates and not place.type.coordinates.isdisjoint(bound)


def _obstacle(target: Coordinate, expr: ir.Reduce) -> str | None:
    """Why nothing can be scattered to a coordinate."""
    for range in expr.ranges:
        if target in range.lower.type.coordinates | range.upper.type.coordinates:
            return f"the range of `{range.coordinate}` depends on `{target}`"
    return None


def _within(value: ir.Expr, start: ir.Expr, stop: ir.Expr) -> ir.Expr:
    """That a place is there."""
    above = build.apply("<=", (start, value), "bool", value.span)
    below = build.apply("<", (value, stop), "bool", value.span)
    return build.apply("&&", (above, below), "bool", value.span)


def _taken_apart(
    expr: ir.Reduce, values: dict[Coordinate, ir.Expr], conditions: list[ir.Expr], present: list[ir.Expr]
) -> Scatter:
    """What the places vary with is moved; all else that is bound can be summed before."""
    bound = {range.coordinate: range for range in expr.ranges}
    moved = {c for value in values.values() for c in value.type.coordinates if c in bound}
    waiting = list(moved)
    while waiting:
        range = bound[waiting.pop()]
        more = (range.lower.type.coordinates | range.upper.type.coordinates) & bound.keys() - moved
        moved |= more
        waiting += more
    outer: list[ir.Expr] = []
    inner: list[ir.Expr] = []
    for condition in conditions:
        late = inner and not is_total(condition)
        (inner if condition.type.coordinates & (bound.keys() - moved) or late else outer).append(condition)
    if any(not is_total(value) for value in values.values()) and inner:
        # A place that cannot be computed everywhere is computed where all that stands before it holds.
        moved, outer, inner = set(bound), conditions, []
    return Scatter(
        values,
        tuple(range for range in expr.ranges if range.coordinate in moved),
        tuple(range for range in expr.ranges if range.coordinate not in moved),
        tuple(outer),
        tuple(inner),
        tuple(present),
        substitute(expr.body, values),
    )


def is_total(expr: ir.Expr) -> bool:
    """Whether an expression has a value at every point, without a check."""
    return all(_is_total(part) for part in walk(expr))


def _is_total(expr: ir.Expr) -> bool:
    match expr:
        case ir.Read(_, indices):
            return all(isinstance(index, ir.Coord) for index in indices)
        case ir.Map("//" | "%", (_, by)):
            return isinstance(by, ir.Const) and by.value != 0
        case ir.Map(op):
            return op in ("+", "-", "neg", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "!", "max", "min", "abs", "*")
        case ir.Const() | ir.Size() | ir.Coord():
            return True
        case _:
            return False


def _conjuncts(condition: ir.Expr) -> list[ir.Expr]:
    match condition:
        case ir.Map("&&", (left, right)):
            return _conjuncts(left) + _conjuncts(right)
        case _:
            return [condition]


def grouped(expr: ir.Reduce, condition: ir.Expr) -> ir.Reduce | None:
    """The sum with the members of a group one after the other, where a condition says which group it is: under
    `h / 4 == g` these are `g * 4 + r`, under `h % 4 == g` they are `r * 4 + g`. None for any other condition."""
    match condition:
        case ir.Map(
            "==", (ir.Map("//" | "%" as op, (ir.Coord(member), ir.Const(int() as width))), ir.Coord(group))
        ) | ir.Map("==", (ir.Coord(group), ir.Map("//" | "%" as op, (ir.Coord(member), ir.Const(int() as width))))) if (
            member in expr.coordinates and group != member and width >= 1
        ):
            pass
        case _:
            return None
    range = next(range for range in expr.ranges if range.coordinate == member)
    edges = {c for r in expr.ranges for c in r.lower.type.coordinates | r.upper.type.coordinates}
    if member in edges or range.upper.type.coordinates:
        return None
    if not isinstance(range.lower, ir.Const) or range.lower.value < 0:
        return None
    return _unrolled(expr, condition, range, op, width, group)


def _unrolled(
    expr: ir.Reduce, condition: ir.Expr, range: ir.Range, op: str, width: int, group: Coordinate
) -> ir.Reduce | None:
    """The members of a group by a coordinate of their own."""
    span, many = condition.span, build.whole(width, condition.span)
    assert expr.guard is not None
    taken = {c.name for part in (expr.body, expr.guard) for inner in walk(part) for c in inner.type.coordinates}
    new = fresh(range.coordinate, taken)
    within, which = of_atom(new), of_atom(group)
    if op == "//":
        upper: ir.Expr = many
        place = expression(which * number(width) + within, span)
    else:
        upper = build.apply("//", (expression(polynomial(range.upper) + (width - 1), span), many), "whole", span)
        place = expression(within * number(width) + which, span)
    within_range = _within(place, range.lower, range.upper)
    if op == "%":
        short = build.apply("<", (build.coord(group, span), many), "bool", span)
        within_range = build.apply("&&", (short, within_range), "bool", span)
    values = {range.coordinate: place}
    try:
        conditions = [within_range if c is condition else substitute(c, values) for c in _conjuncts(expr.guard)]
        body = substitute(expr.body, values)
    except Inexpressible:
        return None
    counted = ir.Range(new, build.whole(0, span), upper, True, range.span)
    ranges = tuple(counted if r is range else r for r in expr.ranges)
    return build.reduce(expr.op, ranges, body, build.conjunction(conditions), expr.type.kind, expr.span)
