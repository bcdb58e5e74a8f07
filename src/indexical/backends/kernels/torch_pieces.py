"""The calls that make up a plan of attention within intervals: their keys and values, bias and mask.

This text needs PyTorch and nothing else.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .torch_plans import CAUSAL, VECTOR, Law, Plan, Tiles

Where = slice | Tensor
TileScore = Callable[[Sequence[Tensor], slice, slice, Where, Where], tuple[Tensor | None, Tensor | None]]


class Scores:
    """Bias and mask of tiles, in four axes, as a program gives them.

    Of a `relative` bias one tile is made for a whole plan, with its edges, and the others are cut from that.
    """

    def __init__(self, score: TileScore, relative: bool, arrays: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.score, self.relative, self.arrays = score, relative, arrays
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.plan: Plan | None = None
        self.common: tuple[int, Tensor] | None = None

    def extent(self) -> tuple[int, ...]:
        """In how many batches and heads they differ."""
        whole = Plan(slice(None), slice(None), [], None, None, True)
        parts = (part for part in self.made(whole, slice(0, 1), slice(0, 1)) if part is not None)
        return tuple(map(max, zip((1, 1), *(part.shape[:2] for part in parts), strict=True)))

    def made(self, plan: Plan, rows: Where, keys: Where) -> tuple[Tensor | None, Tensor | None]:
        """Those of some rows and keys; the bias in a tensor of its own."""
        bias, allowed = self.score(self.arrays, plan.batch, plan.head, rows, keys)
        if bias is not None:
            bias = bias.to(self.dtype).contiguous()
            if bias.untyped_storage().data_ptr() in [array.untyped_storage().data_ptr() for array in self.arrays]:
                bias = bias.clone()
        bias, allowed = (None if part is None else part[(None,) * (4 - part.dim())] for part in (bias, allowed))
        return bias, allowed

    def of(self, plan: Plan, tile: Tiles, reach: float) -> tuple[Tensor | None, Tensor | None, bool]:
        """Those of a tile, and whether the bias is -inf already where it should be."""
        if self.relative and self.plan is not plan:
            self.plan, self.common = plan, self.spread(plan, reach)
        if self.common is not None:
            first, bias = self.common
            return bias[..., : tile.height, tile.key - tile.row - first :][..., : tile.width], None, True
        rows, keys = slice(tile.row, tile.row + tile.height), slice(tile.key, tile.key + tile.width)
        here = rows if plan.row_order is None else plan.row_order[rows]
        return *self.made(plan, here, keys if plan.key_order is None else plan.key_order[keys]), False

    def spread(self, plan: Plan, reach: float) -> tuple[int, Tensor] | None:
        """The bias of the tallest tile over all differences of key and row, from the least on; None if edges differ."""
        tiles, edges = plan.tiles(), _common_edges(plan)
        if edges is None:
            return None
        starts = [tile.key - tile.row for tile in tiles]
        stops = [start + tile.width for start, tile in zip(starts, tiles, strict=True)]
        first, last, height = min(starts), max(stops), max(tile.height for tile in tiles)
        last += VECTOR if (last - first) % 256 == 0 else 0  # Rows a power of 2 apart fall on one another in the cache.
        row = max(0, -first)
        bias, allowed = self.made(plan, slice(row, row + height), slice(row + first, row + last))
        if bias is None or allowed is not None:
            return None
        bias = bias.expand(*bias.shape[:2], height, last - first).contiguous()
        keys, rows = (
            torch.arange(*ends, device=bias.device, dtype=torch.int32) for ends in ((first, last), (0, height))
        )
        steps = keys - rows[:, None]
        bias.masked_fill_((steps < edges[0]) | (steps >= edges[1]), -math.inf)
        present = []
        for height in {tile.height for tile in tiles}:
            here = [
                (start, stop) for start, stop, tile in zip(starts, stops, tiles, strict=True) if tile.height == height
            ]
            shared = slice(max(start for start, _ in here) - first, min(stop for _, stop in here) - first)
            present.append(bias[..., :height, shared])
        return first, _without_negligible(bias, present, reach)


def _common_edges(plan: Plan) -> tuple[int, int] | None:
    """The differences of key and row, from and up to, that are kept, if they are the same in all tiles of the plan."""
    if not plan.tiles() or plan.row_order is not None or plan.key_order is not None:
        return None
    least, most = [], []
    for tile in plan.tiles():
        if tile.law is None:
            return None
        least.append((tile.key - tile.row + (tile.law.begin if tile.law.left else 1 - tile.height), tile.law.left))
        most.append((tile.key - tile.row + (tile.law.end if tile.law.right else tile.width), tile.law.right))
    low, high = min(least)[0], max(most)[0]
    same = all(at == low for at, edge in least if edge) and all(at == high for at, edge in most if edge)
    return (low, high) if same else None


class Piece(NamedTuple):
    """One call of the library; `empty` are the rows that have none of its keys, None if there can be none."""

    tile: Tiles
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    empty: Tensor | None


def pieces_of(plan: Plan, key: Tensor, value: Tensor, scores: Scores | None, reach: float) -> Iterator[Piece]:
    """The calls that make up a plan. Keys that no row of a tile hears are not read; no score is beyond `reach`."""
    for lower, upper, tiles in plan.layers:
        for tile in tiles:
            keys, values = tile.keys_of(key), tile.keys_of(value)
            bias, allowed, edged = (None, None, False) if scores is None else scores.of(plan, tile, reach)
            if tile.law is None or (allowed is not None and tile.edges()):
                inside = _inside(tile, lower, upper)
                allowed = inside if allowed is None else allowed & inside
            mask = empty = None
            if allowed is not None:
                # Far faster than `any`.
                keys_used, rows_used = (allowed.view(torch.uint8).amax(axis) for axis in (-2, -1))
                mask, empty = _forbidding(allowed, key.dtype), rows_used == 0
                if not bool(keys_used.all()):
                    keys, values = (part.masked_fill(keys_used.unsqueeze(-1) == 0, 0.0) for part in (keys, values))
            elif tile.edges() and bias is None and (tile.law != CAUSAL or plan.masked):
                make = _law_mask if tile.width <= 1024 else _law_mask.__wrapped__
                mask = make(tile.law, tile.height, tile.width, key.dtype, key.device)
            if bias is not None:
                mask = bias if edged else _biased(tile, bias, allowed, reach)
            causal, more = tile.law == CAUSAL and mask is None, -tile.width % VECTOR
            short = key.device.type == "cpu" and tile.repeats == 1 and tile.width <= 2 * tile.height
            if more and short and (causal or mask is not None):
                keys, values = (torch.nn.functional.pad(part, (0, 0, 0, more)) for part in (keys, values))
                mask = None if mask is None else torch.nn.functional.pad(mask, (0, more), value=-math.inf)
            yield Piece(tile, keys, values, mask, causal, empty)


def _inside(tile: Tiles, lower: Tensor, upper: Tensor) -> Tensor:
    """A mask of the keys within the bounds of each row of the tile."""
    low, high = (bound[tile.row : tile.row + tile.height, None] - tile.key for bound in (lower, upper))
    keys = torch.arange(tile.width, device=lower.device)
    return (keys >= low) & (keys < high)


def _forbidding(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where allowed and -inf elsewhere, by arithmetic: `where` branches on each element."""
    return allowed.to(dtype).reciprocal_().neg_().add_(1.0)


