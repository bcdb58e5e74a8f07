"""A text to read: given as it is, or as the file that it stands in."""

from __future__ import annotations

import os
from pathlib import Path

from ..diagnostics import Sink
from ..source import Source


def read_source(text_or_path: str | os.PathLike[str], sink: Sink) -> Source | None:
    """The text itself, or what is in the file; None, and reported, where it cannot be read."""
    if isinstance(text_or_path, str) and not text_or_path.endswith(".ix"):
        return Source("<text>", text_or_path)
    path = Path(text_or_path)
    try:
        return Source(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as problem:
        reason = f"it is not UTF-8 text (byte {problem.start})"
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    sink.report("IX108", f"`{path}` cannot be read: {reason}")
    return None
