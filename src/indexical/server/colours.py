"""Semantic colours: what each word of a program is, and one colour for each coordinate."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics import Sink
from ..records import dataclass
from ..source import Span
from ..syntax.tokens import tokenize
from ..syntax.vocabulary import WORDS
from .analysis import Analysis

COORDINATES = 8
# The order is that of the protocol's numbers: a client is told it once.
TYPES = (
    *("keyword", "number", "string", "comment", "operator", "function", "parameter", "variable", "namespace"),
    *(f"coordinate{number + 1}" for number in range(COORDINATES)),
)
MODIFIERS = ("definition", "defaultLibrary")

_KINDS = {
    "input": "parameter",
    "parameter": "parameter",
    "definition": "variable",
    "local": "variable",
    "function": "function",
    "space": "namespace",
}


@dataclass(frozen=True, slots=True)
class Coloured:
    """A stretch of the text, the number of its type, and its modifiers as bits."""

    start: int
    end: int
    type: int
    modifiers: int


def colours(analysis: Analysis) -> list[Coloured]:
    """Every word with a meaning, in the order of the document. Coordinates take colours in the order in which they
    come."""
    shown = (_shown(analysis, found) for found in _coloured(analysis))
    return sorted((found for found in shown if found is not None), key=lambda found: found.start)


def _shown(analysis: Analysis, part: Coloured) -> Coloured | None:
    """A word where it stands in the document, if it does."""
    place = analysis.region.shown(Span(analysis.region.source, part.start, part.end))
    return None if place is None else Coloured(*place, part.type, part.modifiers)


def _coloured(analysis: Analysis) -> Iterator[Coloured]:
    tokens, comments = tokenize(analysis.region.source, Sink())
    order = {name: number % COORDINATES for number, name in enumerate(analysis.symbols.coordinates())}
    symbols = {found.span.start: found for found in analysis.symbols.occurrences}
    for comment in comments:
        yield _made(comment.start, comment.end, "comment")
    for token in tokens:
        found = symbols.get(token.start)
        if token.kind == "name" and found is not None:
            symbol = found.symbol
            if symbol.kind == "coordinate":
                yield _made(token.start, token.end, f"coordinate{order[symbol.name] + 1}")
            elif symbol.kind != "word":
                yield _made(token.start, token.end, _KINDS[symbol.kind], found.span in symbol.definitions)
            elif symbol.name in WORDS:
                yield _made(token.start, token.end, "function", built_in=True)
        elif token.kind in ("keyword", "number"):
            yield _made(token.start, token.end, token.kind)
        elif token.kind == "text":
            yield _made(token.start, token.end, "string")
        elif token.kind == "name":
            yield _made(token.start, token.end, "keyword")


def _made(start: int, end: int, type: str, defines: bool = False, built_in: bool = False) -> Coloured:
    return Coloured(start, end, TYPES.index(type), int(defines) + 2 * int(built_in))
