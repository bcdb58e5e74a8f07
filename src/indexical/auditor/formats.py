"""Reports for machines and browsers: JSON, SARIF for code scanning, the lines that GitHub reads, JUnit for test
runners, HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ..source import Source, Span
from ..views.findings import github_command, sarif_log, sarif_place
from .places import relative
from .reports import Finding, Report, parts_rows

_LEVELS = {"proved": "error", "refuted": "error", "suspected": "warning"}


def to_text(reports: Sequence[Report]) -> str:
    return "\n\n".join(map(str, reports))


def to_json(reports: Sequence[Report]) -> str:
    return json.dumps([report.to_json() for report in reports], indent=2)


def to_sarif(reports: Sequence[Report]) -> str:
    """SARIF 2.1.0: one rule a law, one result a finding, one notification for what does not run."""
    each = _all(reports)
    found = [(report, finding, None) for report in each for finding in report.findings]
    known = [(report, finding, "accepted by the baseline") for report in each for finding in report.known]
    results = [_result(*entry) for entry in (*found, *known)]
    laws = sorted({result["ruleId"] for result in results})
    rules = [{"id": law, "shortDescription": {"text": f"the law `{law}`"}} for law in laws]
    failures = [(report, report.failure) for report in each if report.failure is not None]
    told = [
        {"level": "error", "message": {"text": _lines(report, finding)}, "locations": _places(finding)}
        for report, finding in failures
    ]
    invocation = {"executionSuccessful": not told, "toolExecutionNotifications": told}
    return sarif_log("ix audit", rules, results, invocations=[invocation])


def _all(reports: Sequence[Report]) -> list[Report]:
    return [each for report in reports for each in report.everything]


def _result(report: Report, finding: Finding, accepted: str | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.law,
        "level": _LEVELS[finding.confidence],
        "message": {"text": _lines(report, finding)},
    }
    places = _places(finding)
    if places:
        result["locations"] = places
    if accepted is not None:
        result["suppressions"] = [{"kind": "external", "justification": accepted}]
    return result


def _lines(report: Report, finding: Finding) -> str:
    """A finding in lines; with its place, where a machine would not find that in the repository."""
    origin = finding.origin or ("" if finding.span is None or relative(finding.span) else str(finding.span))
    parts = [f"{report.name}: {finding.message}", finding.witness, finding.cause and f"cause: {finding.cause}"]
    parts += [finding.mend and f"mend: {finding.mend}", origin and f"in {origin}"]
    return "\n".join(part for part in parts if part)


def _places(finding: Finding) -> list[dict[str, Any]]:
    """The place below the current directory, as a path from there; none where it lies elsewhere."""
    span = _seen(finding)
    return [] if span is None else [sarif_place(span)]


def _seen(finding: Finding) -> Span | None:
    path = None if finding.span is None else relative(finding.span)
    if finding.span is None or path is None:
        return None
    span = finding.span.shown
    return Span(Source(path, span.source.text), span.start, span.end)


def to_github(reports: Sequence[Report]) -> str:
    """The commands that GitHub's runners turn into remarks beside the lines of a pull request."""
    lines = []
    for report in _all(reports):
        told = [(_LEVELS[finding.confidence], finding) for finding in report.findings]
        told += [("error", report.failure)] if report.failure is not None else []
        told += [("notice", finding) for finding in report.known]
        for level, finding in told:
            title = f"{report.subject}: {finding.law}{' (known)' if level == 'notice' else ''}"
            lines.append(github_command(level, title, _lines(report, finding).splitlines(), _seen(finding)))
    return "\n".join(lines)


