"""Numbers of the host as Python source: sizes, scalars, steps, and what is computed of them.

They are Python's own, and behave as IEEE says all the same: a quotient by 0 is infinite, the root of -1 is NaN. A whole
number that leaves 64 bits is refused.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ...ir import build
from ...ir import nodes as ir
from ...ir.affine import Polynomial, expression, is_counted, polynomial, tidied
from ...ir.conditions import OPPOSITE
from ...source import Span
from ..known import bounds_of, fits
from ..ops import Axis, Map, Number, Value, host
from .code import ATOM, CHOICE, LEVELS, TIMES, UNARY, Code, call, chain, closed, infix, prefix

if TYPE_CHECKING:
    from .printer import Printer

_ARITHMETIC = {"&&": "and", "||": "or"}

# Functions of numbers: a template, in which a name that is a helper is brought along.
_FUNCTIONS = {
    "exp": "guarded(math.exp, {0})",
    "exp2": "guarded(math.exp2, {0})",
    "expm1": "guarded(math.expm1, {0})",
    "log": "logarithm({0})",
    "log1p": "logarithm_1p({0})",
    "sqrt": "guarded(math.sqrt, {0})",
    "rsqrt": "divided(1.0, abs(guarded(math.sqrt, {0})))",
    "sin": "guarded(math.sin, {0})",
    "cos": "guarded(math.cos, {0})",
    "tanh": "math.tanh({0})",
    "erf": "math.erf({0})",
    "floor": "number_rounded(math.floor, {0})",
    "ceil": "number_rounded(math.ceil, {0})",
    "round": "number_rounded(round, {0})",
    "sigmoid": "number_sigmoid({0})",
    "silu": "number_silu({0})",
    "gelu": "number_gelu({0})",
    "softplus": "number_softplus({0})",
    "log_sigmoid": "-number_softplus(-{0})",
    "abs": "abs({0})",
    "relu": "max({0}, 0)",
    "as real": "float({0})",
    "as i32": "int({0})",
    "as i64": "int({0})",
    "as bool": "bool({0})",
    "pi": "math.pi",
    "as inf": "math.inf",
}

def expr_of(one: Value) -> ir.Expr | None:
    """A value that numbers of the host alone make, as an expression; None of an array."""
    match one.op:
        case Number(expr):
            return expr
        case Map(fn, args) if not one.axes and args and not fn.startswith(("as ", "some ")):
            exprs = [expr_of(arg) for arg in args]
            found = tuple(expr for expr in exprs if expr is not None)
            if len(found) < len(args):
                return None
            if fn == "where":
                test, then, otherwise = found
                return build.select(test, then, otherwise, test.span)
            return build.apply(fn, found, one.kind, found[0].span)
    return None


def number(p: Printer, expr: ir.Expr) -> Code:
    """A number of the host, its whole parts collected; one that has a name in the relation goes by that."""
    return _number(p, settled(expr))


def negated(p: Printer, one: Value) -> Code:
    """The opposite of a condition: of a number of the host, or of an array."""
    match one.op:
        case Number(ir.Map(sign, args)) if sign in OPPOSITE and all(arg.type.kind == "whole" for arg in args):
            return infix(OPPOSITE[sign], *(number(p, arg) for arg in args))
        case Number(ir.Map("&&" | "||" as sign, args)):
            return chain("or" if sign == "&&" else "and", [negated(p, host(arg)) for arg in args])
        case Number(expr):
            return prefix("not ", number(p, expr))
        case Map("!", (opposite,)):
            return p.code(opposite)
    return prefix("~", p.code(one))


def settled(expr: ir.Expr) -> ir.Expr:
    """A whole number with its parts collected; of two that are a known distance apart, the larger or the smaller."""
    match expr:
        case ir.Map("max" | "min" as op, (left, right)) if expr.type.kind == "whole":
            apart = polynomial(left) - polynomial(right)
            if is_counted(apart) or is_counted(-apart):
                return settled(left if is_counted(apart) == (op == "max") else right)
    return tidied(expr)


def counted(p: Printer, value: Polynomial, span: Span) -> Code:
    """A whole number that a polynomial says."""
    return _number(p, tidied(expression(value, span)))


def extent(p: Printer, axis: Axis) -> Code:
    """The number of points of an axis: 0 where its extent is negative."""
    code = number(p, axis.extent)
    return code if is_counted(polynomial(axis.extent)) else call("max", 0, code)


def is_filled(axis: Axis) -> bool:
    """Whether an axis surely has a point, as every tile has one."""
    if isinstance(axis.extent, ir.Size) and axis.extent.coordinate.name.endswith("'n"):
        return True
    return is_counted(polynomial(axis.extent) - 1)


def _number(p: Printer, expr: ir.Expr) -> Code:
    if expr in p.numbers:
        p.unread.pop(p.numbers[expr], None)
        return Code(p.numbers[expr])
    match expr:
        case ir.Const(value):
            return _literal(p, value, expr.type.kind == "real")
        case ir.Size(coordinate):
            return Code(p.size(coordinate))
        case ir.Coord(coordinate):
            return Code(p.steps[coordinate])
        case ir.Read(name, ()):
            return Code(p.variables[name])
        case ir.Select(test, then, other):
            yes, no = (closed(_number(p, part), CHOICE - 1) for part in (then, other))
            return Code(f"{yes} if {closed(_number(p, test), CHOICE - 1)} else {no}", CHOICE)
        case ir.Map(op, args):
            return number_of(p, op, [_number(p, arg) for arg in args], args)
    raise TypeError(expr)


def _literal(p: Printer, value: bool | int | Fraction, real: bool) -> Code:
    if isinstance(value, bool):
        return Code(str(value))
    if not real:
        return Code(str(value), UNARY if value < 0 else ATOM)
    try:
        text = repr(float(value))
    except OverflowError:
        text = f"{'' if value > 0 else '-'}{p.helper('math.inf')}"
    return Code(text, UNARY if value < 0 else ATOM)


def number_of(p: Printer, op: str, codes: list[Code], args: tuple[ir.Expr, ...]) -> Code:
    """An operation on numbers of the host."""
    match op:
        case "//" | "%":
            return _quotient(p, op, codes, args)
        case "/":
            if _is_nonzero(args[1]):
                return infix("/", *codes)
            return p.call("divided", *codes)
        case "**" if args[0].type.kind == "whole" and args[1].type.kind == "whole":
            plain = is_counted(polynomial(args[1]))
            return infix("**", *codes) if plain else p.call("whole_power", *codes)
        case "**" if not _is_square(args[1]):
            return p.call("number_power", *codes)
        case "neg":
            return prefix("-", codes[0])
        case "!":
            return prefix("not ", codes[0])
        case "&&" | "||":
            return chain(_ARITHMETIC[op], codes)
        case "max" | "min":
            return _extreme(p, op, codes, args)
        case "clamp":
            return _extreme(p, "min", [_extreme(p, "max", codes[:2], args[:2]), codes[2]], args[1:])
        case "sqrt" if _is_counted(args[0]):
            return p.call("math.sqrt", codes[0])
    if op in LEVELS:
        return infix(op, *codes)
    return p.template(_FUNCTIONS[op], codes)


def _quotient(p: Printer, op: str, codes: list[Code], args: tuple[ir.Expr, ...]) -> Code:
    """A quotient or remainder, truncated toward zero: that is Python's own where nothing is negative."""
    if args[0].type.kind == "real":
        return p.call("number_remainder", *codes)
    least = bounds_of(args[1])[0]
    if bounds_of(args[0])[0] >= 0 and (least > 0 or (least == 0 and args[1] in p.nonzero)):
        return infix(op, *codes)
    whole = p.call("truncated", *codes)
    return whole if op == "//" else infix("-", codes[0], Code(f"{whole} * {closed(codes[1], UNARY)}", TIMES))


