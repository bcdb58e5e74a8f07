"""Findings, as the command prints them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from ..diagnostics import Diagnostic, render
from .words import in_colour


def print_diagnostics(found: Sequence[Diagnostic], options: Namespace) -> None:
    form = getattr(options, "format", "text")
    if form != "text":
        from ..views.findings import FORMATS

        text = FORMATS[form](found) if form in FORMATS else FORMATS["json"](found)
        print(text, end="\n" if text else "")
        return
    colour = in_colour(sys.stderr, options)
    for diagnostic in found:
        print(render(diagnostic, colour), end="\n\n", file=sys.stderr)
    if found and sys.stderr.isatty():
        print(f"ix explain {found[0].code} says more", file=sys.stderr)
