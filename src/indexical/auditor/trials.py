"""Laws of whole models as comparisons of two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .running import Tokens, draw


@dataclass(frozen=True)
class Comparison:
    """Two runs, and which parts of them have to be the same."""

    first: tuple[Any, dict[str, Any]]
    second: tuple[Any, dict[str, Any]]
    left: Callable[[Any], Any]
    right: Callable[[Any], Any]


@dataclass
class Trial:
    """A law, its comparisons, and what to say where one fails."""

    law: str
    message: str
    cause: str
    mend: str
    comparisons: list[tuple[str, Comparison]] = field(default_factory=list)
    together: bool = False  # The second runs may be rows of one batch.
    chains: list[list[int]] = field(default_factory=list)  # Places at which decoding goes on with the cache.
    without: Callable[[Any], bool] | None = None  # Modules that may differ.


def trials(tokens: Tokens, ids: Any, causal: bool, unread: list[str]) -> Iterator[Trial]:
    length = ids.shape[1]
    yield _batch(tokens, ids, length)
    if causal:
        yield _future(tokens, ids, length)
    masked = "attention_mask" in tokens.takes
    if masked or causal:
        yield _padding(tokens, ids, length, "right", masked)
    else:
        unread.append("padding on the right: the model takes no `attention_mask`")
    if masked and ("position_ids" in tokens.takes or "cache_position" in tokens.takes):
        yield _padding(tokens, ids, length, "left", True)
    else:
        unread.append("padding on the left: the model takes no `attention_mask` with `position_ids`")
    if "position_ids" in tokens.takes and _rotates(tokens.model):
        yield _shifted(tokens, ids, length)
    if causal and "past_key_values" in tokens.takes:
        yield _cached(tokens, ids, length)
    elif causal:
        unread.append("cached decoding: the model takes no `past_key_values`")


def _future(tokens: Tokens, ids: Any, length: int) -> Trial:
    trial = Trial(
        "causal",
        "a token sees the future",
        "a mask is missing, late or off by one, or something is normalised over positions",
        "mask the scores with -inf where `j > i`, before the softmax",
        together=True,
    )
    for at in range(1, length):
        other = ids.clone()
        other[0, at] = (ids[0, at] + 1 + at) % tokens.vocabulary
        words = f"the logits at position {{row}} move when token {at} is another; {at} > {{row}}"
        before = _rows(0, at)
        trial.comparisons.append((words, Comparison((ids, {}), (other, {}), before, before)))
    return trial


def _rows(start: int, stop: int, example: int = 0) -> Callable[[Any], Any]:
    return lambda value: value[example : example + 1, start:stop]


def _batch(tokens: Tokens, ids: Any, length: int) -> Trial:
    import torch

    trial = Trial(
        "batch",
        "one example of the batch sees another",
        "something is normalised, mixed or viewed across the batch",
        "attend within one example; transpose before `view`",
    )
    one, two, three, four = draw(tokens, length, 1, 4).split(1)
    whole = _rows(0, length)
    for place, rows, words in (
        (0, (ids, one, two), "the logits at position {row} are others in a batch than alone"),
        (1, (three, ids, four), "the logits at position {row} are others at another place in the batch than alone"),
    ):
        comparison = Comparison((ids, {}), (torch.cat(rows), {}), whole, _rows(0, length, place))
        trial.comparisons.append((words, comparison))
    return trial


def _padding(tokens: Tokens, ids: Any, length: int, side: str, masked: bool) -> Trial:
    import torch

    pads = 3
    filler = draw(tokens, pads, 3)
    left = side == "left"
    padded = torch.cat([filler, ids] if left else [ids, filler], 1)
    mask = torch.ones_like(padded)
    mask[:, slice(0, pads) if left else slice(length, None)] = 0
    rest: dict[str, Any] = {"attention_mask": mask} if masked else {}
    if left and "position_ids" in tokens.takes:
        rest["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    start = pads if left else 0
    trial = Trial(
        f"{side} padding",
        f"padding on the {side} changes what is real",
        "the mask of padding does not reach every attention, or positions count the padding",
        "mask padded keys in every layer, and count positions from the first real token",
    )
    alone: dict[str, Any] = {"attention_mask": torch.ones_like(ids)} if masked else {}
    comparison = Comparison((ids, alone), (padded, rest), _rows(0, length), _rows(start, start + length))
    trial.comparisons.append(
        (f"the logits of real token {{row}} move when 3 tokens are padded on the {side}", comparison)
    )
    return trial


def _cached(tokens: Tokens, ids: Any, length: int) -> Trial:
    trial = Trial(
        "cached decoding",
        "decoding with a cache is not the full pass",
        "positions or masks do not count the cached keys, or the cache is filled wrongly",
        "query i of a step is at position i + the cached length: in the mask, and in the positions",
    )
    for split in range(1, length):
        later: dict[str, Any] = {"past": ids[:, :split]}
        words = f"the logits at position {split} + {{row}} differ when the first {split} tokens are cached"
        comparison = Comparison((ids, {}), (ids[:, split:], later), _rows(split, length), _rows(0, length - split))
        trial.comparisons.append((words, comparison))
    trial.chains = [list(range(first, length, 2)) for first in (1, 2)]
    return trial


def _shifted(tokens: Tokens, ids: Any, length: int) -> Trial:
    import torch

    trial = Trial(
        "relative positions",
        "logits are others when all positions are later by as much",
        "queries and keys are not rotated alike: one of them is not, or by another position, base or pairing",
        "rotate q and k with the same function, each by its own position",
        without=_is_rotary,
    )
    later = {"position_ids": torch.arange(length)[None] + 9}
    comparison = Comparison((ids, {}), (ids, later), _rows(0, length), _rows(0, length))
    trial.comparisons.append(("the logits at position {row} move when all positions are 9 later", comparison))
    return trial


def _is_rotary(module: Any) -> bool:
    return "rotary" in type(module).__name__.lower()


def _rotates(model: Any) -> bool:
    """Whether positions are rotary, and nothing else: no table is looked up by position."""
    names = [name.rpartition(".")[2] for name, _ in model.named_modules()]
    absolute = any("position_embedding" in name or name in ("wpe", "embed_positions") for name in names)
    return not absolute and any(map(_is_rotary, model.modules()))
