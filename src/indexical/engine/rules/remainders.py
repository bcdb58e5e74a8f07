"""Sums of which a condition leaves every s-th point, as one for each remainder: the way back of a strided read."""

from __future__ import annotations

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Polynomial, affine_parts, expression, is_counted, number, polynomial, tidied
from ...ir.types import Coordinate
from ...records import dataclass
from ..ops import Axis, Iota, Map, Number, Read, Reduce, Value, all_of, conjuncts, host, value
from ..words import as_written
from .patterns import Found, No, Target
from .places import is_arithmetic, placed
from .terms import NOWHERE, applied, factors_of, fresh, is_number, kept, length, names_of, product, summed, whole


@dataclass(frozen=True, slots=True)
class Stride:
    """The condition that `step` divides `stays + begin - gone`, or, where they `meet`, `stays + begin + gone`: of an
    axis that stays and one that is summed. `begin` is never negative."""

    stays: Axis
    gone: Axis
    step: int
    begin: Polynomial
    meet: bool


def sum_by_remainder(one: Value, found: Found, target: Target) -> Value | No | None:
    """A sum over the points that have the remainder of another one is one over quotients, for each remainder: nothing
    is multiplied that leaves another, and what is read is read at a sum of axes."""
    op = summed(one)
    tests = conjuncts(op.where)
    factors = factors_of(op.source)
    for n, test in enumerate(tests):
        stride = _stride(test, op)
        if stride is None or any(factor.inverse for factor in factors):
            continue
        if all(_is_movable(factor.value, stride) for factor in factors):
            return _apart(op, [factor.value for factor in factors], stride, tests[:n] + tests[n + 1 :])
    for factor in factors:
        for _, at in factor.value.op.index if isinstance(factor.value.op, Read) else ():
            over = names_of(op.over)
            if at.known.whole is None and is_arithmetic(at) and at.names & over and at.names - over:
                written = as_written(at, {})
                return No(f"`{written}` is no sum of multiples of two coordinates: it is gathered", "windows")
    return None


def _stride(test: Value, op: Reduce) -> Stride | None:
    """The stride that a condition says, where it is one."""
    match test.op:
        case Map("==", (Value(op=Map("%", (place, Value(op=Number(ir.Const(int() as step)))))), zero)):
            parts = None if place.known.whole is None else affine_parts(place.known.whole, place.names)
            over = [axis for axis in op.over if axis.name in place.names]
            if parts is None or step < 2 or not is_number(zero, 0) or len(over) != 1 or len(parts[0]) != 2:
                return None
            (gone,) = over
            (stays,) = (axis for axis in place.axes if axis != gone)
            first, second = parts[0][stays.name].constant, parts[0][gone.name].constant
            if first not in (1, -1) or second not in (1, -1):
                return None
            meet = first == second
            begin = _counted(parts[1] * number(first) + (step - 1 if meet else 0), step)
            return Stride(stays, gone, step, begin, meet) if is_counted(begin) else None
    return None


def _counted(begin: Polynomial, step: int) -> Polynomial:
    """A number with the same remainder, without terms below 0."""
    terms = {term: factor if factor > 0 else factor % step for term, factor in begin.terms.items()}
    return Polynomial({term: factor for term, factor in terms.items() if factor})


def _is_movable(one: Value, stride: Stride) -> bool:
    """Whether a factor can be read elsewhere: its places are made of axes alone, or it has but one of the two axes."""
    own = {stride.stays.name, stride.gone.name} & one.names
    match one.op:
        case Read(source, index, outside, under) if len(own) > 1:
            moved = all(is_arithmetic(at) for _, at in index) and not own & (source.names - {name for name, _ in index})
            return moved and outside != "check" and under is None
    return len(own) < 2


def _apart(op: Reduce, factors: list[Value], stride: Stride, others: list[Value]) -> Value:
    stays, gone, step = stride.stays, stride.gone, whole(stride.step)
    taken = op.source.names.union(names_of(op.over), *(test.names for test in others))
    row = Axis(fresh(stays.name, taken), _quotients(stays, stride.begin, stride.step))
    left = Axis(fresh(stays.name, taken | {row.name}), step.op.expr)  # type: ignore[union-attr]
    inner = Axis(fresh(gone.name, taken), _quotients(gone, number(0), stride.step))
    first = applied("+", applied("*", value(Iota(row)), step), value(Iota(left)))
    remainder = applied("-", whole(stride.step - 1), value(Iota(left))) if stride.meet else value(Iota(left))
    is_one = polynomial(inner.extent).constant == 1
    place = remainder if is_one else applied("+", applied("*", value(Iota(inner)), step), remainder)
    begin = host(expression(stride.begin, NOWHERE))
    given = {stays.name: applied("-", first, begin) if stride.begin.terms else first, gone.name: place}
    source = product(_moved(factor, given) for factor in factors)
    guard = all_of(applied("<", place, host(gone.extent)), *(collected(placed(test, given)) for test in others))
    over = tuple(inner if axis == gone else axis for axis in op.over if axis != gone or not is_one)
    over = tuple(sorted(over, key=lambda axis: axis.name))
    made = value(Reduce("sum", source, over, guard, op.checked)) if over else kept(guard, source)
    point = value(Iota(stays))
    point = applied("+", point, begin) if stride.begin.terms else point
    index = {row.name: applied("//", point, step), left.name: applied("%", point, step)}
    return value(Read(made, tuple((name, index[name]) for name in sorted(index) if name in made.names)))


def _quotients(axis: Axis, begin: Polynomial, step: int) -> ir.Expr:
    """The number of quotients of the points of an axis, from some number on."""
    more = expression(polynomial(length(axis)) + begin + (step - 1), NOWHERE)
    return tidied(build.apply("//", (more, build.whole(step, NOWHERE)), "whole", NOWHERE))


def _moved(one: Value, given: dict[Coordinate, Value]) -> Value:
    """A factor at other points, 0 where these are none."""
    match one.op:
        case Read(source, index) if sum(name in one.names for name in given) > 1:
            return value(Read(source, tuple((name, collected(placed(at, given))) for name, at in index), "masked"))
    return placed(one, given)


def collected(one: Value) -> Value:
    """What is made of places, without axes that cancel: `2 * q + r - r` is `2 * q`."""
    parts = None if one.known.whole is None else affine_parts(one.known.whole, one.names)
    match one.op:
        case Map(fn, args) if one.kind == "bool" and all(arg.kind != "real" for arg in args):
            return applied(fn, *(collected(arg) for arg in args))
        case Map() if parts is not None:
            steps, begin = parts
            result = host(expression(begin, NOWHERE)) if begin.terms or not steps else None
            for name, step in steps.items():
                point, times = value(Iota(one.axis(name))), host(expression(step, NOWHERE))
                point = point if is_number(times, 1) else applied("*", point, times)
                result = point if result is None else applied("+", point, result)
            assert result is not None
            return result
    return one
