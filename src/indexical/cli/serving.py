"""The command that answers editors."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec

from .words import Usage


def lsp_command(options: Namespace) -> int:
    """Speak the language server protocol over standard input and output, or on a local port."""
    if find_spec("pygls") is None:
        raise Usage("the language server needs pygls: pip install 'indexical[lsp]'")
    from ..server.protocol import serve

    server = serve()
    if options.port is None:
        server.start_io()
    else:
        try:
            server.start_tcp("127.0.0.1", options.port)
        except (OSError, OverflowError) as problem:
            raise Usage(f"--port {options.port}: {problem}") from None
    return 0
