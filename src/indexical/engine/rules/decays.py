"""Sums of what came before, less with every step: `sum[k](g ** (i - k) * x[k] where k <= i)` is a recurrence that
multiplies by `g` in every step."""

from __future__ import annotations

from typing import TypeAlias

from ...ir.affine import Polynomial, expression, of_atom, polynomial
from ...ir.types import Coordinate
from ...records import dataclass
from ..ops import Iota, Library, Map, Outside, Read, Reduce, Value, all_of, apply, conjuncts, host, value
from ..words import Names
from .patterns import Found, No, Target
from .running import Order, order_of
from .sums import multiplied
from .terms import NOWHERE, applied, cast, factors_of, kept, last_point, summed, whole

DECAYED = "decayed"
_EXPONENTIALS = "exp exp2".split()


@dataclass(frozen=True, slots=True)
class Decay:
    """`base ** distance`, or an exponential of `rate * distance`, for which there is no base. The distance grows by
    `speed` with the query, falls as much with the key, and has a `rest`."""

    fn: str
    base: Value | None
    rate: Value | None
    speed: int
    rest: Polynomial

    def at(self, distance: Polynomial) -> Value:
        """The factor at a distance."""
        count = cast(apply("as real", host(expression(distance, NOWHERE))), "f64")
        if self.base is not None:
            return applied("**", self.base, cast(count, self.base.dtype))
        return applied(self.fn, count if self.rate is None else applied("*", cast(count, self.rate.dtype), self.rate))


