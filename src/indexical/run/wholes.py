"""Whole numbers of 64 bits, and checks that fail at a point of the run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir.functions import FUNCTIONS
from ..ir.types import Coordinate
from ..ir.whole import LARGEST, quotient
from ..source import Span

# Where an expression is evaluated: the value of every coordinate in force.
Point: TypeAlias = dict[Coordinate, int]

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def whole_result(expr: ir.Map, values: list[int], point: Point) -> int:
    """Arithmetic on whole numbers of 64 bits; one that does not fit is an error, never a wrapped number."""
    match expr.op, values:
        case (("+" | "-" | "*" as op), [a, b]):
            return checked(ARITHMETIC[op](a, b), expr, point)
        case "neg", [a]:
            return checked(-a, expr, point)
        case (("//" | "%" as op), [a, b]):
            if b == 0:
                raise failure("IX505", "a whole number divided by zero", expr.span, point)
            return checked(quotient(a, b), expr, point) if op == "//" else a - quotient(a, b) * b
        case "**", [a, b]:
            if b < 0:
                raise failure("IX505", "a whole number to a negative power is not whole", expr.span, point)
            return checked(a**b if abs(a) <= 1 or b <= 64 else LARGEST + 1, expr, point)
    row = FUNCTIONS[expr.op]
    assert row.keeps_whole, expr.op
    return checked(int(row.value(*values)), expr, point)


def checked(value: int, expr: ir.Expr, point: Point, most: int = LARGEST) -> int:
    if -most - 1 <= value <= most:
        return value
    bits = most.bit_length() + 1
    raise failure("IX505", f"this whole number does not fit in {bits} bits", expr.span, point)


def failure(code: str, message: str, span: Span, point: Point, words: str = "") -> CallError:
    """A check that failed in the run, at a point."""
    at = ", ".join(f"`{c} = {v}`" for c, v in point.items() if not c.rest)
    notes = (f"at {at}",) if at else ()
    return CallError([Diagnostic(code, message, (Label(span, words),), notes)])
