"""Attention for scores of any kind: an online softmax over blocks of keys, in linear memory, forward and backward.

Nothing here is ever as large as queries × keys. What is particular to a program are three functions of a tile: its
scores, the way back through them, and, where intervals do not say it all, which keys are heard. This text needs PyTorch
and nothing else.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

STREAM_COLUMNS = 512
STREAM_POINTS = 1 << 19  # Of one tile, all batches and heads together: what stays in a core's cache.

Rows = tuple[int, int]
TileScores = Callable[[Sequence[Tensor], Rows, Rows], Tensor]
WayBack = Callable[[Sequence[Tensor], Rows, Rows, Tensor, Sequence[Tensor | None]], None]

_streams = torch.library.Library(__name__.replace(".", "_") + "_stream", "FRAGMENT")
_NO_SECOND = "a stream of scores has no second derivative: ask the reference, or write the scores out with `outputs=`"


def _stream_tiles(value: Tensor, bounds: list[list[int]], rows: int) -> Iterator[tuple[Rows, list[tuple[Rows, bool]]]]:
    """Blocks of rows, each with the blocks of keys that some row of it hears, and whether every row hears them all."""
    keys = value.shape[-2]
    apart = max(1, math.prod(value.shape[:-2]))
    columns = min(STREAM_COLUMNS, max(keys, 1))
    height = max(16, STREAM_POINTS // (apart * columns))
    for row in range(0, rows, height):
        end = min(row + height, rows)
        low, high = bounds[0][row:end], bounds[1][row:end]
        start, stop = max(0, min(low)), min(keys, max(high))
        blocks = [(key, min(key + columns, stop)) for key in range(start, stop, columns)]
        yield (row, end), [(block, max(low) <= block[0] and block[1] <= min(high)) for block in blocks]


class _Tiles:
    """The scores of tiles, -inf where a key is not heard."""

    def __init__(self, score: TileScores, allowed: TileScores | None, arrays: Sequence[Tensor], lower: Tensor, upper: Tensor):
        self.score, self.allowed, self.arrays = score, allowed, arrays
        self.lower, self.upper = lower, upper
        self.bounds = [lower.tolist(), upper.tolist()]

    def of(self, rows: Rows, keys: Rows, full: bool) -> Tensor:
        scores = self.score(self.arrays, rows, keys)
        if not full:
            here = torch.arange(*keys, device=scores.device)
            low, high = self.lower[rows[0] : rows[1], None], self.upper[rows[0] : rows[1], None]
            scores = scores.masked_fill((here < low) | (here >= high), -math.inf)
        if self.allowed is not None:
            scores = scores.masked_fill(~self.allowed(self.arrays, rows, keys), -math.inf)
        return scores


def _stream_forward(tiles: _Tiles, value: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(value.dtype, torch.float32)
    out = value.new_zeros((*value.shape[:-2], rows, value.shape[-1]))
    totals = value.new_full((*value.shape[:-2], rows), math.inf, dtype=wide)
    values = value.to(wide)
    for block, pieces in _stream_tiles(value, tiles.bounds, rows):
        top = total = gathered = None
        for keys, full in pieces:
            scores = tiles.of(block, keys, full)
            peak = scores.amax(-1, keepdim=True)
            new = peak if top is None else torch.maximum(top, peak)
            shift = new.masked_fill(new == -math.inf, 0.0)
            part = scores.sub_(shift).exp_()
            here = part @ values[..., keys[0] : keys[1], :]
            if top is None:
                total, gathered = part.sum(-1, keepdim=True), here
            else:
                fade = (top - shift).exp_()
                total = total.mul_(fade).add_(part.sum(-1, keepdim=True))
                gathered = gathered.mul_(fade).add_(here)
            top = new
        if top is not None:
            nobody = total == 0
            out[..., block[0] : block[1], :] = gathered.div_(total.masked_fill(nobody, 1.0)).to(out.dtype)
            kept = (top + total.log()).masked_fill(nobody & (top == -math.inf), math.inf)
            totals[..., block[0] : block[1]] = kept[..., 0]
    return out, totals


def _stream_backward(
    tiles: _Tiles, way_back: WayBack, gradient: Tensor, value: Tensor, out: Tensor, totals: Tensor, needs: Sequence[bool]
) -> tuple[list[Tensor | None], Tensor]:
    wide = totals.dtype
    gradients = [torch.zeros_like(array) if wanted else None for array, wanted in zip(tiles.arrays, needs, strict=True)]
    to_value = torch.zeros_like(value, dtype=wide)
    values, given = value.to(wide), gradient.to(wide)
    share = (given * out.to(wide)).sum(-1, keepdim=True)
    for block, pieces in _stream_tiles(value, tiles.bounds, out.shape[-2]):
        rows = slice(*block)
        for keys, full in pieces:
            part = tiles.of(block, keys, full).sub_(totals[..., rows, None]).exp_()
            columns = slice(*keys)
            to_value[..., columns, :] += part.transpose(-1, -2) @ given[..., rows, :]
            flow = given[..., rows, :] @ values[..., columns, :].transpose(-1, -2)
            flow = flow.sub_(share[..., rows, :]).mul_(part)
            way_back(tiles.arrays, block, keys, flow, gradients)
    return gradients, to_value.to(value.dtype)


def streaming(
    name: str, score: TileScores, way_back: WayBack, allowed: TileScores | None = None
) -> Callable[[Sequence[Tensor], Tensor, Tensor, Tensor, int], Tensor]:
    """Attention whose scores these functions give, tile by tile.

    `attend(arrays, value, lower, upper, rows)`: row n hears the keys from `lower[n]` up to, not with, `upper[n]`, and of
    these those that are `allowed`. A row that hears nobody is 0, and so is its gradient.
    """
    space = getattr(torch.ops, _streams.ns)
    number, free = 1, name
    while hasattr(space, free):
        number, free = number + 1, f"{name}_{number + 1}"

    def widened(arrays: Sequence[Tensor], like: Tensor) -> list[Tensor]:
        wide = torch.promote_types(like.dtype, torch.float32)
        return [array.to(wide) if array.is_floating_point() and array.dtype != wide else array for array in arrays]

    def forward(arrays: Sequence[Tensor], value: Tensor, lower: Tensor, upper: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        return _stream_forward(_Tiles(score, allowed, widened(arrays, value), lower, upper), value, rows)

    def shapes(arrays: Sequence[Tensor], value: Tensor, lower: Tensor, upper: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(value.dtype, torch.float32)
        lead = value.shape[:-2]
        return value.new_empty((*lead, rows, value.shape[-1])), value.new_empty((*lead, rows), dtype=wide)

    def backward(gradient, arrays, value, out, totals, lower, upper, needs):
        tiles = _Tiles(score, allowed, widened(arrays, value), lower, upper)
        found, to_value = _stream_backward(tiles, way_back, gradient, value, out, totals, needs)
        given = [array.new_empty(0) if one is None else one.to(array.dtype) for one, array in zip(found, arrays, strict=True)]
        return given, to_value

    def backward_shapes(gradient, arrays, value, out, totals, lower, upper, needs):
        given = [torch.empty_like(array) if wanted else array.new_empty(0) for array, wanted in zip(arrays, needs, strict=True)]
        return given, torch.empty_like(value)

    bounds = "Tensor lower, Tensor upper"
    _streams.define(f"{free}(Tensor[] arrays, Tensor value, {bounds}, SymInt rows) -> (Tensor, Tensor)")
    _streams.define(
        f"{free}_backward(Tensor gradient, Tensor[] arrays, Tensor value, Tensor out, Tensor totals, {bounds}, bool[] needs)"
        " -> (Tensor[], Tensor)"
    )
    for suffix, run, fake in (("", forward, shapes), ("_backward", backward, backward_shapes)):
        _streams.impl(free + suffix, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{_streams.ns}::{free}{suffix}", fake, lib=_streams)
    there, back = getattr(space, free).default, getattr(space, f"{free}_backward").default

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        arrays, value, lower, upper, _ = inputs
        ctx.needs = [array.requires_grad for array in arrays]
        ctx.save_for_backward(value, *output, lower, upper, *arrays)
        ctx.set_materialize_grads(False)

    def derive(context: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
        value, out, totals, lower, upper, *arrays = context.saved_tensors
        if gradient is None:
            return [None] * len(arrays), None, None, None, None
        found, to_value = back(gradient, arrays, value, out, totals, lower, upper, context.needs)
        given = [one if wanted else None for one, wanted in zip(found, context.needs, strict=True)]
        return given, to_value, None, None, None

    def refuse(context: Any, *_: Any) -> None:
        raise RuntimeError(_NO_SECOND)

    torch.library.register_autograd(f"{_streams.ns}::{free}", derive, setup_context=keep, lib=_streams)
    torch.library.register_autograd(f"{_streams.ns}::{free}_backward", refuse, lib=_streams)

    def attend(arrays: Sequence[Tensor], value: Tensor, lower: Tensor, upper: Tensor, rows: int) -> Tensor:
        out: Tensor = there(list(arrays), value, lower, upper, rows)[0]
        return out

    return attend
