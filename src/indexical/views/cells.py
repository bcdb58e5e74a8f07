"""Notebooks with programs in them: the same blocks and marks as those of a page in Markdown.

A program is a cell that begins with `%%ix`, a block of a Markdown cell, or a text that a cell of Python compiles. In a
cell of code a comment, `# ix: weights`, names what the outputs of the cell print.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from typing import Any

from ..diagnostics import Sink
from ..records import dataclass
from ..source import Source
from ..syntax.embedded import programs_in
from .markdown import Block, Mark, Unreadable, misspelt, named, read_markdown
from .plain import Cell, Plain, code

_MAGIC = re.compile(r"\s*%%ix\b[ \t]*([^\n]*)\n?")
_COMMENT = re.compile(r"(?:#|//)[ \t]*ix:[ \t]*([^\n]*?)[ \t]*$", re.MULTILINE)
_NEARLY = re.compile(r"(?:#|//)[ \t]*(?:ix|IX|Ix)(?:[ \t]+\w+\[|:)[^\n]*")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Part:
    """A cell of a notebook, or an output of one: its name, its text, and where this begins in the text of all."""

    name: str
    text: str
    start: int


class Damaged(Exception):
    """A file that is no notebook, or a part of one that cannot be read, from where to where, and why."""

    def __init__(self, message: str, part: Part | None = None, start: int = 0, end: int = 0) -> None:
        self.part, self.start, self.end = part, start, end
        super().__init__(message)


def read_notebook(text: str) -> tuple[str, list[Part], list[Block], list[Mark]]:
    """The text of all cells and outputs of a notebook, its parts, its programs, and the comments that speak of
    them."""
    found = _Notebook()
    try:
        found.read_all(_cells(text))
    except Unreadable as problem:
        part = found.parts[bisect_right([part.start for part in found.parts], problem.start) - 1]
        raise Damaged(str(problem), part, problem.start - part.start, problem.end - part.start) from None
    return found.text, found.parts, found.blocks, sorted(found.marks, key=lambda mark: mark.start)


def _cells(text: str) -> list[Any]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as problem:
        where = f"line {problem.lineno}, column {problem.colno}: " if isinstance(problem, json.JSONDecodeError) else ""
        raise Damaged(f"it is no JSON: {where}{getattr(problem, 'msg', problem)}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        old = isinstance(notebook, dict) and "worksheets" in notebook
        raise Damaged("it is of an old format: save it anew, as version 4" if old else "it has no list of `cells`")
    cells: list[Any] = notebook["cells"]
    return cells


def _joined(given: Any, where: str) -> str:
    """A text as notebooks have it: in one piece, or line by line."""
    if isinstance(given, list) and all(isinstance(line, str) for line in given):
        return "".join(given)
    if not isinstance(given, str):
        raise Damaged(f"{where} has no text")
    return given


class _Notebook:
    """The cells of a notebook, one behind the other as one text."""

    def __init__(self) -> None:
        self.text = ""
        self.parts: list[Part] = []
        self.blocks: list[Block] = []
        self.marks: list[Mark] = []
        self.python: list[Part] = []

    def read_all(self, cells: list[Any]) -> None:
        for number, cell in enumerate(cells, 1):
            if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
                raise Damaged(f"cell {number} has no `cell_type`")
            self.read(number, cell)
        self.blocks += self.compiled()

    def add(self, name: str, text: str) -> Part:
        part = Part(name, text.replace("\r\n", "\n"), len(self.text))
        self.parts.append(part)
        self.text += f"{part.text}\n\n"
        return part

    def read(self, number: int, cell: dict[str, Any]) -> None:
        part = self.add(f"cell {number}", _joined(cell.get("source", ""), f"cell {number}"))
        if cell["cell_type"] == "markdown":
            blocks, marks = read_markdown(part.text, part.start)
            self.blocks += blocks
            self.marks += marks
        elif cell["cell_type"] == "code":
            magic = _MAGIC.match(part.text)
            if magic is not None:
                start = part.start + magic.end()
                rest = part.text[magic.end() :]
                name = next((word for word in magic[1].split() if not word.startswith("-")), "")
                self.blocks.append(Block(name, rest, tuple(range(start, start + len(rest))), part.start))
            else:
                self.python.append(part)
            self.tie(part, self.printed(number, cell.get("outputs", [])))

    def printed(self, number: int, outputs: Any) -> Plain:
        """The texts of all outputs of a cell, each as a text of its own."""
        found = Plain()
        for at, output in enumerate(outputs if isinstance(outputs, list) else [], 1):
            where = f"cell {number}, output {at}"
            if not isinstance(output, dict):
                raise Damaged(f"{where} is no output")
            data = output.get("data")
            held = data.get("text/plain") if isinstance(data, dict) else output.get("text")
            if held is not None:
                part = self.add(where, _ESCAPES.sub("", _joined(held, where)))
                each = code(Cell(part.text, part.start))
                found = Plain(found.text + each.text, found.starts + each.starts, found.ends + each.ends)
        return found

    def tie(self, part: Part, printed: Plain) -> None:
        """The comments of a cell of code, which name what it prints."""
        found = list(_COMMENT.finditer(part.text))
        for nearly in _NEARLY.finditer(part.text):
            if not any(each.start() <= nearly.start() < each.end() for each in found):
                raise misspelt(part.start + nearly.start(), part.start + nearly.end())
        for each in found[1:]:
            first = named(found[0], part.start)
            if named(each, part.start)[0] != first[0]:
                start = part.start + each.start()
                raise Unreadable(start, part.start + each.end(), "the comments of a cell name one program")
        if found:
            file = named(found[0], part.start)[0]
            names = tuple(name for each in found for name in named(each, part.start)[1])
            nothing = Plain()
            start, end = part.start + found[0].start(), part.start + found[0].end()
            self.marks.append(Mark(file, names, start, end, nothing, nothing, start, None, printed))

    def compiled(self) -> list[Block]:
        """The programs that cells of Python compile. All cells are one file there, in which all else is blank."""
        blank = re.sub(r"[^\n]", " ", self.text)
        python = ""
        for part in self.python:
            text = re.sub(r"^([ \t]*)[%!?]", r"\1#", part.text, flags=re.MULTILINE)
            python += blank[len(python) : part.start]
            try:
                ast.parse(text)
                python += text
            except (SyntaxError, ValueError, RecursionError):
                python += blank[part.start : part.start + len(text)]
        python += blank[len(python) :]
        found = []
        for program in programs_in(Source("", python), Sink()):
            origin = program.source.origin
            places = origin.places if origin is not None else tuple(range(len(program.source.text)))
            text = program.source.text
            found.append(Block(program.name, text, places[: len(text)], places[0] if places else 0))
        return found
