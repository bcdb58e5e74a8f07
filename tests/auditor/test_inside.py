"""Attentions inside a model: found by their calls, asked by what they were called with, named where they are broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.auditor.decoder import Decoder
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

from indexical.auditor.discovery import find_sites
from indexical.auditor.inside import Call, audit_inside, calls_of
from indexical.auditor.reports import Report

B, N, C, H = 2, 5, 12, 3


class Core(nn.Module):
    """The usual projections around an attention of (example, head, position, feature)."""

    def __init__(self, core: Callable[..., Any], **plain: Any) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(C, C) for _ in range(4))
        self.core = core
        vars(self).update(plain)

    def forward(self, x: Any, mask: Any = None) -> Any:
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, H, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(self.core(q, k, v, mask).transpose(1, 2).reshape(b, n, C))


def by_hand(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def by_einsum(q: Any, k: Any, v: Any, mask: Any) -> Any:
    weights = torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) * 0.5, -1)
    return torch.einsum("bhij,bhje->bhie", nn.functional.dropout(weights, 0.1, False), v)


def by_flex(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return flex_attention(q, k, v)


def by_library(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return sdpa(q, k, v)


class Layers(nn.Module):
    """Attentions one after the other, each added to what went in."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(parts)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            made = layer(x, x, x)[0] if isinstance(layer, nn.MultiheadAttention) else layer(x)
            x = x + made
        return x


def inside(*parts: nn.Module, causal: bool = False) -> tuple[Report, ...]:
    torch.manual_seed(0)
    model, x = Layers(*parts), torch.randn(B, N, C)
    return audit_inside(model, [Call(lambda: model(x), B, causal=causal)])


@pytest.mark.parametrize("core", [by_hand, by_einsum, by_flex, by_library])
def test_an_attention_is_found_however_it_is_written(core: Callable[..., Any]) -> None:
    model = Layers(nn.Linear(C, C), Core(core))
    (site,) = find_sites(model, lambda: model(torch.randn(B, N, C)))
    assert site.name == "layers.1"
    assert [event.weights for event in site.events] == [(B, H, N, N)]
    assert list(site.given) == ["x"]


def test_the_library_s_own_module_is_found() -> None:
    (report,) = inside(nn.MultiheadAttention(C, H, batch_first=True))
    assert report.ok, report
    assert report.found["module"] == "MultiheadAttention"


def test_a_gate_and_a_pool_of_softmaxes_are_no_attention() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(C, C)

        def forward(self, x: Any) -> Any:
            return self.gate(x).softmax(-1) * x

    model = Layers(Gate())
    assert find_sites(model, lambda: model(torch.randn(B, N, C))) == []


def test_a_gate_before_a_projection_is_no_attention_either() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(C, C), nn.Linear(C, C), nn.Parameter(torch.randn(C, C))

        def forward(self, x: Any) -> Any:
            return self.up(self.gate(x).softmax(-1) * x) + (self.gate(x).softmax(-1) * x) @ self.down

    model = Layers(Gated())
    assert find_sites(model, lambda: model(torch.randn(B, N, C))) == []


def test_a_model_that_raises_on_padding_is_asked_without_it() -> None:
    class Refuses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.layer = nn.Embedding(30, C), Core(by_library)

        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            assert attention_mask is None, "no padding"
            return self.layer(self.embed(input_ids))

    model = Refuses()
    (report,) = audit_inside(model, calls_of(model, {"input_ids": torch.arange(14).view(2, 7)}, False))
    assert report.ok, report
    assert "rows" in report.laws


def test_equal_modules_are_audited_once_and_others_apart() -> None:
    first, other = inside(Core(by_library), Core(by_library, drop=0.1), Core(by_library))
    assert (first.subject, first.equal) == ("layers.0", ("layers.2",))
    assert (other.subject, other.equal) == ("layers.1", ())
    assert first.ok
    assert {"rows", "locality", "values"} <= set(first.laws)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("core", "law", "cause"),
    [
        (lambda q, k, v, mask: (q @ k.mT / 2).softmax(-2) @ v, "normalisation", "over the queries"),
        (lambda q, k, v, mask: (q @ k.mT / 2).softmax(-1).softmax(-1) @ v, "rows", "twice"),
        (lambda q, k, v, mask: sdpa(q, k, v, is_causal=True).flip(0), "batch", ""),
    ],
)
def test_a_mistake_is_named_in_its_module_alone(core: Callable[..., Any], law: str, cause: str) -> None:
    right, wrong = inside(Core(by_hand), Core(core))
    assert right.ok, right
    (finding,) = wrong.findings
    assert (finding.law, finding.module) == (law, "layers.1")
    assert cause in finding.cause


def test_a_causal_model_asks_its_attentions_to_be() -> None:
    causal, open_ = inside(
        Core(lambda q, k, v, mask: sdpa(q, k, v, is_causal=True), one=1), Core(by_library, one=2), causal=True
    )
    assert causal.ok, causal
    assert [finding.law for finding in open_.findings] == ["causal"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("bug", "law", "cause"),
    [
        ("future", "causal", "off by one"),
        ("padding", "mask", "the mask `keep` is ignored"),
        ("batch", "batch", "over the batch"),
    ],
)
def test_the_meaning_of_a_mask_is_told_by_padding_and_not_by_its_name(bug: str, law: str, cause: str) -> None:
    model = Decoder(bug)
    right, wrong = audit_inside(model, calls_of(model, {"input_ids": torch.arange(10, 24).view(2, 7)}, True))
    assert right.ok, right
    assert right.equal == ("layers.2.attention",)
    (finding,) = wrong.findings
    assert finding.law == law
    assert cause in finding.cause


def test_heads_that_talk_are_not_accused() -> None:
    mix = torch.randn(H, H)
    (report,) = inside(
        Core(lambda q, k, v, mask: torch.einsum("gh,bhij->bgij", mix.to(q), (q @ k.mT / 2).softmax(-1)) @ v)
    )
    assert report.ok, report
    assert any(reason.startswith("heads: ") for reason in report.unread)


def test_a_contract_by_the_name_of_a_module_adds_to_what_its_calls_tell() -> None:
    torch.manual_seed(0)
    model, x = Layers(Core(by_library), Core(by_library)), torch.randn(B, N, C)
    calls = [Call(lambda: model(x), B)]
    (both,) = audit_inside(model, calls, {"layers.*": {"scale": "1/sqrt(d)"}})
    assert both.ok, both
    assert "scale" in both.laws
    right, wrong = audit_inside(model, calls, {"layers.1": {"scale": 1.0}})
    assert right.ok
    assert [finding.law for finding in wrong.findings] == ["scale"]
