"""Laws of whole models as comparisons of two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .inputs import said
from .running import CACHE, Run, Side, same
from .sides import padding_token, positions_of

_PADS = 3
_SHIFT = 9
_AS_WITHOUT = "whether tokens are as without it"


Part = Callable[[Any], Any]
Cuts = dict[int, Part]  # Of activations with so many positions, 0 for any, the part that counts.


@dataclass(frozen=True)
class Comparison:
    """Two runs, and which parts of their outputs have to be the same; of activations along other positions too."""

    words: str
    first: Run
    second: Run
    left: Part
    right: Part
    within: tuple[Cuts, Cuts] = ({}, {})

    @property
    def cuts(self) -> tuple[tuple[Run, Cuts], tuple[Run, Cuts]]:
        """The runs, each with the parts of its activations that have to be the same."""
        first, second = self.within
        one, two = {self.first.ids.shape[1]: self.left}, {self.second.ids.shape[1]: self.right}
        return (self.first, first or one), (self.second, second or two)


@dataclass
class Trial:
    """A law, its comparisons, and what to say where one fails."""

    law: str
    message: str
    cause: str
    mend: str
    comparisons: list[Comparison] = field(default_factory=list)
    together: bool = False  # The second runs may be rows of one batch.
    chains: list[list[int]] = field(default_factory=list)  # Places at which decoding goes on with the cache.
    without: Callable[[Any], bool] | None = None  # Modules that may differ.
    doubt: str = ""  # Why a break would be none: then it is not judged.
    of_attention: bool = False  # A law of attention: what weighs no keys is not judged by it.


def trials(side: Side, unread: list[str]) -> Iterator[Trial]:
    """The laws of a side; what is not judged of it goes into a list."""
    yield _batch(side)
    if not side.aligned:
        return
    if side.causal is not False:
        yield _future(side)
    if side.mask is not None:
        if not side.causal:  # Else it is in the future of all that is real.
            yield _hidden(side, "right")
        yield _padded(side, "right")
        yield _hidden(side, "left")
        yield _padded(side, "left")
    else:
        if side.causal:
            yield _padded(side, "right")
        else:
            unread.append(f"{_of(side)}padding on the right: the model takes no mask for it")
        unread.append(f"{_of(side)}padding on the left: the model takes no mask for it")
    if not side.label and "position_ids" in side.takes and _rotates(side.model):
        yield _shifted(side)
    if side.causal and CACHE in side.takes:
        yield _cached(side)
    elif side.causal:
        unread.append(f"{_of(side)}cached decoding: the model takes no `{CACHE}`")


def heard(side: Side) -> Iterator[Trial]:
    """The laws of what a decoder hears of the encoder's inputs."""
    if side.mask is not None:
        for trial in (_hidden(side, "right"), _padded(side, "right"), _hidden(side, "left")):
            trial.law = "encoder padding"
            trial.message = "the decoder hears padding of the encoder"
            trial.cause = "the mask of the encoder's padding does not reach the attention to the encoder"
            trial.mend = "hand the mask of the encoder's tokens to every attention to them, as one over keys"
            yield trial


def _of(side: Side) -> str:
    return f"{side.label}: " if side.label else ""


def _rows(start: int, stop: int, example: int = 0) -> Part:
    return lambda value: value[example : example + 1, start:stop]


def _example(number: int) -> Part:
    return lambda value: value[number : number + 1]


def _batch(side: Side) -> Trial:
    import torch

    trial = Trial(
        "batch",
        "one example of the batch sees another",
        "something is normalised, mixed or viewed across the batch",
        "attend within one example; transpose before `view`",
    )
    for mates, words in (
        ((0, 1, 2), "the output at position {row} is another in a batch than alone"),
        ((3, 0, 4), "the output at position {row} is another at another place in the batch than alone"),
    ):
        batch = Run(torch.cat([side.mate(number) for number in mates]), mates=mates)
        left, right = _example(0), _example(mates.index(0))
        trial.comparisons.append(Comparison(words, Run(side.ids), batch, left, right, ({0: left}, {0: right})))
    return trial


