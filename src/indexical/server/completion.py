"""The words that may be written at a place: found from the words before it, so that half a statement is enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..checker.modules import standard_folder
from ..diagnostics import Sink
from ..records import dataclass
from ..std.library import entries
from ..syntax.tokens import STATEMENTS, Token, tokenize
from ..syntax.vocabulary import DTYPES, FLAGS, FUNCTIONS, NORMALISERS, REDUCTIONS, ROLES, STORED_DTYPES
from .analysis import Analysis, Document
from .symbols import Symbol

ProposalKind = Literal["coordinate", "tensor", "function", "module", "keyword", "dtype", "role"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A word, what it is, a line about it, and what is written for it where that is more: `$0` is the cursor."""

    word: str
    kind: ProposalKind
    detail: str = ""
    written: str | None = None


def proposals(document: Document, offset: int) -> list[Proposal]:
    """The words that may stand at an offset, each once; the nearest kind first."""
    place = document.at(offset)
    if place is None:
        return []
    analysis, offset = place
    tokens, comments = tokenize(analysis.region.source, Sink())
    text = analysis.region.source.text
    if any(comment.start < offset and "\n" not in text[comment.start : offset] for comment in comments):
        return []
    before = [token for token in tokens if token.end < offset or (token.end == offset and not _is_word(token))]
    before = [token for token in before if token.kind != "end"]
    if any(token.kind in ("number", "text") and token.start < offset <= token.end for token in tokens):
        return []
    found = {proposal.word: proposal for proposal in _proposed(document, analysis, before, offset)}
    return list(found.values())


def _is_word(token: Token) -> bool:
    return token.kind in ("name", "keyword")


def _proposed(document: Document, analysis: Analysis, before: list[Token], offset: int) -> Iterator[Proposal]:
    last = [token.text for token in before[-3:]]
    statement = _statement(before)
    if not statement:
        yield from (Proposal(word, "keyword") for word in sorted({*STATEMENTS, "attention"}))
        return
    if statement[0] == "use":
        yield from _modules(last)
    elif last[-1] == ":" and statement[0] == "input":
        yield from (Proposal(dtype, "dtype") for dtype in (*DTYPES, *STORED_DTYPES))
    elif last[-1] == "as":
        yield from (Proposal(dtype, "dtype") for dtype in DTYPES)
    elif statement[0] == "attention":
        yield from (Proposal(word, "role") for word in (*ROLES, *FLAGS, "rows", "groups"))
        yield from _coordinates(analysis)
        yield from _tensors(analysis, offset)
    elif _innermost(before) == "[" or last[-2:] == ["size", "("] or statement[0] == "space":
        yield from _coordinates(analysis)
        yield from _tensors(analysis, offset)
    elif statement[0] == "output":
        yield from _tensors(analysis, offset)
    else:
        yield from _tensors(analysis, offset)
        yield from _coordinates(analysis)
        yield from _functions(analysis)
        yield from (Proposal(word, "keyword") for word in ("where", "if", "else", "true", "false", "as"))


def _statement(before: list[Token]) -> list[str]:
    """The words of the statement in the making."""
    words: list[str] = []
    for token in before:
        words.append(token.text)
        if token.text in (";", "}") and words.count("{") <= words.count("}"):
            words = []
    return words


def _innermost(before: list[Token]) -> str:
    """The bracket that stands open."""
    opened: list[str] = []
    for token in before:
        if token.text in ("(", "[", "{"):
            opened.append(token.text)
        elif token.text in (")", "]", "}") and opened:
            opened.pop()
    return opened[-1] if opened else ""


def _modules(last: list[str]) -> Iterator[Proposal]:
    modules = sorted(path.stem for path in standard_folder().glob("*.ix"))
    if last[-1] == "use":
        yield Proposal("std", "module", "the standard library", "std::")
    elif last[-2:] == ["std", "::"]:
        yield from (Proposal(module, "module", f"std::{module}", f"{module}::{{$0}};") for module in modules)
    elif last[-1] in ("{", ",", "::"):
        yield from (Proposal(name, "function", entry.header) for name, entry in entries().items())


def _coordinates(analysis: Analysis) -> Iterator[Proposal]:
    yield from (Proposal(name, "coordinate", "coordinate") for name in analysis.symbols.coordinates())


def _tensors(analysis: Analysis, offset: int) -> Iterator[Proposal]:
    for name, symbol in analysis.symbols.unit_at(offset).names.items():
        if symbol.kind != "function":
            yield Proposal(name, "tensor", _home(analysis, symbol))
    local = (o.symbol for o in analysis.symbols.occurrences if o.symbol.kind == "local")
    yield from (Proposal(symbol.name, "tensor", "local") for symbol in local)


def _home(analysis: Analysis, symbol: Symbol) -> str:
    """A tensor with its bracket as the text has it."""
    place = symbol.definitions[0]
    rest = place.source.text[place.end : place.end + 80]
    bracket = rest[: rest.index("]") + 1] if rest.startswith("[") and "]" in rest else ""
    return f"{symbol.kind} {symbol.name}{' '.join(bracket.split())}"


def _functions(analysis: Analysis) -> Iterator[Proposal]:
    for word in (*REDUCTIONS, *NORMALISERS):
        yield Proposal(word, "function", f"{word}[j](…)", f"{word}[$1]($0)")
    for word, count in FUNCTIONS.items():
        if word not in REDUCTIONS:
            given = "x, y, …" if count is None else ", ".join(("x", "y", "z")[:count])
            yield Proposal(word, "function", f"{word}({given})", f"{word}($0)")
    yield Proposal("size", "function", "size(d)", "size($0)")
    yield Proposal("pi", "keyword", "3.14159…")
    for name, symbol in analysis.symbols.unit.names.items():
        if symbol.kind == "function":
            entry = entries().get(name)
            yield Proposal(name, "function", entry.header if entry else name, f"{name}($0)")
