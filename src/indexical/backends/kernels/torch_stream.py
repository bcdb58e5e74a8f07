"""Attention for any score, block by block with a running softmax: linear memory, forward and backward.

A program brings its score as two plain functions, of a tile of rows and keys and of its gradient; nothing here is ever
as large as queries × keys. This text needs PyTorch and nothing else.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .torch_operator import differentiable

Span = tuple[int, int]
LOG2E = math.log2(math.e)


class Scoring(NamedTuple):
    """The scores of a tile of rows (from, to) by keys (from, to).

    `score(arrays, rows, keys)` is a new tensor (…, rows, keys), which is written over. `backward(arrays, rows, keys,
    gradient, gradients)` adds to those `gradients` that are not None, each in the shape of its array and at least
    float32. `allowed(arrays, rows, keys)` is a Boolean tensor that broadcasts to the score, or None for all.
    """

    score: Callable[[Sequence[Tensor], Span, Span], Tensor]
    backward: Callable[[Sequence[Tensor], Span, Span, Tensor, Sequence[Tensor | None]], None]
    allowed: Callable[[Sequence[Tensor], Span, Span], Tensor | None] | None


class Bounds(NamedTuple):
    """Row n hears at most the keys from `lower[…, n]` up to `upper[…, n]`; the hulls are over all but the rows."""

    lower: Tensor
    upper: Tensor
    least: Tensor
    most: Tensor

    @classmethod
    def of(cls, lower: Tensor, upper: Tensor, size: int) -> "Bounds":
        """Bounds clipped to the keys there are. A row that hears nothing is in no hull."""
        lower, upper = lower.clamp(0, size), upper.clamp(0, size)
        empty = upper <= lower
        flat = (math.prod(empty.shape[:-1]), empty.shape[-1])
        if flat[0] == 0:
            return cls(lower, upper, torch.full(flat[1:], size), torch.zeros(flat[1:], dtype=torch.int64))
        least = lower.masked_fill(empty, size).reshape(flat).amin(0).cpu()
        most = upper.masked_fill(empty, 0).reshape(flat).amax(0).cpu()
        return cls(lower, upper, least, most)

    def inside(self, rows: Span, keys: Span) -> Tensor | None:
        """A mask of the keys that the rows attend to; None for all."""
        lower, upper = (bound[..., rows[0] : rows[1], None] for bound in (self.lower, self.upper))
        if int(lower.max()) <= keys[0] and int(upper.min()) >= keys[1]:
            return None
        places = torch.arange(*keys, device=lower.device)
        return (places >= lower) & (places < upper)


def _block_shape(lead: int, device: torch.device) -> tuple[int, int]:
    """Rows and keys of a tile that stays in the caches with what is computed from it."""
    room = 1 << 24 if device.type != "cpu" else min(torch.get_num_threads(), 16) << 18
    rows = 1 << int(math.log2(max(room // max(lead, 1), 1024) / 4) / 2)
    return rows, 4 * rows


def _tiles_scored(
    scoring: Scoring, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds, rows: Span, width: int
) -> Iterator[tuple[Span, Tensor]]:
    """The scores (lead, rows, keys) of a block of rows, -inf where not allowed. Keys that none hears are not read."""
    first, last = int(bounds.least[rows[0] : rows[1]].min()), int(bounds.most[rows[0] : rows[1]].max())
    wide = torch.promote_types(value.dtype, torch.float32)
    for start in range(first, last, width):
        block = (start, min(start + width, last))
        allowed = bounds.inside(rows, block)
        if scoring.allowed is not None:
            further = scoring.allowed(arrays, rows, block)
            allowed = further if allowed is None else allowed if further is None else allowed & further
        for keys in _heard(allowed, block):
            scores = scoring.score(arrays, rows, keys).to(wide)
            shape = (*value.shape[:-2], rows[1] - rows[0], keys[1] - keys[0])
            if scores.shape != shape or 0 in scores.stride():  # One number for several pairs cannot be written over.
                scores = scores.expand(shape).contiguous()
            if allowed is not None:
                _forbid(scores, allowed[..., keys[0] - start : keys[1] - start])
            yield keys, scores.reshape(-1, *shape[-2:])


def _forbid(scores: Tensor, allowed: Tensor) -> None:
    """Make scores -inf where not allowed, NaN too, by arithmetic: `masked_fill_` branches on each element."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.itemsize]
    scores.view(bits).bitwise_and_(allowed.to(bits).neg_())
    scores.add_(allowed.to(scores.dtype).reciprocal_().neg_().add_(1.0))


def _raise(scores: Tensor, level: Tensor) -> Tensor:
    """exp(scores - level) in place, as a power of 2: `exp_` is slow on the CPU where it underflows."""
    return torch.add(level * -LOG2E, scores, alpha=LOG2E, out=scores).exp2_()


