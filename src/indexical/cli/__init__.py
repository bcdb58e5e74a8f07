"""The command `ix`."""

from __future__ import annotations

import errno
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
from .waiting import told
from .words import Usage

# The libraries that are not always installed, and the extras that have them.
_EXTRAS = {
    **dict.fromkeys(("gguf", "safetensors", "tokenizers", "transformers"), "models"),
    **dict.fromkeys(("jax", "jaxlib"), "jax"),
    **dict.fromkeys(("lsprotocol", "pygls"), "lsp"),
    "torch": "torch",
    "triton": "gpu",
}
# What is wrong with an output that takes no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 where all is well, 1 where the program is at fault, 2 where the command is."""
    _prepare_streams()
    try:
        try:
            status = _answer(arguments)
        finally:
            sys.stdout.flush()  # also what argparse has printed before it exits
        return status
    except BrokenPipeError:
        _drop_output()  # Whoever read it has seen enough.
        return 0
    except KeyboardInterrupt:
        print("ix: interrupted", file=sys.stderr)
        return 130
    except OSError as problem:
        if problem.filename is None and problem.errno not in _FULL:
            raise
        if problem.filename is None:
            _drop_output()
        told = f"{problem.filename or 'standard output'}: {problem.strerror}"
        print(f"ix: {told.replace(': cannot be written', ' cannot be written', 1)}", file=sys.stderr)
        return 2


def _answer(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "command"):
        parser.print_help()
        return 2
    try:
        with BORDER, told(options.command.partition(":")[2].removesuffix("_command")):
            return int(_command(options.command)(options))
    except Error as error:
        print_diagnostics(error.diagnostics, options)
        return 1
    except ModuleNotFoundError as problem:
        library = (problem.name or "").partition(".")[0]
        if library not in _EXTRAS:
            raise
        print(f"ix: this needs {library}: pip install 'indexical[{_EXTRAS[library]}]'", file=sys.stderr)
        return 2
    except Usage as problem:
        print(f"ix: {problem}", file=sys.stderr)
        return 2


def _prepare_streams() -> None:
    """A terminal that lacks a letter gets its number; a stream that was closed is empty, and takes anything."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (it stays open)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Let what is left for the standard output go nowhere: Python writes it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(name: str) -> Callable[[Any], int]:
    module, _, function = name.partition(":")
    return getattr(import_module(f".{module}", __name__), function)  # type: ignore[no-any-return]
