"""Attention in which each query hears a few intervals of keys, in linear memory, forward and backward.

Nothing here is ever as large as queries × keys. Rows are cut into runs whose bounds follow one law, runs into tiles,
and tiles that are translates of one another go to the library's fused kernel in one call. Pieces over disjoint keys are
merged exactly through the logarithm of their total weight. This text needs PyTorch and nothing else.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .torch_operator import OPERATORS, define_operator, is_transformed, map_one_by_one

TILE_ROWS = 192  # The library's kernel for the CPU takes larger blocks from here on; more rows waste more at the edges.
SPLIT_ROWS = 768  # From here on a rectangle and a triangle beat tiles with a mask.
SHORTEST_RUN = 48  # Shorter ones are joined under a mask.
VECTOR = 16  # What is left of a row beyond whole vectors is taken number by number on the CPU.

_pad = torch.nn.functional.pad

Where = slice | Tensor
TileScore = Callable[[Sequence[Tensor], slice, slice, Where, Where], tuple[Tensor | None, Tensor | None]]


class Law(NamedTuple):
    """Local row r of a tile hears the local keys from `begin + left * r` up to `end + right * r`."""

    left: int
    right: int
    begin: int
    end: int


CAUSAL = Law(0, 1, 0, 1)  # The library knows it without a mask.


class Tiles(NamedTuple):
    """`repeats` translates of a tile of `height` rows from `row` by `width` keys from `key`, each a step further.

    Without a law the rows' own bounds say what is heard within the tile. Rows that are not `fresh` were met before.
    """

    row: int
    key: int
    height: int
    width: int
    law: Law | None
    fresh: bool = True
    repeats: int = 1
    row_step: int = 0
    key_step: int = 0

    def edges(self) -> list[slice]:
        """The local keys that some rows hear and others may not; of a full tile there are none."""
        if self.law is None:
            return [slice(0, self.width)]
        left = self.law.begin + self.law.left * (self.height - 1)
        right = max(left, self.law.end)
        return [edge for edge in (slice(0, left), slice(right, self.width)) if edge.start < edge.stop]

    def rows_of(self, tensor: Tensor) -> Tensor:
        """The rows (axis 2); of several translates, batch and head are one axis and the translates the next."""
        return _translates(tensor, self.row, self.height, self.row_step, self.repeats)

    def keys_of(self, tensor: Tensor) -> Tensor:
        """The keys (axis 2), in the same axes."""
        return _translates(tensor, self.key, self.width, self.key_step, self.repeats)

    def add_to_keys(self, total: Tensor, part: Tensor) -> None:
        """Add what belongs to the keys, of which translates may share some."""
        step = self.key_step if self.repeats > 1 else self.width
        for start in range(0, self.width, step):
            length = min(step, self.width - start)
            keys = _translates(total, self.key + start, length, step, self.repeats)
            keys.add_(part.narrow(2, start, length))


def _translates(tensor: Tensor, start: int, length: int, step: int, count: int) -> Tensor:
    if count == 1:
        return tensor.narrow(2, start, length)
    flat = tensor.flatten(0, 1)
    (lead, row, *inner), offset = flat.stride(), flat.storage_offset()
    size = (flat.shape[0], count, length, *flat.shape[2:])
    return flat.as_strided(size, (lead, step * row, row, *inner), offset + start * row)


# ---- Which tiles: arithmetic on bounds ------------------------------------------------------------------------------


def _runs(lower: Tensor, upper: Tensor) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
    """Stretches (start, stop, (left, right)) of rows over which each bound grows by the same 0 or 1 from row to row.

    Shorter stretches are joined, and have no law.
    """
    left, right, empty = torch.diff(lower), torch.diff(upper), upper <= lower
    lawful = ((left | right) & -2 == 0) & (empty[1:] == empty[:-1])
    laws = torch.where(lawful, left * 2 + right, -1)
    starts = [0, *(torch.diff(laws).nonzero().flatten() + 1).tolist()][: len(laws)]
    taken = 0
    for (start, stop), law in zip(itertools.pairwise([*starts, len(laws)]), laws[starts].tolist(), strict=True):
        begin = max(taken, start)
        if law < 0 or stop + 1 - begin < SHORTEST_RUN:
            continue
        if begin > taken:
            yield taken, begin, None
        taken = stop + 1
        yield begin, taken, (law >> 1, law & 1)
    if taken < len(lower):
        yield taken, len(lower), None


def _tiles(lower: Tensor, upper: Tensor, tallest: int | None) -> Iterator[Tiles]:
    """Tiles in which each row hears all that its bounds allow; rows that hear nothing may be in none.

    Where all get a mask anyway, `tallest` says how many rows that may have.
    """
    height = min(tallest or TILE_ROWS, TILE_ROWS)
    for start, stop, growth in _runs(lower, upper):
        if growth is None:
            yield from _loose_tiles(lower, upper, range(start, stop, height))
            continue
        key, width, rows = int(lower[start]), int(upper[start] - lower[start]), stop - start
        if width == 0:
            continue
        if growth == (0, 1) and tallest is None and rows >= SPLIT_ROWS:
            if width > 1:
                yield Tiles(start, key, rows, width - 1, Law(0, 0, 0, width - 1))
            yield Tiles(start, key + width - 1, rows, rows, CAUSAL, width == 1)
        else:
            step = height if any(growth) else tallest or rows
            yield from _lawful_tiles(range(start, stop, step), key, Law(*growth, 0, width))


def _lawful_tiles(rows: range, key: int, law: Law) -> Iterator[Tiles]:
    """Tiles of a run. Those of a band take in keys of the tile before, up to a width of whole vectors."""
    for row in rows:
        height, past = min(rows.step, rows.stop - row), row - rows.start
        end = law.end + (law.right - law.left) * past
        width = end + law.right * (height - 1)
        more = -width % VECTOR if law.left and past else 0
        here = Law(law.left, law.right, more, end + more)
        yield Tiles(row, key + law.left * past - more, height, width + more, here)


def _loose_tiles(lower: Tensor, upper: Tensor, rows: range) -> Iterator[Tiles]:
    nearest = torch.where(upper > lower, lower, torch.iinfo(torch.int64).max)
    for row in rows:
        here = slice(row, min(row + rows.step, rows.stop))
        first, last = int(nearest[here].min()), int(upper[here].max())
        if first < last:
            full = first == int(lower[here].max()) and last == int(upper[here].min())
            yield Tiles(row, first, here.stop - row, last - first, Law(0, 0, 0, last - first) if full else None)


def _batched(tiles: Iterable[Tiles], room: int) -> Iterator[Tiles]:
    """The same tiles, with those under one law that lie a constant step apart as one, up to `room` rows or keys."""
    alike: dict[tuple[object, ...], list[Tiles]] = {}
    for number, tile in enumerate(tiles):
        alike.setdefault(tile[2:] if tile.law else (number,), []).append(tile)
    for group in alike.values():
        most = max(1, room // max(group[0].height, group[0].width))
        while group:
            first, second = group[0], group[min(1, len(group) - 1)]
            row_step, key_step = second.row - first.row, second.key - first.key
            limit, count = min(len(group), most if key_step > 0 else 1), 1
            while count < limit and group[count][:2] == (first.row + count * row_step, first.key + count * key_step):
                count += 1
            yield first._replace(repeats=count, row_step=row_step, key_step=key_step)
            del group[:count]


# ---- One call of the library ----------------------------------------------------------------------------------------


def _private(name: str) -> tuple[Any, Any]:
    """An operator that is not part of the library's public face and its backward; None where this version has none."""
    return getattr(torch.ops.aten, name, None), getattr(torch.ops.aten, f"{name}_backward", None)


