"""Whole expressions without coordinates, evaluated."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from .nodes import Const, Expr, Map, Read, Size

LARGEST = 2**63 - 1

Lookup: TypeAlias = "Callable[[Size | Read], int]"


class Unknown(Exception):
    """The expression is made of something whose value is not known."""


def value(expr: Expr, lookup: Lookup) -> int:
    """The value of a bound or an extent. Division truncates toward zero; by zero there is none."""
    match expr:
        case Const(number):
            return int(number)
        case Size() | Read():
            return lookup(expr)
        case Map(op, arguments):
            return _apply(op, [value(argument, lookup) for argument in arguments])
        case _:
            raise Unknown


def _apply(op: str, numbers: list[int]) -> int:
    match op, numbers:
        case "+", [a, b]:
            return a + b
        case "-", [a, b]:
            return a - b
        case "*", _:
            return prod(numbers)
        case "neg", [a]:
            return -a
        case "abs", [a]:
            return abs(a)
        case "max", _:
            return max(numbers)
        case "min", _:
            return min(numbers)
        case "//", [a, b] if b:
            return quotient(a, b)
        case "%", [a, b] if b:
            return a - quotient(a, b) * b
        case "**", [a, b] if 0 <= b <= 64:
            return int(a**b)
    raise Unknown


def quotient(a: int, b: int) -> int:
    """Truncated toward zero."""
    return abs(a) // abs(b) * (1 if (a >= 0) == (b > 0) else -1)
