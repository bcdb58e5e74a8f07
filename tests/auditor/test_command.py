"""`ix audit`: exit status, several targets, parts, places, baselines, and what a repository promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from indexical.auditor import AuditFailed, Finding, Report, baseline
from indexical.auditor.formats import FORMATS
from indexical.auditor.places import is_own, owned
from indexical.auditor.promises import (
    Promise,
    contract_for,
    declared_from,
    fits,
    read_promises,
    settings_of,
    with_unmatched,
)
from indexical.cli import main
from indexical.cli.auditing import status
from indexical.cli.parser import build_parser
from indexical.testing import assert_model

MODELS = '''
import torch


class Leaks(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(1) + x.mean(0, keepdim=True)


class Model(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = torch.nn.Embedding(30, 8), torch.nn.Linear(8, 30)
        self.block = block

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)))


def right():
    return Model(torch.nn.Identity())


def wrong():
    return Model(Leaks())


def hidden():
    return Model(torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True))


def raises():
    raise ValueError("no weights")


def number():
    return 3


class Odd(torch.nn.Module):
    def forward(self, x):
        raise KeyError("words")
'''

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "small_models.py").write_text(MODELS, encoding="utf-8")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def finding(**rest: Any) -> Finding:
    return Finding(**{"law": "causal", "message": "a query hears the future", "cause": "no mask", **rest})


PARTS = Report(
    "Model",
    laws=("batch",),
    parts=(
        Report("layers.0.attn", laws=("rows", "scale"), equal=("layers.1.attn",), settings={"heads": 2, "scale": 0.5}),
        Report("layers.2.attn", (finding(),), laws=("causal",), unread=("rotary: a table that is not recognised",)),
    ),
)


# ------------------------------------------------------------------ exit status


def test_exit_status_is_of_the_worst_and_a_broken_law_is_worse_than_one_that_does_not_run() -> None:
    clean, broken = Report("a"), Report("b", (finding(),))
    stopped, undecided = Report("c", failure=finding(law="runs")), Report("d", undecided=("scale",))
    assert status([clean], False) == 0
    assert status([clean, stopped], False) == 2
    assert status([stopped, broken, clean], False) == 1
    assert status([clean], False, refused=True) == 2
    assert status([undecided], False) == 0
    assert status([undecided], True) == 1
    assert status([Report("m", parts=(broken,))], False) == 1
    assert status([Report("m", parts=(stopped,))], False) == 2
    assert status([Report("m", parts=(undecided,))], True) == 1


def test_a_model_needs_no_option_and_several_are_audited(folder: Path, capsys: Captured) -> None:
    assert main(["audit", "small_models.py:right"]) == 0
    assert main(["audit", "small_models.py:wrong", "small_models.py:right"]) == 1
    out = capsys.readouterr().out
    assert "small_models.py:wrong: 1 law is broken" in out
    assert "small_models.py:right: no law is broken" in out
    assert main(["audit", "small_models.py:right", "small_models.py:raises"]) == 2
    assert "no weights" in capsys.readouterr().err
    assert main(["audit", "small_models.py:raises", "small_models.py:wrong"]) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("small_models.py:raises",), "`raises()` raises ValueError: no weights"),
        (("small_models.py:number",), "is no module of PyTorch"),
        (("small_models.py:Model",), "`Model` takes block"),
        (("small_models.py:Odd",), "--model --example inputs.npz"),
        (("small_model.py:right",), "did you mean `small_models.py`"),
        ((), "name what to audit"),
        (("small_models.py:right", "--length", "2"), "too few"),
        (("small_models.py:right", "--baseline", "none.json"), "--write-baseline none.json"),
    ],
)
def test_what_cannot_be_run_exits_2_and_says_why(folder: Path, capsys: Captured, arguments: Any, words: str) -> None:
    assert main(["audit", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_files_of_one_name_and_of_packages_are_told_apart(folder: Path, capsys: Captured) -> None:
    for name in ("old", "new"):
        room = folder / name
        (room / "pack").mkdir(parents=True)
        leak = "x.mean(0, keepdim=True)" if name == "new" else "0.0"
        head = "import torch\n\nclass Block(torch.nn.Module):\n    def forward(self, x):\n"
        block = f"{head}        return x.cumsum(1) + {leak}\n"
        model = MODELS + "\n\ndef build():\n    return Model(Block())\n"
        (room / "layer.py").write_text(block, encoding="utf-8")
        (room / "model.py").write_text("from layer import Block\n" + model, encoding="utf-8")
        (room / "pack" / "__init__.py").write_text("", encoding="utf-8")
        (room / "pack" / "layer.py").write_text(block, encoding="utf-8")
        (room / "pack" / "model.py").write_text("from .layer import Block\n" + model, encoding="utf-8")
    assert main(["audit", "old/model.py:build", "new/model.py:build", "--format", "json"]) == 1
    assert [report["ok"] for report in json.loads(capsys.readouterr().out)] == [True, False]
    assert main(["audit", "new/pack/model.py:build", "old/pack/model.py:build", "--format", "json"]) == 1
    assert [report["ok"] for report in json.loads(capsys.readouterr().out)] == [False, True]


# ------------------------------------------------------------------------ parts


def test_every_format_shows_the_attentions_inside() -> None:
    text = str(PARTS)
    assert "layers.0.attn (and 1 like it)  2            no law is broken  heads 2, scale 0.5" in text
    assert "layers.2.attn: 1 law is broken\n\ncausal: a query hears the future" in text
    assert "not judged: rotary" in text
    (data,) = json.loads(FORMATS["json"]([PARTS]))
    assert data["ok"] is False
    assert data["parts"][0]["settings"] == {"heads": 2, "scale": 0.5}
    assert data["parts"][0]["equal"] == ["layers.1.attn"]
    (result,) = json.loads(FORMATS["sarif"]([PARTS]))["runs"][0]["results"]
    assert result["message"]["text"].startswith("layers.2.attn: a query hears the future")
    assert FORMATS["github"]([PARTS]).startswith("::error title=layers.2.attn%3A causal::layers.2.attn: a query")
    suites = ElementTree.fromstring(FORMATS["junit"]([PARTS]).partition("\n")[2])
    assert [suite.get("failures") for suite in suites] == ["0", "0", "1"]
    page = FORMATS["html"]([PARTS])
    assert "<td>layers.0.attn (and 1 like it)</td>" in page
    assert "<h2>causal: a query hears the future</h2>" in page


def test_what_does_not_run_is_no_broken_law_in_any_format() -> None:
    report = Report("Model", failure=finding(law="runs", message="the callable raises KeyError: 'x'"))
    run = json.loads(FORMATS["sarif"]([report]))["runs"][0]
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "KeyError" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    (suite,) = ElementTree.fromstring(FORMATS["junit"]([report]).partition("\n")[2])
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    assert FORMATS["github"]([report]).startswith("::error title=Model%3A runs::")
    assert "KeyError" in FORMATS["html"]([report])


# ----------------------------------------------------------------------- places


def test_a_finding_inside_a_library_is_placed_at_its_owner(folder: Path, capsys: Captured) -> None:
    """A layer of PyTorch that hears the future: the line that makes it is one's own."""
    assert main(["audit", "small_models.py:hidden", "--format", "sarif", "--causal"]) == 1
    results = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "small_models.py"
    line = MODELS.splitlines()[place["region"]["startLine"] - 1]
    assert "self.block = block" in line
    assert "\nin torch/nn/modules/" in results[0]["message"]["text"]
    assert main(["audit", "small_models.py:hidden", "--format", "github", "--causal"]) == 1
    assert capsys.readouterr().out.startswith("::error file=small_models.py,line=")


