"""Findings, as the command prints them."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from ..diagnostics import Diagnostic, render


def print_diagnostics(found: Sequence[Diagnostic], options: Namespace) -> None:
    form = getattr(options, "format", "text")
    if form != "text":
        from ..views.findings import FORMATS

        text = FORMATS[form](found) if form in FORMATS else FORMATS["json"](found)
        print(text, end="\n" if text else "")
        return
    terminal = sys.stderr.isatty()
    for diagnostic in found:
        print(render(diagnostic, terminal and "NO_COLOR" not in os.environ), end="\n\n", file=sys.stderr)
    if found and terminal:
        print(f"ix explain {found[0].code} says more", file=sys.stderr)
