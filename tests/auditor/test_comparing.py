"""Two implementations of one attention: the same numbers, or the first layer and the cause."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.auditor.decoder import Decoder
from torch import nn

import indexical as ix
from indexical.auditor import compare
from indexical.cli import main

EAGER = '''
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, factor=1.0, causal=True, window=None, drop=0.0):
        super().__init__()
        self.factor, self.causal, self.window, self.drop = factor, causal, window, drop
        self.num_heads = 2
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("seen", torch.ones(16, 16).tril())

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, 6).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / 6**0.5 * self.factor
        i, j = torch.arange(n)[:, None], torch.arange(n)
        if self.causal:
            scores = scores.masked_fill(self.seen[:n, :n] == 0, float("-inf"))
        if self.window:
            scores = scores.masked_fill(j <= i - self.window, float("-inf"))
        weights = nn.functional.dropout(self.dropout(scores.softmax(-1)), self.drop)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, c))


def scaled():
    return Attention(factor=0.5)


def full():
    return Attention(causal=False)


def windowed():
    return Attention(window=3)


def dropped():
    return Attention(drop=0.2)


def chosen(setting):
    return Attention(causal=setting != "flash")


def attend(q, k, v, keep):
    return (q @ k.mT / 2).masked_fill(~keep[:, None, None], float("-inf")).softmax(-1) @ v


def attend_inverted(query, key, value, drop):
    return (query @ key.mT / 2).masked_fill(drop[:, None, None], float("-inf")).softmax(-1) @ value


def example(seed):
    keep = torch.ones(2, 5, dtype=torch.bool)
    keep[:, 1] = False
    return {**{name: torch.randn(2, 2, 5, 4) for name in ("q", "k", "v")}, "keep": keep}
'''

FLASH = '''
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads = 2
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, 6).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, n, c))


class Renamed(Attention):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(12, 12)
        self.qkv = nn.Linear(12, 48)
'''

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "eager_attention.py").write_text(EAGER, encoding="utf-8")
    (tmp_path / "flash_attention.py").write_text(FLASH, encoding="utf-8")
    yield tmp_path
    for name in ("eager_attention", "flash_attention"):
        sys.modules.pop(name, None)


def test_two_ways_to_attend_give_the_same_numbers(folder: Path, capsys: Captured) -> None:
    assert main(["audit", "--compare", "flash_attention.py:Attention", "eager_attention.py:Attention"]) == 0
    out = capsys.readouterr().out
    assert "flash_attention.py:Attention and eager_attention.py:Attention: no law is broken" in out
    assert "in double precision" in out


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("scaled", "scale: 0.408248 = 1/sqrt(6) in flash_attention.py:Attention, 0.204124 = 1/(2 sqrt(6)) in"),
        ("full", "reach: causal: j <= i in flash_attention.py:Attention, every key in eager_attention.py:full"),
        ("windowed", "a window of 3 keys"),
        ("dropped", "dropout, or other randomness"),
    ],
)
def test_the_cause_is_what_is_found_of_one_alone(folder: Path, capsys: Captured, other: str, words: str) -> None:
    targets = ["flash_attention.py:Attention", f"eager_attention.py:{other}"]
    assert main(["audit", "--compare", *targets, "--format", "json"]) == 1
    ((finding,),) = [report["findings"] for report in json.loads(capsys.readouterr().out)]
    assert words in finding["cause"]
    assert finding["place"]["file"] == "eager_attention.py"


def test_weights_that_cannot_be_shared_are_named(folder: Path, capsys: Captured) -> None:
    assert main(["audit", "--compare", "flash_attention.py:Attention", "flash_attention.py:Renamed"]) == 2
    err = capsys.readouterr().err
    assert "only flash_attention.py:Renamed has `out.bias`, `out.weight`" in err
    assert "`qkv.weight` is 36×12 in one and 48×12 in the other" in err


@pytest.mark.sampled(0)
def test_settings_are_given_to_the_builder(folder: Path, capsys: Captured) -> None:
    target = "eager_attention.py:chosen"
    assert main(["audit", "--compare", target, "--settings", "eager,sdpa,flash", "--format", "json"]) == 1
    assert [report["ok"] for report in json.loads(capsys.readouterr().out)] == [True, False]
    assert main(["audit", "--compare", "eager_attention.py:full", "--settings", "eager,sdpa"]) == 2
    assert "has no such settings" in capsys.readouterr().err
    assert main(["audit", "--compare", target]) == 2
    assert main(["audit", "--compare", "eager_attention.py:full"]) == 2
    assert "two targets" in capsys.readouterr().err


@pytest.mark.sampled(0)
def test_a_mask_that_is_read_the_other_way_round_is_named(folder: Path, capsys: Captured) -> None:
    targets = ["eager_attention.py:attend", "eager_attention.py:attend_inverted"]
    options = ["--example", "eager_attention.py:example"]
    assert main(["audit", "--compare", *targets, *options, "--format", "json"]) == 1
    ((finding,),) = [report["findings"] for report in json.loads(capsys.readouterr().out)]
    assert "one keeps where `keep` is true, the other drops there" in finding["cause"]
    assert main(["audit", "--compare", targets[0], targets[0], *options]) == 0


def test_models_are_compared_and_left_as_they_were() -> None:
    first, second = Decoder(), Decoder()
    with torch.no_grad():
        for value in second.parameters():
            value.add_(1.0)
    kept = {name: value.clone() for name, value in second.state_dict().items()}
    second.train()
    report = compare(first, second)
    assert report.ok, report
    assert second.training
    assert all(torch.equal(value, kept[name]) for name, value in second.state_dict().items())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("bug", "law"), [("future", "causal"), ("padding", "left padding"), ("queries", "relative positions")]
)
def test_the_first_layer_of_a_model_that_differs_is_named(bug: str, law: str) -> None:
    (finding,) = compare(Decoder(), Decoder(bug), names=("one", "two")).findings
    assert "first in `layers.1.attention` (Attention)" in finding.cause
    assert f"two breaks the law `{law}`" in finding.cause
    assert finding.module == "layers.1.attention"
    if bug == "padding":
        assert "padding on the" in finding.witness


def test_numbers_that_were_drawn_are_taken_from_the_first_and_masks_are_not() -> None:
    class Kept(nn.Module):
        def __init__(self, seed: int, offset: int, steps: int = 0) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)
            drawn = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed))
            self.register_buffer("features", drawn)
            self.register_buffer("computed", torch.arange(6.0) + steps, persistent=False)
            self.register_buffer("mask", torch.ones(20, 20).tril(offset))

        def forward(self, x: Any) -> Any:
            y = self.linear(x) @ self.features + self.computed
            return self.mask[: x.shape[1], : x.shape[1]] @ y

    same = compare(Kept(0, 0), Kept(1, 0))
    assert same.ok, same
    assert "`features`" in same.found["buffers"]
    assert not compare(Kept(0, 0), Kept(0, 1)).ok
    assert not compare(Kept(0, 0), Kept(0, 0, steps=1)).ok


def test_a_buffer_with_other_numbers_is_the_cause_where_no_law_is() -> None:
    class Angles(nn.Module):
        def __init__(self, base: float) -> None:
            super().__init__()
            self.register_buffer("angles", base ** torch.arange(6.0), persistent=False)

        def forward(self, x: Any) -> Any:
            return x * self.angles

    first, second = (nn.Sequential(nn.Linear(6, 6), Angles(base)) for base in (1.5, 1.25))
    (finding,) = compare(first, second).findings
    assert finding.cause == "first in `1` (Angles): its `angles` has other numbers"


def test_what_differs_by_rounding_alone_is_the_same() -> None:
    class Rounded(nn.Module):
        def __init__(self, narrow: bool) -> None:
            super().__init__()
            self.linear, self.narrow = nn.Linear(6, 6), narrow

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return y.float().to(y.dtype) if self.narrow else y

    assert compare(Rounded(False), Rounded(True)).ok


def test_what_cannot_be_compared_is_refused_or_does_not_run() -> None:
    with pytest.raises(ix.CallError, match="the other is no module"):
        compare(nn.Linear(3, 3), torch.relu)
    with pytest.raises(ix.CallError, match="needs an example"):
        compare(nn.Bilinear(2, 3, 4), nn.Bilinear(2, 3, 4))

    def fails(x: Any) -> Any:
        raise ValueError("never")

    report = compare(torch.relu, fails, {"x": torch.randn(3)})
    assert report.failure is not None
    assert "never" in report.failure.message
