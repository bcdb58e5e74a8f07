"""Values that a condition leaves at one point of an axis: they are stored there, and all else is 0."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.types import Coordinate
from ..ops import Map, Read, Value, Write, all_of, apply, conjuncts, value
from .patterns import Found, No, Target
from .places import is_arithmetic, placed, solved
from .terms import applied, is_number, kept

# Functions that have a value and a slope at 0, which is read where there is no such place.
_ANYWHERE = frozenset(("+", "-", "*", "neg", "where", "&&", "||", "!", "==", "!=", "<", "<=", ">", ">=", "//", "%"))


def store_places(one: Value, found: Found, target: Target) -> Value | No | None:
    """A choice between a value and 0, by whether a coordinate is at a place that is data."""
    chosen = _chosen(one)
    if chosen is None or one.kind == "bool" or one.symbols:
        return None
    tests, then = chosen
    for n, test in enumerate(tests):
        for axis in one.axes:
            place = solved(test, axis) if axis.name in test.names else None
            if place is None or not place.axes or is_arithmetic(place):
                continue
            given = {axis.name: place}
            rest = all_of(*(moved(other, given) for m, other in enumerate(tests) if m != n))
            source = kept(rest, moved(apply("as real", then) if then.is_host and then.kind == "real" else then, given))
            if source.is_host:
                return None
            return value(Write(source, ((axis, place),), (), "set"))
    return None


def _chosen(one: Value) -> tuple[list[Value], Value] | None:
    """The conditions under which a choice is not 0, and what it is then."""
    match one.op:
        case Map("where", (test, then, other)) if is_number(other, 0):
            return conjuncts(test), then
        case Map("where", (Value(op=Map("!=", (left, right))), other, then)) if is_number(other, 0):
            return [applied("==", left, right)], then
    return None


def moved(one: Value, given: Mapping[Coordinate, Value]) -> Value:
    """A value with places put for some of its axes: of what is computed, where it is computed of what is read."""
    if one.names.isdisjoint(given):
        return one
    match one.op:
        case Map(fn, args, False) if fn in _ANYWHERE or fn.startswith("as "):
            return applied(fn, *(moved(arg, given) for arg in args))
        case Read(source, index, outside, None) if outside != "check" and all(is_arithmetic(at) for _, at in index):
            new = tuple((name, placed(at, given)) for name, at in index)
            if source.names.isdisjoint(given):
                return value(Read(source, new, "masked"))
    return placed(one, given)
