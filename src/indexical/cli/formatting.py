"""The command that lays programs out, and waits for no checker."""

from __future__ import annotations

import sys
from argparse import Namespace
from io import StringIO
from pathlib import Path

from ..diagnostics import Diagnostic, Sink
from ..source import Source
from ..syntax.files import read_source
from ..syntax.format import format_source
from ..syntax.parse import parse
from .findings import print_diagnostics
from .words import Usage, files_in, standard_input


def format_command(options: Namespace) -> int:
    files = [file for name in options.files for file in files_in([name]) if file == name or file.endswith(".ix")]
    other = next((file for file in files if file != "-" and not file.endswith(".ix")), None)
    if other is not None:
        raise Usage(f"{other} is no program: `ix fmt` lays out .ix files, and folders of them")
    if not files:
        print("ix: nothing to lay out: no .ix file", file=sys.stderr)
    found: list[Diagnostic] = []
    changed = False
    for file in files:
        given = standard_input(newline="") if file == "-" else None
        sink = Sink()
        source = read_source(Path(file), sink) if given is None else Source("<text>", _with_plain_ends(given))
        tree = None if source is None else parse(source, sink)
        if source is None or tree is None or sink.failed:
            found += sink
            continue
        text = format_source(tree)
        if given is not None and not options.check:
            _write(text, file, given)
        elif text != source.text:
            changed = True
            if not options.check:
                _write(text, file, None)
            print(f"{'would change' if options.check else 'changed'} {file}", file=sys.stderr)
    print_diagnostics(found, options)
    return int(bool(found) or (options.check and changed))


def _write(text: str, file: str, given: str | None) -> None:
    """A text in the place of the old one: in the file, or on standard output for what was given there."""
    from ..saving import as_before, rewrite

    if given is None:
        rewrite(file, text)
    else:
        sys.stdout.write(as_before(text, given))


def _with_plain_ends(text: str) -> str:
    """A text as Python reads it from a file: each line ends with one character."""
    return StringIO(text, newline=None).read()
