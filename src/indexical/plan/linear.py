"""Linear recurrences: the next value as `times * y + plus` of an earlier `y`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..ir.walk import walk
from ..records import dataclass
from ..source import Span


@dataclass(frozen=True, slots=True)
class Linear:
    """`times * y + plus` at every point, both free of `y`; None is 0.

    `read_where` is the condition under which `y` is read; None is everywhere, if at all. Elsewhere `times` is 0, and
    `y` does not matter, not even where it is non-finite.
    """

    times: ir.Expr | None
    plus: ir.Expr | None
    read_where: ir.Expr | None = None


class Nonlinear(Exception):
    """A recurrence does more than multiply and add: in which way, in words."""


# Whether a read is of the recurrence: it raises `Nonlinear` where it is at a point that no scan reaches.
Earlier = Callable[[ir.Read], bool]


def take_linear(expr: ir.Expr, earlier: Earlier) -> Linear:
    """An expression as `times * y + plus`. Raises `Nonlinear` where it is none."""
    if not reads_earlier(expr, earlier):
        return Linear(None, expr)
    match expr:
        case ir.Read():
            if any(reads_earlier(index, earlier) for index in expr.indices):
                raise Nonlinear("an index is made of it")
            return Linear(_one(expr.span), None)
        case ir.Map("+" | "-" as op, (left, right)):
            return _added(op, take_linear(left, earlier), take_linear(right, earlier), expr.span)
        case ir.Map("neg", (operand,)):
            found = take_linear(operand, earlier)
            return Linear(_negative(found.times), _negative(found.plus), found.read_where)
        case ir.Map("*", (left, right)):
            if reads_earlier(left, earlier) and reads_earlier(right, earlier):
                raise Nonlinear("it is multiplied with itself")
            moving, fixed = (left, right) if reads_earlier(left, earlier) else (right, left)
            found = take_linear(moving, earlier)
            return Linear(_product(found.times, fixed), _product(found.plus, fixed), found.read_where)
        case ir.Map("/", (left, right)):
            if reads_earlier(right, earlier):
                raise Nonlinear("it is divided by")
            found = take_linear(left, earlier)
            return Linear(_quotient(found.times, right), _quotient(found.plus, right), found.read_where)
        case ir.Map(op):
            raise Nonlinear(f"`{op}` of it is not linear")
        case ir.Select():
            return _selected(expr, earlier)
        case ir.Reduce("sum"):
            return _summed(expr, earlier)
        case ir.Reduce(op) | ir.Normalize(op):
            raise Nonlinear(f"`{op}` of it is not linear")
        case _:
            raise AssertionError


def reads_earlier(expr: ir.Expr, earlier: Earlier) -> bool:
    """Whether a recurrence is read somewhere in an expression."""
    return any(isinstance(part, ir.Read) and earlier(part) for part in walk(expr))


def under_guard(condition: ir.Expr | None, found: Linear) -> Linear:
    """Make an expression 0 where a condition fails."""
    if condition is None:
        return found
    zero = _zero(condition.span)
    times = None if found.times is None else build.select(condition, found.times, zero, condition.span)
    plus = None if found.plus is None else build.select(condition, found.plus, zero, condition.span)
    read_where = None if found.times is None else build.conjunction((condition, found.read_where))
    return Linear(times, plus, read_where)


def _selected(expr: ir.Select, earlier: Earlier) -> Linear:
    """One of two: a condition that is free of the recurrence decides for both parts."""
    if reads_earlier(expr.condition, earlier):
        raise Nonlinear("a condition asks for it")
    then, otherwise = take_linear(expr.then, earlier), take_linear(expr.otherwise, earlier)
    yes, no = build.truth(True, expr.span), build.truth(False, expr.span)
    first, second = (no if side.times is None else side.read_where or yes for side in (then, otherwise))
    if (first, second) == (yes, yes):
        read_where = None
    elif (first, second) == (yes, no):
        read_where = expr.condition
    else:
        read_where = build.select(expr.condition, first, second, expr.span)
    return Linear(_either(expr, then.times, otherwise.times), _either(expr, then.plus, otherwise.plus), read_where)


def _either(expr: ir.Select, then: ir.Expr | None, otherwise: ir.Expr | None) -> ir.Expr | None:
    if then is None and otherwise is None:
        return None
    zero = _zero(expr.span)
    return build.select(expr.condition, then or zero, otherwise or zero, expr.span)


def _summed(expr: ir.Reduce, earlier: Earlier) -> Linear:
    """A sum over what the recurrence does not vary with: its factor is summed."""
    bounds = [bound for range in expr.ranges for bound in (range.lower, range.upper)]
    for part in (*bounds, *(() if expr.guard is None else (expr.guard,))):
        if reads_earlier(part, earlier):
            raise Nonlinear("a condition asks for it")
    for read in walk(expr.body):
        if isinstance(read, ir.Read) and earlier(read) and read.type.coordinates & expr.coordinates:
            names = ", ".join(f"`{c.name}`" for c in sorted(read.type.coordinates & expr.coordinates))
            raise Nonlinear(f"dense: its coefficients mix the points of {names}")
    outside, guard = split_guard(expr)
    found = take_linear(expr.body, earlier)
    assert found.times is not None
    times = build.reduce("sum", expr.ranges, found.times, guard, "real", expr.span)
    plus = None
    if found.plus is not None:
        plus = build.reduce("sum", expr.ranges, found.plus, guard, "real", expr.span)
    asks = build.conjunction((guard, found.read_where))
    read_where = None if asks is None else build.reduce("any", expr.ranges, asks, None, "bool", expr.span)
    return under_guard(outside, Linear(times, plus, read_where))


def split_guard(expr: ir.Reduce) -> tuple[ir.Expr | None, ir.Expr | None]:
    """The conditions of a guard before the first that depends on a coordinate of the reduction, and the rest: those
    after it are evaluated only where it holds."""
    conditions = conjuncts_of(expr.guard)
    count = 0
    while count < len(conditions) and not conditions[count].type.coordinates & expr.coordinates:
        count += 1
    return build.conjunction(conditions[:count]), build.conjunction(conditions[count:])


def _added(op: str, left: Linear, right: Linear, span: Span) -> Linear:
    read_where: ir.Expr | None = None
    if left.times is None or right.times is None:
        read_where = left.read_where or right.read_where
    elif left.read_where is not None and right.read_where is not None:
        read_where = build.apply("||", (left.read_where, right.read_where), "bool", span)
    return Linear(_sum(op, left.times, right.times, span), _sum(op, left.plus, right.plus, span), read_where)


def _sum(op: str, left: ir.Expr | None, right: ir.Expr | None, span: Span) -> ir.Expr | None:
    if right is None:
        return left
    if left is None:
        return right if op == "+" else _negative(right)
    return build.apply(op, (left, right), "real", span)


def _negative(expr: ir.Expr | None) -> ir.Expr | None:
    if isinstance(expr, ir.Const) and expr.type.kind == "real":
        return build.real(-Fraction(expr.value), expr.span)
    return None if expr is None else build.apply("neg", (expr,), "real", expr.span)


def _product(expr: ir.Expr | None, factor: ir.Expr) -> ir.Expr | None:
    if expr is None:
        return None
    return factor if build.is_number(expr, 1) else build.apply("*", (expr, factor), "real", factor.span)


def _quotient(expr: ir.Expr | None, divisor: ir.Expr) -> ir.Expr | None:
    return None if expr is None else build.apply("/", (expr, divisor), "real", divisor.span)


def _one(span: Span) -> ir.Expr:
    return build.real(Fraction(1), span)


def _zero(span: Span) -> ir.Expr:
    return build.real(Fraction(0), span)
