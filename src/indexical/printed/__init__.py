"""Figures on pages, held against the programs that stand there: pages in Markdown and HTML, and notebooks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..checker.names import counted
from ..diagnostics import CallError, Diagnostic, Label, render
from ..source import Source, Span
from ..views.cells import Damaged, Part, read_notebook
from ..views.fragment import Sheet
from ..views.markdown import Block, Mark, Unreadable, read_markdown
from ..views.web import read_html
from .programs import Checked
from .tying import Page

__all__ = ["Checked", "PageVerification", "is_page", "verify_page"]

# The pages that are read, by how their names end.
READERS: dict[str, Callable[[str], tuple[list[Block], list[Mark]]]] = {
    **dict.fromkeys((".md", ".markdown", ".qmd", ".rmd"), read_markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
}
NOTEBOOK = ".ipynb"


def is_page(name: str) -> bool:
    """Whether a file is a page, by its name."""
    return Path(name).suffix.lower() in (*READERS, NOTEBOOK)


class PageVerification(Sheet):
    """The verdict on every figure of a page that a comment ties to a program. It is true where all hold."""

    def __init__(self, file: str, figures: tuple[Checked, ...], findings: tuple[Diagnostic, ...]) -> None:
        self.file, self.figures, self.findings = file, figures, findings

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything that is wrong: comments that name nothing, claims of programs, then figures, in their order."""
        return (*self.findings, *(figure.finding for figure in self.figures if figure.finding is not None))

    def __bool__(self) -> bool:
        return not self.diagnostics

    def __str__(self) -> str:
        return "\n\n".join([*map(render, self.diagnostics), self.summary])

    @property
    def summary(self) -> str:
        if not self.figures and not self.findings:
            return f"{self.file}: no figure is tied to a program; a comment does: <!-- ix: out[0, 1] -->"
        failing = sum(figure.finding is not None for figure in self.figures)
        good = len(self.figures) - failing
        parts = [f"{good} {'holds' if good == 1 else 'hold'}"] if good else []
        parts += [f"{failing} {'does' if failing == 1 else 'do'} not"] if failing else []
        parts += [f"{counted(len(self.findings), 'other finding')}"] if self.findings else []
        return f"{self.file}: {counted(len(self.figures), 'figure')}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "holds": bool(self),
            "figures": [figure.to_json() for figure in self.figures],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def verify_page(path: str | os.PathLike[str], /, strict: bool = False, **named: Any) -> PageVerification:
    """Every figure of a page that a comment ties to a program of the page, checked as `expect` would be.

    The page is in Markdown or HTML, or a notebook. `named` are inputs that programs of the page leave open; with
    `strict`, what rounding explains fails too.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise _unread(file, reason) from None
    page = Page(file, named, strict)
    try:
        if file.suffix.lower() == NOTEBOOK:
            text, page.parts, blocks, marks = read_notebook(text)
        else:
            blocks, marks = READERS.get(file.suffix.lower(), read_markdown)(text)
        figures = page.verified(Source(str(file), text), blocks, marks)
        return PageVerification(str(file), tuple(figures), tuple(page.findings))
    except (Damaged, Unreadable) as problem:
        part = problem.part if isinstance(problem, Damaged) else Part("", text, 0)
        if part is None:
            raise _unread(file, str(problem)) from None
        source = Source(f"{file}, {part.name}" if part.name else str(file), part.text)
        place = Span(source, problem.start, problem.end)
        raise CallError([Diagnostic("IX517", str(problem), (Label(place),))]) from None


def _unread(file: Path, reason: str) -> CallError:
    return CallError([Diagnostic("IX108", f"`{file}` cannot be read: {reason}")])
