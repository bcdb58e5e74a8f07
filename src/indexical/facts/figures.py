"""Figures: the value of an expression that reads no input, at one point."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..ir import nodes as ir
from ..ir.algebra.factors import Forms
from ..ir.functions import FUNCTIONS
from ..ir.types import Coordinate


def _quotient(x: Any, y: Any) -> Any:
    """A whole quotient, toward 0."""
    return abs(x) // abs(y) * (1 if (x >= 0) == (y > 0) else -1)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": _quotient,
    "%": lambda x, y: x - _quotient(x, y) * y,
    "**": operator.pow,
    "neg": operator.neg,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda x, y: x and y,
    "||": lambda x, y: x or y,
    "!": operator.not_,
}


class _Unknown(Exception):
    """A value that hangs on an input."""


def figure(forms: Forms, expr: ir.Expr, point: Mapping[Coordinate, int], size: int) -> Any:
    """The value at a point where every coordinate has `size` points; None where it hangs on an input, on another
    coordinate or on a sum, or is no finite real number."""
    try:
        value = _figure(forms, expr, point, size)
    except (_Unknown, ArithmeticError, ValueError):
        return None
    return None if isinstance(value, complex) or value != value else value


def _figure(forms: Forms, expr: ir.Expr, point: Mapping[Coordinate, int], size: int) -> Any:
    match expr:
        case ir.Const(value):
            return value if isinstance(value, int) else float(value)
        case ir.Coord(coordinate) if coordinate in point:
            return point[coordinate]
        case ir.Size():
            return size
        case ir.Read() if (found := forms.opened(expr)) is not None:
            body, guard = found
            if guard is not None and not _figure(forms, guard, point, size):
                raise _Unknown
            return _figure(forms, body, point, size)
        case ir.Select(condition, then, otherwise):
            return _figure(forms, then if _figure(forms, condition, point, size) else otherwise, point, size)
        case ir.Map(op, arguments):
            values = [_figure(forms, argument, point, size) for argument in arguments]
            if op in _OPERATORS:
                return _OPERATORS[op](*values)
            if op.startswith("as "):
                return values[0]
            return FUNCTIONS[op].value(*values)
        case _:
            raise _Unknown
