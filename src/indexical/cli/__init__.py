"""The command `ix`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from ..diagnostics import Error
from ..faults import BORDER
from .findings import print_diagnostics
from .parser import build_parser
from .words import Usage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 where all is well, 1 where the program is at fault, 2 where the command is."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "command"):
        parser.print_help()
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A terminal that lacks a letter gets its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with BORDER:
            return int(_command(options.command)(options))
    except Error as error:
        print_diagnostics(error.diagnostics, options)
        return 1
    except Usage as problem:
        print(f"ix: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left of it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("ix: interrupted", file=sys.stderr)
        return 130


def _command(name: str) -> Callable[[Any], int]:
    module, _, function = name.partition(":")
    return getattr(import_module(f".{module}", __name__), function)  # type: ignore[no-any-return]
