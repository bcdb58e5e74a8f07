"""Arrays that are computed for some rows after the other, forward and backward: what is made on the way is there for a
block of rows alone, and made once more on the way back. This text needs PyTorch and nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .torch_operator import is_transformed

# The results of the rows from one up to another, made of arrays.
Turn = Callable[..., tuple[Tensor, ...]]


def _spans(size: int, rows: int) -> Iterator[tuple[int, int]]:
    """The blocks of rows. One where there are none: what has no rows may want a gradient."""
    for start in range(0, max(1, size), rows):
        yield start, min(start + rows, size)


def _at(tensor: Tensor, axis: int | None, span: tuple[int, int]) -> Tensor:
    """The part of a result that belongs to some rows; all of a sum over rows, which has no such axis."""
    return tensor if axis is None else tensor.narrow(axis, span[0], span[1] - span[0])


def _filled_rows(
    turn: Turn, size: int, rows: int, wholes: Sequence[Tensor], axes: Sequence[int | None], arrays: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The results of all rows, written into these arrays of zeros; sums over rows are added up."""
    for span in _spans(size, rows):
        for whole, axis, part in zip(wholes, axes, turn(*span, *arrays), strict=True):
            if axis is None:
                whole.add_(part)
            else:
                _at(whole, axis, span).copy_(part)
    return tuple(wholes)


def _joined_rows(
    turn: Turn, size: int, rows: int, wholes: Sequence[Tensor], axes: Sequence[int | None], arrays: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The same as new arrays, where all that is computed is kept."""
    parts = list(zip(*(turn(*span, *arrays) for span in _spans(size, rows)), strict=True))
    found = []
    for some, axis, whole in zip(parts, axes, wholes, strict=True):
        found.append((sum(some[1:], some[0]) if axis is None else torch.cat(some, axis)).to(whole.dtype))
    return tuple(found)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Any, *arrays: Tensor) -> tuple[Tensor, ...]:
        turn, size, rows, wholes, ctx.axes = given
        ctx.given = turn, size, rows
        ctx.save_for_backward(*arrays)
        ctx.set_materialize_grads(False)
        ctx.like = [whole.new_empty(0) for whole in wholes]
        return _filled_rows(turn, size, rows, wholes, ctx.axes, arrays)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        arrays, needs = ctx.saved_tensors, ctx.needs_input_grad[1:]
        asked = [n for n, gradient in enumerate(gradients) if gradient is not None]
        learned = [n for n, need in enumerate(needs) if need]
        found: list[Tensor | None] = [None] * len(arrays)
        if not asked:
            return None, *found
        turn, size, rows = ctx.given
        if torch.is_grad_enabled():  # To be differentiated again: all is kept.
            results = _joined_rows(turn, size, rows, ctx.like, ctx.axes, arrays)
            outputs, arriving = [results[n] for n in asked], [gradients[n] for n in asked]
            leaves = [arrays[n] for n in learned]
            parts = torch.autograd.grad(outputs, leaves, arriving, create_graph=True, allow_unused=True)
            found = _put(found, learned, parts)
            return None, *found
        for span in _spans(size, rows):
            with torch.enable_grad():
                given = [array.detach().requires_grad_(need) for array, need in zip(arrays, needs, strict=True)]
                results = turn(*span, *given)
            live = [n for n in asked if results[n].requires_grad]
            arriving = [_at(gradients[n], ctx.axes[n], span) for n in live]  # type: ignore[arg-type]
            leaves = [given[n] for n in learned]
            if live:
                parts = torch.autograd.grad([results[n] for n in live], leaves, arriving, allow_unused=True)
                found = _put(found, learned, parts)
        return None, *(None if x is None else x.to(a.dtype) for x, a in zip(found, arrays, strict=True))


def _put(found: list[Tensor | None], learned: Sequence[int], parts: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients with those of a block added to them, in at least float32."""
    for number, part in zip(learned, parts, strict=True):
        known = found[number]
        if part is not None and known is None:
            found[number] = part.to(torch.promote_types(part.dtype, torch.float32))
        elif part is not None and known is not None:
            known += part
    return found


def in_blocks(
    turn: Turn,
    arrays: Sequence[Tensor],
    size: int,
    points: int,
    wholes: Sequence[Tensor],
    axes: Sequence[int | None],
    room: int = 0,
) -> tuple[Tensor, ...]:
    """The results of `turn(first, last, *arrays)`, which has some rows, for all `size` rows of so many points:
    written into arrays of zeros, the `wholes`, along these axes; where there is none, summed. A `room` is the number of
    points of a block: then nothing is kept, however few there are."""
    keeps = not room and all(array.is_cpu for array in arrays)
    room = room or (BLOCK_POINTS if keeps else GPU_BLOCK_POINTS)
    rows = max(1, room // max(1, points))
    if torch.compiler.is_compiling() or is_transformed():  # Others read what is computed: nothing is made twice.
        return _joined_rows(turn, size, rows, wholes, axes, arrays)
    if not (torch.is_grad_enabled() and any(array.requires_grad for array in arrays)):
        return _filled_rows(turn, size, rows, wholes, axes, arrays)
    if keeps and size * points <= KEPT_POINTS:
        return _joined_rows(turn, size, rows, wholes, axes, arrays)
    found: tuple[Tensor, ...] = _Recomputed.apply((turn, size, rows, wholes, axes), *arrays)  # type: ignore[no-untyped-call]
    return found


# Of a block of rows, about: a small one leaves most of a GPU idle.
BLOCK_POINTS, GPU_BLOCK_POINTS = 1 << 20, 1 << 25
# Of all rows, on a CPU: up to so many, what a gradient reads is kept, for to make it once more costs a third.
KEPT_POINTS = 1 << 23
