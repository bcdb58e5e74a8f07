"""Arrays that the caller gave away, with new rows behind those that they have, or at places: the rows are stored there,
and nothing else of the array is touched or copied.

Whoever gives an array away says that the places of new rows are there, each once. Whether something still reads the
array as it was is seen where it is printed: it is copied then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...ir.affine import Polynomial, polynomial
from ...ir.types import Coordinate, Dtype, widest
from ..ops import Axis, Input, Iota, Map, Put, Read, Reduce, Value, apply, conjuncts, host, value
from .patterns import Found, No, Target
from .terms import cast, fresh, names_of, terms_of

# What a condition leaves of an axis: the axis, the first point that stays, and the first point behind these.
_Part = tuple[Axis, Value, Value]


def is_array(one: Value) -> bool:
    """Whether this is an array of the caller, whatever its axes are called, or one in another dtype."""
    match one.op:
        case Map(fn, (source,)) if fn.startswith("as "):
            one = source
    match one.op:
        case Read(source, index, "never"):
            renamed = len(one.axes) == len(source.axes) and all(_is_all(at, source, name) for name, at in index)
            return isinstance(source.op, Input) and renamed
    return isinstance(one.op, Input)


def _is_all(at: Value, source: Value, name: Coordinate) -> bool:
    """Whether a place is every point of an axis of an array, in order."""
    return isinstance(at.op, Iota) and at.op.axis.extent == source.extent(name)


# ------------------------------------------------------------------- behind other rows


def put_behind(one: Value, found: Found, target: Target) -> Value | No | None:
    """New rows from the first place on that a condition names, as many as there are."""
    part, (rows, casts) = _part(found["test"]), _widened(found["rows"])
    if part is None or not isinstance(rows.op, Read) or rows.op.outside == "check":
        return None
    own, first, end = part
    source, index = rows.op.source, dict(rows.op.index)
    along = [name for name, at in index.items() if own.name in at.names]
    if len(along) != 1 or own.name in source.names - index.keys():
        return None
    name, length = along[0], source.extent(along[0])
    if _total((index.pop(name), 1), (first, 1), (value(Iota(own)), -1)) != Polynomial({}):
        return None
    why = _unfit(one, found["past"])
    if why is None and _total((end, 1), (first, -1)) != polynomial(length):
        why = No("nothing says that there are as many new rows as places for them")
    if why is not None:
        return why
    row = Axis(fresh(name, one.names) if name in one.names else name, length)
    here = value(Iota(row))
    new = _read(source, index if row.name == name else index | {name: here})
    for fn in casts:
        new = apply(fn, new)
    return _put(found["past"], {own.name: apply("+", first, here)}, new, (row,))


def _part(test: Value) -> _Part | None:
    """What a condition leaves of an axis, where it is all from a point on, or all between two."""
    tests = [one.op for one in conjuncts(test)]
    match tests[0]:
        case Map(">=", (Value(op=Iota(own)), first)) if own.name not in first.names:
            pass
        case _:
            return None
    match tests[1:]:
        case []:
            return own, first, host(own.extent)
        case [Map("<", (Value(op=Iota(again)), end))] if again == own and own.name not in end.names:
            return own, first, end
    return None


def _widened(one: Value) -> tuple[Value, list[str]]:
    """A value before it was cast, and the casts in their order."""
    casts: list[str] = []
    while isinstance(one.op, Map) and one.op.fn.startswith("as ") and not one.op.checked:
        casts.insert(0, one.op.fn)
        one = one.op.args[0]
    return one, casts


def _total(*parts: tuple[Value, int]) -> Polynomial | None:
    """What whole values, each so many times, add up to, where that is made of coordinates and numbers alone."""
    found, others = Polynomial({}), Counter[Value]()
    for one, times in parts:
        for term in terms_of(one):
            sign, known = times if term.positive else -times, term.value.known.whole
            if known is not None:
                found = found.plus(known, sign)
            else:
                others[term.value] += sign
    return None if any(others.values()) else found


def _read(source: Value, index: Mapping[Coordinate, Value]) -> Value:
    """An array read at places: nothing of it is outside where these are all points of its axes."""
    if not index:
        return source
    whole = all(_is_all(at, source, name) for name, at in index.items())
    return value(Read(source, tuple(sorted(index.items(), key=lambda pair: pair[0])), "never" if whole else "masked"))


# -------------------------------------------------------------------------- at places


def is_at_places(one: Value) -> bool:
    """Whether this is the sum of new rows where a point has a place, and an array elsewhere."""
    found = _choice(one)
    return found is not None and is_array(found[1])


def _choice(one: Value) -> tuple[Reduce, Value] | None:
    """The sum of what has a place, and what stands where nothing has: as it was before a sum of few bits was taken in
    more, and rounded."""
    match one.op:
        case Map("where", (some, rows, past)):
            pass
        case Map(fn, (Value(op=Map("where", (some, rows, wide))),)) if fn.startswith("as "):
            past = _narrow(wide, one.dtype)
        case _:
            return None
    match some.op, rows.op:
        case Reduce("any", here, over, None), Reduce("sum" | "any", where=guard) as made:
            return (made, past) if guard is here and made.over == over else None
    return None


def _narrow(one: Value, dtype: Dtype | None) -> Value:
    """A value before it was cast from a dtype that has fewer numbers; itself, where it was not."""
    match one.op:
        case Map(fn, (source,), False) if fn.startswith("as ") and source.dtype == dtype:
            return source if widest((dtype, one.dtype)) == one.dtype else one
    return one


def put_at_places(one: Value, found: Found, target: Target) -> Value | No | None:
    """New rows at places that are data. Of the rows at a place there is one, which is their sum in whatever bits."""
    choice = _choice(one)
    assert choice is not None
    reduced, past = choice
    over = names_of(reduced.over)
    places: dict[Coordinate, Value] = {}
    for test in conjuncts(reduced.where):
        match test.op:
            case Map("==", (at, Value(op=Iota(axis)))) if at.names <= over and axis.name not in over | places.keys():
                places[axis.name] = at
            case _:
                return None
    new = _narrow(reduced.source, one.dtype)
    if isinstance(past.op, Map) or not places.keys() <= past.names - new.names:
        return None
    why = _unfit(one, past)
    if why is None and any(at.names != over for at in places.values()):
        why = No("several rows have one place")
    if why is not None:
        return why
    if new.dtype != one.dtype and isinstance(one.op, Map) and one.op.fn != "where":
        new = value(Map(one.op.fn, (new,), one.op.checked))
    return _put(past, places, new, reduced.over)


# ---------------------------------------------------------------------------- written


def _unfit(one: Value, past: Value) -> No | None:
    """Why an array cannot be written to."""
    array = past
    while isinstance(array.op, Map | Read):
        array = array.parts[0]
    if not (isinstance(array.op, Input) and array.op.owned):
        return No("the caller keeps the array")
    if isinstance(past.op, Map):
        return No("the array has numbers of another dtype")
    return No("each turn of a loop would write to it") if one.symbols else None


def _put(into: Value, places: Mapping[Coordinate, Value], new: Value, gone: tuple[Axis, ...]) -> Value:
    index = tuple(sorted(places.items(), key=lambda pair: pair[0]))
    return value(Put(into, index, cast(new, into.dtype), gone))
