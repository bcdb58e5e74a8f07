"""A cursor over tokens: looking ahead, taking, and stopping where something else was expected."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ..diagnostics import Fix, Label, Sink
from ..source import Source, Span
from . import tree
from .tokens import Token, tokenize
from .vocabulary import FOREIGN, FOREIGN_WORDS, MAXIMUM_DEPTH

T = TypeVar("T")

CLOSING = {"(": ")", "[": "]", "{": "}"}


# Kinds of tokens that are what their text is.
_FIXED = ("symbol", "keyword")
# How far a cursor looks ahead.
_AHEAD = 2


class SyntaxStop(Exception):
    """A statement cannot be read on; what is wrong has been reported."""


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, source: Source, sink: Sink) -> None:
        self.source = source
        self.sink = sink
        self.tokens, self.comments = tokenize(source, sink)
        self.tokens += self.tokens[-1:] * _AHEAD
        # The sink may hold findings about other files, and findings without a place.
        places = [label.span for found in sink for label in found.labels[:1]]
        self.unreadable = sorted(place.start for place in places if place.source is source)
        self.at = 0
        self.statement_start = 0
        self.statement_at = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next_is(self, text: str, ahead: int = 0) -> bool:
        token = self.tokens[self.at + ahead]
        return token[1] == text and token[0] in _FIXED

    def advance(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> Token | None:
        token = self.tokens[self.at]
        if token[1] != text or token[0] not in _FIXED:
            return None
        self.at += 1
        return token

    def expect(self, text: str, purpose: str) -> Token:
        token = self.accept(text)
        if token is not None:
            return token
        self.fail(f"expected `{text}` {purpose}")

    def name(self, purpose: str) -> tree.Name:
        token = self.tokens[self.at]
        if token.kind != "name":
            self.fail(f"expected {purpose}")
        self.at += 1
        return tree.Name(token.text, self.span(token))

    def span(self, token: Token) -> Span:
        return Span(self.source, token[2], token[3])

    def since(self, start: int) -> Span:
        """From an offset to the end of what was read last."""
        return Span(self.source, start, max(start, self.tokens[self.at - 1].end if self.at else 0))

    def fail(self, expected: str, help: str | None = None, fix: Fix | None = None) -> NoReturn:
        """Stop, because the next word is not what was expected."""
        help = help or FOREIGN.get(self.token.text)
        message = f"{expected}, found {self.found()}"
        self.stop("IX101", message, Label(self.place()), help=help, fix=fix or self.meant())

    def meant(self) -> Fix | None:
        """The fix of a word that is another one in this language."""
        word = FOREIGN_WORDS.get(self.token.text)
        return None if word is None else Fix(self.place(), word)

    def stop(
        self, code: str, message: str, *labels: Label, help: str | None = None, fix: Fix | None = None
    ) -> NoReturn:
        """Report, and give the statement up.

        What was passed over as unreadable is the likelier cause, and is reported already.
        """
        before = bisect_left(self.unreadable, self.statement_start)
        if before == bisect_left(self.unreadable, self.token.start + 1):
            self.sink.report(code, message, *labels, help=help, fix=fix)
        raise SyntaxStop

    def found(self) -> str:
        token = self.token
        if token.kind == "end":
            return "the end of the file"
        shown = token.text if len(token.text) <= 24 else token.text[:24] + "…"
        if token.kind == "keyword":
            return f"the word `{shown}`"
        return f"`{shown}`"

    def place(self) -> Span:
        """The place of the next word; at the end of the file, just after the last word."""
        if self.token.kind == "end" and self.at:
            last = self.tokens[self.at - 1]
            return Span(self.source, last.end, last.end)
        return self.span(self.token)

    def listed(self, opening: str, item: Callable[[], T], what: str) -> tuple[list[T], Token]:
        """`opening item, item, …` up to and with its closing bracket; a last comma is fine."""
        start = self.expect(opening, f"before {what}")
        closing = CLOSING[opening]
        items: list[T] = []
        while not self.next_is(closing):
            items.append(item())
            if not self.accept(","):
                break
        return items, self.close(start, what)

    def close(self, opening: Token, what: str) -> Token:
        closing = CLOSING[opening.text]
        if self.next_is(closing):
            return self.advance()
        message = f"expected `{closing}` after {what}, found {self.found()}"
        help = FOREIGN.get(self.token.text)
        if self.next_is("="):
            help = "a size is stated as `i in 0..5`, and `==` compares"
        if self.next_is("where"):
            help = "a guard stands after the whole right-hand side, or inside the bracket of a reduction or normaliser"
        opened = Label(self.span(opening), "opened here")
        self.stop("IX102", message, Label(self.place()), opened, help=help, fix=self.meant())

    def deepen(self) -> None:
        """One node further down. Counted wherever the parser calls itself: Python's own stack is finite."""
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            self.too_deep(self.place())

    def too_deep(self, span: Span) -> NoReturn:
        self.sink.report(
            "IX106",
            f"this is nested more than {MAXIMUM_DEPTH} deep",
            span,
            help="name a part of it with `let`",
        )
        raise SyntaxStop
