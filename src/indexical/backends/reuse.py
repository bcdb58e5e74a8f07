"""Reuse of values: those computed before by name, and those that can be hoisted before a loop."""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk
from . import sizes
from .base import Value, plain
from .code import ALL, ZERO, Infix, Name, Node, call, index
from .elementwise import constant
from .layout import Statement
from .lowering import Lowering
from .scope import Place, Scope
from .values import permuted


def held(low: Lowering, value: Value) -> Value:
    """The value under a name, so that it is computed once however often it is read."""
    if value.python:
        return value
    if value.turned is not None:
        return permuted(held(low, value.turned), value.axes, low.text)
    return replace(
        low.text.keep(value, "kept" if value.kind == "bool" else low.label),
        narrow=value.narrow if value.kind == "real" else None,
        once=value.once,
    )


def recall(low: Lowering, expr: ir.Expr, scope: Scope) -> Value | None:
    """The value of an expression that was computed before: anywhere, or under conditions that hold here too."""
    key = (expr, low.compute, seen(expr, scope))
    found = low.known.get(key)
    if found is None and ("guarded", *key) in low.known:
        conditions = _holding(scope)
        for count in range(len(conditions) + 1):
            found = found or low.known.get((*key, conditions[:count]))
        # A value computed from it is valid under the same conditions only.
        low.guarded += found is not None
    return found


def computed(low: Lowering, expr: ir.Expr, scope: Scope) -> Value:
    """The value, remembered: for anywhere, or for where the conditions hold that it is valid under."""
    before = low.guarded
    found = low.lower(expr, scope)
    if not isinstance(expr, ir.Read | ir.Array):
        found = held(low, found)
    key = (expr, low.compute, seen(expr, scope))
    if low.guarded == before:
        low.known[key] = found
    elif not low.in_guard:  # What was not checked is not used again where it has to be.
        low.known[("guarded", *key)] = found
        low.known[(*key, _holding(scope))] = found
    return found


def seen(expr: ir.Expr, scope: Scope) -> tuple[tuple[Coordinate, Place], ...]:
    """The part of a scope that an expression depends on."""
    free = expr.type.coordinates
    return tuple((c, place) for c, place in scope.places.items() if c in free)


def _holding(scope: Scope) -> tuple[object, ...]:
    """What a guarded value is valid under: conditions, each with the points of the coordinates that it speaks of."""
    steps = (*((fact, True) for fact in scope.asked), *scope.conditions())
    return tuple((step, seen(step[0], scope)) for step in steps)


def stays(low: Lowering, expr: ir.Expr, scope: Scope) -> bool:
    """Whether an expression is the same in all turns of the loops around it."""
    places = [scope.places[c] for c in expr.type.coordinates]
    if any(place.step is not None or place.within is not None for place in places):
        return False
    bounds = [bound for place in places for bound in (place.start, place.stop)]
    if any(bound.type.coordinates for bound in bounds):
        return False
    return not any(isinstance(part, ir.Read) and low.stored[part.tensor].growing for part in walk(expr))


def all_steps(low: Lowering, expr: ir.Expr, scope: Scope) -> Value | None:
    """Hoist an expression without recurrent values: computed for all steps before the loop, read at this one."""
    stepped = [c for c in expr.type.coordinates if scope.places[c].step is not None]
    if len(stepped) != 1 or not _is_spared(expr, stepped[0]):
        return None
    row = scope.moving(stepped[0])
    conditions = [condition for condition, _ in row.conditions()]
    if not all(is_bound(part, row) and stays(low, part, row) for part in (expr, *conditions)):
        return None
    found = computed_ahead(low, expr, row, may_be_guarded=True)
    if found is None or stepped[0] not in found.axes:
        return None
    return at_step(low, found, stepped[0], scope)


def at_step(low: Lowering, value: Value, coordinate: Coordinate, scope: Scope) -> Value:
    """One point of a row."""
    place, at = scope.places[coordinate], value.axes.index(coordinate)
    start = sizes.number(low, place.start, scope)
    assert place.step is not None
    step = place.step if start == ZERO else Infix("-", place.step, start)
    if is_unbound(low) and isinstance(value.code, Name):
        code = index(unbound(low, value.code, at), step)
    else:
        code = index(value.code, *[ALL] * at, step)
    return value.but(code, axes=tuple(axis for axis in value.axes if axis != coordinate))


def is_unbound(low: Lowering) -> bool:
    """Whether the steps of an array are taken apart before a loop: a library that differentiates would build a
    gradient as large as the array for every step that is sliced out of it."""
    return bool(low.text.loops) and low.text.checks and low.text.dialect.takes_rows_apart


