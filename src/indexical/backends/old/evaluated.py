"""The values of expressions of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from .code import Attribute, Between, Call, Index, Infix, Name, Node, Number, Prefix, Ternary, Tuple

CONSTANTS: Mapping[str, Any] = {"True": True, "False": False}

_INFIX: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PREFIX: Mapping[str, Callable[[Any], Any]] = {"-": operator.neg, "not ": operator.not_}


def evaluated(code: Node, known: Mapping[str, Any]) -> Any:
    """What an expression is worth where these names are `known`; a `LookupError` where it has others, or is of another
    kind. Python decides in the same order what is asked at all."""

    def of(part: Node) -> Any:
        return evaluated(part, known)

    match code:
        case Name(text):
            return known[text]
        case Number(text):
            return int(text) if text.lstrip("-").isdigit() else float(text)
        case Infix("and", left, right):
            return of(left) and of(right)
        case Infix("or", left, right):
            return of(left) or of(right)
        case Infix(op, left, right):
            return _INFIX[op](of(left), of(right))
        case Prefix(op, operand):
            return _PREFIX[op](of(operand))
        case Between(low, value, high):
            return of(low) <= of(value) < of(high)
        case Ternary(then, condition, otherwise):
            return of(then) if of(condition) else of(otherwise)
        case Tuple(items):
            return tuple(map(of, items))
        case Attribute(array, name):
            return getattr(of(array), name)
        case Index(array, (slot,)):
            return of(array)[of(slot)]
        case Call(function, arguments, ()):
            return of(function)(*map(of, arguments))
    raise LookupError(code)
