"""Attention in which each query hears some blocks of keys, whole or to a bound: one call of the library's fused kernel
for each block, with just the queries that hear it. This text needs PyTorch and nothing else.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .torch_fused import attend_fused, attend_fused_backward
from .torch_pieces import TileScore

# What a pair of a query and a key costs beside one in a tile, since rows are gathered and merged; and a call, in such
# pairs.
PAIR_COST, CALL_COST = 1.4, 7000


class Group(NamedTuple):
    """Rows of one head that hear keys from `start` up to `stop`; where there is a mask, to its bounds, and nobody hears
    those that are `unheard`."""

    head: tuple[int, int]
    rows: Tensor
    start: int
    stop: int
    mask: Tensor | None = None
    unheard: Tensor | None = None


def hear_selected(
    score: TileScore,
    backward: bool,
    tensors: Sequence[Tensor],
    bounds: Sequence[Tensor | None],
    scale: float,
    arrays: Sequence[Tensor],
    size: int,
) -> tuple[Tensor, ...] | None:
    """Result and logarithm of the total weight, or `backward` the gradients to query, key and value, where the mask is
    the same for all keys of a block of that size; None where tiles cost less."""
    query, key, value = tensors[1:4] if backward else tensors
    if size < 1 or math.prod(query.shape[:3]) * math.prod(value.shape) == 0:
        return None
    groups = _selected_groups(score, arrays, size, bounds, query, key)
    if groups is None:
        return None
    return _hear_groups_backward(groups, tensors, scale) if backward else _hear_groups(groups, tensors, scale)


def _selected_groups(
    score: TileScore, arrays: Sequence[Tensor], size: int, bounds: Sequence[Tensor | None], query: Tensor, key: Tensor
) -> list[Group] | None:
    """The rows that hear each block of keys; None where tiles cost less: there are several intervals or groups, or most
    pairs are heard."""
    ends = [bound for bound in bounds if bound is not None]
    if len(ends) > 2 or len(ends[0]) > 1 or query.device.type != "cpu":
        return None
    low, high = (bound[0].expand(query.shape[:3]) for bound in ends)
    starts = range(0, key.shape[2], size)
    columns = [_hearing_rows(score, arrays, low, high, start, size) for start in starts]
    hearing = torch.stack(columns, 2)  # batch, head, block, row
    counts = hearing.sum(-1).flatten().tolist()
    if PAIR_COST * size * sum(counts) + CALL_COST * sum(map(bool, counts)) > int((high - low).clamp(min=0).sum()):
        return None
    rows = iter(torch.split(hearing.nonzero()[:, 3], counts))
    found = []
    for batch, head in torch.cartesian_prod(*map(torch.arange, query.shape[:2])).tolist():
        for start in starts:
            here, stop = next(rows), min(start + size, key.shape[2])
            if len(here):
                first, last = (bound[batch, head].index_select(0, here) - start for bound in (low, high))
                found.append(Group((batch, head), here, start, stop, *_edge_masks(first, last, stop - start, query)))
    return found


def _hearing_rows(
    score: TileScore, arrays: Sequence[Tensor], low: Tensor, high: Tensor, start: int, size: int
) -> Tensor:
    """Whether each row hears keys of a block (batch, head, row), by the mask of its first key."""
    inside = (low < start + size) & (high > start) & (low < high)
    some = inside.flatten(0, 1).any(0).nonzero()
    if len(some) == 0:
        return inside
    rows = slice(int(some[0]), int(some[-1]) + 1)
    allowed = score(arrays, slice(None), slice(None), rows, slice(start, start + 1))[1]
    assert allowed is not None
    inside[..., rows] &= allowed[..., 0]
    return inside


def _edge_masks(low: Tensor, high: Tensor, width: int, query: Tensor) -> tuple[Tensor | None, ...]:
    """-inf beyond the bounds of rows, which are counted from the first key of a block, and the keys that are beyond all
    of them; None where all are heard."""
    if int(low.max()) <= 0 and int(high.min()) >= width:
        return None, None
    keys = torch.arange(width, device=query.device)
    beyond = (keys < low[:, None]) | (keys >= high[:, None])
    mask = torch.zeros(beyond.shape, dtype=torch.promote_types(query.dtype, torch.float32), device=query.device)
    unheard = beyond.all(0)
    return mask.masked_fill_(beyond, -math.inf)[None, None], unheard if bool(unheard.any()) else None


def _hear_groups(groups: Sequence[Group], inputs: Sequence[Tensor], scale: float) -> tuple[Tensor, ...]:
    """Result and logarithm of the total weight; that is +inf where nothing is heard, so that all weights come out 0."""
    query, _, value = inputs
    wide = torch.promote_types(query.dtype, torch.float32)
    rows, keys, values = (_one_width(x.to(wide), query, value) for x in inputs)
    out = rows.new_zeros(rows.shape)
    total = rows.new_full(rows.shape[:3], -math.inf)
    for group in groups:
        at, here = group.head, group.rows
        asking, *blocks = (
            x[None, None] for x in (rows[at].index_select(0, here), *_heard_block((keys, values), group))
        )
        found = attend_fused(asking, blocks[0], blocks[1], group.mask, False, scale)
        part, weight = (x[0, 0] for x in found)
        before = total[at].index_select(0, here)
        both = torch.logaddexp(before, weight)
        level = both.masked_fill(both == -math.inf, 0.0)
        merged = out[at].index_select(0, here).mul_((before - level).exp_().unsqueeze(-1))
        merged.addcmul_(part, (weight - level).exp_().unsqueeze(-1))
        out[at].index_copy_(0, here, merged)
        total[at].index_copy_(0, here, both)
    total.masked_fill_(total == -math.inf, math.inf)
    return out[..., : value.shape[-1]].to(query.dtype).contiguous(), total


def _hear_groups_backward(groups: Sequence[Group], tensors: Sequence[Tensor], scale: float) -> tuple[Tensor, ...]:
    """Gradients to query, key and value."""
    gradient, query, key, value, out, total = tensors
    given, rows, keys, values, result = (
        _one_width(x.to(total.dtype), query, value) for x in (gradient, query, key, value, out)
    )
    found = [torch.zeros_like(x) for x in (rows, keys, values)]
    for group in groups:
        at, here = group.head, group.rows
        of_rows = [x[at].index_select(0, here)[None, None] for x in (given, rows, result, total)]
        blocks = [x[None, None] for x in _heard_block((keys, values), group)]
        arriving, asking, heard, weight = of_rows
        parts = attend_fused_backward(arriving, (asking, *blocks, heard, weight), group.mask, False, scale)
        found[0][at].index_add_(0, here, parts[0][0, 0])
        for whole, part in zip(_block_of(found[1:], group), parts[1:], strict=True):
            whole.add_(part[0, 0])
    return tuple(
        x[..., : like.shape[-1]].to(like.dtype).contiguous()
        for x, like in zip(found, (query, key, value), strict=True)
    )


def _block_of(tensors: Sequence[Tensor], group: Group) -> list[Tensor]:
    """The keys of a group."""
    return [tensor[group.head][group.start : group.stop] for tensor in tensors]


def _heard_block(tensors: Sequence[Tensor], group: Group) -> list[Tensor]:
    """The keys of a group, 0 where nobody hears them."""
    found = _block_of(tensors, group)
    unheard = group.unheard
    return found if unheard is None else [part.masked_fill(unheard.unsqueeze(-1), 0.0) for part in found]


def _one_width(tensor: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """One width for queries, keys and values, as the library's kernels take it, without gaps."""
    width = max(query.shape[-1], value.shape[-1], 1)
    width = width if tensor.device.type == "cpu" else -(-width // 8) * 8
    return torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1])).contiguous()