def test_a_module_of_a_library_is_placed_at_its_builder(folder: Path) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8)
    inside = torch.nn.MultiheadAttention.__module__
    report = Report("TransformerEncoderLayer", (finding(),))
    assert owned(report, layer).findings[0].span is None
    sys.path.insert(0, str(folder))
    import small_models  # type: ignore[import-not-found]

    (found,) = owned(report, layer, small_models.hidden).findings
    assert found.span is not None
    assert found.span.source.line(found.span.line) == "def hidden():"
    assert not is_own(sys.modules[inside].__file__ or "")
    assert not is_own(json.__file__)
    assert is_own("small_models.py")


def test_a_place_outside_of_the_directory_is_told_and_not_linked() -> None:
    here = Path(__file__)
    from indexical.source import Source, Span

    span = Span(Source("/elsewhere/site-packages/pack/model.py", here.read_text(encoding="utf-8")), 0, 3)
    report = Report("Model", (finding(span=span),))
    (result,) = json.loads(FORMATS["sarif"]([report]))["runs"][0]["results"]
    assert "locations" not in result
    assert "in /elsewhere/site-packages/pack/model.py:1" in result["message"]["text"]
    (moved,) = owned(report, None, test_a_place_outside_of_the_directory_is_told_and_not_linked).findings
    assert moved.origin == "pack/model.py:1"
    assert moved.span is not None
    assert moved.span.source.name.endswith("test_command.py")


