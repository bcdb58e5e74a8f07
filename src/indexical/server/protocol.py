"""The language server over its protocol: requests of an editor, answered by the rooms beside this one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from .. import __version__
from ..checker.modules import used_function
from ..syntax import tree
from . import colours, completion, edits, hints, hover
from .actions import actions
from .analysis import Analysis, Document
from .convert import UNITS, Places, diagnostic, item, outline, packed, path_of, text_edits, uri_of, utf16

_LEGEND = lsp.SemanticTokensLegend(token_types=list(colours.TYPES), token_modifiers=list(colours.MODIFIERS))


# A request about one place of a document.
Asked = (
    lsp.HoverParams
    | lsp.CompletionParams
    | lsp.DefinitionParams
    | lsp.ReferenceParams
    | lsp.DocumentHighlightParams
    | lsp.PrepareRenameParams
    | lsp.RenameParams
)


class Server(LanguageServer):
    """The documents that are open, and how the client counts columns."""

    def __init__(self) -> None:
        super().__init__("indexical", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental)
        self.documents: dict[str, Document] = {}

    def open(self, uri: str) -> tuple[Document, Places]:
        """A document as it stands now."""
        text = self.workspace.get_text_document(uri).source
        document = self.documents.get(uri)
        if document is None:
            document = self.documents[uri] = Document(path_of(uri), text)
        elif document.text != text:
            document.change(text)
        return document, self.places(text)

    def places(self, text: str) -> Places:
        return Places(text, UNITS.get(self.workspace.position_encoding, utf16))

    def publish(self, uri: str, version: int | None = None) -> None:
        document, places = self.open(uri)
        if document.is_readable:
            found = [diagnostic(uri, finding, document, places) for finding in document.findings]
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))

    def asked(self, params: Asked) -> tuple[Document, Places, int]:
        document, places = self.open(params.text_document.uri)
        return document, places, places.offset(params.position)


# -------------------------------------------------------------------- features


def serve() -> Server:
    """A server with all that it can do, not started yet."""
    server = Server()
    feature = server.feature

    @feature(lsp.INITIALIZED)
    def initialized(_: lsp.InitializedParams) -> None:
        Thread(target=_warm, daemon=True).start()

    @feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.publish(params.text_document.uri, params.text_document.version)

    @feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.publish(params.text_document.uri, params.text_document.version)

    @feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.documents.pop(uri, None)
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    _add_reading(server)
    _add_navigation(server)
    _add_changing(server)
    return server


def _warm() -> None:
    """Load what the first question about a definition needs."""
    document = Document("warm.ix", "input x[i]; let y[i] = x[i] + 1.0;")
    hover.hover(document, document.text.index("y"))


def _add_reading(server: Server) -> None:
    feature = server.feature

    @feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        document, places, offset = server.asked(params)
        found = hover.hover(document, offset)
        if found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found[0]), places.of(found[1]))

    @feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["[", "(", ":", "{", " "]))
    def completed(params: lsp.CompletionParams) -> lsp.CompletionList:
        document, _, offset = server.asked(params)
        found = completion.proposals(document, offset)
        return lsp.CompletionList(False, [item(number, proposal) for number, proposal in enumerate(found)])

    @feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hinted(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        document, places = server.open(params.text_document.uri)
        start, end = places.offset(params.range.start), places.offset(params.range.end)
        found = [hint for analysis in document.analyses for hint in hints.hints(analysis) if start <= hint.at <= end]
        return [lsp.InlayHint(places.position(h.at), h.words) for h in found]

    @feature(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, _LEGEND)
    def coloured(params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        document, places = server.open(params.text_document.uri)
        return lsp.SemanticTokens(data=packed([c for a in document.analyses for c in colours.colours(a)], places))

    @feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outlined(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        document, places = server.open(params.text_document.uri)
        return [symbol for analysis in document.analyses for symbol in outline(analysis, places)]

    @feature("indexical/plan")
    def planned(params: Any) -> dict[str, Any]:
        document, places = server.open(params.textDocument.uri)
        at = getattr(params, "position", None)
        offset = 0 if at is None else places.offset(lsp.Position(at.line, at.character))
        place = document.at(offset)
        analysis = next(iter(document.analyses), None) if place is None else place[0]
        return {"plan": None if analysis is None or analysis.plan is None else str(analysis.plan)}


def _add_navigation(server: Server) -> None:
    feature = server.feature

    @feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def defined(params: lsp.DefinitionParams) -> list[lsp.Location] | None:
        document, places, offset = server.asked(params)
        named = document.name_at(offset)
        if named is None:
            return None
        analysis, found = named
        elsewhere = _module(document, analysis, found)
        if elsewhere is not None:
            return [elsewhere]
        spans = [found.binder] if found.symbol.kind == "coordinate" else found.symbol.definitions
        return [lsp.Location(params.text_document.uri, places.of(span)) for span in spans if span is not None]

    @feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def referred(params: lsp.ReferenceParams) -> list[lsp.Location] | None:
        document, places, offset = server.asked(params)
        named = document.name_at(offset)
        if named is None:
            return None
        found = named[1]
        left_out = [] if params.context.include_declaration else found.symbol.definitions
        spans = [span for span in dict.fromkeys(found.symbol.places) if span not in left_out]
        return [lsp.Location(params.text_document.uri, places.of(span)) for span in spans]

    @feature(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlighted(params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        document, places, offset = server.asked(params)
        named = document.name_at(offset)
        spans = [] if named is None else list(dict.fromkeys(named[1].symbol.places))
        return [lsp.DocumentHighlight(places.of(span)) for span in spans]


def _module(document: Document, analysis: Analysis, found: Any) -> lsp.Location | None:
    """The place of a function that another file defines."""
    statement = analysis.statement_at(found.symbol.definitions[0].start) if found.symbol.definitions else None
    if found.symbol.kind != "function" or not isinstance(statement, tree.Use):
        return None
    function = used_function(analysis.file, statement, found.symbol.name)
    if function is None:
        return None
    span = function.tree.name_span
    return lsp.Location(uri_of(span, "", document), Places(span.source.text, utf16).of(span))


def _add_changing(server: Server) -> None:
    feature = server.feature

    @feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatted(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        document, places = server.open(params.text_document.uri)
        return text_edits(edits.formatted(document), places)

    @feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def preparing(params: lsp.PrepareRenameParams) -> lsp.Range:
        document, places, offset = server.asked(params)
        return places.of(_kept(lambda: edits.renameable(document, offset))[1].span)

    @feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def renamed(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        document, places, offset = server.asked(params)
        found = _kept(lambda: edits.renamed(document, offset, params.new_name))
        return lsp.WorkspaceEdit({params.text_document.uri: text_edits(found, places)})

    kinds = [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.SourceFixAll]

    @feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=kinds))
    def acted(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document, places = server.open(params.text_document.uri)
        return actions(params, document, places)


def _kept(answer: Callable[[], Any]) -> Any:
    """An answer, or its refusal as the protocol says it."""
    try:
        return answer()
    except edits.Refused as refused:
        raise JsonRpcException(str(refused), code=lsp.LSPErrorCodes.RequestFailed) from None
