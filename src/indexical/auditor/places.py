"""Places: a finding is shown in the repository of whoever asks, and not inside a library that it calls."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..source import Source, Span
from .reports import Finding, Report, shown_path

_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD = Path(os.__file__).resolve().parent


def owned(report: Report, target: Any, builder: Any = None) -> Report:
    """The report, with each finding that lies in a library moved outward, to the first that lies below the current
    directory: the class of the module, the modules that hold it, what was audited, and the function that built it."""
    failure = None if report.failure is None else _owned(report.failure, target, builder, "")
    return replace(
        report,
        failure=failure,
        findings=tuple(_owned(finding, target, builder, report.subject) for finding in report.findings),
        parts=tuple(owned(part, target, builder) for part in report.parts),
    )


def _owned(finding: Finding, target: Any, builder: Any, subject: str) -> Finding:
    if finding.span is not None and is_own(finding.span.source.name):
        return finding
    origin = finding.origin or ("" if finding.span is None else _short(finding.span))
    for code, child in _holders(target, builder, finding.module or subject):
        span = _line_of(code, child)
        if span is not None:
            return replace(finding, span=span, origin=origin)
    return finding


def is_own(file: str) -> bool:
    """Whether a file lies below the current directory, and belongs to no library that is installed there."""
    path = Path(file).resolve()
    if not path.is_relative_to(Path.cwd()) or any(part in _LIBRARIES for part in path.parts):
        return False
    return not path.is_relative_to(_STANDARD)


def _short(span: Span) -> str:
    """A place in a library, from the name of its package on."""
    parts = Path(span.source.name).parts
    start = next((number + 1 for number, part in enumerate(parts) if part in _LIBRARIES), 0)
    return f"{Path(*parts[start:]).as_posix()}:{span.line}"


def _holders(target: Any, builder: Any, name: str) -> Iterator[tuple[Any, str]]:
    """Classes and functions from a module of the target outward, each with the name of what it holds."""
    inner = dict(target.named_modules()) if hasattr(target, "named_modules") else {}
    path = name.split(".") if name and name in inner else []
    for length in range(len(path), -1, -1):
        held = inner.get(".".join(path[:length]), target)
        yield (held if inspect.isroutine(held) else type(held)), path[length] if length < len(path) else ""
    if builder is not None:
        yield builder, ""


def _line_of(code: Any, child: str) -> Span | None:
    """The line of a class or a function that makes what it holds, else its first line, where it is one's own."""
    try:
        code = inspect.unwrap(code)
        file = inspect.getsourcefile(code)
        if file is None or not is_own(file):
            return None
        lines, first = inspect.getsourcelines(code)
        source = Source(shown_path(file), Path(file).read_text(encoding="utf-8"))
    except (OSError, TypeError, ValueError, UnicodeDecodeError):
        return None
    made = re.compile(rf"\b{re.escape(child)}\b[^=()]*=(?!=)") if child else None
    offset = next((number for number, line in enumerate(lines) if made is not None and made.search(line)), 0)
    start = source.line_starts[max(first, 1) + offset - 1]
    return Span(source, start, start + len(source.line(max(first, 1) + offset)))


def relative(span: Span) -> str | None:
    """The file of a place as a path from the current directory, with forward slashes; None where it lies elsewhere."""
    file = Path(os.path.abspath(span.shown.source.name))
    return file.relative_to(Path.cwd()).as_posix() if file.is_relative_to(Path.cwd()) else None
