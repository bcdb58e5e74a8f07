"""Whole models of several kinds: what is judged of each, what is not, and that it is left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.auditor.models import VOCABULARY, Keeping, Language, Pictures, PositionsFirst, Recurrence, Translation
from torch import nn

from indexical.auditor.inputs import inputs_of
from indexical.auditor.whole import audit_model


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "model",
    [
        Language(),
        Language(last=True),
        Language(causal=False),
        Language(causal=False, first=2),
        Translation(),
        Pictures(),
        Recurrence(),
        PositionsFirst(),
        Keeping(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_right_model_is_not_accused(model: Any) -> None:
    report = audit_model(model, length=5)
    assert report.ok, report
    assert "deterministic" in report.laws
    assert any(law.endswith("batch") for law in report.laws)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("model", "law", "cause"),
    [
        (Language("future"), "causal", "`layers.1` (Attention): the causal mask is missing"),
        (Language("future", last=True), "causal", "`layers.1` (Attention): the causal mask is missing"),
        (Language("queries"), "causal", "`layers.1` (Attention): the softmax is over the queries"),
        (Language("lost"), "left padding", "`layers.1` (Attention)"),
        (Language("lost", causal=False), "right padding", "`layers.1` (Attention)"),
        (Language("batch"), "batch", "`layers.1` (Attention)"),
        (Language("dropout"), "deterministic", "`layers.1` (Attention): dropout"),
        (Translation({"encoder": "lost"}), "right padding", "`encoder` (Attention)"),
        (Translation({"encoder": "inverted"}), "right padding", "the mask `keep` is read the wrong way round"),
        (Translation({"own": "future"}), "causal", "`own` (Attention)"),
        (Translation({"cross": "lost"}), "encoder padding", "`cross` (Attention)"),
        (Pictures("batch"), "batch", "`attention` (Attention)"),
    ],
)
def test_a_mistake_is_found_in_its_module(model: Any, law: str, cause: str) -> None:
    report = audit_model(model, length=5)
    first = report.findings[0]
    assert first.law == law, report
    assert cause in first.cause, report


def test_a_mask_that_reaches_no_attention_is_lost() -> None:
    model = Language("lost", causal=False)
    model.layers[0].bug = "lost"
    assert "`layers.0` (Attention): the mask `keep` is ignored" in audit_model(model, length=5).findings[0].cause


@pytest.mark.sampled(0)
def test_a_module_with_small_numbers_is_found_before_one_that_makes_them_large() -> None:
    model = Language("queries")
    for parameter in model.layers.parameters():
        parameter.data *= 0.02
    report = audit_model(model, length=5)
    assert "`layers.1` (Attention)" in report.findings[0].cause, report


def test_what_is_not_judged_says_why() -> None:
    pictures = audit_model(Pictures())
    assert "images have no order of positions" in pictures.unread[0]
    mixer = audit_model(Recurrence(), causal=True)
    assert any("left padding" in line and "weigh each key" in line for line in mixer.unread), mixer
    assert any("gives none back" in line for line in mixer.unread), mixer


def test_a_model_that_says_nothing_is_not_accused_of_seeing_the_future() -> None:
    model = Language(causal=False)
    for layer in model.layers:
        del layer.is_causal
        layer.is_causal = 0  # No word of its own: it is not `False`.
    report = audit_model(model, length=5)
    assert report.ok, report
    assert any(line.startswith("causal: the model does not say") for line in report.unread)
    assert audit_model(model, length=5, causal=True).findings[0].law == "causal"


def test_a_model_that_does_not_run_breaks_no_law() -> None:
    class Broken(nn.Module):
        def forward(self, input_ids: Any) -> Any:
            raise ValueError("no")

    report = audit_model(Broken())
    assert report.failure is not None
    assert report.findings == ()
    assert "no" in report.failure.message


def test_inputs_may_be_given_by_name() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, left: Any, right: Any) -> Any:
            return self.layer(left) + right.sum(1, keepdim=True)

    given = {"left": torch.randn(2, 6, 4), "right": torch.randn(2, 3, 4)}
    report = audit_model(Pair(), given)
    assert report.ok, report
    assert "left (6, 4), right (3, 4)" in report.found["inputs"]


@pytest.mark.parametrize(
    ("model", "kind", "shapes"),
    [
        (Language(), "tokens", {"input_ids": (2, 7)}),
        (Translation(), "encoder-decoder", {"input_ids": (2, 7), "decoder_input_ids": (2, 5)}),
        (Pictures(), "pixels", {"pixel_values": (2, 3, 16, 16)}),
        (nn.TransformerEncoderLayer(8, 2, 16), "arrays", {"src": (2, 7, 8)}),
    ],
)
def test_inputs_are_drawn_for_what_a_model_takes(model: Any, kind: str, shapes: dict[str, Any]) -> None:
    found, inputs = inputs_of(model)
    assert found == kind
    assert {name: tuple(value.shape) for name, value in inputs.items()} == shapes
    model(**inputs)


def test_tokens_are_of_the_table_that_is_asked_for_them_and_no_padding() -> None:
    _, inputs = inputs_of(Language(), length=40, rows=9)
    assert int(inputs["input_ids"].max()) == VOCABULARY - 1
    assert not bool((inputs["input_ids"] == 1).any())


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_a_model_is_afterwards_what_it_was(kind: Any) -> None:
    model = Keeping().train().to(kind)
    model.head.weight.requires_grad_(False)
    model.drop.eval()
    calls: list[Any] = []
    handle = model.register_forward_hook(lambda *_: calls.append(1) and None)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    last, tables, seen, parameters = model.last.clone(), model.tables, model.config.seen, list(model.parameters())
    hooks = list(model._forward_hooks)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert audit_model(model).failure is None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {value.dtype for value in model.state_dict().values()} == {kind}
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    assert torch.equal(model.last, last)
    assert model.table is None
    assert model.tables is tables
    assert model.config.seen is seen
    assert (tables, seen) == ({}, [])
    assert (model.training, model.drop.training, model.head.weight.requires_grad) == (True, False, False)
    assert list(model._forward_hooks) == hooks
    assert not any(part._forward_pre_hooks or (part._forward_hooks and part is not model) for part in model.modules())
    handle.remove()
