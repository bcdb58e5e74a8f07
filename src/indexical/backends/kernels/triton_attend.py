"""Attention by Triton kernels that a program brings: the sizes of tiles, launches, gradients.

Memory is linear in queries and keys. This text needs PyTorch and Triton and nothing else.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .torch_operator import differentiable, row_totals
from .triton_launch import Tape, Tapes
from .triton_tile import (
    INTERPRETED,
    bank_kernel,
    delta_kernel,
    diagonals_kernel,
    distance_kernel,
    labels_kernel,
    mask_kernel,
    place_kernel,
    spans_kernel,
    strips_kernel,
)

# The sizes of tiles that were found to be faster on this device, where somebody has given them: `tilings(kernel, about,
# usual)` says which to take, and `epoch` changes whenever that does.
choices: Any = None

# ------------------------------------------------------------------------------------------------------- launching


class Tiling(NamedTuple):
    """The sizes of a kernel's tiles, its warps, how many tiles are loaded ahead, and the most registers that a thread
    has: at 168 three programs of four warps run side by side, and at 172 two. 0 is as many as it likes."""

    rows: int
    keys: int
    warps: int
    stages: int
    registers: int = 0

    @property
    def strip(self) -> int:
        """The columns of a tile of which the diagonals are summed at a time: 32 lie in the threads of one warp."""
        return self.keys // 2 if self.keys > min(32, self.rows) else self.keys


def _ceiling(length: int, step: int) -> int:
    """The number of tiles of a length."""
    return -(-length // step)


@functools.cache
def _padded(width: int, itemsize: int = 4) -> int:
    """The width of a tile: a power of 2, and for matrix units of 16 bits at least 64."""
    return max(64 if itemsize == 2 and not INTERPRETED else 16, 1 << max(0, width - 1).bit_length())


@functools.cache
def _tilings(width: int, carried: int, itemsize: int, work: str) -> tuple[Tiling, Tiling, Tiling]:
    """The tiles of the forward kernel, of the one for queries and of the one for keys, for a kind of `work`.

    Scores that are `paired` with an array's numbers take registers. Where queries attend to keys `near` them or to
    `marked` ones, small tiles leave out more, of the latter unless there are `many`; large ones load less where they
    attend to all from the first key on, unless weights are `free` of a sum. Those of queries whose weights are `linear`
    in dot products, which need not be computed for them, are small. The figures were measured on an H200.
    """
    if INTERPRETED:
        return Tiling(32, 16, 4, 1), Tiling(16, 32, 4, 1), Tiling(32, 16, 4, 1)
    wide = max(width, carried)
    if itemsize > 2:
        if wide <= 64:
            return Tiling(64, 32, 4, 2), Tiling(32, 32, 4, 2), Tiling(32, 32, 4, 2)
        return Tiling(32, 16, 4, 2), Tiling(16, 16, 4, 2), Tiling(16, 16, 4, 2)
    if wide <= 64:
        if work == "near":
            return Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 3), Tiling(32, 64, 4, 3)
        by_keys = Tiling(128, 64, 4, 2) if work.startswith("marked") else Tiling(64, 64, 4, 3)
        by_queries = Tiling(64, 64, 4, 2, 168 if work.startswith("marked") else 0)
        return Tiling(128, 64, 4, 3), by_queries, by_keys
    if wide <= 128:
        if work == "paired":
            return Tiling(128, 64, 8, 3), Tiling(64, 64, 4, 2), Tiling(32, 64, 4, 3)
        if work == "plain":
            return Tiling(64, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(64, 128, 8, 3)
        if work == "marked":
            return Tiling(64, 64, 4, 3), Tiling(64, 32, 4, 2, 168), Tiling(32, 64, 4, 3)
        by_keys = Tiling(64, 128, 8, 3) if work == "" else Tiling(64, 64, 4, 2)
        by_queries = Tiling(64, 32, 4, 3) if work == "linear" else Tiling(64, 64, 4, 2)
        return Tiling(64, 64, 4, 3), by_queries, by_keys
    return Tiling(64, 32, 8, 2), Tiling(64, 32, 8, 2), Tiling(32, 64, 8, 2)


class Program(NamedTuple):
    """The kernels of one attention. `levels` say of each further array along which axes of a tile it varies: none,
    `row`, `key` or both; or that it is a `table`, or one of `distances`, in which each has a place of its own.
    `learned` are those that have a gradient. `tiled` are those from which a table of the tiles that meet is made: one
    mask, or the labels of queries and of keys, or none. Where it is not `normalised`, scores are weights. The kind of
    `work` decides the sizes of tiles. `again` are the kernels for gradients of queries and of keys that are not
    finite, where some pairs are not allowed. Where it is `striped`, the kernel for queries can sum the diagonals of
    its tiles for the gradients of tables."""

    forward: Any
    backward_query: Any
    backward_key: Any
    backward_table: Any
    dots: int
    levels: tuple[str, ...]
    learned: tuple[bool, ...]
    tiled: tuple[int, ...]
    normalised: bool
    work: str
    again: tuple[Any, ...]
    striped: bool

    @property
    def tables(self) -> int:
        """The number of tables that have a gradient."""
        return sum(map(_is_banked, self.levels, self.learned))


def _is_banked(level: str, learned: bool) -> bool:
    return learned and level in ("table", "distances")


class Operands(NamedTuple):
    """Queries, keys and values as (batch, head, place, width), further arrays as (batch, head, …), and numbers.

    `places` say of each table at which of its places every distance of a query from a key is read: by an array or None,
    and by the four numbers of a rule; `ahead` is how far a key is ahead of its query at least and at most. The kind of
    `work` decides the sizes of tiles; `owner` is the forward kernel.
    """

    queries: Sequence[Tensor]
    keys: Sequence[Tensor]
    value: Tensor
    arrays: Sequence[Tensor]
    numbers: Sequence[float]
    places: Sequence[tuple[Tensor | None, *tuple[float, ...]]] = ()
    ahead: tuple[int, int] = (0, 0)
    work: str = ""
    owner: Any = None

    @classmethod
    def of(cls, program: Program, tensors: list[Tensor], wholes: Sequence[int], reals: Sequence[float]) -> "Operands":
        """The operands of a call, as it is handed them."""
        dots, count = program.dots, len(program.levels)
        matrices, arrays = list(map(_aligned, tensors[: 2 * dots + 1])), tensors[2 * dots + 1 :]
        queries, keys, value = matrices[:dots], matrices[dots:-1], matrices[-1]
        if program.backward_table is None:
            return cls(queries, keys, value, arrays, (*wholes, *reals), work=program.work)
        *wholes, low, high = wholes
        places: list[tuple[Tensor | None, *tuple[float, ...]]] = [(array, 0, 0, 0, 0) for array in arrays[count:]]
        if not places:
            own = len(wholes) - 4 * program.tables
            places = [(None, *wholes[at : at + 4]) for at in range(own, len(wholes), 4)]
            wholes = wholes[:own]
        return cls(queries, keys, value, arrays[:count], (*wholes, *reals), places, (low, high), program.work)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        batch, heads, rows, _ = self.queries[0].shape
        return batch, heads, rows, self.value.shape[-2]

    @property
    def group(self) -> int:
        """The number of heads that share keys and values."""
        return max(1, self.queries[0].shape[1] // max(1, self.value.shape[1]))

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each dot product and of the values, each with that of its tiles."""
        return _widths(tuple([key.shape[-1] for key in self.keys]), self.value.shape[-1], self.value.itemsize)

    def constants(self, tiling: Tiling) -> tuple[int, ...]:
        """The constants of a kernel with such tiles. Of `few` queries or keys there is no whole tile; and the tiles of
        a bank lie at certain places."""
        few = bool(self.places) or self.queries[0].shape[2] < tiling.rows or self.value.shape[2] < tiling.keys
        return (*self.widths, self.group, tiling.rows, tiling.keys, few)

    @property
    def table_tiling(self) -> Tiling:
        """The tiles of which diagonals are summed: of as many queries as keys, or of several times as many."""
        if INTERPRETED:
            return Tiling(32, 16, 4, 1)
        wide = max(self.widths)
        if self.value.itemsize > 2:
            return Tiling(32, 32, 4, 1)
        return Tiling(128, 64, 8, 2) if wide <= 128 else Tiling(32, 32, 4, 2)

    @property
    def tilings(self) -> tuple[Tiling, Tiling, Tiling]:
        widths = self.widths
        work = "marked, many" if self.work == "marked" and self.value.shape[2] >= 8192 else self.work
        usual = _tilings(max(widths[1:-1:2]), widths[-1], self.value.itemsize, work)
        if choices is None:
            return usual
        first, second, third = choices.tilings(self.owner, (widths, self.group, self.value.dtype), usual)
        return Tiling(*first), Tiling(*second), Tiling(*third)


