"""The command that answers editors."""

from __future__ import annotations

from argparse import Namespace

from .words import Usage


def lsp_command(options: Namespace) -> int:
    """Speak the language server protocol over standard input and output, or on a local port."""
    try:
        from ..server.protocol import serve
    except ModuleNotFoundError as problem:
        raise Usage(f"the language server needs {problem.name}: pip install 'indexical[lsp]'") from None

    server = serve()
    if options.port is None:
        server.start_io()
    else:
        try:
            server.start_tcp("127.0.0.1", options.port)
        except (OSError, OverflowError) as problem:
            raise Usage(f"--port {options.port}: {problem}") from None
    return 0
