"""A text to read: given as it is, or as the file that it stands in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..diagnostics import Sink
from ..source import Source

if TYPE_CHECKING:
    from pathlib import Path


def read_source(text_or_path: str | os.PathLike[str], sink: Sink) -> Source | None:
    """The text itself, or what is in the file; None, and reported, where it cannot be read."""
    if isinstance(text_or_path, str) and not _is_file_name(text_or_path):
        return Source("<text>", text_or_path)
    # Whatever was passed, not only what may be.
    given: Any = text_or_path
    name: Any = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(name, str):
        message = f"a value of type `{type(given).__name__}` cannot be read as a program"
        sink.report("IX108", message, help="a program is its text, or the path of a file")
        return None
    from pathlib import Path  # A program may have no file.

    path = Path(name)
    try:
        return Source(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as problem:
        reason = f"it is not UTF-8 text (byte {problem.start})"
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
    help = None
    if isinstance(text_or_path, str) and not name.endswith(".ix"):
        help = "a string without a `;` is the name of a file; each statement of a program ends with one"
    close = close_file(path)
    if close is not None:
        help = f"did you mean `{close}`?"
    sink.report("IX108", f"`{path}` cannot be read: {reason}", help=help)
    return None


def is_python(text_or_path: str | os.PathLike[str]) -> bool:
    """Whether this is a Python file, or a name in one: `model.py`, `model.py:attention`."""
    given: Any = text_or_path  # Whatever was passed, not only what may be.
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str) or "\n" in text or ";" in text:
        return False
    _, colon, name = text.rpartition(".py:")
    return text.endswith(".py") or (bool(colon) and name.isidentifier())


def close_file(path: Path) -> Path | None:
    """The file that was probably meant by one that is not there: of the same kind, and called much like it."""
    from difflib import get_close_matches  # Few programs need it.

    try:
        if path.exists():
            return None
        suffix = path.suffix or ".ix"
        like = [each.stem for each in path.parent.iterdir() if each.suffix == suffix]
        found = get_close_matches(path.stem, like, 1)
        return path.with_name(found[0] + suffix) if found else None
    except (OSError, ValueError):
        return None


def _is_file_name(text: str) -> bool:
    """Whether a string names a file. A program has a `;`, or a function with spaces in it."""
    if not text.strip() or "\n" in text or ";" in text or text.lstrip().startswith("//"):
        return False
    return len(text.split()) == 1 or text.endswith(".ix") or os.path.isfile(text)
