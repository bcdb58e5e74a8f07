"""Guards of reductions and normalisers, as values that stand where they fail: what is left for the printer has none."""

from __future__ import annotations

from ...ir import build
from ..ops import Axis, Contract, Iota, Map, Normalize, Reduce, Value, apply, conjuncts, host, value
from .patterns import Found, No, Target
from .places import placed
from .sums import is_size, sum_for_mean
from .terms import NOWHERE, applied, infinity, kept, length, real, total, where, whole, zero

# The largest whole number of a dtype, plus 1.
_LIMIT = {"i32": 2**31, "i64": 2**63, None: 2**63}


def mask_reduction(one: Value, found: Found, target: Target) -> Value | No | None:
    """A reduction under a guard is that of its identity where the guard fails."""
    op = one.op
    assert isinstance(op, Reduce)
    mask, source = op.where, op.source
    if mask is None:
        return None
    match op.fn:
        case "sum":
            return value(Reduce("sum", kept(mask, source), op.over, None, op.checked))
        case "prod":
            other = real(1) if source.kind == "real" else whole(1)
            return value(Reduce("prod", where(mask, source, other), op.over, None, op.checked))
        case "any":
            return value(Reduce("any", applied("&&", mask, source), op.over))
        case "all":
            return value(Reduce("all", applied("||", applied("!", mask), source), op.over))
        case "max" | "min":
            return value(Reduce(op.fn, where(mask, source, _last(op.fn, source)), op.over, None, op.checked))
        case "mean":
            return sum_for_mean(one, found, target)
        case "argmax" | "argmin":
            return _extreme_place(op, mask)
    return None


def sum_of_same(one: Value, found: Found, target: Target) -> Value | No | None:
    """What is added up as often as an axis that it lacks has points, which may be none: 0 times it may not be 0."""
    op = one.op
    assert isinstance(op, Reduce)
    missing = [axis for axis in op.over if axis.name not in op.source.names]
    if not missing or op.where is not None or one.kind != "real" or target.is_finite(op.source):
        return None
    rest = tuple(axis for axis in op.over if axis not in missing)
    inside = total(op.source, rest) if rest else op.source
    for axis in missing:
        count = host(build.apply("as real", (length(axis),), "real", NOWHERE))
        some = host(build.apply(">", (axis.extent, build.whole(0, NOWHERE)), "bool", NOWHERE))
        inside = where(some, applied("*", inside, count), zero("real"))
    return inside


def _last(fn: str, source: Value) -> Value:
    """What comes after all numbers where the largest, or the least, is looked for."""
    largest = fn in ("max", "argmax")
    if source.kind == "whole":
        limit = _LIMIT[source.dtype]
        return whole(-limit if largest else limit - 1)
    return infinity(-1 if largest else 1)


def _extreme_place(op: Reduce, mask: Value) -> Value:
    """The place of the largest number that is kept. Where all of these come last anyway it is the first of them: what
    was removed may stand before it, and is no larger."""
    last = _last(op.fn, op.source)
    numbers = where(mask, op.source, last)
    extreme = value(Reduce("max" if op.fn == "argmax" else "min", numbers, op.over))
    first = value(Reduce("argmax", apply("as i64", mask), op.over))
    found = where(applied("==", extreme, last), first, value(Reduce(op.fn, numbers, op.over)))
    return where(value(Reduce("any", mask, op.over)), found, whole(-1))


def mask_scores(one: Value, found: Found, target: Target) -> Value | No | None:
    """A normaliser under a guard: what changes nothing before it, and what is removed after it."""
    op = one.op
    assert isinstance(op, Normalize)
    mask = op.where
    if mask is None:
        return None
    if op.fn == "cumsum":
        return kept(mask, value(Normalize(op.fn, kept(mask, op.source), op.along, None, op.checked)))
    inside = value(Normalize(op.fn, where(mask, _real(op.source), infinity(-1)), op.along))
    if op.fn == "softmax" and _is_finite(op.source, target) and _keeps_some(mask, op.along):
        return inside  # Of -inf it is 0 by itself, where a row has any other number.
    return where(mask, inside, infinity(-1) if op.fn == "log_softmax" else zero("real"))


def _is_finite(one: Value, target: Target) -> bool:
    """Whether scores are finite where inputs are: what is divided by a size has no cells without points."""
    waiting = [one]
    for top in waiting:
        match top.op:
            case _ if target.is_finite(top):
                pass
            case Contract(factors):
                waiting += factors
            case Map("+" | "-" | "*" | "neg", args):
                waiting += args
            case Map("/", (above, below)) if is_size(below) and top is not one:
                waiting.append(above)
            case _:
                return False
    return not target.isolate


def _keeps_some(mask: Value, along: Axis) -> bool:
    """Whether a guard is known to hold somewhere along an axis: at its first point, or at that of another axis."""
    places = [whole(0), *(value(Iota(axis)) for axis in mask.axes if axis.extent == along.extent and axis != along)]
    tests = conjuncts(mask)
    return any(all(_holds(placed(test, {along.name: place})) for test in tests) for place in places)


def _holds(test: Value) -> bool:
    """Whether a comparison is known to hold."""
    match test.op:
        case Map("<=" | "<" | ">=" | ">" as fn, (a, b)):
            more, less = (b, a) if fn in ("<=", "<") else (a, b)
            limit = 0 if fn in ("<=", ">=") else 1
            if more.known.whole is not None and less.known.whole is not None:
                difference = (more.known.whole - less.known.whole).constant
                if difference is not None:
                    return difference >= limit
            return more.known.least - less.known.most >= limit
    return False


def _real(one: Value) -> Value:
    return one if one.kind == "real" else apply("as real", one)