@functools.cache
def _widths(compared: tuple[int, ...], carried: int, itemsize: int) -> tuple[int, ...]:
    return tuple(itertools.chain(*((width, _padded(width, itemsize)) for width in (*compared, carried))))


# From so many labels on, looked through for one table or another, their spans are found first.
_MANY_LABELS = 64 if INTERPRETED else 4096


def _tables(
    program: Program, given: Operands, sides: Sequence[tuple[Tiling, bool]], tape: Tape
) -> Iterator[tuple[tuple[Tensor, ...], list[int]]]:
    """For every tile of queries the tiles of keys that it may meet by labels or by a mask, or, `flipped`, the other way
    round: for each of these tilings a table and its strides, nothing where there are neither labels nor a mask."""
    if not program.tiled:
        yield from (((), []) for _ in sides)
        return
    labels = [given.arrays[place] for place in program.tiled]
    lengths = [given.queries[0].shape[2], given.keys[0].shape[2]]
    # What is the same for all batches or heads is looked at once.
    shape = [max(side.shape[axis] if side.stride(axis) else 1 for side in labels) for axis in (0, 1)]
    strides = [side.stride() for side in labels]
    grain = 1
    if len(labels) == 2 and len(sides) * max(lengths) > _MANY_LABELS:
        grain = min(32, *(min(tiling.rows, tiling.keys) for tiling, _ in sides))
        labels, strides = _spans_of_labels(labels, lengths, shape, grain, tape)
    for tiling, flipped in sides:
        steps, turn = (tiling.rows, tiling.keys), -1 if flipped else 1
        tiles = _ceiling(lengths[::turn][0], steps[::turn][0])
        table = tape.keep(torch.empty((*shape, tiles, 4), dtype=torch.int32, device=labels[0].device))
        numbers = (shape[1], *lengths[::turn])
        if len(labels) == 1:
            b, h, *along = strides[0]
            places = (b, h, *([0, *along] if program.levels[program.tiled[0]] == "key" else along)[::turn])
            grid = (shape[0] * shape[1] * tiles,)
            tape.launch(mask_kernel, grid, (labels[0], table, *places, *numbers), (*steps[::turn],), 4, 1)
        else:
            arguments = (*labels[::turn], table, *itertools.chain(*strides[::turn]), *numbers)
            grid = (shape[0] * shape[1] * _ceiling(tiles, 8),)
            constants = (*steps[::turn], grain, 8, 64 if grain == 1 else 256)
            tape.launch(labels_kernel, grid, arguments, constants, 8, 1)
        yield (table,), [0 if shape[0] == 1 else table.stride(0), 0 if shape[1] == 1 else table.stride(1)]


