"""An expression as the language writes it."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import assert_never

from .nodes import Array, Const, Coord, Expr, Map, Normalize, Read, Reduce, Select, Size

_LEVELS = {"||": 0, "&&": 1, "+": 3, "-": 3, "*": 4, "/": 4, "//": 4, "%": 4, "neg": 5, "**": 6}


def _real(value: Fraction) -> str:
    """In six digits; of a number that floats do not hold, the digits are found without them."""
    with suppress(OverflowError):
        if (near := float(value)) or not value:
            return f"{near:g}"
    from decimal import Context, Decimal

    context = Context(prec=6)
    return f"{context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context):e}"


def shown(expr: Expr, level: int = 0) -> str:
    """An expression as the language writes it."""
    match expr:
        case Const(value):
            return str(value).lower() if isinstance(value, bool | int) else _real(value)
        case Coord(coordinate):
            return str(coordinate).rstrip("'")
        case Size(coordinate):
            return f"size({coordinate.name})"
        case Read(tensor, indices):
            return f"{tensor}[{', '.join(map(shown, indices))}]" if indices else tensor
        case Map("neg", (operand,)):
            return f"-{shown(operand, 5)}"
        case Map("!", (operand,)):
            return f"!{shown(operand, 5)}"
        case Map(op, (left, right)) if not op[0].isalpha():
            mine = _LEVELS.get(op, 2)
            inner = f"{shown(left, mine)} {'/' if op == '//' else op} {shown(right, mine + 1)}"
            return f"({inner})" if mine < level else inner
        case Map("as inf"):
            return "inf"
        case Map(op, arguments) if op.startswith("as "):
            return f"{shown(arguments[0], 5)} {op}"
        case Map("pi"):
            return "pi"
        case Map(op, arguments):
            return f"{op}({', '.join(map(shown, arguments))})"
        case Select(condition, then, otherwise):
            return f"if {shown(condition)} {{ {shown(then)} }} else {{ {shown(otherwise)} }}"
        case Reduce(op, ranges, body, guard):
            where = "" if guard is None else f" where {shown(guard)}"
            return f"{op}[{', '.join(str(range.coordinate) for range in ranges)}]({shown(body)}{where})"
        case Normalize(op, coordinate, body, guard):
            where = "" if guard is None else f" where {shown(guard)}"
            return f"{op}[{coordinate}]({shown(body)}{where})"
        case Array():
            return expr.span.text
        case _:
            assert_never(expr)
