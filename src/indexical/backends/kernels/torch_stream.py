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
    float32. `allowed(arrays, rows, keys)` is a Boolean tensor that broadcasts to the score, or None for all. Where they
    are `free`, scores are the weights themselves, and `backward` gives them once more; else weights are e to them, over
    their sum.
    """

    score: Callable[[Sequence[Tensor], Span, Span], Tensor]
    backward: Callable[[Sequence[Tensor], Span, Span, Tensor, Sequence[Tensor | None]], Any]
    allowed: Callable[[Sequence[Tensor], Span, Span], Tensor | None] | None
    free: bool


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


def _tiles_heard(
    scoring: Scoring, arrays: Sequence[Tensor], bounds: Bounds, rows: Span, width: int
) -> Iterator[tuple[Span, Tensor | None]]:
    """The tiles of a block of rows, each with a mask of what is allowed, None for all. Keys that none hears are in
    none."""
    first, last = int(bounds.least[rows[0] : rows[1]].min()), int(bounds.most[rows[0] : rows[1]].max())
    for start in range(first, last, width):
        block = (start, min(start + width, last))
        allowed = bounds.inside(rows, block)
        if scoring.allowed is not None:
            further = scoring.allowed(arrays, rows, block)
            allowed = further if allowed is None else allowed if further is None else allowed & further
        for keys in _heard(allowed, block):
            yield keys, None if allowed is None else allowed[..., keys[0] - start : keys[1] - start]


def _tiles_scored(
    scoring: Scoring, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds, rows: Span, width: int
) -> Iterator[tuple[Span, Tensor]]:
    """The scores (lead, rows, keys) of a block of rows; where not allowed -inf, or 0 where they are free."""
    for keys, allowed in _tiles_heard(scoring, arrays, bounds, rows, width):
        yield keys, _kept(scoring, scoring.score(arrays, rows, keys), value, allowed)


def _kept(scoring: Scoring, scores: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
    """The scores of a tile, widened, with all axes; written over where not allowed."""
    scores = scores.to(torch.promote_types(value.dtype, torch.float32))
    shape = (*value.shape[:-2], *scores.shape[-2:])
    if scores.shape != shape or 0 in scores.stride():  # One number for several pairs cannot be written over.
        scores = scores.expand(shape).contiguous()
    if allowed is not None:
        _forbid(scores, allowed, scoring.free)
    return scores.reshape(-1, *shape[-2:])


def _forbid(scores: Tensor, allowed: Tensor, free: bool) -> None:
    """Make scores -inf where not allowed, or 0, NaN too, by arithmetic: `masked_fill_` branches on each element."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.itemsize]
    scores.view(bits).bitwise_and_(allowed.to(bits).neg_())
    if not free:
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


def _stream(
    scoring: Scoring, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds, sink: Tensor | None
) -> tuple[Tensor, Tensor]:
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
        if sink is not None:
            peak.copy_(_beside(sink, value, rows, wide))
            weight.copy_(peak != -math.inf)
        for keys, scores in _tiles_scored(scoring, arrays, value, bounds, rows, breadth):
            higher = torch.maximum(peak, scores.amax(-1, keepdim=True))
            finite = higher.masked_fill(higher == -math.inf, 0.0)
            weights, fade = _raise(scores, finite), _raise(peak, finite)
            weight.mul_(fade).add_(weights.sum(-1, keepdim=True))
            heard.mul_(fade).baddbmm_(weights, _slab(value, keys, wide))
            peak = higher
        silent = weight == 0 if sink is None else torch.zeros_like(weight, dtype=torch.bool)
        out[..., start : rows[1], :] = heard.div_(weight.masked_fill(silent, 1.0)).view(*lead, -1, width)
        logarithm = peak.add_(weight.log()).masked_fill_(silent, math.inf)
        total[..., start : rows[1]] = logarithm.view(*lead, -1)
    return out, total


