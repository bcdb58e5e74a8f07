"""Mechanical fixes, put into the files that they are for."""

from __future__ import annotations

import sys
from difflib import unified_diff
from pathlib import Path

from ..diagnostics import Sink
from ..mending import mended
from ..saving import rewrite
from ..syntax.files import read_source


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
        rewrite(path, text)
        print(f"mended {path}: {count} {'fix' if count == 1 else 'fixes'}", file=sys.stderr)
    return count > 0
