"""Which tiles of queries and keys attention within intervals computes, and in what order: arithmetic on bounds.

Rows are cut into runs whose bounds follow one law, runs into tiles, and tiles that are translates of one another are
one call of a kernel. This text needs PyTorch and nothing else.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .torch_fused import fused_kernel

TILE_ROWS = 192  # The library's kernel for the CPU takes larger blocks from here on; more rows waste more at the edges.
SPLIT_ROWS = 768  # From here on a rectangle and a triangle beat tiles with a mask.
SHORTEST_RUN = 48  # Shorter ones are joined under a mask.
VECTOR = 16  # What is left of a row beyond whole vectors is taken number by number on the CPU.


class Law(NamedTuple):
    """Local row r of a tile hears the local keys from `begin + left * r` up to `end + right * r`."""

    left: int
    right: int
    begin: int
    end: int


CAUSAL = Law(0, 1, 0, 1)  # The library knows it without a mask.


class Tiles(NamedTuple):
    """`repeats` translates of a tile of `height` rows from `row` by `width` keys from `key`, each a step further.

    Without a law the rows' own bounds say what is allowed within the tile. Rows that are not `fresh` were met before.
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
            return torch.nn.functional.pad(part, (0, width - part.shape[-1])).contiguous()
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
    if fused_kernel(query, width, True) is None:
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


def recalled_plans(
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
