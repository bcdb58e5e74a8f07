"""Whole models: a small decoder, right, and with one mistake that is found in its module."""

from __future__ import annotations

import pytest
from tests.auditor.decoder import Decoder

from indexical.auditor.whole import audit_model


def test_a_right_model_breaks_no_law() -> None:
    report = audit_model(Decoder(), length=5)
    assert report.ok, report
    assert report.laws == ("deterministic", "batch", "causal", "right padding", "left padding", "cached decoding")
    assert report.unread == ()


@pytest.mark.parametrize(
    ("bug", "laws"),
    [
        ("future", {"causal"}),
        ("batch", {"batch"}),
        ("padding", {"left padding"}),
        ("positions", {"cached decoding"}),
    ],
)
def test_a_mistake_is_found_in_its_module(bug: str, laws: set[str]) -> None:
    report = audit_model(Decoder(bug), length=5)
    assert {finding.law for finding in report.findings} <= laws
    first = report.findings[0]
    assert first.law in laws
    assert "`layers.1.attention` (Attention)" in first.cause, report
    assert first.span is not None
    assert first.span.source.name.endswith("decoder.py")


def test_a_random_model_is_not_judged_further() -> None:
    report = audit_model(Decoder("random"), length=5)
    assert [finding.law for finding in report.findings] == ["deterministic"]


def test_a_model_that_hears_everything_is_not_causal() -> None:
    report = audit_model(Decoder("future"), length=5, causal=False)
    assert "causal" not in report.laws
