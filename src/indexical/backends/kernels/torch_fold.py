"""A fold over tiles as an operator with a gradient, and how large its tiles are.

This text needs PyTorch and nothing else.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .torch_operator import differentiable, is_captured


def folded(
    name: str, rows: Callable[..., Any], back: Callable[..., None] | None, like: Callable[..., Any], outputs: int
) -> Callable[..., Sequence[Tensor]]:
    """The function `call(tensors, sizes, scalars)` that gives what `rows` gives of the same arguments.

    `like` gives empty arrays for that. `back(arriving, found, tensors, sizes, scalars, sums)` adds to the `sums` that
    are not None, each for a tensor and at least float32, where these gradients are `arriving` at what was found.
    """

    def run_backward(
        gradients: list[Tensor | None],
        tensors: list[Tensor],
        found: list[Tensor],
        sizes: list[int],
        scalars: list[float],
        needs: list[bool],
    ) -> list[Tensor]:
        assert back is not None
        arriving = [torch.zeros_like(x) if g is None else g for x, g in zip(found, gradients, strict=True)]
        sums = [_zeros(x) if need else None for x, need in zip(tensors, needs, strict=True)]
        back(arriving[:2], found, tensors, sizes, scalars, sums)
        return [part.to(x.dtype) for x, part in zip(tensors, sums, strict=True) if part is not None]

    def fake_backward(_: Any, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
        return [x.new_empty(x.shape) for x, need in zip(tensors, rest[-1], strict=True) if need]

    return differentiable(name, rows, run_backward, like, fake_backward, outputs)


def _zeros(x: Tensor) -> Tensor:
    """Zeros to add a gradient up in."""
    return torch.zeros(x.shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)


def number_of(x: Tensor, otherwise: int) -> int:
    """The number in an array, or another one where nobody may look at it."""
    return otherwise if is_captured(x) else int(x)


def tile_of(x: Tensor) -> tuple[int, int]:
    """The pairs of a tile over all batches, about, and its keys: it stays in the caches with what is computed from it.
    """
    return (max(2, min(torch.get_num_threads(), 16)) << 16, 128) if x.device.type == "cpu" else (1 << 24, 4096)
