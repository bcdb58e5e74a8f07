"""Attention for any score, block by block with a running softmax: linear memory, forward and backward.

A program brings its score as two plain functions, of a tile of rows and keys and of its gradient; nothing here is ever
as large as queries × keys. This text needs PyTorch and nothing else.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .torch_operator import differentiable, is_captured, row_totals, sink_gradient

Span = tuple[int, int]
LOG2E = math.log2(math.e)


class Scoring(NamedTuple):
    """The scores of a tile of rows (from, to) by keys (from, to).

    `score(arrays, rows, keys)` is a new tensor (…, rows, keys), which is written over. `backward(arrays, rows, keys,
    gradient, gradients)` adds to those `gradients` that are not None, each in the shape of its array and at least
    float32. `allowed(arrays, rows, keys)` is a Boolean tensor that broadcasts to the score, or None for all.

    Weights are e to the scores, over their sum and e to a sink. Where they are `free`, scores are the weights
    themselves, and `backward` gives them once more. Where they are `picked`, weights are what e to a score is above 1,
    or 0, over the sum of how far it is from 1 and e to the sink: this counts from "zero"; from the largest score, or 0
    ("floor"); or from the largest score ("peak").
    """

    score: Callable[[Sequence[Tensor], Span, Span], Tensor]
    backward: Callable[[Sequence[Tensor], Span, Span, Tensor, Sequence[Tensor | None]], Any]
    allowed: Callable[[Sequence[Tensor], Span, Span], Tensor | None] | None
    free: bool
    picked: str | None

    @property
    def outputs(self) -> int:
        """The number of tensors that come of it: the result, the logarithm of the totals, and what a sink counts
        from, where that is no number."""
        return 1 if self.free else 3 if self.picked in ("floor", "peak") else 2


class Bounds(NamedTuple):
    """Row n hears at most the keys from `lower[…, n]` up to `upper[…, n]`; the hulls are over all but the rows. Where a
    call is `captured`, nobody may look at them: the hulls are of all keys."""

    lower: Tensor
    upper: Tensor
    least: Tensor
    most: Tensor
    captured: bool = False

    @classmethod
    def of(cls, lower: Tensor, upper: Tensor, size: int) -> "Bounds":
        """Bounds clipped to the keys there are. A row that hears nothing is in no hull."""
        lower, upper = lower.clamp(0, size), upper.clamp(0, size)
        rows = upper.shape[-1]
        if is_captured(upper):
            return cls(lower, upper, torch.zeros(rows, dtype=torch.int64), torch.full((rows,), size), captured=True)
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
        if not self.captured and int(lower.max()) <= keys[0] and int(upper.min()) >= keys[1]:
            return None
        places = torch.arange(*keys, device=lower.device)
        return (places >= lower) & (places < upper)


def _block_shape(lead: int, device: torch.device) -> tuple[int, int]:
    """Rows and keys of a tile that stays in the caches with what is computed from it."""
    room = 1 << 24 if device.type != "cpu" else max(2, min(torch.get_num_threads(), 16)) << 18
    rows = 1 << int(math.log2(max(room // max(lead, 1), 1024) / 4) / 2)
    return rows, 4 * rows


def _tiles_used(
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
        for keys in (block,) if bounds.captured else _used(allowed, block):
            yield keys, None if allowed is None else allowed[..., keys[0] - start : keys[1] - start]


def _kept(scoring: Scoring, scores: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
    """The scores of a tile, widened, with all axes; -inf where not allowed, or 0 where they are free."""
    scores = scores.to(torch.promote_types(value.dtype, torch.float32))
    shape = (*value.shape[:-2], *scores.shape[-2:])
    if scores.shape != shape or 0 in scores.stride():  # One number for several pairs cannot be written over.
        scores = scores.expand(shape).contiguous()
    if allowed is not None:
        _forbid(scores, allowed, scoring.free)
    return scores


def _forbid(scores: Tensor, allowed: Tensor, free: bool) -> None:
    """Make scores -inf where not allowed, or 0, NaN too, by arithmetic: `masked_fill_` branches on each element."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.itemsize]
    scores.view(bits).bitwise_and_(allowed.to(bits).neg_())
    if not free:
        scores.add_(allowed.to(scores.dtype).reciprocal_().neg_().add_(1.0))


