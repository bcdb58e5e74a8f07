"""Reductions over all points up to one, or from one on, which a running total has for all of them at once."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.affine import Polynomial, expression, number, of_atom, polynomial
from ...ir.types import Coordinate
from ...records import dataclass, replace
from ..ops import Axis, Iota, Normalize, Outside, Read, Reduce, Value, all_of, apply, conjuncts, host, value
from ..reach import not_negative
from ..words import Names
from .patterns import Found, No, Target
from .terms import NOWHERE, applied, cast, infinity, is_number, last_point, real, truth, where, whole, zero

# What runs along an axis for each reduction, and what the plan calls that.
RUNNING = {"sum": "cumsum", "prod": "cumprod", "max": "cummax", "min": "cummin", "any": "cummax", "all": "cummin"}
_WORDS = {
    "prod": "product", "max": "maximum", "min": "minimum",
    "argmax": "place of the maximum", "argmin": "place of the minimum",
}  # fmt: skip
# What finds the largest so far, and how a number compares that is larger.
_RECORDS = {"argmax": ("max", ">"), "argmin": ("min", "<")}


@dataclass(frozen=True, slots=True)
class Order:
    """`key <= query + shift`; where it is not `forward`, `key >= query - shift`."""

    key: Axis
    query: Axis
    shift: Polynomial
    forward: bool

    @property
    def place(self) -> Value:
        """The last point that counts, from the first; or from the last, where it runs backward."""
        query = value(Iota(self.query))
        if not self.forward:
            return applied("-", host(expression(polynomial(self.key.extent) - 1 + self.shift, NOWHERE)), query)
        shift = host(expression(self.shift, NOWHERE))
        return query if is_number(shift, 0) else applied("+", query, shift)

    @property
    def ends_inside(self) -> bool:
        """Whether that is surely no point behind the last."""
        longer = polynomial(self.key.extent) - polynomial(self.query.extent)
        return _is_surely((longer if self.forward else number(0)) - self.shift)

    @property
    def there(self) -> Iterator[Value]:
        """The conditions under which some point counts: there is one as soon as the last one is."""
        if not self.begins_inside:
            yield applied(">=", self.place, whole(0))
        if not _is_surely(polynomial(self.key.extent) - polynomial(self.query.extent)):
            yield applied(">", host(self.key.extent), whole(0))

    @property
    def begins_inside(self) -> bool:
        """Whether that is surely no point before the first."""
        longer = polynomial(self.key.extent) - polynomial(self.query.extent)
        return _is_surely(self.shift if self.forward else longer + self.shift)


def _is_surely(least: Polynomial) -> bool:
    return least.constant is not None and least.constant >= 0


def running(one: Value, found: Found, target: Target) -> Value | No | None:
    """A reduction at the points up to one is what a running one has there."""
    op = one.op
    assert isinstance(op, Reduce)
    prefix = prefix_of(op)
    if prefix is None or op.fn not in {*RUNNING, *_RECORDS}:
        return None
    order, source, others, asked = prefix
    if op.fn in _RECORDS:
        return _place(op, *prefix)
    if op.checked and (op.fn == "prod" or asked is not None):
        return No("a total that nobody asks for may not fit its whole numbers")
    if _is_there(op, source, others):
        said = None if source is truth() else source
        return all_of(said, asked, *order.there) or truth()
    nothing = _nothing(op.fn, one)
    if _counts(op, source, others):
        last = order.place if order.ends_inside else applied("min", order.place, last_point(order.key))
        count = applied("+", last, whole(1))
        count = count if order.begins_inside else applied("max", count, whole(0))
        return count if asked is None else where(asked, count, nothing)
    body = source if one.kind == "bool" else cast(source, one.dtype if one.kind == "real" else "i64")
    if one.kind == "bool":
        body = apply("as i64", body)
    if others is not None:
        nothing_here = apply("as i64", nothing) if one.kind == "bool" else nothing
        body = where(others, body, nothing_here)
    if order.key.name not in body.names:
        return None
    totals = value(Normalize(RUNNING[op.fn], _turned(body, order), order.key, None, op.checked))
    totals = applied(">", totals, whole(0)) if op.fn in ("any", "all") else totals
    result = _at_queries(totals, order, None if op.fn in ("sum", "any") else nothing)
    return result if asked is None else where(asked, result, nothing)


def some_pair(one: Value, found: Found, target: Target) -> Value | None:
    """Whether there is some pair of a query and a key, where whether a query has a key is a question of its place."""
    op = one.op
    assert isinstance(op, Reduce)
    for axis in op.over if len(op.over) > 1 else ():
        inner = replace(op, over=(axis,))
        prefix = prefix_of(inner)
        if prefix is not None and _is_there(inner, prefix[1], prefix[2]):
            return value(Reduce("any", value(inner), tuple(one for one in op.over if one is not axis)))
    return None


def _place(op: Reduce, order: Order, source: Value, others: Value | None, asked: Value | None) -> Value | None:
    """The first place of the largest number so far: the last point at which a number is larger than all before it. From
    the end it is one that is as large."""
    if order.key.name not in source.names:
        return None
    fn, larger = _RECORDS[op.fn]
    key, last = order.key, last_point(order.key)
    here = value(Iota(key))
    numbers = _turned(cast(source, None if source.kind == "real" else "i64"), order)
    there = None if others is None else _turned(others, order)
    most = value(Normalize(RUNNING[fn], where(there, numbers, _nothing(fn, source)) if there else numbers, key))
    before = value(Read(most, ((key.name, applied("-", here, whole(1))),), "masked"))
    is_first = applied("==", here, whole(0))
    if there is not None:
        count = value(Normalize("cumsum", where(there, whole(1), whole(0)), key))
        is_first = applied("==", count, whole(1))
    is_larger = applied(larger if order.forward else f"{larger}=", numbers, before)
    is_odd = applied("!=", numbers, numbers)  # NaN comes before all numbers.
    if order.forward:
        is_odd = applied("&&", is_odd, applied("==", before, before))
    is_new = applied("||", is_first, applied("||", is_larger, is_odd))
    is_new = is_new if there is None else applied("&&", there, is_new)
    places = value(Normalize("cummax", where(is_new, here, whole(-1)), key))
    if not order.forward:
        places = where(applied(">=", places, whole(0)), applied("-", last, places), whole(-1))
    result = _at_queries(places, order, whole(-1))
    return result if asked is None else where(asked, result, whole(-1))


def prefix_of(op: Reduce) -> tuple[Order, Value, Value | None, Value | None] | None:
    """The order of a prefix, what it reduces, and the other conditions: those of keys, and those of queries alone."""
    if len(op.over) != 1:
        return None
    source, tests = op.source, conjuncts(op.where)
    if op.fn == "any" and not tests:
        source, tests = truth(), conjuncts(source)
    for n, test in enumerate(tests):
        order = order_of(test, op.over[0])
        if order is None or order.query.name in source.names:
            continue
        rest = tests[:n] + tests[n + 1 :]
        pair = {order.key.name, order.query.name}
        if any(pair <= other.names for other in rest):
            continue
        asked = [other for other in rest if order.query.name in other.names]
        others = [other for other in rest if order.query.name not in other.names]
        if source.is_host and op.fn == "any":
            source, others = all_of(*others) or source, []
        return order, source, all_of(*others), all_of(*asked)
    return None


def _is_there(op: Reduce, source: Value, others: Value | None) -> bool:
    """Whether a prefix asks no more than whether it has points."""
    return op.fn == "any" and source.is_host and others is None


def _counts(op: Reduce, source: Value, others: Value | None) -> bool:
    """Whether a prefix asks no more than how many points it has."""
    return op.fn == "sum" and is_number(source, 1) and source.kind == "whole" and others is None


def order_of(test: Value, key: Axis) -> Order | None:
    """The order that a condition is, of a key and another coordinate; None for any other condition."""
    least = not_negative(test)
    if least is None or key.name not in test.names:
        return None
    slope = least.terms.get(frozenset(((key.name, 1),)), 0)
    queries = [axis for axis in test.axes if axis.name != key.name]
    if slope not in (1, -1) or len(queries) != 1:
        return None
    (query,) = queries
    rest = least.plus(of_atom(key.name) - of_atom(query.name), -slope)
    if any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in rest.atoms):
        return None
    return Order(key, query, rest, slope < 0)


def _nothing(fn: str, one: Value) -> Value:
    """The total of no points."""
    match fn:
        case "sum":
            return zero(one.kind)
        case "prod":
            return real(1) if one.kind == "real" else whole(1)
        case "any" | "all":
            return applied("==" if fn == "all" else "!=", whole(0), whole(0))
    if one.kind == "whole":
        return whole(-(2**63) if fn == "max" else 2**63 - 1)
    return infinity(-1 if fn == "max" else 1)


def _turned(body: Value, order: Order) -> Value:
    """What runs along: from the end, where it runs backward."""
    key = order.key
    if order.forward or key.name not in body.names:
        return body
    return value(Read(body, ((key.name, applied("-", last_point(key), value(Iota(key)))),)))


def _at_queries(totals: Value, order: Order, nothing: Value | None) -> Value:
    """Running totals, each at the last point that counts; `nothing` where there is none, None for 0."""
    place = order.place
    at = place if order.ends_inside else applied("min", place, last_point(order.key))
    outside: Outside = "never" if order.ends_inside and order.begins_inside else "masked"
    result = value(Read(totals, ((order.key.name, at),), outside))
    if outside == "never" or nothing is None:
        return result
    return where(applied(">=", at, whole(0)), result, nothing)


def by_running(before: Value, after: Value, names: Names) -> str:
    """A running total, and along which axis."""
    assert isinstance(before.op, Reduce)
    found = prefix_of(before.op)
    assert found is not None
    order, source, others, _ = found
    if _is_there(before.op, source, others) or _counts(before.op, source, others):
        return ""  # Nothing runs.
    word, way = _WORDS.get(before.op.fn, before.op.fn), "up to" if order.forward else "from"
    return f"a running {word} along `{order.key.name}`, {way} each `{order.query.name}`"
