"""Attention in which each query hears a few intervals of keys, in linear memory, forward and backward.

Nothing here is ever as large as queries × keys. Rows are cut into runs whose bounds follow one law, runs into tiles,
and tiles that are translates of one another go to the library's fused kernel in one call. Pieces over disjoint keys are
merged exactly through the logarithm of their total weight. This text needs PyTorch and nothing else.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

TILE_ROWS = 192  # The library takes larger blocks from here on; more rows waste more at the edges.
SHORTEST_RUN = 48
SPLIT_ROWS = 768  # From here on a rectangle and a triangle beat tiles with a mask.
VECTOR = 16  # The library's kernel for the CPU takes what is left of a row one by one.

Where = slice | Tensor
TileScore = Callable[[Sequence[Tensor], slice, slice, Where, Where], tuple[Tensor | None, Tensor | None]]


class Law(NamedTuple):
    """Local row r of a tile hears the local keys from `begin + left * r` up to `end + right * r`."""

    left: int
    right: int
    begin: int
    end: int


class Tiles(NamedTuple):
    """`count` translates of a tile of `height` rows from `row` by `width` keys from `key`, each a step further.

    Without a law the rows' own bounds say what is heard within the tile. Rows that are not `fresh` were met before.
    """

    row: int
    key: int
    height: int
    width: int
    law: Law | None
    fresh: bool = True
    count: int = 1
    row_step: int = 0
    key_step: int = 0

    def is_full(self) -> bool:
        """Whether each row hears each key."""
        return self.law is not None and self.law[::2] == (0, 0) and self.law.end == self.width

    def is_causal(self) -> bool:
        """Whether row r hears the keys up to r, which the library knows without a mask."""
        return self.law == (0, 1, 0, 1)

    def rows_of(self, tensor: Tensor) -> Tensor:
        """The rows (axis 2); of several translates, batch and head are one axis and the translates the next."""
        return _translates(tensor, self.row, self.height, self.row_step, self.count)

    def keys_of(self, tensor: Tensor) -> Tensor:
        """The keys (axis 2), in the same axes."""
        return _translates(tensor, self.key, self.width, self.key_step, self.count)

    def add_keys(self, total: Tensor, part: Tensor) -> None:
        """Add what belongs to the keys, of which translates may share some."""
        step = self.key_step if self.count > 1 else self.width
        for start in range(0, self.width, step):
            length = min(step, self.width - start)
            keys = _translates(total, self.key + start, length, step, self.count)
            keys.add_(part.narrow(2, start, length))


def _translates(tensor: Tensor, start: int, length: int, step: int, count: int) -> Tensor:
    if count == 1:
        return tensor.narrow(2, start, length)
    flat = tensor.flatten(0, 1)
    (lead, row, *inner), offset = flat.stride(), flat.storage_offset()
    size = (flat.shape[0], count, length, *flat.shape[2:])
    return flat.as_strided(size, (lead, step * row, row, *inner), offset + start * row)


# ---- Which tiles: arithmetic on bounds --------------------------------------------------------------------------------


def _runs(lower: Tensor, upper: Tensor) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
    """Stretches (start, stop, (left, right)) of rows over which each bound grows by the same 0 or 1 from row to row.

    Shorter stretches are joined, and have no law.
    """
    left, right, empty = torch.diff(lower), torch.diff(upper), upper <= lower
    lawful = ((left | right) & -2 == 0) & (empty[1:] == empty[:-1])
    laws = torch.where(lawful, left * 2 + right, -1)
    starts = [0, *(torch.diff(laws).nonzero().flatten() + 1).tolist()][: len(laws)]
    taken = 0
    for (start, stop), law in zip(pairwise([*starts, len(laws)]), laws[starts].tolist(), strict=True):
        begin = max(taken, start)
        if law < 0 or stop + 1 - begin < SHORTEST_RUN:
            continue
        if begin > taken:
            yield taken, begin, None
        taken = stop + 1
        yield begin, taken, (law >> 1, law & 1)
    if taken < len(lower):
        yield taken, len(lower), None


def _tiles(lower: Tensor, upper: Tensor, masked: bool) -> Iterator[Tiles]:
    """Tiles in which each row hears all that its bounds allow; rows that hear nothing may be in none.

    Where they are `masked` anyway, none is taller than the mask should be.
    """
    for start, stop, growth in _runs(lower, upper):
        if growth is None:
            yield from _loose_tiles(lower, upper, start, stop)
            continue
        key, width, rows = int(lower[start]), int(upper[start] - lower[start]), stop - start
        if width == 0:
            continue
        if growth == (0, 0) and not masked:
            yield Tiles(start, key, rows, width, Law(0, 0, 0, width))
        elif growth == (0, 1) and not masked and rows >= SPLIT_ROWS:
            if width > 1:
                yield Tiles(start, key, rows, width - 1, Law(0, 0, 0, width - 1))
            yield Tiles(start, key + width - 1, rows, rows, Law(0, 1, 0, 1), width == 1)
        else:
            yield from _lawful_tiles(start, stop, key, Law(*growth, 0, width))


def _lawful_tiles(start: int, stop: int, key: int, law: Law) -> Iterator[Tiles]:
    """Tiles of a run. Those of a band take in keys of the tile before, up to a width that fills whole vectors."""
    for row in range(start, stop, TILE_ROWS):
        height, past = min(TILE_ROWS, stop - row), row - start
        end = law.end + (law.right - law.left) * past
        width = end + law.right * (height - 1)
        more = -width % VECTOR if law.left and past else 0
        here = Law(law.left, law.right, more, end + more)
        yield Tiles(row, key + law.left * past - more, height, width + more, here)


def _loose_tiles(lower: Tensor, upper: Tensor, start: int, stop: int) -> Iterator[Tiles]:
    nearest = torch.where(upper > lower, lower, torch.iinfo(torch.int64).max)
    for row in range(start, stop, TILE_ROWS):
        rows = slice(row, min(row + TILE_ROWS, stop))
        first, last = int(nearest[rows].min()), int(upper[rows].max())
        if first < last:
            full = first == int(lower[rows].max()) and last == int(upper[rows].min())
            yield Tiles(row, first, rows.stop - row, last - first, Law(0, 0, 0, last - first) if full else None)


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
            count = 1
            while (
                key_step > 0
                and count < min(len(group), most)
                and group[count][:2] == (first.row + count * row_step, first.key + count * key_step)
            ):
                count += 1
            yield first._replace(count=count, row_step=row_step, key_step=key_step)
            del group[:count]


# ---- One call of the library ------------------------------------------------------------------------------------------


def _operator(name: str) -> Any:
    """An operator of the library that is not part of its public face; None where this version has none."""
    return getattr(torch.ops.aten, name, None)


_on_processor = _operator("_scaled_dot_product_flash_attention_for_cpu")
_on_processor_backward = _operator("_scaled_dot_product_flash_attention_for_cpu_backward")
_flash = _operator("_scaled_dot_product_flash_attention")
_flash_backward = _operator("_scaled_dot_product_flash_attention_backward")
_efficient = _operator("_scaled_dot_product_efficient_attention")
_efficient_backward = _operator("_scaled_dot_product_efficient_attention_backward")


def _kernel(query: Tensor, mask: Tensor | None) -> str:
    """Which fused kernel takes these; "none" where plain products have to do."""
    if query.device.type == "cpu" and _on_processor and _on_processor_backward:
        return "processor"
    if query.device.type != "cuda" or query.dtype == torch.float64 or query.shape[-1] > 256:
        return "none"
    if mask is None and query.dtype != torch.float32 and _flash and _flash_backward:
        return "flash"
    return "efficient" if _efficient and _efficient_backward else "none"


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """What the rows hear, and the logarithm of their total weight; `mask` is added to the scores."""
    match _kernel(query, mask):
        case "processor":
            out, total = _on_processor(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
        case "flash":
            out, total, *_ = _flash(query, key, value, 0.0, causal, False, scale=scale)
        case "efficient":
            out, total, *_ = _efficient(query, key, value, _bias(mask, query), True, 0.0, causal, scale=scale)
            total = total[..., : query.shape[2]]
        case _:
            pieces = []
            for _, scores in _plain_scores(query, key, mask, causal, scale):
                total = scores.logsumexp(-1)
                weights = scores.sub_(total.nan_to_num(neginf=0.0)[..., None]).exp_()
                pieces.append(((weights @ value.to(weights.dtype)).to(value.dtype), total))
            out, total = (torch.cat(piece, 2) for piece in zip(*pieces, strict=True))
    return out, total


def _attend_backward(
    gradient: Tensor, inputs: tuple[Tensor, ...], mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, ...]:
    """Gradients to query, key and value; `inputs` ends with result and total of the rows over all that they hear."""
    query, key, value, out, total = inputs
    seeds = (torch.zeros((), dtype=torch.int64, device=query.device),) * 2  # For dropout, of which there is none.
    match _kernel(query, mask):
        case "processor":
            gradients = _on_processor_backward(gradient, *inputs, 0.0, causal, attn_mask=mask, scale=scale)
        case "flash":
            sizes = (None, None, query.shape[2], key.shape[2])
            gradients = _flash_backward(gradient, *inputs, *sizes, 0.0, causal, *seeds, scale=scale)
        case "efficient":
            total = pad(total, (0, -query.shape[2] % 32), value=math.inf)
            given = (gradient, query, key, value, _bias(mask, query), out, total, *seeds)
            gradients = _efficient_backward(*given, 0.0, [True, True, True, False], causal, scale=scale)
        case _:
            gradients = _plain_backward(gradient, inputs, mask, causal, scale)
    return tuple(gradients[:3])


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """The mask as the memory-efficient kernel takes it: whole, in the dtype of the query, each row on a boundary."""
    if mask is None:
        return None
    mask = pad(mask.to(query.dtype), (0, -mask.shape[-1] % 16))[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:3], -1)


def _plain_scores(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Iterator[tuple[slice, Tensor]]:
    wide = torch.promote_types(query.dtype, torch.float32)
    places = torch.arange(max(query.shape[2], key.shape[2]), device=key.device)
    height = max(1, (2 << 20) // (query.shape[0] * query.shape[1] * key.shape[2]))
    for start in range(0, query.shape[2], height):
        rows = slice(start, min(start + height, query.shape[2]))
        scores = (query[:, :, rows].to(wide) @ key.to(wide).mT).mul_(scale)
        if mask is not None:
            scores += mask[..., rows, :] if mask.shape[-2] > 1 else mask
        if causal:
            scores.masked_fill_(places[: key.shape[2]] > places[rows, None], -math.inf)
        yield rows, scores


def _plain_backward(
    gradient: Tensor, inputs: tuple[Tensor, ...], mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, ...]:
    query, key, value, out, total = inputs
    wide = total.dtype
    to_query, to_key, to_value = (torch.zeros_like(tensor, dtype=wide) for tensor in inputs[:3])
    for rows, scores in _plain_scores(query, key, mask, causal, scale):
        weights = scores.sub_(total[:, :, rows, None]).exp_()
        given = gradient[:, :, rows].to(wide)
        to_value += weights.mT @ given
        mean = (given * out[:, :, rows]).sum(-1, keepdim=True)
        weights.mul_((given @ value.to(wide).mT).sub_(mean)).mul_(scale)
        to_query[:, :, rows] = weights @ key.to(wide)
        to_key += weights.mT @ query[:, :, rows].to(wide)
    return to_query, to_key, to_value


# ---- Who hears whom ---------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Tiles for some batches and heads, layer by layer, in the order that sorts rows and keys by their groups."""

    batch: slice
    head: slice
    layers: list[tuple[Tensor, Tensor, list[Tiles]]]
    row_order: Tensor | None
    key_order: Tensor | None

    def tiles(self) -> list[Tiles]:
        """All tiles of all layers."""
        return [tile for _, _, tiles in self.layers for tile in tiles]

    def of(self, tensor: Tensor, order: Tensor | None, width: int) -> Tensor:
        """Its part of a tensor, in order, with zeros up to `width`, laid out as the library's kernels take it."""
        part = tensor[self.batch, self.head]
        part = part if order is None else part.index_select(2, order)
        if part.shape[-1] < width:
            return pad(part, (0, width - part.shape[-1]))
        (batches, heads, _, _), (batch, head, row, inner) = part.shape, part.stride()
        flat = batches == 1 or heads == 1 or batch == heads * head or all(tile.count == 1 for tile in self.tiles())
        return part if inner == 1 and row >= width and flat else part.clone(memory_format=torch.contiguous_format)