def _spans_of_labels(
    labels: Sequence[Tensor], lengths: Sequence[int], shape: Sequence[int], grain: int, tape: Tape
) -> tuple[list[Tensor], list[tuple[int, ...]]]:
    """The least and the largest label of every so many queries and of every so many keys, and their strides."""
    counts = [_ceiling(length, grain) for length in lengths]
    like = labels[0].device
    spans = [tape.keep(torch.empty((*shape, count, 2), dtype=torch.int64, device=like)) for count in counts]
    grid = (shape[0] * shape[1] * sum(_ceiling(count, 8) for count in counts),)
    arguments = (*labels, *spans, *_strides(*labels), shape[1], *lengths)
    tape.launch(spans_kernel, grid, arguments, (grain, 8), 4, 1)
    steps = [[x.stride(axis) if shape[axis] > 1 else 0 for axis in (0, 1)] for x in spans]
    return spans, [(*step, 2) for step in steps]


def _banked(
    program: Program, given: Operands, tiling: Tiling, flipped: bool, tape: Tape
) -> tuple[list[Tensor], list[int]]:
    """The further arrays as a kernel with such tiles takes them, and their strides: of a table that is read at a
    distance a bank of tiles, of each other array what it is."""
    arrays: list[Tensor] = []
    strides: list[int] = []
    places = iter(given.places)
    _, _, rows, keys = given.shape
    for array, level, learned in zip(given.arrays, program.levels, program.learned, strict=True):
        if not _is_banked(level, learned):
            arrays.append(array)
            strides += array.stride()
            continue
        least = min(tiling.rows, tiling.keys)
        last = [(_ceiling(n, step) - 1) * step for n, step in ((rows, least), (keys, tiling.keys))]
        count = sum(last) // least + 1
        # What is the same for all batches or heads is made once.
        shape = [array.shape[axis] if array.stride(axis) else 1 for axis in (0, 1)]
        size = count * tiling.rows * tiling.keys
        bank = tape.keep(torch.empty((*shape, size), dtype=array.dtype, device=array.device))
        numbers = (shape[1], rows, keys, array.shape[2], count)
        at, *rule = next(places)
        arguments = (array, at, bank, *array.stride(), *numbers, *rule)
        tape.launch(bank_kernel, (shape[0] * shape[1] * count,), arguments, (tiling.rows, tiling.keys, flipped), 4, 1)
        arrays.append(bank)
        strides += [bank.stride(axis) if shape[axis] > 1 else 0 for axis in (0, 1)] + [1]
    return arrays, strides


