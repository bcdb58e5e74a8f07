"""Findings for machines and browsers: JSON, SARIF for code scanning, the lines that GitHub reads, HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from ..codes import CODES, page_file, page_of
from ..diagnostics import Diagnostic, place_of, render
from ..source import Span
from .fragment import STYLE

_COLOURS = {"error": "#b3261e", "warning": "#a66a00", "note": "#1b6ca8"}


def to_json(found: Sequence[Diagnostic]) -> str:
    return json.dumps([diagnostic.to_json() for diagnostic in found])


# ----------------------------------------------------------------------- SARIF


def to_sarif(found: Sequence[Diagnostic]) -> str:
    """SARIF 2.1.0: one rule a code, with its page; one result a finding, with its fix."""
    codes = sorted({diagnostic.code for diagnostic in found})
    return sarif_log("ix check", [_rule(code) for code in codes], [_result(diagnostic) for diagnostic in found])


def sarif_log(tool: str, rules: list[dict[str, Any]], results: list[dict[str, Any]], **rest: Any) -> str:
    driver = {"driver": {"name": tool, "rules": rules}}
    run = {"tool": driver, "columnKind": "unicodeCodePoints", "results": results, **rest}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"version": "2.1.0", "$schema": schema, "runs": [run]}, indent=2)


def sarif_place(span: Span, message: str = "") -> dict[str, Any]:
    """A place in a file. The file is named as the command was given it."""
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(span), "region": _region(span)}}
    return {**place, "message": {"text": message}} if message else place


def _artifact(span: Span) -> dict[str, str]:
    return {"uri": quote(str(place_of(span)["file"]).replace("\\", "/"))}


def _region(span: Span) -> dict[str, int]:
    place = place_of(span)
    names = {"startLine": "line", "startColumn": "column", "endLine": "end_line", "endColumn": "end_column"}
    return {name: place[ours] for name, ours in names.items()}


def _rule(code: str) -> dict[str, Any]:
    page = page_file(code)
    rule: dict[str, Any] = {
        "id": code,
        "shortDescription": {"text": CODES[code].title},
        "defaultConfiguration": {"level": CODES[code].severity},
    }
    if page.is_file():
        text = page.read_text(encoding="utf-8")
        rule.update(helpUri=page_of(code), help={"text": text, "markdown": text})
    return rule


def _result(diagnostic: Diagnostic) -> dict[str, Any]:
    parts = [diagnostic.message, *diagnostic.notes, *([diagnostic.help] if diagnostic.help else [])]
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "level": diagnostic.severity,
        "message": {"text": "\n".join(parts)},
        "locations": [sarif_place(label.span) for label in diagnostic.labels[:1]],
    }
    if len(diagnostic.labels) > 1:
        result["relatedLocations"] = [sarif_place(label.span, label.text) for label in diagnostic.labels[1:]]
    if diagnostic.fix is not None:
        change = {
            "artifactLocation": _artifact(diagnostic.fix.span),
            "replacements": [
                {
                    "deletedRegion": _region(diagnostic.fix.span),
                    "insertedContent": {"text": diagnostic.fix.replacement},
                }
            ],
        }
        result["fixes"] = [{"artifactChanges": [change]}]
    return result


# ---------------------------------------------------------------------- GitHub


def to_github(found: Sequence[Diagnostic]) -> str:
    """The commands that GitHub's runners turn into remarks beside the lines of a pull request."""
    return "\n".join(map(_command, found))


def _command(diagnostic: Diagnostic) -> str:
    level = "notice" if diagnostic.severity == "note" else diagnostic.severity
    title = f"{diagnostic.code}: {CODES[diagnostic.code].title}"
    parts = [diagnostic.message, *diagnostic.notes, *([diagnostic.help] if diagnostic.help else [])]
    return github_command(level, title, parts, diagnostic.labels[0].span if diagnostic.labels else None)


def github_command(level: str, title: str, lines: Sequence[str], span: Span | None) -> str:
    """One remark: `error`, `warning` or `notice`, at a place where it has one."""
    words: dict[str, Any] = {"title": title}
    if span is not None:
        place = place_of(span)
        file = str(place["file"]).replace("\\", "/")
        words = {"file": file, "line": place["line"], "endLine": place["end_line"], **words}
        if place["line"] == place["end_line"]:
            words.update(col=place["column"], endColumn=place["end_column"])
    shown = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in words.items())
    return f"::{level} {shown}::{_escaped(chr(10).join(lines))}"


def _escaped(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


# ------------------------------------------------------------------------ HTML


def to_html(found: Sequence[Diagnostic]) -> str:
    """Findings as a notebook shows them: as in a terminal, with the caret under its place, the code a link to nothing
    but its title."""
    return STYLE + '<div class="indexical">' + "".join(map(_finding_html, found)) + "</div>"


def _finding_html(diagnostic: Diagnostic) -> str:
    colour = _COLOURS[diagnostic.severity]
    head, newline, rest = render(diagnostic).partition("\n")
    title = escape(CODES[diagnostic.code].title, quote=True)
    return (
        f'<pre style="border-left:4px solid {colour};padding-left:.8em"><strong style="color:{colour}" '
        f'title="{title}">{escape(head)}</strong>{newline}{escape(rest)}</pre>'
    )


FORMATS: dict[str, Callable[[Sequence[Diagnostic]], str]] = {"json": to_json, "sarif": to_sarif, "github": to_github}
