"""A baseline: the findings that are known and accepted, by what they are and not by their line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .reports import Finding, Report

_VERSION = 1
_FIELDS = ("target", "module", "law", "cause")


@dataclass(frozen=True, order=True)
class Known:
    """A finding without its place and its figures."""

    target: str
    module: str
    law: str
    cause: str

    def __str__(self) -> str:
        where = f" in `{self.module}`" if self.module else ""
        return f"{self.target}{where}: {self.law}: {self.cause}"


def written(reports: Mapping[str, Report]) -> str:
    """The text of a baseline that accepts all findings of these reports, by their targets."""
    known = sorted({each for target, report in reports.items() for each in _all(target, report)})
    entries = [{name: getattr(each, name) for name in _FIELDS} for each in known]
    return json.dumps({"version": _VERSION, "known": entries}, indent=2, ensure_ascii=False) + "\n"


def read(text: str) -> frozenset[Known]:
    """A baseline; ValueError, in a sentence, where the text is none."""
    try:
        data: Any = json.loads(text)
    except RecursionError:
        raise ValueError("it nests values too deeply to be read") from None
    except ValueError as problem:
        raise ValueError(f"it is no JSON: {problem}") from None
    if not isinstance(data, dict) or not isinstance(data.get("known"), list):
        raise ValueError("it has no list `known`")
    if data.get("version") != _VERSION:
        raise ValueError(f"its version is {data.get('version')!r:.40}, and not {_VERSION}")
    for number, entry in enumerate(data["known"]):
        if not isinstance(entry, dict) or any(not isinstance(entry.get(name), str) for name in _FIELDS):
            raise ValueError(f"its entry {number} has not the texts {', '.join(_FIELDS)}")
    return frozenset(Known(*(entry[name] for name in _FIELDS)) for entry in data["known"])


def accepted(target: str, report: Report, known: frozenset[Known]) -> tuple[Report, list[Known]]:
    """The report with what is known set apart, and what is known of this target and was not found again."""
    seen = set(_all(target, report))
    gone = sorted(each for each in known if each.target == target and each not in seen)
    judged = all(each.failure is None for each in report.everything)
    return _apart(target, "", report, known), gone if judged else []


def _apart(target: str, module: str, report: Report, known: frozenset[Known]) -> Report:
    old = tuple(finding for finding in report.findings if _key(target, module, finding) in known)
    new = tuple(finding for finding in report.findings if finding not in old)
    parts = tuple(_apart(target, part.subject, part, known) for part in report.parts)
    return replace(report, findings=new, known=(*report.known, *old), parts=parts)


def _all(target: str, report: Report) -> list[Known]:
    own = [_key(target, "", finding) for finding in report.findings]
    return [*own, *(_key(target, part.subject, finding) for part in report.parts for finding in part.findings)]


def _key(target: str, module: str, finding: Finding) -> Known:
    return Known(target, module or finding.module, finding.law, finding.cause or finding.message)
