"""The arguments of the command line: names, sizes, files."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO


class Usage(Exception):
    """The command line is at fault."""


def meant(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, to be put behind a sentence; nothing where none is close."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f"; did you mean `{close[0]}`?" if close else ""


def beside(path: str) -> str:
    """The same for a file that is not there, among those of its folder."""
    from ..syntax.files import close_file

    close = close_file(Path(path))
    return f"; did you mean `{close}`?" if close else ""


def in_colour(stream: TextIO, options: Namespace) -> bool:
    """Whether what goes to a stream is coloured: as `--color` says, else NO_COLOR, else FORCE_COLOR, else where it is a
    terminal that can."""
    if options.color != "auto":
        return bool(options.color == "always")
    if os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "0") not in ("", "0") or is_screen(stream)


def is_screen(stream: TextIO) -> bool:
    """Whether a stream is a terminal that follows commands: colours, and lines that are written over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def names_in(text: str | None) -> tuple[str, ...] | None:
    return tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text else None


def sizes_in(text: str, option: str) -> dict[str, int]:
    """`i=6,d=4` as sizes."""
    sizes: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if not value.strip().isdigit():
            raise Usage(f"{option} {part}: sizes look like i=6,d=4")
        sizes[name.strip()] = int(value)
    return sizes


def check_device(options: Namespace) -> None:
    """Refuse a device for a backend that has none."""
    if options.device and options.backend != "torch":
        raise Usage(f"--device {options.device}: only the torch backend has devices; add --backend torch")


def check_memory(options: Namespace) -> None:
    """Refuse a budget for a backend that keeps none."""
    if options.memory and options.backend != "torch":
        raise Usage(f"--memory {options.memory}: only the torch backend keeps a budget; add --backend torch")


def text_of(file: str) -> str | Path:
    """A file to read, or what stands on standard input."""
    return Path(file) if file != "-" else standard_input() + "\n"


def standard_input(newline: str | None = None) -> str:
    """What stands on standard input; with `newline=""`, its line ends as they are."""
    given = sys.stdin.buffer if isinstance(sys.stdin, io.TextIOWrapper) else io.BytesIO(sys.stdin.read().encode())
    try:
        return io.TextIOWrapper(given, "utf-8", newline=newline).read()
    except UnicodeDecodeError as problem:
        raise Usage(f"standard input is no text in UTF-8, at byte {problem.start}") from None
    except OSError as problem:
        raise Usage(f"standard input cannot be read: {problem.strerror}") from None


def files_in(given: Iterable[str]) -> Iterator[str]:
    """The files that are named, and those in folders that are: programs, and Python files that may have some."""
    for name in given:
        if name == "-" or not os.path.isdir(name):
            yield name
            continue
        for folder, inner, files in os.walk(name):
            inner[:] = sorted(each for each in inner if not _is_left_out(folder, each))
            yield from (os.path.join(folder, file) for file in sorted(files) if _has_programs(folder, file))


def _is_left_out(folder: str, name: str) -> bool:
    """Whether a folder is not a person's own: hidden, a cache, or an environment of Python."""
    inside = os.path.join(folder, name, "pyvenv.cfg")
    return name.startswith(".") or name in ("__pycache__", "node_modules") or os.path.exists(inside)


def _has_programs(folder: str, file: str) -> bool:
    if not file.endswith(".py"):
        return file.endswith(".ix")
    try:
        return b"indexical" in Path(folder, file).read_bytes()
    except OSError:
        return False


def write(text: str, path: str | None) -> None:
    """A text to a file, or to standard output."""
    if path is None:
        sys.stdout.write(text)
    else:
        from ..saving import write_file

        write_file(path, text)
