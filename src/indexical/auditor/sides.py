"""The sides of a model: its inputs, its outputs beside them, and whether it says that it is causal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .calling import Unusable
from .inputs import TARGETS, inputs_of, is_whole, parameters_of, said
from .running import Run, Side, arrays_of, difference, same

ROWS = 5  # Examples that are drawn: the one that is looked at, and four to go with it in a batch.


def sides_of(
    model: Any, given: Mapping[str, Any] | None, length: int, vocabulary: int | None, tell: Callable[[str], None]
) -> tuple[str, list[Side]]:
    """The kind of a model, and its sides: one, or an encoder, what the decoder hears of it, and a decoder."""
    kind, inputs = _given(given) if given else inputs_of(model, length=length, rows=ROWS, vocabulary=vocabulary)
    tell("outputs")
    takes = frozenset(parameters_of(model))
    target = next((name for name in TARGETS if name in inputs), None)
    arrays = [name for name, value in inputs.items() if getattr(value, "ndim", 0) > 1]
    source = next(name for name in arrays if name != target)
    mask = "attention_mask" if "attention_mask" in takes and "attention_mask" not in inputs else None
    if target is None:
        return kind, [_settled(Side(model, source, inputs, takes, "", mask, tell=tell), kind)]
    second = f"decoder_{mask}" if f"decoder_{mask}" in takes else None
    decoder = _settled(Side(model, target, inputs, takes, "decoder", second, tell=tell), kind)
    sides = [decoder]
    if _is_ordered(inputs[source]):
        name = "encoder_last_hidden_state"
        encoder = _settled(Side(model, source, inputs, takes, "encoder", mask, name, tell=tell), kind)
        heard = Side(model, source, inputs, takes, "decoder", mask, decoder.output, decoder.module, False, tell=tell)
        sides = [encoder, heard, decoder] if encoder.aligned else [encoder, decoder] if encoder.output else [decoder]
    return kind, sides


def _is_ordered(value: Any) -> bool:
    """Whether an input has a position along its second axis."""
    return bool(value.ndim == 2 and is_whole(value)) or value.ndim == 3


def _given(given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kind of inputs that were given, and as many examples as are needed: repeated, in another order each."""
    import torch

    first = next(value for value in given.values() if getattr(value, "ndim", 0) > 1)
    rows = len(first)
    found = dict(given)
    for name, value in given.items():
        if getattr(value, "ndim", 0) and len(value) == rows and rows < ROWS:
            turned = value.ndim > 1 and ("mask" not in name and "position" not in name)
            more = [value, *(value.roll(turn, 1) if turned else value for turn in range(1, ROWS))]
            found[name] = torch.cat(more)[:ROWS] if rows == 1 else torch.cat(more)[: ROWS * rows : rows]
    if any(name in given for name in TARGETS):
        return "encoder-decoder", found
    if first.ndim == 2 and is_whole(first):
        return "tokens", found
    return "pixels" if first.ndim == 4 else "arrays" if first.ndim == 3 else "features", found


def _settled(side: Side, kind: str) -> Side:
    """The side, with the place of its output: one that has a position for each of the input's, if there is one."""
    import torch

    ids = torch.cat([side.mate(0), side.mate(1)])
    rows, length = ids.shape[:2]
    inside: list[tuple[Any, Any]] = []
    handles = [
        part.register_forward_hook(lambda part, _, returned: inside.append((part, returned)))
        for part in side.model.modules()
    ]
    wanted, side.output = side.output, None
    try:
        returned = side.call(Run(ids, mates=(0, 1)))[0]
    finally:
        for handle in handles:
            handle.remove()
    if kind in ("tokens", "arrays", "encoder-decoder") and _is_ordered(ids):
        fits = [name for name, x in arrays_of(returned) if x.ndim == 3 and x.shape[:2] == (rows, length)]
        if wanted in fits or (wanted is None and fits):
            side.output = wanted or fits[0]
            return _turned(side, ids)
        if wanted is None:
            within = [part for part, x in inside if _is_laid(arrays_of(x), rows, length)]
            if within:
                side.module = within[-1]
                return _turned(side, ids)
    side.aligned = False
    alone = {name: x.shape[1:] for name, x in arrays_of(side.call(Run(side.ids))[0]) if x.ndim}
    each = [name for name, x in arrays_of(returned) if x.ndim and len(x) == rows and alone.get(name) == x.shape[1:]]
    side.output = next((name for name in each if wanted in (None, name)), None)
    return side


