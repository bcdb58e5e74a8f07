"""Attention by Triton kernels that a program brings: the result, and the operator of PyTorch that they make.

Memory is linear in queries and keys. This text needs PyTorch and Triton and nothing else.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .torch_operator import differentiable, is_plain, row_totals
from .triton_gradients import empty_like, fitted, launch_backward, summed
from .triton_operands import (
    Operands,
    Program,
    all_strides,
    marks,
    meeting_tiles,
    settings_for,
    strides_in_eights,
    tile_count,
    with_banks,
)
from .triton_tape import Tape, Tapes


def _attend_by_kernels(
    program: Program, given: Operands, tape: Tape, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """The result (batch, head, row, width), and the logarithm to base 2 of every row's total weight; +inf of none."""
    batch, heads, rows, keys = given.shape
    out = tape.keep(_result(given.queries[0], given.value, dtype))
    total = tape.keep(torch.empty((batch, heads, rows), dtype=torch.float32, device=out.device))
    if out.numel() == 0 or keys == 0:
        tape.is_whole = False
        return out.zero_(), total.fill_(math.inf)
    tiling = given.tilings[0]
    ((table, steps),) = meeting_tiles(program, given, [(tiling, False)], tape)
    arrays, strides = with_banks(program, given, tiling, False, tape)
    programs = batch * heads * tile_count(rows, tiling.rows)
    odd = marks(program, programs * tiling.rows, total, tape)
    arguments = (
        *(*given.queries, *given.keys, given.value, out, total, *odd, *arrays, *table),
        *strides_in_eights(*given.queries, *given.keys, given.value),
        *all_strides(out),
        *strides,
        *(*steps, heads, rows, keys, *given.numbers),
    )
    constants = given.constants(tiling)
    tape.launch(program.forward, (programs,), arguments, constants, *tiling[2:])
    if odd:
        tape.launch(program.again[0], (tile_count(programs, 16),), (*arguments, programs), constants, 4, 1)
    tape.run()
    return out, total


def _result(query: Tensor, value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """An array for the result, laid out in memory as the queries are, and of their dtype unless one is given."""
    width, strides = value.shape[-1], query.stride()
    if width == query.shape[-1] and width % 8 == 0 and query.is_contiguous():
        return torch.empty_like(query, dtype=dtype)
    order = sorted(range(3), key=lambda axis: -strides[axis]) if 0 not in strides else [0, 1, 2]
    shape = [query.shape[axis] for axis in order]
    whole = query.new_empty((*shape, (width + 7) // 8 * 8), dtype=dtype)
    whole = whole.permute(*(order.index(axis) for axis in range(3)), 3)
    return whole if whole.shape[-1] == width else whole[..., :width]


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
    along: tuple[str, ...] = (),
    dtype: torch.dtype | None = None,
) -> Callable[..., Any]:
    """Attention by these kernels, as a function of queries, keys, value, further arrays and numbers.

    A score has so many `dots`, each of a query and a key of one dtype. The result has a `dtype` of its own where one is
    given: that of a further array may be wider than those in which products are taken. With `totals` the function gives
    the logarithm of what the weights of each query are divided by, too, (batch, head, row).
    """
    kernels = forward, backward_query, backward_key, backward_table
    program = Program(*kernels, dots, levels, learned, tiled, normalised, work, again, striped, along)
    tapes, lone_tapes, backward_tapes = Tapes(), Tapes(), Tapes()

    def run(tensors: list[Tensor], wholes: list[int], reals: list[float], known: Tapes = tapes) -> tuple[Tensor, ...]:
        numbers = wholes, reals, settings_for(tensors)
        again = known.find(tensors, numbers)
        result: tuple[Tensor, ...] | None = None if again is None else again(*tensors)
        if result is None:
            tape = Tape(tensors)
            given = Operands.of(program, tensors, wholes, reals, tape)._replace(owner=forward)
            result = _attend_by_kernels(program, given, tape, dtype)
            known.add(tensors, numbers, tape, result[:1] if known is lone_tapes else result)
        return result

    def run_quickly(tensors: list[Tensor], wholes: list[int], reals: list[float]) -> Any:
        """The result of a call like a recent one, without another look at it; None where there is none."""
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or forward_ad._current_level >= 0:
            return None  # What guards do not ask for.
        numbers, recorded = (wholes, reals, settings_for(tensors)), torch.is_grad_enabled()
        if recorded:
            recent = tapes.latest(tensors, numbers)
            if recent is not None and recent.learns:
                return call.first(recent.again, numbers[:2], *tensors)
        recent = lone_tapes.latest(tensors, numbers)
        found = None if recent is None or (recorded and recent.learns) else recent.again(*tensors)
        return None if found is None else found[0]

    def fake(tensors: list[Tensor], wholes: list[int], reals: list[float]) -> tuple[Tensor, Tensor]:
        query, value = tensors[0], tensors[2 * dots]
        return _result(query, value, dtype), query.new_empty(query.shape[:3], dtype=torch.float32)

    def run_backward(
        gradients: list[Tensor | None],
        tensors: list[Tensor],
        found: list[Tensor],
        wholes: list[int],
        reals: list[float],
        needs: list[bool],
    ) -> list[Tensor]:
        gradient = torch.zeros_like(found[0]) if gradients[0] is None else gradients[0]
        gradient, unit = fitted(gradient, tensors[2 * dots].dtype)
        gain = None if gradients[1] is None else gradients[1].contiguous()
        gain = gain if gain is None or unit is None else gain / unit
        all_given = [*tensors, gradient, *found, *([] if gain is None else [gain])]
        numbers = wholes, reals, needs, settings_for(tensors)
        known = backward_tapes.find(all_given, numbers)
        result = None if known is None else known(*all_given)
        if result is None:
            tape = Tape(all_given)
            given = Operands.of(program, tensors, wholes, reals, tape)._replace(owner=forward)
            wide = None if unit is None else torch.float32
            result = launch_backward(program, (gradient, gain), given, found[0], found[1], needs, tape, wide)
            backward_tapes.add(all_given, numbers, tape, result)
        return summed(program, tensors, result, needs, unit)

    def fake_backward(gradients: list[Tensor], tensors: list[Tensor], *rest: Any) -> list[Tensor]:
        return [empty_like(x) for x, need in zip(tensors, rest[-1], strict=True) if need]

    call: Any = differentiable(name, run, run_backward, fake, fake_backward)

    def attend(tensors: list[Tensor], wholes: list[int], reals: list[float], totals: bool = False) -> Any:
        if totals:
            found = call(tensors, wholes, reals)
            return found[0], row_totals(found[1]) * math.log(2.0)
        out = run_quickly(tensors, wholes, reals)
        if out is not None:
            return out
        if not is_plain(tensors):
            return call(tensors, wholes, reals)[0]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return call.first(None, (wholes, reals), *tensors)
        return run(tensors, wholes, reals, lone_tapes)[0]

    def back(
        gradient: Tensor, tensors: Sequence[Tensor], wholes: Sequence[int] = (), reals: Sequence[float] = ()
    ) -> list[Tensor]:
        """Gradients to queries, keys and value, where `gradient` arrives, on a forward pass that is computed again."""
        needs = [place <= 2 * dots for place in range(len(tensors))]
        found = call(tensors, wholes, reals)
        back: list[Tensor] = call.backward((gradient, None), tensors, found, wholes, reals, needs)
        return back[: 2 * dots + 1]

    attend.backward = back  # type: ignore[attr-defined]
    attend.only_reads = True  # type: ignore[attr-defined]
    return attend
