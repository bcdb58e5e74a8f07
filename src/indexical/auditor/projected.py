"""The laws of a callable that takes only `x`: first through `x`, then through the queries, keys and values inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .attention_laws import judge
from .calling import Foreign
from .contract import Contract
from .inner import Outcome, inside
from .inquiry import Inquiry
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
    dead = any(finding.law == "dead parameter" for finding in inquiry.findings)
    exchanged = [item for item in violations if item[3] == EXCHANGED]
    violations = exchanged or violations
    inner = None if dead or exchanged else inside(foreign, outer, layouts, sizes, contract, inquiry, outcome)
    if inner is not None:
        judge(inner)
        inner_findings = inner.findings
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
