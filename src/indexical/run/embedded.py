"""A program that stands in a Python file, by its name."""

from __future__ import annotations

from pathlib import Path

from ..checker.names import counted, suggest
from ..diagnostics import Sink
from ..source import Source, Span
from ..syntax.embedded import programs_in
from ..syntax.files import read_source
from .asked import PLAIN, Face


def read_program(place: str, sink: Sink) -> tuple[Source | None, Face]:
    """The program at `model.py:attention`, or the only one of `model.py`. The file is read, and not run."""
    path, _, name = place.rpartition(".py:")
    file = read_source(Path(f"{path}.py") if path else Path(place), sink)
    if file is None:
        return None, PLAIN
    found = programs_in(file, sink)
    chosen = [program for program in found if not path or program.name == name]
    if sink.failed:
        return None, PLAIN
    if len(chosen) == 1:
        (one,) = chosen
        return one.source, Face(one.name, "", "", one.by_name, one.defaults)
    known = [program.name for program in found if program.name]
    told = f"`{file.name}` has {f'no program `{name}`' if path else counted(len(found), 'program')}"
    help, _ = suggest(name, known, Span(file, 0, 0)) if path else (None, None)
    say = f"say which: {', '.join(f'`{file.name}:{each}`' for each in known)}" if known else None
    sink.report("IX108", told, help=help or say)
    return None, PLAIN
