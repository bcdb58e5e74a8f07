"""The command that checks programs, and waits for nothing that only runs them."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from ..api import check
from ..checker.names import counted
from ..diagnostics import Diagnostic
from .findings import print_diagnostics
from .words import Usage, files_in, is_screen, text_of

# So often, in seconds, files are looked at to see whether they have changed.
_PAUSE = 0.2


def check_command(options: Namespace) -> int:
    if options.watch:
        return _watch(options)
    return check_files(options)


def check_files(options: Namespace) -> int:
    found: list[Diagnostic] = []
    changes = False
    files = list(files_in(options.files))
    if not files:
        print("ix: nothing to check: no .ix file, and no Python file that has programs", file=sys.stderr)
    for file in files:
        if (options.fix or options.diff) and file != "-":
            from .mending import mend_file

            changes |= mend_file(Path(file), options.diff)
        found += check(text_of(file))
    shown = [diagnostic for diagnostic in found if options.notes or diagnostic.severity != "note"]
    print_diagnostics(shown, options)
    severities = {diagnostic.severity for diagnostic in found}
    return int("error" in severities or (options.strict and "warning" in severities) or (options.diff and changes))


def _watch(options: Namespace) -> int:
    """Check, and again whenever something changes, until it is interrupted."""
    if "-" in options.files:
        raise Usage("--watch: standard input is read once, and does not change")
    before: dict[str, int] = {}
    try:
        while True:
            now = _times(options.files)
            if now != before:
                if is_screen(sys.stdout):
                    print("\x1b[2J\x1b[H", end="", flush=True)
                status = check_files(options)
                told = counted(len(list(files_in(options.files))), "file")
                words = "found something" if status else "all is well"
                print(f"{time.strftime('%H:%M:%S')} checked {told}: {words}", file=sys.stderr, flush=True)
                # What `--fix` wrote is no change to look at.
                before = _times(options.files) if options.fix else now
            time.sleep(_PAUSE)
    except KeyboardInterrupt:
        return 0


def _times(given: Iterable[str]) -> dict[str, int]:
    """When each file was changed, and each program beside it, which it may use."""
    files = {Path(file) for file in files_in(given)}
    files |= {beside for folder in {file.parent for file in files} for beside in folder.glob("*.ix")}
    found = {}
    for file in files:
        try:
            found[str(file)] = file.stat().st_mtime_ns
        except OSError:
            found[str(file)] = 0
    return found