def _eights(*matrices: Tensor) -> list[int]:
    """The strides of all axes but the last, where elements lie side by side, in eights."""
    return [stride // 8 for matrix in matrices for stride in matrix.stride()[:-1]]


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()]


def _attend_by_kernels(program: Program, given: Operands, tape: Tape) -> tuple[Tensor, Tensor]:
    """The result (batch, head, row, width), and the logarithm to base 2 of every row's total weight; +inf of none."""
    batch, heads, rows, keys = given.shape
    out = tape.keep(_result(given.queries[0], given.value))
    total = tape.keep(torch.empty((batch, heads, rows), dtype=torch.float32, device=out.device))
    if out.numel() == 0 or keys == 0:
        tape.is_whole = False
        return out.zero_(), total.fill_(math.inf)
    tiling = given.tilings[0]
    ((table, steps),) = _tables(program, given, [(tiling, False)], tape)
    arrays, strides = _banked(program, given, tiling, False, tape)
    grid = (batch * heads * _ceiling(rows, tiling.rows),)
    arguments = (
        *(*given.queries, *given.keys, given.value, out, total, *arrays, *table),
        *_eights(*given.queries, *given.keys, given.value),
        *_strides(out),
        *strides,
        *(*steps, heads, rows, keys, *given.numbers),
    )
    constants = given.constants(tiling)
    tape.launch(program.forward, grid, arguments, constants, *tiling[2:])
    tape.run()
    return out, total


