"""A plugin for pytest: `.ix` files are tests. Each is checked, and each of its claims (`expect`) is verified.

Lessons in Markdown are tests where `--ix-lessons` or the setting `ix_lessons` says so. Nothing but this file is loaded
before there is such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .api import Program
    from .readings import Verification
    from .source import Source


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("indexical", "programs of Indexical")
    lessons = "collect the Markdown pages among the arguments that have programs in them"
    group.addoption("--ix-lessons", action="store_true", default=False, help=lessons)
    group.addoption(
        "--ix-strict", action="store_true", default=False, help="warnings, and what rounding explains, fail"
    )
    parser.addini("ix_programs", "patterns of the program files to collect (default: *.ix)", "args", ["*.ix"])
    parser.addini("ix_lessons", "patterns of the Markdown pages to collect as lessons (default: none)", "args", [])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    kinds: dict[str, type[pytest.File]] = {".ix": ProgramFile, ".md": LessonFile}
    made = kinds.get(file_path.suffix)
    if made is None or not _is_wanted(file_path, parent.config):
        return None
    return made.from_parent(parent, path=file_path)


def _is_wanted(path: Path, config: pytest.Config) -> bool:
    if path.suffix == ".md" and config.getoption("ix_lessons"):
        return True
    return any(map(path.match, config.getini("ix_programs" if path.suffix == ".ix" else "ix_lessons")))


class Found(Exception):
    """The findings, as the command would print it."""


class ProgramFile(pytest.File):
    """A program: a test that it has no mistakes, and one for each of its claims."""

    def collect(self) -> Iterator[pytest.Item]:
        yield from items_of(self, Text(_source(self)), "")


class LessonFile(pytest.File):
    """A lesson: the same for each program in it, a test of its questions, and one of its figures."""

    def collect(self) -> Iterator[pytest.Item]:
        from .syntax.embedded import blocks_in

        page = _source(self)
        blocks = blocks_in(page)
        for number, source in enumerate(blocks, 1):
            yield from items_of(self, Text(source), f"program {number}: ")
        if blocks:
            yield LessonItem.from_parent(self, name="questions")
        if "<!-- ix:" in page.text:
            yield FiguresItem.from_parent(self, name="figures")


class Text:
    """A text, the program that it is and the verdicts on its claims, each worked out once."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @cached_property
    def program(self) -> Program | None:
        from .api import compile_source
        from .diagnostics import Error

        try:
            return compile_source(self.source)
        except Error:
            return None

    @cached_property
    def verdicts(self) -> Verification:
        from .readings import verify

        assert self.program is not None
        return verify(self.program)


def items_of(parent: pytest.Collector, text: Text, before: str) -> Iterator[pytest.Item]:
    yield CheckItem.from_parent(parent, name=f"{before}check", text=text)
    if text.program is not None:
        for number, expect in enumerate(text.program.ir.expects):
            said = " ".join(expect.span.text.removeprefix("expect").split()).rstrip(";")
            name = f"{before}line {expect.span.shown.line}: {said if len(said) <= 60 else said[:59] + '…'}"
            yield ClaimItem.from_parent(parent, name=name, text=text, number=number)


class _Item(pytest.Item):
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The findings, without a traceback: that would be of this package."""
        from .diagnostics import Error

        return str(excinfo.value) if isinstance(excinfo.value, Found | Error) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.line, self.name

    @property
    def line(self) -> int | None:
        return None


class CheckItem(_Item):
    """A test that a program has no mistakes: as `ix check` has it, with `--ix-strict` as `ix check --strict` has it."""

    def __init__(self, *, text: Text, **given: Any) -> None:
        super().__init__(**given)
        self.text = text

    def runtest(self) -> None:
        from .api import check_source
        from .diagnostics import render

        failing = ("error", "warning") if self.config.getoption("ix_strict") else ("error",)
        found = [each for each in check_source(self.text.source) if each.severity in failing]
        if found:
            raise Found("\n\n".join(map(render, found)))


class ClaimItem(_Item):
    """A test of one claim, as `ix verify` has it."""

    def __init__(self, *, text: Text, number: int, **given: Any) -> None:
        super().__init__(**given)
        self.text = text
        self.number = number

    @property
    def line(self) -> int | None:
        assert self.text.program is not None
        return self.text.program.ir.expects[self.number].span.shown.line - 1

    def runtest(self) -> None:
        from .views.verdicts import show_claims

        claim = self.text.verdicts.claims[self.number]
        failing = ("fails", "undecided", "rounding") if self.config.getoption("ix_strict") else ("fails", "undecided")
        if claim.verdict in failing:
            raise Found(show_claims((claim,)))


class LessonItem(_Item):
    """A test that a lesson can be shown: its programs run, and its questions have the answers that it gives."""

    def runtest(self) -> None:
        from .pages import show_lesson

        show_lesson(self.path)


class FiguresItem(_Item):
    """A test that the figures of a page hold that comments tie to its programs."""

    def runtest(self) -> None:
        from .printed import verify_page

        found = verify_page(self.path, self.config.getoption("ix_strict"))
        if not found:
            raise Found(str(found))


def _source(file: pytest.File) -> Source:
    """A file, named as a person names it: from where they are. For one that cannot be read there is no traceback."""
    from .diagnostics import CallError, Sink
    from .syntax.files import read_source

    sink = Sink()
    here = Path.cwd()
    source = read_source(file.path.relative_to(here) if file.path.is_relative_to(here) else file.path, sink)
    if source is None:
        raise file.CollectError(str(CallError(sink)))
    return source
