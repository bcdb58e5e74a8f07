"""The command that checks programs, and waits for nothing that only runs them."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ..api import check
from ..diagnostics import Diagnostic
from .findings import print_diagnostics
from .words import text_of


def check_command(options: Namespace) -> int:
    found: list[Diagnostic] = []
    for file in options.files:
        if options.fix and file != "-":
            from .mending import mend_file

            mend_file(Path(file))
        found += check(text_of(file))
    shown = [diagnostic for diagnostic in found if options.notes or diagnostic.severity != "note"]
    print_diagnostics(shown, options)
    severities = {diagnostic.severity for diagnostic in found}
    return int("error" in severities or (options.strict and "warning" in severities))
