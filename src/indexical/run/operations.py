"""Operators, functions and casts, staged."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir import nodes as ir
from ..ir.whole import LARGEST
from .tables import Numbers, Stage
from .wholes import ARITHMETIC, Point, checked, failure, whole_result

if TYPE_CHECKING:
    from .reference import Evaluation

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def operation(evaluation: Evaluation, expr: ir.Map) -> Stage:
    """An elementwise function. `&&` and `||` evaluate their right side only where it decides."""
    arguments = list(map(evaluation.compiled, expr.arguments))
    match expr.op, arguments:
        case "&&", [left, right]:
            return lambda point: left(point) and right(point)
        case "||", [left, right]:
            return lambda point: left(point) or right(point)
        case "!", [argument]:
            return lambda point: not argument(point)
        case op, [left, right] if op in _COMPARISONS:
            if any(argument.type.kind == "real" for argument in expr.arguments):
                return _real(evaluation.numbers, _COMPARISONS[op], arguments)
            compare = _COMPARISONS[op]
            return lambda point: compare(left(point), right(point))
        case "pi", _:
            constant = evaluation.numbers.pi
            return lambda point: constant
        case op, [argument] if op.startswith("as "):
            return _cast(evaluation.numbers, expr, argument, op[3:])
        case (("*" | "/"), _):
            return _unless_removed(evaluation, expr, _arithmetic(evaluation.numbers, expr, arguments))
        case _:
            return _arithmetic(evaluation.numbers, expr, arguments)


def _unless_removed(evaluation: Evaluation, expr: ir.Map, product: Stage) -> Stage:
    """A product: 0 where a guard removed a factor, and then no factor is read."""
    removed = evaluation.removal(expr)
    removable, key = evaluation.removable, id(expr)
    nothing = 0 if expr.type.kind == "whole" else evaluation.zero

    def value(point: Point) -> Any:
        if removable.get(key, True) and removed(point):
            return nothing
        return product(point)

    return value


def _arithmetic(numbers: Numbers, expr: ir.Map, arguments: list[Stage]) -> Stage:
    if expr.type.kind != "whole":
        return _real(numbers, _function(numbers, expr.op), arguments)
    if expr.op in ARITHMETIC:
        combine, (left, right) = ARITHMETIC[expr.op], arguments
        return lambda point: checked(combine(left(point), right(point)), expr, point)
    return lambda point: whole_result(expr, [argument(point) for argument in arguments], point)


def _function(numbers: Numbers, op: str) -> Callable[..., Any]:
    match op:
        case "+" | "-" | "*":
            return ARITHMETIC[op]
        case "neg":
            return operator.neg
        case "/":
            return numbers.divide
        case "%":
            return numbers.remainder
        case "**":
            return numbers.power
        case _:
            # Looked up at a point: a number type may lack what no point asks for.
            return lambda *reals: numbers.functions[op](*reals)


def _real(numbers: Numbers, function: Callable[..., Any], arguments: list[Stage]) -> Stage:
    """A function of reals: whole numbers among its arguments become real."""
    number = numbers.number

    def of_all(point: Point) -> Any:
        values = [argument(point) for argument in arguments]
        return function(*[number(value) if isinstance(value, int) else value for value in values])

    if len(arguments) != 2:
        return of_all
    left, right = arguments

    def of_two(point: Point) -> Any:
        a, b = left(point), right(point)
        if isinstance(a, int):
            a = number(a)
        if isinstance(b, int):
            b = number(b)
        return function(a, b)

    return of_two


def _cast(numbers: Numbers, expr: ir.Map, argument: Stage, dtype: str) -> Stage:
    """A number in another dtype: a whole one is truncated toward zero, a real one rounded as the dtype rounds."""

    def real(point: Point) -> Any:
        value = argument(point)
        return numbers.cast(numbers.number(int(value)) if isinstance(value, int) else value, dtype)

    def whole(point: Point) -> int:
        value = argument(point)
        try:
            result = int(value)
        except (ValueError, OverflowError):
            raise failure("IX505", f"{value} is not a whole number", expr.span, point) from None
        return checked(result, expr, point, 2**31 - 1 if dtype == "i32" else LARGEST)

    return {"bool": argument, "real": real, "whole": whole}[expr.type.kind]