def to_junit(reports: Sequence[Report]) -> str:
    """One case a law that was tested, a failure for each that is broken; an error for what does not run. What is known
    is skipped. Each attention inside a model is a suite of its own."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>"]
    for report in reports:
        for each in report.everything:
            lines += _suite(each, each.name if each is report else f"{report.subject}: {each.name}")
    return "\n".join([*lines, "</testsuites>"])


def _suite(report: Report, title: str) -> list[str]:
    name = escape(title, quote=True)
    told = [("failure", finding) for finding in report.findings]
    told += [("skipped", finding) for finding in report.known]
    told += [("error", report.failure)] if report.failure is not None else []
    laws = {finding.law for _, finding in told}
    passed = [law for law in report.laws if law not in laws]
    count = {kind: sum(kind == each for each, _ in told) for kind in ("failure", "skipped", "error")}
    counts = f'failures="{count["failure"]}" errors="{count["error"]}" skipped="{count["skipped"]}"'
    lines = [f'  <testsuite name="{name}" tests="{len(told) + len(passed)}" {counts}>']
    lines += [f'    <testcase classname="{name}" name="{escape(law, quote=True)}"/>' for law in passed]
    for kind, finding in told:
        message = escape(f"known: {finding.message}" if kind == "skipped" else finding.message, quote=True)
        lines.append(f'    <testcase classname="{name}" name="{escape(finding.law, quote=True)}">')
        lines.append(f'      <{kind} message="{message}">{escape(str(finding))}</{kind}>')
        lines.append("    </testcase>")
    return [*lines, "  </testsuite>"]


# A report shows names and texts of foreign code: whatever they are, a browser runs and fetches nothing for them.
_POLICY = (
    "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'\">"
)
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a}
section{border-left:4px solid #b3261e;padding:.2rem 1rem;margin:1.2rem 0;background:#faf6f5}
section.suspected{border-color:#a66a00}h2{margin:.3rem 0;font-size:1.05rem}
pre{overflow-x:auto;background:#f1efed;padding:.5rem}
dt{font-weight:600;float:left;clear:left;width:6rem}dd{margin:0 0 .3rem 7rem}table{border-collapse:collapse}
td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}
@media (prefers-color-scheme:dark){
body{background:#161616;color:#eee}section{background:#221c1b}pre{background:#222}}"""


def to_html(reports: Report | Sequence[Report], whole: bool = True) -> str:
    """A page, or the part of one that stands in a notebook."""
    given = [reports] if isinstance(reports, Report) else reports
    body = "\n".join(map(_report_html, given))
    if not whole:
        return body
    head = f"<meta charset='utf-8'>{_POLICY}<title>ix audit</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>\n{body}\n</body></html>"


def _report_html(report: Report, level: int = 1) -> str:
    broken = ", ".join(finding.law for finding in report.findings)
    verdict = f"broken: {broken}" if broken else report.verdict
    parts = [f"<h{level}>{escape(report.name)}</h{level}><p>{escape(verdict)}</p>"]
    parts += map(_finding_html, (*([report.failure] if report.failure else []), *report.findings))
    parts += [f"<p>Known: {escape(finding.line(report.subject))}.</p>" for finding in report.known]
    if report.parts:
        head, *rows = parts_rows(report.parts)
        parts.append(f"<h2>Attentions inside</h2><table>{_row(head, 'th')}{''.join(map(_row, rows))}</table>")
    if report.found:
        found = "".join(map(_row, report.found.items()))
        parts.append(f"<h2>Found, and not judged</h2><table>{found}</table>")
    parts.append(f"<p>Laws tested: {escape(', '.join(report.laws))}.</p>" if report.laws else "")
    parts += [f"<p>Not judged: {escape(reason)}.</p>" for reason in report.unread]
    parts += [_report_html(part, 2) for part in report.parts]
    return "\n".join(filter(None, parts))


def _row(cells: Sequence[str], kind: str = "td") -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"


def _finding_html(finding: Finding) -> str:
    place = ""
    if finding.span is not None:
        line = finding.span.source.line(finding.span.line).strip()
        origin = f"\nin {finding.origin}" if finding.origin else ""
        place = f"<pre>{escape(str(finding.span))}\n{escape(line)}{escape(origin)}</pre>"
    rows = [(name, getattr(finding, name)) for name in ("witness", "cause", "mend", "confidence")]
    entries = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text)
    head = f"<h2>{escape(finding.law)}: {escape(finding.message)}</h2>"
    return f"<section class='{finding.confidence}'>{head}{place}<dl>{entries}</dl></section>"


FORMATS: dict[str, Callable[[Sequence[Report]], str]] = {
    "text": to_text,
    "json": to_json,
    "sarif": to_sarif,
    "github": to_github,
    "junit": to_junit,
    "html": to_html,
}
