"""One run of a callable, operation by operation, each with the place in the caller's file that asked for it."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from ..source import Source, Span
from .flex import flex_by_definition


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a file: lines are counted from 1, columns from 0."""

    file: str
    line: int
    end_line: int
    column: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def span(self) -> Span | None:
        """The place as a span of the file's text; None where the file cannot be read."""
        source = _source(self.file)
        if source is None or self.line > source.line_count:
            return None
        start, end = (source.offset(*at) for at in ((self.line, self.column), (self.end_line, self.end_column)))
        return Span(source, start, max(end, start + 1))


@cache
def _source(file: str) -> Source | None:
    text = "".join(linecache.getlines(file))
    return Source(os.path.relpath(file) if os.path.isabs(file) else file, text) if text else None


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor of a run, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """One operation: tensors among its arguments and results are `Ref`s."""

    name: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    site: Site | None


@dataclass(slots=True)
class Recording:
    """The operations of a run, its tensors by number, and what it returned."""

    calls: list[Call] = field(default_factory=list)
    # Kept until the run is read, so that no two of them have one identity.
    tensors: list[Any] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    # Tensors that no operation made, in the order in which they were met.
    leaves: list[int] = field(default_factory=list)
    # The names of those that are known by no identity of their own.
    held: dict[int, str] = field(default_factory=dict)
    result: Any = None

    @property
    def structure(self) -> tuple[Any, ...]:
        """All that must be the same in two runs for one relation to describe both."""
        return tuple((call.name, _numbers(call.arguments), _numbers(call.result)) for call in self.calls)


def _numbers(value: Any) -> Any:
    match value:
        case Ref(number):
            return number
        case tuple() | list():
            return tuple(_numbers(part) for part in value if isinstance(part, Ref | tuple | list))
    return None


class Unrunnable(Exception):
    """The callable raised."""


# What a callable raises on arrays that it does not take; anything else is let through.
RAISED = (RuntimeError, ValueError, TypeError, LookupError, AssertionError, ArithmeticError, AttributeError)


def record(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any], placed: bool = True
) -> Recording:
    """Run a callable once, and return what it did; with the place of every call where it is `placed`."""
    import torch

    recording = Recording()
    with _recorder(recording, placed), torch.no_grad(), _plain_attention():
        try:
            result = function(*arguments, **keywords)
        except RAISED as problem:
            raise Unrunnable(f"{type(problem).__name__}: {problem}") from problem
        recording.result = _referred(recording, result)
    return recording


def computed(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The tensors that a callable returns."""
    recording = record(function, arguments, keywords, placed=False)
    return tuple(recording.tensors[ref.number] for ref in flat(recording.result) if isinstance(ref, Ref))


def array_of(value: Any) -> Any:
    """A tensor as an array of the library that the callable is written with."""
    return value


def flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [part for inner in value.values() for part in flat(inner)]
    if isinstance(value, tuple | list):
        return [part for inner in value for part in flat(inner)]
    return [value]


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Library attention is taken apart into the operations it is defined by."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.overrides import TorchFunctionMode

    class Passing(TorchFunctionMode):  # Modules take no fused path of their own while one of these is there.
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    # Products of many tensors go from left to right, whatever their sizes are.
    einsum = torch.backends.opt_einsum.flags(enabled=False)
    with Passing(), sdpa_kernel(SDPBackend.MATH), einsum, flex_by_definition():
        yield


def _recorder(recording: Recording, placed: bool) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # Else the whole compiler of PyTorch is loaded for the first operation.
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            arguments = tuple(_referred(recording, argument) for argument in args)
            keywords = {name: _referred(recording, value) for name, value in (kwargs or {}).items()}
            result = func(*args, **(kwargs or {}))
            made = _referred(recording, result, made=True)
            recording.calls.append(Call(str(func), arguments, keywords, made, _site() if placed else None))
            return result

    return Recorder()  # type: ignore[no-untyped-call]


def _referred(recording: Recording, value: Any, made: bool = False) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        number = recording.numbers.setdefault(id(value), len(recording.tensors))
        if number == len(recording.tensors):
            recording.tensors.append(value)
            if not made:
                recording.leaves.append(number)
        return Ref(number)
    if isinstance(value, Mapping):
        return {name: _referred(recording, part, made) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_referred(recording, part, made) for part in value)
    return value


@cache
def passed_over() -> tuple[str, ...]:
    """Folders of code that only hands calls on: PyTorch, libraries of rearrangements, this package, Python itself."""
    import torch

    libraries = Path(torch.__file__).parent.parent
    names = ("torch", "einops", "einx", "opt_einsum")
    return (
        *(str(libraries / name) + os.sep for name in names),
        str(Path(__file__).parent.parent) + os.sep,
        str(Path(os.__file__).parent / "contextlib.py"),
        str(Path(os.__file__).parent / "functools.py"),
        "<frozen",
    )


def _site() -> Site | None:
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(passed_over()) and f"{os.sep}einops{os.sep}" not in file:
            place = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            line, end_line, column, end_column = place
            line = line or frame.f_lineno
            return Site(file, line, end_line or line, column or 0, end_column or 0)
        frame = frame.f_back  # type: ignore[assignment]
    return None
