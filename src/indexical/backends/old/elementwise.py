"""Expressions → array text: everything at once, over all points of the coordinates in force."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from ...ir import nodes as ir
from ...ir.functions import operation
from ...ir.operations import REALS
from ...ir.poles import LINEAR, is_learned, is_positive
from ...ir.types import Dtype
from ...records import replace
from . import arrays, integers, removal
from .base import Value, plain
from .code import Infix, Name, Node, Number, Prefix, call, fill
from .integers import LARGEST
from .lowering import Lowering
from .scope import Scope
from .values import aligned, joined, widest

_SIGNS = frozenset(("+", "-", "*", "/"))
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))


# ------------------------------------------------------------------- leaves


# -------------------------------------------------------------- elementwise


def operands(low: Lowering, expr: ir.Map, scope: Scope) -> list[Value]:
    """The arguments of a function or a sign, side by side: all of them real where one is."""
    if expr.op in ("*", "/"):
        values = removal.kept_factors(low, expr.arguments, scope)
    else:
        values = [low.value(argument, scope) for argument in expr.arguments]
    if expr.type.kind == "real":
        return arrays.promoted(low, reals(low, expr.op, values))
    if any(value.kind == "real" for value in values):
        return [value if value.python else arrays.as_real(low, value, "f64") for value in values]
    return arrays.promoted(low, values)


def reals(low: Lowering, op: str, values: list[Value]) -> list[Value]:
    """Operands among reals. A whole array needs no cast where the library makes it real by itself."""
    if low.unbounded is not None:  # In a tile they become real while they are few.
        return [arrays.as_real(low, value) for value in values]
    if not operation(op).exact:
        values = [arrays.widened(low, value) for value in values]
    among = [value.dtype for value in values if value.kind == "real" and not value.python and value.axes]
    helped = low.text.dialect.wholes_take_reals or low.compute == "f64"
    if op not in _SIGNS or low.compute not in among or not helped:
        return [arrays.as_real(low, value) for value in values]
    return [replace(v.narrow or v, kind="real", dtype=low.compute) if v.kind == "whole" else v for v in values]


def apply(low: Lowering, expr: ir.Map, scope: Scope) -> Value:
    """An elementwise function."""
    op = expr.op
    if op in ("&&", "||", "!"):
        return logic(low, expr, scope)
    if op.startswith("as "):
        return cast(low, expr, scope)
    values = operands(low, expr, scope)
    if expr.type.kind == "real" and low.text.dialect.differentiates:
        values = without_poles(low, expr, values, scope)
    dtype = widest(value.dtype for value in values) if expr.type.kind != "bool" else "bool"
    if expr.type.kind == "whole":
        found = integers.whole_function(low, expr, values, dtype, scope)
    elif op in _COMPARISONS:
        found = arrays.combined(low, op, integers.wide_enough(low, expr, values, scope), expr, "bool", scope)
    elif op in _SIGNS or op == "**":
        found = arithmetic(low, expr, values, dtype, scope)
    elif op == "neg":
        found = values[0].but(Prefix("-", values[0].code))
    else:
        found = real_function(low, expr, values, dtype, scope)
    return without_removed(low, expr, found, scope) if op in ("*", "/") and may_survive_removal(low, expr) else found


def without_poles(low: Lowering, expr: ir.Map, values: list[Value], scope: Scope) -> list[Value]:
    """The operands of a function that has a pole, or of one that may get an infinity. Where guards remove the
    point, here or wherever the definition is read, another number is put in its place: its gradient would be NaN, for
    PyTorch multiplies it with 0."""
    for fact in scope.asked:
        scope = scope.where(fact)
    if not scope.conditions():
        return values
    for at, stand_in in poles(low, expr, scope):
        kept = None if values[at].python else arrays.kept_points(low, set(values[at].axes), scope, apart=True)
        if kept is not None:
            low.guarded += 1
            other = plain(stand_in, "real")
            safe = arrays.where(low, kept, arrays.as_array(low, values[at]), other, scope, values[at].dtype)
            values = [*values[:at], safe, *values[at + 1 :]]
    return values


def poles(low: Lowering, expr: ir.Map, scope: Scope) -> Iterator[tuple[int, int]]:
    """Yield the operands not to evaluate where guards remove the point, each with a harmless number for it: those by
    which the slope has a pole, and factors that are not finite there, for they are the slopes of others. A base that
    is the same at kept points and at removed ones has no pole where its exponent is 1."""
    row, product = operation(expr.op), expr.op in ("*", "/")
    if expr.op == "**" and expr.arguments[1].type.coordinates - expr.arguments[0].type.coordinates:
        yield 1, 1
    for at, argument in enumerate(expr.arguments):
        beside = any(is_learned(other) for n, other in enumerate(expr.arguments) if n != at)
        read = beside if product else expr.op not in LINEAR and is_learned(argument)
        infinite = low.poles.may_be_infinite(argument, REALS if product and beside else row.unsettled_at)
        if at in row.steep and (is_learned(argument) or (beside and _may_be_zero(low, argument, scope))):
            yield at, 1
        elif infinite or (read and low.poles.may_be_undefined(argument)):  # Slopes read it.
            yield at, 0


def _may_be_zero(low: Lowering, expr: ir.Expr, scope: Scope) -> bool:
    """Whether a number may be less than 1 at points that a guard removed, as far as ranges tell."""
    if isinstance(expr, ir.Const):
        return expr.value < 1
    return expr.type.kind != "whole" or not low.prover.entails(scope.box, low.prover.polynomial(expr) - 1)


def may_survive_removal(low: Lowering, expr: ir.Map) -> bool:
    """Whether a product with a factor that a guard removed may be other than 0: by a non-finite input, or by what
    the other factors compute."""
    left, right = expr.arguments
    if expr.op == "/":
        return not is_positive(right) and removal.may_be_removed(low, left)
    pairs = ((left, right), (right, left))
    return any(low.poles.may_be_nonfinite(other) and removal.may_be_removed(low, factor) for factor, other in pairs)


def without_removed(low: Lowering, expr: ir.Map, value: Value, scope: Scope) -> Value:
    """A product with 0 where a guard removed one of its factors, even where another is not finite."""
    gone = removal.removed(low, expr, scope)
    if gone is None:
        return value
    zero = plain(0, expr.type.kind)
    return arrays.where(low, low.text.keep(gone, "removed"), zero, arrays.as_array(low, value), scope, value.dtype)


def arithmetic(low: Lowering, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
    """Reals with a sign between them. Plain numbers for which Python would raise are arrays first."""
    python = all(value.python for value in values)
    if expr.op == "**":
        if python and not _is_plain_power(values):
            values[0] = arrays.as_array(low, values[0])
        return arrays.combined(low, "**", values, expr, dtype or values[0].dtype, scope)
    if python and (_is_wide(expr) or (expr.op == "/" and not _is_nonzero(values[1]))):
        values[0] = arrays.as_array(low, values[0])
    return arrays.combined(low, expr.op, values, expr, dtype or values[0].dtype, scope)


def real_function(low: Lowering, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
    """A function of reals. The root of a size is a plain number."""
    if values[0].python and expr.op == "sqrt" and is_positive(expr):
        return plain(call("math.sqrt", values[0].code), "real")
    axes = joined(values, scope.order)
    short = values[0].narrow if expr.op in low.text.dialect.rounds_once else None
    values = [aligned(value, axes) for value in values]
    if expr.op not in ("max", "min") or all(value.python for value in values):
        values = integers.leading(low, values)
    op = "root" if expr.op == "rsqrt" and _is_never_negative_zero(expr.arguments[0]) else expr.op
    code, once = low.text.dialect.function(op, values, low.text), None
    if short is not None:
        of = [aligned(short, axes)]
        once = Value(low.text.dialect.function(op, of, low.text), axes, "real", short.dtype)
    return Value(code, axes, "real", dtype or values[0].dtype, once=once)


def logic(low: Lowering, expr: ir.Map, scope: Scope) -> Value:
    """Truths. The right side of `&&` is evaluated only where the left holds, that of `||` where it fails."""
    if expr.op == "!":
        return arrays.negation(low.value(expr.arguments[0], scope))
    left, right = expr.arguments
    first = low.value(left, scope)
    second = low.value(right, scope.where(left, expr.op == "&&"))
    if expr.op == "&&":
        return arrays.both(first, second, scope)
    axes = joined((first, second), scope.order)
    first, second = aligned(first, axes), aligned(second, axes)
    if first.python and second.python:
        return Value(Infix("or", first.code, second.code), axes, "bool", None, True)
    return Value(Infix("|", first.code, second.code), axes, "bool", "bool")


def cast(low: Lowering, expr: ir.Map, scope: Scope) -> Value:
    """A value in another dtype: a whole one is truncated toward zero, where that fits, a real one rounded as the dtype
    rounds."""
    dtype: Dtype = expr.op[3:]  # type: ignore[assignment]
    value = low.value(expr.arguments[0], scope)
    if expr.type.kind == "bool" or value.dtype == dtype:
        return value
    bits = Number("31" if dtype == "i32" else "63")
    if expr.type.kind == "whole" and value.kind == "real":
        value = low.text.keep(arrays.as_array(low, value), low.label)
        code = fill("~((-(2.0**{bits}) <= {x}) & ({x} < 2.0**{bits}))", bits=bits, x=value.code)
        test = Value(code, value.axes, "bool", "bool")
        arrays.fail_where(low, test, "IX505", f"this is not a whole number that {dtype} holds", scope)
    elif dtype == "i32" and value.kind == "whole" and integers.largest(low, expr.arguments[0], scope) > LARGEST["i32"]:
        value = low.text.keep(arrays.as_array(low, value), low.label)
        code = fill("({x} < -(2**31)) | ({x} >= 2**31)", x=value.code)
        test = Value(code, value.axes, "bool", "bool")
        arrays.fail_where(low, test, "IX505", "this whole number does not fit in 32 bits", scope)
    if value.python and value.kind == "whole" and expr.type.kind == "real":
        value = replace(value, kind="real")
    return replace(
        arrays.cast_to(low, arrays.as_array(low, value, dtype) if value.python else value, dtype), kind=expr.type.kind
    )


def constant(expr: ir.Const) -> Value:
    """A number as written."""
    if isinstance(expr.value, bool):
        return plain(expr.value, "bool")
    small = 1 + LARGEST["i64"] if expr.type.kind == "whole" else 2**53
    if isinstance(expr.value, int) and abs(expr.value) <= small:
        return plain(expr.value, expr.type.kind)
    return plain(float_code(expr.value), "real")


def float_code(value: int | Fraction) -> Node:
    """A number as Python's floats have it."""
    try:
        return Number(repr(float(value)))
    except OverflowError:
        return Name("math.inf") if value > 0 else Prefix("-", Name("math.inf"))


def literal(code: Node) -> float | None:
    """A number that is written out; None for any other."""
    try:
        return float(code.text) if isinstance(code, Number) else None
    except OverflowError:
        return None


def _is_nonzero(value: Value) -> bool:
    """Whether a plain number is one that is written out, and not 0."""
    number = literal(value.code)
    return number is not None and number != 0


def _is_plain_power(values: list[Value]) -> bool:
    """Whether a power of numbers that are written out stays among Python's floats."""
    base, exponent = (literal(value.code) for value in values)
    return base is not None and exponent is not None and base > 0 and abs(exponent * math.log(base)) < 700


def _is_never_negative_zero(expr: ir.Expr) -> bool:
    """Whether a sum has a part that is written out and not 0."""
    return (
        isinstance(expr, ir.Map) and expr.op == "+" and any(isinstance(a, ir.Const) and a.value for a in expr.arguments)
    )


def _is_wide(expr: ir.Map) -> bool:
    """Whether a number is written that Python would not turn into a float."""
    return any(isinstance(a, ir.Const) and not -(2**900) < a.value < 2**900 for a in expr.arguments)
