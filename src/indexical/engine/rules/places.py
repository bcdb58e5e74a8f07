"""Reads at places: one-hot sums, tables that are read at a distance, views of views."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Polynomial, expression, number, polynomial
from ...ir.types import Coordinate
from ..known import LONGEST
from ..ops import (
    Axis,
    Carried,
    Contract,
    Iota,
    Map,
    Number,
    Outside,
    Read,
    Reduce,
    Value,
    Write,
    all_of,
    conjuncts,
    host,
    value,
)
from ..order import is_view
from ..reach import ends_of, is_axis
from .patterns import Found, No, Target
from .terms import NOWHERE, Term, added, applied, cast, fresh, kept, last_point, names_of, promoted, terms_of, whole

# Why a table that is read at given places is not multiplied as a whole.
_MANY = "the table may have far more places than are given"


def one_hot(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum of which a condition leaves one point is the value at that point, and 0 where there is no such point."""
    op = one.op
    assert isinstance(op, Reduce)
    pin = pinned(op)
    if pin is None:
        return None
    axis, place, rest_of_tests = pin
    given = {axis.name: place}
    others = [placed(other, given) for other in rest_of_tests]
    inside = all_of(*is_point(place, axis))
    rest = tuple(other for other in op.over if other is not axis)
    source = placed(op.source, given)
    if rest:
        return value(Reduce("sum", source, rest, all_of(inside, *others), op.checked))
    is_padded = isinstance(source.op, Read) and source.op.outside == "masked"
    if is_padded and not isinstance(op.source.op, Read):
        inside = None  # It is 0 outside already; of a view, there may be more outside.
    return kept(all_of(inside, *others), source)


def some_point(one: Value, found: Found, target: Target) -> Value | No | None:
    """Whether there is a point at which a coordinate is as a condition says, and all others hold."""
    op = one.op
    assert isinstance(op, Reduce)
    tests = [*conjuncts(op.source), *conjuncts(op.where)]
    pin = pinned(Reduce("any", op.source, op.over, all_of(*tests)))
    if pin is None:
        return None
    axis, place, rest_of_tests = pin
    tests = [*is_point(place, axis), *(placed(other, {axis.name: place}) for other in rest_of_tests)]
    rest = tuple(other for other in op.over if other is not axis)
    here = all_of(*tests)
    assert here is not None
    return value(Reduce("any", here, rest)) if rest else here


def pinned(op: Reduce) -> tuple[Axis, Value, list[Value]] | None:
    """The axis of which a condition leaves one point, that point, and the other conditions. Arithmetic with another
    coordinate that is summed is no such point, unless the axis stands alone, but a view, which a write sums."""
    tests, over = conjuncts(op.where), names_of(op.over)
    for n, test in enumerate(tests):
        for axis in op.over:
            place = solved(test, axis)
            if place is None:
                continue
            if place.known.whole is None or not place.names & over or value(Iota(axis)) in test.parts:
                return axis, place, tests[:n] + tests[n + 1 :]
    return None


def solved(test: Value, axis: Axis) -> Value | None:
    """The value that an axis is said to have by an equality; None for any other condition."""
    match test.op:
        case Map("==", (a, b)) if axis in test.axes:
            for own, other in ((a, b), (b, a)):
                if own is value(Iota(axis)) and axis not in other.axes:
                    return other
                if axis not in other.axes and (place := _checked_point(own, other, axis)) is not None:
                    return place
            return _isolated([*terms_of(a), *(Term(term.value, not term.positive) for term in terms_of(b))], axis)
    return None


def _checked_point(own: Value, other: Value, axis: Axis) -> Value | None:
    """The point of an axis at which a checked sum, or a difference, of it and another value is equal to a third. It is
    counted from the last point, where the sum would fail first."""
    point, last = value(Iota(axis)), last_point(axis)
    match own.op:
        case Map("+" | "-" as fn, (a, b), True) if point in (a, b) and (axis in a.axes) != (axis in b.axes):
            ends = value(Map(fn, tuple(last if part is point else part for part in (a, b)), True))
            falls = fn == "-" and b is point
            return applied("-" if falls else "+", last, applied("-", other, ends))
    return None


def _isolated(terms: list[Term], axis: Axis) -> Value | None:
    """The point of an axis at which terms add up to 0, where it is one of them. It may leave 64 bits; it is no point
    then, whatever it comes back to: the sums that it is made of do not leave them."""
    own = [term for term in terms if axis in term.value.axes]
    if len(own) != 1 or own[0].value is not value(Iota(axis)) or any(term.value.kind != "whole" for term in terms):
        return None
    number, rest = Polynomial({}), []
    for term in terms:
        is_positive = term.positive != own[0].positive
        if isinstance(term.value.op, Number):
            number = number.plus(polynomial(term.value.op.expr), 1 if is_positive else -1)
        elif term is not own[0]:
            rest.append(Term(cast(term.value, "i64"), is_positive))
    if number.terms or not rest:
        rest.append(Term(host(expression(number, NOWHERE))))
    return added(rest)


