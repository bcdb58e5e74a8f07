"""Calls of Triton kernels that are recorded once, and run again for tensors of the same layouts.

This text needs PyTorch, Triton and nothing else.
"""

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .torch_guards import guard_for
from .triton_launch import Repeat, compile_together, launch


class Tape:
    """The arrays that a call makes and the kernels that it launches, to be run again for tensors of the same layouts:
    what is in a launch besides addresses takes longer to put together than the launch."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self.made: list[tuple[Tensor, bool]] = []
        self.views: list[tuple[Tensor, Tensor]] = []
        self.launches: list[tuple[Any, list[Any]]] = []
        self.waiting: list[Any] = []
        self.is_whole = True

    def keep(self, tensor: Tensor, zero: bool = False) -> Tensor:
        """An array that the call made."""
        self.made.append((tensor, zero))
        self.tensors.append(tensor)
        return tensor

    def view(self, view: Tensor, of: Tensor) -> Tensor:
        """A view of a tensor that begins where that does: it is made once."""
        self.views.append((view, of))
        return view

    def launch(
        self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any], constants: tuple[Any, ...], *how: int
    ) -> None:
        """A kernel to be launched when the tape is run."""
        self.waiting.append((kernel, grid, arguments, constants, *how))

    def run(self) -> None:
        """Launch the kernels, in order."""
        compile_together(self.waiting)
        self.record([(launch(kernel, *rest), rest[1]) for kernel, *rest in self.waiting])
        self.waiting = []

    def record(self, launched: Sequence[tuple[Repeat | None, Sequence[Any]]]) -> None:
        """Take note of launches that were made, each with its arguments: the tensors among these are known by now."""
        places = {id(tensor): place for place, tensor in enumerate(self.tensors)}
        places |= {id(view): places[id(of)] for view, of in self.views}
        for repeat, arguments in launched:
            given = [places.get(id(argument)) for argument in arguments if isinstance(argument, Tensor)]
            self.is_whole = self.is_whole and repeat is not None and None not in given
            self.launches.append((repeat, given))

    def written(self, results: Sequence[Tensor]) -> Any:
        """The function that does the same for other tensors of the same layouts, and gives what takes the place of the
        results: None, and nothing is done, where tensors lie at odd addresses or another device is the current one. It
        is written out, since it is run at each call."""
        count = len(self.tensors) - len(self.made)
        used = sorted({place for _, given in self.launches for place in given})
        places = [next(n for n, own in enumerate(self.tensors) if own is result) for result in results]
        device = self.launches[0][0].launcher.device
        scope: dict[str, Any] = {"device": torch._C._cuda_getDevice, "current": torch._C._cuda_getCurrentRawStream}
        lines = [
            f"def again({', '.join(f't{n}' for n in range(count))}):",
            f"    if device() != {device}:",
            "        return None",
        ]
        addresses, room = {n: f"p{n}" for n in used}, 0
        for n, (tensor, zero) in enumerate(self.made, count):
            size = tensor.untyped_storage().nbytes()
            if n in places or zero or size > _LARGE:
                scope[f"like{n}"] = _maker(tensor)
                lines.append(f"    t{n} = like{n}(){'.zero_()' if zero else ''}")
            elif n in used:
                addresses[n], room = f"room + {room}", room + (size + 255) // 256 * 256
        lines += [f"    p{n} = t{n}.data_ptr()" for n in used if addresses[n] == f"p{n}"]
        if room:
            scope["like"] = _maker(self.tensors[0].new_empty(room, dtype=torch.uint8))
            lines += ["    t = like()", "    room = t.data_ptr()"]
        odd = " | ".join(address for place, address in addresses.items() if address == f"p{place}")
        lines += [f"    if ({odd}) & 15:", "        return None", f"    stream = current({device})"]
        lines += _launching(self.launches, addresses, scope)
        lines.append(f"    return {''.join(f't{n}, ' for n in places)}")
        exec("\n".join(lines), scope)
        return scope["again"]


# Arrays of so many bytes are made one by one. Smaller ones are parts of one, since each takes a microsecond or two.
_LARGE = 1 << 20


class Records:
    """The records that the driver reads the launches of a tape from: by stream, as many as were in use at once. All
    launches of a record read addresses from one array, which is all that is written for a call."""

    def __init__(self, launches: Sequence[tuple[Repeat, Sequence[int]]], used: Sequence[int]) -> None:
        self.launches = [(repeat, [used.index(place) for place in given]) for repeat, given in launches]
        self.count = len(used)
        self.free: dict[int, list[tuple[Any, ...]]] = {}

    def of(self, stream: int) -> list[tuple[Any, ...]]:
        """The records for a stream that are not in use."""
        if len(self.free) >= 64:
            self.free = {}
        return self.free.setdefault(stream, [])

    def new(self, stream: int) -> tuple[Any, ...]:
        """A record: its array of addresses, two pointers for each launch, and what these point into."""
        addresses = ctypes.create_string_buffer(8 * self.count)
        first = ctypes.addressof(addresses)
        held = [repeat.parameters(stream, [first + 8 * place for place in given]) for repeat, given in self.launches]
        return addresses, *(pointer for each in held for pointer in (each.config, each.pointers)), held


def _launching(
    launches: Sequence[tuple[Repeat, Sequence[int]]], addresses: dict[int, str], scope: dict[str, Any]
) -> list[str]:
    """The lines that launch kernels on a stream, with tensors at these addresses."""
    records = Records(launches, list(addresses))
    scope |= {"records": records, "pack_into": struct.Struct(f"={len(addresses)}Q").pack_into}
    scope |= {"run": launches[0][0].launcher.run}
    pointers = [f"config{n}, pointers{n}" for n in range(len(launches))]
    lines = [
        "    free = records.free.get(stream)",
        "    if free is None:",
        "        free = records.of(stream)",
        "    try:",
        "        record = free.pop()",
        "    except IndexError:",  # The first, or others are launching too.
        "        record = records.new(stream)",
        f"    addresses, {', '.join(pointers)}, _ = record",
        f"    pack_into(addresses, 0, {', '.join(addresses.values())})",
    ]
    for n, (repeat, _) in enumerate(launches):
        scope |= {f"function{n}": repeat.launcher.function, f"retry{n}": repeat.launcher.retry}
        lines += [
            f"    status = run(config{n}, function{n}, pointers{n}, None)",
            "    if status:",
            f"        retry{n}(status, config{n}, pointers{n})",
        ]
    return [*lines, "    free.append(record)"]


def _maker(tensor: Tensor) -> Any:
    """A function that makes an array like this one on the current device, as quickly as this version can."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cuda", None)
    size, stride = tuple(tensor.size()), tensor.stride()
    if quick is not None and tensor.is_cuda:
        return functools.partial(quick, size, stride, tensor.dtype)
    return functools.partial(torch.empty_strided, size, stride, dtype=tensor.dtype, device=tensor.device)


