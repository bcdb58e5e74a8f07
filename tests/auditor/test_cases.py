"""Every broken callable is named for the right reason; its twin, and whatever only looks wrong, is left alone."""

from __future__ import annotations

from itertools import chain

import pytest
from tests.auditor.cases import kernels
from tests.auditor.further_cases import inside, late, reached, turned
from tests.auditor.mask_cases import masks, modules, positions, shapes, unusual
from tests.auditor.other_cases import failures, projections, weighings
from tests.auditor.sign_cases import capped, elsewhere, ordered, sloped, twice
from tests.auditor.unlike_cases import blocks, edges, habits

import indexical as ix

SOURCES = (
    *(kernels, masks, shapes, positions, modules, unusual, weighings, projections, failures, habits, edges, blocks),
    *(late, reached, turned, inside),
    *(twice, capped, ordered, sloped, elsewhere),
)
CASES = {case.name: case for case in chain.from_iterable(source() for source in SOURCES)}


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_named_for_the_right_reason(name: str) -> None:
    case = CASES[name]
    report = ix.audit(case.target, case.example, case.axes, ix.Contract(**case.contract))
    if case.law is None:
        assert report.ok, report
        return
    (finding,) = report.findings if report.failure is None else (report.failure,)
    assert finding.law == case.law, report
    assert case.cause in finding.cause, report
    assert finding.witness or finding.law in ("runs", "shape"), report
    assert finding.mend, report


def test_the_collection_is_broad() -> None:
    broken = {case.name for case in CASES.values() if case.law is not None}
    assert len(broken) >= 60
    assert len(CASES) - len(broken) >= 60
