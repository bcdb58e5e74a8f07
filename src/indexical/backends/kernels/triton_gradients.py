"""The gradients of an attention by Triton kernels that a program brings: to queries, to keys and values, to arrays.

Each is computed by a kernel of its own, without atomics, so that the same numbers come out each time. This text needs
PyTorch and Triton and nothing else.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .triton_operands import (
    Operands,
    Program,
    aligned,
    all_strides,
    is_banked,
    marks,
    meeting_tiles,
    strides_in_eights,
    tile_count,
    tile_width,
    with_banks,
)
from .triton_tables import diagonals_kernel, distance_kernel, level_kernel, place_kernel, strips_kernel
from .triton_tape import Tape


def launch_backward(
    program: Program,
    flowing: tuple[Tensor, Tensor | None],
    given: Operands,
    out: Tensor,
    total: Tensor,
    needs: Sequence[bool],
    tape: Tape,
    dtype: torch.dtype | None = None,
) -> list[Tensor]:
    """The gradients of queries, keys, value and arrays, in this order, and what those of arrays are summed from. What
    flows back comes from the result, and from the totals or None. The first three have this `dtype`, or their own."""
    batch, heads, rows, keys = given.shape
    count = len(given.queries)
    found = [tape.keep(x.new_empty(x.shape, dtype=dtype)) for x in (*given.queries, *given.keys, given.value)]
    row_tiles = tile_count(rows, given.tilings[1].rows)
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
    Backward.of(program, flowing, given, out, total, needs, found, tape).launch()
    return found


def fitted(gradient: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """What flows back in the dtype of the values, with which it is multiplied, and the unit that it is counted in, or
    None. Of wider numbers float16 would lose small ones: the largest is at most a unit, which is a power of 2."""
    if dtype != torch.float16 or gradient.dtype == dtype or gradient.numel() == 0:
        return gradient.to(dtype), None
    largest = gradient.abs().amax()
    unit = torch.exp2(torch.ceil(torch.log2(largest)))
    unit = torch.where((largest > 0) & unit.isfinite(), unit, 1.0)
    return (gradient / unit).to(dtype), unit


def summed(
    program: Program, tensors: Sequence[Tensor], found: Sequence[Tensor], needs: Sequence[bool], unit: Tensor | None
) -> list[Tensor]:
    """The gradients that are needed: of queries, keys, value and arrays, in this order. They are counted in a unit."""
    result = list(itertools.compress(found, needs))
    first = 2 * program.dots + 1
    at = sum(needs[:first])
    if unit is not None:
        matrices = itertools.compress(tensors[:first], needs)
        result = [part * unit for part in result]
        result[:at] = [part.to(one.dtype) for part, one in zip(result, matrices, strict=False)]
    for n, level in enumerate(program.levels):
        if needs[first + n]:
            axes = [axis for axis in (0, 1) if "bh"[axis] not in (program.along[n] if program.along else "bh")]
            axes += [2] if level == "" else []
            part = result[at].sum(axes) if axes else result[at]
            result[at], at = part.to(tensors[first + n].dtype), at + 1
    return result


def empty_like(tensor: Tensor) -> Tensor:
    """An array for a gradient."""
    return tensor.new_empty(tensor.shape)


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
        apart = max(0, high - low + tiling.rows + tiling.keys - 2)  # Below 0 where no query meets a key.
        slots = min(tile_count(keys, tiling.keys), apart // tiling.keys + 1)
        parts = tile_count(rows, tiling.rows) * (tiling.rows // tiling.strip)
        size = parts * slots * (tiling.keys + tiling.strip)
        if not program.striped or not tables or not size:
            return cls(0, 0, 0)
        known = sum(x.numel() * x.itemsize for x in (*given.queries, *given.keys, given.value))
        most = int(_STRIPS * known) // (4 * size * tables)
        # Not the last few alone.
        return cls(tile_count(batch * heads, tile_count(batch * heads, most)) if most else 0, slots, size)


class Wanted(NamedTuple):
    """An array of the score that has a gradient: where a kernel writes it, whether it is needed, along which axes of a
    tile it varies."""

    target: Tensor
    is_needed: bool
    level: str


class Backward(NamedTuple):
    """The way back through one attention. `operands` are the arrays that all its kernels read, `numbers` what they are
    told besides; `found` are the gradients of queries, keys and value. Of arrays, some gradients come from the kernel
    `of_query`, some from the one `of_key`, and those `of_table` from `sums` over each distance of a query from a key,
    which are added up from `strips` or by a kernel of their own."""

    program: Program
    given: Operands
    tape: Tape
    flowing: tuple[Tensor, Tensor | None]
    out: Tensor
    total: Tensor
    operands: tuple[Tensor, ...]
    eights: Sequence[int]
    numbers: tuple[float, ...]
    needs: Sequence[bool]
    found: Sequence[Tensor]
    of_query: Sequence[Wanted]
    of_key: Sequence[Wanted]
    of_table: Sequence[Wanted]
    sums: Sequence[Tensor]
    strips: Strips

    @classmethod
    def of(
        cls,
        program: Program,
        flowing: tuple[Tensor, Tensor | None],
        given: Operands,
        out: Tensor,
        total: Tensor,
        needs: Sequence[bool],
        found: Sequence[Tensor],
        tape: Tape,
    ) -> "Backward":
        batch, heads, rows, keys = given.shape
        count, (gradient, gain) = 2 * len(given.queries) + 1, flowing
        gradient = aligned(gradient)
        even = (batch, heads, tile_count(rows, 2) * 2)
        levels = [tape.keep(total.new_empty(even, dtype=torch.int64))] if program.normalised else []
        learned = itertools.compress(zip(found[count:], needs[count:], program.levels, strict=False), program.learned)
        wanted = [Wanted(*each) for each in learned]
        of_table = [each for each in wanted if is_banked(each.level, True)]
        matrices = (*given.queries, *given.keys, given.value, gradient)
        size = (batch * heads, rows + keys - 1)
        return cls(
            program,
            given,
            tape,
            (gradient, gain),
            out,
            total,
            (*matrices, *levels),
            strides_in_eights(*matrices),
            (heads, rows, keys, *given.numbers),
            needs[:count],
            found[:count],
            [each for each in wanted if each.level in ("", "row", "rowkey")],
            [each for each in wanted if each.level == "key"],
            of_table,
            [tape.keep(total.new_empty(size)) if each.is_needed else total for each in of_table],
            Strips.of(program, given, sum(each.is_needed for each in of_table)),
        )

    def launch(self) -> None:
        """Launch all kernels that are needed."""
        count, strips = len(self.given.queries), self.strips
        by_query = [*self.needs[:count], *(each.is_needed for each in self.of_query)]
        by_key = [*self.needs[count:], *(each.is_needed for each in self.of_key)]
        by_table = [each.is_needed for each in self.of_table]
        if self.program.striped:
            by_query += [need and strips.heads > 0 for need in by_table]
        asked = any(by_query), any(by_key), not strips.heads and any(by_table)
        tilings = (*self.given.tilings[1:], self.given.table_tiling)
        sides = [(tiling, n == 1) for n, tiling in enumerate(tilings)]
        tables = iter(meeting_tiles(self.program, self.given, list(itertools.compress(sides, asked)), self.tape))
        if asked[0]:
            self.to_queries(by_query, next(tables))
        elif self.program.normalised:  # The kernel for queries would have made it.
            self.make_levels()
        if asked[1]:
            self.to_keys(by_key, next(tables))
        if asked[2]:
            self.sum_tables(by_table, next(tables))
        self.to_places()
        self.tape.run()

    def make_levels(self) -> None:
        """Launch the kernel of what is known of rows: their totals, and what their cotangents are reduced by."""
        _, heads, rows, _ = self.given.shape
        width, (gradient, gain) = self.given.value.shape[-1], self.flowing
        grid = (self.total.numel() // rows * tile_count(rows, 64),)
        arguments: tuple[Any, ...] = (self.out, gradient, self.operands[-1], self.total, gain)
        arguments += (*all_strides(self.out, gradient), heads, rows)
        self.tape.launch(level_kernel, grid, arguments, (width, tile_width(width), 64), 4, 1)

    def to_queries(self, wanted: Sequence[bool], table: tuple[tuple[Tensor, ...], list[int]]) -> None:
        """Launch the kernel for queries, and for arrays that vary with them."""
        program, given, tape = self.program, self.given, self.tape
        batch, heads, rows, _ = given.shape
        tiling, count = given.tilings[1], len(given.queries)
        tiles = tile_count(rows, tiling.rows)
        programs = batch * heads * tiles
        constants = (*given.constants(tiling), *wanted)
        arrays, strides = with_banks(program, given, tiling, False, tape)
        outs = (self.total, self.out, self.flowing[1]) if program.normalised else ()
        apart = all_strides(self.out) if program.normalised else []
        odd = marks(program, programs * tiling.rows, self.total, tape)
        targets = [*self.found[:count], *(each.target for each in self.of_query)]
        more: tuple[int, ...] = ()
        parts: list[Tensor] = []
        if program.striped:
            room = self.strips.heads * self.strips.size
            span = tape.keep(self.total.new_empty((programs, 2), dtype=torch.int32))
            needs = [each.is_needed and room > 0 for each in self.of_table]
            parts = [tape.keep(self.total.new_empty(room)) if need else self.total for need in needs]
            targets += [span, *parts]
            constants, more = (*constants, tiling.strip), (given.ahead[0], self.strips.slots, 0)
        arguments: tuple[Any, ...] = (*self.operands, *outs, *odd, *arrays, *table[0], *targets, *self.eights, *apart)
        arguments += (*strides, *table[1], *all_strides(*self.found[:count]), *self.numbers, *more)
        if not self.strips.heads:
            tape.launch(program.backward_query, (programs,), arguments, constants, *tiling[2:])
        for first in range(0, batch * heads, self.strips.heads) if self.strips.heads else ():
            own = min(self.strips.heads, batch * heads - first)
            now = (*arguments[:-1], first * tiles)
            tape.launch(program.backward_query, (own * tiles,), now, constants, *tiling[2:])
            self.sum_strips(parts, span, first, own)
        if odd and any(self.needs[:count]):
            tape.launch(program.again[1], (tile_count(programs, 16),), (*arguments, programs), constants, 4, 1)

    def sum_strips(self, parts: Sequence[Tensor], span: Tensor, first: int, own: int) -> None:
        """Launch the kernel that adds up the sums of the diagonals of tiles, of some heads from the `first` on."""
        _, _, rows, keys = self.given.shape
        tiling = self.given.tilings[1]
        grid = (own * (tile_count(rows - 1, tiling.strip) + tile_count(keys, tiling.strip)),)
        for part, sums, each in zip(parts, self.sums, self.of_table, strict=True):
            if each.is_needed:
                arguments = (part, span, sums, rows, keys, self.given.ahead[0], self.strips.slots, first)
                self.tape.launch(strips_kernel, grid, arguments, (*tiling[:2], tiling.strip, 32), 4, 1)

    def to_keys(self, wanted: Sequence[bool], table: tuple[tuple[Tensor, ...], list[int]]) -> None:
        """Launch the kernel for keys and values, and for arrays that vary with them."""
        program, given, tape = self.program, self.given, self.tape
        tiling, count = given.tilings[2], len(given.queries)
        batch, shared, keys, _ = given.value.shape
        programs = batch * shared * tile_count(keys, tiling.keys)
        constants = (*given.constants(tiling), *wanted)
        arrays, strides = with_banks(program, given, tiling, True, tape)
        odd = marks(program, programs * tiling.keys, self.total, tape)
        targets = (*self.found[count:], *(each.target for each in self.of_key))
        arguments = (*self.operands, *odd, *arrays, *table[0], *targets, *self.eights, *strides, *table[1])
        arguments += (*all_strides(*self.found[count:]), *self.numbers)
        tape.launch(program.backward_key, (programs,), arguments, constants, *tiling[2:])
        if odd and any(self.needs[count:]):
            tape.launch(program.again[2], (tile_count(programs, 16),), (*arguments, programs), constants, 4, 1)

    def sum_tables(self, wanted: Sequence[bool], table: tuple[tuple[Tensor, ...], list[int]]) -> None:
        """Launch the kernel that computes scores once more for the sums of tables, and the one that adds these up."""
        program, given, tape = self.program, self.given, self.tape
        batch, heads, rows, keys = given.shape
        tiling = given.table_tiling
        diagonals, top = _diagonals(given)
        programs = batch * heads * diagonals
        arrays, strides = with_banks(program, given, tiling, False, tape)
        shape = (programs, tiling.rows + tiling.keys)
        parts = [tape.keep(self.total.new_empty(shape)) if need else self.total for need in wanted]
        odd = marks(program, programs, self.total, tape)
        arguments = (*self.operands, *odd, *arrays, *table[0], *parts, *self.eights, *strides, *table[1])
        arguments += (*self.numbers, diagonals, top)
        for again in (False, True) if odd else (False,):
            constants = (*given.constants(tiling), *wanted, again)
            tape.launch(program.backward_table, (programs,), arguments, constants, *tiling[2:])
        grid = (batch * heads * tile_count(rows + keys - 1, 256),)
        for part, sums, need in zip(parts, self.sums, wanted, strict=True):
            if need:
                tape.launch(diagonals_kernel, grid, (part, sums, rows, keys, diagonals, top), (*tiling[:2], 256), 4, 1)

    def to_places(self) -> None:
        """Launch the kernels that add up the sums of distances by the place of a table at which each is read."""
        batch, heads, rows, keys = self.given.shape
        for (target, need, level), sums, (at, *rule) in zip(self.of_table, self.sums, self.given.places, strict=True):
            arguments = (sums, at, target, rows, keys, target.shape[2], *rule) if need else ()
            if need and level == "distances":
                grid = (batch * heads * tile_count(rows + keys - 1, 256),)
                self.tape.launch(distance_kernel, grid, arguments, (256,), 4, 1)
            elif need:
                grid = (batch * heads * tile_count(target.shape[2], 16),)
                self.tape.launch(place_kernel, grid, arguments, (16, 1024, 256), 4, 1)


def _diagonals(given: Operands) -> tuple[int, int]:
    """The number of programs that sum diagonals of tiles, and the highest one on which there are pairs, counted from
    the one of equal places."""
    low, high = given.ahead
    _, _, rows, keys = given.shape
    tiling = given.table_tiling
    step = tiling.keys
    top = min(tile_count(high, step), tile_count(keys, step) - 1)
    lowest = max(low // step, 1 - tile_count(rows, step))
    return max(0, tile_count(top - lowest + 1, tiling.rows // step)), top
