"""Reports for machines and browsers: JSON, SARIF for code scanning, JUnit for test runners, HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ..views.findings import sarif_log, sarif_place
from .reports import Finding, Report

_LEVELS = {"proved": "error", "refuted": "error", "suspected": "warning"}


def to_text(reports: Sequence[Report]) -> str:
    return "\n\n".join(map(str, reports))


def to_json(reports: Sequence[Report]) -> str:
    return json.dumps([report.to_json() for report in reports], indent=2)


def to_sarif(reports: Sequence[Report]) -> str:
    """SARIF 2.1.0: one rule a law, one result a finding."""
    laws = sorted({finding.law for report in reports for finding in report.findings})
    rules = [{"id": law, "shortDescription": {"text": f"the law `{law}`"}} for law in laws]
    return sarif_log("ix audit", rules, [_result(report, finding) for report in reports for finding in report.findings])


def _result(report: Report, finding: Finding) -> dict[str, Any]:
    parts = [f"{report.subject}: {finding.message}", finding.witness, finding.cause and f"cause: {finding.cause}"]
    parts.append(finding.mend and f"mend: {finding.mend}")
    result: dict[str, Any] = {
        "ruleId": finding.law,
        "level": _LEVELS[finding.confidence],
        "message": {"text": "\n".join(part for part in parts if part)},
    }
    if finding.span is not None:
        result["locations"] = [sarif_place(finding.span)]
    return result


def to_junit(reports: Sequence[Report]) -> str:
    """One case a law that was tested, a failure for each that is broken."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>"]
    for report in reports:
        broken = {finding.law for finding in report.findings}
        passed = [law for law in report.laws if law not in broken]
        count = len(report.findings) + len(passed)
        name = escape(report.subject, quote=True)
        lines.append(f'  <testsuite name="{name}" tests="{count}" failures="{len(report.findings)}">')
        lines += [f'    <testcase classname="{name}" name="{escape(law, quote=True)}"/>' for law in passed]
        for finding in report.findings:
            lines.append(f'    <testcase classname="{name}" name="{escape(finding.law, quote=True)}">')
            message = escape(finding.message, quote=True)
            lines.append(f'      <failure message="{message}">{escape(str(finding))}</failure>')
            lines.append("    </testcase>")
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"])


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
td{padding:.15rem 1rem .15rem 0;vertical-align:top}
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


def _report_html(report: Report) -> str:
    broken = ", ".join(finding.law for finding in report.findings)
    verdict = f"broken: {broken}" if broken else report.verdict
    parts = [f"<h1>{escape(report.subject)}</h1><p>{escape(verdict)}</p>", *map(_finding_html, report.findings)]
    if report.found:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in report.found.items()
        )
        parts.append(f"<h2>Found, and not judged</h2><table>{rows}</table>")
    parts.append(f"<p>Laws tested: {escape(', '.join(report.laws))}.</p>" if report.laws else "")
    parts += [f"<p>Not judged: {escape(reason)}.</p>" for reason in report.unread]
    return "\n".join(filter(None, parts))


def _finding_html(finding: Finding) -> str:
    place = ""
    if finding.span is not None:
        line = finding.span.source.line(finding.span.line).strip()
        place = f"<pre>{escape(str(finding.span))}\n{escape(line)}</pre>"
    rows = [(name, getattr(finding, name)) for name in ("witness", "cause", "mend", "confidence")]
    entries = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows if text)
    head = f"<h2>{escape(finding.law)}: {escape(finding.message)}</h2>"
    return f"<section class='{finding.confidence}'>{head}{place}<dl>{entries}</dl></section>"


FORMATS: dict[str, Callable[[Sequence[Report]], str]] = {
    "text": to_text,
    "json": to_json,
    "sarif": to_sarif,
    "junit": to_junit,
    "html": to_html,
}
