"""Whole expressions without coordinates, evaluated."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

from ..source import Span
from . import build
from .nodes import Const, Expr, Map, Read, Size
from .types import Coordinate

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


def to_json(expr: Expr) -> Any:
    """An extent as plain data: a number, `{"size": "i"}`, `{"read": "n"}`, or an operation with its arguments."""
    match expr:
        case Const(int(number)):
            return int(number)
        case Size(coordinate):
            return {"size": str(coordinate)}
        case Read(tensor, ()):
            return {"read": tensor}
        case Map(op, arguments):
            return [op, *map(to_json, arguments)]
        case _:
            raise Unknown


def from_json(found: Any, span: Span) -> Expr:
    """The extent that `to_json` has written."""
    match found:
        case int(number):
            return build.whole(number, span)
        case {"size": str(name)}:
            return build.size(Coordinate(name.removeprefix(".."), name.startswith("..")), span)
        case {"read": str(tensor)}:
            return build.read(tensor, (), "whole", span)
        case [str(op), *arguments]:
            return build.apply(op, tuple(from_json(argument, span) for argument in arguments), "whole", span)
        case _:
            raise Unknown