@functools.lru_cache(maxsize=16)
def _law_mask(law: Law, height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A mask of the keys that a law removes: -inf there, or for Booleans True."""
    rows, keys = torch.arange(height, device=device)[:, None], torch.arange(width, device=device)
    allowed = (keys >= law.begin + law.left * rows) & (keys < law.end + law.right * rows)
    return ~allowed if dtype == torch.bool else _forbidding(allowed, dtype)


def _biased(tile: Tiles, bias: Tensor, allowed: Tensor | None, reach: float) -> Tensor:
    """The bias, -inf where it must not count, whatever it is there."""
    if allowed is not None:
        bias = torch.where(allowed, bias, -math.inf)
    elif tile.edges():
        bias = bias.expand(*bias.shape[:2], tile.height, tile.width).contiguous()
        left, right, begin, end = tile.law or CAUSAL
        for edge in tile.edges():
            law = Law(left, right, begin - edge.start, end - edge.start)
            beyond = _law_mask(law, tile.height, edge.stop - edge.start, torch.bool, bias.device)
            bias[..., edge].masked_fill_(beyond, -math.inf)
    return _without_negligible(bias, [bias], reach)


def _without_negligible(bias: Tensor, present: Sequence[Tensor], reach: float) -> Tensor:
    """The bias, -inf where it cannot count beside keys that are present, as no score is beyond `reach`.

    A weight below 2⁻⁷² of another does not show in 24 bits, but numbers that are not normal take the processor a
    hundred times as long.
    """
    if not math.isfinite(reach) or any(part.numel() == 0 for part in present):
        return bias
    least = min(float(part.amax(-1).min()) for part in present) - 2 * reach - 50
    return torch.threshold_(bias, least, -math.inf) if math.isfinite(least) else bias


def score_reach(rows: Tensor, keys: Tensor, scale: float, scores: Scores | None) -> float:
    """A number that no score of 32 bits on a CPU exceeds; infinity where it is not needed."""
    if scores is None or rows.dtype != torch.float32 or rows.device.type != "cpu":
        return math.inf
    norms = (tensor.norm(dim=-1).nan_to_num_(0.0, 0.0).max() for tensor in (rows, keys))  # NaN shows by itself.
    return abs(scale) * math.prod(map(float, norms))
