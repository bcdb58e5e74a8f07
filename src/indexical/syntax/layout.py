"""Documents: words with places where a line may break, and the text that fits a width.

A group stands on one line if it fits there with what follows it up to the next place that may break;
otherwise the lines directly in it break, and each group inside it is asked anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, assert_never

from ..records import dataclass

WIDTH = 100
INDENTATION = 4


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Words on one line. Those of a comment have no width: code is not broken to make room for them."""

    words: str
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A place where the line may break; `flat` stands there if it does not. None: it always breaks."""

    flat: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Broken as a whole or not at all; the groups inside are broken or not each on its own."""

    content: Document


@dataclass(frozen=True, slots=True, eq=False)
class Indent:
    """Content whose new lines are indented one step further."""

    content: Document


@dataclass(frozen=True, slots=True, eq=False)
class Concat:
    parts: tuple[Document, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """`flat` where the group around it stands on one line, else `broken` at the indentation of this place.

    What `broken` gives starts with a line that breaks.
    """

    flat: Document
    broken: Callable[[int], Document]


Document: TypeAlias = Text | Line | Group | Indent | Concat | Choice

SPACE = Line(" ")
"""A space, or the end of a line."""
NOTHING = Line("")
"""Nothing, or the end of a line."""
BREAK = Line(None)
"""The end of a line."""


def text(words: str) -> Document:
    return Text(words, len(words))


def remark(words: str) -> Document:
    """A comment. It runs to the end of its line, so a line that breaks has to follow."""
    return Text(words, 0)


def concat(*parts: Document | str) -> Document:
    return Concat(tuple(text(part) if isinstance(part, str) else part for part in parts))


def indent(*parts: Document | str) -> Document:
    return Indent(concat(*parts))


def group(*parts: Document | str) -> Document:
    return Group(concat(*parts))


def join(parts: Iterable[Document], *separator: Document | str) -> Document:
    """The parts with the separator between each two."""
    joined: list[Document | str] = []
    for part in parts:
        if joined:
            joined += separator
        joined.append(part)
    return concat(*joined)


def bracketed(opening: str, parts: Iterable[Document], closing: str) -> Document:
    """`[a, b]`; broken, each part has a line of its own."""
    items = list(parts)
    if not items:
        return text(opening + closing)
    return group(opening, indent(NOTHING, join(items, ",", SPACE)), NOTHING, closing)


def flat_width(document: Document) -> int | None:
    """The width of the document on one line; None where it cannot stand on one."""
    width = 0
    for part in _flat_parts(document):
        if isinstance(part, Text):
            width += part.width
        elif part.flat is None:
            return None
        else:
            width += len(part.flat)
    return width


def _flat_parts(document: Document) -> Iterator[Text | Line]:
    waiting = [document]
    while waiting:
        match waiting.pop():
            case Text() | Line() as part:
                yield part
            case Group(content) | Indent(content):
                waiting.append(content)
            case Concat(parts):
                waiting.extend(reversed(parts))
            case Choice(flat):
                waiting.append(flat)
            case other:
                assert_never(other)


# What is left to write: its indentation, whether it stands on one line, and the document.
_Waiting: TypeAlias = list[tuple[int, bool, Document]]


def render(document: Document, width: float = WIDTH) -> str:
    """The text of a document, no line wider than `width` where that can be. No line ends in a space."""
    written: list[str] = []
    column = margin = 0
    waiting: _Waiting = [(0, False, document)]
    while waiting:
        indentation, flat, part = waiting.pop()
        match part:
            case Text(words):
                # The indentation is written with the first word of a line: an empty line stays empty.
                written += (" " * margin, words)
                column, margin = column + len(words), 0
            case Line(words):
                if flat and words is not None:
                    waiting.append((indentation, flat, text(words)))
                else:
                    written.append("\n")
                    column = margin = indentation
            case Group(content):
                waiting.append((indentation, flat or _fits(content, waiting, width - column), content))
            case Indent(content):
                waiting.append((indentation + INDENTATION, flat, content))
            case Concat(parts):
                waiting.extend((indentation, flat, inner) for inner in reversed(parts))
            case Choice(on_one_line, broken):
                waiting.append((indentation, flat, on_one_line if flat else broken(indentation)))
            case other:
                assert_never(other)
    return "".join(written)


def _fits(content: Document, after: _Waiting, room: float) -> bool:
    """Whether `content` on one line has room, with what follows up to the next place that may break."""
    for part in _flat_parts(content):
        if isinstance(part, Line) and part.flat is None:
            return False
        room -= part.width if isinstance(part, Text) else len(part.flat or "")
        if room < 0:
            return False
    return _words_before_break(after, room) <= room


def _words_before_break(after: _Waiting, enough: float) -> int:
    """The width of the text that must follow on this line; it is not counted past `enough`."""
    width = 0
    at = len(after)
    looking: list[Document] = []
    while width <= enough and (looking or at > 0):
        if not looking:
            at -= 1
            looking.append(after[at][2])
        match looking.pop():
            case Text(_, words):
                width += words
            case Line() | Choice():
                break
            case Group(content) | Indent(content):
                looking.append(content)
            case Concat(parts):
                looking.extend(reversed(parts))
            case other:
                assert_never(other)
    return width
