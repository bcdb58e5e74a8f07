"""Answers about a document, in the types of the protocol: places, findings, words, colours, an outline, changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp

from ..checker.modules import standard_folder
from ..codes import page_of
from ..diagnostics import Diagnostic
from ..source import Source, Span
from ..syntax import tree
from . import colours, completion, edits
from .analysis import Analysis, Document

_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
_PROPOSED = {
    "coordinate": lsp.CompletionItemKind.Field,
    "tensor": lsp.CompletionItemKind.Variable,
    "function": lsp.CompletionItemKind.Function,
    "module": lsp.CompletionItemKind.Module,
    "keyword": lsp.CompletionItemKind.Keyword,
    "dtype": lsp.CompletionItemKind.TypeParameter,
    "role": lsp.CompletionItemKind.EnumMember,
}


class Places:
    """Offsets in a text and positions as the client counts them: lines from 0, columns in its units."""

    def __init__(self, text: str, units: Callable[[str], int]) -> None:
        self._source = Source("", text)
        self._units = units

    def position(self, offset: int) -> lsp.Position:
        line, column = self._source.position(min(offset, len(self._source.text)))
        start = self._source.line_starts[line - 1]
        return lsp.Position(line - 1, self._units(self._source.text[start : start + column - 1]))

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(end))

    def of(self, span: Span) -> lsp.Range:
        """A span where it stands in the file that a person wrote."""
        return self.range(span.shown.start, span.shown.end)

    def offset(self, position: lsp.Position) -> int:
        starts, text = self._source.line_starts, self._source.text
        if position.line >= len(starts):
            return len(text)
        start = starts[position.line]
        end = starts[position.line + 1] - 1 if position.line + 1 < len(starts) else len(text)
        column = 0
        for offset in range(start, end):
            if column >= position.character:
                return offset
            column += self._units(text[offset])
        return end


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


UNITS: dict[Any, Callable[[str], int]] = {
    lsp.PositionEncodingKind.Utf8: lambda text: len(text.encode()),
    lsp.PositionEncodingKind.Utf32: len,
}


def path_of(uri: str) -> str:
    """The path of a document; one that was never saved has its name alone."""
    parsed = urlparse(uri)
    path = unquote(parsed.path)
    if os.name == "nt" and path.startswith("/"):
        path = path[1:]
    return path if parsed.scheme == "file" else Path(path).name or "program.ix"


def uri_of(span: Span, uri: str, document: Document) -> str:
    if document.has(span):
        return uri
    path = Path(span.source.name)
    return (standard_folder() / path.name if span.source.name.startswith("std/") else path.resolve()).as_uri()


def diagnostic(uri: str, finding: Diagnostic, document: Document, places: Places) -> lsp.Diagnostic:
    """A finding, at the first of its places that is in the document; the others stand beside it."""
    here = [label for label in finding.labels if document.has(label.span)]
    message = "\n".join(
        [
            finding.message,
            *(f"{label.text}" for label in here[:1] if label.text),
            *(f"note: {note}" for note in finding.notes),
            *([f"help: {finding.help}"] if finding.help else []),
        ]
    )
    related = [
        lsp.DiagnosticRelatedInformation(
            lsp.Location(uri_of(label.span, uri, document), _range_of(label.span, document, places)),
            label.text or "here",
        )
        for label in finding.labels
        if label not in here[:1]
    ]
    return lsp.Diagnostic(
        range=places.of(here[0].span) if here else places.range(0, 0),
        message=message,
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        code_description=lsp.CodeDescription(page_of(finding.code)),
        source="ix",
        related_information=related or None,
    )


def _range_of(span: Span, document: Document, places: Places) -> lsp.Range:
    return places.of(span) if document.has(span) else Places(span.source.text, utf16).of(span)


def item(number: int, proposal: completion.Proposal) -> lsp.CompletionItem:
    is_snippet = proposal.written is not None and "$" in proposal.written
    return lsp.CompletionItem(
        proposal.word,
        kind=_PROPOSED[proposal.kind],
        detail=proposal.detail or None,
        sort_text=f"{number:04}",
        insert_text=proposal.written,
        insert_text_format=lsp.InsertTextFormat.Snippet if is_snippet else None,
    )


def packed(found: Iterable[colours.Coloured], places: Places) -> list[int]:
    """Colours as the protocol packs them: each place relative to the one before."""
    data: list[int] = []
    line = column = 0
    for part in found:
        start, end = places.position(part.start), places.position(part.end)
        first = start.character if start.line != line else start.character - column
        data += [start.line - line, first, end.character - start.character, part.type, part.modifiers]
        line, column = start.line, start.character
    return data


def outline(analysis: Analysis, places: Places) -> list[lsp.DocumentSymbol]:
    found: list[lsp.DocumentSymbol] = []

    def add(name: str, kind: lsp.SymbolKind, span: Span, head: Span, detail: str) -> None:
        found.append(lsp.DocumentSymbol(name, kind, places.of(span), places.of(head), detail=detail))

    for statement in analysis.file.statements:
        match statement:
            case tree.Input(items):
                for item in items:
                    add(item.name, lsp.SymbolKind.Field, item.span, item.name_span, "input")
            case tree.Let(names=()):
                add(statement.name, lsp.SymbolKind.Variable, statement.span, statement.name_span, "let")
            case tree.Let(names=names):
                for name in names:
                    add(name.name, lsp.SymbolKind.Variable, statement.span, name.span, "let")
            case tree.Fn(name, span):
                add(name, lsp.SymbolKind.Function, statement.span, span, "fn")
            case tree.Contract(name):
                add(name.name, lsp.SymbolKind.Interface, statement.span, name.span, "attention")
    return found


def text_edits(found: Iterable[edits.Edit], places: Places) -> list[lsp.TextEdit]:
    return [lsp.TextEdit(places.range(edit.start, edit.end), edit.text) for edit in found]
