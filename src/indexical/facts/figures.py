"""Figures: the value of an expression that reads no input, at one point."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..ir import nodes as ir
from ..ir.algebra.factors import Forms
from ..ir.functions import FUNCTIONS
from ..ir.types import Coordinate
from ..records import dataclass, field


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


@dataclass(frozen=True, slots=True)
class Known:
    """The known things besides a point: how many points each coordinate has, by its name or one number for all; arrays
    of tensors; the value that stands for every sum."""

    sizes: int | Mapping[str, int]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    total: float | None = None


def figure(forms: Forms, expr: ir.Expr, point: Mapping[Coordinate, int], known: Known | int) -> Any:
    """The value at a point where every coordinate has so many points; None where it hangs on an input, on another
    coordinate or on a sum, and that is not known, or is no finite real number."""
    try:
        value = _figure(forms, expr, point, Known(known) if isinstance(known, int) else known)
    except (_Unknown, ArithmeticError, ValueError, LookupError):
        return None
    return None if isinstance(value, complex) or value != value else value


def _figure(forms: Forms, expr: ir.Expr, point: Mapping[Coordinate, int], known: Known) -> Any:
    match expr:
        case ir.Const(value):
            return value if isinstance(value, int) else float(value)
        case ir.Coord(coordinate) if coordinate in point:
            return point[coordinate]
        case ir.Size(coordinate):
            return known.sizes if isinstance(known.sizes, int) else known.sizes[coordinate.name]
        case ir.Read(tensor, indices) if tensor in known.arrays:
            return known.arrays[tensor][tuple(_figure(forms, index, point, known) for index in indices)].item()
        case ir.Read() if (found := forms.opened(expr)) is not None:
            body, guard = found
            if guard is not None and not _figure(forms, guard, point, known):
                raise _Unknown
            return _figure(forms, body, point, known)
        case ir.Reduce("sum") if known.total is not None:
            return known.total
        case ir.Select(condition, then, otherwise):
            return _figure(forms, then if _figure(forms, condition, point, known) else otherwise, point, known)
        case ir.Map(op, arguments):
            values = [_figure(forms, argument, point, known) for argument in arguments]
            if op in _OPERATORS:
                return _OPERATORS[op](*values)
            if op.startswith("as "):
                return values[0]
            return FUNCTIONS[op].value(*values)
        case _:
            raise _Unknown