def is_point(place: Value, axis: Axis) -> list[Value]:
    """The conditions under which a place is a point of an axis, but those that are known to hold."""
    counts = place.known.least >= 0
    return [*(() if counts else (applied(">=", place, whole(0)),)), applied("<", place, host(axis.extent))]


def placed(one: Value, given: Mapping[Coordinate, Value]) -> Value:
    """A value with places put for some of its axes. What is made of coordinates alone is made anew, all else read."""
    own = tuple((name, given[name]) for name in sorted(given) if name in one.names)
    if not own:
        return one
    match one.op:
        case Iota(axis):
            return given[axis.name]
        case Map(fn, args, checked) if one.kind != "real" and is_arithmetic(one):
            new = [placed(arg, given) for arg in args]
            return applied(fn, *new) if not checked else value(Map(fn, tuple(new), True))
        case Map("*", args) if one.kind == "real" and all(arg.names != one.names for arg in args):
            return applied("*", *(placed(arg, given) for arg in args))  # It is larger than each of them.
    return value(Read(one, own, "masked"))


def is_arithmetic(one: Value) -> bool:
    """Whether a value is made of coordinates and numbers alone."""
    waiting, seen = [one], {one}
    while waiting:
        match waiting.pop().op:
            case Iota() | Number():
                pass
            case Map(_, args):
                waiting += [arg for arg in args if arg not in seen]
                seen.update(args)
            case _:
                return False
    return True


# ----------------------------------------------------------- tables at a distance


def contract_before_read(one: Value, found: Found, target: Target) -> Value | No | None:
    """A table that is read at a place of every pair is contracted for every place that it has, and the result is read:
    the read keeps its own guard."""
    op = one.op
    assert isinstance(op, Contract)
    over = names_of(op.over)
    for n, factor in enumerate(op.factors):
        read = factor.op
        if not isinstance(read, Read) or isinstance(read.source.op, Carried):
            continue
        others = [other for m, other in enumerate(op.factors) if m != n]
        reached = frozenset[Coordinate]().union(*(at.names for _, at in read.index))
        if reached & over:
            if not is_view(factor):
                return No("the place varies with what is summed")
            continue
        if not reached or (is_view(factor) and not any(len(at.names) > 1 for _, at in read.index)):
            continue
        if not all(is_arithmetic(at) for _, at in read.index):
            return No(_MANY)
        taken = frozenset[Coordinate]().union(factor.names, over, read.source.names, *(other.names for other in others))
        names = _fresh_names(read, taken)
        lengths = {old: _reached(at, read.source.extent(old)) for old, at in read.index}
        bare = tuple((old, value(Iota(Axis(new, lengths[old])))) for old, new in names.items())
        table = value(Read(read.source, bare))
        inside = value(Contract((*others, table), op.over))
        return value(Read(inside, _index([(names[old], at) for old, at in read.index]), read.outside, read.under))
    return None


def _fresh_names(read: Read, taken: frozenset[Coordinate]) -> dict[Coordinate, Coordinate]:
    names: dict[Coordinate, Coordinate] = {}
    for old, _ in read.index:
        names[old] = fresh(old, taken | frozenset(names.values()))
    return names


def _index(pairs: list[tuple[Coordinate, Value]]) -> tuple[tuple[Coordinate, Value], ...]:
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def write_before_contract(one: Value, found: Found, target: Target) -> Value | No | None:
    """Weights of a table that is read at a place of every pair are added up for every place that it has, and these are
    contracted with the table."""
    op = one.op
    assert isinstance(op, Contract)
    over = names_of(op.over)
    if len(op.factors) != 2 or len(over) != 1:
        return None
    for read, weights in (op.factors, op.factors[::-1]):
        inner = read.op
        if not isinstance(inner, Read) or is_view(read) or isinstance(inner.source.op, Carried):
            continue
        pairs = [pair for pair in inner.index if pair[1].names & over and pair[1].names - over]
        if len(pairs) != 1:
            continue
        [(name, place)] = pairs
        others = [pair for pair in inner.index if pair[0] != name]
        if inner.source.names.difference(dict(inner.index)) & (place.names | over):
            continue  # A diagonal.
        if any(at.names & over for _, at in others):
            continue
        if not is_arithmetic(place):
            return No(_MANY)
        if not read.names - weights.names:
            continue
        if not place.names <= weights.names:
            return No("the weights do not have all axes of the place")
        if inner.under is not None and not inner.under.names <= weights.names:
            return No("the guard has an axis that the weights do not have")
        if not target.is_finite(inner.source):
            return No("a row of the table that is not read at a pair may be infinite, and 0 times it is not 0")
        length = _reached(place, inner.source.extent(name))
        axis = Axis(fresh(name, read.names | weights.names | inner.source.names), length)
        may_leave = not all(is_axis(at, inner.source.axis(other)) for other, at in others)
        if may_leave and inner.outside == "check":
            return No("other places of the table have to be there, too")
        index = _index([(name, value(Iota(axis))), *others])
        table = value(Read(inner.source, index, inner.outside if may_leave else "never"))
        return value(Contract((_by_place(weights, axis, op.over[0], name, inner), table), (axis,)))
    return None


