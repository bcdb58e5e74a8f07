"""Conditions: taken apart, and turned into their opposites."""

from __future__ import annotations

from . import build
from . import nodes as ir

# What fails wherever a comparison holds, and what holds with its sides exchanged.
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def conjuncts_of(condition: ir.Expr | None) -> list[ir.Expr]:
    """The conditions that must all hold, as they are written."""
    match condition:
        case None:
            return []
        case ir.Map("&&", (left, right)):
            return conjuncts_of(left) + conjuncts_of(right)
        case _:
            return [condition]


def negated(condition: ir.Expr) -> ir.Expr:
    """The opposite of a condition. Of reals only equality has one: nothing compares with NaN."""
    match condition:
        case ir.Map(op, arguments, type, span) if op in OPPOSITE:
            if op in ("==", "!=") or all(argument.type.kind == "whole" for argument in arguments):
                return ir.Map(OPPOSITE[op], arguments, type, span)
    return fails(condition)


def fails(condition: ir.Expr) -> ir.Expr:
    """The negation of a condition, as it is written."""
    if isinstance(condition, ir.Map) and condition.op == "!":
        return condition.arguments[0]
    return build.apply("!", (condition,), "bool", condition.span)
