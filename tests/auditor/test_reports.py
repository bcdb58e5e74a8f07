"""What a report says, in every format; what a user does wrong; the command; the helper for tests."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.auditor.cases import causal, full, over_queries
from tests.auditor.layouts import LAYOUTS, B, D, H, N, Projected

import indexical as ix
from indexical.auditor.formats import FORMATS
from indexical.cli import main
from indexical.testing import assert_attention

MODULE = """
import torch


class Attention(torch.nn.Module):
    axis = -1

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, 2, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.mT / 2).softmax(dim=self.axis)
        return self.o((weights @ v).transpose(1, 2).reshape(b, n, c))


class Broken(Attention):
    axis = 2


class Needs(torch.nn.Module):
    def __init__(self, width):
        super().__init__()


def example(seed):
    return {"x": torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(seed))}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "attention_of_x.py").write_text(MODULE, encoding="utf-8")
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    yield tmp_path
    for name in ("attention_of_x", "decoder", "plain_attention"):
        sys.modules.pop(name, None)


AUDIT = ("--example", "inputs.npz", "--axes", "x=b i c, out=b i c", "--heads", "2")


def report_on(core: Any, **contract: Any) -> ix.auditor.Report:
    target, example, axes = LAYOUTS["b h i d"](core)
    return ix.audit(target, example, axes, ix.Contract(**contract))


def test_a_finding_says_all_that_it_knows() -> None:
    report = report_on(over_queries)
    (finding,) = report.findings
    assert not report.ok
    assert finding.law == "normalisation"
    assert finding.confidence == "proved"
    assert finding.span is not None
    assert "softmax" in finding.span.source.line(finding.span.line)
    for part in (finding.message, finding.witness, finding.cause, finding.mend, "cases.py:"):
        assert part in str(report)
    with pytest.raises(ix.AuditFailed, match="over the queries"):
        report.check()


def test_what_is_not_declared_is_found() -> None:
    found = report_on(causal).found
    assert found["scale"] == "0.5 = 1/sqrt(4)"
    assert found["reach"] == "causal: j <= i"
    assert "units in the last place" in found["float32"]


def test_the_helper_fails_with_the_text_of_the_report() -> None:
    target, example, axes = LAYOUTS["single"](full)
    assert assert_attention(target, example, axes, {"scale": "1/sqrt(d)"}).ok
    with pytest.raises(AssertionError, match="and not 0"):
        assert_attention(target, lambda seed: example, axes, {"scale": 0.25})


def test_formats_hold_what_was_found() -> None:
    reports = [report_on(over_queries), report_on(full)]
    data = json.loads(FORMATS["json"](reports))
    assert [report["ok"] for report in data] == [False, True]
    (result,) = json.loads(FORMATS["sarif"](reports))["runs"][0]["results"]
    assert result["ruleId"] == "normalisation"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("cases.py")
    assert place["region"]["startLine"] > 1
    suites = ElementTree.fromstring(FORMATS["junit"](reports).partition("\n")[2])
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    page = FORMATS["html"](reports)
    assert "over the queries" in page
    assert page.startswith("<!doctype html>")
    assert reports[0]._repr_html_() in page


