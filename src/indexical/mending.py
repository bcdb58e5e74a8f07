"""Mechanical fixes of a text, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from .api import check_file
from .diagnostics import Diagnostic, Fix
from .source import Source

# A fix may uncover another finding with a fix. So often is a text read anew, at most.
_MOST_ROUNDS = 100


def mended(source: Source) -> tuple[str, int]:
    """The text with every fix applied that is one, and how many these are: the finding is gone, and the text can be
    read as well as before. What it uncovers is another matter, and may have a fix of its own."""
    count = 0
    refused: set[tuple[str, str, str]] = set()
    found = check_file(source)
    for _ in range(_MOST_ROUNDS):
        waiting = [f for f in found if f.fix is not None and _stands_in(f.fix, source) and _key(f) not in refused]
        if not waiting:
            break
        first = waiting[0]
        assert first.fix is not None
        span = first.fix.span.shown
        new = Source(source.name, source.text[: span.start] + first.fix.replacement + source.text[span.end :])
        after = check_file(new)
        is_gone = _alike(after, first) < _alike(found, first)
        if is_gone and _unreadable(after) <= _unreadable(found):
            source, found, count = new, after, count + 1
        else:
            refused.add(_key(first))
    return source.text, count


def _stands_in(fix: Fix, file: Source) -> bool:
    """Whether what a fix replaces stands in a file as it is: Python's literals may spell it with escapes."""
    return fix.span.shown.source is file and fix.span.shown.text == fix.span.text


def _key(finding: Diagnostic) -> tuple[str, str, str]:
    """A finding as it is known again when the text has changed elsewhere."""
    assert finding.fix is not None
    return finding.code, finding.message, finding.fix.span.source.line(finding.fix.span.line)


def _alike(found: Sequence[Diagnostic], finding: Diagnostic) -> int:
    return sum((other.code, other.message) == (finding.code, finding.message) for other in found)


def _unreadable(found: Sequence[Diagnostic]) -> int:
    return sum(other.code.startswith("IX1") for other in found)
