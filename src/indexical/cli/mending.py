"""Mechanical fixes, put into the files that they are for."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

from ..api import check_file
from ..diagnostics import Diagnostic, Fix, Sink
from ..source import Source
from ..syntax.files import read_source

# A fix may uncover another finding with a fix. So often is a text read anew, at most.
_MOST_ROUNDS = 100


def mend_file(path: Path, only_shown: bool = False) -> bool:
    """Apply every fix to a file and say how many there were, or print what would change; whether there is something
    to mend. A file that cannot be read is left to the check."""
    source = read_source(path, Sink())
    if source is None:
        return False
    text, count = mended(source)
    if count and only_shown:
        print(*unified_diff(source.text.splitlines(), text.splitlines(), str(path), str(path), lineterm=""), sep="\n")
    elif count:
        kept = path.read_bytes()
        ended = text.replace("\n", "\r\n") if b"\r\n" in kept else text
        path.write_bytes((BOM_UTF8 if kept.startswith(BOM_UTF8) else b"") + ended.encode())
        print(f"mended {path}: {count} {'fix' if count == 1 else 'fixes'}", file=sys.stderr)
    return count > 0


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
