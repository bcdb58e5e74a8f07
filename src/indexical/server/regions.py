"""The programs in a document: a whole `.ix` file, the ix blocks of a Markdown page, functions and texts in Python."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from pathlib import PurePosixPath

from ..diagnostics import Diagnostic, Sink
from ..records import dataclass
from ..source import Source, Span
from ..syntax.embedded import blocks_in, programs_in


@dataclass(frozen=True, eq=False)
class Region:
    """A program in a document. Its text may be put together from pieces of it: `places` says where each character
    stands there."""

    source: Source

    @cached_property
    def places(self) -> tuple[int, ...]:
        origin = self.source.origin
        return tuple(range(len(self.source.text))) if origin is None else origin.places

    @property
    def is_one_piece(self) -> bool:
        """Whether the text stands in the document as it is."""
        return not self.places or self.places[-1] - self.places[0] == len(self.places) - 1

    @property
    def is_whole(self) -> bool:
        """Whether the program is all of the document."""
        return self.source.origin is None

    @property
    def start(self) -> int:
        return min(self.places, default=0)

    @property
    def end(self) -> int:
        return max(self.places, default=-1) + 1

    @cached_property
    def _back(self) -> tuple[list[int], dict[int, int]]:
        """The places in their order, and the character of the program that stands at each: that which the document has
        there, and not a bracket or a comma that was put beside it."""
        assert self.source.origin is not None
        file, text = self.source.origin.file.text, self.source.text
        known: dict[int, int] = {}
        for number, place in enumerate(self.places):
            if place not in known or (file[place] == text[number] and file[place] != text[known[place]]):
                known[place] = number
        return sorted(known), known

    def inside(self, offset: int) -> int | None:
        """An offset of the document as one of the program; between its pieces, that behind the piece before."""
        if self.is_whole:
            return offset
        order, known = self._back
        if not order or not order[0] <= offset <= order[-1] + 1:
            return None
        if offset in known:
            return known[offset]
        return known[order[bisect_left(order, offset) - 1]] + 1

    def outside(self, offset: int) -> int:
        """An offset of the program as one of the document."""
        if offset < len(self.places):
            return self.places[offset]
        return self.end if self.is_whole else self.places[-1] + 1

    def shown(self, span: Span) -> tuple[int, int] | None:
        """The place of the text of a span in the document; None where it is not there as it is."""
        found = span.shown
        return (found.start, found.end) if found.text == span.text else None


def regions(name: str, text: str) -> tuple[list[Region] | None, list[Diagnostic]]:
    """The programs of a document in the order of the text, and what is wrong with what should be one. There are none
    to be had of a Python file in the middle of an edit: what was known of it still holds."""
    document, sink = Source(name, text), Sink()
    match PurePosixPath(name).suffix.lower():
        case ".py":
            sources = [program.source for program in programs_in(document, sink)]
            if any(found.code == "IX108" for found in sink):
                return None, []
        case ".md" | ".markdown" | ".mdx":
            sources = blocks_in(document)
        case _:
            sources = [document]
    return [Region(source) for source in sources], list(sink)
