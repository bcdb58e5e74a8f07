"""Elementwise functions, casts and choices. What is promoted is cast in the graph: libraries disagree about it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ...ir import build
from ...ir import nodes as ir
from ...ir.functions import operation
from ...ir.operations import REALS, UNKNOWN
from ...ir.poles import LINEAR, is_learned
from ...ir.removal import either, removal
from ...ir.types import SHORT, STORED_ONLY, Dtype, Kind, widest
from ...ir.walk import walk
from ...source import Span
from .. import ops
from ..ops import Map, Number, Value, apply, host
from ..typed import COMPARISONS
from . import wholes
from .lowering import Lowering
from .scope import Scope


def mapped(low: Lowering, expr: ir.Map, scope: Scope) -> Value:
    """An elementwise function. The right side of `&&` is asked only where the left holds, that of `||` where it
    fails."""
    op = expr.op
    if op in ("&&", "||"):
        left = low.value(expr.arguments[0], scope)
        right = low.value(expr.arguments[1], scope.where(expr.arguments[0], op == "&&"))
        return applied(low, op, (left, right), "bool", expr.span)
    if op in ("*", "/") and (low.may_survive_removal(expr, scope) or not all(map(_is_safe, expr.arguments))):
        return _kept_product(low, expr, scope)
    args = tuple(low.value(argument, scope) for argument in expr.arguments)
    return _of_values(low, expr, args, [scope] * len(args), scope)


def _of_values(low: Lowering, expr: ir.Map, args: tuple[Value, ...], scopes: Sequence[Scope], scope: Scope) -> Value:
    """A function of values, each asked in a scope of its own."""
    if expr.op.startswith("as "):
        return cast_as(low, expr, args[0], scope)
    if expr.type.kind == "whole":
        return wholes.applied(low, expr.op, args, expr.span, scope)
    args = harmless(low, expr, args, scopes) if low.differentiable else args
    return applied(low, expr.op, args, expr.type.kind, expr.span)


def _kept_product(low: Lowering, expr: ir.Map, scope: Scope) -> Value:
    """A product that is 0 where a guard removed a factor, whatever the others are: these are asked only elsewhere."""
    above = expr.arguments if expr.op == "*" else expr.arguments[:1]
    removals = [removal(argument, low.removed) for argument in above]
    scopes = []
    for n in range(len(expr.arguments)):
        inner = scope
        for m, gone in enumerate(removals):
            inner = inner.where(gone, False) if m != n and gone is not None else inner
        scopes.append(inner)
    args = tuple(low.value(argument, inner) for argument, inner in zip(expr.arguments, scopes, strict=True))
    product = _of_values(low, expr, args, scopes, scope)
    gone = either(*(low.removal(argument, scope) for argument in above))
    if gone is None or not low.may_survive_removal(expr, scope):
        return product
    return where(low, low.value(gone, scope), zero(product.kind, expr.span), product)


def _is_safe(expr: ir.Expr) -> bool:
    """Whether no index in an expression may be out of bounds where a guard removed the factor beside it."""
    reads = (part for part in walk(expr) if isinstance(part, ir.Read))
    return all(isinstance(index, ir.Coord) for read in reads for index in read.indices)


def harmless(low: Lowering, expr: ir.Map, args: tuple[Value, ...], scopes: Sequence[Scope]) -> tuple[Value, ...]:
    """Arguments that are 1 off the domain where the function may have no value or no slope there: else neither what a
    mask leaves out nor its derivative would be finite. NaN may be the slope of a factor beside it. What is made of
    coordinates and whole numbers alone has no derivative."""
    if not any(map(is_learned, expr.arguments)):
        return args
    result = list(args)
    for n, arg in enumerate(args):
        if arg.is_host or not (_may_have_a_pole(expr.op, n, args) or _is_wild_slope(low, expr, n)):
            continue
        scope = low.asked(scopes[n])
        mask = low.mask(scope, arg.names) if scope.facts else None
        if mask is not None:
            result[n] = where(low, mask, arg, one_of(arg.kind, expr.span))
    return tuple(result)


def _is_wild_slope(low: Lowering, expr: ir.Map, n: int) -> bool:
    """Whether a factor may be infinite or NaN where a guard removed it, and is the slope of one that is learned; or
    what is learned may be NaN there, as then is the slope of a function of it that is not linear."""
    argument = expr.arguments[n]
    if expr.op in ("*", "/"):
        beside = any(map(is_learned, expr.arguments[:n] + expr.arguments[n + 1 :]))
        return beside and (low.poles.may_be_infinite(argument) or low.poles.may_be_undefined(argument))
    is_curved = expr.type.kind == "real" and expr.op not in LINEAR and not expr.op.startswith("as ")
    return is_curved and is_learned(argument) and low.poles.may_be_undefined(argument)


def _may_have_a_pole(op: str, n: int, args: tuple[Value, ...]) -> bool:
    """Whether a function may have no value, or no bounded slope, by one of its arguments."""
    row = operation(op)
    if row.unsettled_at and not args[n].known.finite:
        return True
    if n not in row.undefined and n not in row.steep and row.domain in (REALS, UNKNOWN):
        return False
    if op == "**":
        base, power = (_literal(arg) for arg in args)
        return not (power is not None and power >= 1) and not (base is not None and base > 0)
    match args[n].op:
        case Map(fn, (counted,)) if fn.startswith("as ") and counted.kind == "whole":
            return counted.known.least < (1 if row.undefined or row.steep else 0)
    return True


def _literal(arg: Value) -> Fraction | None:
    """The number that is written out; None for any other."""
    return Fraction(arg.op.expr.value) if isinstance(arg.op, Number) and isinstance(arg.op.expr, ir.Const) else None


# --------------------------------------------------------------------------- dtypes


def applied(low: Lowering, op: str, args: Sequence[Value], kind: Kind, span: Span) -> Value:
    """A function of values. Of numbers of the host it is one; else real arguments have one dtype."""
    if all(isinstance(arg.op, Number) for arg in args):
        return host(build.apply(op, tuple(number(arg) for arg in args), kind, span))
    if kind == "real" or (op in COMPARISONS and any(arg.kind == "real" for arg in args)):
        args = promoted(low, args, operation(op).exact or op in COMPARISONS)
    elif op in COMPARISONS and args[0].kind == "whole":
        args = wholes.promoted(args)
    if op in ("max", "min") and len(args) > 2:
        return applied(low, op, (applied(low, op, args[:-1], kind, span), args[-1]), kind, span)
    return apply(op, *args)


def promoted(low: Lowering, args: Sequence[Value], exact: bool = False) -> tuple[Value, ...]:
    """Real arguments in one dtype, which whole arrays and weak ones take. What has 16 bits is computed with 32, unless
    the function is `exact`: then nothing is rounded."""
    dtype = widest(arg.dtype for arg in args if arg.kind == "real")
    if dtype in SHORT and not (exact and all(_is_exactly(arg, dtype) for arg in args)):
        dtype = "f32"
    return tuple(arg if arg.is_host or arg.kind == "bool" else cast(arg, dtype or low.compute) for arg in args)


def _is_exactly(arg: Value, dtype: Dtype | None) -> bool:
    """Whether an argument is the same number in 16 bits."""
    return arg.dtype == dtype if arg.kind == "real" and not arg.is_host else arg.is_host and _is_small(number(arg))


def _is_small(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and Fraction(expr.value) in range(-256, 257)


def cast(arg: Value, dtype: Dtype | None) -> Value:
    """A number as a real of a dtype. Without one it is weak: an array of 64 bits that takes the dtype it meets."""
    if isinstance(arg.op, Number):
        return arg if arg.kind == "real" else host(as_real(arg.op.expr))
    if arg.kind == "whole":
        match arg.op:
            case Map("as i32", (small,)) if small.dtype in STORED_ONLY:
                arg = small  # It is the same real number, whatever it was widened to.
        return apply(f"as {dtype or 'real'}", arg)
    if dtype is None or arg.dtype == dtype or (arg.dtype is None and dtype == "f64"):
        return arg
    match arg.op:
        case Map("as f32" | "as wide", (short,)) if short.dtype in SHORT and dtype in (short.dtype, "f64"):
            return short if short.dtype == dtype else apply("as f64", short)
    return ops.cast(arg, dtype)


def cast_as(low: Lowering, expr: ir.Map, arg: Value, scope: Scope) -> Value:
    """A cast of the text. A number that it makes whole has to fit."""
    dtype: Dtype = expr.op[3:]  # type: ignore[assignment]
    if expr.type.kind == "whole":
        return wholes.cast(low, expr, arg, dtype, scope)
    if expr.type.kind == "bool" or (arg.dtype == dtype and not arg.is_host):
        return arg
    asked = arg.is_host or arg.kind != "real" or arg.dtype in SHORT
    return apply(expr.op, arg) if asked else cast(arg, dtype)


def as_kind(low: Lowering, body: Value, let: ir.Let, scope: Scope) -> Value:
    """The body of a definition in its kind and dtype: a real of 16 bits is rounded here, and once; a whole number of 32
    bits has to fit."""
    if let.kind == "real":
        return cast(body, None if let.name in low.weak else low.dtypes[let.name])
    dtype = low.dtypes[let.name]
    if let.kind == "whole" and body.is_host:
        wholes.check_fits(low, body, dtype, let.span, scope)
    if let.kind == "bool" or body.is_host or body.dtype == dtype:
        return body
    return wholes.fitted(low, body, dtype, let.span, scope)


# -------------------------------------------------------------------------- choices


def where(low: Lowering, test: Value, yes: Value, no: Value) -> Value:
    """One of two values at every point."""
    if all(isinstance(one.op, Number) for one in (test, yes, no)):
        return host(build.select(number(test), number(yes), number(no), number(test).span))
    if "real" in (yes.kind, no.kind):
        yes, no = (cast(one, low.compute) if one.kind == "whole" and one.is_host else one for one in (yes, no))
        yes, no = promoted(low, (yes, no), exact=True)
    elif yes.kind == "whole":
        yes, no = wholes.promoted((yes, no))
    return apply("where", test, yes, no)


# -------------------------------------------------------------------------- numbers


def number(one: Value) -> ir.Expr:
    """The expression of a number of the host."""
    assert isinstance(one.op, Number)
    return one.op.expr


def as_real(expr: ir.Expr) -> ir.Expr:
    """A whole number of the host as a real one."""
    if isinstance(expr, ir.Const):
        return build.real(Fraction(expr.value), expr.span)
    return build.apply("as real", (expr,), "real", expr.span)


def zero(kind: Kind, span: Span) -> Value:
    """What stands where a guard removed a point."""
    return host(build.truth(False, span)) if kind == "bool" else constant(0, kind, span)


def one_of(kind: Kind, span: Span) -> Value:
    return constant(1, kind, span)


def constant(value: int, kind: Kind, span: Span) -> Value:
    return host(build.whole(value, span) if kind == "whole" else build.real(Fraction(value), span))
