"""Whole numbers of 64 bits: a result that does not fit is refused, never wrapped."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.affine import polynomial
from ...ir.types import BOUNDS, Coordinate, Dtype
from ...ir.walk import walk
from . import arrays, sizes
from .base import Value, plain
from .code import Prefix, call, fill, infix
from .lowering import Lowering
from .scope import Place, Scope
from .values import aligned, joined, widest

_CHECKED = {"+": "add", "-": "subtract", "*": "multiply"}

# The largest length of an axis, and the magnitude at which counting stops.
_LONGEST = 2**31
_UNBOUNDED = 2**200

LARGEST: dict[Dtype, int] = {"i32": 2**31 - 1, "i64": 2**63 - 1}


def whole_function(low: Lowering, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
    """A function of whole numbers. Those of 32 bits are computed with 64 where they may not be enough."""
    op = expr.op
    if all(value.python for value in values) and op in ("+", "-", "*", "neg") and is_small(low, expr, scope):
        return sizes.plain_number(low, polynomial(expr), scope)
    values = wide_enough(low, expr, values, scope)
    if dtype == "i32" and largest(low, expr, scope) > LARGEST["i32"]:
        values = [v if v.python else arrays.cast_to(low, v, "i64") for v in values]
    dtype = widest(value.dtype for value in values)
    python = all(value.python for value in values)
    if op in _CHECKED:
        return added(low, expr, values, dtype, scope)
    if op in ("neg", "abs") and largest(low, expr, scope) > LARGEST["i64"]:
        values = zero_where_removed(low, values, scope)
    if op == "neg" and largest(low, expr, scope) > LARGEST["i64"]:
        if python:
            return values[0].but(call(low.text.helper("fitting"), Prefix("-", values[0].code)))
        return values[0].but(call(low.text.helper("subtract"), 0, values[0].code))
    if op == "neg":
        return values[0].but(Prefix("-", values[0].code))
    if op in ("//", "%"):
        return divided(low, expr, values, dtype, scope)
    if op == "abs" and largest(low, expr, scope) > LARGEST["i64"]:
        if python:
            return values[0].but(call(low.text.helper("fitting"), call("abs", values[0].code)))
        return values[0].but(call(low.text.helper("magnitude"), values[0].code))
    if python and op in ("max", "min", "abs"):
        return plain(call(op, *(value.code for value in values)))
    if op == "**":
        return raised(low, expr, values, dtype, scope)
    axes = joined(values, scope.order)
    values = [aligned(value, axes) for value in values]
    if op not in ("max", "min") or python:
        values = leading(low, values)
    return Value(low.text.dialect.function(op, values, low.text), axes, "whole", dtype or values[0].dtype)


def wide_enough(low: Lowering, expr: ir.Map, values: list[Value], scope: Scope) -> list[Value]:
    """The operands, arrays with 64 bits where a plain number may need more than 32: PyTorch would cut it down to
    the dtype of the array that it meets."""
    beside = zip(expr.arguments, values, strict=True)
    if not any(value.python and largest(low, a, scope) > LARGEST["i32"] for a, value in beside):
        return values
    return [arrays.cast_to(low, value, "i64") if value.dtype == "i32" else value for value in values]


def is_small(low: Lowering, expr: ir.Expr, scope: Scope) -> bool:
    """Whether a number is surely one of 64 bits, and so is all that it is made of."""
    return all(largest(low, p, scope) <= LARGEST["i64"] for p in walk(expr) if p.type.kind == "whole")


def leading(low: Lowering, values: list[Value]) -> list[Value]:
    """The arguments of a function, the first of them an array."""
    if any(not value.python for value in values) and low.text.dialect.takes_numbers_first:
        return values
    return [arrays.as_array(low, values[0], next((v.dtype for v in values if v.dtype), None)), *values[1:]]


def added(low: Lowering, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
    """A sum, a difference or a product. One that might leave 64 bits is checked."""
    if largest(low, expr, scope) <= LARGEST["i64"]:
        return arrays.combined(low, expr.op, values, expr, dtype, scope)
    axes = joined(values, scope.order)
    if all(value.python for value in values):
        found = arrays.combined(low, expr.op, values, expr, dtype, scope)
        return found.but(call(low.text.helper("fitting"), found.code))
    left, right = (aligned(value, axes) for value in zero_where_removed(low, values, scope))
    return Value(call(low.text.helper(_CHECKED[expr.op]), left.code, right.code), axes, "whole", dtype)


def zero_where_removed(low: Lowering, values: list[Value], scope: Scope) -> list[Value]:
    """Operands whose result is checked for overflow, with 0 where guards removed the point: there it may be any
    number."""
    if not scope.conditions() or not low.text.checks:  # Of a guard itself nothing is asked.
        return values
    result = []
    for value in values:
        kept = None if value.python else arrays.kept_points(low, set(value.axes), scope)
        if kept is not None:
            low.guarded += 1
            value = low.text.keep(arrays.where(low, kept, value, plain(0), scope, value.dtype), low.label)
        result.append(value)
    return result


def divided(low: Lowering, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
    """Whole quotient and remainder, truncated toward zero; by zero is a failure where it is evaluated."""
    dividend, divisor = expr.arguments
    by = low.prover.polynomial(divisor)
    safe = by.constant not in (0, None) or low.prover.entails(scope.box, by - 1)
    edge = largest(low, dividend, scope) > LARGEST["i64"] and not low.prover.entails(scope.box, by)
    if all(value.python for value in values) and not scope.conditions():
        if not safe:
            by_zero = infix("==", sizes.number(low, divisor, scope), 0)
            sizes.refuse_once(low, by_zero, "IX505", "a whole number divided by zero")
        found = sizes.plain_number(low, polynomial(expr), scope)
        return found.but(call(low.text.helper("fitting"), found.code)) if edge else found
    counted = low.prover.entails(scope.box, by) and low.prover.at_least(dividend, 0, scope)
    if not safe:
        values[1] = checked_divisor(low, values[1], counted, scope)
        safe = not scope.conditions() or (counted and values[1].python)
    if counted and safe:
        low.guarded += not low.prover.entails(scope.box, low.prover.polynomial(dividend))
        return arrays.combined(low, expr.op, values, expr, dtype, scope)
    axes = joined(values, scope.order)
    if edge and by.constant in (None, -1):
        values = off_the_edge(low, expr.op, values, axes, scope)
    left = aligned(arrays.as_array(low, values[0], dtype), axes)
    right = aligned(values[1] if safe else arrays.as_array(low, values[1], dtype), axes)
    return Value(low.text.dialect.divide(expr.op, left, right, safe, low.text), axes, "whole", dtype or "i64")


def off_the_edge(
    low: Lowering, op: str, values: list[Value], axes: tuple[Coordinate, ...], scope: Scope
) -> list[Value]:
    """A dividend and a divisor, with 1 for a divisor of -1 beside the least whole number: their quotient has no
    64 bits, and a processor that is asked for it, or for their remainder, may stop."""
    kept = [low.text.keep(arrays.as_array(low, value, "i64"), low.label) for value in values]
    left, right = (aligned(value, axes) for value in kept)
    code = fill("({left} == -(2**63)) & ({right} == -1)", left=left.code, right=right.code)
    edge = low.text.keep(Value(code, axes, "bool", "bool"), low.label)
    if op == "//":
        arrays.fail_where(low, edge, "IX505", "this whole number does not fit in 64 bits", scope)
    return [kept[0], low.text.keep(arrays.where(low, edge, plain(1), kept[1], scope, "i64"), low.label)]


def checked_divisor(low: Lowering, value: Value, counted: bool, scope: Scope) -> Value:
    """A divisor that is not 0 where it is evaluated; nowhere, if it is a plain number that is not negative."""
    value = value if value.python else low.text.keep(value, low.label)
    test = Value(infix("==", value.code, 0), value.axes, "bool", "bool", value.python)
    arrays.fail_where(low, test, "IX505", "a whole number divided by zero", scope)
    if value.python and counted and scope.conditions():
        return value.but(call("max", 1, value.code))
    return value


def raised(low: Lowering, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
    """A whole power; one with a negative exponent is a failure where it is evaluated."""
    exponent = expr.arguments[1]
    base, power = (low.text.keep(arrays.as_array(low, value, dtype), low.label) for value in values)
    if not low.prover.entails(scope.box, low.prover.polynomial(exponent)):
        test = Value(infix("<", power.code, 0), power.axes, "bool", "bool")
        arrays.fail_where(low, test, "IX505", "a whole number to a negative power is not whole", scope)
    axes = joined(values, scope.order)
    base, power = zero_where_removed(low, [base, power], scope)
    code = call(low.text.helper("checked_power"), aligned(base, axes).code, aligned(power, axes).code)
    return Value(code, axes, "whole", dtype or "i64")


# ---------------------------------------------------------------- magnitudes


def largest(low: Lowering, expr: ir.Expr, scope: Scope) -> int:
    """The largest magnitude of a whole expression; an axis has less than 2**31 points."""
    return min(_UNBOUNDED, _largest(low, expr, scope))


def _largest(low: Lowering, expr: ir.Expr, scope: Scope) -> int:
    match expr:
        case ir.Const(value):
            return abs(int(value))
        case ir.Size():
            return _LONGEST
        case ir.Coord(coordinate):
            place = scope.places.get(coordinate)
            ends = () if place is None else (place.start, place.stop)
            sizes = [largest(low, end, scope) for end in ends if not end.type.coordinates]
            return max(sizes) if len(sizes) == 2 else _LONGEST
        case ir.Read(tensor):
            return largest_in(low, tensor)
        case ir.Array(cells=cells):
            return max((abs(int(cell.value)) for cell in cells), default=0)
        case ir.Map():
            return _largest_result(low, expr, scope)
        case ir.Select(_, then, otherwise):
            return max(largest(low, then, scope), largest(low, otherwise, scope))
        case ir.Reduce("argmax" | "argmin") | ir.Normalize("rank"):
            return _LONGEST
        case ir.Reduce("sum" | "max" | "min", ranges, body):
            inner = reaching(ranges, scope)
            most = largest(low, body, inner)
            return most * _LONGEST if expr.op == "sum" else most
        case ir.Normalize("cumsum", _, body):
            return largest(low, body, scope) * _LONGEST
    return _UNBOUNDED


def _largest_result(low: Lowering, expr: ir.Map, scope: Scope) -> int:
    if any(argument.type.kind == "real" for argument in expr.arguments):
        return LARGEST["i32"] if expr.op == "as i32" else LARGEST["i64"]
    if any(argument.type.kind == "bool" for argument in expr.arguments):
        return 1
    sizes = [largest(low, argument, scope) for argument in expr.arguments]
    match expr.op:
        case "+" | "-":
            return sizes[0] + sizes[1]
        case "*":
            return sizes[0] * sizes[1]
        case "**":
            return int(max(1, sizes[0]) ** sizes[1]) if sizes[1] <= 64 else _UNBOUNDED
        case "%":
            return min(sizes)
        case "//":
            return sizes[0]
        case _:
            return max(sizes)


def reaching(ranges: tuple[ir.Range, ...], scope: Scope) -> Scope:
    """A scope in which the coordinates of these ranges can be bounded."""
    places = {range.coordinate: Place(range.lower, range.upper, not range.stated) for range in ranges}
    return Scope({**scope.places, **places})


def largest_in(low: Lowering, tensor: str) -> int:
    """The largest magnitude of the numbers of a tensor."""
    if tensor.endswith("'"):
        return _LONGEST  # The end of a window is a place of an axis.
    given = low.tensors.get(tensor)
    if isinstance(given, ir.Input) and given.counts:
        return _LONGEST
    stored = low.stored.get(tensor)
    if tensor not in low.lets:
        least, most = BOUNDS[(stored and stored.dtype) or "i64"]
        return max(-least, most)
    if tensor not in low.magnitudes:
        low.magnitudes[tensor] = 1 + LARGEST["i64"]
        clauses = low.lets[tensor].clauses
        found = [largest(low, c.body, reaching(c.ranges, Scope({}))) for c in clauses]
        low.magnitudes[tensor] = min(1 + LARGEST["i64"], max(found, default=0))
    return low.magnitudes[tensor]
