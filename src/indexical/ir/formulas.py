"""Short formulas in `x` and `y`, as the table of functions has them, read into any kind of number or expression."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Lt: "<",
    ast.Gt: ">",
}

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "neg": operator.neg,
}


@lru_cache(maxsize=256)
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def read(
    formula: str, names: Mapping[str, T], number: Callable[[Fraction], T], apply: Callable[[str, tuple[T, ...]], T]
) -> T:
    """The formula, made of what `number` and `apply` give for its literals and for its operators and functions."""

    def visit(node: ast.AST) -> T:
        match node:
            case ast.Constant(value):
                return number(Fraction(repr(value)))
            case ast.UnaryOp(ast.USub(), ast.Constant(value)):
                return number(-Fraction(repr(value)))
            case ast.UnaryOp(ast.USub(), operand):
                return apply("neg", (visit(operand),))
            case ast.Name(name):
                return names[name]
            case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
                return apply(_SIGNS[type(op)], (visit(left), visit(right)))
            case ast.Call(ast.Name(name), arguments):
                return apply(name, tuple(map(visit, arguments)))
            case _:
                raise AssertionError(formula)

    return visit(_parsed(formula))


def evaluated(
    formula: str,
    x: Any,
    functions: Mapping[str, Callable[..., Any]],
    number: Callable[[Fraction], Any] = lambda number: number,
    divide: Callable[[Any, Any], Any] = operator.truediv,
) -> Any:
    """The value of a formula at `x`, among numbers that have signs and these functions."""
    known = {**functions, **_ARITHMETIC, "/": divide}
    return read(formula, {"x": x}, number, lambda op, values: known[op](*values))


def variables(formula: str) -> frozenset[str]:
    """Return those of `x` and `y` that a formula mentions."""
    return frozenset(node.id for node in ast.walk(_parsed(formula)) if isinstance(node, ast.Name)) & {"x", "y"}
