"""Files that are written whole, or stay as they were: every file that this package writes for a person is written here.

(`run/store.py` keeps its own, below a folder that it has opened and knows to be safe.)
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO


def write_file(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Put a content, text as UTF-8, in the place of what a file has."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def rewrite(path: str | os.PathLike[str], text: str) -> None:
    """Put another text into a text file, which keeps its byte-order mark and its line ends."""
    with open(path, encoding="utf-8", newline="") as file:
        before = file.read()
    write_file(path, as_before(text, before))


def as_before(text: str, before: str) -> str:
    """A text with the byte-order mark and the line ends of another: where that has several kinds, the commonest."""
    windows = before.count("\r\n")
    counts = {"\n": before.count("\n") - windows, "\r\n": windows, "\r": before.count("\r") - windows}
    mark = "\ufeff" if before.startswith("\ufeff") else ""
    return mark + text.replace("\n", max(counts, key=counts.__getitem__))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of the one at `path` when all is written.

    It stands beside that one until then, so that a full disk, or an interruption, leaves the old content. A link is
    followed; the owner and the permissions stay. What is no file, such as `/dev/stdout`, is written to as it is. An
    `OSError` names `path`.
    """
    target = os.path.realpath(path)
    try:
        before = _status(path)
        is_stream = before is not None and not stat.S_ISREG(before.st_mode)
        if is_stream or os.path.abspath(path).startswith(("/dev/", "/proc/")):
            with open(path, "ab") as file:
                yield file
            return
        if before is not None and not os.access(target, os.W_OK):
            raise PermissionError(13, os.strerror(13))
        partial = os.path.join(os.path.dirname(target), f".ix-{os.urandom(8).hex()}")
        try:
            with open(partial, "xb") as file:
                if before is not None:
                    _keep(before, file.fileno())
                yield file
            os.replace(partial, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        if isinstance(problem, FileNotFoundError):
            reason = f"there is no folder `{os.path.dirname(target)}`"
        raise OSError(problem.errno or 0, f"cannot be written: {reason}", os.fspath(path)) from None


def _status(path: str | os.PathLike[str]) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _keep(before: os.stat_result, file: int) -> None:
    """Give a file the owner and the permissions of another, as far as this user may."""
    if hasattr(os, "fchown"):
        with suppress(OSError):
            os.fchown(file, before.st_uid, before.st_gid)
        os.fchmod(file, stat.S_IMODE(before.st_mode))
