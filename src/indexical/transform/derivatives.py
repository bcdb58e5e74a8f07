"""Derivatives of elementwise functions, as expressions of their arguments."""

from __future__ import annotations

import math
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir

PI = Fraction(str(math.pi))

# Functions that are flat wherever they have a derivative, or that are no reals: nothing flows back through them.
FLAT = frozenset(("floor", "ceil", "round"))


def partials(expr: ir.Map) -> tuple[ir.Expr | None, ...]:
    """The derivative of an elementwise function by each of its arguments; None where it is 0.

    At a kink it is that of one side: `relu` and `abs` are 0 at 0, of equal arguments `max` and `min` take the first.
    """
    arguments = expr.arguments
    if expr.type.kind != "real" or expr.op in FLAT:
        return (None,) * len(arguments)
    found = _partials(expr)
    return tuple(d if a.type.kind == "real" else None for d, a in zip(found, arguments, strict=True))


def _partials(expr: ir.Map) -> tuple[ir.Expr | None, ...]:
    span = expr.span

    def number(value: int | Fraction | float) -> ir.Expr:
        return build.real(Fraction(value), span)

    def apply(op: str, *values: ir.Expr) -> ir.Expr:
        return build.apply(op, values, "real", span)

    def choose(condition: ir.Expr, then: ir.Expr, otherwise: ir.Expr) -> ir.Expr:
        return build.select(condition, then, otherwise, span)

    def holds(op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        return build.apply(op, (left, right), "bool", span)

    one, zero = number(1), number(0)
    match expr.op, expr.arguments:
        case "+", (_, _):
            return one, one
        case "-", (_, _):
            return one, number(-1)
        case "neg", (_,):
            return (number(-1),)
        case "*", (a, b):
            return b, a
        case "/", (a, b):
            return apply("/", one, b), apply("neg", apply("/", expr, b))
        case "%", (a, b):
            return one, apply("/", apply("-", expr, a), b)
        case "**", (a, b):
            if isinstance(b, ir.Const):
                return apply("*", b, apply("**", a, apply("-", b, one))), None
            by_base = choose(holds("==", b, zero), zero, apply("*", b, apply("**", a, apply("-", b, one))))
            return by_base, choose(holds("==", a, zero), zero, apply("*", expr, apply("log", a)))
        case "exp", (_,):
            return (expr,)
        case "log", (x,):
            return (apply("/", one, x),)
        case "sqrt", (x,):
            return (apply("/", number(Fraction(1, 2)), expr),)
        case "rsqrt", (x,):
            return (apply("/", apply("*", number(Fraction(-1, 2)), expr), x),)
        case "tanh", (_,):
            return (apply("-", one, apply("*", expr, expr)),)
        case "sigmoid", (_,):
            return (apply("*", expr, apply("-", one, expr)),)
        case "relu", (x,):
            return (choose(holds(">", x, zero), one, zero),)
        case "abs", (x,):
            return (choose(holds(">", x, zero), one, choose(holds("<", x, zero), number(-1), zero)),)
        case "sin", (x,):
            return (apply("cos", x),)
        case "cos", (x,):
            return (apply("neg", apply("sin", x)),)
        case "erf", (x,):
            bell = apply("exp", apply("neg", apply("*", x, x)))
            return (apply("/", apply("*", number(2), bell), apply("sqrt", number(PI))),)
        case "silu", (x,):
            gate = apply("sigmoid", x)
            return (apply("*", gate, apply("+", one, apply("*", x, apply("-", one, gate)))),)
        case "gelu", (x,):
            bell = apply("exp", apply("/", apply("neg", apply("*", x, x)), number(2)))
            ramp = apply("+", one, apply("erf", apply("/", x, apply("sqrt", number(2)))))
            carried = apply("/", apply("*", x, bell), apply("sqrt", number(2 * PI)))
            return (apply("+", apply("/", ramp, number(2)), carried),)
        case "clamp", (x, low, high):
            above, below = holds("<", x, low), holds(">", x, high)
            inside = choose(above, zero, choose(below, zero, one))
            raised = choose(above, choose(holds("<=", low, high), one, zero), zero)
            return inside, raised, choose(holds(">", apply("max", x, low), high), one, zero)
        case (("max" | "min"), several):
            return tuple(_wins(expr, n, several, holds, choose, one, zero) for n in range(len(several)))
        case _ if expr.op.startswith("as "):
            return (one,)
        case _:
            raise AssertionError(expr.op)


def _wins(expr: ir.Map, n: int, several: tuple[ir.Expr, ...], holds, choose, one, zero) -> ir.Expr:  # type: ignore[no-untyped-def]
    """1 where an argument is the largest (smallest), the first of those that are equal."""
    result: ir.Expr = one
    for m, other in enumerate(several):
        if m != n:
            strict = (">" if expr.op == "max" else "<") + ("" if m < n else "=")
            result = choose(holds(strict, several[n], other), result, zero)
    return result
