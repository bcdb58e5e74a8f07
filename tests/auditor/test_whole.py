"""Whole models: a small decoder, right, and with one mistake that is found in its module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.auditor.decoder import Decoder

from indexical.auditor.whole import audit_model


def test_a_right_model_breaks_no_law() -> None:
    report = audit_model(Decoder(), length=5)
    assert report.ok, report
    laws = "deterministic", "batch", "causal", "right padding", "left padding", "relative positions", "cached decoding"
    assert report.laws == (*laws, "rotary")
    assert report.unread == ()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("bug", "laws"),
    [
        ("future", {"causal"}),
        ("batch", {"batch"}),
        ("padding", {"left padding"}),
        ("positions", {"cached decoding"}),
        ("queries", {"relative positions"}),
        ("late", {"rotary"}),
    ],
)
def test_a_mistake_is_found_in_its_module(bug: str, laws: set[str]) -> None:
    report = audit_model(Decoder(bug), length=5)
    assert {finding.law for finding in report.findings} <= laws
    first = report.findings[0]
    assert first.law in laws
    assert "`layers.1.attention` (Attention)" in first.cause, report
    assert bug != "late" or "keys are rotated as if they stood 1 position later" in first.cause
    assert first.span is not None
    assert first.span.source.name.endswith("decoder.py")


def test_a_random_model_is_not_judged_further() -> None:
    report = audit_model(Decoder("random"), length=5)
    assert [finding.law for finding in report.findings] == ["deterministic"]


def test_a_model_that_hears_everything_is_not_causal() -> None:
    report = audit_model(Decoder("future"), length=5, causal=False)
    assert "causal" not in report.laws


def test_a_function_that_was_put_into_a_model_is_found_and_the_model_left_as_it_was() -> None:
    model = Decoder().train()
    attention = model.layers[1].attention
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    right = attention.forward

    def forward(x: Any, at: Any, keep: Any, past: Any) -> Any:
        y, cache = right(x, at, keep, past)
        return y + attention.o_proj(y).mean(0, keepdim=True), cache

    attention.forward = forward
    (finding,) = audit_model(model, length=5).findings
    assert finding.law == "batch"
    assert "`layers.1.attention` (Attention)" in finding.cause
    assert model.training
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
