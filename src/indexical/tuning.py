"""Kernels for a GPU, tuned for a program and arrays like those it will be called with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from .api import Program, compile
from .diagnostics import CallError, Diagnostic
from .run.tuning import Tuned, choices_in_use, is_off, tune_kernels

# What takes longer than so many seconds says what it is doing.
_PATIENCE = 1.0


def tune(
    program: Program | str | os.PathLike[str],
    /,
    *arrays: Any,
    outputs: str | Iterable[str] | None = None,
    **named: Any,
) -> tuple[Tuned, ...]:
    """Try other sizes of tiles for the Triton kernels of a call with these arrays, and keep the fastest.

    A kernel has one configuration that is always tried first; here at most three others are, and one that is not faster
    by some percent, that fails or that gives other numbers is not taken. Where an array requires a gradient, so are
    those of the way back. What is found is kept in the folder of emitted texts (`ix cache`), by the kernel, its dtype
    and widths, the device and the versions of Triton and PyTorch, and used by all calls like it, in later processes
    too. What takes seconds says on stderr what it is doing.

    The answer has one line for each kernel, and none where the call launches no such kernel. Under `IX_TUNE=0` nothing
    is tried and what was kept is not used. Where there is no GPU this is an error.
    """
    if is_off():
        print("ix.tune: nothing is tried, since IX_TUNE=0", file=sys.stderr)
        return ()
    known = program if isinstance(program, Program) else compile(program)
    given = known.arguments(arrays, named)
    if not any(getattr(array, "is_cuda", False) for array in given.values()):
        help = "pass PyTorch's arrays on a GPU; elsewhere there is nothing to tune"
        raise CallError([Diagnostic("IX515", "`ix.tune` times kernels on a GPU, and no array is on one", help=help)])
    import torch

    tensors = [array for array in given.values() if torch.is_tensor(array)]
    learned = [array for array in tensors if array.requires_grad]
    results: list[Any] = []

    def forward() -> list[Any]:
        found = known(**given, outputs=outputs)
        results[:] = [x for x in ([found] if torch.is_tensor(found) else found) if x.is_floating_point()]
        return [x.detach() for x in results]

    def backward() -> list[Any]:
        flowing = [x for x in results if x.requires_grad]
        ones = [torch.ones_like(x) for x in flowing]
        found: tuple[Any, ...] = torch.autograd.grad(flowing, learned, ones, retain_graph=True, allow_unused=True)
        return [x for x in found if x is not None]

    forward()  # It loads the kernels, which know then where choices are kept.
    choices = choices_in_use()
    assert choices is not None
    way_back = backward if any(x.requires_grad for x in results) else None
    return tuple(tune_kernels(choices, forward, way_back, _seconds, _saying()))


def _seconds(run: Callable[[], Any]) -> float:
    """The median of the seconds of some runs on the device: as many as take a tenth of a second, and at least five."""
    import torch

    times: list[float] = []
    while len(times) < 5 or (sum(times) < 0.1 and len(times) < 50):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[len(times) // 2]


def _saying() -> Callable[[str], None]:
    """A function that says what is done next, once it has taken longer than one waits without a word."""
    began = time.monotonic()

    def say(what: str) -> None:
        passed = time.monotonic() - began
        if passed > _PATIENCE:
            print(f"ix.tune: {passed:.0f} s, {what}", file=sys.stderr, flush=True)

    return say