def unbound(low: Lowering, variable: Name, axis: int) -> Node:
    """The steps of an array, taken apart before the loops."""
    steps = Value(low.text.dialect.unbind(variable, axis), (), "real", None)
    return named_ahead(low, steps, f"{variable.text.split('__')[0]}_steps").code


def steady(low: Lowering, value: Value) -> Value:
    """A value whose axes are in another order, turned once before the loops, where it stays the same in them."""
    before = None if value.turned is None else value.turned.code
    if not isinstance(before, Name) or not is_steady(low, before):
        return value
    return value.but(named_ahead(low, value, f"{before.text}_turned").code)


def is_steady(low: Lowering, code: Node) -> bool:
    """Whether this is an array that stays the same in the loops around."""
    if not isinstance(code, Name) or not low.text.loops or not low.text.checks:
        return False
    return any(stored.variable == code.text and not stored.growing for stored in low.stored.values())


def named_ahead(low: Lowering, value: Value, name: str) -> Value:
    """The value under a name of its own, before the loops."""
    key = ("ahead", value.code)
    if key not in low.known:
        with low.outside_loops():
            low.known[key] = low.text.named(value, name)
    return low.known[key]


def is_bound(expr: ir.Expr, scope: Scope) -> bool:
    """Whether every coordinate that an expression varies with is in force."""
    return all(coordinate in scope.places for coordinate in expr.type.coordinates)


def computed_ahead(low: Lowering, expr: ir.Expr, scope: Scope, may_be_guarded: bool = False) -> Value | None:
    """The value, hoisted before the loops; None where it has to be checked in its place, or where it is valid only
    under a guard and may not be."""
    hoisted, before, helpers = dict(low.hoisted), low.guarded, dict(low.text.helpers)
    known = low.known
    with low.outside_loops() as ahead:
        start = len(ahead)
        found = computed(low, expr, scope)
        good = all(isinstance(s, Statement) and s.kind in ("temporary", "assign") for s in ahead[start:])
        if not good or (low.guarded > before and not may_be_guarded):
            del ahead[start:]
            good = False
    if good:
        return found
    low.known, low.hoisted, low.guarded, low.text.helpers = known, hoisted, before, helpers
    return None


def coordinate_value(low: Lowering, coordinate: Coordinate, scope: Scope) -> Value:
    """A coordinate: its step in a loop, else all its points."""
    place = scope.places[coordinate]
    if place.step is not None:
        return plain(place.step)
    start, stop = sizes.number(low, place.start, scope), sizes.number(low, place.stop, scope)
    if low.text.dialect.refuses_falling_ranges and sizes.may_be_reversed(low, coordinate, scope):
        stop = call("max", start, stop)
    key = ("arange", coordinate, start, stop)
    if key not in low.known:
        points = Value(low.text.dialect.arange(start, stop), (coordinate,), "whole", "i64")
        if low.text.loops and not (place.start.type.coordinates or place.stop.type.coordinates):
            with low.outside_loops():
                low.known[key] = low.text.named(points, coordinate.name)
        else:
            low.known[key] = low.text.named(points, coordinate.name)
    return low.known[key]


def value(low: Lowering, expr: ir.Expr, scope: Scope) -> Value:
    """An expression over all points of the coordinates it varies over; under a name where it was met before."""
    match expr:
        case ir.Const():
            return constant(expr)
        case ir.Size(coordinate):
            return plain(low.sizes[coordinate])
        case ir.Coord(coordinate):
            return coordinate_value(low, coordinate, scope)
        case ir.Read(_, ()):
            return low.lower(expr, scope)
    found = recall(low, expr, scope)
    if found is None and low.text.loops and low.text.checks:
        found = computed_ahead(low, expr, scope) if stays(low, expr, scope) else all_steps(low, expr, scope)
    return computed(low, expr, scope) if found is None else found


def _is_spared(expr: ir.Expr, step: Coordinate) -> bool:
    """Whether it takes no more memory for all steps than its parts have: a sum of products, or whatever has no more
    coordinates than some part of it. Conditions take little; a gather is made once."""
    match expr:
        case ir.Reduce("sum", _, ir.Map("*")):
            return True
        case ir.Map() if expr.type.kind == "bool":
            return len(expr.type.coordinates) == 2
        case ir.Read(_, indices):
            return any({step} < index.type.coordinates for index in indices)
        case ir.Map() | ir.Select() | ir.Reduce() | ir.Normalize() if expr.type.kind == "real":
            parts = (part for part in walk(expr) if isinstance(part, ir.Read | ir.Reduce) and part is not expr)
            return any(part.type.coordinates >= expr.type.coordinates for part in parts)
        case _:
            return False
