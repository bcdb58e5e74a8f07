"""Names of axes that an operation binds: equal sums are one value only where they name what they sum alike."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.types import Coordinate
from ...records import replace
from ..ops import Axis, Contract, Iota, Map, Normalize, Read, Reduce, Value, value, with_operands
from .patterns import Found, No, Target

_RENAMED = (Iota, Map, Read, Reduce, Contract, Normalize)
_MOST = 40  # Steps that are taken to find what varies with an axis.


def name_alike(one: Value, found: Found, target: Target) -> Value | No | None:
    """An axis that is reduced has the name that it has in what is read along it, unless something has its own name by
    itself: what else is made of that would be made twice."""
    op = one.op
    assert isinstance(op, Reduce)
    parts = [part for part in (op.source, op.where) if part is not None]
    for axis in op.over:
        names = [name for part in parts for name in _read_along(part, axis)]
        name = max(names, key=names.count, default=axis.name)
        if name == axis.name or name in one.names or any(name == other.name for other in op.over):
            continue
        # What has the axis by this name would have to be read along the new one, and the rule would turn in circles.
        if any(_has_name(part, axis.name) for part in parts):
            continue
        new = Axis(name, axis.extent)
        renamed = [rename(part, axis, new) for part in parts]
        if any(part is None for part in renamed):
            continue
        over = tuple(sorted((new if other is axis else other for other in op.over), key=lambda other: other.name))
        where = renamed[1] if op.where is not None else None
        assert renamed[0] is not None
        return value(replace(op, source=renamed[0], over=over, where=where))
    return None


def _varying(one: Value, name: Coordinate) -> list[Value] | None:
    """What a value is made of that varies with an axis, each after its operands; None where that is much, as a whole
    stack of layers is."""
    seen: dict[Value, None] = {}
    waiting, steps = [(one, False)], 0
    while waiting:
        top, done = waiting.pop()
        steps += 1
        if steps > _MOST:
            return None
        if done:
            seen[top] = None
        elif top not in seen and name in top.names:
            waiting.append((top, True))
            waiting += [(part, False) for part in _free_in(top, name) if part not in seen]
    return list(seen)


def _free_in(one: Value, name: Coordinate) -> tuple[Value, ...]:
    """The operands in which an axis of this name is the value's own: an axis that is read at places is not."""
    parts = one.parts
    if isinstance(one.op, Read) and name in dict(one.op.index):
        return tuple(part for part in parts if part is not one.op.source)
    return parts


def _has_name(one: Value, name: Coordinate) -> bool:
    """Whether an array that a value is made of has an axis by this name, and is not read along it."""
    return any(not isinstance(part.op, _RENAMED) for part in _varying(one, name) or ())


def _read_along(one: Value, axis: Axis) -> Iterator[Coordinate]:
    """The names of axes that are read along this one, from end to end."""
    for part in _varying(one, axis.name) or ():
        if isinstance(part.op, Read):
            for name, at in part.op.index:
                whole = part.op.source.extent(name) == axis.extent
                if whole and isinstance(at.op, Iota) and at.op.axis == axis:
                    yield name


def rename(one: Value, old: Axis, new: Axis) -> Value | None:
    """A value with another name for one of its axes; None where something in it has that name already, or there is
    much to rename."""
    made: dict[Value, Value] = {}
    varying = _varying(one, old.name)
    if varying is None:
        return None
    for part in varying:
        if new.name in part.names:
            return None
        match part.op:
            case Iota():
                made[part] = value(Iota(new))
            case Read():
                made[part] = _renamed_read(part.op, old.name, made)
            case Map() | Contract() | Reduce():
                made[part] = value(with_operands(part, lambda inner: made.get(inner, inner)))
            case Normalize(along=along):
                inner = with_operands(part, lambda inner: made.get(inner, inner))
                assert isinstance(inner, Normalize)
                made[part] = value(replace(inner, along=new) if along == old else inner)
            case _:
                made[part] = value(Read(part, ((old.name, value(Iota(new))),)))
        if new.name not in made[part].names or old.name in made[part].names:
            return None
    return made.get(one, one)


def _renamed_read(op: Read, old: Coordinate, made: dict[Value, Value]) -> Value:
    source = op.source if old in dict(op.index) else made.get(op.source, op.source)
    index = []
    for name, at in op.index:
        place = made.get(at, at)
        if not (isinstance(place.op, Iota) and place.op.axis == source.axis(name)):
            index.append((name, place))
    under = None if op.under is None else made.get(op.under, op.under)
    return value(Read(source, tuple(index), op.outside, under)) if index else source
