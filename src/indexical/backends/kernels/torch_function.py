"""Loops over tiles as one function with a gradient. This text needs PyTorch and nothing else."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def folded(
    name: str, rows: Callable[..., Any], back: Callable[..., None] | None, like: Callable[..., Any], outputs: int
) -> Callable[..., Sequence[Tensor]]:
    """The function `call(tensors, sizes, scalars)` that gives what `rows` gives of the same arguments.

    `back(arriving, found, tensors, sizes, scalars, sums)` adds to the `sums` that are not None, each for a tensor,
    where these gradients are `arriving` at what was found.
    """

    class Folded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, sizes: Any, scalars: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
            found = rows(tensors, sizes, scalars)
            ctx.numbers = sizes, scalars
            ctx.save_for_backward(*tensors, *found)
            return tuple(found)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *arriving: Tensor) -> tuple[Any, ...]:
            tensors, found = ctx.saved_tensors[:-outputs], ctx.saved_tensors[-outputs:]
            sums = [
                torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32)) if need else None
                for x, need in zip(tensors, ctx.needs_input_grad[2:], strict=True)
            ]
            if back is not None:
                back(arriving[:2], found, tensors, *ctx.numbers, sums)
            given = (None if part is None else part.to(x.dtype) for x, part in zip(tensors, sums, strict=True))
            return None, None, *given

    def call(tensors: Sequence[Tensor], sizes: Sequence[int], scalars: Sequence[float]) -> Sequence[Tensor]:
        given: tuple[Tensor, ...] = Folded.apply(sizes, scalars, *tensors)  # type: ignore[no-untyped-call]
        return given

    return call
