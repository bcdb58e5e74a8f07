"""Values that have a place along an axis: added up there where they are summed, or else stored in zeros."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.types import Coordinate
from ..ops import Axis, Iota, Map, Read, Reduce, Value, Write, all_of, apply, conjuncts, value
from .patterns import Found, No, Target
from .places import is_arithmetic, is_point, placed, solved
from .sums import take_factor_out
from .terms import applied, cast, is_number, kept, names_of, real, summed, total, where

# Functions that have a value and a slope at 0, which is read where there is no such place.
_ANYWHERE = frozenset(("+", "-", "*", "neg", "where", "&&", "||", "!", "==", "!=", "<", "<=", ">", ">=", "//", "%"))
# What the plan calls a sum into places.
SCATTER = "scatter-add"


def write_places(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum of what has a place that is a point of an axis, or of several: each is added where it belongs. A factor
    that is the same for all that have one place is taken out first."""
    op = summed(one)
    index, tests = _destinations(op)
    given = {axis.name: place for axis, place in index.items()}
    if not index or (not op.source.names.isdisjoint(given) and isinstance(take_factor_out(one, found, target), Value)):
        return None
    if op.checked:
        return No("whole sums are checked for overflow", SCATTER)
    source = op.source if one.kind == "real" else cast(op.source, one.dtype)
    source = apply("as real" if one.kind == "real" else "as i64", source) if source.is_host else source
    source = kept(all_of(*tests), moved(source, given))
    varied = frozenset[Coordinate]().union(*(place.names for place in given.values()))
    alone = tuple(axis for axis in op.over if axis.name not in varied)
    into = tuple(axis for axis in op.over if axis.name in varied)
    at = tuple(sorted(index.items(), key=lambda pair: pair[0].name))
    return value(Write(total(source, alone) if alone else source, at, into))


def _destinations(op: Reduce) -> tuple[dict[Axis, Value], list[Value]]:
    """The axes that conditions say the places along, these places, and the other conditions there."""
    index: dict[Axis, Value] = {}
    others: list[Value] = []
    for test in conjuncts(op.where):
        test = moved(test, {axis.name: place for axis, place in index.items()})
        found = _destination(test, op)
        if found is None:
            others.append(test)
            continue
        axis, place = found
        given = {axis.name: place}
        index = {each: moved(at, given) for each, at in index.items()} | {axis: place}
        others = [moved(other, given) for other in others]
    return index, others


def _destination(test: Value, op: Reduce) -> tuple[Axis, Value] | None:
    """The axis that a condition says the place along, one that stands alone on a side before others, and the place;
    None where that does not vary with what is summed. What is summed may vary with the axis where the place is data:
    any other is a view."""
    over = names_of(op.over)
    sides = test.op.args if isinstance(test.op, Map) and test.op.fn == "==" else ()
    for axis in sorted(test.axes if sides else (), key=lambda axis: value(Iota(axis)) not in sides):
        place = None if axis.name in over else solved(test, axis)
        if place is None or place.kind != "whole" or not place.names & over:
            continue
        if axis.name not in op.source.names or not is_arithmetic(place):
            return axis, place
    return None


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
            stored = apply("as real" if one.kind == "real" else "as i64", then) if then.is_host else then
            source = kept(rest, moved(stored, given))
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
        case Map("/", (over, by), False):
            given_of = [axis for axis in by.axes if axis.name in given]
            there = all_of(*(test for axis in given_of for test in is_point(given[axis.name], axis)))
            divisor = moved(by, given) if there is None else where(there, moved(by, given), real(1))
            return applied("/", moved(over, given), divisor)
        case Read(source, index, outside, None) if outside != "check" and all(is_arithmetic(at) for _, at in index):
            new = tuple((name, placed(at, given)) for name, at in index)
            if source.names.isdisjoint(given):
                return value(Read(source, new, "masked"))
    return placed(one, given)
