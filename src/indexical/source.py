"""Source texts, and the places in them."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from .records import dataclass, field


@dataclass(frozen=True, eq=False)
class Source:
    """A named text. Two sources are the same only if they are one object."""

    name: str
    text: str = field(repr=False)
    origin: Origin | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """A byte-order mark belongs to the file, not to its text: no place counts it."""
        if self.text.startswith("\ufeff"):
            object.__setattr__(self, "text", self.text[1:])

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins; there is always a first line."""
        starts = [0]
        while (end := self.text.find("\n", starts[-1])) >= 0:
            starts.append(end + 1)
        return starts

    @property
    def line_count(self) -> int:
        return len(self.line_starts)

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line, without its end; "" past the last one."""
        starts = self.line_starts
        if number > len(starts):
            return ""
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def offset(self, line: int, column: int) -> int:
        """The offset of a column that is counted from 0, in bytes of UTF-8, as Python counts it."""
        return self.line_starts[line - 1] + len(self.line(line).encode()[:column].decode(errors="ignore"))

    def kept(self) -> Source:
        """The same to be kept apart from its file: of that, with no more than the lines that it is made of."""
        return self if self.origin is None else Source(self.name, self.text, self.origin.excerpt())


@dataclass(frozen=True, eq=False)
class Origin:
    """The file that a text was put together from, and the offset there of each character of the text."""

    file: Source
    places: tuple[int, ...] = field(repr=False)

    def excerpt(self) -> Origin:
        """The same, with nothing of the file but the lines that have a part in the text."""
        lines = [self.file.position(place)[0] for place in self.places] or [1]
        first, last = min(lines), max(lines)
        kept = "\n" * (first - 1) + "\n".join(map(self.file.line, range(first, last + 1)))
        moved = self.file.line_starts[first - 1] - (first - 1)
        return Origin(Source(self.file.name, kept), tuple(place - moved for place in self.places))


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one source: from `start` up to, not including, `end`."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def shown(self) -> Span:
        """The same stretch in the file that a person wrote."""
        origin = self.source.origin
        if origin is None or not origin.places:
            return self
        most = len(origin.places) - 1
        start = origin.places[min(self.start, most)]
        end = origin.places[min(self.end - 1, most)] + 1 if self.end > self.start else start
        return Span(origin.file, start, max(start, end))

    def to(self, other: Span) -> Span:
        """From the start of this span to the end of the other; this one, where the other is elsewhere."""
        if other.source is not self.source or other.end < self.start:
            return self
        return Span(self.source, self.start, other.end)

    def __str__(self) -> str:
        shown = self.shown
        line, column = shown.source.position(shown.start)
        return f"{shown.source.name}:{line}:{column}"
