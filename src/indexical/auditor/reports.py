"""Reports: findings, ranked, with the counterexample, the likely cause, the mend and the place."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ..source import Source, Span

RUNS = "runs"  # Not a law: what is said of a callable that could not be run.
CLEAN = "no law is broken"
_ORDER = {"proved": 0, "refuted": 1, "suspected": 2}


class AuditFailed(AssertionError):
    """An audit found something; the text is a line of the first finding, for summaries of tests, and the report."""

    __module__ = "indexical"

    def __init__(self, report: Report) -> None:
        self.report = report
        broken = [finding.line(part.subject) for part, finding in report.told]
        unjudged = [f"{part.subject}: not judged: {words}" for part in report.everything for words in part.undecided]
        first = next(iter((*broken, *unjudged)), report.verdict)
        super().__init__(f"{first}\n\n{report}")


@dataclass(frozen=True)
class Finding:
    """A law that is broken.

    `module` is the one inside a model that breaks it first. `origin` is where that stands, where `span` is the place in
    the repository that it comes from.
    """

    law: str
    message: str
    witness: str = ""
    cause: str = ""
    mend: str = ""
    span: Span | None = None
    confidence: str = "refuted"
    module: str = ""
    origin: str = ""

    def line(self, subject: str) -> str:
        """The finding in one line, of what is audited: for a summary."""
        place = "" if self.span is None else f" ({self.span.source.name}:{self.span.line})"
        return f"{subject}: {self.law}: {self.message}{place}"

    def __str__(self) -> str:
        lines = [f"{self.law}: {self.message}"]
        if self.span is not None:
            line = self.span.line
            lines += [f"  --> {self.span}", f"  {line} | {self.span.source.line(line).strip()}"]
        if self.origin:
            lines.append(f"  in: {self.origin}")
        lines += [f"  {name}: {text}" for name, text in (("witness", self.witness), ("cause", self.cause)) if text]
        if self.mend:
            lines.append(f"  mend: {self.mend}")
        if self.law != RUNS:
            lines.append(f"  confidence: {self.confidence}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        place = None
        if self.span is not None:
            line, column = self.span.source.position(self.span.start)
            place = {"file": self.span.source.name, "line": line, "column": column}
        return {
            "law": self.law,
            "message": self.message,
            "witness": self.witness,
            "cause": self.cause,
            "mend": self.mend,
            "confidence": self.confidence,
            "module": self.module,
            "place": place,
            "origin": self.origin,
        }


@dataclass(frozen=True)
class Report:
    """The result of an audit: findings, most certain first, and facts that no contract judges.

    `unread` lists what was declared, or is usually judged, and was not, each with its reason; `undecided` are those of
    them that a contract declares. `failure` is set where the callable could not be run, and no law was judged. `parts`
    has a report for each attention inside a model, named by its module; `equal` are the modules that are like it, and
    `settings` what was found of it in the words of a contract. `known` are findings that a baseline accepts.
    """

    subject: str
    findings: tuple[Finding, ...] = ()
    found: dict[str, str] = field(default_factory=dict)
    laws: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    calls: int = 0
    seconds: float = 0.0
    prove: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False)
    shows_proofs: bool = False
    failure: Finding | None = None
    parts: tuple[Report, ...] = ()
    equal: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    known: tuple[Finding, ...] = ()
    undecided: tuple[str, ...] = ()

    @cached_property
    def proved(self) -> tuple[str, ...]:
        """The laws that are proved to hold, for all sizes and values, of the relation that the code is read as: it is
        read when this is first asked for."""
        return () if self.findings or self.known else self.prove()

    def with_proofs(self) -> Report:
        """The report, whose text tells what is proved too."""
        return replace(self, shows_proofs=True)

    @property
    def ok(self) -> bool:
        """Whether it ran and no law is broken, here or in a part."""
        return not self.findings and self.failure is None and all(part.ok for part in self.parts)

    @property
    def everything(self) -> tuple[Report, ...]:
        """The report itself, and those of its parts."""
        return self, *(each for part in self.parts for each in part.everything)

    @property
    def told(self) -> tuple[tuple[Report, Finding], ...]:
        """Every law that is broken, and every failure to run, with the report that has it: its own first."""
        return tuple(
            (report, finding)
            for report in self.everything
            for finding in (*([report.failure] if report.failure else []), *report.findings)
        )

    @property
    def verdict(self) -> str:
        if self.failure is not None:
            return "does not run"
        count = sum(len(report.findings) for report in self.everything)
        if not count:
            return "a part does not run" if not self.ok else "no other law is broken" if self.known else CLEAN
        return "1 law is broken" if count == 1 else f"{count} laws are broken"

    def check(self, strict: bool = False) -> None:
        """Raise with the text of the report where a law is broken, or the callable does not run; with `strict`, also
        where something that is declared was not judged."""
        __tracebackhide__ = True
        if not self.ok or (strict and any(report.undecided for report in self.everything)):
            raise AuditFailed(self)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.verdict}", *self._told()]
        if self.parts:
            lines += ["", *parts_table(self.parts)]
        if self.found:
            width = max(map(len, self.found))
            lines += ["", "found:", *(f"  {name:<{width}}  {text}" for name, text in self.found.items())]
        if self.laws:
            lines += ["", f"laws tested: {', '.join(self.laws)}"]
        if self.shows_proofs and self.proved:
            lines += [f"laws proved: {', '.join(self.proved)}"]
        lines += [f"not judged: {reason}" for reason in self.unread]
        for part in self.parts:
            reasons = [f"not judged: {reason}" for reason in part.unread]
            if part.told or part.known or reasons:
                lines += ["", f"{part.name}: {part.verdict}", *part._told(), *([""] if part.told else []), *reasons]
        return "\n".join(lines)

    def _told(self) -> list[str]:
        """What is broken, at length, and what is known to be, a line each."""
        found = [f"\n{finding}" for finding in (*([self.failure] if self.failure else []), *self.findings)]
        known = [f"known: {finding.line(self.subject)}" for finding in self.known]
        return [*found, *([""] if known else []), *known]

    @property
    def name(self) -> str:
        """The subject, and how many are like it."""
        return f"{self.subject} (and {len(self.equal)} like it)" if self.equal else self.subject

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .formats import to_html

        return to_html(self, whole=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "found": self.found,
            "laws": list(self.laws),
            "proved": list(self.proved),
            "not_judged": list(self.unread),
            "undecided": list(self.undecided),
            "failure": None if self.failure is None else self.failure.to_json(),
            "known": [finding.to_json() for finding in self.known],
            "equal": list(self.equal),
            "settings": self.settings,
            "parts": [part.to_json() for part in self.parts],
        }


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings without repetition, the most certain first; among equals the order in which they were found."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.law, finding.message), finding)
    return tuple(sorted(kept.values(), key=lambda finding: _ORDER[finding.confidence]))


def parts_rows(parts: tuple[Report, ...]) -> list[tuple[str, str, str, str]]:
    """A table of the attentions inside a model, under its titles."""
    rows = [("module", "laws judged", "verdict", "as found")]
    for part in parts:
        settings = ", ".join(f"{name} {_setting(value)}" for name, value in part.settings.items())
        verdict = part.verdict if part.laws or part.told else "not judged"
        rows.append((part.name, str(len(part.laws)), verdict, settings))
    return rows


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def parts_table(parts: tuple[Report, ...]) -> list[str]:
    """The same in columns, and the laws of all parts."""
    rows = parts_rows(parts)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    laws = list(dict.fromkeys(law for part in parts for law in part.laws))
    return [*lines, *(["", f"laws tested inside: {', '.join(laws)}"] if laws else [])]


# ---------------------------------------------------------------------- places


def name_of(target: Any) -> str:
    while isinstance(target, partial):
        target = target.func
    return getattr(target, "__qualname__", None) or type(target).__qualname__


def shown_path(file: str) -> str:
    """A path as it is seen from here, where it lies below."""
    here = os.path.relpath(file)
    return file if here.startswith("..") else here


def place_of(target: Any, hints: tuple[str, ...] = ()) -> Span | None:
    """The place of a callable: the first line of its text that fits a hint, else where it begins."""
    code: Any = target
    if not inspect.isfunction(target) and not inspect.ismethod(target):
        code = getattr(target, "forward", None) or vars(type(target)).get("__call__")
    code = inspect.unwrap(code) if code is not None else None
    while code is not None and hasattr(code, "func"):
        code = code.func
    try:
        file = inspect.getsourcefile(code)
        lines, first = inspect.getsourcelines(code)
        with open(file or "", encoding="utf-8") as handle:
            source = Source(shown_path(file or ""), handle.read())
    except (OSError, TypeError, UnicodeDecodeError):
        return None
    for hint in hints:
        for offset, line in enumerate(lines):
            found = re.search(hint, line.split("#")[0])
            if found:
                start = source.line_starts[first + offset - 1]
                return Span(source, start + found.start(), start + found.end())
    start = source.line_starts[first - 1]
    return Span(source, start, start + len(source.line(first)))
