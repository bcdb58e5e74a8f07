"""The server over its protocol, with a real client, in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.server.test_names import ATTENTION

pytest.importorskip("pygls")

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

# A letter outside of the basic plane is two units of UTF-16: columns behind it are not offsets.
BROKEN = ATTENTION.replace("V[j, e]) *", "V[i, e]) *")
URI = "file:///tmp/attention.ix"
DOCUMENT = lsp.TextDocumentIdentifier(URI)


class Editor(LanguageClient):
    """A client that keeps the findings of each version."""

    def __init__(self) -> None:
        super().__init__("test", "1")
        self.published: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @self.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: lsp.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

    async def open(self, text: str, uri: str = URI) -> tuple[lsp.Diagnostic, ...]:
        item = lsp.TextDocumentItem(uri, "ix", 1, text)
        self.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return tuple((await asyncio.wait_for(self.published.get(), 30)).diagnostics)

    async def change(self, text: str, version: int) -> tuple[lsp.Diagnostic, ...]:
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        item = lsp.VersionedTextDocumentIdentifier(version, URI)
        self.text_document_did_change(lsp.DidChangeTextDocumentParams(item, [change]))
        return tuple((await asyncio.wait_for(self.published.get(), 30)).diagnostics)


def driven(session: Callable[[Editor], Awaitable[None]]) -> None:
    """Run a session with a server that is started for it and ended after it."""

    async def run() -> None:
        editor = Editor()
        await editor.start_io(sys.executable, "-c", "from indexical.cli import main; main()", "lsp", "--stdio")
        await editor.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
        editor.initialized(lsp.InitializedParams())
        try:
            await session(editor)
        finally:
            await editor.shutdown_async(None)
            editor.exit(None)
            await editor.stop()

    asyncio.run(run())


def at(text: str, words: str, more: int = 0) -> lsp.Position:
    offset = text.index(words) + more
    start = text.rfind("\n", 0, offset) + 1
    return lsp.Position(text.count("\n", 0, offset), len(text[start:offset].encode("utf-16-le")) // 2)


def edited(text: str, edits: Any) -> str:
    """A text with the edits of the protocol, for texts in which a column is an offset."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    places = [(starts[e.range.start.line] + e.range.start.character, e) for e in edits]
    for start, edit in sorted(places, key=lambda place: place[0], reverse=True):
        end = starts[edit.range.end.line] + edit.range.end.character
        text = text[:start] + edit.new_text + text[end:]
    return text


def test_a_session() -> None:
    async def session(editor: Editor) -> None:
        await _findings(editor)
        await _names(editor)
        await _changes(editor)
        await _elsewhere(editor)

    driven(session)


async def _findings(editor: Editor) -> None:
    (found,) = await editor.open("// 𝒜\n" + BROKEN)
    assert found.code == "IX403"
    assert found.code_description is not None
    assert found.code_description.href.endswith("IX403.md")
    assert found.range.start == at("// 𝒜\n" + BROKEN, "V[i, e]")
    assert found.related_information
    assert (await editor.change(ATTENTION + "let y = ;", 2))[0].severity == lsp.DiagnosticSeverity.Error
    assert await editor.change(ATTENTION, 3) == ()


async def _names(editor: Editor) -> None:
    place = at(ATTENTION, "j <= i")
    hovered = await editor.text_document_hover_async(lsp.HoverParams(DOCUMENT, at(ATTENTION, "out[")))
    assert hovered is not None
    assert "who asks?" in str(hovered.contents)
    (binder,) = await editor.text_document_definition_async(lsp.DefinitionParams(DOCUMENT, place))  # type: ignore[misc]
    assert binder.range.start == at(ATTENTION, "weights[i, j] =", len("weights[i, "))
    references = await editor.text_document_references_async(
        lsp.ReferenceParams(lsp.ReferenceContext(True), DOCUMENT, place)
    )
    assert references is not None
    assert len(references) == 12
    proposed = await editor.text_document_completion_async(lsp.CompletionParams(DOCUMENT, place))
    assert "softmax" in {item.label for item in proposed.items}  # type: ignore[union-attr]
    colours = await editor.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(DOCUMENT))
    assert colours is not None
    assert len(colours.data) % 5 == 0
    everywhere = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))
    (hint,) = await editor.text_document_inlay_hint_async(lsp.InlayHintParams(DOCUMENT, everywhere))  # type: ignore[misc]
    assert hint.label == "  i asks j · compares d · carries e"
    outline = await editor.text_document_document_symbol_async(lsp.DocumentSymbolParams(DOCUMENT))
    assert [symbol.name for symbol in outline or ()] == ["Q", "K", "V", "limit", "scores", "weights", "out"]


async def _changes(editor: Editor) -> None:
    place = at(ATTENTION, "j <= i")
    renaming = await editor.text_document_rename_async(lsp.RenameParams(DOCUMENT, place, "key"))
    assert renaming is not None
    assert renaming.changes is not None
    assert "sum[key](weights[i, key] * V[key, e])" in edited(ATTENTION, renaming.changes[URI])
    with pytest.raises(JsonRpcException, match="means something else"):
        await editor.text_document_rename_async(lsp.RenameParams(DOCUMENT, place, "i"))
    untidy = ATTENTION.replace("let out[i, e]     =", "let out[i,e]=") + "let a[i] = soft(limit);"
    await editor.change(untidy, 4)
    params = lsp.DocumentFormattingParams(DOCUMENT, lsp.FormattingOptions(4, True))
    assert "let out[i, e] " in edited(untidy, await editor.text_document_formatting_async(params))
    typo = ATTENTION.replace("scores[i, j])", "score[i, j])")
    await editor.change(typo, 5)
    range = lsp.Range(at(typo, "score[i, j])"), at(typo, "score[i, j])"))
    actions = await editor.text_document_code_action_async(
        lsp.CodeActionParams(DOCUMENT, range, lsp.CodeActionContext([]))
    )
    assert actions
    for action in actions:
        assert isinstance(action, lsp.CodeAction)
        assert action.edit is not None
        assert action.edit.changes is not None
        assert edited(typo, action.edit.changes[URI]) == ATTENTION
    assert {action.kind for action in actions} == {"quickfix", "source.fixAll"}  # type: ignore[union-attr]


async def _elsewhere(editor: Editor) -> None:
    """A function of the library is found in its file, and a plan is made without a call."""
    text = "use std::norms::{rms_norm};\ninput x[i, m], g[m];\nlet y = rms_norm(x, g, 1e-5);\n"
    await editor.change(text, 6)
    place = at(text, "rms_norm(")
    (found,) = await editor.text_document_definition_async(lsp.DefinitionParams(DOCUMENT, place))  # type: ignore[misc]
    assert found.uri.endswith("std/norms.ix")
    assert found.range.start.line > 0
    answer = await editor.protocol.send_request_async("indexical/plan", {"textDocument": {"uri": URI}})
    assert "y[i, m]" in answer.plan
    page = "file:///tmp/page.md"
    await editor.open(f"# Page\n\n```ix\n{text}```\n", page)
    renaming = await editor.text_document_rename_async(
        lsp.RenameParams(lsp.TextDocumentIdentifier(page), lsp.Position(4, 8), "n")
    )
    assert renaming is not None
    assert renaming.changes is not None
    assert [edit.range.start.line for edit in renaming.changes[page]] == [4]