def _is_laid(arrays: list[tuple[str, Any]], rows: int, length: int) -> bool:
    return bool(arrays) and arrays[0][1].ndim == 3 and arrays[0][1].shape[:2] == (rows, length)


def _turned(side: Side, ids: Any) -> Side:
    """The side, with positions first where moving one input moves others along the first axis, and none of its row.
    It is asked where some module says that it has positions first."""
    import torch

    if not any(getattr(part, "batch_first", True) is False for part in side.model.modules()):
        return side
    other = ids.clone()
    other[0, 0] = side.mate(2)[0, 0] if bool((side.mate(2)[0, 0] != ids[0, 0]).any()) else side.mate(3)[0, 1]
    first, second = (side.go(Run(x, mates=(0, 1))) for x in (ids, other))
    moved = difference(first, second).amax(-1) > 1e-6 * torch.nan_to_num(first).abs().max()
    side.transposed = bool(moved[1:, 0].any() and not moved[:, 1:].any())
    return side


# ------------------------------------------------------------------------ what a model says of itself


def is_causal(model: Any, label: str = "") -> bool | None:
    """Whether a model says that its tokens do not see the future; `None` where it says nothing."""
    if label == "decoder" and said(model, "is_encoder_decoder"):
        return True
    config = getattr(model, "config", None)
    told = [getattr(config, name, None) for name in ("is_decoder", "causal", "is_causal")]
    words = [getattr(part, name, None) for part in model.modules() for name in ("is_causal", "is_decoder", "causal")]
    flags = [word for word in words if isinstance(word, bool)]
    if True in told or any(flags):
        return True
    if flags or told[1] is False or told[2] is False:
        return False
    if any(word in type(model).__name__ for word in ("MaskedLM", "Encoder", "Bert", "BERT")):
        return False
    names = {type(part).__name__ for part in model.modules()}
    if any(name.endswith(("_mask", "is_causal")) and "attention_mask" not in name for name in parameters_of(model)):
        return None  # Its caller decides, by a mask.
    if any(word in name for name in names for word in ("Causal", "GPT", "Decoder")) or _has_triangle(model):
        return True
    return None


def _has_triangle(model: Any) -> bool:
    """Whether a model keeps a mask of the future."""
    import torch

    for value in (x for part in model.modules() for x in (*part._buffers.values(), *vars(part).values())):
        if isinstance(value, torch.Tensor) and value.ndim >= 2 and 1 < value.shape[-1] == value.shape[-2] <= 4096:
            square = value.reshape(-1, *value.shape[-2:])[0]
            if square.dtype.is_complex or square.is_meta:
                continue
            ones = torch.ones_like(square, dtype=torch.bool)
            for mask in (square != 0, square == 0):
                if bool((mask == ones.tril()).all()) or bool((mask == ones.triu()).all()):
                    return True
    return False


def padding_token(side: Side) -> int | None:
    """The token that the model itself takes for padding."""
    import torch

    told = said(side.model, "pad_token_id")
    if isinstance(told, int) and told >= 0:
        return told
    tables = [part.padding_idx for part in side.model.modules() if isinstance(part, torch.nn.Embedding)]
    return next((token for token in tables if token is not None), None)


def positions_of(side: Side) -> Callable[[Any], Any] | None:
    """The positions as the model counts them, from a mask of real tokens; `None` where it takes none or ignores them.

    Some models count from 0, some from behind the token of padding: which it is shows in what it does by itself.
    """
    import torch

    if side.label or "position_ids" not in side.takes or "position_ids" in side.inputs:
        return None
    ids = side.ids
    counts = torch.arange(ids.shape[1])[None]
    own = side(Run(ids))
    token = padding_token(side)
    for start in dict.fromkeys((0, 1 + (token or 0))):
        try:
            forth, back = (side(Run(ids, {"position_ids": each + start})) for each in (counts, counts.flip(1)))
        except Unusable:
            continue
        if same(own, forth, side.tolerance):
            return None if same(own, back, side.tolerance) else partial(_counted, start)
    return None


def _counted(start: int, mask: Any) -> Any:
    return (mask.cumsum(1) - 1).clamp(min=0) + start
