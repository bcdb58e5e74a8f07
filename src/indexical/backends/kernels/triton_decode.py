"""Attention of few queries over many keys, by a Triton kernel that a program brings: keys are split over the card, and
what each split finds is merged. Heads that share keys lie in one tile. This text needs PyTorch and Triton and nothing
else.
"""

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from . import triton_jit as triton
from .torch_operator import define_operator, is_transformed
from .triton_operands import PLAIN
from .triton_tape import Tape, Tapes

# Tiles of keys for each split, at least.
_LEAST_TILES = 4
_MOST_SPLITS = 128


@triton.jit  # type: ignore[untyped-decorator]
def few_rows(start, h, rows, head_stride, row_stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows of some heads, with zeros beyond their width."""
    columns = tl.arange(0, PADDED)
    at = start + (h * head_stride + rows * row_stride)[:, None] + columns[None, :]
    return tl.load(at, mask=columns[None, :] < WIDTH, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def some_keys(start, first, near, row_stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some rows of keys or values from a first one on, with zeros beyond their width."""
    columns = tl.arange(0, PADDED)
    at = start + (first + tl.full((), 0, tl.int64)) * row_stride + near[:, None] * row_stride + columns[None, :]
    if WIDTH == PADDED:
        return tl.load(at)
    return tl.load(at, mask=columns[None, :] < WIDTH, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def paged_keys(start, page, slot, page_stride, row_stride, WIDTH: tl.constexpr, PADDED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of keys or values that lie in pages, with zeros beyond their width."""
    columns = tl.arange(0, PADDED)
    at = start + (page * page_stride + slot * row_stride)[:, None] + columns[None, :]
    if WIDTH == PADDED:
        return tl.load(at)
    return tl.load(at, mask=columns[None, :] < WIDTH, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def split_of(first, beyond, KEYS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The keys of this program's split: the first, and the one beyond the last."""
    tiles = (tl.maximum(beyond - first, 0) + KEYS - 1) // KEYS
    each = (tiles + tl.num_programs(1) - 1) // tl.num_programs(1)
    start = first + tl.program_id(1) * each * KEYS
    return start, tl.minimum(start + each * KEYS, beyond)


@triton.jit
def peak_of_silence(peak, weight, heard):  # type: ignore[no-untyped-def]
    """The highest scores of rows: of one that has no weight, although it attends to something, not -inf but less than
    all others, so that the rows are known that attend to nothing."""
    return tl.where((weight == 0.0) & (heard > 0), -3e38, peak)


@triton.jit  # type: ignore[untyped-decorator]
def store_split(found_ptr, acc, peak, weight, CARRIED: tl.constexpr, CARRIED_PADDED: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The results of a split: sums of values, then the highest score of each row, then its total weight."""
    columns = tl.arange(0, CARRIED_PADDED)
    split = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    row = split * ROWS + tl.arange(0, ROWS)
    count = tl.num_programs(0).to(tl.int64) * tl.num_programs(1) * ROWS
    tl.store(found_ptr + row[:, None] * CARRIED + columns[None, :], acc, mask=columns[None, :] < CARRIED)
    tl.store(found_ptr + count * CARRIED + row, peak)
    tl.store(found_ptr + count * (CARRIED + 1) + row, weight)


@triton.jit(do_not_specialize=["n_heads", "n_rows", "n_splits", "count"])  # type: ignore[untyped-decorator]
def merge_splits(  # type: ignore[no-untyped-def]
    found_ptr,
    out_ptr,
    total_ptr,
    out_b,
    out_h,
    out_row,
    n_heads,
    n_rows,
    n_splits,
    count,
    GROUP: tl.constexpr,
    CARRIED: tl.constexpr,
    CARRIED_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One row of the result from what all splits found. One that attends to nothing is 0, and one whose scores are all
    -inf is NaN. Also the logarithm of its total weight, where there is a place for that."""
    row = tl.program_id(0) % n_rows
    h = tl.program_id(0) // n_rows % n_heads
    b = (tl.program_id(0) // n_rows // n_heads).to(tl.int64)
    place = h % GROUP * n_rows + row
    tile = (b * (n_heads // GROUP) + h // GROUP) * tl.cdiv(n_rows * GROUP, ROWS) + place // ROWS
    splits, columns = tl.arange(0, SPLITS), tl.arange(0, CARRIED_PADDED)
    at = (tile * n_splits + splits) * ROWS + place % ROWS
    rows = tl.full((), 0, tl.int64) + count
    peak = tl.load(found_ptr + rows * CARRIED + at, mask=splits < n_splits, other=float("-inf"))
    weight = tl.load(found_ptr + rows * (CARRIED + 1) + at, mask=splits < n_splits, other=0.0)
    highest = tl.max(peak, 0)
    share = tl.exp2(peak - tl.where(highest == float("-inf"), 0.0, highest))
    there = (splits[:, None] < n_splits) & (columns[None, :] < CARRIED)
    parts = tl.load(found_ptr + at[:, None] * CARRIED + columns[None, :], mask=there, other=0.0)
    # A split in which every key is masked has no share; 0 times its sums is 0, for they are 0.
    whole = tl.sum(share * weight, 0)
    result = tl.sum(share[:, None] * parts, 0) / tl.where(highest == float("-inf"), 1.0, whole)
    place_out = out_ptr + b * out_b + h.to(tl.int64) * out_h + row.to(tl.int64) * out_row
    tl.store(place_out + columns, result.to(out_ptr.dtype.element_ty), mask=columns < CARRIED)
    if total_ptr is not None:
        total = (highest + tl.log2(tl.where(whole == 0.0, 1.0, whole))) * 0.6931471805599453
        tl.store(total_ptr + tl.program_id(0).to(tl.int64), tl.where(whole == 0.0, float("-inf"), total))


# ------------------------------------------------------------------------------------------------------- launching


def _padded_width(width: int) -> int:
    return max(16, int(triton.next_power_of_2(width)))


@cache
def _slots(device: int) -> int:
    """The number of programs that the card runs at once: two on each multiprocessor."""
    return 2 * int(torch.cuda.get_device_properties(device).multi_processor_count) if device >= 0 else 12


def _splits(tiles: int, keys: int, step: int, slots: int) -> int:
    """The number of parts that keys are split into: so many that all programs run at once and fill the card; where
    they cannot, so many that the last of them do not keep it waiting. Each has some tiles."""
    most = max(1, min(_MOST_SPLITS, -(-keys // (step * _LEAST_TILES))))
    at_once = slots // tiles
    if 5 * at_once * tiles >= 4 * slots:
        return min(most, at_once)
    return min(most, -(-4 * slots // tiles))


def _decoding_tiles(packed: int, widest: int, itemsize: int) -> tuple[int, int, int, int]:
    """Rows and keys of a tile, warps, and how many tiles are loaded ahead."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return 16, 32, 4, 1
    rows = max(16, min(64, triton.next_power_of_2(packed)))
    if itemsize > 2:
        return min(rows, 16), 32 if widest <= 128 else 16, 4, 2
    return rows, 64 if widest <= 128 else 32, 8 if rows > 32 else 4, 3


class Split(NamedTuple):
    """All that sizes decide of a call: what the two kernels are launched with besides tensors, and how much room what
    the splits find takes. `launches` is False where there is nothing to compute."""

    launches: bool
    shape: tuple[int, ...]
    room: int
    grid: tuple[int, int]
    wholes: tuple[int, ...]
    constants: tuple[int | str, ...]
    merging: tuple[int, ...]
    merging_constants: tuple[int, ...]
    warps: int
    stages: int


def _strides_along(array: Tensor, axes: str) -> list[int]:
    """The strides of an array, with 0 along those of batch and head that are not among its axes."""
    own = iter(array.stride())
    return [next(own) if axis in axes else 0 for axis in "bh"] + [*own]


def _split(
    queries: Sequence[Tensor],
    keys: Sequence[Tensor],
    value: Tensor,
    arrays: Sequence[Tensor],
    along: Sequence[str],
    count: int,
) -> Split:
    batch, heads, rows, _ = queries[0].shape
    _, shared, _, carried = value.shape
    shape = (batch, heads, rows, carried)
    if count == 0 or 0 in shape:
        return Split(False, shape, 0, (0, 0), (), (), (), (), 0, 0)
    group = heads // shared
    widths = [x.shape[-1] for x in (*keys, value)]
    itemsize = max(x.itemsize for x in (*keys, value))
    tile_rows, tile_keys, warps, stages = _decoding_tiles(rows * group, max(map(_padded_width, widths)), itemsize)
    tiles = batch * shared * -(-rows * group // tile_rows)
    splits = _splits(tiles, count, tile_keys, _slots(value.get_device()))
    places = tiles * splits * tile_rows
    wholes = [stride for x in (*queries, *keys, value) for stride in x.stride()[:3]]
    axes = (*along, *["bh"] * len(arrays))
    wholes += [stride for x, own in zip(arrays, axes, strict=False) for stride in _strides_along(x, own)]
    constants = [part for width in widths for part in (width, _padded_width(width))]
    return Split(
        True,
        shape,
        places * (carried + 2),
        (tiles, splits),
        (*wholes, heads, rows, count),
        (*constants, group, tile_rows, tile_keys, PLAIN),
        (heads * rows * carried, rows * carried, carried, heads, rows, splits, places),
        (group, carried, _padded_width(carried), tile_rows, triton.next_power_of_2(splits)),
        warps,
        stages,
    )


# So many splits are known of one attention; and a call whose sizes came so many times is recorded. Where keys grow from
# call to call, a record of each would take longer than it saves.
_MOST_KNOWN = 4096
_OFTEN = 32


class Few(NamedTuple):
    """The attention of few queries by one kernel: what sizes decide of its calls, with how often they came, and the
    calls that are recorded."""

    launch: Callable[..., Any]
    kernel: Any
    dots: int
    along: tuple[str, ...]
    totals: bool
    dtype: torch.dtype | None
    splits: dict[tuple[Any, ...], tuple[Split, Iterator[int]]]
    tapes: Tapes

    def again(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...]) -> Sequence[Tensor] | None:
        """The results of a call like one that is recorded; None where it is like none."""
        recent = self.tapes.latest(tensors, numbers)
        found: Sequence[Tensor] | None = None if recent is None else recent.again(*tensors)
        return found

    def run(
        self, tensors: Sequence[Tensor], wholes: Sequence[int], reals: Sequence[float], count: int
    ) -> Sequence[Tensor]:
        """The result (batch, head, row, width), over so many keys; with `totals` also the logarithm of every row's
        total weight."""
        own, dots = 2 * self.dots + 1, self.dots
        sides = [x if x.stride(-1) == 1 else x.contiguous() for x in tensors[:own]]
        if sides[-1].stride(1) == 0 and all(x.stride(1) == 0 for x in sides[dots:]):
            sides[dots:] = [x[:, :1] for x in sides[dots:]]  # All heads share their keys.
        arrays, value = tensors[own:], sides[-1]
        split, times = self._split((*sides, *arrays), count)
        out = value.new_empty(split.shape, dtype=self.dtype)
        total = value.new_empty(split.shape[:3], dtype=torch.float32) if self.totals else None
        results = [out] if total is None else [out, total]
        if not split.launches:
            return [out.zero_(), *(x.fill_(-math.inf) for x in results[1:])]
        found = torch.empty(split.room, dtype=torch.float32, device=value.device)
        arguments = (*sides, found, *arrays, *split.wholes, *wholes, *reals)
        first = self.launch(self.kernel, split.grid, arguments, split.constants, split.warps, split.stages)
        grid, merging = (math.prod(split.shape[:3]),), (found, out, total, *split.merging)
        second = self.launch(merge_splits, grid, merging, split.merging_constants, 4, 1)
        if next(times) % _OFTEN == 0:
            tape = Tape(tensors)
            for given, side in zip(tensors, sides, strict=False):
                if side.data_ptr() == given.data_ptr():
                    tape.view(side, given)
            for made in (*results, found):
                tape.keep(made)
            tape.record([(first, arguments), (second, merging)])
            if tape.is_whole:
                self.tapes.remember(tensors, (list(wholes), list(reals), count), tape.written(results))
        return results

    def _split(self, everything: Sequence[Tensor], count: int) -> tuple[Split, Iterator[int]]:
        own, value = 2 * self.dots + 1, everything[2 * self.dots]
        layouts = [(x.shape, x.stride(), x.itemsize) for x in everything]
        key = (count, value.device, *layouts)
        known = self.splits.get(key)
        if known is None:
            if len(self.splits) >= _MOST_KNOWN:
                self.splits.clear()
            queries, keys = everything[: self.dots], everything[self.dots : own - 1]
            known = _split(queries, keys, value, everything[own:], self.along, count), itertools.count(1)
            self.splits[key] = known
        return known


# ----------------------------------------------------------------------------------------------------- registration


def learns_nothing(*arrays: Any) -> bool:
    """Whether nobody wants a derivative of a call."""
    if is_transformed():
        return False
    return not (torch.is_grad_enabled() and any(array.requires_grad for array in arrays))


_known_tables: Any = WeakIdKeyDictionary()


def pages_inside(table: Tensor, *pages: int) -> bool:
    """Whether a table of pages names none that there is not. The answer is kept until the table changes: finding it
    makes the host wait for the device."""
    if torch.compiler.is_compiling() or type(table) is not Tensor:
        return False
    least = min(pages)
    state = None if table.is_inference() else (table._version, least)
    if state is not None and _known_tables.get(table, (None, False))[0] == state:
        return bool(_known_tables[table][1])
    inside = table.numel() == 0 or bool(((table >= 0) & (table < least)).all())
    if state is not None:
        _known_tables[table] = (state, inside)
    return inside


def decoding(
    name: str,
    launch: Callable[..., Any],
    kernel: Any,
    dots: int,
    totals: bool = False,
    along: tuple[str, ...] = (),
    dtype: torch.dtype | None = None,
) -> Callable[..., Any]:
    """Attention of few queries by this kernel: a function of tensors (as many queries as there are dot products, as
    many keys, values, further arrays), whole numbers and reals. There are as many keys as values, or where these lie in
    pages, so many as are counted. With `totals` it gives the logarithm of what the weights of each query are divided
    by, too, (batch, head, row). Further arrays vary with those of batch `b` and head `h` that `along` names, else with
    both. The result has the dtype of the values, unless one is given."""

    few = Few(launch, kernel, dots, along, totals, dtype, {}, Tapes())

    def handed_out(found: Sequence[Tensor]) -> Any:
        return tuple(found) if totals else found[0]

    def run(tensors: Sequence[Tensor], wholes: Sequence[int], reals: Sequence[float], count: int) -> Any:
        return handed_out(few.run(tensors, wholes, reals, count))

    def fake(tensors: Sequence[Tensor], *_: Any) -> Any:
        rows = tensors[0].shape[:3]
        out = tensors[2 * dots].new_empty((*rows, tensors[2 * dots].shape[-1]), dtype=dtype)
        return (out, tensors[0].new_empty(rows, dtype=torch.float32)) if totals else out

    results = "(Tensor, Tensor)" if totals else "Tensor"
    schema = f"(Tensor[] tensors, SymInt[] wholes, float[] reals, SymInt count) -> {results}"
    operator = define_operator(name, schema, run, fake)

    def attend(tensors: list[Tensor], wholes: list[int], reals: list[float], count: int = -1) -> Any:
        count = tensors[2 * dots].shape[2] if count < 0 else count
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
            return operator(tensors, wholes, reals, count)
        found = few.again(tensors, (wholes, reals, count))
        return run(tensors, wholes, reals, count) if found is None else handed_out(found)

    return attend