_PROCESSOR = _private("_scaled_dot_product_flash_attention_for_cpu")
_FLASH = _private("_scaled_dot_product_flash_attention")
_EFFICIENT = _private("_scaled_dot_product_efficient_attention")


def _kernel(query: Tensor, width: int, masked: bool) -> tuple[Any, Any] | None:
    """The fused kernel that takes queries of that width, and its backward; None where plain products have to do."""
    if query.device.type == "cpu":
        found = _PROCESSOR
    elif query.device.type != "cuda" or query.dtype == torch.float64 or width > 256:
        return None
    else:
        found = _EFFICIENT if masked or query.dtype == torch.float32 else _FLASH
    return found if all(found) else None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The attention output of the rows and the logarithm of their total weight; `mask` is added to the scores."""
    kernel = _kernel(query, query.shape[-1], mask is not None)
    if kernel is None:
        scores = _plain_scores(query, key, mask, scale)
        total = scores.logsumexp(-1)
        weights = scores.sub_(total.nan_to_num(neginf=0.0).unsqueeze(-1)).exp_()
        return (weights @ value.to(weights.dtype)).to(value.dtype), total
    if kernel is _PROCESSOR:
        found = kernel[0](query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
    elif kernel is _FLASH:
        found = kernel[0](query, key, value, 0.0, causal, False, scale=scale)
    else:
        found = kernel[0](query, key, value, _bias(mask, query), True, 0.0, causal, scale=scale)
    return found[0], found[1][..., : query.shape[2]]


def _attend_backward(
    gradient: Tensor, inputs: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, ...]:
    """Gradients to query, key and value; `inputs` ends with result and total of the rows over all that they hear."""
    query, key, value, out, total = inputs
    kernel = _kernel(query, query.shape[-1], mask is not None)
    if kernel is None:
        given, wide = gradient.to(total.dtype), total.dtype
        weights = _plain_scores(query, key, mask, scale).sub_(total.unsqueeze(-1)).exp_()
        to_scores = (given @ value.to(wide).mT).sub_((given * out).sum(-1, keepdim=True)).mul_(weights).mul_(scale)
        return to_scores @ key.to(wide), to_scores.mT @ query.to(wide), weights.mT @ given
    seeds = (torch.zeros((), dtype=torch.int64, device=query.device),) * 2  # Of dropout, of which there is none.
    if kernel is _PROCESSOR:
        found = kernel[1](gradient, *inputs, 0.0, causal, attn_mask=mask, scale=scale)
    elif kernel is _FLASH:
        sizes = (None, None, query.shape[2], key.shape[2])
        whole = (query, key, value, out.contiguous(), total.contiguous())
        found = kernel[1](gradient.contiguous(), *whole, *sizes, 0.0, causal, *seeds, scale=scale)
    else:
        out = out.transpose(1, 2).contiguous().transpose(1, 2)  # It takes the heads of a row to lie side by side.
        total = _pad(total, (0, -query.shape[2] % 32), value=math.inf)
        passed = (gradient, query, key, value, _bias(mask, query), out, total, *seeds)
        found = kernel[1](*passed, 0.0, [True, True, True, False], causal, scale=scale)
    return tuple(found[:3])


def _plain_scores(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query.to(wide) @ key.to(wide).mT).mul_(scale)
    return scores if mask is None else scores.add_(mask)


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """The mask as the memory-efficient kernel takes it: whole, in the dtype of the query, each row on a boundary."""
    if mask is None:
        return None
    aligned = _pad(mask.to(query.dtype), (0, -mask.shape[-1] % 16))[..., : mask.shape[-1]]
    return aligned.expand(*query.shape[:3], -1)


# ---- Who hears whom -------------------------------------------------------------------------------------------------

Layer = tuple[Tensor, Tensor, list[Tiles]]


class Plan(NamedTuple):
    """Tiles for some batches and heads, layer by layer, in the order that sorts rows and keys by their groups.

    Where it is `masked`, all tiles get a mask and none is taller than that should be.
    """

    batch: slice
    head: slice
    layers: list[Layer]
    row_order: Tensor | None
    key_order: Tensor | None
    masked: bool

    def tiles(self) -> list[Tiles]:
        """All tiles of all layers."""
        return [tile for _, _, tiles in self.layers for tile in tiles]

    def of(self, tensor: Tensor, order: Tensor | None, width: int) -> Tensor:
        """Its part of a tensor, in order, with zeros up to `width`, laid out as the library's kernels take it."""
        part = tensor[self.batch, self.head]
        part = part if order is None else part.index_select(2, order)
        if part.shape[-1] < width:
            return _pad(part, (0, width - part.shape[-1])).contiguous()
        (batches, heads, _, _), (batch, head, row, inner) = part.shape, part.stride()
        flat = batches == 1 or heads == 1 or batch == heads * head or all(tile.repeats == 1 for tile in self.tiles())
        return part if inner == 1 and row >= width and flat else part.clone(memory_format=torch.contiguous_format)


