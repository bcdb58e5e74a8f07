"""A driver that only writes down what it is asked to launch, and kernels to launch by it."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from indexical.run.kernel import load

KERNELS = """
import triton
import triton.language as tl
from indexical.backends.kernels.triton_launch import launch


class Refused(ValueError):
    pass


@triton.jit
def doubled(x):
    return x * FACTOR


FACTOR = tl.constexpr(2)


@triton.jit(do_not_specialize=["size"])
def scale(x, y, factor, size, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at * step, doubled(factor * tl.load(x + at * step, mask=at < size)), mask=at < size)


@triton.jit
def copy(x, y, ROWS: tl.constexpr):
    y.store([tl.program_id(0) * ROWS, 0], x.load([tl.program_id(0) * ROWS, 0]))


@triton.jit
def described(x, rows, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    tile = tl.make_tensor_descriptor(x, [rows, WIDTH], [WIDTH, 1], [ROWS, WIDTH])
    tile.store([tl.program_id(0) * ROWS, 0], tl.zeros([ROWS, WIDTH], tl.float32))


@triton.jit
def strided(x, y, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) * step
    tl.store(y + at, tl.load(x + at))


def program():
    return scale, copy, described, strided
"""


def loaded(text: str = KERNELS) -> Any:
    """The kernels, as a text that was emitted or found on disk is loaded: they lie in no file."""
    return load(text, (), ()).function()


class Entry:
    """A function of the driver."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, *given: Any) -> int:
        return int(self.run(*given) or 0)


class Driver:
    """Launches nothing, and keeps the parameters of each launch as the layout says they lie in memory."""

    def __init__(self) -> None:
        self.launches: list[Any] = []
        self.failures = [0]
        self.loads = 0
        self.cuLaunchKernelEx = Entry(self.launch)
        self.cuModuleLoadData = Entry(self.load)

    def __getattr__(self, name: str) -> Entry:
        return Entry(lambda *_: 0)

    def load(self, *_: Any) -> None:
        self.loads += 1

    def launch(self, *given: Any) -> int:
        status = self.failures.pop() if len(self.failures) > 1 else self.failures[0]
        if not status:
            self.launches.append(given)
        return status

    def numbers(self, types: str) -> tuple[Any, ...]:
        """The parameters of the last launch, read one by one."""
        pointers = self.launches[-1][2]
        sizes = [struct.calcsize("=" + code) for code in types]
        read = [ctypes.string_at(place, size) for place, size in zip(pointers, sizes, strict=True)]
        return tuple(struct.unpack("=" + code, part)[0] for code, part in zip(types, read, strict=True))
