"""Derivatives of smooth functions of one argument, as expressions of it."""

from __future__ import annotations

import math
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir

PI = Fraction(str(math.pi))

# Functions that are flat wherever they have a derivative: nothing flows back through them.
FLAT = frozenset(("floor", "ceil", "round"))


def smooth(expr: ir.Map) -> ir.Expr:
    """The derivative of a smooth function by its argument; its own value stands in it as the expression itself."""
    span = expr.span

    def number(value: int | Fraction) -> ir.Expr:
        return build.real(Fraction(value), span)

    def apply(op: str, *values: ir.Expr) -> ir.Expr:
        return build.apply(op, values, "real", span)

    one, (x,) = number(1), expr.arguments
    match expr.op:
        case "exp":
            return expr
        case "log":
            return apply("/", one, x)
        case "sqrt":
            return apply("/", number(Fraction(1, 2)), expr)
        case "rsqrt":
            return apply("/", apply("*", number(Fraction(-1, 2)), expr), x)
        case "tanh":
            return apply("-", one, apply("*", expr, expr))
        case "sigmoid":
            return apply("*", expr, apply("-", one, expr))
        case "sin":
            return apply("cos", x)
        case "cos":
            return apply("neg", apply("sin", x))
        case "erf":
            bell = apply("exp", apply("neg", apply("*", x, x)))
            return apply("/", apply("*", number(2), bell), apply("sqrt", number(PI)))
        case "silu":
            gate = apply("sigmoid", x)
            return apply("*", gate, apply("+", one, apply("*", x, apply("-", one, gate))))
        case "gelu":
            bell = apply("exp", apply("/", apply("neg", apply("*", x, x)), number(2)))
            ramp = apply("+", one, apply("erf", apply("/", x, apply("sqrt", number(2)))))
            carried = apply("/", apply("*", x, bell), apply("sqrt", number(2 * PI)))
            return apply("+", apply("/", ramp, number(2)), carried)
        case _:
            raise AssertionError(expr.op)
