"""The command that lays programs out, and waits for no checker."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ..diagnostics import CallError, Sink
from ..syntax.files import read_source
from ..syntax.format import format_source
from ..syntax.parse import parse
from .words import text_of


def format_command(options: Namespace) -> int:
    changed = []
    for file in options.files:
        sink = Sink()
        source = read_source(text_of(file), sink)
        tree = None if source is None else parse(source, sink)
        if source is None or tree is None or sink.failed:
            raise CallError(sink)
        text = format_source(tree)
        if file == "-" and not options.check:
            sys.stdout.write(text)
        elif text != source.text:
            changed.append(file)
            if not options.check:
                Path(file).write_text(text, encoding="utf-8")
    for file in changed:
        print(f"{'would change' if options.check else 'changed'} {file}", file=sys.stderr)
    return int(options.check and bool(changed))