def _future(side: Side) -> Trial:
    trial = Trial(
        "causal",
        "a token sees the future",
        "a mask is missing, late or off by one, or something is normalised over positions",
        "mask the scores with -inf where `j > i`, before the softmax",
        together=True,
        doubt="" if side.causal else "the model does not say that it is: say it with `causal=True` or `--causal`",
    )
    for at in range(1, side.ids.shape[1]):
        other = side.ids.clone()
        other[0, at] = _another(side, at)
        words = f"the output at position {{row}} moves when token {at} is another; {at} > {{row}}"
        trial.comparisons.append(Comparison(words, Run(side.ids), Run(other), _rows(0, at), _rows(0, at)))
    return trial


def _another(side: Side, at: int) -> Any:
    """A token that does not stand at a position."""
    import torch

    tokens = torch.cat([side.mate(number)[0] for number in range(1, 5)])
    unlike = [token for token in tokens if bool((token != side.ids[0, at]).any())]
    return (unlike or [tokens[0]])[at % max(len(unlike), 1)]


def _filler(side: Side, which: int) -> Any:
    return side.mate(which)[:, -_PADS:]


def _laid(side: Side, filler: Any, left: bool) -> tuple[Any, Any]:
    """Tokens with a filler on one side, and the mask that leaves it out."""
    import torch

    padded = torch.cat([filler, side.ids] if left else [side.ids, filler], 1)
    mask = torch.ones(padded.shape[:2], dtype=torch.long)
    mask[:, slice(0, _PADS) if left else slice(side.ids.shape[1], None)] = 0
    return padded, mask


def _hidden(side: Side, where: str) -> Trial:
    """What is masked is not heard, whatever stands there."""
    left = where == "left"
    trial = Trial(
        f"{where} padding",
        f"padding on the {where} changes what is real",
        "the mask of padding does not reach every attention",
        "mask padded keys in every layer, for every query",
        of_attention=True,
    )
    (one, mask), (two, _) = (_laid(side, _filler(side, number), left) for number in (1, 2))
    part = _real(side, left)
    words = f"the output at real token {{row}} moves when the {_PADS} masked tokens on the {where} are others"
    given = {side.mask: mask} if side.mask else {}
    trial.comparisons.append(_compared(side, words, Run(one, given), Run(two, given), part, part))
    return trial


def _real(side: Side, left: bool) -> Part:
    start = _PADS if left else 0
    return _rows(start, start + side.ids.shape[1])


def _compared(side: Side, words: str, first: Run, second: Run, left: Part, right: Part) -> Comparison:
    """Parts of the output; or the whole of it, and parts of what lies along the input, where it does not."""
    if side.aligned:
        return Comparison(words, first, second, left, right)
    whole = _example(0)
    lengths = [value.shape[1] for value in side.inputs.values() if getattr(value, "ndim", 0) > 1]
    rest = {length: whole for length in lengths if length != side.ids.shape[1]}
    within = ({**rest, first.ids.shape[1]: left}, {**rest, second.ids.shape[1]: right})
    return Comparison(words.replace("at real token {row} ", ""), first, second, whole, whole, within)


def _padded(side: Side, where: str) -> Trial:
    """Tokens with padding are as without it."""
    import torch

    left = where == "left"
    trial = Trial(
        f"{where} padding",
        f"padding on the {where} changes what is real",
        "positions count the padding, or something depends on how many tokens there are",
        "count positions from the first real token, and normalise over real tokens alone",
        of_attention=True,
    )
    token = padding_token(side)
    filler = _filler(side, 1)
    if token is not None and filler.ndim == 2 and not filler.is_floating_point():
        filler = torch.full_like(filler, token)
    padded, mask = _laid(side, filler, left)
    given = {side.mask: mask} if side.mask else {}
    alone = {side.mask: torch.ones(side.ids.shape[:2], dtype=torch.long)} if side.mask else {}
    if left:
        counted = positions_of(side)
        if counted is None:
            trial.doubt = f"{_AS_WITHOUT}: no positions are given that the model heeds, and it counts the padding"
        elif _in_chunks(side):
            trial.doubt = f"{_AS_WITHOUT}: the model attends within chunks, whose borders count the padding"
        else:
            given["position_ids"] = counted(mask)
    words = f"the output at real token {{row}} moves when {_PADS} tokens are padded on the {where}"
    one, two = Run(side.ids, alone), Run(padded, given)
    trial.comparisons.append(_compared(side, words, one, two, _real(side, False), _real(side, left)))
    return trial


