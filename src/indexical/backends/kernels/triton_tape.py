"""Calls of Triton kernels that are recorded once, and run again for tensors of the same layouts.

This text needs PyTorch, Triton and nothing else.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .triton_launch import STREAM_AT, compile_together, launch


class Tape:
    """The arrays that a call makes and the kernels that it launches, to be run again for tensors of the same layouts:
    what is in a launch besides addresses takes longer to put together than the launch."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self.made: list[tuple[Tensor, bool]] = []
        self.launches: list[tuple[Any, list[Any]]] = []
        self.waiting: list[Any] = []
        self.is_whole = True

    def keep(self, tensor: Tensor, zero: bool = False) -> Tensor:
        """An array that the call made."""
        self.made.append((tensor, zero))
        self.tensors.append(tensor)
        return tensor

    def launch(
        self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any], constants: tuple[Any, ...], *how: int
    ) -> None:
        """A kernel to be launched when the tape is run."""
        self.waiting.append((kernel, grid, arguments, constants, *how))

    def run(self) -> None:
        """Launch the kernels, in order."""
        compile_together(self.waiting)
        places = {id(tensor): place for place, tensor in enumerate(self.tensors)}
        for kernel, grid, arguments, *how in self.waiting:
            repeat = launch(kernel, grid, arguments, *how)
            given = [places.get(id(argument)) for argument in arguments if isinstance(argument, Tensor)]
            self.is_whole = self.is_whole and repeat is not None and None not in given
            self.launches.append((repeat, given))
        self.waiting = []

    def written(self, results: Sequence[Tensor]) -> Any:
        """The function that does the same for other tensors of the same layouts, and gives what takes the place of the
        results: None, and nothing is done, where tensors lie at odd addresses or another device is the current one. It
        is written out, since it is run at each call."""
        count = len(self.tensors) - len(self.made)
        used = sorted({place for _, given in self.launches for place in given})
        device = self.launches[0][0].launcher.device
        scope: dict[str, Any] = {"device": torch._C._cuda_getDevice, "current": torch._C._cuda_getCurrentRawStream}
        lines = [
            f"def again({', '.join(f't{n}' for n in range(count))}):",
            f"    if device() != {device}:",
            "        return None",
        ]
        for n, (tensor, zero) in enumerate(self.made, count):
            scope[f"like{n}"] = _maker(tensor)
            lines.append(f"    t{n} = like{n}(){'.zero_()' if zero else ''}")
        lines += [f"    p{n} = t{n}.data_ptr()" for n in used]
        lines += [f"    if ({' | '.join(f'p{n}' for n in used)}) & 15:", "        return None"]
        lines.append(f"    stream = current({device})")
        for n, (repeat, given) in enumerate(self.launches):
            names = ("free", "pack_into", "run", "function", "parameters")
            scope |= {f"{name}{n}": getattr(repeat, name) for name in names} | {f"retry{n}": repeat.launcher.retry}
            lines += [
                "    try:",
                f"        memory = free{n}.pop()",
                "    except IndexError:",
                f"        memory = parameters{n}()",
                "    buffer, config, pointers = memory",
                f"    pack_into{n}(buffer, {STREAM_AT}, stream, {', '.join(f'p{place}' for place in given)})",
                f"    status = run{n}(config, function{n}, pointers, None)",
                "    if status:",
                f"        retry{n}(status, memory)",
                f"    free{n}.append(memory)",
            ]
        places = [next(n for n, own in enumerate(self.tensors) if own is result) for result in results]
        lines.append(f"    return {''.join(f't{n}, ' for n in places)}")
        exec("\n".join(lines), scope)
        return scope["again"]


def _maker(tensor: Tensor) -> Any:
    """A function that makes an array like this one on the current device, as quickly as this version can."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cuda", None)
    size, stride = tuple(tensor.size()), tensor.stride()
    if quick is not None and tensor.is_cuda:
        return functools.partial(quick, size, stride, tensor.dtype)
    return functools.partial(torch.empty_strided, size, stride, dtype=tensor.dtype, device=tensor.device)


class Tapes:
    """The tapes of one function, by the layouts of its tensors and by numbers. Calls like the one before are told by
    PyTorch's own guards, in a fifth of the time that it takes to ask each tensor."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.latest: tuple[Any, int, Any, Any] | None = None

    def find(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...]) -> Any:
        """The function for tensors and numbers like these; None where there is none."""
        latest = self.latest
        if latest is not None and latest[:2] == (numbers, len(tensors)) and latest[2](*tensors):
            return latest[3]
        found = self.known.get(_layout_of(tensors, numbers))
        if found is not None:
            guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
            if hasattr(guards, "TensorGuards"):
                sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
                guard = guards.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
                self.latest = (numbers, len(tensors), guard.check, found)
        return found

    def add(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...], tape: Tape, results: Sequence[Tensor]) -> None:
        if tape.is_whole:
            if len(self.known) >= 64:
                self.known.clear()
            self.known[_layout_of(tensors, numbers)] = tape.written(results)


def _layout_of(tensors: Sequence[Tensor], numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that launches depend on but addresses."""
    return *[(x.shape, x.stride(), x.dtype, x.get_device()) for x in tensors], numbers
