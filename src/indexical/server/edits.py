"""Changes to a document: laid out anew, renamed, mended."""

from __future__ import annotations

import re
import textwrap

from ..api import examine
from ..diagnostics import Diagnostic, Sink
from ..records import dataclass
from ..source import Source
from ..syntax.format import format_source
from ..syntax.parse import parse
from ..syntax.tokens import KEYWORDS
from ..syntax.vocabulary import RESERVED
from .analysis import Analysis, Document
from .regions import Region
from .symbols import Occurrence


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in place of the document from `start` to `end`."""

    start: int
    end: int
    text: str


class Refused(ValueError):
    """A change that cannot be made, and why."""


# ---------------------------------------------------------------------- layout


def formatted(document: Document) -> list[Edit]:
    """Every program of the document in the house's layout; one with a mistake in its text stays as it is."""
    return [edit for analysis in document.analyses for edit in _formatted(analysis.region)]


def _formatted(region: Region) -> list[Edit]:
    """A program in a page or a string keeps the indent of its place, and the lines around it. One whose text is put
    together from pieces stays as it is."""
    text = region.source.text
    body = text.strip("\n")
    lead, tail = text[: len(text) - len(text.lstrip("\n"))], text[len(text.rstrip()) :]
    indent = _indent(body)
    sink = Sink()
    tree = parse(Source(region.source.name, textwrap.dedent(body) + "\n"), sink)
    if sink.failed or not body.strip() or not region.is_one_piece:
        return []
    new = format_source(tree)
    if not region.is_whole:
        new = lead + textwrap.indent(new.rstrip("\n"), indent) + tail
    return [] if new == text else [Edit(region.start, region.end, new)]


def _indent(text: str) -> str:
    """The indent that all lines have in common."""
    found = [re.match(r"[ \t]*", line) for line in text.splitlines() if line.strip()]
    return min((match.group() for match in found if match), key=len, default="")


# -------------------------------------------------------------------- renaming


def renameable(document: Document, offset: int) -> tuple[Analysis, Occurrence]:
    """The name at an offset, where it is the program's to choose."""
    named = document.name_at(offset)
    if named is None:
        raise Refused("there is no name here")
    analysis, found = named
    if found.symbol.kind == "word":
        raise Refused(f"`{found.symbol.name}` is a word of the language, or nothing defines it")
    if found.symbol.kind == "function" and _is_used(analysis, found):
        raise Refused(f"`{found.symbol.name}` is a function of another file")
    return named


def _is_used(analysis: Analysis, found: Occurrence) -> bool:
    """Whether a function is fetched with `use`."""
    statement = analysis.statement_at(found.symbol.definitions[0].start)
    return type(statement).__name__ == "Use"


def renamed(document: Document, offset: int, new: str) -> list[Edit]:
    """The edits that give the name at an offset another name, everywhere. One that would change the meaning is
    refused: the program must be as free of errors as before."""
    analysis, found = renameable(document, offset)
    if not new.isidentifier() or new in KEYWORDS:
        raise Refused(f"`{new}` is not a name")
    if new in RESERVED:
        raise Refused(f"`{new}` is a word of the language")
    if new == found.symbol.name:
        return []
    if new in analysis.symbols.taken(found.symbol):
        raise Refused(f"`{new}` means something else in this program")
    spans = list(dict.fromkeys(found.symbol.places))
    shown = [analysis.region.shown(span) for span in spans]
    text = applied(analysis.region.source.text, [Edit(span.start, span.end, new) for span in spans])
    after = examine(Source(analysis.region.source.name, text))[1]
    if _errors(after) > _errors(analysis.findings):
        raise Refused(f"with `{new}` the program has an error: {after[0].message}")
    if None in shown:
        raise Refused(f"`{found.symbol.name}` is spelled with escapes somewhere in this file")
    return [Edit(*place, new) for place in dict.fromkeys(shown) if place is not None]


def _errors(found: list[Diagnostic]) -> int:
    return sum(finding.severity == "error" for finding in found)


def applied(text: str, edits: list[Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


# --------------------------------------------------------------------- mending


def allowance(analysis: Analysis, finding: Diagnostic) -> Edit | None:
    """A comment that allows a warning, behind its statement, to be filled with the reason. Errors and findings
    elsewhere have none."""
    source = analysis.region.source
    if finding.severity == "error" or not finding.labels or finding.labels[0].span.source is not source:
        return None
    span = finding.labels[0].span
    statement = analysis.statement_at(span.start)
    line = source.position((statement.span if statement else span).end - 1)[0]
    end = source.line_starts[line - 1] + len(source.line(line))
    comment = next((c for c in analysis.file.comments if c.start <= end and c.end == end), None)
    if comment is not None:
        return None
    end = analysis.region.outside(end - 1) + 1
    return Edit(end, end, f"  // allow({finding.code}): why this is meant")
