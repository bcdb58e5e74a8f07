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
_ORDER = {"proved": 0, "refuted": 1, "suspected": 2}


class AuditFailed(AssertionError):
    """An audit found something; the text is that of the report."""

    __module__ = "indexical"

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(f"\n{report}")


@dataclass(frozen=True)
class Finding:
    """A law that is broken."""

    law: str
    message: str
    witness: str = ""
    cause: str = ""
    mend: str = ""
    span: Span | None = None
    confidence: str = "refuted"

    def __str__(self) -> str:
        lines = [f"{self.law}: {self.message}"]
        if self.span is not None:
            line = self.span.line
            lines += [f"  --> {self.span}", f"  {line} | {self.span.source.line(line).strip()}"]
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
            "place": place,
        }


@dataclass(frozen=True)
class Report:
    """The result of an audit: findings, most certain first, and facts that no contract judges.

    `unread` lists what was declared, or is usually judged, and was not, each with its reason. `failure` is set where
    the callable could not be run, and no law was judged. `parts` has a report for each attention inside a model.
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

    @cached_property
    def proved(self) -> tuple[str, ...]:
        """The laws that are proved to hold, for all sizes and values, of the relation that the code is read as: it is
        read when this is first asked for."""
        return () if self.findings else self.prove()

    def with_proofs(self) -> Report:
        """The report, whose text tells what is proved too."""
        return replace(self, shows_proofs=True)

    @property
    def ok(self) -> bool:
        """Whether it ran and no law is broken, here or in a part."""
        return not self.findings and self.failure is None and all(part.ok for part in self.parts)

    @property
    def verdict(self) -> str:
        if self.failure is not None:
            return "does not run"
        count = len(self.findings)
        return "no law is broken" if not count else "1 law is broken" if count == 1 else f"{count} laws are broken"

    def check(self) -> None:
        """Raise with the text of the report where a law is broken, or the callable does not run."""
        if not self.ok:
            raise AuditFailed(self)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.verdict}"]
        lines += [f"\n{finding}" for finding in (*([self.failure] if self.failure else []), *self.findings)]
        if self.found:
            width = max(map(len, self.found))
            lines += ["", "found:", *(f"  {name:<{width}}  {text}" for name, text in self.found.items())]
        if self.laws:
            lines += ["", f"laws tested: {', '.join(self.laws)}"]
        if self.shows_proofs and self.proved:
            lines += [f"laws proved: {', '.join(self.proved)}"]
        lines += [f"not judged: {reason}" for reason in self.unread]
        return "\n".join(lines)

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
            "failure": None if self.failure is None else self.failure.to_json(),
            "parts": [part.to_json() for part in self.parts],
        }


def ranked(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings without repetition, the most certain first; among equals the order in which they were found."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.law, finding.message), finding)
    return tuple(sorted(kept.values(), key=lambda finding: _ORDER[finding.confidence]))


# ---------------------------------------------------------------------- places


def name_of(target: Any) -> str:
    while isinstance(target, partial):
        target = target.func
    return getattr(target, "__qualname__", None) or type(target).__qualname__


def _shown(file: str) -> str:
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
            source = Source(_shown(file or ""), handle.read())
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