def _result(query: Tensor, value: Tensor) -> Tensor:
    """An array for the result, laid out in memory as the queries are."""
    width, strides = value.shape[-1], query.stride()
    if width == query.shape[-1] and width % 8 == 0 and query.is_contiguous():
        return torch.empty_like(query)
    order = sorted(range(3), key=lambda axis: -strides[axis]) if 0 not in strides else [0, 1, 2]
    shape = [query.shape[axis] for axis in order]
    whole = query.new_empty((*shape, (width + 7) // 8 * 8)).permute(*(order.index(axis) for axis in range(3)), 3)
    return whole if whole.shape[-1] == width else whole[..., :width]


def _like(tensor: Tensor) -> Tensor:
    """An array for a gradient."""
    return tensor.new_empty(tensor.shape)


def _aligned(tensor: Tensor) -> Tensor:
    """The matrices, each row in one piece from a multiple of 16 bytes on, with zeros up to the width of a tile: as they
    are, or a copy."""
    a, b, c, last = tensor.stride()
    width = tensor.shape[-1]
    padded = _padded(width, tensor.itemsize)
    if width == padded and last == 1 and not (a | b | c) & 7 and not tensor.data_ptr() & 15:
        return tensor
    whole = tensor.new_empty((*tensor.shape[:-1], padded))
    whole[..., width:] = 0.0
    return whole[..., :width].copy_(tensor)


def _attend_by_kernels_backward(
    program: Program,
    flowing: tuple[Tensor, Tensor | None],
    given: Operands,
    out: Tensor,
    total: Tensor,
    needs: Sequence[bool],
    tape: Tape,
) -> list[Tensor]:
    """The gradients of queries, keys, value and arrays, in this order, and what those of arrays are summed from. What
    flows back comes from the result, and from the totals or None."""
    batch, heads, rows, keys = given.shape
    count = len(given.queries)
    found = [tape.keep(_like(x)) for x in (*given.queries, *given.keys, given.value)]
    row_tiles = _ceiling(rows, given.tilings[1].rows)
    further = needs[2 * count + 1 :]
    for array, level, learned, need in zip(given.arrays, program.levels, program.learned, further, strict=False):
        if not learned or not need:
            found.append(total)  # A kernel that has a place for it does not write there.
            continue
        tail: tuple[int, ...] = (row_tiles,) if level == "" else tuple(array.shape[2:])
        partly = level in ("rowkey", "distances")  # A kernel writes what it meets, of all others everything.
        shape, dtype = (batch, heads, *tail), array.dtype if level == "rowkey" else torch.float32
        part = (torch.zeros if partly else torch.empty)(shape, dtype=dtype, device=out.device)
        found.append(tape.keep(part, zero=partly))
    if out.numel() == 0 or keys == 0:
        tape.is_whole = False
        return [x if x is total else x.zero_() for x in found]
    _launch_backward(program, flowing, given, out, total, needs, found, tape)
    return found


def _summed(program: Program, given: Operands, found: Sequence[Tensor], needs: Sequence[bool]) -> list[Tensor]:
    """The gradients that are needed: of queries, keys, value and arrays, in this order."""
    count = len(given.queries)
    further = needs[2 * count + 1 :]
    result = [x for x, need in zip(found[: 2 * count + 1], needs, strict=False) if need]
    for array, level, part, need in zip(given.arrays, program.levels, found[2 * count + 1 :], further, strict=False):
        if need:
            result.append((part.sum(-1) if level == "" else part).to(array.dtype))
    return result


def _diagonals(given: Operands) -> tuple[int, int]:
    """The number of programs that sum diagonals of tiles, and the highest one on which there are pairs, counted from
    the one of equal places."""
    low, high = given.ahead
    _, _, rows, keys = given.shape
    tiling = given.table_tiling
    step = tiling.keys
    top = min(_ceiling(high, step), _ceiling(keys, step) - 1)
    lowest = max(low // step, 1 - _ceiling(rows, step))
    return max(0, _ceiling(top - lowest + 1, tiling.rows // step)), top


# How many times as much room as queries, keys and values the sums of the diagonals of tiles may take.
_STRIPS = 2.0


class Strips(NamedTuple):
    """The sums of the diagonals of tiles, by the kernel for queries: for how many heads they are there at a time, how
    many tiles of keys have a place beside each tile of queries, and how many numbers that is for a head. 0 heads where
    it does not make them: no kernel for that, or too much room for those of one head."""

    heads: int
    slots: int
    size: int

    @classmethod
    def of(cls, program: Program, given: Operands, tables: int) -> "Strips":
        """The sums for so many tables."""
        tiling, (low, high) = given.tilings[1], given.ahead
        batch, heads, rows, keys = given.shape
        slots = min(_ceiling(keys, tiling.keys), (high - low + tiling.rows + tiling.keys - 2) // tiling.keys + 1)
        parts = _ceiling(rows, tiling.rows) * (tiling.rows // tiling.strip)
        size = parts * slots * (tiling.keys + tiling.strip)
        if not program.striped or not tables or not size:
            return cls(0, 0, 0)
        known = sum(x.numel() * x.itemsize for x in (*given.queries, *given.keys, given.value))
        most = int(_STRIPS * known) // (4 * size * tables)
        # Not the last few alone.
        return cls(_ceiling(batch * heads, _ceiling(batch * heads, most)) if most else 0, slots, size)


def _marks(program: Program, count: int, like: Tensor, tape: Tape) -> tuple[Tensor, ...]:
    """An array in which so many programs or rows say whether their sums are not finite, where that is asked."""
    return (tape.keep(like.new_empty(count)),) if program.again else ()


def _launch_backward(
    program: Program,
    flowing: tuple[Tensor, Tensor | None],
    given: Operands,
    out: Tensor,
    total: Tensor,
    needs: Sequence[bool],
    found: Sequence[Tensor],
    tape: Tape,
) -> None:
    gradient, gain = flowing
    batch, heads, rows, keys = given.shape
    count, shared = len(given.queries), given.value.shape[1]
    width = given.value.shape[-1]
    delta = tape.keep(torch.empty_like(total))
    gradient = _aligned(gradient)
    wants = list(zip(found[2 * count + 1 :], program.levels, program.learned, needs[2 * count + 1 :], strict=False))
    of_query = [(x, need) for x, level, learned, need in wants if learned and level in ("", "row", "rowkey")]
    of_key = [(x, need) for x, level, learned, need in wants if learned and level == "key"]
    operands = (*given.queries, *given.keys, given.value, gradient, total, delta)
    eights = _eights(*given.queries, *given.keys, given.value, gradient)
    numbers = (heads, rows, keys, *given.numbers)
    of_table = [(x, need, level) for x, level, learned, need in wants if _is_banked(level, learned)]
    strips = Strips.of(program, given, sum(need for _, need, _ in of_table))
    room = strips.heads * strips.size
    parts = [tape.keep(total.new_empty(room)) if need and room else total for _, need, _ in of_table]
    sums = [tape.keep(total.new_empty((batch * heads, rows + keys - 1))) if need else total for _, need, _ in of_table]
    wanted = (*needs[:count], *(need for _, need in of_query))
    if program.striped:
        wanted += tuple(need and strips.heads > 0 for _, need, _ in of_table)
    wanted_keys = (*needs[count : 2 * count], needs[2 * count], *(need for _, need in of_key))
    sides = [(tiling, n == 1) for n, tiling in enumerate((*given.tilings[1:], given.table_tiling))]
    asked = any(wanted), any(wanted_keys), not strips.heads and any(need for _, need, _ in of_table)
    tables = _tables(program, given, list(itertools.compress(sides, asked)), tape)
    if any(wanted):
        tiling = given.tilings[1]
        targets = (*found[:count], *(x for x, _ in of_query))
        tiles = _ceiling(rows, tiling.rows)
        grid = (batch * heads * tiles,)
        constants = (*given.constants(tiling), *wanted)
        table, steps = next(tables)
        arrays, strides = _banked(program, given, tiling, False, tape)
        places = _strides(*found[:count])
        outs, apart = ((out, gain), _strides(out)) if program.normalised else ((), [])
        odd = _marks(program, grid[0] * tiling.rows, total, tape)
        more: tuple[int, ...] = ()
        if program.striped:
            span = tape.keep(total.new_empty((*grid, 2), dtype=torch.int32))
            targets, more = (*targets, span, *parts), (given.ahead[0], strips.slots, 0)
            constants += (tiling.strip,)
        arguments: tuple[Any, ...] = (*operands, *outs, *odd, *arrays, *table, *targets, *eights, *apart)
        arguments += (*strides, *steps, *places, *numbers, *more)
        if not strips.heads:
            tape.launch(program.backward_query, grid, arguments, constants, *tiling[2:])
        for first in range(0, batch * heads, strips.heads) if strips.heads else ():
            own = min(strips.heads, batch * heads - first)
            given_now = (*arguments[:-1], first * tiles)
            tape.launch(program.backward_query, (own * tiles,), given_now, constants, *tiling[2:])
            grid_now = (own * (_ceiling(rows - 1, tiling.strip) + _ceiling(keys, tiling.strip)),)
            for part, summed, (_, need, _) in zip(parts, sums, of_table, strict=True):
                if need:
                    now = (part, span, summed, rows, keys, given.ahead[0], strips.slots, first)
                    tape.launch(strips_kernel, grid_now, now, (*tiling[:2], tiling.strip, 32), 4, 1)
        if odd and any(needs[:count]):
            tape.launch(program.again[0], (_ceiling(*grid, 16),), (*arguments, *grid), constants, 4, 1)
    elif program.normalised:  # The kernel for queries would have made it.
        grid = (batch * heads * _ceiling(rows, 64),)
        arguments = (out, gradient, delta, gain, *_strides(out, gradient), heads, rows)
        tape.launch(delta_kernel, grid, arguments, (width, _padded(width, out.itemsize), 64), 4, 1)
    if any(wanted_keys):
        tiling = given.tilings[2]
        targets = (*found[count : 2 * count + 1], *(x for x, _ in of_key))
        grid = (batch * shared * _ceiling(keys, tiling.keys),)
        constants = (*given.constants(tiling), *wanted_keys)
        table, steps = next(tables)
        arrays, strides = _banked(program, given, tiling, True, tape)
        places = _strides(*found[count : 2 * count + 1])
        odd = _marks(program, grid[0] * tiling.keys, total, tape)
        arguments = (*operands, *odd, *arrays, *table, *targets, *eights, *strides, *steps, *places, *numbers)
        tape.launch(program.backward_key, grid, arguments, constants, *tiling[2:])
        if odd and any(needs[count : 2 * count + 1]):
            tape.launch(program.again[1], (_ceiling(*grid, 16),), (*arguments, *grid), constants, 4, 1)
    if asked[2]:
        diagonals, top = _diagonals(given)
        tiling = given.table_tiling
        table, steps = next(tables)
        arrays, strides = _banked(program, given, tiling, False, tape)
        constants = (*given.constants(tiling), *(need for _, need, _ in of_table))
        shape = (batch * heads * diagonals, tiling.rows + tiling.keys)
        parts = [tape.keep(total.new_empty(shape)) if need else total for _, need, _ in of_table]
        grid = (batch * heads * diagonals,)
        odd = _marks(program, grid[0], total, tape)
        arguments = (*operands, *odd, *arrays, *table, *parts, *eights, *strides, *steps, *numbers, diagonals, top)
        for again in (False, True) if odd else (False,):
            tape.launch(program.backward_table, grid, arguments, (*constants, again), *tiling[2:])
        grid = (batch * heads * _ceiling(rows + keys - 1, 256),)
        for part, summed, (_, need, _) in zip(parts, sums, of_table, strict=True):
            if need:
                arguments = (part, summed, rows, keys, diagonals, top)
                tape.launch(diagonals_kernel, grid, arguments, (*tiling[:2], 256), 4, 1)
    for (x, need, level), summed, (at, *rule) in zip(of_table, sums, given.places, strict=True):
        arguments = (summed, at, x, rows, keys, x.shape[2], *rule)
        if need and level == "distances":
            grid = (batch * heads * _ceiling(rows + keys - 1, 256),)
            tape.launch(distance_kernel, grid, arguments, (256,), 4, 1)
        elif need:
            grid = (batch * heads * _ceiling(x.shape[2], 16),)
            tape.launch(place_kernel, grid, arguments, (16, 1024, 256), 4, 1)
    tape.run()


# ----------------------------------------------------------------------------------------------------- registration


def _numbers(*numbers: Sequence[float]) -> tuple[Any, ...]:
    """All numbers that launches depend on."""
    return *map(tuple, numbers), None if choices is None else choices.epoch


def attending(
    name: str,
    forward: Any,
    backward_query: Any,
    backward_key: Any,
    backward_table: Any,
    dots: int,
    levels: tuple[str, ...],
    learned: tuple[bool, ...],
    tiled: tuple[int, ...] = (),
    normalised: bool = True,
    work: str = "",
    again: tuple[Any, ...] = (),
    striped: bool = False,
) -> Callable[..., Any]:
    """Attention by these kernels, as a function of queries, keys, value, further arrays and numbers.

    A score has so many `dots`, each of a query and a key. With `totals` the function gives the logarithm of what the
    weights of each query are divided by, too, (batch, head, row).
    """
    kernels = forward, backward_query, backward_key, backward_table
    program = Program(*kernels, dots, levels, learned, tiled, normalised, work, again, striped)
    tapes, backward_tapes = Tapes(), Tapes()

    def run(tensors: list[Tensor], wholes: list[int], reals: list[float]) -> tuple[Tensor, Tensor]:
        numbers = _numbers(wholes, reals)
        known = tapes.find(tensors, numbers)
        again: tuple[Tensor, Tensor] | None = None if known is None else known(*tensors)
        if again is not None:
            return again
        tape = Tape(tensors)
        given = Operands.of(program, tensors, wholes, reals)._replace(owner=forward)
        result = _attend_by_kernels(program, given, tape)
        tapes.add(tensors, numbers, tape, result)
        return result

    def fake(tensors: list[Tensor], wholes: list[int], reals: list[float]) -> tuple[Tensor, Tensor]:
        query, value = tensors[0], tensors[2 * dots]
        return _result(query, value), query.new_empty(query.shape[:3], dtype=torch.float32)

    def run_backward(
        gradients: list[Tensor | None],
        tensors: list[Tensor],
        found: list[Tensor],
        wholes: list[int],
        reals: list[float],
        needs: list[bool],
    ) -> list[Tensor]:
        gradient = torch.zeros_like(found[0]) if gradients[0] is None else gradients[0]
        gain = None if gradients[1] is None else gradients[1].contiguous()
        all_given = [*tensors, gradient, *found, *([] if gain is None else [gain])]
        numbers = _numbers(wholes, reals, needs)
        known = backward_tapes.find(all_given, numbers)
        again = None if known is None else known(*all_given)
        if again is not None and not any(needs[2 * dots + 1 :]):
            return list(itertools.compress(again, needs))
        given = Operands.of(program, tensors, wholes, reals)._replace(owner=forward)
        if again is not None:
            return _summed(program, given, again, needs)
        tape = Tape(all_given)
        result = _attend_by_kernels_backward(program, (gradient, gain), given, found[0], found[1], needs, tape)
        backward_tapes.add(all_given, numbers, tape, result)
        return _summed(program, given, result, needs)

    def fake_backward(gradients: list[Tensor], tensors: list[Tensor], *rest: Any) -> list[Tensor]:
        return [_like(x) for x, need in zip(tensors, rest[-1], strict=True) if need]

    call = differentiable(name, run, run_backward, fake, fake_backward)

    def attend(
        tensors: Sequence[Tensor], wholes: Sequence[int] = (), reals: Sequence[float] = (), totals: bool = False
    ) -> Any:
        found = call(tensors, wholes, reals)
        return (found[0], row_totals(found[1]) * math.log(2.0)) if totals else found[0]

    def back(
        gradient: Tensor, tensors: Sequence[Tensor], wholes: Sequence[int] = (), reals: Sequence[float] = ()
    ) -> list[Tensor]:
        """Gradients to queries, keys and value, where `gradient` arrives, on a forward pass that is computed again."""
        needs = [place <= 2 * dots for place in range(len(tensors))]
        found = call(tensors, wholes, reals)
        back: list[Tensor] = call.backward((gradient, None), tensors, found, wholes, reals, needs)  # type: ignore[attr-defined]
        return back[: 2 * dots + 1]

    attend.backward = back  # type: ignore[attr-defined]
    attend.only_reads = True  # type: ignore[attr-defined]
    return attend
