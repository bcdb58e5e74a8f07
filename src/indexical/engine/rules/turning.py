"""Axes that are counted from their end, where an array is read backward: of several arrays the least is turned."""

from __future__ import annotations

from ...ir.types import Coordinate
from ..ops import Axis, Contract, Iota, Read, Value, merged, value
from .cost import points
from .patterns import Found, No, Target
from .places import is_arithmetic, placed
from .terms import applied, last_point


def count_from_end(one: Value, found: Found, target: Target) -> Value | No | None:
    """A contraction of windows that run backward: the axis is counted from its end, so that the other factors, or the
    result, are turned in their place. Libraries copy what is turned, and windows are larger than what they are of."""
    op = one.op
    assert isinstance(op, Contract)
    for axis in merged(*(factor.axes for factor in op.factors)):
        back = [factor for factor in op.factors if _runs_back(factor, axis.name)]
        others = [factor for factor in (*op.factors, one) if factor not in back and axis.name in factor.names]
        least, most = (points(one.axes) for one in back), (points(one.axes) for one in others)
        if not back or min(least) <= max(most, default=0):
            continue
        turned = applied("-", last_point(axis), value(Iota(axis)))
        made = value(Contract(tuple(_turned(factor, axis, turned) for factor in op.factors), op.over))
        return value(Read(made, ((axis.name, turned),))) if axis.name in one.names else made
    return None


def _runs_back(one: Value, name: Coordinate) -> bool:
    """Whether an array is read at places that fall along an axis and vary with another."""
    if not isinstance(one.op, Read) or name in one.op.source.names.difference(dict(one.op.index)):
        return False
    places = [at for _, at in one.op.index if name in at.names]
    return bool(places) and all(
        len(at.names) > 1
        and at.known.whole is not None
        and is_arithmetic(at)
        and at.known.whole.terms.get(frozenset(((name, 1),)), 0) < 0
        for at in places
    )


def _turned(one: Value, axis: Axis, turned: Value) -> Value:
    """An array along an axis that is counted from its end."""
    if axis.name not in one.names:
        return one
    if not _runs_back(one, axis.name):
        return value(Read(one, ((axis.name, turned),)))
    op = one.op
    assert isinstance(op, Read)
    given = {axis.name: turned}
    index = tuple((name, placed(at, given)) for name, at in op.index)
    return value(Read(op.source, index, op.outside, None if op.under is None else placed(op.under, given)))
