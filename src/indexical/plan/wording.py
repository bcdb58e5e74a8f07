"""What is said of a step, in the words of the program."""

from __future__ import annotations

from typing import assert_never

from ..ir import nodes as ir
from .steps import Attend, Piece


def words_of(attend: Attend, fused: bool) -> tuple[str, ...]:
    """Who hears whom, what is added to a score, and what a value that is not finite does."""
    key = attend.attention.coordinate.name
    lines = []
    if attend.shape == "full":
        lines.append(f"every query hears every `{key}`")
    elif attend.shape == "causal":
        lines.append(f"causal: `{' && '.join(map(_shown, attend.attention.guard))}`, no mask is built")
    elif not attend.mask.pieces:
        lines.append(f"no query hears any `{key}`")
    else:
        lines += [f"{'or ' if n else ''}hears {_heard(piece, key)}" for n, piece in enumerate(attend.mask.pieces)]
    if attend.scores.bias is not None and attend.scores.dot is not None:
        lines.append(f"added to the scores, tile by tile: `{_shown(attend.scores.bias)}`")
    if attend.attention.empty == "nan":
        lines.append("a row that hears nobody is NaN, as the division by 0 says")
    if attend.attention.guard:
        lines.append(
            f"a value that is not finite spreads to all rows of its block; a `{key}` that nobody hears is not read"
        )
    return tuple(lines)


def _heard(piece: Piece, key: str) -> str:
    parts = []
    if piece.lower:
        parts.append("from " + _one_of("the largest of", piece.lower))
    if piece.upper:
        parts.append("up to, not with, " + _one_of("the smallest of", piece.upper))
    for asks, answers in piece.groups:
        parts.append(f"of the same group, `{_shown(asks)}` and `{_shown(answers)}`")
    parts += [f"where `{_shown(condition)}`" for condition in piece.rest]
    return f"`{key}` " + ", ".join(parts) if parts else f"every `{key}`"


def _one_of(words: str, bounds: tuple[ir.Expr, ...]) -> str:
    shown = [f"`{_shown(bound)}`" for bound in bounds]
    return shown[0] if len(shown) == 1 else f"{words} {', '.join(shown)}"


_LEVELS = {"||": 0, "&&": 1, "+": 3, "-": 3, "*": 4, "/": 4, "//": 4, "%": 4, "neg": 5, "**": 6}


def _shown(expr: ir.Expr, level: int = 0) -> str:
    """An expression as the language writes it."""
    match expr:
        case ir.Const(value):
            return str(value) if isinstance(value, bool | int) or value.denominator == 1 else f"{float(value):g}"
        case ir.Coord(coordinate):
            return str(coordinate)
        case ir.Size(coordinate):
            return f"size({coordinate.name})"
        case ir.Read(tensor, indices):
            return f"{tensor}[{', '.join(map(_shown, indices))}]" if indices else tensor
        case ir.Map("neg", (operand,)):
            return f"-{_shown(operand, 5)}"
        case ir.Map("!", (operand,)):
            return f"!{_shown(operand, 5)}"
        case ir.Map(op, (left, right)) if not op[0].isalpha():
            mine = _LEVELS.get(op, 2)
            inner = f"{_shown(left, mine)} {'/' if op == '//' else op} {_shown(right, mine + 1)}"
            return f"({inner})" if mine < level else inner
        case ir.Map(op, arguments) if op.startswith("as "):
            return f"{_shown(arguments[0], 5)} {op}"
        case ir.Map(op, arguments):
            return f"{op}({', '.join(map(_shown, arguments))})"
        case ir.Select(condition, then, otherwise):
            return f"if {_shown(condition)} {{ {_shown(then)} }} else {{ {_shown(otherwise)} }}"
        case ir.Reduce(op, ranges, body, guard):
            where = "" if guard is None else f" where {_shown(guard)}"
            return f"{op}[{', '.join(str(range.coordinate) for range in ranges)}]({_shown(body)}{where})"
        case ir.Normalize(op, coordinate, body, guard):
            where = "" if guard is None else f" where {_shown(guard)}"
            return f"{op}[{coordinate}]({_shown(body)}{where})"
        case ir.Array():
            return expr.span.text
        case _:
            assert_never(expr)