# -------------------------------------------------------------------- baselines


def test_a_baseline_accepts_what_is_known_and_tells_what_is_gone(folder: Path, capsys: Captured) -> None:
    assert main(["audit", "small_models.py:wrong", "--write-baseline", "known.json"]) == 0
    assert "known: Model: batch" in capsys.readouterr().out
    text = (folder / "known.json").read_text(encoding="utf-8")
    assert [entry["law"] for entry in json.loads(text)["known"]] == ["batch"]
    moved = "# A line more.\n\n" + MODELS
    (folder / "small_models.py").write_text(moved, encoding="utf-8")
    assert main(["audit", "small_models.py:wrong", "--baseline", "known.json", "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["findings"], len(report["known"]), report["proved"]) == ([], 1, [])
    both = ["small_models.py:wrong", "small_models.py:hidden", "--causal"]
    assert main(["audit", *both, "--baseline", "known.json"]) == 1
    mended = MODELS.replace("x.mean(0, keepdim=True)", "x")
    (folder / "small_models.py").write_text(mended, encoding="utf-8")
    assert main(["audit", "small_models.py:wrong", "--baseline", "known.json"]) == 0
    assert "not found any more: small_models.py:wrong in `block`: batch" in capsys.readouterr().err
    assert (folder / "known.json").read_text(encoding="utf-8") == text


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "no list `known`"),
        ('{"known": []}', "its version is None"),
        ('{"version": 1, "known": [{"law": "causal"}]}', "its entry 0"),
        ("[" * 100_000, "deeply"),
        ("\xff", "is damaged"),
    ],
)
def test_a_damaged_baseline_is_told_in_a_sentence(folder: Path, capsys: Captured, text: str, words: str) -> None:
    (folder / "known.json").write_bytes(text.encode("latin-1"))
    assert main(["audit", "small_models.py:right", "--baseline", "known.json"]) == 2
    assert words in capsys.readouterr().err


def test_a_baseline_is_sorted_and_goes_by_module_and_cause() -> None:
    other = replace(PARTS, subject="Other", findings=(finding(law="batch", module="layers.3", cause=""),))
    text = baseline.written({"b.py:B": PARTS, "a.py:A": other})
    entries = json.loads(text)["known"]
    assert [(entry["target"], entry["module"]) for entry in entries] == [
        ("a.py:A", "layers.2.attn"),
        ("a.py:A", "layers.3"),
        ("b.py:B", "layers.2.attn"),
    ]
    known = baseline.read(text)
    report, gone = baseline.accepted("b.py:B", PARTS, known)
    assert report.ok
    assert not gone
    assert report.parts[1].known == PARTS.parts[1].findings
    changed = replace(PARTS, parts=(replace(PARTS.parts[1], findings=(finding(cause="another"),)),))
    report, gone = baseline.accepted("b.py:B", changed, known)
    assert not report.ok
    assert [each.cause for each in gone] == ["no mask"]
    assert "suppressions" in FORMATS["sarif"]([replace(report, known=(finding(),))])


