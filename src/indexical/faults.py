"""The border of the package: a mistake of ours leaves it as an `ix.Error` with a code, the definition and its line.

The exception that it was is the error's `__cause__`, with its traceback. Work that is nested deeper than Python's stack
allows, as along a thousand definitions that each read the one before, is done again on a larger one.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import wraps
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from .diagnostics import Diagnostic, Error, Label
from .source import Span

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = __file__.removesuffix("faults.py")
_LIBRARIES = (threading.__file__.removesuffix("threading.py"), "site-packages", "dist-packages", "<frozen")

# What no input of a user's should raise. A TypeError or ValueError may be about an argument that is not ours: it counts
# where our own lines raise it.
FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError)
DOUBTFUL = (TypeError, ValueError)

# The frames and the bytes of the larger stack. It takes no memory that is not used.
_DEEPEST, _STACK = 200_000, 1 << 30
_NAME = "indexical on a larger stack"
_one_at_a_time = threading.Lock()


class InternalError(Error):
    """A mistake of Indexical's own."""

    __module__ = "indexical"


class _Border:
    """What is done inside may fail by a mistake of ours: that leaves as an `InternalError`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if isinstance(problem, Exception) and is_fault(problem):
            raise InternalError([described(problem)]) from problem


BORDER = _Border()


def guarded(function: Callable[P, R]) -> Callable[P, R]:
    """The function, behind the border."""

    @wraps(function)
    def inside(*arguments: P.args, **named: P.kwargs) -> R:
        with BORDER:
            return function(*arguments, **named)

    return inside


def deep(function: Callable[P, R]) -> Callable[P, R]:
    """The same for a function that changes nothing outside: where it nests too deeply, it is done again on a larger
    stack. Meanwhile nobody looks for cycles: it makes many small objects that all stay, and next to no cycle."""

    @wraps(function)
    def inside(*arguments: P.args, **named: P.kwargs) -> R:
        with BORDER:
            collects = gc.isenabled()
            gc.disable()
            try:
                return function(*arguments, **named)
            except RecursionError:
                if threading.current_thread().name.startswith(_NAME):
                    raise
            finally:
                if collects:
                    gc.enable()
            return _on_larger_stack(lambda: function(*arguments, **named))

    return inside


def _on_larger_stack(work: Callable[[], R]) -> R:
    """The value of some work in a thread with a large stack; what it raises, is raised here."""
    from concurrent.futures import ThreadPoolExecutor

    with _one_at_a_time:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
        sys.setrecursionlimit(max(limit, _DEEPEST))
        try:
            with ThreadPoolExecutor(1, _NAME) as pool:
                return pool.submit(copy_context().run, work).result()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)


def is_fault(problem: Exception) -> bool:
    """Whether an exception is a mistake of ours: not a finding, not one of a user's own lines, and not about memory,
    files or a library that is not there."""
    frames = [frame for frame in _frames(problem.__traceback__) if frame.f_code.co_filename != __file__]
    kind = type(problem)
    if isinstance(problem, Error | Warning) or kind.__module__.startswith("indexical.cli"):
        return False
    if kind.__module__ == "indexical" or not frames:  # One that is public; a call with the wrong arguments.
        return False
    if isinstance(problem, DOUBTFUL):
        return _is_ours(frames[0])
    own = kind.__module__.startswith("indexical.") or isinstance(problem, FAULTS)
    return own and next((_is_ours(frame) for frame in frames if not _is_of_library(frame)), False)


def described(problem: Exception) -> Diagnostic:
    """What is said of a mistake of ours: the exception, where it was raised, and at which definition."""
    frames = list(_frames(problem.__traceback__))
    line = next((frame for frame in frames if _is_ours(frame)), frames[0])
    place = line.f_code.co_filename.removeprefix(_PACKAGE)
    found = next((let for frame in frames for let in _definitions(frame)), None)
    what = f"{type(problem).__name__}: {problem}".rstrip(": ")
    message = "a mistake in Indexical" if found is None else f"a mistake in Indexical, at `{found[0]}`"
    lines = dict(_lines(problem.__traceback__))
    return Diagnostic(
        "IX901",
        f"{message}: {what:.200}",
        () if found is None else (Label(found[1]),),
        (f"raised in {place}, line {lines[line]}",),
        'the program is not at fault: please report it; `backend="reference"` computes it another way',
    )


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    """The frames of a traceback, the innermost first."""
    yield from reversed([frame for frame, _ in _lines(traceback)])


def _lines(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame is one of the package, or of a text that it emitted."""
    return frame.f_code.co_filename.startswith((_PACKAGE, "<indexical"))


def _is_of_library(frame: FrameType) -> bool:
    return not _is_ours(frame) and any(part in frame.f_code.co_filename for part in _LIBRARIES)


def _definitions(frame: FrameType) -> Iterator[tuple[str, Span]]:
    """The definitions that the variables of a frame hold, each with its place; then what their programs give."""
    values = list(frame.f_locals.values())
    for value in values:
        if type(value).__name__ == "Let" and isinstance(getattr(value, "span", None), Span):
            yield value.name, value.span
    for value in values:
        owned = (getattr(value, name, None) for name in ("program", "_program"))
        for program in (value, *owned):
            if type(program).__name__ == "Program" and isinstance(getattr(program, "lets", None), tuple):
                yield from ((let.name, let.span) for let in reversed(program.lets) if let.name in program.outputs)
