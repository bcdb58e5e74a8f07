"""What is said of a step, in the words of the program."""

from __future__ import annotations

from ..checker.sizes import show
from ..ir import nodes as ir
from .steps import Attend, Piece


def words_of(attend: Attend, fused: bool) -> tuple[str, ...]:
    """Who hears whom, what is added to a score, and what a value that is not finite does."""
    key = attend.attention.coordinate.name
    lines = []
    if attend.shape == "full":
        lines.append(f"every query hears every `{key}`")
    elif attend.shape == "causal":
        lines.append(f"causal: `{show(attend.attention.guard[0]) if attend.attention.guard else ''}`, no mask is built")
    elif not attend.mask.pieces:
        lines.append(f"no query hears any `{key}`")
    else:
        lines += [f"{'or ' if n else ''}hears {_heard(piece, key)}" for n, piece in enumerate(attend.mask.pieces)]
    if attend.scores.bias is not None and attend.scores.dot is not None:
        lines.append(f"added to the scores, tile by tile: `{attend.scores.bias.span.text}`")
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
    parts += [f"where `{condition.span.text}`" for condition in piece.rest]
    return f"`{key}` " + ", ".join(parts) if parts else f"every `{key}`"


def _one_of(words: str, bounds: tuple[ir.Expr, ...]) -> str:
    shown = [f"`{_shown(bound)}`" for bound in bounds]
    return shown[0] if len(shown) == 1 else f"{words} {', '.join(shown)}"


def _shown(expr: ir.Expr) -> str:
    return show(expr) if not isinstance(expr, ir.Read | ir.Select) else expr.span.text
