"""`// allow(CODE): reason`: silences one code in the statement whose last line it ends, on its own line, or on the next
if it stands alone."""

from __future__ import annotations

import re

from ..codes import CODES
from ..diagnostics import Diagnostic, Label
from ..source import Source, Span
from ..syntax import tree

_PATTERN = re.compile(r"//\s*allow\(\s*(?P<code>\w*)\s*\)\s*(?P<reason>:.*)?")


def apply_allows(file: tree.File, found: list[Diagnostic]) -> list[Diagnostic]:
    """The findings that remain, and one for every allow that silences nothing. Errors always remain."""
    source = file.source
    result = list(found)
    for comment in file.comments:
        match = _PATTERN.match(comment.text)
        if match is None:
            continue
        span = Span(source, comment.start, comment.end)
        code = match["code"]
        line, column = source.position(comment.start)
        alone = not source.line(line)[: column - 1].strip()
        lines = {line, _next_code_line(file, line)} if alone else _trailed(file, line)
        silenced = [
            diagnostic
            for diagnostic in result
            if diagnostic.code == code
            and diagnostic.severity != "error"
            and any(_touches(label.span, source, lines) for label in diagnostic.labels)
        ]
        result = [diagnostic for diagnostic in result if diagnostic not in silenced]
        problem = _problem(code, match["reason"], bool(silenced))
        if problem is not None:
            help = "remove it, or say `// allow(CODE): reason`"
            result.append(Diagnostic("IX214", problem, (Label(span),), help=help))
    return result


def _touches(span: Span, source: Source, lines: set[int]) -> bool:
    """Whether a finding speaks of one of these lines. Of several that it speaks of, any will do."""
    last = span.source.position(max(span.start, span.end - 1))[0]
    return span.source is source and not lines.isdisjoint(range(span.line, last + 1))


def _trailed(file: tree.File, line: int) -> set[int]:
    """The lines of the statement that a comment at the end of this line trails: the layout may have broken it."""
    lines = {line}
    for statement in file.statements:
        first, last = (file.source.position(at)[0] for at in (statement.span.start, statement.span.end - 1))
        if last == line:
            lines.update(range(first, last + 1))
    return lines


def _next_code_line(file: tree.File, line: int) -> int:
    """The next line that holds more than a comment."""
    while line < file.source.line_count:
        line += 1
        text = file.source.line(line).strip()
        if text and not text.startswith("//"):
            return line
    return line


def _problem(code: str, reason: str | None, silenced: bool) -> str | None:
    if code not in CODES:
        return f"`{code}` is not a code"
    if CODES[code].severity == "error":
        return f"{code} is an error, and errors cannot be allowed"
    if not silenced:
        return f"nothing here is {code}: this allow silences nothing"
    if reason is None or not reason[1:].strip():
        return "an allow needs a reason"
    return None