def _extreme(p: Printer, op: str, codes: list[Code], args: tuple[ir.Expr, ...]) -> Code:
    """The largest or the smallest number. Python's own passes a NaN on where it stands first."""
    is_own = all(isinstance(arg, ir.Const) or arg.type.kind == "whole" for arg in args[1:])
    return call(op, *codes) if is_own else p.call("number_extreme", op, *codes)


def fitting(p: Printer, expr: ir.Expr) -> Code:
    """A number that becomes part of an array: a whole one is refused where it leaves 64 bits."""
    code = number(p, expr)
    if expr.type.kind != "whole" or not isinstance(expr, ir.Map | ir.Select) or fits(bounds_of(expr), "i64"):
        return code
    return p.call("fitting", code)


def _is_nonzero(expr: ir.Expr) -> bool:
    """Whether a number is surely not 0: written out, or the root of such a one."""
    match expr:
        case ir.Const(value):
            return bool(value)
        case ir.Map("sqrt" | "as real" | "exp" | "pi", args):
            return all(map(_is_nonzero, args))
    return expr.type.kind == "whole" and is_counted(polynomial(expr) - 1)


def _is_counted(expr: ir.Expr) -> bool:
    """Whether a number is never negative."""
    match expr:
        case ir.Const(value):
            return value >= 0
        case ir.Map("as real", (inner,)):
            return _is_counted(inner)
    return expr.type.kind == "whole" and is_counted(polynomial(expr))


def _is_square(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Const) and expr.value in (1, 2)


def is_never_negative(one: Value) -> bool:
    """Whether a whole value is never negative."""
    return one.known.least >= 0


def is_positive(one: Value) -> bool:
    """Whether a whole value is more than 0."""
    return one.known.least > 0
