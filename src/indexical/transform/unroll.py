"""A recurrence along a coordinate of known size, written out: a definition for each of its points.

What goes step by step is so many definitions like any others: each is planned for itself, so that a layer has the
kernels that it has alone.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh_name, rebuild, rewritten, substitute
from ..records import replace

T = TypeVar("T")

# For each definition that is written out: its axis, and the names of its points, in their order.
Points: TypeAlias = Mapping[str, tuple[int, tuple[str, ...]]]

_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class NotUnrollable(Exception):
    """A program that cannot be written out so, and why."""


def unrolled(program: ir.Program, name: str, count: int) -> ir.Program:
    """The program with the recurrences along the coordinate `name` written out, whose size is `count`.

    The definitions themselves stay, put together from their points: whoever reads all of them still can. `order` is
    left to the checker; a contract is dropped, since it was proved of the recurrence.
    """
    sized = _sized(program, name, count)
    axes = _stepped(program, name)
    if not axes:
        raise NotUnrollable(f"no recurrence goes along `{name}`")
    taken = set(program.tensors)
    points: dict[str, tuple[int, tuple[str, ...]]] = {}
    lets = sized.definitions
    for let, axis in axes.items():
        extent = _constant(lets[let].axes[axis].extent)
        if extent is None:
            message = f"how many points `{let}` has along `{name}` is not known from the size of `{name}` alone"
            raise NotUnrollable(message)
        names = tuple(fresh_name(f"{let}_{place}", taken) for place in range(extent))
        taken.update(names)
        points[let] = axis, names
    found: list[ir.Let] = []
    for each in sized.lets:
        if each.name in points:
            found += _points(each, points)
            found.append(_joined(each, points))
        else:
            found.append(_changed_let(each, points))
    asserts = tuple(replace(claim, condition=_redirected(claim.condition, points)) for claim in sized.asserts)
    return replace(sized, lets=tuple(found), asserts=asserts, contracts=(), expects=(), order=())


def _stepped(program: ir.Program, name: str) -> dict[str, int]:
    """The axis of each definition that goes step by step along the coordinate."""
    found: dict[str, int] = {}
    lets = program.definitions
    for item in program.order:
        axes = item.axes if isinstance(item, ir.Stepwise) else ()
        if any(lets[let].axes[axis].coordinate.name == name for let, axis in axes):
            found.update(axes)
    return found


def _sized(program: ir.Program, name: str, count: int) -> ir.Program:
    """The program in which the size of the coordinate is this number."""

    def change(expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Size) and expr.coordinate.name == name:
            return build.whole(count, expr.span)
        return rebuild(expr, change)

    return rewritten(program, change)


def _constant(expr: ir.Expr) -> int | None:
    return polynomial(expr).constant


def _covers(clause: ir.Clause, axis: int, place: int) -> bool:
    """Whether the clause has this place of the axis."""
    slot = clause.slots[axis]
    if not isinstance(slot, ir.Coord):
        return _constant(slot) == place
    range = next(range for range in clause.ranges if range.coordinate == slot.coordinate)
    lower, upper = _constant(range.lower), _constant(range.upper)
    if lower is None or upper is None:
        raise NotUnrollable(f"how far `{slot.coordinate.name}` runs is not known from its size alone")
    return lower <= place < upper


def _points(let: ir.Let, points: Points) -> list[ir.Let]:
    """A definition for each point of the axis."""
    axis, names = points[let.name]
    axes = _without(let.axes, axis)
    captured = let.captured - 1 if axis < let.captured else let.captured
    return [
        replace(
            let,
            name=name,
            axes=axes,
            clauses=tuple(_at(each, axis, place, points) for each in let.clauses if _covers(each, axis, place)),
            captured=captured,
        )
        for place, name in enumerate(names)
    ]


def _at(clause: ir.Clause, axis: int, place: int, points: Points) -> ir.Clause:
    """The clause at one place of the axis."""
    slot = clause.slots[axis]
    own = slot.coordinate if isinstance(slot, ir.Coord) else None
    values = {} if own is None else {own: build.whole(place, slot.span)}

    def change(expr: ir.Expr) -> ir.Expr:
        return _redirected(_substituted(expr, values), points)

    ranges = tuple(
        replace(range, lower=change(range.lower), upper=change(range.upper))
        for range in clause.ranges
        if range.coordinate != own
    )
    slots = tuple(map(change, _without(clause.slots, axis)))
    return ir.Clause(slots, ranges, change(clause.body), clause.guard and change(clause.guard), clause.span)


def _substituted(expr: ir.Expr, values: Mapping[Coordinate, ir.Expr]) -> ir.Expr:
    try:
        return substitute(expr, values)
    except Inexpressible:
        raise NotUnrollable(f"it is normalised along `{next(iter(values)).name}`") from None


def _joined(let: ir.Let, points: Points) -> ir.Let:
    """The definition itself, put together from its points."""
    axis, names = points[let.name]
    clauses = []
    for place, name in enumerate(names):
        for clause in let.clauses:
            if _covers(clause, axis, place):
                one = _at(clause, axis, place, points)
                body = build.read(name, one.slots, let.kind, clause.span)
                slots = (*one.slots[:axis], build.whole(place, clause.span), *one.slots[axis:])
                clauses.append(ir.Clause(slots, one.ranges, body, one.guard, clause.span))
    return replace(let, clauses=tuple(clauses))


def _changed_let(let: ir.Let, points: Points) -> ir.Let:
    def change(expr: ir.Expr) -> ir.Expr:
        return _redirected(expr, points)

    clauses = tuple(
        replace(clause, body=change(clause.body), guard=clause.guard and change(clause.guard)) for clause in let.clauses
    )
    return replace(let, clauses=clauses)


def _redirected(expr: ir.Expr, points: Points) -> ir.Expr:
    """The expression with what is known of it decided, and each read at a known place made of that point alone."""
    expr = rebuild(expr, lambda child: _redirected(child, points))
    match expr:
        case ir.Read(tensor, indices, type, span) if tensor in points:
            axis, names = points[tensor]
            place = _constant(indices[axis])
            if place is not None and 0 <= place < len(names):
                return build.read(names[place], _without(indices, axis), type.kind, span)
        case ir.Select(condition, then, otherwise):
            truth = _decided(condition)
            if truth is not None:
                return then if truth else otherwise
    return expr


def _decided(condition: ir.Expr) -> bool | None:
    """The truth of a comparison of numbers."""
    match condition:
        case ir.Map(op, (left, right)) if op in _COMPARED and left.type.kind == right.type.kind == "whole":
            difference = (polynomial(left) - polynomial(right)).constant
            return None if difference is None else bool(_COMPARED[op](difference, 0))
    return None


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])