def _by_place(weights: Value, axis: Axis, key: Axis, name: Coordinate, read: Read) -> Value:
    """Weights for every place of an axis: those of the one key that has it, or the sum of all that do. A place that
    has to be there has to be there on this way too."""
    place = dict(read.index)[name]
    at = _key_at(place, key, value(Iota(axis)))
    if at is None:
        outside: Outside = "check" if read.outside == "check" else "masked"
        return value(Write(kept(read.under, weights), ((axis, place),), (key,), "add", outside, read.under))
    tests = [read.under]
    if read.outside == "check":
        every = Axis(axis.name, read.source.extent(name))
        there = value(Read(value(Iota(every)), ((axis.name, place),), "check", read.under))
        tests.append(applied(">=", there, whole(0)))
    asked = kept(all_of(*tests), weights)
    return value(Read(asked, ((key.name, at),), "masked"))


def _reached(place: Value, extent: ir.Expr) -> ir.Expr:
    """The number of places that are there and may be read."""
    ends = ends_of(place)
    if not is_arithmetic(place) or (ends is None and place.known.most >= LONGEST):
        return extent
    beyond = build.whole(place.known.most + 1, NOWHERE) if ends is None else expression(ends[1], NOWHERE)
    return extent if beyond == extent else build.apply("min", (extent, beyond), "whole", NOWHERE)


def _key_at(place: Value, key: Axis, there: Value) -> Value | None:
    """The key that has a place, where that is one more or one less for the next key."""
    known = place.known.whole
    if known is None or not is_arithmetic(place):
        return None
    step = known.terms.get(frozenset(((key.name, 1),)))
    if step not in (1, -1) or sum(key.name in dict(term) for term in known.terms) != 1:
        return None
    first = placed(place, {key.name: whole(0)})
    return applied("-", *((there, first) if step == 1 else (first, there)))


# ----------------------------------------------------------------------------- views


def merge_reads(one: Value, found: Found, target: Target) -> Value | No | None:
    """A read of a view is one read. Where both may leave their source, both guards are needed, and it stays two, unless
    each leaves it along axes of its own."""
    outer, inner = one.op, found["inner"].op
    assert isinstance(outer, Read)
    assert isinstance(inner, Read)
    if isinstance(inner.source.op, Carried):
        return None
    if inner.outside != "never" and outer.outside != "never" and not _are_apart(outer, inner):
        return No("both may leave what they read, and one read has one guard")
    given, named = dict(outer.index), dict(inner.index)
    if outer.outside != "never" and not all(_is_all(at, inner.source.axis(name), given) for name, at in inner.index):
        return No("what is outside of a part of an array may be inside of the array")
    if any(not is_arithmetic(at) and not at.names.isdisjoint(given) for at in named.values()):
        return None
    index = []
    for axis in inner.source.axes:
        at = named.get(axis.name)
        new = given.get(axis.name) if at is None else at if at.names.isdisjoint(given) else _put(at, given)
        if new is not None and not (isinstance(new.op, Iota) and new.op.axis == axis):
            index.append((axis.name, new))
    if not index:
        return inner.source
    outside = outer.outside if inner.outside == "never" else inner.outside
    under = outer.under if inner.outside == "never" else inner.under
    if inner.outside != "never" and under is not None:
        under = _put(under, given) if is_arithmetic(under) else placed(under, given)
    return value(Read(inner.source, tuple(index), outside, under))


def _is_all(at: Value, axis: Axis, given: Mapping[Coordinate, Value]) -> bool:
    """Whether a place that is read by other places reaches all points of an axis, each once, if it is."""
    if at.names.isdisjoint(given):
        return True
    extent = polynomial(axis.extent)
    return [polynomial(own.extent) for own in at.axes] == [extent] and ends_of(at) == (number(0), extent)


def _are_apart(outer: Read, inner: Read) -> bool:
    """Whether the places of two reads, both 0 outside, have nothing to do with each other."""
    padded = outer.outside == inner.outside == "masked"
    moved = frozenset(name for name, _ in inner.index).union(*(at.names for _, at in inner.index))
    return padded and not any(name in moved for name, _ in outer.index)


def _put(at: Value, given: Mapping[Coordinate, Value]) -> Value:
    """An index with places put for its axes."""
    match at.op:
        case Iota(axis):
            return given.get(axis.name, at)
        case Map(fn, args):
            return applied(fn, *(_put(arg, given) for arg in args))
    return at


def add_before_read(one: Value, found: Found, target: Target) -> Value | No | None:
    """What is added in every turn of a loop to a row of a product that is computed before it is added to all rows."""
    row, other = found["row"].op, found["other"]
    assert isinstance(row, Read)
    if not isinstance(row.source.op, Contract) or row.source.symbols or row.outside != "never" or one.kind != "real":
        return None
    indexed = {name for name, _ in row.index}
    if not all(at.is_host and at.symbols for _, at in row.index):
        return None
    if other.is_host or other.symbols or not other.names <= row.source.names - indexed:
        return None
    return value(Read(applied("+", *promoted((row.source, other))), row.index))
