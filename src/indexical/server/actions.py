"""Changes that an editor offers at a place: the mend of a finding, a comment that allows it, one mend for all."""

from __future__ import annotations

from lsprotocol import types as lsp

from ..mending import mended
from ..source import Source
from . import edits
from .analysis import Document
from .convert import Places, diagnostic, text_edits


def actions(params: lsp.CodeActionParams, document: Document, places: Places) -> list[lsp.CodeAction]:
    """The mends of the findings in a range, the comments that allow them, and one mend for all."""
    uri = params.text_document.uri
    start, end = places.offset(params.range.start), places.offset(params.range.end)
    found: list[lsp.CodeAction] = []

    def add(title: str, edit: edits.Edit, kind: str, finding: lsp.Diagnostic | None, preferred: bool) -> None:
        change = lsp.WorkspaceEdit({uri: text_edits([edit], places)})
        findings = [finding] if finding else None
        found.append(lsp.CodeAction(title, kind, findings, preferred or None, edit=change))

    for analysis in document.analyses:
        for finding in analysis.findings:
            here = [label.span.shown for label in finding.labels if document.has(label.span)]
            if not any(span.start <= end and start <= span.end for span in here):
                continue
            shown = diagnostic(uri, finding, document, places)
            place = finding.fix and document.has(finding.fix.span) and analysis.region.shown(finding.fix.span)
            if finding.fix is not None and place:
                fix = edits.Edit(*place, finding.fix.replacement)
                words = f"Write `{fix.text}`" if 0 < len(fix.text) < 60 else "Remove it" if not fix.text else "Mend it"
                add(f"{words} ({finding.code})", fix, lsp.CodeActionKind.QuickFix, shown, True)
            allowed = edits.allowance(analysis, finding)
            if allowed is not None:
                add(f"Allow {finding.code} here", allowed, lsp.CodeActionKind.QuickFix, shown, False)
    text, count = mended(Source(document.name, document.text))
    if count:
        whole = edits.Edit(0, len(document.text), text)
        add("Mend all that can be mended", whole, lsp.CodeActionKind.SourceFixAll, None, False)
    only = params.context.only
    return [action for action in found if only is None or any((action.kind or "").startswith(k) for k in only)]
