"""Source texts, and the places in them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from functools import cached_property

from .records import dataclass


@dataclass(frozen=True, eq=False)
class Source:
    """A named text. Two sources are the same only if they are one object."""

    name: str
    text: str = field(repr=False)

    def __post_init__(self) -> None:
        """A byte-order mark belongs to the file, not to its text: no place counts it."""
        if self.text.startswith("\ufeff"):
            object.__setattr__(self, "text", self.text[1:])

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins; there is always a first line."""
        starts = [0]
        for offset, character in enumerate(self.text):
            if character == "\n":
                starts.append(offset + 1)
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

    def to(self, other: Span) -> Span:
        """From the start of this span to the end of the other; this one, where the other is elsewhere."""
        if other.source is not self.source or other.end < self.start:
            return self
        return Span(self.source, self.start, other.end)

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"
