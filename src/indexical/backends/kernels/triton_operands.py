"""The operands of Triton kernels of an attention: arrays and numbers, the sizes of tiles, and the tables that small
kernels make first.

Memory is linear in queries and keys. This text needs PyTorch and Triton and nothing else.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .triton_tables import bank_kernel, labels_kernel, mask_kernel, spans_kernel
from .triton_tape import Tape
from .triton_tile import INTERPRETED

# The sizes of tiles that were found to be faster on this device, where somebody has given them: `tilings(kernel, about,
# usual)` says which to take, and `epoch` changes whenever that does.
choices: Any = None


# How products of float32 are taken: by the arithmetic of numbers; or each as six or as three products of parts of 16
# bits, by matrix units.
PLAIN, SIX, THREE = "ieee", "bf16x6", "bf16x3"


def products_of(itemsize: int) -> str:
    """How products of operands are taken: those of 32 bits to all of their digits, or to about 16 bits where PyTorch's
    own may be less exact."""
    if itemsize == 2 or INTERPRETED:
        return PLAIN
    matmul = torch.backends.cuda.matmul
    allowed = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return THREE if allowed else SIX


def settings_for(tensors: Sequence[Tensor]) -> tuple[Any, str]:
    """Values that change whenever other tiles are chosen, or other products."""
    return None if choices is None else choices.epoch, products_of(tensors[0].itemsize)


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


def tile_count(length: int, step: int) -> int:
    """The number of tiles of a length."""
    return -(-length // step)


@functools.cache
def tile_width(width: int) -> int:
    """The width of a tile: a power of 2, and for matrix units at least 64."""
    return max(16 if INTERPRETED else 64, 1 << max(0, width - 1).bit_length())


@functools.cache
def _tilings(width: int, carried: int, itemsize: int, work: str) -> tuple[Tiling, Tiling, Tiling]:
    """The tiles of the forward kernel, of the one for queries and of the one for keys, for a kind of `work`.

    Scores that are `paired` with an array's numbers take registers. Where queries attend to keys `near` them or to
    `marked` ones, small tiles leave out more, of the latter unless there are `many`; large ones load less where they
    attend to all from the first key on, unless weights are `free` of a sum. Those of queries whose weights are `linear`
    in dot products, which need not be computed for them, are small. Those of keys have few queries where scores are
    `heavy`, which takes registers, and are large where they are `slanted` over many keys. The figures were measured on
    an H200.
    """
    if INTERPRETED:
        return Tiling(32, 16, 4, 1), Tiling(16, 32, 4, 1), Tiling(32, 16, 4, 1)
    wide = max(width, carried)
    if itemsize > 2:
        if wide <= 64:
            return Tiling(64, 32, 4, 1), Tiling(64, 64, 4, 1), Tiling(32, 64, 4, 1)
        if wide <= 128:
            return Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 2), Tiling(32, 32, 4, 2)
        return Tiling(32, 16, 4, 2), Tiling(16, 16, 4, 2), Tiling(16, 16, 4, 2)
    if wide <= 64:
        if work.startswith("near"):
            return Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 3), Tiling(32, 64, 4, 3)
        by_keys = Tiling(128, 64, 4, 2) if work.startswith("marked") else Tiling(64, 64, 4, 3)
        by_queries = Tiling(64, 64, 4, 2, 168 if work.startswith("marked") else 0)
        return Tiling(128, 64, 4, 3), by_queries, by_keys
    if wide <= 128:
        if work == "paired":
            return Tiling(128, 64, 8, 3), Tiling(64, 64, 4, 2), Tiling(32, 64, 4, 3)
        if work == "marked":
            return Tiling(64, 64, 4, 3), Tiling(64, 32, 4, 2, 168), Tiling(32, 64, 4, 3)
        by_keys = Tiling(64, 128, 8, 3) if work == "slanted, many" else Tiling(64, 64, 4, 2)
        by_keys = Tiling(32, 64, 4, 3) if work.endswith("heavy") else by_keys
        by_queries = Tiling(64, 32, 4, 3) if work == "linear" else Tiling(64, 64, 4, 2)
        by_queries = Tiling(128, 64, 8, 3) if work in ("plain", "slanted, many") else by_queries
        return Tiling(64, 64, 4, 3), by_queries, by_keys
    return Tiling(64, 32, 8, 2), Tiling(64, 32, 8, 2), Tiling(32, 64, 8, 2)


class Program(NamedTuple):
    """The kernels of one attention. `levels` say of each further array along which axes of a tile it varies: none,
    `row`, `key` or both; or that it is a `table`, or one of `distances`, in which each has a place of its own.
    `learned` are those that have a gradient. Each varies with those of batch `b` and head `h` that `along` names, or
    with both. `tiled` are those from which a table of the tiles that meet is made: one
    mask, or the labels of queries and of keys, or none. Where it is not `normalised`, scores are weights. The kind of
    `work` decides the sizes of tiles. `again` are the kernels for results, gradients of queries and gradients of
    keys that are not finite, where some pairs are not allowed. Where it is `striped`, the kernel for queries can sum
    the diagonals of its tiles for the gradients of tables."""

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
    along: tuple[str, ...]

    @property
    def tables(self) -> int:
        """The number of tables that have a gradient."""
        return sum(map(is_banked, self.levels, self.learned))


def is_banked(level: str, learned: bool) -> bool:
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
    def of(
        cls, program: Program, tensors: list[Tensor], wholes: Sequence[int], reals: Sequence[float], tape: Tape
    ) -> "Operands":
        """The operands of a call, as it is handed them."""
        dots, count = program.dots, len(program.levels)
        matrices, arrays = list(map(aligned, tensors[: 2 * dots + 1])), tensors[2 * dots + 1 :]
        queries, keys, value = matrices[:dots], matrices[dots:-1], matrices[-1]
        for n, axes in enumerate(program.along):
            arrays[n] = tape.view(_at_every_head(arrays[n], axes, *queries[0].shape[:2]), arrays[n])
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
        return _widths(tuple([side.shape[-1] for side in (*self.keys, self.value)]))

    @property
    def itemsize(self) -> int:
        """The bytes of an element of the matrices: of the widest of them."""
        return max([side.itemsize for side in (*self.keys, self.value)])

    def constants(self, tiling: Tiling) -> tuple[int | str, ...]:
        """The constants of a kernel with such tiles. Of `few` queries or keys there is no whole tile; and the tiles of
        a bank lie at certain places."""
        few = bool(self.places) or self.queries[0].shape[2] < tiling.rows or self.value.shape[2] < tiling.keys
        products = products_of(self.itemsize)
        return (*self.widths, self.group, tiling.rows, tiling.keys, products, few)

    @property
    def table_tiling(self) -> Tiling:
        """The tiles of which diagonals are summed: of as many queries as keys, or of several times as many."""
        if INTERPRETED:
            return Tiling(32, 16, 4, 1)
        wide = max(self.widths)
        if self.itemsize > 2:
            return Tiling(32, 32, 4, 1)
        return Tiling(128, 64, 8, 2) if wide <= 128 else Tiling(32, 32, 4, 2)

    @property
    def tilings(self) -> tuple[Tiling, Tiling, Tiling]:
        widths = self.widths
        many = self.work in ("marked", "slanted") and self.value.shape[2] >= 8192
        work = f"{self.work}, many" if many else self.work
        usual = _tilings(max(widths[1:-1:2]), widths[-1], self.itemsize, work)
        if choices is None:
            return usual
        first, second, third = choices.tilings(self.owner, (widths, self.group, self.value.dtype), usual)
        return Tiling(*first), Tiling(*second), Tiling(*third)


def _at_every_head(array: Tensor, axes: str, batch: int, heads: int) -> Tensor:
    """An array with those two axes, of which it has some."""
    array = array if "b" in axes else array[None]
    array = array if "h" in axes else array[:, None]
    return array.expand(batch, heads, *array.shape[2:])


@functools.cache
def _widths(sides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(itertools.chain(*((width, tile_width(width)) for width in sides)))


# From so many labels on, looked through for one table or another, their spans are found first.
_MANY_LABELS = 64 if INTERPRETED else 4096


def meeting_tiles(
    program: Program, given: Operands, sides: Sequence[tuple[Tiling, bool]], tape: Tape
) -> list[tuple[tuple[Tensor, ...], list[int]]]:
    """For every tile of queries the tiles of keys that it may meet by labels or by a mask, or, `flipped`, the other way
    round: for each of these tilings a table and its strides, nothing where there are neither labels nor a mask."""
    if not program.tiled:
        return [((), []) for _ in sides]
    labels = [given.arrays[place] for place in program.tiled]
    lengths = (given.queries[0].shape[2], given.keys[0].shape[2])
    # What is the same for all batches or heads is looked at once.
    shape = [max(side.shape[axis] if side.stride(axis) else 1 for side in labels) for axis in (0, 1)]
    tables = []
    for tiling, flipped in sides:
        tiles = tile_count(lengths[flipped], tiling[flipped])
        tables.append(tape.keep(torch.empty((*shape, tiles, 4), dtype=torch.int32, device=labels[0].device)))
    if len(labels) == 2:
        _meet_by_labels(labels, lengths, sides, tables, tape)
    else:
        for (tiling, flipped), table in zip(sides, tables, strict=True):
            b, h, *along = labels[0].stride()
            turn = -1 if flipped else 1
            steps = {"row": [*along, 0], "key": [0, *along]}.get(program.levels[program.tiled[0]], along)
            places = (b, h, *steps[::turn])
            arguments = (labels[0], table, *places, shape[1], *lengths[::turn])
            tape.launch(mask_kernel, (table[..., 0].numel(),), arguments, tiling[:2][::turn], 4, 1)
    return [((x,), [x.stride(axis) if shape[axis] > 1 else 0 for axis in (0, 1)]) for x in tables]


def _meet_by_labels(
    labels: Sequence[Tensor],
    lengths: Sequence[int],
    sides: Sequence[tuple[Tiling, bool]],
    tables: Sequence[Tensor],
    tape: Tape,
) -> None:
    """Launch what fills the tables of tiles that meet by their labels: one of queries and one of keys at a time."""
    shape, strides, grain = tables[0].shape[:2], all_strides(*labels), 1
    if len(sides) * max(lengths) > _MANY_LABELS:
        grain = min(32, *(min(tiling[:2]) for tiling, _ in sides))
        labels, strides = _spans_of_labels(labels, lengths, shape, grain, tape)
    found = [[(tiling, x) for (tiling, own), x in zip(sides, tables, strict=True) if own == side] for side in (0, 1)]
    for by_row, by_key in itertools.zip_longest(*found):
        steps = [step for tiling, _ in (by_row or by_key, by_key or by_row) for step in tiling[:2]]
        both = [None if each is None else each[1] for each in (by_row, by_key)]
        programs = sum(tile_count(x.shape[2], 8) for x in both if x is not None)
        arguments = (*labels, *both, *strides, shape[1], *lengths)
        constants = (*steps, grain, 8, 64 if grain == 1 else 256)
        tape.launch(labels_kernel, (shape[0] * shape[1] * programs,), arguments, constants, 8, 1)


def _spans_of_labels(
    labels: Sequence[Tensor], lengths: Sequence[int], shape: Sequence[int], grain: int, tape: Tape
) -> tuple[list[Tensor], list[int]]:
    """The least and the largest label of every so many queries and of every so many keys, and their strides."""
    counts = [tile_count(length, grain) for length in lengths]
    like = labels[0].device
    spans = [tape.keep(torch.empty((*shape, count, 2), dtype=torch.int64, device=like)) for count in counts]
    grid = (shape[0] * shape[1] * sum(tile_count(count, 8) for count in counts),)
    arguments = (*labels, *spans, *all_strides(*labels), shape[1], *lengths)
    tape.launch(spans_kernel, grid, arguments, (grain, 8), 4, 1)
    steps = [[*(x.stride(axis) if shape[axis] > 1 else 0 for axis in (0, 1)), 2] for x in spans]
    return spans, list(itertools.chain(*steps))


def with_banks(
    program: Program, given: Operands, tiling: Tiling, flipped: bool, tape: Tape
) -> tuple[list[Tensor], list[int]]:
    """The further arrays as a kernel with such tiles takes them, and their strides: of a table that is read at a
    distance a bank of tiles, of each other array what it is."""
    arrays: list[Tensor] = []
    strides: list[int] = []
    places = iter(given.places)
    _, _, rows, keys = given.shape
    for array, level, learned in zip(given.arrays, program.levels, program.learned, strict=True):
        if not is_banked(level, learned):
            arrays.append(array)
            strides += array.stride()
            continue
        least = min(tiling.rows, tiling.keys)
        last = [(tile_count(n, step) - 1) * step for n, step in ((rows, least), (keys, tiling.keys))]
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


def marks(program: Program, count: int, like: Tensor, tape: Tape) -> tuple[Tensor, ...]:
    """An array in which so many programs or rows say whether their sums are not finite, where that is asked."""
    return (tape.keep(like.new_empty(count)),) if program.again else ()


def strides_in_eights(*matrices: Tensor) -> list[int]:
    """The strides of all axes but the last, where elements lie side by side, in eights."""
    return [stride // 8 for matrix in matrices for stride in matrix.stride()[:-1]]


def all_strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()]


def aligned(tensor: Tensor) -> Tensor:
    """The matrices, each row in one piece from a multiple of 16 bytes on, with zeros up to the width of a tile: as they
    are, or a copy."""
    a, b, c, last = tensor.stride()
    width = tensor.shape[-1]
    padded = tile_width(width)
    if width == padded and last == 1 and not (a | b | c) & 7 and not tensor.data_ptr() & 15:
        return tensor
    whole = tensor.new_empty((*tensor.shape[:-1], padded))
    whole[..., width:] = 0.0
    return whole[..., :width].copy_(tensor)