def _beside(sink: Tensor, value: Tensor, rows: Span, wide: torch.dtype) -> Tensor:
    """The sink of some rows (lead, rows, 1). An infinite one takes all weight, as the largest number does."""
    part = sink[..., rows[0] : rows[1]] if sink.shape[-1] > 1 else sink
    shape = (*value.shape[:-2], rows[1] - rows[0])
    return part.to(wide).clamp(max=torch.finfo(wide).max).expand(shape).reshape(-1, shape[-1], 1)


def _stream_backward(
    scoring: Scoring,
    gradient: Tensor,
    arrays: Sequence[Tensor],
    saved: Sequence[Tensor],
    bounds: Bounds,
    sink: Tensor | None,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients to those of value, sink and arrays that need one: the tiles once more, from the totals."""
    value, out, total = saved
    wide = total.dtype
    size, count = bounds.least.shape[0], math.prod(value.shape[:-2])
    gradients = _zeros(arrays, needs[2:])
    to_value = value.new_zeros((count, *value.shape[-2:]), dtype=wide)
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if value.numel() else 0, height):
        rows = (start, min(start + height, size))
        given = _slab(gradient, rows, wide)
        turned = given.mT.contiguous().mT  # A small product of rows with rows is several times faster so on some CPUs.
        mean = (given * _slab(out, rows, wide)).sum(-1, keepdim=True)
        level = _slab(total.unsqueeze(-1), rows, wide)
        for keys, scores in _tiles_scored(scoring, arrays, value, bounds, rows, breadth):
            weights = _raise(scores, level)
            to_value[:, keys[0] : keys[1]].baddbmm_(weights.mT, given)
            if any(needs[2:]):
                to_score = torch.bmm(turned, _slab(value, keys, wide).mT).sub_(mean).mul_(weights)
                shape = (*value.shape[:-2], *to_score.shape[-2:])
                scoring.backward(arrays, rows, keys, to_score.view(shape), gradients)
    to_sink = None
    if sink is not None and needs[1]:
        lost = (gradient.to(wide) * out.to(wide)).sum(-1)
        to_sink = (sink - total).exp_().mul_(lost).neg_().sum_to_size(sink.shape)
    found = [to_value.view(value.shape) if needs[0] else None, to_sink, *gradients]
    given_to = (value, value if sink is None else sink, *arrays)
    return [part.to(array.dtype) for part, array in zip(found, given_to, strict=True) if part is not None]


def _zeros(arrays: Sequence[Tensor], needs: Sequence[bool]) -> list[Tensor | None]:
    """Zeros to add gradients up in, for the arrays that need one."""
    return [
        torch.zeros(array.shape, dtype=torch.promote_types(array.dtype, torch.float32), device=array.device)
        if need
        else None
        for array, need in zip(arrays, needs, strict=True)
    ]


def _stream_free(scoring: Scoring, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds) -> Tensor:
    """The values of each row under weights that are the scores themselves."""
    wide = torch.promote_types(value.dtype, torch.float32)
    *lead, _, width = value.shape
    size, count = bounds.least.shape[0], math.prod(lead)
    out = value.new_zeros(*lead, size, width)
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if value.numel() else 0, height):
        rows = (start, min(start + height, size))
        heard = value.new_zeros((count, rows[1] - start, width), dtype=wide)
        for keys, weights in _tiles_scored(scoring, arrays, value, bounds, rows, breadth):
            heard.baddbmm_(weights, _slab(value, keys, wide))
        out[..., start : rows[1], :] = heard.view(*lead, -1, width)
    return out


def _stream_free_backward(
    scoring: Scoring, gradient: Tensor, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds, needs: Sequence[bool]
) -> list[Tensor]:
    """Gradients to those of value and arrays that need one: the tiles once more."""
    wide = torch.promote_types(value.dtype, torch.float32)
    size, count = bounds.least.shape[0], math.prod(value.shape[:-2])
    gradients = _zeros(arrays, needs[1:])
    to_value = value.new_zeros((count, *value.shape[-2:]), dtype=wide)
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if value.numel() else 0, height):
        rows = (start, min(start + height, size))
        given = _slab(gradient, rows, wide)
        turned = given.mT.contiguous().mT  # A small product of rows with rows is several times faster so on some CPUs.
        for keys, allowed in _tiles_heard(scoring, arrays, bounds, rows, breadth):
            if any(needs[1:]):
                to_score = torch.bmm(turned, _slab(value, keys, wide).mT).view(*value.shape[:-2], -1, keys[1] - keys[0])
                if allowed is not None:
                    _forbid(to_score, allowed, True)
                scores = scoring.backward(arrays, rows, keys, to_score, gradients)
            else:
                scores = scoring.score(arrays, rows, keys)
            weights = _kept(scoring, scores, value, allowed)
            to_value[:, keys[0] : keys[1]].baddbmm_(weights.mT, given)
    found = [to_value.view(value.shape) if needs[0] else None, *gradients]
    return [part.to(array.dtype) for part, array in zip(found, (value, *arrays), strict=True) if part is not None]


def streaming(
    name: str,
    score: Callable[[Sequence[Tensor], Span, Span], Tensor],
    score_backward: Callable[[Sequence[Tensor], Span, Span, Tensor, Sequence[Tensor | None]], Any],
    allowed: Callable[[Sequence[Tensor], Span, Span], Tensor | None] | None = None,
    free: bool = False,
) -> Callable[..., Tensor]:
    """Attention with this score, as a function of arrays, value (…, keys, width), lower and upper (…, rows) and a sink.

    Row n hears those keys from `lower[…, n]` up to `upper[…, n]` that are `allowed`; of a row that hears none, result
    and gradient are 0. A sink (…, rows or 1) is the score of a further key that carries 0. Where scores are `free`,
    they are the weights, and there is none.
    """
    scoring = Scoring(score, score_backward, allowed, free)

    def parted(tensors: list[Tensor], wholes: Sequence[int]) -> tuple[Tensor, Bounds, Tensor | None, list[Tensor]]:
        value, lower, upper, *arrays = tensors
        sink = arrays.pop(0) if wholes else None
        return value, Bounds.of(lower, upper, value.shape[-2]), sink, arrays

    def run(tensors: list[Tensor], wholes: Sequence[int], *_: Any) -> Sequence[Tensor]:
        value, bounds, sink, arrays = parted(tensors, wholes)
        if free:
            return (_stream_free(scoring, arrays, value, bounds),)
        return _stream(scoring, arrays, value, bounds, sink)

    def fake(tensors: list[Tensor], *_: Any) -> Sequence[Tensor]:
        value, lower = tensors[:2]
        shape = (*value.shape[:-2], lower.shape[-1])
        wide = torch.promote_types(value.dtype, torch.float32)
        out = value.new_empty(*shape, value.shape[-1])
        return (out,) if free else (out, value.new_empty(shape, dtype=wide))

    def run_backward(
        gradients: list[Tensor], tensors: list[Tensor], found: list[Tensor], wholes: Sequence[int], *rest: Any
    ) -> list[Tensor]:
        value, bounds, sink, arrays = parted(tensors, wholes)
        needs = rest[-1]
        if free:
            return _stream_free_backward(scoring, gradients[0], arrays, value, bounds, (needs[0], *needs[3:]))
        asked = (needs[0], False, *needs[3:]) if sink is None else (needs[0], *needs[3:])
        return _stream_backward(scoring, gradients[0], arrays, (value, *found), bounds, sink, asked)

    def fake_backward(_: Any, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
        return [tensor.new_empty(tensor.shape) for tensor, need in zip(tensors, rest[-1], strict=True) if need]

    attending = differentiable(name, run, run_backward, fake, fake_backward, 1 if free else 2)

    def attend(
        arrays: Sequence[Tensor], value: Tensor, lower: Tensor, upper: Tensor, sink: Tensor | None = None
    ) -> Tensor:
        if sink is None:
            return attending([value, lower, upper, *arrays])[0]
        return attending([value, lower, upper, sink, *arrays], (1,))[0]

    return attend
