"""Whole numbers of 64 bits: a result that does not fit is refused, never wrapped.

Numbers of 32 bits are computed with 64 where 32 may not be enough. What guards remove may be any number, so that
operands that are checked are harmless there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import polynomial, vanishes
from ...ir.types import BOUNDS, Dtype, widest
from ...source import Span
from .. import known
from ..known import fits
from ..ops import Axis, Number, Value, apply, host, whole
from . import elementwise
from .lowering import Lowering
from .scope import Scope

BY_ZERO = "a whole number divided by zero"
NEGATIVE_POWER = "a whole number to a negative power is not whole"


def applied(low: Lowering, op: str, args: tuple[Value, ...], span: Span, scope: Scope) -> Value:
    """A function of whole numbers."""
    if op == "//" and args[1].known.bounds == (-1, -1):
        op, args = "neg", args[:1]  # Of the least number the quotient does not fit.
    if op in ("//", "%") and args[1].is_host:
        args = (args[0], divisor(low, args[1], args[0].axes, span, scope))
    if all(arg.is_host for arg in args):
        return _of_host(low, op, args, span, scope)
    bounds = known.mapped(op, [arg.known.bounds for arg in args])
    if op in ("max", "min") and len(args) > 2:
        return elementwise.applied(low, op, promoted(args), "whole", span)
    args = promoted(args, wide=not fits(bounds, "i32"))
    checked = not fits(bounds, "i64") or _may_fail(op, args)
    return apply(op, *(_kept(low, op, args, span, scope) if checked else args), checked=checked)


def promoted(args: Sequence[Value], wide: bool = False) -> tuple[Value, ...]:
    """Arguments of one dtype, 64 bits where `wide` or where a number of the host needs more than 32."""
    dtype = widest(arg.dtype for arg in args)
    wide = wide or any(arg.is_host and not fits(arg.known.bounds, "i32") for arg in args)
    if dtype == "i32" and not wide:
        return tuple(args)
    return tuple(arg if arg.is_host or arg.dtype == "i64" else apply("as i64", arg) for arg in args)


def _may_fail(op: str, args: Sequence[Value]) -> bool:
    """Whether a function may have no value for numbers within bounds."""
    match op:
        case "//" | "%":
            dividend, by = args
            edge = dividend.known.least <= BOUNDS["i64"][0] and by.known.least <= -1 <= by.known.most
            return (by.known.may_be_zero and not by.is_host) or edge
        case "**":
            return args[1].known.least < 0
    return False


def _kept(low: Lowering, op: str, args: tuple[Value, ...], span: Span, scope: Scope) -> tuple[Value, ...]:
    """Operands of a function that is checked, harmless where guards removed the point."""
    if not scope.facts:
        return args
    result = []
    for n, arg in enumerate(args):
        mask = None if arg.is_host else low.mask(scope, arg.names)
        other = 1 if op == "**" or (n == 1 and op in ("//", "%")) else 0
        result.append(arg if mask is None else elementwise.where(low, mask, arg, whole(other, span)))
    return tuple(result)


# ------------------------------------------------------------------ numbers of the host


def _of_host(low: Lowering, op: str, args: tuple[Value, ...], span: Span, scope: Scope) -> Value:
    """A function of numbers of the host. Python's are of any length: what leaves 64 bits is refused."""
    found = host(build.apply(op, tuple(map(elementwise.number, args)), "whole", span))
    if op == "**" and args[1].known.least < 0:
        low.check(_compared(">=", args[1], 0, span), "IX505", NEGATIVE_POWER, span, scope)
    check_fits(low, found, "i64", span, scope)
    return found


def check_fits(low: Lowering, number: Value, dtype: Dtype, span: Span, scope: Scope) -> None:
    """Refuse a number of the host that a dtype does not hold."""
    least, most = BOUNDS[dtype]
    message = f"this whole number does not fit in {dtype[1:]} bits"
    if number.known.most > most:
        low.check(_compared("<=", number, most, span), "IX505", message, span, scope)
    if number.known.least < least:
        low.check(_compared(">=", number, least, span), "IX505", message, span, scope)


def divisor(low: Lowering, by: Value, over: tuple[Axis, ...], span: Span, scope: Scope) -> Value:
    """A number of the host that an array over some axes is divided by: refused where it is 0 and asked for, and 1 where
    it is not."""
    if not by.known.may_be_zero or by.symbols:
        return by
    size = by.known.whole
    if size is not None and any(vanishes(polynomial(axis.extent), size) for axis in over):
        return by  # Where it is 0, there are no points.
    low.check(_compared("!=", by, 0, span), "IX505", BY_ZERO, span, scope, over)
    if not scope.facts:
        return by
    expr, one = elementwise.number(by), build.whole(1, span)
    if by.known.least >= 0:
        return host(build.apply("max", (one, expr), "whole", span))
    return host(build.select(elementwise.number(_compared("==", by, 0, span)), one, expr, span))


def _compared(op: str, one: Value, other: int, span: Span) -> Value:
    return host(build.apply(op, (elementwise.number(one), build.whole(other, span)), "bool", span))


# --------------------------------------------------------------------------------- casts


def cast(low: Lowering, expr: ir.Map, arg: Value, dtype: Dtype, scope: Scope) -> Value:
    """A number as a whole one of a dtype: a real is truncated toward 0. What does not fit is refused."""
    if isinstance(arg.op, Number):
        return _cast_of_host(low, expr, arg, dtype, scope)
    return arg if arg.dtype == dtype else fitted(low, arg, dtype, expr.span, scope)


def fitted(low: Lowering, arg: Value, dtype: Dtype, span: Span, scope: Scope) -> Value:
    """An array of numbers as whole ones of a dtype, which have to fit where they are asked for."""
    checked = arg.kind == "real" or (arg.kind == "whole" and not fits(arg.known.bounds, dtype))
    mask = low.mask(scope, arg.names) if checked and scope.facts else None
    if mask is not None:
        arg = elementwise.where(low, mask, arg, elementwise.constant(0, arg.kind, span))
    return apply(f"as {dtype}", arg, checked=checked)


def _cast_of_host(low: Lowering, expr: ir.Map, arg: Value, dtype: Dtype, scope: Scope) -> Value:
    if arg.kind == "whole":
        check_fits(low, arg, dtype, expr.span, scope)
        return arg
    if arg.kind == "real":
        least, most = BOUNDS[dtype]
        message = f"this is not a whole number that {dtype} holds"
        low.check(_compared("<", arg, most + 1, expr.span), "IX505", message, expr.span, scope)
        low.check(_compared(">", arg, least - 1, expr.span), "IX505", message, expr.span, scope)
    return host(build.apply(expr.op, (elementwise.number(arg),), "whole", expr.span))
