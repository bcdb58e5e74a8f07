"""Triton kernels as Triton itself launches them, each when its turn comes.

This text needs PyTorch and Triton and nothing else.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def launch(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    constants: tuple[Any, ...] = (),
    warps: int = 4,
    stages: int = 2,
    registers: int = 0,
) -> None:
    """Run `kernel` for each point of a grid, unless it has none, with its arguments and then its constants, and with at
    most so many registers for a thread, unless that is 0."""
    if 0 not in grid:
        how = {"num_warps": warps, "num_stages": stages, **({"maxnreg": registers} if registers else {})}
        with torch.cuda.device_of(next(x for x in arguments if isinstance(x, Tensor))):  # type: ignore[no-untyped-call]
            kernel[tuple(grid)](*arguments, *constants, **how)


class Tape:
    """The launches of a call."""

    is_whole = False

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        pass

    def keep(self, tensor: Tensor, zero: bool = False) -> Tensor:
        return tensor

    def view(self, view: Tensor, of: Tensor) -> Tensor:
        return view

    def launch(self, *what: Any) -> None:
        launch(*what)

    def run(self) -> None:
        pass

    def record(self, launched: Any) -> None:
        pass


class Tapes:
    """No launches are recorded, to be repeated."""

    def latest(self, tensors: Sequence[Tensor], numbers: Any) -> None:
        return None

    def find(self, tensors: Sequence[Tensor], numbers: Any) -> None:
        return None

    def add(self, *what: Any) -> None:
        pass
