"""Proofs: a mistake that a witness showed, found once more by the checker in the relation that the code was read as."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ..diagnostics import Diagnostic, Error
from ..lift import Reading, reader
from ..lift import proved as findings_of_checker
from .attention_laws import GENERAL as WORDS
from .claims import Verdict, verdicts
from .contract import Contract
from .keeping import kept
from .layout import Layout
from .reports import Finding

# The laws that a finding of the checker proves to be broken.
_LAWS = {
    "IX402": {"normalisation"},
    "IX403": {"dead input"},
    "IX404": {"groups", "heads"},
    "IX405": {"rows", "causal"},
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
# A view across positions and heads: what is seen, the cause and the mend.
_VIEW = "IX604"
_CROSSED = (
    "positions and heads are mixed",
    "`view` or `reshape` is used where `transpose` is meant: positions, heads and batch are mixed",
    "split the axis first (`view(b, n, h, d)`), then transpose (`.transpose(1, 2)`)",
)
# A mask on weights: the cause and the mend.
_LATE = "IX405"
_AFTER = (
    "the mask is applied after the softmax, and the rest is not normalised again",
    "mask the scores with -inf, before the softmax",
)
_SEEN = "it stands in the relation that the code was read as"
# Findings of the checker that are told where the weights cannot be asked for, and the laws that they break.
_ALONE = {"IX402": "normalisation", "IX405": "rows", "IX425": "groups"}
# The laws that claims of a contract are about.
_CLAIMED = {"causal", "window", "documents", "regions", "mask", "gap", "scale", "softcap", "alibi", "rotary"}
# Those that follow for all sizes and values, where others are compared at points.
_FOR_ALL = {"causal", "window", "documents", "mask", "rows", "scale"}
# What is unused proves something of the input that it names alone.
_UNUSED = "IX413"


def proved(
    findings: list[Finding],
    target: Callable[..., Any],
    example: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    sizes: Mapping[str, int],
    contract: Contract,
) -> list[Finding]:
    """The findings, those that the checker finds too as proved, at the place in the code that it points to."""
    provable = set().union(_CLAIMED, *_LAWS.values())
    if not any(finding.law in provable for finding in findings):
        return findings
    axes = {name: str(layout) for name, layout in layouts.items()}
    reading = _read(target, example, layouts)
    if reading is None:
        return findings
    told = findings_of_checker(reading, axes, contract)
    claims = verdicts(reading, example, layouts, sizes, contract)
    return [_with_proof(finding, told, claims, contract) for finding in findings]


def proved_laws(
    target: Callable[..., Any],
    example: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    sizes: Mapping[str, int],
    contract: Contract,
    judged: Collection[str],
) -> tuple[str, ...]:
    """The laws that are proved to hold of the relation that a callable is read as; none where it cannot be read."""
    reading = _read(target, example, layouts)
    if reading is None:
        return ()
    claims = verdicts(reading, example, layouts, sizes, contract)
    # What stands between weights and output may multiply them: their sum is proved where it was seen, too.
    proved = [law for law, claim in claims.items() if claim.holds and law in _FOR_ALL]
    return tuple(sorted(law for law in proved if law != "rows" or "rows" in judged))


def found_inside(
    target: Callable[..., Any],
    example: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    sizes: Mapping[str, int],
    contract: Contract,
    open_laws: Collection[str],
    alone: bool,
) -> tuple[list[Finding], list[str]]:
    """Of the declared laws that are still open, those that the relation breaks; and all that it tells. It is `alone`
    where queries and keys could not be asked: then the findings of the checker are told too."""
    reading = _read(target, example, layouts)
    if reading is None:
        return [], []
    axes = {name: str(layout) for name, layout in layouts.items()}
    checked = findings_of_checker(reading, axes, contract) if alone else []
    findings = [told for told in map(_told, checked) if told is not None]
    claims = {
        law: claim
        for law, claim in verdicts(reading, example, layouts, sizes, contract).items()
        if law in open_laws or (alone and claim.holds)
    }
    for law, claim in claims.items():
        if not claim.holds:
            cause, mend = (claim.cause, claim.mend) if claim.cause else WORDS[law]
            findings.append(Finding(law, claim.witness, _SEEN, cause, mend, claim.span, "proved"))
    return findings[:1], list(claims)


def _told(diagnostic: Diagnostic) -> Finding | None:
    """A finding of the checker as one of the audit, where it needs no witness; None for any other."""
    span = diagnostic.labels[0].span if diagnostic.labels else None
    if diagnostic.code == _VIEW:
        return Finding("heads", _CROSSED[0], _SEEN, *_CROSSED[1:], span, "proved")
    if diagnostic.code not in _ALONE:
        return None
    law = _ALONE[diagnostic.code]
    return Finding(law, diagnostic.message, _SEEN, *WORDS.get(law, WORDS["rows"]), span, "proved")


def _read(target: Callable[..., Any], example: Mapping[str, Any], layouts: Mapping[str, Layout]) -> Reading | None:
    """The relation that a callable computes; None where it cannot be read, as what NumPy computes."""
    if not any(type(value).__module__.startswith(("torch", "jax")) for value in example.values()):
        return None
    try:
        with kept(target):
            return reader(target, (), example, {name: str(layout) for name, layout in layouts.items()}).program()
    except Error:
        return None


def _with_proof(finding: Finding, told: list[Any], claims: Mapping[str, Verdict], contract: Contract) -> Finding:
    if any(diagnostic.code == _VIEW for diagnostic in told) and finding.law in _LAWS[_VIEW]:
        finding = replace(finding, cause=_CROSSED[1], mend=_CROSSED[2]) if finding.law == "causal" else finding
        told = [diagnostic for diagnostic in told if diagnostic.code == _VIEW]
        claims = {}
    late = [diagnostic for diagnostic in told if diagnostic.code == _LATE]
    if late and finding.law == "causal" and "missing" in finding.cause:
        told, claims = late, {}
        finding = replace(finding, cause=_AFTER[0], mend=_AFTER[1])
    claim = claims.get(finding.law)
    if claim is not None and not claim.holds:
        return replace(finding, confidence="proved", span=claim.span or finding.span)
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