def _plans(query: Tensor, key: Tensor, hearing: Sequence[Tensor | None], extent: Sequence[int] | None) -> Iterator[Plan]:
    """One plan for each batch and head in which bounds, groups or masks (of that extent) may differ.

    `hearing` is lower, upper, the groups of the queries and those of the keys.
    """
    lower, upper, *groups = (None if tensor is None else tensor.cpu() for tensor in hearing)
    assert lower is not None and upper is not None
    shapes = [lower.shape[1:3], upper.shape[1:3], *(group.shape[:2] for group in groups if group is not None)]
    batches, heads = torch.broadcast_shapes(*shapes, tuple(extent or (1, 1)))
    lower, upper = (bound.clamp(0, key.shape[2]).expand(-1, batches, heads, -1) for bound in (lower, upper))
    share = 4 * query.shape[-1] * query.shape[0] * query.shape[1] // (batches * heads)
    room = ((8 << 20) if query.device.type == "cpu" else (128 << 20)) // max(share, 1)
    for batch, head in ((batch, head) for batch in range(batches) for head in range(heads)):
        bounds, orders = (lower[:, batch, head], upper[:, batch, head]), (None, None)
        if groups[0] is not None and groups[1] is not None:
            bounds, orders = _in_order(*bounds, *(group.expand(batches, heads, -1)[batch, head] for group in groups))
        layers: list[tuple[Tensor, Tensor, list[Tiles]]] = []
        for low, high in _disjoint(*bounds):
            tiles = _tiles(low, high, extent is not None)
            together = tiles if extent is not None else _batched(tiles, room)
            numbered = [tile._replace(fresh=tile.fresh and not layers) for tile in together]
            layers.append((low.to(query.device), high.to(query.device), numbered))
        yield Plan(
            slice(batch, batch + 1) if batches > 1 else slice(None),
            slice(head, head + 1) if heads > 1 else slice(None),
            layers,
            *(None if order is None else order.to(query.device) for order in orders),
        )


