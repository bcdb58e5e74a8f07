"""Slopes of elementwise functions, in products and conditions rather than zeros and ones."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.quotients import Quotient, quotient_of, total
from ..ir.formulas import read
from ..ir.functions import FUNCTIONS

# A factor, and the conditions under which it counts.
Slope: TypeAlias = tuple[Quotient, tuple[ir.Expr, ...]]


def is_flat(expr: ir.Map) -> bool:
    """Whether the derivative is 0 everywhere: whole numbers, truth values, steps."""
    return expr.type.kind != "real" or (expr.op in FUNCTIONS and FUNCTIONS[expr.op].flat)


def is_said_by_value(expr: ir.Map) -> bool:
    """Whether the derivative is written in terms of the function's own value."""
    return expr.op in FUNCTIONS and FUNCTIONS[expr.op].by_value


def slope(expr: ir.Map, number: int, itself: ir.Expr) -> list[Slope]:
    """The derivative of `expr` by one argument, as terms to add up. `itself` is how its value is read.

    At a kink it is that of one side: `relu` and `abs` are 0 at 0, of equal arguments `max` and `min` take the first.
    """
    arguments = expr.arguments
    one = Quotient()
    match expr.op, arguments:
        case "+", _:
            return [(one, ())]
        case "-", _:
            return [(one.scaled(1 if number == 0 else -1), ())]
        case "neg", _:
            return [(one.scaled(-1), ())]
        case "*", (left, right):
            return [(quotient_of(right if number == 0 else left), ())]
        case "/", (_, below) if number == 0:
            return [(one.over(quotient_of(below)), ())]
        case "/", (above, below):
            if isinstance(itself, ir.Read):
                return [(quotient_of(itself).over(quotient_of(below)).scaled(-1), ())]
            return [(quotient_of(above).over(quotient_of(below)).over(quotient_of(below)).scaled(-1), ())]
        case "%", (above, below) if number == 1:
            turns = build.apply("-", (above, itself), "real", expr.span)
            return [(quotient_of(turns).over(quotient_of(below)).scaled(-1), ())]
        case "**", (base, ir.Const(exponent)) if number == 0:
            return [(_power(base, Fraction(exponent), expr), ())]
        case "**", (base, exponent) if number == 0:
            # `0 ** 0` is 1, and stays so.
            less = build.apply("-", (exponent, build.whole(1, expr.span)), exponent.type.kind, expr.span)
            power = build.apply("**", (base, less), "real", expr.span)
            return [(quotient_of(exponent).times(Quotient(factors=(power,))), (_holds("!=", exponent, _zero(expr)),))]
        case "**", (base, _):
            growth = build.apply("log", (base,), "real", expr.span)
            return [(Quotient(factors=(itself, growth)), (_holds("!=", base, _zero(expr)),))]
        case "clamp", (x, low, high):
            return [(one, _clamped(x, low, high, number))]
        case (("max" | "min"), several):
            return [(one, _wins(expr, number, several))]
        case "%", _:
            return [(one, ())]
        case _ if expr.op.startswith("as "):
            return [(one, ())]
        case _:
            return _of_one(expr, itself)


def partials(expr: ir.Map) -> tuple[ir.Expr | None, ...]:
    """The derivative by each argument as one expression; None where it is 0 everywhere."""
    return tuple(
        None if is_flat(expr) or argument.type.kind != "real" else _partial(expr, number)
        for number, argument in enumerate(expr.arguments)
    )


def _partial(expr: ir.Map, number: int) -> ir.Expr:
    """The derivative by one argument. A product and a quotient keep their parts whole, which are computed once."""
    if expr.op == "*":
        return expr.arguments[1 - number]
    if expr.op == "/" and number == 1:
        again = build.apply("/", (expr, expr.arguments[1]), "real", expr.span)
        return build.apply("neg", (again,), "real", expr.span)
    terms = []
    for product, conditions in slope(expr, number, expr):
        plain = not product.factors and not product.divisors
        value = build.real(product.number, expr.span) if plain else product.expression(expr.span)
        case = build.conjunction(conditions)
        zero = build.real(Fraction(0), expr.span)
        terms.append(value if case is None else build.select(case, value, zero, expr.span))
    found = total(terms, expr.span)
    assert found is not None
    return found


def _of_one(expr: ir.Map, itself: ir.Expr) -> list[Slope]:
    """The derivative of a function of one argument, as the table has it."""
    (x,), written = expr.arguments, FUNCTIONS[expr.op].slope
    assert written is not None, expr.op
    cases = ((written, ""),) if isinstance(written, str) else written

    def formula(text: str) -> ir.Expr:
        return read(
            text,
            {"x": x, "y": itself},
            lambda number: build.real(number, expr.span),
            lambda op, values: build.apply(op, values, "real", expr.span),
        )

    def holds(text: str) -> ir.Expr:
        return read(
            text,
            {"x": x},
            lambda number: build.whole(int(number), expr.span),
            lambda op, values: build.apply(op, values, "bool", x.span),
        )

    return [(quotient_of(formula(text)), (holds(condition),) if condition else ()) for text, condition in cases]


def _power(base: ir.Expr, exponent: Fraction, expr: ir.Map) -> Quotient:
    """`x ** n` has slope `n * x ** (n - 1)`, and `2 * x` is written so."""
    if exponent in (0, 1):
        return Quotient(exponent)
    if exponent == 2:
        return Quotient(exponent, (base,))
    whole = exponent.denominator == 1
    less = build.whole(int(exponent - 1), expr.span) if whole else build.real(exponent - 1, expr.span)
    return Quotient(exponent, (build.apply("**", (base, less), "real", expr.span),))


def _zero(expr: ir.Expr) -> ir.Expr:
    return build.whole(0, expr.span)


def _holds(op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return build.apply(op, (left, right), "bool", left.span)


def _clamped(x: ir.Expr, low: ir.Expr, high: ir.Expr, number: int) -> tuple[ir.Expr, ...]:
    """`clamp` is `min(max(x, low), high)`, also where its ends are crossed."""
    if number == 0:
        return _holds(">=", x, low), _holds("<=", x, high)
    if number == 1:
        return _holds("<", x, low), _holds("<=", low, high)
    return (_holds(">", build.apply("max", (x, low), "real", x.span), high),)


def _wins(expr: ir.Map, number: int, several: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """An argument counts where it is the largest (smallest), the first of those that are equal."""
    sign = ">" if expr.op == "max" else "<"
    return tuple(
        _holds(sign if place < number else f"{sign}=", several[number], other)
        for place, other in enumerate(several)
        if place != number
    )
