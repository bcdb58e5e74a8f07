"""Causal products of two sides in linear time, by Triton kernels: `torch_chunks` has what they compute.

Two kernels do all of it. One carries the state from chunk to chunk, forward or backward. The other adds, for the rows
of a chunk, their product with the state to a product under a mask within the chunk: that is the result, and each of
its gradients, with other operands. This text needs PyTorch and Triton and nothing else.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from . import triton_jit as triton
from .torch_operator import differentiable
from .triton_tape import Tape, Tapes
from .triton_tile import INTERPRETED, far, zero_of

# The most columns of a tile.
COLUMNS = 128


@triton.jit(do_not_specialize=["chunks"])  # type: ignore[untyped-decorator]
def chunk_states_kernel(  # type: ignore[no-untyped-def]
    x_ptr, z_ptr, level_ptr, state_ptr, other_ptr, met_ptr, chunks,
    WIDTH: tl.constexpr, CARRIED: tl.constexpr, LENGTH: tl.constexpr, STEP: tl.constexpr, CARRIED_STEP: tl.constexpr,
    DECAYS: tl.constexpr, BACKWARD: tl.constexpr, MEETS: tl.constexpr,
):
    """The state before each chunk, or behind it on the way back: the sum of `x[j] * z[j]` that decays from chunk to
    chunk. Where it `MEETS` the other state at the end of a chunk, also the sum of their product."""
    blocks = tl.cdiv(CARRIED, CARRIED_STEP)
    parts = tl.cdiv(WIDTH, STEP) * blocks
    lead, part = tl.program_id(0) // parts, tl.program_id(0) % parts
    places = tl.arange(0, LENGTH)
    columns = (part // blocks) * STEP + tl.arange(0, STEP)
    carried = (part % blocks) * CARRIED_STEP + tl.arange(0, CARRIED_STEP)
    there = (columns < WIDTH)[:, None] & (carried < CARRIED)[None, :]
    of_state = columns[:, None] * CARRIED + carried[None, :]
    state = tl.zeros((STEP, CARRIED_STEP), tl.float32)
    for turn in tl.range(0, chunks):
        n = far(lead, chunks) + (chunks - 1 - turn if BACKWARD else turn)
        tl.store(state_ptr + n * (WIDTH * CARRIED) + of_state, state, mask=there)
        if MEETS:
            met = tl.load(other_ptr + (n + 1) * (WIDTH * CARRIED) + of_state, mask=there & (turn > 0), other=0.0)
            tl.store(met_ptr + n * parts + part, tl.sum(tl.sum(met * state, 1), 0))
        rows = n * LENGTH + places
        x = tl.load(x_ptr + rows[:, None] * WIDTH + columns[None, :], mask=(columns < WIDTH)[None, :], other=0.0)
        z = tl.load(z_ptr + rows[:, None] * CARRIED + carried[None, :], mask=(carried < CARRIED)[None, :], other=0.0)
        if DECAYS:
            level, last = tl.load(level_ptr + rows), tl.load(level_ptr + n * LENGTH + LENGTH - 1)
            fade = tl.exp(level if BACKWARD else last - level)
            x = (x * fade[:, None]).to(x.dtype)
            state *= tl.exp(last)
        state = tl.dot(tl.trans(x), z, state, input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]
def chunk_rows_kernel(  # type: ignore[no-untyped-def]
    x_ptr, y_ptr, z_ptr, level_ptr, state_ptr, out_ptr, own_ptr, sum_ptr, state_row, state_column,
    WIDTH: tl.constexpr, CARRIED: tl.constexpr, LENGTH: tl.constexpr, STEP: tl.constexpr, CARRIED_STEP: tl.constexpr,
    DECAYS: tl.constexpr, STRICT: tl.constexpr, BACKWARD: tl.constexpr, SUMS: tl.constexpr,
):
    """For each row of a chunk the sum over earlier ones of it (later ones on the way back) of `(x[row] · y[other]) *
    decay * z[other]`, and its product with the state. With `SUMS` also its sum with a row that is its `own`."""
    blocks = tl.cdiv(CARRIED, CARRIED_STEP)
    n, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    places = tl.arange(0, LENGTH)
    rows = n * LENGTH + places
    carried = block * CARRIED_STEP + tl.arange(0, CARRIED_STEP)
    of_tile = rows[:, None] * CARRIED + carried[None, :]
    scores = tl.zeros((LENGTH, LENGTH), tl.float32)
    acc = tl.zeros((LENGTH, CARRIED_STEP), tl.float32)
    for first in tl.static_range(0, WIDTH, STEP):
        columns = first + tl.arange(0, STEP)
        of_side, is_column = rows[:, None] * WIDTH + columns[None, :], (columns < WIDTH)[None, :]
        x = tl.load(x_ptr + of_side, mask=is_column, other=0.0)
        y = tl.load(y_ptr + of_side, mask=is_column, other=0.0)
        scores = tl.dot(x, tl.trans(y), scores, input_precision="ieee")
        of_state = n * (WIDTH * CARRIED) + columns[:, None] * state_row + carried[None, :] * state_column
        there = (columns < WIDTH)[:, None] & (carried < CARRIED)[None, :]
        acc = tl.dot(x, tl.load(state_ptr + of_state, mask=there, other=0.0), acc, input_precision="ieee")
    apart = places[None, :] - places[:, None] if BACKWARD else places[:, None] - places[None, :]
    heard = apart > 0 if STRICT else apart >= 0
    if DECAYS:
        level, last = tl.load(level_ptr + rows), tl.load(level_ptr + n * LENGTH + LENGTH - 1)
        acc *= tl.exp(last - level if BACKWARD else level)[:, None]
        steps = level[None, :] - level[:, None] if BACKWARD else level[:, None] - level[None, :]
        scores *= tl.exp(tl.where(heard, steps, float("-inf")))
    z = tl.load(z_ptr + of_tile, mask=(carried < CARRIED)[None, :], other=0.0)
    scores = tl.where(heard, scores, 0.0)
    inside = tl.dot(scores.to(z.dtype), z, input_precision="ieee")
    if zero_of(inside) != 0.0:  # 0 times NaN is NaN, and would reach those who may not hear it.
        inside = tl.zeros((LENGTH, CARRIED_STEP), tl.float32)
        for other in tl.range(0, LENGTH):
            score = tl.sum(tl.where(places[None, :] == other, scores, 0.0), 1)
            hears = tl.sum(((places[None, :] == other) & heard).to(tl.int32), 1) > 0
            one = tl.load(z_ptr + (n * LENGTH + other) * CARRIED + carried, mask=carried < CARRIED, other=0.0)
            inside += tl.where(hears[:, None], score[:, None] * one.to(tl.float32)[None, :], 0.0)
    acc += inside
    tl.store(out_ptr + of_tile, acc, mask=(carried < CARRIED)[None, :])
    if SUMS:
        own = tl.load(own_ptr + of_tile, mask=(carried < CARRIED)[None, :], other=0.0)
        tl.store(sum_ptr + rows * blocks + block, tl.sum(acc * own, 1))


# ------------------------------------------------------------------------------------------------------- launching


def _chunk_step(width: int, most: int, itemsize: int) -> int:
    """The columns of a tile of a side so wide: for matrix units of 16 bits at least 64. From a narrower one Triton 3.6
    made code that read outside of arrays."""
    return min(most, max(64 if itemsize == 2 and not INTERPRETED else 16, 1 << (width - 1).bit_length()))


class Products:
    """The launches of one call, for queries, keys and values (lead, chunks, length, width), all in one piece."""

    def __init__(self, tensors: Sequence[Tensor], strict: bool, tape: Tape) -> None:
        self.query, self.key, self.value, *levels = tensors
        self.level = levels[0] if levels else None
        self.strict, self.tape = strict, tape

    def states(self, x: Tensor, z: Tensor, backward: bool = False, other: Tensor | None = None) -> list[Tensor]:
        """The state before each chunk, or behind it; and where it meets the `other` one, the parts of their sums."""
        lead, chunks, length, width = x.shape
        carried = z.shape[-1]
        steps = [_chunk_step(side, COLUMNS // 2, x.itemsize) for side in (width, carried)]
        parts = -(-width // steps[0]) * -(-carried // steps[1])
        made = [self.tape.keep(x.new_empty((lead, chunks, width, carried)))]
        if other is not None:
            made.append(self.tape.keep(x.new_empty((lead, chunks, parts), dtype=torch.float32)))
        arguments = (x, z, self.level, made[0], other, made[1] if other is not None else None, chunks)
        constants = (width, carried, length, *steps, self.level is not None, backward, other is not None)
        self.tape.launch(chunk_states_kernel, (lead * parts,), arguments, constants, 4, 3)
        return made

    def rows(
        self, x: Tensor, y: Tensor, z: Tensor, state: Tensor, backward: bool, turned: bool, own: Tensor | None = None
    ) -> list[Tensor]:
        """The sums of each row; and where it has one of its `own`, the parts of its sums with that."""
        lead, chunks, length, width = x.shape
        carried = z.shape[-1]
        steps = [_chunk_step(side, COLUMNS, x.itemsize) for side in (width, carried)]
        blocks = -(-carried // steps[1])
        made = [self.tape.keep(torch.empty_like(z))]
        if own is not None:
            made.append(self.tape.keep(x.new_empty((lead, chunks, length, blocks), dtype=torch.float32)))
        places = (1, width) if turned else (carried, 1)
        arguments = (x, y, z, self.level, state, made[0], own, made[1] if own is not None else None, *places)
        constants = (width, carried, length, *steps, self.level is not None, self.strict, backward, own is not None)
        self.tape.launch(chunk_rows_kernel, (lead * chunks * blocks,), arguments, constants, 4, 1)
        return made

    def forward(self) -> list[Tensor]:
        (state,) = self.states(self.key, self.value)
        made = self.rows(self.query, self.key, self.value, state, False, False)
        self.tape.run()
        return made

    def backward(self, given: Tensor, needs: Sequence[bool]) -> list[Tensor]:
        """The gradients to queries, keys and values that are needed, and the parts of that to levels."""
        query, key, value = self.query, self.key, self.value
        to_level = any(needs[3:])
        made: list[Tensor] = []
        sums: list[Tensor] = []
        if needs[0] or to_level:
            (state,) = self.states(key, value)
            found = self.rows(given, value, key, state, False, True, query if to_level else None)
            made, sums = found[:1] if needs[0] else [], found[1:]
        if any(needs[1:]):
            back, *met = self.states(query, given, True, state if to_level else None)
            if needs[1] or to_level:
                found = self.rows(value, given, query, back, True, True, key if to_level else None)
                made, sums = made + (found[:1] if needs[1] else []), [*sums, *found[1:], *met]
            if needs[2]:
                made += self.rows(key, query, given, back, True, False)
        self.tape.run()
        return [*made, *sums]


_tapes, _backward_tapes = Tapes(), Tapes()


def _run_products(tensors: list[Tensor], wholes: Sequence[int], *_: Any) -> Sequence[Tensor]:
    numbers = tuple(wholes)
    known = _tapes.find(tensors, numbers)
    again = None if known is None else known(*tensors)
    if again is not None:
        return again  # type: ignore[no-any-return]
    tape = Tape(tensors)
    made = Products(tensors, bool(wholes[0]), tape).forward()
    _tapes.add(tensors, numbers, tape, made)
    return made


def _run_products_backward(
    gradients: list[Tensor], tensors: list[Tensor], found: list[Tensor], wholes: Sequence[int], *rest: Any
) -> list[Tensor]:
    needs = rest[-1]
    given = [*tensors, gradients[0].contiguous()]
    numbers = (*wholes, *needs)
    known = _backward_tapes.find(given, numbers)
    made = None if known is None else known(*given)
    if made is None:
        tape = Tape(given)
        made = Products(tensors, bool(wholes[0]), tape).backward(given[-1], needs)
        _backward_tapes.add(given, numbers, tape, made)
    if not any(needs[3:]):
        return list(made)
    *made, of_query, of_key, met = made
    to_level = of_query.sum(-1) - of_key.sum(-1)
    to_level[..., -1] += met.sum(-1)
    return [*made, to_level[..., None]]


def _fake_products(tensors: list[Tensor], *_: Any) -> Sequence[Tensor]:
    return (torch.empty_like(tensors[2]),)


def _fake_products_backward(_: Any, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor, need in zip(tensors, rest[-1], strict=True) if need]


_products = differentiable(
    "chunk_kernels", _run_products, _run_products_backward, _fake_products, _fake_products_backward, 1
)


def chunk_kernels(parts: Sequence[Tensor], level: Tensor | None, strict: bool) -> Tensor:
    """The result of chunks (lead, chunks, length, width), and of levels (lead, chunks, length, 1) or none."""
    tensors = [part.to(parts[2].dtype).contiguous() for part in parts]
    return _products(tensors if level is None else [*tensors, level.contiguous()], (int(strict),))[0]