def _plans(
    query: Tensor, key: Tensor, width: int, hearing: Sequence[Tensor], extent: tuple[int, ...] | None
) -> Iterator[Plan]:
    """Plans for batches and heads that go together: bounds and groups are the same, and masks (of that extent) small.

    `hearing` is lower, upper and, if there are groups, those of the queries and those of the keys.
    """
    lower, upper, *groups = (tensor.cpu() for tensor in hearing)
    shapes = [lower.shape[1:3], upper.shape[1:3], *(group.shape[:2] for group in groups)]
    batches, heads = (max(sizes) for sizes in zip(*shapes, strict=True))
    lower, upper = (bound.clamp(0, key.shape[2]).expand(-1, batches, heads, -1) for bound in (lower, upper))
    groups = [group.expand(batches, heads, -1) for group in _numbered(groups)]
    tallest, in_batches, in_heads = _parts(query, key, (batches, heads), extent)
    if _kernel(query, width, True) is None:
        tallest = max(1, min((4 << 20) // (key.shape[2] * in_batches.step * in_heads.step), TILE_ROWS))
    room = ((4 << 20) if query.device.type == "cpu" else (128 << 20)) // (4 * width * in_batches.step * in_heads.step)
    for batch, head in itertools.product(in_batches, in_heads):
        at = batch % batches, head % heads
        bounds = lower[:, *at], upper[:, *at]
        row_order = key_order = None
        if groups:
            bounds, row_order, key_order = _in_order(*bounds, *(group[at] for group in groups))
        layers: list[Layer] = []
        for low, high in _disjoint(*bounds):
            tiles = _tiles(low, high, tallest)
            here = [
                tile._replace(fresh=tile.fresh and not layers)
                for tile in (_batched(tiles, room) if tallest is None else tiles)
            ]
            layers.append((low.to(query.device), high.to(query.device), here))
        row_order, key_order = (None if order is None else order.to(query.device) for order in (row_order, key_order))
        slices = slice(batch, batch + in_batches.step), slice(head, head + in_heads.step)
        yield Plan(*slices, layers, row_order, key_order, tallest is not None)


def _parts(
    query: Tensor, key: Tensor, differ: tuple[int, int], extent: tuple[int, ...] | None
) -> tuple[int | None, range, range]:
    """The most rows of a mask, None if there is none; the batches and the heads, in steps of those that go together."""
    (batches, heads, _, _), most = query.shape, (3 << 20) // key.shape[2]
    tallest = None
    in_batches, in_heads = (whole if parts == 1 else 1 for whole, parts in zip((batches, heads), differ, strict=True))
    if extent is not None:
        in_batches = in_batches if extent[0] == 1 else 1
        tallest = max(TILE_ROWS, min(most, 1024)) if extent[1] == 1 else TILE_ROWS
        in_heads = in_heads if extent[1] == 1 else min(in_heads, max(1, most // TILE_ROWS))
    return tallest, range(0, batches, in_batches), range(0, heads, in_heads)


_recent: list[tuple[tuple[object, ...], list[Tensor], list[Plan]]] = []


def _recalled(
    query: Tensor, key: Tensor, width: int, hearing: list[Tensor], extent: tuple[int, ...] | None
) -> list[Plan]:
    """The plans, of which the latest few are kept: bounds tend to come again, and in the backward they always do."""
    sizes = (query.shape, key.shape, width, query.dtype, query.device, extent, *(tensor.shape for tensor in hearing))
    for known, tensors, plans in _recent:
        if known == sizes and all(map(torch.equal, tensors, hearing)):
            return plans
    plans = list(_plans(query, key, width, hearing, extent))
    _recent[:] = [(sizes, [tensor.clone() for tensor in hearing], plans), *_recent[:7]]
    return plans


def _numbered(groups: list[Tensor]) -> list[Tensor]:
    """Groups of queries and of keys that are real numbers, as whole ones: equal where they are. NaN is nobody's."""
    if not any(group.is_floating_point() for group in groups):
        return groups
    labels = torch.cat([group.flatten() for group in groups])
    numbers = torch.where(labels == labels, torch.unique(labels, return_inverse=True)[1], -1)
    asks, answers = numbers[: groups[0].numel()], numbers[groups[0].numel() :]
    answers = torch.where(answers < 0, -2, answers)
    return [numbers.view(group.shape) for numbers, group in zip((asks, answers), groups, strict=True)]


def _in_order(
    lower: Tensor, upper: Tensor, query_group: Tensor, key_group: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor | None, Tensor | None]:
    """Bounds among the keys in the order of their groups, for queries in the order of theirs, and those two orders.

    An order is None where it is already so.
    """
    query_group, key_group = query_group.contiguous(), key_group.contiguous()
    row_order, key_order = (
        None if bool((torch.diff(group) >= 0).all()) else torch.argsort(group, stable=True)
        for group in (query_group, key_group)
    )
    if row_order is not None:
        lower, upper, query_group = lower[:, row_order], upper[:, row_order], query_group[row_order]
    if key_order is not None:
        key_group = key_group[key_order]
    start = torch.searchsorted(key_group, query_group)
    stop = torch.searchsorted(key_group, query_group, right=True)
    if key_order is not None:
        size = len(key_group) + 1
        places = torch.searchsorted(key_group, key_group) * size + key_order
        lower, upper = (torch.searchsorted(places, (start * size + bound).contiguous()) for bound in (lower, upper))
    return (torch.maximum(lower, start), torch.minimum(upper, stop)), row_order, key_order


def _disjoint(lower: Tensor, upper: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Layers of intervals with the same union, of which no two share a key; an empty interval is 0 to 0."""
    if len(lower) > 1:
        size = int(upper.max()) + 1
        order = torch.argsort(torch.where(upper > lower, lower, size) * size - upper, 0)
        lower, upper = lower.gather(0, order), upper.gather(0, order)
        covered = torch.where(upper > lower, upper, 0).cummax(0).values
        lower = torch.cat([lower[:1], torch.maximum(lower[1:], covered[:-1])])
    empty = upper <= lower
    layers = zip(lower.masked_fill(empty, 0), upper.masked_fill(empty, 0), strict=True)
    return [layer for layer, nothing in zip(layers, empty.all(1).tolist(), strict=True) if not nothing]


# ---- All tiles of a plan --------------------------------------------------------------------------------------------


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
        return first, _audible(bias, present, reach)


def _common_edges(plan: Plan) -> tuple[int, int] | None:
    """The differences of key and row, from and up to, that are heard, if they are the same in all tiles of the plan."""
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
    """One call of the library; `deaf` are the rows that hear none of its keys, None if there can be none."""

    tile: Tiles
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    deaf: Tensor | None


def _pieces(plan: Plan, key: Tensor, value: Tensor, scores: Scores | None, reach: float) -> Iterator[Piece]:
    """The calls that make up a plan. Keys that no row of a tile hears are not read; no score is beyond `reach`."""
    for lower, upper, tiles in plan.layers:
        for tile in tiles:
            keys, values = tile.keys_of(key), tile.keys_of(value)
            bias, allowed, edged = (None, None, False) if scores is None else scores.of(plan, tile, reach)
            if tile.law is None or (allowed is not None and tile.edges()):
                inside = _inside(tile, lower, upper)
                allowed = inside if allowed is None else allowed & inside
            mask = deaf = None
            if allowed is not None:
                heard, hears = (allowed.view(torch.uint8).amax(axis) for axis in (-2, -1))  # Far faster than `any`.
                mask, deaf = _forbidding(allowed, key.dtype), hears == 0
                if not bool(heard.all()):
                    keys, values = (part.masked_fill(heard.unsqueeze(-1) == 0, 0.0) for part in (keys, values))
            elif tile.edges() and bias is None and (tile.law != CAUSAL or plan.masked):
                make = _law_mask if tile.width <= 1024 else _law_mask.__wrapped__
                mask = make(tile.law, tile.height, tile.width, key.dtype, key.device)
            if bias is not None:
                mask = bias if edged else _biased(tile, bias, allowed, reach)
            causal, more = tile.law == CAUSAL and mask is None, -tile.width % VECTOR
            short = key.device.type == "cpu" and tile.repeats == 1 and tile.width <= 2 * tile.height
            if more and short and (causal or mask is not None):
                keys, values = (_pad(part, (0, 0, 0, more)) for part in (keys, values))
                mask = None if mask is None else _pad(mask, (0, more), value=-math.inf)
            yield Piece(tile, keys, values, mask, causal, deaf)


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
    """The value of a mask at a pair that is removed: -inf, or for Booleans True."""
    rows, keys = torch.arange(height, device=device)[:, None], torch.arange(width, device=device)
    allowed = (keys >= law.begin + law.left * rows) & (keys < law.end + law.right * rows)
    return ~allowed if dtype == torch.bool else _forbidding(allowed, dtype)


def _biased(tile: Tiles, bias: Tensor, allowed: Tensor | None, reach: float) -> Tensor:
    """The bias, -inf where it must not be heard, whatever it is there."""
    if allowed is not None:
        bias = torch.where(allowed, bias, -math.inf)
    elif tile.edges():
        bias = bias.expand(*bias.shape[:2], tile.height, tile.width).contiguous()
        left, right, begin, end = tile.law or CAUSAL
        for edge in tile.edges():
            law = Law(left, right, begin - edge.start, end - edge.start)
            beyond = _law_mask(law, tile.height, edge.stop - edge.start, torch.bool, bias.device)
            bias[..., edge].masked_fill_(beyond, -math.inf)
    return _audible(bias, [bias], reach)


def _audible(bias: Tensor, present: Sequence[Tensor], reach: float) -> Tensor:
    """The bias, -inf where it cannot be heard beside keys that are present, as no score is beyond `reach`.

    A weight below 2⁻⁷² of another does not show in 24 bits, but numbers that are not normal take the processor a
    hundred times as long.
    """
    if not math.isfinite(reach) or any(part.numel() == 0 for part in present):
        return bias
    least = min(float(part.amax(-1).min()) for part in present) - 2 * reach - 50
    return torch.threshold_(bias, least, -math.inf) if math.isfinite(least) else bias


def _reach(rows: Tensor, keys: Tensor, scale: float, scores: Scores | None) -> float:
    """A number that no score of 32 bits on a CPU exceeds; infinity where it is not needed."""
    if scores is None or rows.dtype != torch.float32 or rows.device.type != "cpu":
        return math.inf
    norms = (tensor.norm(dim=-1).nan_to_num_(0.0, 0.0).max() for tensor in (rows, keys))  # NaN makes itself heard.
    return abs(scale) * math.prod(map(float, norms))


def _width(query: Tensor, value: Tensor) -> int:
    """One width for queries, keys and values, as the library's kernels take it."""
    width = max(query.shape[-1], value.shape[-1], 1)
    return width if query.device.type == "cpu" else -(-width // 8) * 8


def _hear(plan: Plan, inputs: Sequence[Tensor], scale: float, scores: Scores | None) -> tuple[Tensor, ...]:
    """Result and logarithm of the total weight; that is +inf where nothing is heard, so that all weights come out 0."""
    query, key, value = inputs
    width, wide = _width(query, value), torch.promote_types(query.dtype, torch.float32)
    rows = plan.of(query, plan.row_order, width)
    keys, values = (plan.of(tensor, plan.key_order, width) for tensor in (key, value))
    if len(plan.layers) > 1 and rows.device.type == "cpu":  # The library rounds each piece, and pieces may cancel.
        rows, keys, values = rows.to(wide), keys.to(wide), values.to(wide)
    tiles = plan.tiles()
    out = rows.new_empty(rows.shape, dtype=rows.dtype if all(tile.fresh for tile in tiles) else wide)
    total = rows.new_full(rows.shape[:3], -math.inf, dtype=wide)
    if sum(tile.height * tile.repeats for tile in tiles if tile.fresh) < rows.shape[2]:
        out.zero_()
    reach = _reach(rows, keys, scale, scores) if scores and scores.relative else math.inf
    for tile, key_part, value_part, mask, causal, deaf in _pieces(plan, keys, values, scores, reach):
        part, weight = _attend(tile.rows_of(rows), key_part, value_part, mask, causal, scale)
        if deaf is not None:
            part, weight = part.masked_fill(deaf.unsqueeze(-1), 0.0), weight.masked_fill(deaf, -math.inf)
        _merge(tile.rows_of(out), tile.rows_of(total), part, weight, tile.fresh)
    total.masked_fill_(total == -math.inf, math.inf)
    return _back(out[..., : value.shape[-1]].to(query.dtype), plan.row_order), _back(total, plan.row_order)


def _merge(out: Tensor, total: Tensor, part: Tensor, weight: Tensor, fresh: bool) -> None:
    """Take in what rows hear of further keys: each side counts by its share of the total weight."""
    if fresh:
        out.copy_(part)
        total.copy_(weight)
        return
    both = torch.logaddexp(total, weight)
    level = both.masked_fill(both == -math.inf, 0.0)
    out.mul_((total - level).exp_().unsqueeze(-1)).addcmul_(part.to(out.dtype), (weight - level).exp_().unsqueeze(-1))
    total.copy_(both)


def _back(tensor: Tensor, order: Tensor | None) -> Tensor:
    """Rows or keys back from the order of their groups to where they were."""
    return tensor if order is None else torch.empty_like(tensor).index_copy_(2, order, tensor)


def _hear_backward(
    plan: Plan, gradient: Tensor, saved: Sequence[Tensor], scale: float, scores: Scores | None
) -> tuple[Tensor, ...]:
    """Gradients to query, key and value."""
    query, key, value, out, total = saved
    width = _width(query, value)
    given, rows, result = (plan.of(tensor, plan.row_order, width) for tensor in (gradient, query, out))
    keys, values = (plan.of(tensor, plan.key_order, width) for tensor in (key, value))
    totals = plan.of(total.unsqueeze(-1), plan.row_order, 1).squeeze(-1)
    once = all(tile.fresh for tile in plan.tiles())
    to_rows = rows.new_zeros(rows.shape, dtype=rows.dtype if once else total.dtype)
    to_keys, to_values = (tensor.new_zeros(tensor.shape, dtype=total.dtype) for tensor in (keys, values))
    small = rows.device.type == "cpu" and not plan.masked
    reach = _reach(rows, keys, scale, scores)
    for tile, key_part, value_part, mask, causal, _ in _pieces(plan, keys, values, scores, reach):
        inputs = [tile.rows_of(rows), key_part, value_part, tile.rows_of(result), tile.rows_of(totals)]
        gradients = tile.rows_of(given)
        if small and tile.height < SPLIT_ROWS:  # The library's kernel for the CPU rounds once for each of its blocks.
            gradients, *inputs = (tensor.to(total.dtype) for tensor in (gradients, *inputs))
            mask = None if mask is None else mask.to(total.dtype)
        parts = _attend_backward(gradients, inputs, mask, causal, scale)
        tile.rows_of(to_rows).add_(parts[0])
        tile.add_to_keys(to_keys, parts[1])
        tile.add_to_keys(to_values, parts[2])
    to_query = _back(to_rows[..., : query.shape[-1]].to(query.dtype), plan.row_order)
    to_key = _back(to_keys[..., : key.shape[-1]].to(key.dtype), plan.key_order)
    del to_rows, to_keys
    return to_query, to_key, _back(to_values[..., : value.shape[-1]].to(value.dtype), plan.key_order)


# ---- The operators --------------------------------------------------------------------------------------------------


def _run(tile_score: TileScore | None, relative: bool, backward: bool, *given: Any) -> tuple[Tensor, ...]:
    """The body of an operator. A sink changes result and total; from these the gradients are what they are without."""
    *tensors, lower, upper, query_group, key_group, sink, scale, arrays = given
    found = _filled(tile_score, relative, backward, tensors, (lower, upper, query_group, key_group), scale, arrays)
    return found if backward or sink is None else _sunk(found[0], found[1], sink)


def _sunk(out: Tensor, total: Tensor, sink: Tensor) -> tuple[Tensor, Tensor]:
    """Result and total of rows beside whose keys a sink of this score is weighed; it carries nothing."""
    heard = total.masked_fill(total == math.inf, -math.inf)
    both = torch.logaddexp(heard, sink.to(total.dtype))
    return out.mul_((heard - both).exp_().unsqueeze(-1).to(out.dtype)), both


def _to_sink(gradient: Tensor, out: Tensor, total: Tensor, sink: Tensor) -> Tensor:
    """The gradient to a sink: it takes its share of the weight from what was heard."""
    lost = (gradient.to(total.dtype) * out.to(total.dtype)).sum(-1)
    return (sink - total).exp_().mul_(lost).neg_().sum_to_size(sink.shape).to(sink.dtype)


def _filled(
    tile_score: TileScore | None,
    relative: bool,
    backward: bool,
    tensors: Sequence[Tensor],
    bounds: Sequence[Tensor | None],
    scale: float,
    arrays: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Plan, then fill in the results plan by plan."""
    query, key, value = tensors[1:4] if backward else tensors
    results = (_shapes_backward if backward else _shapes)(*tensors)
    if math.prod(query.shape[:3]) * math.prod(value.shape) == 0:
        return (*(result.zero_() for result in results[:-1]), results[-1].fill_(0.0 if backward else math.inf))
    scores = None if tile_score is None else Scores(tile_score, relative, arrays, query.dtype)
    extent = None if scores is None else scores.extent()
    hearing = [tensor for tensor in bounds if tensor is not None]
    for plan in _recalled(query, key, _width(query, value), hearing, extent):
        if backward:
            found = _hear_backward(plan, tensors[0], tensors[1:], scale, scores)
        else:
            found = _hear(plan, tensors, scale, scores)
        if plan.batch == slice(0, query.shape[0]) and plan.head == slice(0, query.shape[1]):
            return tuple(part.contiguous() for part in found)
        for result, part in zip(results, found, strict=True):
            result[plan.batch, plan.head] = part
    return results


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    wide = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(*query.shape[:3], value.shape[-1]), query.new_empty(query.shape[:3], dtype=wide)


def _shapes_backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _define(name: str, inputs: str, outputs: int, run: Callable[..., Any], fake: Callable[..., Any]) -> tuple[str, Any]:
    """A new operator of these and further inputs, and its full name."""
    inputs += "Tensor lower, Tensor upper, Tensor? query_group, Tensor? key_group, Tensor? sink, "
    inputs += "float scale, Tensor[] arrays"
    return define_operator(name, f"({inputs}) -> ({', '.join(['Tensor'] * outputs)})", run, fake)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, arrays = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:], *arrays)
    ctx.set_materialize_grads(False)


def _refuse(ctx: Any, *_: Any) -> None:
    raise RuntimeError(
        "attention within intervals has no second derivative: call the program with `isolate=True`, which has"
    )


# ---- Under `torch.func` ---------------------------------------------------------------------------------------------


def _folded(tensor: Tensor, dim: int | None, axis: int, count: int, batches: int) -> Tensor:
    """A tensor with all that is mapped over among its batches, which stand at `axis`; 1 of these serves all."""
    if dim is None and tensor.shape[axis] == 1:
        return tensor
    if dim is None:
        tensor = tensor.unsqueeze(axis).expand(*tensor.shape[:axis], count, *tensor.shape[axis:])
    else:
        tensor = tensor.movedim(dim, axis)
    return tensor.expand(*tensor.shape[: axis + 1], batches, *tensor.shape[axis + 2 :]).flatten(axis, axis + 1)


def _map_batches(function: Any, count: int, dims: Sequence[int | None], given: Sequence[Any]) -> tuple[Any, Any]:
    """`torch.func.vmap` over a scale, tensors (batch, …), two bounds, two groups and a sink: there are more batches."""
    places = [None, *[0] * (len(given) - 6), 1, 1, 0, 0, 0]
    query = len(given) - 8
    batches = given[query].movedim(dims[query] or 0, 0).shape[0 if dims[query] is None else 1]
    passed: list[Any] = []
    for tensor, dim, axis in zip(given, dims, places, strict=True):
        if axis == 0 and len(passed) < len(given) - 5 and dim is None:
            tensor, dim = tensor.expand(count, *tensor.shape), 0
        passed.append(tensor if tensor is None or axis is None else _folded(tensor, dim, axis, count, batches))
    found = function.apply(*passed)
    return tuple(part.unflatten(0, (count, batches)) for part in found), (0,) * len(found)


def _functions(name: str, forward: Any, backward: Any, folds: bool) -> tuple[Any, Any]:
    """The operators as functions that `torch.func` reads: of a scale, tensors, bounds, groups, sink, further arrays."""
    mapped = _map_batches if folds else map_one_by_one

    class Returning(torch.autograd.Function):
        @staticmethod
        def forward(scale: float, *tensors: Any) -> Any:
            return backward(*tensors[:11], scale, list(tensors[11:]))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            pass

        backward = staticmethod(_refuse)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> None:
            _refuse(ctx)

        @staticmethod
        def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
            return mapped(Returning, info.batch_size, dims, given)

    class Attending(torch.autograd.Function):
        @staticmethod
        def forward(scale: float, *tensors: Any) -> Any:
            return forward(*tensors[:8], scale, list(tensors[8:]))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
            ctx.scale, *tensors = inputs
            ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
            saved = ctx.saved_tensors
            if any(ctx.needs_input_grad[9:]):
                raise RuntimeError(f"{name} gives no gradient to the arrays of biases and masks: use `isolate=True`")
            found = [None] * 3 if gradient is None else Returning.apply(ctx.scale, gradient, *saved)  # type: ignore[no-untyped-call]
            to_sink = None
            if gradient is not None and ctx.needs_input_grad[8]:
                to_sink = _to_sink(gradient, saved[3], saved[4], saved[9])
            return None, *found, None, None, None, None, to_sink, *[None] * (len(saved) - 10)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> None:
            raise NotImplementedError(f"{name} has no forward mode: call the program with `isolate=True`, which has")

        @staticmethod
        def vmap(info: Any, dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
            return mapped(Attending, info.batch_size, dims, given)

    return Attending, Returning


def with_tiles(name: str, tile_score: TileScore | None, relative: bool = False) -> Callable[..., Tensor]:
    """`attend_within` with biases and masks that are made tile by tile from further `arrays`.

    `tile_score(arrays, batch, head, rows, keys)` is given two slices and the places of the rows and keys, each a slice
    or, where groups have changed the order, a tensor of indices. It gives a bias to add to the scores and a Boolean
    tensor of what is allowed, either None for none; they broadcast to (batch, head, rows, keys) and are not written to.
    There is no gradient to `arrays`. A bias alone that depends on row and key by their difference is `relative`: it may
    be asked for once, at other places the same distance apart, beyond the last too.
    """
    tensors = "Tensor query, Tensor key, Tensor value, "
    saved = f"Tensor gradient, {tensors}Tensor out, Tensor total, "
    full_name, forward = _define(name, tensors, 2, functools.partial(_run, tile_score, relative, False), _shapes)
    backward_name, backward = _define(
        f"{name}_backward", saved, 3, functools.partial(_run, tile_score, relative, True), _shapes_backward
    )

    def derive(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
        saved, arrays = ctx.saved_tensors[:10], list(ctx.saved_tensors[10:])
        found = [None] * 3 if gradient is None else backward(gradient, *saved, ctx.scale, arrays)
        to_sink = None
        if gradient is not None and ctx.needs_input_grad[7]:
            to_sink = _to_sink(gradient, saved[3], saved[4], saved[9])
        return *found, None, None, None, None, to_sink, None, [None] * len(arrays)

    torch.library.register_autograd(full_name, derive, setup_context=_save, lib=OPERATORS)
    torch.library.register_autograd(backward_name, _refuse, lib=OPERATORS)
    attending, returning = _functions(name, forward, backward, tile_score is None)

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lower: Tensor,
        upper: Tensor,
        scale: float,
        query_group: Tensor | None = None,
        key_group: Tensor | None = None,
        arrays: Sequence[Tensor] = (),
        sink: Tensor | None = None,
    ) -> Tensor:
        """Softmax attention in which query n hears the keys in the union of the intervals [lower, upper) at n.

        Query, key and value are (batch, head, place, width), the bounds (interval, batch or 1, head or 1, query). With
        groups, (batch or 1, head or 1, place), only keys of the query's group are heard. Who hears nothing gets 0. A
        sink (batch or 1, head or 1, query or 1) is the score of a further key that carries 0.
        """
        if torch.is_grad_enabled() and any(array.requires_grad for array in arrays):
            raise RuntimeError(f"{name} gives no gradient to the arrays of biases and masks: stream the scores instead")
        out: Tensor
        if is_transformed():
            out = attending.apply(scale, query, key, value, lower, upper, query_group, key_group, sink, *arrays)[0]
            return out
        out = forward(query, key, value, lower, upper, query_group, key_group, sink, scale, list(arrays))[0]
        return out

    def back(
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lower: Tensor,
        upper: Tensor,
        scale: float,
        query_group: Tensor | None = None,
        key_group: Tensor | None = None,
        arrays: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients to query, key and value, where `gradient` arrives, on a forward pass that is computed again."""
        found: tuple[Tensor, Tensor, Tensor]
        if is_transformed():
            hearing = (lower, upper, query_group, key_group, None, *arrays)
            out, total = attending.apply(scale, query, key, value, *hearing)
            found = returning.apply(scale, gradient, query, key, value, out, total, *hearing)
            return found
        further = (lower, upper, query_group, key_group, None, scale, list(arrays))
        out, total = forward(query, key, value, *further)
        found = backward(gradient, query, key, value, out, total, *further)
        return found

    attend.backward = back  # type: ignore[attr-defined]
    return attend


attend_within = with_tiles("attend_within", None)
