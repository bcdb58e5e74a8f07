"""The laws of a callable that takes only `x`: first through `x`, then through the queries, keys and values inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .attention_laws import GENERAL, judge
from .calling import Foreign
from .contract import Contract
from .inner import Outcome, inside
from .inquiry import Inquiry
from .intercept import role_of
from .layout import Layout
from .outer import EXCHANGED, Outer, dead_parameters, outer_laws, outer_ports, residual_law
from .reports import Finding, place_of
from .sanity import plain
from .settings import Settings


def judge_projected(
    foreign: Foreign,
    layouts: Mapping[str, Layout],
    sizes: dict[str, int],
    contract: Contract,
    tell: Callable[[str], None],
) -> Outcome:
    ports = outer_ports(foreign, layouts, contract)
    example = {name: plain(value) for name, value in foreign.example.items()}
    outer = Outer(foreign, ports, sizes, example)
    inquiry = Inquiry(outer, Settings(outer, contract, layouts, example), contract, foreign.original, foreign.tolerance)
    outcome = Outcome()
    tell("what `x` reaches")
    violations = outer_laws(inquiry)
    residual_law(inquiry)
    inner_findings: list[Finding] = []
    tell("what is projected")
    dead_parameters(inquiry)
    dead = [finding for finding in inquiry.findings if finding.law == "dead parameter"]
    silent = bool(dead) and _are_compared(dead[0].message)
    exchanged = [item for item in violations if item[3] == EXCHANGED]
    violations = exchanged or violations
    closed = exchanged or (dead and not silent)
    inner = None if closed else inside(foreign, outer, layouts, sizes, contract, inquiry, outcome)
    if inner is not None:
        judge(inner)
        inner_findings = _without_guesses(inner)
        if silent and inner_findings:  # Why queries and keys have no effect says more than that they have none.
            inquiry.findings = [finding for finding in inquiry.findings if finding not in dead]
        outcome.found.update(inner.found)
        outcome.laws += inner.laws
        outcome.reasons = inner.reasons
    elif outcome.unread:
        outcome.reasons = {"weights": outcome.unread[0]}
    outcome.findings = [*inquiry.findings, *inner_findings]
    if not inner_findings and not any(finding.law in ("packing", "layout", "source") for finding in outcome.findings):
        for law, message, witness, cause, mend in violations:
            outcome.findings.append(
                Finding(law, message, witness, cause, mend, place_of(foreign.original, (r"softmax.*|mask.*|tril.*",)))
            )
    outcome.laws = list(dict.fromkeys([*inquiry.laws, *outcome.laws]))
    outcome.found = {**inquiry.found, **outcome.found}
    return outcome


# What may be right where other weights take part: a gate, a product that mixes heads.
_STRUCTURE = frozenset(("layout", "heads", "dead input", "rows"))
_ROWS = GENERAL["rows"][0]


def _without_guesses(inner: Inquiry) -> list[Finding]:
    """The findings, less those on where values go, if weights that are not understood take part beside them."""
    kept = [
        finding
        for finding in inner.findings
        if not inner.beside or finding.law not in _STRUCTURE or (finding.law == "rows" and finding.cause != _ROWS)
    ]
    if len(kept) < len(inner.findings):
        names = ", ".join(f"`{name}`" for name in inner.beside)
        inner.laws.clear()
        inner.cannot("weights", f"what is inside: {names} take part beside queries, keys and values")
    return kept


def _are_compared(message: str) -> bool:
    """Whether the parameters that a message names are those of queries and keys, both of them and no others."""
    names = re.findall(r"`([^`]+)`", message)
    return {next(filter(None, map(role_of, name.split("."))), None) for name in names} == {"q", "k"}
