"""What is said of a step, in the words of the program."""

from __future__ import annotations

from typing import assert_never

from ..ir import nodes as ir
from ..ir.walk import walk
from .steps import Attend, Piece


def words_of(attend: Attend, fused: bool) -> tuple[str, ...]:
    """Who hears whom, what is added to a score, and what a value that is not finite does."""
    key = attend.attention.coordinate.name
    lines = []
    if attend.shape == "full":
        lines.append(f"every query hears every `{key}`")
    elif attend.shape == "causal":
        guard = " && ".join(map(_shown, attend.attention.guard))
        lines.append(f"hears `{key}` where `{guard}`; no mask is built")
    elif not attend.mask.pieces:
        lines.append(f"no query hears any `{key}`")
    else:
        lines += [f"{'or ' if n else ''}hears {_heard(piece, key)}" for n, piece in enumerate(attend.mask.pieces)]
    if attend.scores.bias is not None and attend.scores.dot is not None:
        lines.append(f"added to the scores, tile by tile: `{_shown(attend.scores.bias)}`")
        learned = dict.fromkeys(
            r.tensor for r in walk(attend.scores.bias) if isinstance(r, ir.Read) and r.type.kind == "real"
        )
        if learned and not fused:
            lines.append(f"where {' or '.join(f'`{name}`' for name in learned)} wants a gradient: by stream")
    if attend.attention.empty == "nan":
        lines.append("a row that hears nobody is NaN: it is 0 / 0")
    if attend.attention.guard:
        spread = "NaN and infinity may spread within a block (`isolate=True` keeps them apart)"
        lines.append(f"{spread}; a `{key}` that nobody hears is not read")
    return tuple(lines)


def _heard(piece: Piece, key: str) -> str:
    lower, upper = _bound("max", piece.lower), _bound("min", piece.upper)
    conditions = []
    if lower or upper:
        conditions.append(" ".join([*([f"{lower} <="] if lower else []), key, *([f"< {upper}"] if upper else [])]))
    conditions += [_same(asks, answers) for asks, answers in piece.groups]
    conditions += [_shown(condition) for condition in piece.rest]
    return f"`{key}` where `{' && '.join(conditions)}`" if conditions else f"every `{key}`"


def _bound(op: str, bounds: tuple[ir.Expr, ...]) -> str:
    shown = [_shown(bound) for bound in bounds]
    return f"{op}({', '.join(shown)})" if len(shown) > 1 else "".join(shown)


def _same(asks: ir.Expr, answers: ir.Expr) -> str:
    match asks, answers:
        case ir.Const(value=1), ir.Select(condition, ir.Const(value=1), ir.Const(value=0)):
            return _shown(condition)
    return f"{_shown(answers)} == {_shown(asks)}"


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