def decayed(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum of which one factor only counts the steps between what is summed and where it is asked for."""
    op = summed(one)
    if DECAYED not in target.kernels or len(op.over) != 1 or one.kind != "real":
        return None
    prefix = decay_of(op)
    if prefix is None:
        return None
    order, decay, body, rest = prefix
    if target.isolate:
        return No("an infinite number would be handed on from step to step", "a scan with a decay")
    steps = decay.at(Polynomial({frozenset(): decay.speed if order.forward else -decay.speed}))
    result = _scanned(one, order, kept(rest, cast(body, one.dtype)), steps)
    sign = -decay.speed if order.forward else decay.speed
    extra = decay.rest.plus(order.shift, sign)
    return result if not extra.terms else applied("*", result, cast(decay.at(extra), one.dtype))


def decayed_by_steps(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum of which one factor is the product of one for each step between. It is seen before its parts are rewritten:
    that product would become a running one for each point of the key."""
    op = summed(one)
    if DECAYED not in target.kernels or len(op.over) != 1 or one.kind != "real":
        return None
    prefix = steps_of(op)
    if prefix is None:
        return None
    if target.isolate:
        return No("an infinite number would be handed on from step to step", "a scan with a decay")
    order, steps, alone, body, rest = prefix
    result = _scanned(one, order, kept(rest, cast(body, one.dtype)), steps)
    return result if alone is None else applied("*", result, cast(alone, one.dtype))


def _scanned(one: Value, order: Order, body: Value, steps: Value) -> Value:
    """The scan of a body, each step times its factor, at the queries of an order. Of one that runs backward, factors
    that vary with the key are turned already."""
    key, steps = order.key, cast(steps, one.dtype)
    if not order.forward:
        body = value(Read(body, ((key.name, applied("-", last_point(key), value(Iota(key)))),)))
    names = tuple(sorted((body.names | steps.names) - {key.name}))
    own = tuple((name,) for name in (*names, key.name))
    theirs = tuple((name,) if name in steps.names else () for name in (*names, key.name))
    axes = tuple(next(part.axis(name) for part in (body, steps) if name in part.names) for name in (*names, key.name))
    args = (body, steps if not steps.is_host else apply(f"as {one.dtype or 'f64'}", steps))
    scan = value(Library(DECAYED, args, (("", own), ("", theirs)), axes, own, (), "real", one.dtype))
    outside: Outside = "never" if order.begins_inside else "masked"
    return value(Read(scan, ((key.name, order.place),), outside))


# The order of a sum, the factor of each step, what varies with the query alone, what is summed without these, and its
# other conditions, which are of keys alone.
Stepped: TypeAlias = tuple[Order, Value, Value | None, Value, Value | None]


def steps_of(op: Reduce) -> Stepped | None:
    """The parts of a sum with a product of one factor for each step; None of any other."""
    tests, factors = conjuncts(op.where), factors_of(op.source)
    for n, test in enumerate(tests):
        order = order_of(test, op.over[0])
        if order is None or not order.ends_inside:
            continue
        rest, key, query = tests[:n] + tests[n + 1 :], order.key.name, order.query.name
        alone = [factor for factor in factors if query in factor.value.names and key not in factor.value.names]
        mixed = [factor for factor in factors if {key, query} <= factor.value.names]
        others = [factor for factor in factors if query not in factor.value.names]
        if len(mixed) != 1 or mixed[0].inverse or not others or any(query in other.names for other in rest):
            continue
        steps = _steps(mixed[0].value, order)
        if steps is not None and any(key in other.value.names for other in others):
            return order, steps, multiplied(alone) if alone else None, multiplied(others), all_of(*rest)
    return None


def _steps(one: Value, order: Order) -> Value | None:
    """The factor of each step, where a value is the product of all of them between the key and the query."""
    op = one.op
    if not isinstance(op, Reduce) or op.fn != "prod" or len(op.over) != 1 or len(tests := conjuncts(op.where)) != 2:
        return None
    ends = {end.query.name: end for test in tests if (end := order_of(test, op.over[0])) is not None}
    begin, end = ends.get(order.key.name), ends.get(order.query.name)
    if begin is None or end is None or begin.forward == order.forward or end.forward != order.forward:
        return None
    shift, (along,) = begin.shift.constant, op.over
    is_none_at_first = end.shift == order.shift - begin.shift - 1
    is_long = polynomial(along.extent) == polynomial(order.key.extent)
    if shift not in (0, -1) or not is_none_at_first or not is_long or op.source.names & ends.keys():
        return None
    here = value(Iota(order.key))
    place = applied("-", here, whole(shift + 1)) if order.forward else applied(
        "-", host(expression(polynomial(order.key.extent) + shift, NOWHERE)), here
    )
    return value(Read(op.source, ((along.name, place),), "masked"))


def decay_of(op: Reduce) -> tuple[Order, Decay, Value, Value | None] | None:
    """The order of a sum, its decay, what it sums without that, and its other conditions, which are of keys alone."""
    tests = conjuncts(op.where)
    for n, test in enumerate(tests):
        order = order_of(test, op.over[0])
        if order is None or not order.ends_inside:
            continue
        rest, query = tests[:n] + tests[n + 1 :], order.query.name
        factors = factors_of(op.source)
        mixed = [factor for factor in factors if query in factor.value.names]
        others = [factor for factor in factors if factor not in mixed]
        if len(mixed) != 1 or mixed[0].inverse or any(query in other.names for other in rest):
            continue
        decay = _decay(mixed[0].value, tests, order)
        if decay is None or not others or not any(order.key.name in other.value.names for other in others):
            continue
        return order, decay, multiplied(others), all_of(*rest)
    return None


def _decay(one: Value, tests: list[Value], order: Order) -> Decay | None:
    """The decay that a factor is where these conditions hold; None for anything else."""
    one, pair = _bare(one, tests), frozenset((order.key.name, order.query.name))
    match one.op:
        case Map("**", (base, exponent)) if not base.names & pair:
            return _with_distance("**", base, exponent, tests, order)
        case Map(fn, (exponent,)) if fn in _EXPONENTIALS:
            return _with_distance(fn, None, exponent, tests, order)
    return None


def _with_distance(fn: str, base: Value | None, exponent: Value, tests: list[Value], order: Order) -> Decay | None:
    pair = frozenset((order.key.name, order.query.name))
    exponent, sign = _bare(exponent, tests), 1
    while isinstance(exponent.op, Map) and exponent.op.fn == "neg":
        exponent, sign = _bare(exponent.op.args[0], tests), -sign
    factors = factors_of(exponent)
    moving = [factor for factor in factors if factor.value.names & pair]
    fixed = [factor for factor in factors if not factor.value.names & pair]
    if len(moving) != 1 or moving[0].inverse or (fixed and base is not None):
        return None
    distance = _bare(moving[0].value, tests)
    while isinstance(distance.op, Map) and distance.op.fn.startswith("as "):
        distance = _bare(distance.op.args[0], tests)
    known = distance.known.whole
    if known is None:
        return None
    speed = known.terms.get(frozenset(((order.query.name, 1),)), 0)
    rest = known.plus(of_atom(order.query.name) - of_atom(order.key.name), -speed)
    if not speed or any(isinstance(atom, Coordinate) or atom.type.coordinates for atom in rest.atoms):
        return None
    rate = multiplied(fixed) if fixed else None
    return Decay(fn, base, rate, sign * speed, rest if sign > 0 else -rest)


def _bare(one: Value, tests: list[Value]) -> Value:
    """A value where some conditions hold: without a choice by one of them."""
    while isinstance(one.op, Map) and one.op.fn == "where" and one.op.args[0] in tests:
        one = one.op.args[1]
    return one


def by_decay(before: Value, after: Value, names: Names) -> str:
    """A scan, and along which axis."""
    found = decay_of(summed(before)) or steps_of(summed(before))
    assert found is not None
    order = found[0]
    way = "up to" if order.forward else "from"
    return f"a scan with a decay along `{order.key.name}`, {way} each `{order.query.name}`"
