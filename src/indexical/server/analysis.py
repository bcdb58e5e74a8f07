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
        # The last program without an error, by its place among the programs of the document.
        self._good: dict[int, Program] = {}
        self.is_readable = True
        self.change(text)

    def change(self, text: str) -> None:
        self.text = text
        found = regions(self.name, text)
        self.is_readable = found is not None
        if found is None:
            self.analyses = []
            return
        known = {(a.region.start, a.region.source.text): a for a in self.analyses}
        self.analyses = [known.get((r.start, r.source.text)) or Analysis(r) for r in found]
        for number, analysis in enumerate(self.analyses):
            if analysis.program is not None:
                self._good[number] = analysis.program

    @property
    def findings(self) -> list[Diagnostic]:
        return [finding for analysis in self.analyses for finding in analysis.findings]

    def at(self, offset: int) -> Analysis | None:
        """The program that an offset stands in."""
        inside = (a for a in self.analyses if a.region.start <= offset <= a.region.end)
        return next(inside, None)

    def name_at(self, offset: int) -> tuple[Analysis, Occurrence] | None:
        """The name that an offset stands in, with its program."""
        analysis = self.at(offset)
        found = None if analysis is None else analysis.symbols.at(offset)
        return None if analysis is None or found is None else (analysis, found)

    def known(self, analysis: Analysis) -> Program | None:
        """The program, or in the middle of an edit the last one without an error in its place."""
        return analysis.program or self._good.get(self.analyses.index(analysis))


def is_here(span: Span, analysis: Analysis) -> bool:
    """Whether a place is in the document itself, and not in a module that it uses."""
    return span.source is analysis.region.source
