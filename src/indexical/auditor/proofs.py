"""Proofs: a mistake that a witness showed, found once more by the checker in the relation that the code was read as."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..diagnostics import Error
from ..lift import findings as findings_of_checker
from .contract import Contract
from .layout import Layout
from .reports import Finding

# The laws that a finding of the checker proves to be broken.
_LAWS = {
    "IX402": {"normalisation"},
    "IX403": {"dead input"},
    "IX404": {"groups", "heads"},
    "IX405": {"rows"},
    "IX407": {"heads", "layout"},
    "IX408": {"scale"},
    "IX409": {"scale"},
    "IX410": {"scale"},
    "IX413": {"mask", "documents", "dead input"},
    "IX416": {"rotary"},
    "IX417": {"rotary", "causal"},
    "IX418": {"alibi"},
    "IX422": {"locality"},
    "IX423": {"causal"},
    "IX425": {"groups", "heads"},
    "IX426": {"rows"},
    "IX430": {"scale"},
    "IX431": {"mask"},
    "IX432": {"mask"},
    "IX434": {"rows", "mask", "alibi"},
    "IX435": {"sink"},
    "IX604": {"heads", "layout", "batch", "causal"},
}
# What is unused proves something of the input that it names alone.
_UNUSED = "IX413"


def proved(
    findings: list[Finding],
    target: Callable[..., Any],
    example: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    contract: Contract,
) -> list[Finding]:
    """The findings, those that the checker finds too as proved, at the place in the code that it points to."""
    provable = set().union(*_LAWS.values())
    if not any(finding.law in provable for finding in findings):
        return findings
    axes = {name: str(layout) for name, layout in layouts.items()}
    try:
        told = findings_of_checker(target, example, axes, contract)
    except Error:
        return findings
    return [_with_proof(finding, told, contract) for finding in findings]


def _with_proof(finding: Finding, told: list[Any], contract: Contract) -> Finding:
    for diagnostic in told:
        if diagnostic.code == _UNUSED and not _names(diagnostic.message) & _named(finding, contract):
            continue
        if finding.law in _LAWS.get(diagnostic.code, ()):
            span = diagnostic.labels[0].span if diagnostic.labels else finding.span
            return replace(finding, confidence="proved", span=span)
    return finding


def _named(finding: Finding, contract: Contract) -> set[str]:
    documents = {f"`{contract.documents}`"} if finding.law == "documents" else set()
    return _names(f"{finding.message} {finding.cause} {finding.witness}") | documents


def _names(text: str) -> set[str]:
    return set(re.findall(r"`\w+`", text))