@pytest.mark.parametrize(
    ("axes", "contract", "words"),
    [
        ({"q": "b h i d", "k": "b h j d", "v": "b h j e"}, {}, "axes of the output"),
        ({"q": "b h i", "k": "b h j d", "v": "b h j e", "out": "b h i e"}, {}, "4 axes"),
        ({"q": "b h i i", "k": "b h j d", "v": "b h j e", "out": "b h i e"}, {}, "twice"),
        ({"q": "b h i d", "k": "b h j b", "v": "b h j e", "out": "b h i e"}, {}, "twice"),
        ({"z": "b h i d"}, {}, "does not have"),
        ({"q": "b (h i d", "out": "b"}, {}, "cannot be read"),
        (None, {"causal": "yes"}, "no part of a contract"),
        (None, {"window": 0}, "no number of keys"),
        (None, {"masks": {"m": "maybe"}}, "one of keep, drop, additive"),
        (None, {"masks": {"m": "keep"}}, "does not have"),
        (None, {"scale": "1/sqrt(z)"}, "cannot be evaluated"),
        (None, {"kernel": "elu"}, "is not known"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(axes: Any, contract: dict[str, Any], words: str) -> None:
    target, example, right = LAYOUTS["b h i d"](full)
    with pytest.raises(ix.CallError, match="IX515") as caught:
        ix.audit(target, example, axes or right, ix.Contract(**contract))
    assert words in str(caught.value)


def test_a_callable_that_needs_a_gpu_is_reported() -> None:
    def on_a_gpu(q: Any, k: Any, v: Any) -> Any:
        raise RuntimeError("Found no NVIDIA driver on your system")

    report = report_on(on_a_gpu)
    assert report.failure is not None
    assert report.failure.cause == "it needs a GPU"
    assert report.verdict == "does not run"
    assert not report.ok
    assert not report.findings


# ------------------------------------------------------------------- the command


@pytest.mark.sampled(0)
def test_the_command_exits_by_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "attention_of_x.py:Attention", *AUDIT, "--scale", "1/sqrt(d)"]) == 0
    assert "no law is broken" in capsys.readouterr().out
    assert main(["audit", "attention_of_x:Broken", *AUDIT, "--format", "json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["law"] == "normalisation"
    assert report["findings"][0]["place"]["file"] == "attention_of_x.py"
    options = ["--example", "attention_of_x.py:example", *AUDIT[2:], "--format", "html", "-o", "report.html"]
    assert main(["audit", "attention_of_x.py:Broken", *options]) == 1
    assert "over the queries" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.sampled(0)
def test_the_command_reads_a_contract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "contract.toml").write_text('causal = true\nscale = "1/sqrt(d)"\n', encoding="utf-8")
    assert main(["audit", "attention_of_x.py:Attention", *AUDIT, "--contract", "contract.toml"]) == 1
    assert "the causal mask is missing" in capsys.readouterr().out
    options = ["--contract", "contract.toml", "--causal", "none"]
    assert main(["audit", "attention_of_x.py:Attention", *AUDIT, *options]) == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.py:f", *AUDIT), "no such file"),
        (("attention_of_x", *AUDIT), "package.module:name"),
        (("attention_of_x.py:f", *AUDIT), "has no `f`"),
        (("attention_of_x.py:Needs", *AUDIT), "without arguments"),
        (("attention_of_x.py:Attention", "--axes", "x=b i c, out=b i c"), "--example"),
        (("attention_of_x.py:Attention", "--example", "none.npz"), "none.npz"),
        (("attention_of_x.py:Attention", *AUDIT, "--contract", "none.toml"), "No such file"),
        (("attention_of_x.py:Attention", *AUDIT, "--mask", "m"), "NAME=keep"),
        (("attention_of_x.py:Attention", *AUDIT, "--alibi", "a,b"), "0.5,0.25"),
    ],
)
def test_a_command_at_fault_says_how(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: Any, words: str
) -> None:
    assert main(["audit", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_command_audits_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parent / "decoder.py"
    assert main(["audit", f"{file}:Decoder", "--model", "--length", "4"]) == 0
    assert "cached decoding" in capsys.readouterr().out


def test_a_numpy_function_needs_no_tensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import numpy as np\n\ndef attend(q, k, v):\n    e = np.exp(q @ k.T)\n    return e / e.sum(1)[:, None] @ v\n"
    (folder / "plain_attention.py").write_text(text, encoding="utf-8")
    arrays = {name: np.random.default_rng(0).normal(size=(4, 3)) for name in "qkv"}
    np.savez(folder / "qkv.npz", **arrays)
    options = ["--example", "qkv.npz", "--axes", "q=i d, k=j d, v=j e, out=i e", "--library", "numpy"]
    assert main(["audit", "plain_attention.py:attend", *options]) == 0
    assert "scale    1\n" in capsys.readouterr().out


def test_a_module_is_left_as_it_was() -> None:
    module, example, axes = LAYOUTS["module"](full)
    assert isinstance(module, torch.nn.Module)
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert ix.audit(module, example, axes, ix.Contract(heads=3, residual=False)).ok
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_mistake_that_can_be_read_is_proved_at_its_place() -> None:
    target, example, axes = LAYOUTS["b h i d"](over_queries)
    (finding,) = ix.audit(target, example, axes).findings
    assert finding.confidence == "proved"
    assert finding.span is not None
    assert "softmax" in finding.span.source.line(finding.span.line)


def test_a_function_that_was_put_into_a_module_is_asked_and_the_module_left_as_it_was() -> None:
    module = Projected(causal).train()
    kept = {name: value.clone() for name, value in module.state_dict().items()}

    def forward(x: Any) -> Any:
        b, n, c = x.shape
        q, k, v = (
            project(x).view(b, n, H, -1).transpose(1, 2)
            for project in (module.q_proj, module.k_proj, module.v_proj)
        )
        return module.out_proj((q @ k.mT).softmax(-1).matmul(v).transpose(1, 2).reshape(b, n, c))

    module.forward = forward
    example, axes = {"x": torch.randn(B, N, H * D)}, "x=b i c, out=b i c"
    for target in (module, lambda x: module(x)):
        (finding,) = ix.audit(target, example, axes, ix.Contract(heads=H, scale="1/sqrt(d)")).findings
        assert finding.law == "scale"
        assert finding.confidence == "proved"
    assert module.training
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())