def _raise(scores: Tensor, level: Tensor) -> Tensor:
    """exp(scores - level) in place, as a power of 2: `exp_` is slow on the CPU where it underflows. The difference is
    taken first: of large scores a product with `LOG2E` has other last digits.
    """
    return torch.sub(scores, level, out=scores).mul_(LOG2E).exp2_()


def _used(allowed: Tensor | None, block: Span) -> list[Span]:
    """The stretches of a block of keys that some row hears."""
    if allowed is None:
        return [block]
    used = _heard(allowed, block)
    if bool(used.all()):
        return [block]
    edges = torch.diff(torch.nn.functional.pad(used, (1, 1))).nonzero().flatten().add(block[0]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _heard(allowed: Tensor, block: Span) -> Tensor:
    """Of each key of a block, whether some row hears it: 1 or 0."""
    return allowed.expand(*allowed.shape[:-1], block[1] - block[0]).view(torch.uint8).flatten(0, -2).amax(0)


def _slab(tensor: Tensor, span: Span, wide: torch.dtype) -> Tensor:
    part = tensor[..., span[0] : span[1], :]
    return part.to(wide).reshape(math.prod(part.shape[:-2]), *part.shape[-2:])


class _Running:
    """The rows of a block as their tiles come: the level from which scores are counted, the total weight, and what was
    gathered, (lead, rows, 1 or width)."""

    def __init__(self, picked: str | None, gathered: Tensor, sink: Tensor | None) -> None:
        self.picked, self.gathered, self.sink = picked, gathered, sink
        self.level = gathered.new_full((*gathered.shape[:-1], 1), -math.inf if picked is None else 0.0)
        self.highest = torch.full_like(self.level, -math.inf) if picked == "peak" else None
        self.weight = torch.zeros_like(self.level)
        if sink is not None and picked in (None, "zero"):
            self.level = torch.maximum(self.level, sink)
            self.weight = _raise(sink.clone(), _finite(self.level))

    def weigh(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        """The weights of a tile, counted from a level to which all that came before is brought."""
        peak = scores.amax(-1, keepdim=True)
        higher = torch.maximum(self.level, peak)
        if self.highest is not None:
            self.highest = torch.maximum(self.highest, peak)
        finite = _finite(higher)
        weights, fade = _raise(scores, finite), _raise(self.level, finite)
        if self.picked is not None:
            weights = _above_one(weights, finite, allowed)
        self.weight.mul_(fade).add_(weights.sum(-1, True) if self.picked is None else weights.norm(1, -1, True))
        self.gathered.mul_(fade)
        self.level = higher
        return weights if self.picked is None else weights.relu_()

    def finish(self) -> list[Tensor]:
        """Divide what was gathered by the total weight. Its logarithm, +inf where it is 0, and what a sink counts
        from."""
        origins = []
        if self.sink is not None and self.picked in ("floor", "peak"):
            origins = [_finite(self.level if self.highest is None else self.highest)]
            self.weight.add_(_raise(self.sink + origins[0], self.level))
        silent = self.weight == 0 if self.picked is None else torch.zeros_like(self.weight, dtype=torch.bool)
        self.gathered.div_(self.weight.masked_fill(silent, 1.0))
        return [(self.level + self.weight.log()).masked_fill_(silent, math.inf), *origins]


def _finite(level: Tensor) -> Tensor:
    return level.masked_fill(level == -math.inf, 0.0)


def _above_one(raised: Tensor, level: Tensor, allowed: Tensor | None) -> Tensor:
    """How far e to the scores is above 1, counted from a level, in place; 0 where not allowed."""
    raised.sub_(_raise(torch.zeros_like(level), level))
    if allowed is not None:
        _forbid(raised, allowed, True)
    return raised


def _stream(
    scoring: Scoring, arrays: Sequence[Tensor], value: Tensor, bounds: Bounds, sink: Tensor | None
) -> list[Tensor]:
    """The attention output of the rows; unless they are free, also the logarithm of their total weight, +inf where that
    is 0, and what a sink counts from."""
    wide = torch.promote_types(value.dtype, torch.float32)
    *lead, _, width = value.shape
    size, count = bounds.least.shape[0], math.prod(lead)
    out = value.new_zeros(*lead, size, width)
    kept = [value.new_full((*lead, size), math.inf, dtype=wide) for _ in range(scoring.outputs - 1)]
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if count else 0, height):
        rows = (start, min(start + height, size))
        gathered = value.new_zeros((*lead, rows[1] - start, width), dtype=wide)
        beside = None if sink is None else _beside(sink, value, rows, wide)
        running = None if scoring.free else _Running(scoring.picked, gathered, beside)
        for keys, allowed in _tiles_used(scoring, arrays, bounds, rows, breadth):
            weights = _kept(scoring, scoring.score(arrays, rows, keys), value, allowed)
            if running is not None:
                weights = running.weigh(weights, allowed)
            weights = weights.reshape(count, -1, keys[1] - keys[0])
            carried = _slab(value, keys, wide)
            if bounds.captured and allowed is not None:  # What nobody hears is there, and may be anything.
                carried = carried.masked_fill(_heard(allowed, keys)[:, None] == 0, 0.0)
            gathered.view(count, rows[1] - start, width).baddbmm_(weights, carried)
        for whole, part in zip(kept, () if running is None else running.finish(), strict=True):
            whole[..., start : rows[1]] = part.squeeze(-1)
        out[..., start : rows[1], :] = gathered
    return [out, *kept]


def _beside(sink: Tensor, value: Tensor, rows: Span, wide: torch.dtype) -> Tensor:
    """The sink of some rows (…, rows, 1). An infinite one takes all weight, as the largest number does."""
    part = sink[..., rows[0] : rows[1]] if sink.shape[-1] > 1 else sink
    shape = (*value.shape[:-2], rows[1] - rows[0])
    return part.to(wide).clamp(max=torch.finfo(wide).max).expand(shape).unsqueeze(-1)


class _Returning:
    """The way back of the rows of a block: their totals and sums, and a sink that counts from their largest score."""

    def __init__(
        self, scoring: Scoring, given: Tensor, saved: Sequence[Tensor], sink: Tensor | None, gain: Tensor | None
    ) -> None:
        out, *kept = saved
        self.picked = scoring.picked
        self.level = kept[0].unsqueeze(-1)
        self.mean = (given * out.to(given.dtype)).sum(-1, keepdim=True)
        if gain is not None:
            self.mean.sub_(gain.unsqueeze(-1))
        self.lost: Tensor | None = None
        if len(kept) > 1 and sink is not None:
            self.highest = kept[1].unsqueeze(-1)
            share = (sink + self.highest - self.level).exp_()
            # The largest score is moved by the sink, too; of less than the last digit nothing is left.
            if bool((share > torch.finfo(share.dtype).eps / 4).any()):
                self.lost = share.mul_(self.mean).neg_()
                if self.picked == "floor":
                    self.lost.masked_fill_(self.highest <= 0, 0.0)

    def weigh(self, scores: Tensor, allowed: Tensor | None, to_weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The weights of a tile and the gradient to its scores, where one to the weights is given."""
        peak = None if self.lost is None or to_weights is None else self._peak(scores, self.lost)
        raised = _raise(scores, self.level)
        if self.picked is None:
            return raised, None if to_weights is None else to_weights.sub_(self.mean).mul_(raised)
        shares = _above_one(raised.clone(), self.level, allowed)
        if to_weights is not None:
            to_weights = torch.ops.aten.threshold_backward(to_weights, shares, 0)
            to_weights.addcmul_(shares.sign(), self.mean, value=-1).mul_(raised)
            if peak is not None:
                to_weights.add_(peak)
        return shares.relu_(), to_weights

    def _peak(self, scores: Tensor, lost: Tensor) -> Tensor:
        """The cotangent of the largest score of each row, the first of them."""
        found = scores == self.highest
        first = found.to(torch.uint8).argmax(-1, keepdim=True)
        result = torch.zeros_like(scores).scatter_(-1, first, lost * found.gather(-1, first))
        lost.masked_fill_(found.any(-1, keepdim=True), 0.0)
        return result


def _stream_backward(
    scoring: Scoring,
    flowing: Sequence[Tensor | None],
    arrays: Sequence[Tensor],
    saved: Sequence[Tensor],
    bounds: Bounds,
    sink: Tensor | None,
    needs: Sequence[bool],
) -> list[Tensor]:
    """Gradients to those of value, sink and arrays that need one: the tiles once more, from the totals. What flows back
    comes from the result and from the logarithm of the totals."""
    value, *found = saved
    gradient = torch.zeros_like(found[0]) if flowing[0] is None else flowing[0]
    gain = flowing[1] if len(flowing) > 1 else None
    wide = torch.promote_types(value.dtype, torch.float32)
    *lead, _, width = value.shape
    size, count = bounds.least.shape[0], math.prod(lead)
    gradients = _zeros(arrays, needs[2:])
    to_value = value.new_zeros((count, *value.shape[-2:]), dtype=wide)
    height, breadth = _block_shape(count, value.device)
    for start in range(0, size if count else 0, height):
        rows = (start, min(start + height, size))
        given = gradient[..., start : rows[1], :].to(wide)
        flat = given.reshape(count, rows[1] - start, width)
        turned = flat.mT.contiguous().mT  # A small product of rows with rows is several times faster so on some CPUs.
        here = [part[..., start : rows[1], :] if n == 0 else part[..., start : rows[1]] for n, part in enumerate(found)]
        beside = None if sink is None else _beside(sink, value, rows, wide)
        gained = None if gain is None else gain[..., start : rows[1]]
        returning = None if scoring.free else _Returning(scoring, given, here, beside, gained)
        for keys, allowed in _tiles_used(scoring, arrays, bounds, rows, breadth):
            to_score: Tensor | None = None
            if any(needs[2:]):
                to_score = torch.bmm(turned, _slab(value, keys, wide).mT).view(*lead, -1, keys[1] - keys[0])
            if returning is not None:
                scores = _kept(scoring, scoring.score(arrays, rows, keys), value, allowed)
                weights, to_score = returning.weigh(scores, allowed, to_score)
                if to_score is not None:
                    scoring.backward(arrays, rows, keys, to_score, gradients)
            else:
                weights = _free_backward(scoring, arrays, rows, keys, to_score, allowed, gradients)
                weights = _kept(scoring, weights, value, allowed)
            if needs[0]:
                to_value[:, keys[0] : keys[1]].baddbmm_(weights.reshape(count, -1, keys[1] - keys[0]).mT, flat)
    to_sink = None
    if sink is not None and needs[1]:
        out, total, *origin = found
        to_sink = sink_gradient(gradient, out, total - origin[0] if origin else total, sink, gain)
    parts = [to_value.view(value.shape) if needs[0] else None, to_sink, *gradients]
    given_to = (value, value if sink is None else sink, *arrays)
    return [part.to(array.dtype) for part, array in zip(parts, given_to, strict=True) if part is not None]


def _free_backward(
    scoring: Scoring,
    arrays: Sequence[Tensor],
    rows: Span,
    keys: Span,
    to_score: Tensor | None,
    allowed: Tensor | None,
    gradients: Sequence[Tensor | None],
) -> Tensor:
    """The weights of a tile that are free; their gradient goes to the arrays."""
    if to_score is None:
        return scoring.score(arrays, rows, keys)
    if allowed is not None:
        _forbid(to_score, allowed, True)
    weights: Tensor = scoring.backward(arrays, rows, keys, to_score, gradients)
    return weights


def _zeros(arrays: Sequence[Tensor], needs: Sequence[bool]) -> list[Tensor | None]:
    """Zeros to add gradients up in, for the arrays that need one."""
    return [
        torch.zeros(array.shape, dtype=torch.promote_types(array.dtype, torch.float32), device=array.device)
        if need
        else None
        for array, need in zip(arrays, needs, strict=True)
    ]


def streaming(
    name: str,
    score: Callable[[Sequence[Tensor], Span, Span], Tensor],
    score_backward: Callable[[Sequence[Tensor], Span, Span, Tensor, Sequence[Tensor | None]], Any],
    allowed: Callable[[Sequence[Tensor], Span, Span], Tensor | None] | None = None,
    free: bool = False,
    picked: str | None = None,
) -> Callable[..., Any]:
    """Attention with this score, as a function of arrays, value (…, keys, width), lower and upper (…, rows) and a sink.

    Row n hears those keys from `lower[…, n]` up to `upper[…, n]` that are `allowed`; of a row that hears none, result
    and gradient are 0. A sink (…, rows or 1) is the score of a further key that carries 0. Where scores are `free`,
    they are the weights, and there is none; `Scoring` says what is `picked`. With `totals` it gives the logarithm of
    the sum that the weights are divided by, too, (…, rows).
    """
    scoring = Scoring(score, score_backward, allowed, free, picked)

    def parted(tensors: list[Tensor], wholes: Sequence[int]) -> tuple[Tensor, Bounds, Tensor | None, list[Tensor]]:
        value, lower, upper, *arrays = tensors
        sink = arrays.pop(0) if wholes else None
        return value, Bounds.of(lower, upper, value.shape[-2]), sink, arrays

    def run(tensors: list[Tensor], wholes: Sequence[int], *_: Any) -> Sequence[Tensor]:
        value, bounds, sink, arrays = parted(tensors, wholes)
        return _stream(scoring, arrays, value, bounds, sink)

    def fake(tensors: list[Tensor], *_: Any) -> Sequence[Tensor]:
        value, lower = tensors[:2]
        shape = (*value.shape[:-2], lower.shape[-1])
        wide = torch.promote_types(value.dtype, torch.float32)
        kept = [value.new_empty(shape, dtype=wide) for _ in range(scoring.outputs - 1)]
        return (value.new_empty(*shape, value.shape[-1]), *kept)

    def run_backward(
        gradients: list[Tensor], tensors: list[Tensor], found: list[Tensor], wholes: Sequence[int], *rest: Any
    ) -> list[Tensor]:
        value, bounds, sink, arrays = parted(tensors, wholes)
        needs = rest[-1]
        asked = (needs[0], False, *needs[3:]) if sink is None else (needs[0], *needs[3:])
        return _stream_backward(scoring, gradients, arrays, (value, *found), bounds, sink, asked)

    def fake_backward(_: Any, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
        return [tensor.new_empty(tensor.shape) for tensor, need in zip(tensors, rest[-1], strict=True) if need]

    attending = differentiable(name, run, run_backward, fake, fake_backward, scoring.outputs)

    def attend(
        arrays: Sequence[Tensor],
        value: Tensor,
        lower: Tensor,
        upper: Tensor,
        sink: Tensor | None = None,
        totals: bool = False,
    ) -> Any:
        sinks = () if sink is None else (sink,)
        found = attending([value, lower, upper, *sinks, *arrays], (1,) * len(sinks))
        return (found[0], row_totals(found[1])) if totals else found[0]

    return attend