def _heard(allowed: Tensor | None, block: Span) -> list[Span]:
    """The stretches of a block of keys that some row hears."""
    if allowed is None:
        return [block]
    heard = allowed.expand(*allowed.shape[:-1], block[1] - block[0]).view(torch.uint8).flatten(0, -2).amax(0)
    if bool(heard.all()):
        return [block]
    edges = torch.diff(torch.nn.functional.pad(heard, (1, 1))).nonzero().flatten().add(block[0]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _slab(tensor: Tensor, span: Span, wide: torch.dtype) -> Tensor:
    part = tensor[..., span[0] : span[1], :]
    return part.to(wide).reshape(-1, *part.shape[-2:])


def _stream(scoring: Scoring, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds) -> tuple[Tensor, Tensor]:
    """The attention output of the rows and the logarithm of their total weight, +inf where that is 0."""
    wide = torch.promote_types(value.dtype, torch.float32)
    *lead, _, width = value.shape
    size, count = bounds.least.shape[0], math.prod(lead)
    out = value.new_zeros(*lead, size, width)
    total = value.new_full((*lead, size), math.inf, dtype=wide)
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if value.numel() else 0, height):
        rows = (start, min(start + height, size))
        peak = value.new_full((count, rows[1] - start, 1), -math.inf, dtype=wide)
        weight, heard = torch.zeros_like(peak), value.new_zeros((count, rows[1] - start, width), dtype=wide)
        for keys, scores in _tiles_scored(scoring, arrays, value, bounds, rows, breadth):
            higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
            finite = higher.masked_fill(higher == -math.inf, 0.0)
            weights, fade = _raise(scores, finite), _raise(peak, finite)
            weight.mul_(fade).add_(weights.sum(-1, keepdim=True))
            heard.mul_(fade).baddbmm_(weights, _slab(value, keys, wide))
            peak = higher
        silent = weight == 0
        out[..., start : rows[1], :] = heard.div_(weight.masked_fill(silent, 1.0)).view(*lead, -1, width)
        logarithm = peak.add_(weight.log()).masked_fill_(silent, math.inf)
        total[..., start : rows[1]] = logarithm.view(*lead, -1)
    return out, total


def _stream_backward(
    scoring: Scoring,
    gradient: Tensor,
    arrays: Sequence[Tensor],
    saved: Sequence[Tensor],
    bounds: Bounds,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients to those of value and arrays that need one: the tiles once more, from the totals."""
    value, out, total = saved
    wide = total.dtype
    size, count = bounds.least.shape[0], math.prod(value.shape[:-2])
    gradients = [
        torch.zeros(array.shape, dtype=torch.promote_types(array.dtype, torch.float32), device=array.device)
        if need
        else None
        for array, need in zip(arrays, needs[1:], strict=True)
    ]
    to_value = value.new_zeros((count, *value.shape[-2:]), dtype=wide)
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if value.numel() else 0, height):
        rows = (start, min(start + height, size))
        given = _slab(gradient, rows, wide)
        mean = (given * _slab(out, rows, wide)).sum(-1, keepdim=True)
        level = _slab(total.unsqueeze(-1), rows, wide)
        for keys, scores in _tiles_scored(scoring, arrays, value, bounds, rows, breadth):
            weights = _raise(scores, level)
            to_value[:, keys[0] : keys[1]].baddbmm_(weights.mT, given)
            if any(needs[1:]):
                to_score = torch.bmm(given, _slab(value, keys, wide).mT).sub_(mean).mul_(weights)
                shape = (*value.shape[:-2], *to_score.shape[-2:])
                scoring.backward(arrays, rows, keys, to_score.view(shape), gradients)
    found = [to_value.view(value.shape) if needs[0] else None, *gradients]
    return [part.to(array.dtype) for part, array in zip(found, (value, *arrays), strict=True) if part is not None]


def streaming(
    name: str,
    score: Callable[[Sequence[Tensor], Span, Span], Tensor],
    score_backward: Callable[[Sequence[Tensor], Span, Span, Tensor, Sequence[Tensor | None]], None],
    allowed: Callable[[Sequence[Tensor], Span, Span], Tensor | None] | None = None,
) -> Callable[[Sequence[Tensor], Tensor, Tensor, Tensor], Tensor]:
    """Attention with this score, as a function of arrays, value (…, keys, width), lower and upper (…, rows).

    Row n hears those keys from `lower[…, n]` up to `upper[…, n]` that are `allowed`; of a row that hears none, result
    and gradient are 0.
    """
    scoring = Scoring(score, score_backward, allowed)

    def run(tensors: list[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
        value, lower, upper, *arrays = tensors
        return _stream(scoring, arrays, value, Bounds.of(lower, upper, value.shape[-2]))

    def fake(tensors: list[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
        value, lower = tensors[:2]
        shape = (*value.shape[:-2], lower.shape[-1])
        wide = torch.promote_types(value.dtype, torch.float32)
        return value.new_empty(*shape, value.shape[-1]), value.new_empty(shape, dtype=wide)

    def run_backward(gradients: list[Tensor], tensors: list[Tensor], found: list[Tensor], *rest: Any) -> list[Tensor]:
        value, lower, upper, *arrays = tensors
        bounds = Bounds.of(lower, upper, value.shape[-2])
        needs = rest[-1]
        return _stream_backward(scoring, gradients[0], arrays, (value, *found), bounds, (needs[0], *needs[3:]))

    def fake_backward(_: Any, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
        return [tensor.new_empty(tensor.shape) for tensor, need in zip(tensors, rest[-1], strict=True) if need]

    attending = differentiable(name, run, run_backward, fake, fake_backward)

    def attend(arrays: Sequence[Tensor], value: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        return attending([value, lower, upper, *arrays])[0]

    return attend
