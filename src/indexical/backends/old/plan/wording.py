"""The description of a step, in the words of the program."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir import nodes as ir
from ....ir.slices import Slice, choice_of
from ....ir.text import shown
from ....ir.walk import walk
from ....plan.steps import Attend, Chunks, Free, Softpick
from ....plan.target import WHOLE, WIDEST
from .key_blocks import key_block

# A causal product of so few positions is one product under a mask.
AT_ONCE = 128


def words_of(
    attend: Attend, fused: bool, streams: bool, builds: bool, confined: bool = False
) -> tuple[str, ...]:
    """Describe the mask, the bias of the scores, the way of small calls, and the effect of non-finite values."""
    key = attend.attention.coordinate.name
    lines = ["all scores are built, in memory"] if builds else []
    if attend.shape == "full":
        lines.append(f"every query hears every `{key}`")
    elif attend.shape == "causal":
        guard = " && ".join(map(shown, attend.attention.guard))
        lines.append(f"hears `{key}` where `{guard}`{'; no mask is built' if fused and not builds else ''}")
    elif not attend.domain.pieces:
        lines.append(f"no query hears any `{key}`")
    else:
        lines += [f"{'or ' if n else ''}hears {_heard(one, attend.attention.key)}" for n, one in enumerate(attend.keys)]
    if isinstance(attend.attention.normaliser, Free):
        lines.append(f"weights that nothing normalises: `{shown(attend.attention.score)}`")
    if isinstance(attend.attention.normaliser, Softpick):
        lines.append(_picked(attend.attention.normaliser))
    elif attend.attention.sink is not None:
        sink = shown(attend.attention.sink)
        lines.append(f"beside the sum of its weights there is a sink: {'1' if sink == '0' else f'e to `{sink}`'}")
    if attend.totals:
        names = ", ".join(f"`{name}`" for name, _ in attend.totals)
        lines.append(f"the logarithm of what its weights are divided by is handed out: {names}")
    if attend.scores.bias is not None and attend.scores.dot is not None:
        lines.append(f"added to the scores, tile by tile: `{shown(attend.scores.bias)}`")
        learned = dict.fromkeys(
            r.tensor for r in walk(attend.scores.bias) if isinstance(r, ir.Read) and r.type.kind == "real"
        )
        if learned and not fused:
            wanted = " or ".join(f"`{name}`" for name in learned)
            lines.append(f"where {wanted} wants a gradient: by stream")
    if attend.few is not None:
        lines.append(f"where there are at most {attend.few:,} scores: {WHOLE}")
    block = None if fused or streams or builds else key_block(attend)
    if block is not None:
        lines.append(f"where few pairs are heard, on a CPU: each {shown(block)} keys with the queries that hear them")
    if attend.attention.empty == "nan":
        lines.append("a row that hears nobody is NaN: it is 0 / 0")
    if builds and attend.attention.guard:
        lines.append("NaN and infinity may spread (`isolate=True` keeps them apart)")
    elif attend.attention.guard:
        spread = "NaN and infinity may spread within a block (`isolate=True` keeps them apart)"
        spread = "NaN and infinity reach only those who may hear them" if confined else spread
        lines.append(f"{spread}; a `{key}` that nobody hears is not read")
    return tuple(lines)


def _picked(normaliser: Softpick) -> str:
    origins = {"zero": "", "floor": " above the largest score or 0", "peak": " above the largest score"}
    sink = f"e to `{shown(normaliser.sink)}`{origins[normaliser.origin]}"
    return f"picked weights: what e to a score is above 1, over the sum of its distances from 1 and {sink}"


def chunk_words(chunks: Chunks) -> tuple[str, ...]:
    """Describe the sides of a causal product, its decay, and what is carried from chunk to chunk."""
    row, key = chunks.row.name, chunks.key.coordinate.name
    pair = (row, key) if chunks.backward else (key, row)
    compared = ", ".join(range.coordinate.name for range in chunks.features)
    heard = f"{pair[0]} {'<' if chunks.strict else '<='} {pair[1]}"
    lines = [f"`{heard}` by a state of `{compared}` that is carried along `{row}`"]
    if chunks.asks is not None:
        lines.append(f"a step first asks it for `{shown(chunks.asks)}`: one triangular system for each chunk")
    decays = [f"e to `{shown(chunks.rate)}`"] if chunks.rate is not None else []
    decays += [f"e to the step of `{shown(chunks.levels)}`"] if chunks.levels is not None else []
    decays += [f"`{shown(chunks.times)}`"] if chunks.times is not None else []
    if decays:
        lines.append(f"it decays at every step by {' and '.join(decays)}")
    together = "" if chunks.asks is not None or chunks.kernels else f"; up to {AT_ONCE} positions are one product"
    lines.append(f"in time and memory linear in `{row}`{together}")
    if chunks.kernels:
        lines.append(f"by Triton kernels in 16 bits, with sums in 32; wider than {WIDEST}, by PyTorch in 32")
    return (*lines, "NaN and infinity spread to all that comes later (`isolate=True` keeps them apart)")


def _heard(one: Slice, range: ir.Range) -> str:
    key = range.coordinate.name
    asked = [choice_of(bound, range) for bound in one.upper]
    lower = _bound("max", one.lower)
    upper = _bound("min", [bound for bound, choice in zip(one.upper, asked, strict=True) if choice is None])
    conditions = [shown(choice) for choice in asked if choice is not None]
    if lower or upper:
        conditions.append(" ".join([*([f"{lower} <="] if lower else []), key, *([f"< {upper}"] if upper else [])]))
    conditions += [_same(asks, answers) for asks, answers in one.labels]
    conditions += [shown(condition) for condition in one.rest]
    return f"`{key}` where `{' && '.join(conditions)}`" if conditions else f"every `{key}`"


def _bound(op: str, bounds: Sequence[ir.Expr]) -> str:
    parts = [shown(bound) for bound in bounds]
    return f"{op}({', '.join(parts)})" if len(parts) > 1 else "".join(parts)


def _same(asks: ir.Expr, answers: ir.Expr) -> str:
    match asks, answers:
        case ir.Const(value=1), ir.Select(condition, ir.Const(value=1), ir.Const(value=0)):
            return shown(condition)
    return f"{shown(answers)} == {shown(asks)}"
