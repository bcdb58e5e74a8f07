"""The programs in a document: a whole `.ix` file, the ix blocks of a Markdown page, the strings of a Python file."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from ..records import dataclass
from ..source import Source

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})[ \t]*(?P<words>[^\n`]*)\n", re.MULTILINE)
_MARKDOWN = (".md", ".markdown", ".mdx")
# The functions whose first argument is the text of a program.
_TAKING_TEXT = {"compile", "check", "show", "exact", "verify", "trace"}


@dataclass(frozen=True, slots=True)
class Region:
    """A program in a document, from `start` to `end`. `source` is the document with all else blank, so that a place in
    the program is the same place in the document."""

    start: int
    end: int
    source: Source

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def is_whole(self) -> bool:
        """Whether the program is all of the document."""
        return (self.start, self.end) == (0, len(self.source.text))


def regions(name: str, text: str) -> list[Region] | None:
    """The programs of a document, in the order of the text; None while a Python file cannot be read, in the middle of
    an edit: what was known of it still holds."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in _MARKDOWN:
        places = _fenced(text)
    elif suffix == ".py":
        found = _strings(text)
        if found is None:
            return None
        places = found
    else:
        places = [(0, len(text))]
    return [Region(start, end, Source(name, _blanked(text, start, end))) for start, end in places]


def _blanked(text: str, start: int, end: int) -> str:
    def blank(part: str) -> str:
        return re.sub(r"[^\n\r]", " ", part)

    return text if (start, end) == (0, len(text)) else blank(text[:start]) + text[start:end] + blank(text[end:])


def _fenced(text: str) -> list[tuple[int, int]]:
    """The blocks of a Markdown page whose first word is `ix`."""
    found = []
    at = 0
    while (opening := _FENCE.search(text, at)) is not None:
        fence = opening["fence"]
        closing = re.compile(rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$", re.MULTILINE)
        closed = closing.search(text, opening.end())
        end = len(text) if closed is None else closed.start()
        if opening["words"].split()[:1] == ["ix"]:
            found.append((opening.end(), end))
        at = len(text) if closed is None else closed.end()
    return found


def _strings(text: str) -> list[tuple[int, int]] | None:
    """The strings of a Python file that are programs: the text that `ix.compile` and the like are given. One with
    escapes is left out: a place in it is not the same place in the file."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    names = _imported(module)
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _takes_text(node.func, names) and node.args:
            literal = _literal(node.args[0], text, lines)
            if literal is not None and ";" in text[slice(*literal)]:
                found.append(literal)
    return sorted(found)


def _imported(module: ast.Module) -> set[str]:
    """The names under which the package, or functions of it, are known in a file."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if alias.name == "indexical"}
        elif isinstance(node, ast.ImportFrom) and node.module == "indexical":
            found |= {f".{alias.asname or alias.name}" for alias in node.names if alias.name in _TAKING_TEXT}
    return found


def _takes_text(function: ast.expr, names: set[str]) -> bool:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr in _TAKING_TEXT and function.value.id in names
    return isinstance(function, ast.Name) and f".{function.id}" in names


def _literal(node: ast.expr, text: str, lines: list[int]) -> tuple[int, int] | None:
    """Where the inside of a string literal stands, if it says what it shows."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    start = _offset(text, lines, node.lineno, node.col_offset)
    end = _offset(text, lines, node.end_lineno or node.lineno, node.end_col_offset or 0)
    opening = re.compile(r"[rRuU]?(\"\"\"|'''|\"|')").match(text, start)
    if opening is None:
        return None
    inside = opening.end(), end - len(opening[1])
    return inside if text[slice(*inside)].replace("\r\n", "\n") == node.value else None


def _offset(text: str, lines: list[int], line: int, column: int) -> int:
    """The offset of a place as Python's tree has it: lines from 1, columns in bytes."""
    start = lines[line - 1]
    return start + len(text[start : lines[line]].encode()[:column].decode())
