"""Guards of sums: found in what is summed, taken out of it, or there already in what is read."""

from __future__ import annotations

from ...ir.types import Coordinate
from ..ops import Map, Read, Reduce, Value, all_of, conjuncts, value
from ..reach import Side, side_of
from ..words import as_written
from .narrow import widened
from .patterns import Found, No, Target
from .terms import applied, cast, factors_of, is_number, kept, names_of, product, summed, total


def choice_to_guard(one: Value, found: Found, target: Target) -> Value | No | None:
    """A choice between a value and 0 that is summed is a guard of the sum, which other rules know."""
    op, test, then = summed(one), found["test"], found["then"]
    if is_number(then, 0):
        test, then = negated(test), found["otherwise"]
    elif not is_number(found["otherwise"], 0):
        return None
    source = cast(then, one.dtype) if one.dtype is not None else then
    return value(Reduce("sum", source, op.over, all_of(op.where, test), op.checked))


def negated(test: Value) -> Value:
    """The condition that holds where this one fails."""
    return test.op.args[0] if isinstance(test.op, Map) and test.op.fn == "!" else applied("!", test)


def take_condition_out(one: Value, found: Found, target: Target) -> Value | No | None:
    """A condition that does not vary with what is summed is asked after the sum."""
    op = summed(one)
    over = names_of(op.over)
    out = [test for test in conjuncts(op.where) if not test.names & over]
    if not out:
        return None
    if op.checked:
        return No("a sum has to fit only where it is asked for")
    inside = all_of(*(test for test in conjuncts(op.where) if test.names & over))
    return kept(all_of(*out), total(op.source, op.over, inside))


def choice_decided(one: Value, found: Found, target: Target) -> Value | None:
    """A choice whose condition holds everywhere is what is chosen, unless it is made wider or longer."""
    then = found["then"]
    return then if (then.axes, then.dtype, then.kind) == (one.axes, one.dtype, one.kind) else None


def padding_for_guard(one: Value, found: Found, target: Target) -> Value | No | None:
    """A guard that fails just where a factor is read outside its source, which is 0 there, removes nothing else."""
    op = summed(one)
    factors = factors_of(op.source)
    for padded in factors:
        read = widened(padded.value)
        if padded.inverse or not isinstance(read.op, Read) or read.op.outside == "never":
            continue
        others = [factor for factor in factors if factor is not padded]
        tests = conjuncts(op.where)
        kept_tests = [test for test in tests if inside(test, read) is None]
        if len(kept_tests) == len(tests):
            continue
        if any(factor.inverse for factor in others):
            return No("a divisor may be 0 where a factor is read outside its source, and 0 / 0 is not 0")
        if not all(target.is_finite(factor.value) for factor in others):
            return No("a factor may be infinite where another is read outside its source")
        return value(Reduce("sum", op.source, op.over, all_of(*kept_tests), op.checked))
    return None


def inside(test: Value, read: Value) -> tuple[Coordinate, Side] | None:
    """The axis of which a condition says no more than that a place is not before, or not behind, what is read."""
    assert isinstance(read.op, Read)
    sides = ((name, side_of(test, at, read.op.source.extent(name))) for name, at in read.op.index)
    return next(((name, side) for name, side in sides if side is not None), None)


def indicator_to_guard(one: Value, found: Found, target: Target) -> Value | No | None:
    """A factor that is 1 or 0 is a guard, where it says which one point is left and no other is an array of reals: in
    one there may be an infinity, whatever is known of it, and 0 times that is NaN."""
    op = summed(one)
    factors = factors_of(op.source)
    for n, factor in enumerate(factors):
        test = None if factor.inverse else present(factor.value)
        if test is None or not any(_is_equality(part, names_of(op.over)) for part in conjuncts(test)):
            continue
        others = factors[:n] + factors[n + 1 :]
        if not others:
            continue
        if indicated(factor.value) is None or any(other.inverse or not _is_counted(other.value) for other in others):
            written = as_written(test, {})
            return No(f"`{written}` is a factor, and 0 times an infinity is NaN: a guard leaves it out", "places")
        rest = product(other.value for other in others)
        left = value(Reduce("sum", cast(rest, one.dtype), op.over, all_of(op.where, test), op.checked))
        return left if left.dtype == one.dtype else applied(f"as {one.dtype}", left)
    return None


def _is_counted(one: Value) -> bool:
    """Whether a value is a number of the host, or a whole number."""
    match one.op:
        case Map(fn, (inner,)) if fn.startswith("as "):
            return _is_counted(inner)
    return one.is_host or one.kind != "real"


def present(one: Value) -> Value | None:
    """The condition outside of which a value is 0; None where there is none."""
    match one.op:
        case Map("where", (test, _, otherwise)) if is_number(otherwise, 0):
            return test
        case Map("where", (Value(op=Map("!=", (a, b))), then, _)) if is_number(then, 0):
            return applied("==", a, b)
    return indicated(one)


def indicated(one: Value) -> Value | None:
    """The condition where a value is 1, and 0 elsewhere; None for another value."""
    match one.op:
        case Map("where", (test, then, otherwise)) if is_number(then, 1) and is_number(otherwise, 0):
            return test
        case Map(fn, (inner,)) if fn.startswith("as "):
            return inner if inner.kind == "bool" else indicated(inner)
    return None


def _is_equality(test: Value, over: frozenset[Coordinate]) -> bool:
    return isinstance(test.op, Map) and test.op.fn == "==" and bool(test.names & over)
