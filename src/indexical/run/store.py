"""A folder of emitted texts, and of machine code written as text, that outlives the process.

What lies there will be executed. So nothing is read from, or written to, a place that somebody else could have written
to, and a text that is not what was stored is not there. Whatever goes wrong with the folder, a call goes on without it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..records import dataclass

# The folder has no more entries, and no more bytes, than these: the ones that were not used for longest go.
MOST_ENTRIES = 512
MOST_BYTES = 128 << 20
# One text is not larger than this.
LARGEST = 8 << 20
# What a process that ended while it wrote has left is removed after so many seconds.
_ABANDONED = 3600

_TITLE = "# A text that Indexical has emitted, kept for the next process. Its digest: "
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_SEARCHABLE = stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the folder: its size in bytes, and when it was last used."""

    name: str
    size: int
    used: float


@dataclass(frozen=True, slots=True)
class Store:
    """The folder, or why it is not used: then nothing is found in it, and nothing is stored."""

    folder: str
    problem: str | None = None

    def get(self, key: str) -> str | None:
        """The text that was stored under a key; None where there is none that can be trusted."""
        with suppress(OSError), self._opened(create=False) as folder:
            if folder is None:
                return None
            found = os.open(f"{key}.py", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            with open(found, "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or not _is_ours(status) or status.st_size > LARGEST:
                    return None
                text = _opened_text(key, file.read())
                if text is not None:
                    os.utime(file.fileno())  # it was used: others go before it
                return text
        return None

    def put(self, key: str, text: str) -> None:
        """Store a text under a key. Whoever reads meanwhile finds all of it, or what was there before."""
        content = _sealed(key, text)
        if len(content) > LARGEST:
            return
        with suppress(OSError), self._opened(create=True) as folder:
            if folder is None:
                return
            partial = f".{key}.{os.urandom(6).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with open(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as file:
                    file.write(content)
                os.replace(partial, f"{key}.py", src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                _remove(folder, partial)
                raise
            _prune(folder)

    def entries(self) -> list[Entry]:
        """The texts that are stored, those that were used last first."""
        with suppress(OSError), self._opened(create=False) as folder:
            if folder is not None:
                return [entry for entry in _listed(folder) if entry.name.endswith(".py")]
        return []

    def clear(self) -> int:
        """Remove everything that was stored; how many texts there were."""
        removed = 0
        with suppress(OSError), self._opened(create=False) as folder:
            for entry in [] if folder is None else _listed(folder):
                if _is_entry(entry.name):
                    removed += _remove(folder, entry.name) and entry.name.endswith(".py")
        return removed

    @contextmanager
    def _opened(self, create: bool) -> Iterator[int | None]:
        """The folder, opened; None where it is not safe, and where it is not there and not to be created."""
        if self.problem is not None:
            yield None
            return
        if create:
            _create(self.folder)
        if exposure(self.folder) is not None or not os.path.isdir(self.folder):
            yield None
            return
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield folder if _is_ours(os.fstat(folder)) else None
        finally:
            os.close(folder)


def current_store() -> Store:
    """The folder that this process keeps its texts in, as `IX_CACHE` says, else where caches are."""
    given = os.environ.get("IX_CACHE", "")
    if given == "0":
        return Store("", "IX_CACHE=0 turns it off")
    folder = given or _usual_folder()
    if not os.path.isabs(folder):
        return Store(folder, "IX_CACHE is 0 or the whole path of a folder" if given else "there is no home folder")
    # A link leads to the folder: nobody else may write to where the link is, either.
    real = os.path.realpath(folder)
    return Store(real, _exposure_above(os.path.normpath(folder)) or exposure(real))


def _usual_folder() -> str:
    stated = os.environ.get("XDG_CACHE_HOME", "")
    home = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return os.path.join(stated if os.path.isabs(stated) else home, "indexical")


# ------------------------------------------------------------------------------------ who else may write


def exposure(folder: str) -> str | None:
    """Say who besides this user could write into a folder, or put another in its place; None where nobody can.

    The folder need not be there. Every folder above it belongs to this user or to the system, and either nobody else
    writes to it, or it is one in which everybody removes only what is their own. Below a folder of this user's that
    nobody else may enter, it does not matter.
    """
    return _exposure_above(folder) or _own_exposure(folder)


def _exposure_above(folder: str) -> str | None:
    """The reason why a folder above this one is not safe from others; None where all of them are."""
    if not hasattr(os, "geteuid"):
        return "this system does not say who may write to a folder"
    above: list[str] = []
    while os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        above.insert(0, folder)
    for place in above:
        try:
            status = os.stat(place)
        except FileNotFoundError:
            break  # whatever is missing will be created for this user alone
        except OSError as problem:
            return f"`{place}` cannot be looked at: {problem.strerror}"
        if not stat.S_ISDIR(status.st_mode):
            return f"`{place}` is no folder"
        if status.st_uid not in (0, os.geteuid()):
            return f"`{place}` belongs to another user"
        if status.st_mode & _WRITABLE and not status.st_mode & stat.S_ISVTX:
            return f"others may write to `{place}`"
        if status.st_uid == os.geteuid() and not status.st_mode & _SEARCHABLE:
            break  # nobody else comes further
    return None


def _own_exposure(folder: str) -> str | None:
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return None
    except OSError as problem:
        return f"`{folder}` cannot be looked at: {problem.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"`{folder}` is no folder"
    return None if _is_ours(status) else f"`{folder}` belongs to another user, or others may write to it"


def _is_ours(status: os.stat_result) -> bool:
    """Whether a file or a folder belongs to this user, and nobody else may write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE


def _create(folder: str) -> None:
    """Create a folder, and those above it, for this user alone."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for place in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)


# ------------------------------------------------------------------------------------------ one text


def _sealed(key: str, text: str) -> bytes:
    """A text below its digest. The key is part of it: under another name it is not the same text."""
    return f"{_TITLE}{_digest(key, text)}\n{text}".encode()


def _opened_text(key: str, content: bytes) -> str | None:
    """The text below its digest; None where it is not what was sealed."""
    try:
        title, line, text = content.decode().partition("\n")
    except UnicodeDecodeError:
        return None
    return text if line and title == f"{_TITLE}{_digest(key, text)}" else None


def _digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()


# ------------------------------------------------------------------------------------------ all of them


def _listed(folder: int) -> list[Entry]:
    """The files of the folder, those that were used last first."""
    found = []
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):  # another process has removed it
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            found.append(Entry(name, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: (-entry.used, entry.name))


def _is_entry(name: str) -> bool:
    """Whether a file is one of ours, whole or partly written: nothing else is ever removed."""
    stem = name.removeprefix(".").partition(".")[0]
    return len(stem) == 64 and set(stem) <= set("0123456789abcdef")


def _prune(folder: int) -> None:
    """Remove what is too much, and what was never finished."""
    total, entries = 0, 0
    for entry in _listed(folder):
        if not _is_entry(entry.name):
            continue
        if entry.name.startswith("."):
            if entry.used < time.time() - _ABANDONED:
                _remove(folder, entry.name)
            continue
        total, entries = total + entry.size, entries + 1
        if entries > MOST_ENTRIES or total > MOST_BYTES:
            _remove(folder, entry.name)


def _remove(folder: int | None, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True