# So many layouts are told by guards, and so many are remembered.
_MOST_RECENT = 4
_MOST_SEEN = 256


class Recent(NamedTuple):
    """Calls like a recent one: its numbers, the count of its tensors, a test whether others are like these, which also
    asks for what else PyTorch does with a call (transforms, modes), whether some of them require a gradient, and the
    function for it."""

    numbers: tuple[Any, ...]
    arity: int
    is_alike: Callable[..., bool]
    learns: bool
    again: Callable[..., Any]


class Tapes:
    """The tapes of one function, by the layouts of its tensors and by numbers. Calls like recent ones are told by
    PyTorch's own guards, in a fifth of the time that it takes to ask each tensor."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self.seen: dict[Any, None] = {}
        self.recent: tuple[Recent, ...] = ()  # Threads may call at once: it is replaced as a whole.

    def latest(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...]) -> Recent | None:
        """The recent calls that this one is like; None where it is like none."""
        for recent in self.recent:
            if recent.numbers == numbers and recent.arity == len(tensors) and recent.is_alike(*tensors):
                return recent
        return None

    def find(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...]) -> Any:
        """The function for tensors and numbers like these; None where there is none."""
        latest = self.latest(tensors, numbers)
        if latest is not None:
            return latest.again
        found = self.known.get(_layout_of(tensors, numbers))
        if found is not None:
            self.remember(tensors, numbers, found)
        return found

    def remember(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...], again: Callable[..., Any]) -> None:
        """Tell calls like this one from now on by guards, where PyTorch has them, and run this function for them."""
        sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
        is_alike = guard_for(tensors, sizes, strides)
        if is_alike is not None:
            learns = any(x.requires_grad for x in tensors)
            self.recent = (Recent(numbers, len(tensors), is_alike, learns, again), *self.recent[: _MOST_RECENT - 1])

    def add(self, tensors: Sequence[Tensor], numbers: tuple[Any, ...], tape: Tape, results: Sequence[Tensor]) -> None:
        """Know calls like this one from now on, where there was one before: of lengths that never come again, no
        function is written, which takes longer than all else."""
        layout = _layout_of(tensors, numbers)
        if not tape.is_whole:
            return
        if layout not in self.seen:
            if len(self.seen) >= _MOST_SEEN:
                self.seen = {}
            self.seen[layout] = None
            return
        if len(self.known) >= 64:
            self.known, self.recent = {}, ()
        self.known[layout] = tape.written(results)


def _layout_of(tensors: Sequence[Tensor], numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that launches depend on but addresses. Numbers may come in lists."""
    plain = tuple([tuple(each) if isinstance(each, list) else each for each in numbers])
    return *[(x.shape, x.stride(), x.dtype, x.get_device()) for x in tensors], plain
