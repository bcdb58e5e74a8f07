"""Findings, as the command prints them."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from ..diagnostics import Diagnostic, render


def print_diagnostics(found: Sequence[Diagnostic], options: Namespace) -> None:
    if getattr(options, "format", "text") == "json":
        print(json.dumps([diagnostic.to_json() for diagnostic in found]))
        return
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    for diagnostic in found:
        print(render(diagnostic, colour), end="\n\n", file=sys.stderr)
