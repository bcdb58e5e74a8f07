"""Lifetimes of arrays: the lines that let go of what nothing reads any more."""

from __future__ import annotations

from ..ops import Input, Value
from ..order import roots_of
from .lines import filled
from .printer import Printer


def free(p: Printer) -> None:
    """Let go of the names of values that all their readers have read. Only what was read since the last time is looked
    at. What a function inside was given is looked at after it."""
    read = {part: None for one in p.unlooked for part in one.parts if part in p.names and part not in p.held}
    p.unlooked = [one for one in p.unlooked if not p.held.isdisjoint(one.parts)]
    done = {p.names[one] for one in read if _is_done(p, one)}
    if not done:
        return
    roots = set(roots_of(p.plan))
    named = [(one, name) for one, name in p.names.items() if name in done]
    done -= {name for one, name in named if one in roots or not _is_done(p, one)}
    gone = [one for one, name in named if name in done]
    if not gone:
        return
    names = sorted(done)
    inside: set[str] = set()
    if p.kernels is not None:
        names = [name for name in names if name not in p.kernels.reads_later()]
        inside = p.kernels.reads_inside() & set(names)
    if inside:  # A name that functions read cannot be deleted.
        p.add(" = ".join([*sorted(inside), "None"]))
    for line in filled([name for name in names if name not in inside]):
        p.add(f"del {line}")
    p.statements[-1][1].extend(gone)
    for one in gone:
        del p.names[one]


def _is_done(p: Printer, one: Value) -> bool:
    """Whether all that reads an array is computed. Another value may have its name: one that is the same array."""
    return len(one.axes) > 1 and not isinstance(one.op, Input) and p.readers(one) <= p.emitted