def _in_order(
    lower: Tensor, upper: Tensor, query_group: Tensor, key_group: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor | None, Tensor | None]]:
    """Bounds among the keys in the order of their groups, for queries in the order of theirs, and those two orders.

    An order is None where it is already so.
    """
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
        lower, upper = (torch.searchsorted(places, start * size + bound) for bound in (lower, upper))
    return (torch.maximum(lower, start), torch.minimum(upper, stop)), (row_order, key_order)


def _disjoint(lower: Tensor, upper: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Layers of intervals with the same union, of which no two share a key; an empty interval is 0 to 0."""
    if len(lower) > 1 and lower.numel():
        size = int(upper.max()) + 1
        order = torch.argsort(torch.where(upper > lower, lower, size) * size - upper, 0)
        lower, upper = lower.gather(0, order), upper.gather(0, order)
        covered = torch.where(upper > lower, upper, 0).cummax(0).values
        lower = torch.cat([lower[:1], torch.maximum(lower[1:], covered[:-1])])
    empty = upper <= lower
    layers = zip(lower.masked_fill(empty, 0), upper.masked_fill(empty, 0), strict=True)
    return [layer for layer, nothing in zip(layers, empty.all(1).tolist(), strict=True) if not nothing]


# ---- All tiles of a plan ----------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """One call of the library; `nothing` marks the rows that hear none of its keys, None that there are none."""

    tile: Tiles
    key: Tensor
    value: Tensor
    mask: Tensor | None
    nothing: Tensor | None


def _pieces(
    plan: Plan, key: Tensor, value: Tensor, score: Callable[[Plan, Tiles], tuple[Tensor | None, Tensor | None]] | None
) -> Iterator[Piece]:
    """The calls that make up a plan. Keys that no row of a tile hears are not read."""
    wide = torch.promote_types(key.dtype, torch.float32)
    for lower, upper, tiles in plan.layers:
        for tile in tiles:
            bias, allowed = (None, None) if score is None else score(plan, tile)
            certain = tile.law is not None and allowed is None
            if not tile.is_full() and (score is not None or not tile.is_causal()):
                inside = _inside(tile, lower, upper)
                allowed = inside if allowed is None else allowed & inside
            mask = None if bias is None else bias.to(wide).contiguous()
            if allowed is not None:
                mask = torch.where(allowed, 0.0 if mask is None else mask, -math.inf).to(wide)
            keys, values, nothing = tile.keys_of(key), tile.keys_of(value), None
            if allowed is not None and not certain:
                unheard, nothing = ~allowed.any(-2).unsqueeze(-1), ~allowed.any(-1)
                if bool(unheard.any()):
                    keys, values = keys.masked_fill(unheard, 0.0), values.masked_fill(unheard, 0.0)
            if (more := -tile.width % VECTOR) and tile.count == 1 and tile.width <= 2 * tile.height and not tile.is_full():
                keys, values = pad(keys, (0, 0, 0, more)), pad(values, (0, 0, 0, more))
                mask = None if mask is None else pad(mask, (0, more), value=-math.inf)
            yield Piece(tile, keys, values, mask, nothing)


def _inside(tile: Tiles, lower: Tensor, upper: Tensor) -> Tensor:
    """Which keys the bounds let each row of the tile hear."""
    keys = torch.arange(tile.width, device=lower.device)
    if tile.law is None:
        low, high = (bound[tile.row : tile.row + tile.height, None] - tile.key for bound in (lower, upper))
    else:
        rows = torch.arange(tile.height, device=lower.device)[:, None]
        low, high = tile.law.begin + tile.law.left * rows, tile.law.end + tile.law.right * rows
    return (keys >= low) & (keys < high)


def _hear(plan: Plan, query: Tensor, key: Tensor, value: Tensor, scale: float, score: Any) -> tuple[Tensor, Tensor]:
    """Result and logarithm of the total weight for a plan; +inf where nothing is heard, so that weights come out 0."""
    width = _width(query, value)
    rows = plan.of(query, plan.row_order, width)
    keys, values = (plan.of(tensor, plan.key_order, width) for tensor in (key, value))
    wide = torch.promote_types(query.dtype, torch.float32)
    merged = not all(tile.fresh for tile in plan.tiles())
    covered = sum(tile.height * tile.count for tile in plan.tiles() if tile.fresh)
    out = torch.empty_like(rows, dtype=wide if merged else None, memory_format=torch.contiguous_format)
    total = rows.new_full(rows.shape[:3], -math.inf, dtype=wide)
    if covered < rows.shape[2]:
        out.zero_()
    for tile, key_part, value_part, mask, nothing in _pieces(plan, keys, values, score):
        causal = tile.is_causal() and mask is None
        part, part_total = _attend(tile.rows_of(rows), key_part, value_part, mask, causal, scale)
        if nothing is not None:
            part, part_total = part.masked_fill(nothing[..., None], 0.0), part_total.masked_fill(nothing, -math.inf)
        _merge(tile.rows_of(out), tile.rows_of(total), part, part_total, tile.fresh)
    total.masked_fill_(total == -math.inf, math.inf)
    out = out[..., : value.shape[-1]].to(query.dtype)
    return _put_back(out, plan.row_order), _put_back(total, plan.row_order)


def _merge(out: Tensor, total: Tensor, part: Tensor, part_total: Tensor, fresh: bool) -> None:
    """Take in what rows hear of further keys: each side counts by its share of the total weight."""
    if fresh:
        out.copy_(part)
        total.copy_(part_total)
        return
    both = torch.logaddexp(total, part_total)
    finite = both.masked_fill(both == -math.inf, 0.0)
    out.mul_((total - finite).exp_().unsqueeze(-1)).addcmul_(part.to(out.dtype), (part_total - finite).exp_().unsqueeze(-1))
    total.copy_(both)


def _hear_backward(
    plan: Plan, gradient: Tensor, saved: Sequence[Tensor], scale: float, score: Any
) -> tuple[Tensor, ...]:
    query, key, value, out, total = saved
    width = _width(query, value)
    given, rows, result = (plan.of(tensor, plan.row_order, width) for tensor in (gradient, query, out))
    keys, values = (plan.of(tensor, plan.key_order, width) for tensor in (key, value))
    totals = total[plan.batch, plan.head]
    totals = totals if plan.row_order is None else totals.index_select(2, plan.row_order)
    shape = torch.contiguous_format
    to_rows, to_keys, to_values = (
        torch.zeros_like(tensor, dtype=total.dtype, memory_format=shape) for tensor in (rows, keys, values)
    )
    for tile, key_part, value_part, mask, _ in _pieces(plan, keys, values, score):
        inputs = (tile.rows_of(rows), key_part, value_part, tile.rows_of(result), tile.rows_of(totals))
        parts = _attend_backward(tile.rows_of(given), inputs, mask, tile.is_causal() and mask is None, scale)
        tile.rows_of(to_rows).add_(parts[0])
        tile.add_keys(to_keys, parts[1])
        tile.add_keys(to_values, parts[2])
    return tuple(
        _put_back(part[..., : tensor.shape[-1]].to(tensor.dtype), order)
        for part, tensor, order in (
            (to_rows, query, plan.row_order), (to_keys, key, plan.key_order), (to_values, value, plan.key_order),
        )
    )


def _put_back(tensor: Tensor, order: Tensor | None) -> Tensor:
    return tensor if order is None else torch.empty_like(tensor).index_copy_(2, order, tensor)


def _width(query: Tensor, value: Tensor) -> int:
    """One width for queries, keys and values, as the library's kernels take it."""
    width = max(query.shape[-1], value.shape[-1], 1)
    return width if query.device.type == "cpu" else -(-width // 8) * 8


def _assembled(plans: Iterator[Plan], parts_of: Callable[[Plan], Sequence[Tensor]], whole: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`whole`, filled plan by plan; of a single plan, what it gives."""
    for plan in plans:
        parts = parts_of(plan)
        if plan.batch == plan.head == slice(None):
            return tuple(part.contiguous() for part in parts)
        for tensor, part in zip(whole, parts, strict=True):
            tensor[plan.batch, plan.head] = part
    return tuple(whole)


# ---- The operators ----------------------------------------------------------------------------------------------------

_operators = torch.library.Library(__name__.replace(".", "_"), "FRAGMENT")
_HEARING = "Tensor lower, Tensor upper, Tensor? query_group, Tensor? key_group, float scale, Tensor[] arrays"
_REFUSED = "attention within intervals has no second derivative here: differentiate the eager or reference path twice"


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(*query.shape[:3], value.shape[-1]), query.new_empty(query.shape[:3], dtype=wide)


def _shapes_backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, arrays = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:], *arrays)
    ctx.set_materialize_grads(False)


def _refuse(context: Any, *_: Any) -> None:
    raise RuntimeError(_REFUSED)


def _define(name: str, inputs: str, outputs: int, run: Callable[..., Any], fake: Callable[..., Any]) -> tuple[str, Any]:
    """A new operator of the library and its full name, with a number where another copy of this text has taken it."""
    taken = getattr(torch.ops, _operators.ns)
    number, free = 1, name
    while hasattr(taken, free):
        number, free = number + 1, f"{name}_{number + 1}"
    _operators.define(f"{free}({inputs}, {_HEARING}) -> ({', '.join(['Tensor'] * outputs)})")
    _operators.impl(free, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_operators.ns}::{free}", fake, lib=_operators)
    return f"{_operators.ns}::{free}", getattr(taken, free).default


def with_tiles(name: str, tile_score: TileScore | None) -> Callable[..., Tensor]:
    """Attention within intervals with more to a score than the product of query and key: see `attend_within`.

    """

    def scored(arrays: Sequence[Tensor]) -> Any:
        if tile_score is None:
            return None

        def score(plan: Plan, tile: Tiles) -> tuple[Tensor | None, Tensor | None]:
            rows, keys = slice(tile.row, tile.row + tile.height), slice(tile.key, tile.key + tile.width)
            return tile_score(
                arrays,
                plan.batch,
                plan.head,
                rows if plan.row_order is None else plan.row_order[rows],
                keys if plan.key_order is None else plan.key_order[keys],
            )

        return score

    def plans(query, key, hearing, score):
        extent = None
        if score is not None and min(query.shape[2], key.shape[2]):
            tiny = Tiles(0, 0, 1, 1, None)
            parts = score(Plan(slice(None), slice(None), [], None, None), tiny)
            extent = torch.broadcast_shapes((1, 1), *(part.shape[-4:-2] for part in parts if part is not None))
        return _plans(query, key, hearing, extent) if min(query.shape[2], key.shape[2]) else iter([Plan(slice(None), slice(None), [], None, None)])

    def run(query, key, value, lower, upper, query_group, key_group, scale, arrays):
        score = scored(arrays)
        return _assembled(
            plans(query, key, (lower, upper, query_group, key_group), score),
            lambda plan: _hear(plan, query, key, value, scale, score),
            _shapes(query, key, value),
        )

    def run_backward(gradient, query, key, value, out, total, lower, upper, query_group, key_group, scale, arrays):
        score = scored(arrays)
        return _assembled(
            plans(query, key, (lower, upper, query_group, key_group), score),
            lambda plan: _hear_backward(plan, gradient, (query, key, value, out, total), scale, score),
            _shapes_backward(gradient, query, key, value),
        )

    tensors = "Tensor query, Tensor key, Tensor value"
    forward_name, forward = _define(name, tensors, 2, run, _shapes)
    backward_name, backward = _define(f"{name}_backward", f"Tensor gradient, {tensors}, Tensor out, Tensor total", 3, run_backward, _shapes_backward)

    def derive(context: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
        if gradient is None:
            return (None,) * 9
        saved, arrays = context.saved_tensors[:9], context.saved_tensors[9:]
        return *backward(gradient, *saved, context.scale, list(arrays)), None, None, None, None, None, [None] * len(arrays)

    torch.library.register_autograd(forward_name, derive, setup_context=_save, lib=_operators)
    torch.library.register_autograd(backward_name, _refuse, lib=_operators)

    def attend(
        query: Tensor, key: Tensor, value: Tensor, lower: Tensor, upper: Tensor, scale: float,
        query_group: Tensor | None = None, key_group: Tensor | None = None, arrays: Sequence[Tensor] = (),
    ) -> Tensor:
        if torch.is_grad_enabled() and any(array.requires_grad for array in arrays):
            raise RuntimeError(f"{name} gives no gradient to biases and masks: stream the scores instead")
        out: Tensor = forward(query, key, value, lower, upper, query_group, key_group, scale, list(arrays))[0]
        return out

    return attend


attend_within = with_tiles("attend_within", None)
