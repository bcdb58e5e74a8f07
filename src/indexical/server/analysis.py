"""One program of a document, as it stands: its tree, its findings, its names, and what is known of it."""

from __future__ import annotations

from functools import cached_property

from ..api import Program, examine
from ..diagnostics import Diagnostic, Error, Sink
from ..run.samples import stand_ins
from ..source import Span
from ..syntax import tree
from ..syntax.parse import parse
from ..views.plan import PlanSheet
from .regions import Region, regions
from .symbols import Occurrence, Symbols


class Analysis:
    """A program that was read once. `program` is None where it has an error."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.program, self.findings = examine(region.source)

    @cached_property
    def file(self) -> tree.File:
        return parse(self.region.source, Sink())

    @cached_property
    def symbols(self) -> Symbols:
        return Symbols(self.file)

    @cached_property
    def plan(self) -> PlanSheet | None:
        """The plan of a call on this machine, with small sizes; None where there is none."""
        if self.program is None:
            return None
        try:
            arrays, _ = stand_ins(self.program.ir, {}, "f32")
            return self.program.imagine(arrays.arrays, "f32", "torch", "cpu")[0]
        except Error:
            return None

    def statement_at(self, offset: int) -> tree.Statement | None:
        """The statement around an offset."""
        inside = (s for s in self.file.statements if s.span.start <= offset <= s.span.end)
        return next(inside, None)


class Document:
    """A text in an editor, and the programs in it. What did not change is not read again."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = ""
        self.analyses: list[Analysis] = []
        # What is wrong with a part of the document that should be a program, and is none.
        self.others: list[Diagnostic] = []
        # The last program without an error, by its place among the programs of the document.
        self._good: dict[int, Program] = {}
        self.is_readable = True
        self.change(text)

    def change(self, text: str) -> None:
        self.text = text
        found, self.others = regions(self.name, text)
        self.is_readable = found is not None
        known = {_key(analysis.region): analysis for analysis in self.analyses}
        self.analyses = [known.get(_key(region)) or Analysis(region) for region in found or ()]
        for number, analysis in enumerate(self.analyses):
            if analysis.program is not None:
                self._good[number] = analysis.program

    @property
    def findings(self) -> list[Diagnostic]:
        return [*self.others, *(finding for analysis in self.analyses for finding in analysis.findings)]

    def has(self, span: Span) -> bool:
        """Whether a place is in the document itself, and not in a module that it uses."""
        return span.shown.source.name == self.name

    def at(self, offset: int) -> tuple[Analysis, int] | None:
        """The program that an offset stands in, and the offset in it."""
        for analysis in self.analyses:
            inside = analysis.region.inside(offset)
            if inside is not None:
                return analysis, inside
        return None

    def name_at(self, offset: int) -> tuple[Analysis, Occurrence] | None:
        """The name that an offset stands in, with its program."""
        place = self.at(offset)
        if place is None:
            return None
        found = place[0].symbols.at(place[1])
        return None if found is None else (place[0], found)

    def known(self, analysis: Analysis) -> Program | None:
        """The program, or in the middle of an edit the last one without an error in its place."""
        return analysis.program or self._good.get(self.analyses.index(analysis))


def _key(region: Region) -> tuple[str, tuple[int, ...]]:
    return region.source.text, region.places