def _in_chunks(side: Side) -> bool:
    size = said(side.model, "attention_chunk_size")
    return isinstance(size, int) and size < side.ids.shape[1] + _PADS


def mask_fault(side: Side) -> tuple[str, str] | None:
    """What is wrong with how a mask is applied, and the mend, where a side is seen to invert it or to ignore it."""
    import torch

    if side.mask is None or not side.aligned:
        return None
    padded, mask = _laid(side, _filler(side, 1), True)
    hidden, real = _laid(side, _filler(side, 2), True)[0], padded.clone()
    real[0, _PADS] = _another(side, 0)
    full = torch.ones_like(mask)
    before, other, kept, whole = (
        side(Run(ids, {side.mask: given}))[:, -1]
        for ids, given in ((padded, mask), (hidden, mask), (real, mask), (padded, full))
    )
    if not same(before, other, side.tolerance) and same(before, kept, side.tolerance):
        return f"`{side.mask}` is inverted: what it leaves out is heard, and what it keeps is not", "invert the mask"
    if not same(before, other, side.tolerance) and same(before, whole, side.tolerance):
        return f"`{side.mask}` changes nothing: it is lost on its way", "join it to the mask that each attention gets"
    return None


def _cached(side: Side) -> Trial:
    trial = Trial(
        "cached decoding",
        "decoding with a cache is not the full pass",
        "positions or masks do not count the cached keys, or the cache is filled wrongly",
        "query i of a step is at position i + the cached length: in the mask, and in the positions",
        of_attention=True,
    )
    ids, length = side.ids, side.ids.shape[1]
    for split in range(1, length):
        words = f"the output at position {split} + {{row}} differs when the first {split} tokens are cached"
        later = Run(ids[:, split:], past=ids[:, :split])
        trial.comparisons.append(Comparison(words, Run(ids), later, _rows(split, length), _rows(0, length - split)))
    trial.chains = [list(range(first, length, 2)) for first in (1, 2)] if not side.is_slow else [[1, length // 2]]
    return trial


def _shifted(side: Side) -> Trial:
    import torch

    trial = Trial(
        "relative positions",
        "the output is another when all positions are later by as much",
        "queries and keys are not rotated alike: one of them is not, or by another position, base or pairing",
        "rotate q and k with the same function, each by its own position",
        without=_is_rotary,
        doubt="positions are scaled by how many there are" if _scales(side.model) else "",
        of_attention=True,
    )
    length = side.ids.shape[1]
    later = {"position_ids": torch.arange(length)[None] + _SHIFT}
    part = _rows(0, length)
    words = f"the output at position {{row}} moves when all positions are {_SHIFT} later"
    trial.comparisons.append(Comparison(words, Run(side.ids), Run(side.ids, later), part, part))
    return trial


def _scales(model: Any) -> bool:
    """Whether rotary angles depend on the number of positions."""
    told = [said(model, name) for name in ("rope_scaling", "rope_parameters")]
    kinds = [str(each.get("rope_type") or each.get("type")) for each in told if isinstance(each, dict)]
    return any(kind in ("dynamic", "longrope", "su") for kind in kinds)


def _is_rotary(module: Any) -> bool:
    return "rotary" in type(module).__name__.lower()


def _rotates(model: Any) -> bool:
    """Whether positions are rotary, and nothing else: no table is looked up by position."""
    names = [name.rpartition(".")[2] for name, _ in model.named_modules()]
    absolute = any("position_embedding" in name or name in ("wpe", "embed_positions") for name in names)
    return not absolute and any(map(_is_rotary, model.modules()))