# ---------------------------------------------------------------- test suites


@pytest.mark.sampled(0)
def test_the_summary_of_pytest_has_the_first_finding(folder: Path) -> None:
    text = "import small_models\nfrom indexical.testing import assert_model\n\n\ndef test_model():\n    "
    (folder / "test_it.py").write_text(text + "assert_model(small_models.wrong(), length=4)\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", env={**os.environ, "COLUMNS": "200"})
    assert result.returncode == 1
    summary = result.stdout.partition("short test summary info")[2].splitlines()[1]
    head = "FAILED test_it.py::test_model - indexical.AuditFailed: Model: batch: "
    assert summary.startswith(head), result.stdout
    assert summary.endswith("(small_models.py:6)")
    assert "first broken in `block` (Leaks)" in result.stdout
    assert "site-packages" not in result.stdout


def test_a_model_that_is_right_gives_its_report(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    import small_models

    assert assert_model(small_models.right(), length=4).ok
    with pytest.raises(AuditFailed, match=r"^Model: batch: "):
        assert_model(small_models.wrong(), length=4)
    strange = assert_model(small_models.right(), length=4, contracts={"x.*": {"heads": 2}})
    assert strange.undecided
    with pytest.raises(AuditFailed, match=r"^Model: not judged: heads of `x\.\*`"):
        assert_model(small_models.right(), length=4, contracts={"x.*": {"heads": 2}}, strict=True)


# ------------------------------------------------------------ what is promised


def test_what_is_found_is_declared_and_read_again() -> None:
    promise = Promise("model.py:build", {"causal": True}, length=9)
    text = declared_from(PARTS, promise)
    (again,) = read_promises(tomllib.loads(text)["tool"]["indexical"]["audit"]).targets
    assert again.target == "model.py:build"
    assert again.length == 9
    assert again.contract == {"causal": True}
    assert again.modules == {
        "layers.0.attn": {"heads": 2, "scale": 0.5},
        "layers.1.attn": {"heads": 2, "scale": 0.5},
        "layers.2.attn": {},
    }
    assert "# broken: layers.2.attn: causal: a query hears the future" in text
    alike = replace(PARTS, parts=PARTS.parts[:1])
    assert '[tool.indexical.audit.target.modules."layers.*.attn"]' in declared_from(alike, promise)


def test_patterns_go_by_the_parts_of_a_name() -> None:
    assert fits("layers.*.attn", "layers.11.attn")
    assert not fits("layers.*.attn", "layers.1.cross.attn")
    assert fits("**", "any.thing")
    contracts = {"**": {"heads": 4}, "layers.0.*": {"heads": 2, "window": 3}}
    assert contract_for(contracts, "layers.0.attn") == {"heads": 2, "window": 3}
    assert contract_for(contracts, "layers.1.attn") == {"heads": 4}


def test_a_contract_that_judges_nothing_is_told() -> None:
    report = with_unmatched(PARTS, {"layers.*.attn": {"heads": 2}, "decoder.*": {"window": 3}})
    assert len(report.undecided) == 1
    assert report.undecided[0].startswith("window of `decoder.*`: the model has no such attention; it has ")
    assert report.undecided[0] in report.unread
    unasked = Report("Model", parts=(Report("layers.0", unread=("the module: its arguments have no names",)),))
    assert status([with_unmatched(unasked, {"layers.*": {"heads": 2}})], True) == 1
    assert status([with_unmatched(unasked, {})], True) == 0


@pytest.mark.sampled(0)
def test_declared_targets_are_audited_without_naming_them(folder: Path, capsys: Captured) -> None:
    text = '[project]\nname = "x"\n\n[[tool.indexical.audit.target]]\nname = "small_models.py:right"\n'
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    assert main(["audit"]) == 0
    assert "Model: no law is broken" in capsys.readouterr().out
    more = '\n[[tool.indexical.audit.target]]\nname = "small_models.py:hidden"\ncausal = false\n'
    (folder / "pyproject.toml").write_text(text + more, encoding="utf-8")
    assert main(["audit", "--format", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert "causal" in first["laws"]
    assert "causal" not in second["laws"]
    inside = '\n[tool.indexical.audit.target.modules."block.*"]\nheads = 2\n'
    (folder / "pyproject.toml").write_text(text + inside, encoding="utf-8")
    assert main(["audit"]) == 0
    assert "not judged: heads of `block.*`" in capsys.readouterr().out
    assert main(["audit", "--strict"]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("target = 3", "is 3"),
        ("targets = []", "has no key `targets`"),
        ("[[target]]\ncausal = true", "has no name"),
        ('[[target]]\nname = "a.py:A"\nhead = 2', "has no key `head`"),
        ('[[target]]\nname = "a.py:A"\nwindow = 0', "no number of keys"),
        ('[[target]]\nname = "a.py:A"\nlength = "7"', "it is a number"),
        ('[[target]]\nname = "a.py:A"\naxes = "x=b i c"', "axes and no example"),
        ('[[target]]\nname = "a.py:A"\n[target.modules."x.*"]\nheadz = 2', "has no key `headz`"),
        ('[[target]]\nname = "a.py:A"\n[target.modules]\nx = 2', "is no table"),
        ('[[target]]\nname = "a.py:A"\n[[target]]\nname = "a.py:A"', "declared twice"),
        ("strict = 1", "true or false"),
        ("[", "ix-audit.toml: "),
    ],
)
def test_what_is_declared_wrongly_is_an_error_in_words(folder: Path, capsys: Captured, text: str, words: str) -> None:
    (folder / "ix-audit.toml").write_text(text, encoding="utf-8")
    assert main(["audit"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "ix-audit.toml" in err


def test_a_file_of_another_tool_is_left_alone_and_two_of_ours_are_refused(folder: Path, capsys: Captured) -> None:
    (folder / "audit.toml").write_text("[advisories]\nignore = []\n", encoding="utf-8")
    assert main(["audit", "small_models.py:right"]) == 0
    for name in ("audit.toml", "ix-audit.toml"):
        (folder / name).write_text('[[target]]\nname = "small_models.py:right"\n', encoding="utf-8")
    assert main(["audit"]) == 2
    assert "ix-audit.toml and audit.toml both declare" in capsys.readouterr().err


def test_init_writes_what_the_next_run_reads(folder: Path, capsys: Captured) -> None:
    assert main(["audit", "--init", "small_models.py:right", "small_models.py:wrong"]) == 1
    text = (folder / "ix-audit.toml").read_text(encoding="utf-8")
    assert "# broken: " in text
    names = [each["name"] for each in tomllib.loads(text)["target"]]
    assert names == ["small_models.py:right", "small_models.py:wrong"]
    assert main(["audit"]) == 1
    assert main(["audit", "--init", "small_models.py:right"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_settings_are_what_was_declared_and_what_can_be() -> None:
    found = {"reach": "a window of 3 keys, causal", "scale": "0.353553 = 1/sqrt(8), the width of all heads"}
    settings = settings_of({"heads": 2, "masks": {"m": "keep"}}, found)
    assert settings == {"heads": 2, "window": 3, "causal": True, "scale": "1/sqrt(8)"}
    assert settings_of({"scale": 1.0}, {"reach": "every key", "scale": "0.2 … 0.5, one a head"}) == {"scale": 1.0}


def test_hooks_and_workflows_run_commands_that_there_are() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    hooks = (root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"^- id: (\S+)$.*?^  entry: ix ([^\n]+)$", hooks, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in entries] == ["ix-check", "ix-fmt", "ix-audit"]
    page = (root / "docs" / "audit.md").read_text(encoding="utf-8")
    commands = [words for _, words in entries] + re.findall(r"- run: ix (.+)$", page, re.MULTILINE)
    assert "audit --strict --format github" in commands
    for words in commands:
        files = ["x.ix"] if not words.startswith("audit") else []
        assert build_parser().parse_args([*words.split(), *files]).command
