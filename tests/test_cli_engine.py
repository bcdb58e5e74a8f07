"""The engine from the command line: `ix plan`, `ix emit`, `ix run --backend`, `ix cache`."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.cli import main
from indexical.run import cached

CAUSAL = """input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""
SIZES = "i=4096,j=4096,d=64,e=64"


@pytest.fixture
def causal(tmp_path: Path) -> str:
    path = tmp_path / "causal.ix"
    path.write_text(CAUSAL)
    return str(path)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


# ------------------------------------------------------------------------------------------ plan


def test_plan(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", causal, "--sizes", SIZES]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, step, unbuilt = out.split("\n\n")
    assert first == "torch on cpu"
    assert "out[i, e]  f32  1.0 MiB\n  by scaled_dot_product_attention\n" in step
    assert unbuilt == "never built\n  scores[i, j]  64.0 MiB\n  weights[i, j]  64.0 MiB\n"


def test_plan_needs_no_torch(causal: str) -> None:
    """Planning and emitting for PyTorch are done where there is none."""
    hidden = "import sys; sys.modules['torch'] = None; from indexical.cli import main"
    both = f"{hidden}; sys.exit(main(['plan', {causal!r}]) or main(['emit', {causal!r}]))"
    result = subprocess.run([sys.executable, "-c", both], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert "scaled_dot_product_attention" in result.stdout
    assert "import torch\n" in result.stdout


def test_passes_show_every_rule_with_what_it_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "running.ix"
    file.write_text("input x[i]; let y[i] = sum[k in 0..size(i)](x[k] where k <= i);", encoding="utf-8")
    assert main(["plan", str(file), "--passes"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("lowered\n")
    assert "run along: " in text
    assert text.rstrip().endswith("y[i]  f32 = (cumsum[k] x[i = k])[k = i]")
    assert main(["plan", str(file), "--passes", "--sizes", "i=100"]) == 0
    [*_, line, last] = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["100", "800", "B"]
    assert last == "  400 B at once, 400 B of them results"
    assert main(["plan", str(file), "--passes", "--sizes", "i=100", "--backend", "jax"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert main(["plan", str(file), "--passes", "--format", "json"]) == 2
    assert "--passes" in capsys.readouterr().err
    monkeypatch.setenv("IX_DUMP", "1")
    assert main(["plan", str(file)]) == 0
    assert capsys.readouterr().err == text


def test_plan_as_json(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", causal, "--sizes", SIZES, "--format", "json", "--dtype", "f16", "--device", "cuda"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["backend"], found["device"], found["isolate"]) == ("torch", "cuda", False)
    (step,) = found["steps"]
    assert step["name"] == "out"
    assert step["coordinates"] == ["i", "e"]
    assert step["dtype"] == "f16"
    assert step["kernel"] == "scaled_dot_product_attention"
    assert step["refused"] == []
    assert step["bytes"] == 2 * 4096 * 64
    assert found["never_built"] == [{"name": name, "bytes": 2 * 4096**2} for name in ("scores", "weights")]


def test_plan_of_other_outputs(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", causal, "--outputs", "weights", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in found["steps"]][-1] == "weights"
    assert "out" not in [step["name"] for step in found["steps"]]
    assert main(["plan", causal, "--outputs", "weights,out", "--backend", "numpy"]) == 0
    assert "numpy on cpu" in capsys.readouterr().out


def test_plan_isolated(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", causal, "--isolate"]) == 0
    out = capsys.readouterr().out
    assert "isolated" in out
    assert "by scaled_dot_product_attention" not in out


def test_plan_says_what_was_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "soft.ix"
    path.write_text(CAUSAL.replace("softmax[j](scores[i, j])", "softmax[j](tanh(scores[i, j]))"))
    assert main(["plan", str(path), "--format", "json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert step["kernel"] == "stream"
    assert [refusal["kernel"] for refusal in step["refused"]] == ["scaled_dot_product_attention"]
    assert main(["plan", str(path)]) == 0
    assert "not by scaled_dot_product_attention: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--sizes", "q=3"], 2, "no input has a coordinate `q`"),
        (["--sizes", "i"], 2, "sizes look like"),
        (["--outputs", "wieghts"], 1, "IX508"),
        (["--device", "nowhere"], 1, "IX510"),
        (["--device", "cuda:x"], 1, "IX510"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "emit"])
def test_commands_that_are_at_fault(
    command: str, options: list[str], status: int, words: str, causal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, causal, *options]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_a_program_that_is_at_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.ix"
    path.write_text("let y = z;")
    for command in ("plan", "emit", "run"):
        assert main([command, str(path)]) == 1
        assert "error[IX201]" in capsys.readouterr().err
    assert main(["plan", str(path), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["code"] == "IX201"
    assert main(["plan", str(tmp_path / "missing.ix")]) == 1
    assert "IX108" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ emit


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_emit(causal: str, tmp_path: Path, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "attention.py"
    assert main(["emit", causal, "--backend", backend, "--dtype", "f64", "-o", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    text = file.read_text(encoding="utf-8")
    ast.parse(text)
    assert "indexical" not in text
    assert main(["emit", causal, "--backend", backend, "--dtype", "f64"]) == 0
    assert capsys.readouterr().out == text
    library = np if backend == "numpy" else pytest.importorskip("torch")
    arrays = [np.random.default_rng(0).normal(size=(5, 3)) for _ in range(3)]
    scope: dict[str, Any] = {"__name__": "attention"}
    exec(text, scope)
    out = scope["program"](*(library.asarray(array) for array in arrays))
    assert np.asarray(out) == pytest.approx(ix.compile(CAUSAL)(*arrays))


def test_emit_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("input x[i]; let y[i] = 2 * x[i];"))
    assert main(["emit", "-", "--backend", "numpy"]) == 0
    assert "def program(x):" in capsys.readouterr().out


def test_emit_where_nothing_can_be_written(causal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "missing" / "attention.py"):
        assert main(["emit", causal, "-o", str(place)]) == 2
        assert "cannot be written" in capsys.readouterr().err


def test_emit_of_other_outputs(causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", causal, "--outputs", "weights,out"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("return weights, out")


# ------------------------------------------------------------------------------------------- run


def test_run_by_every_backend(causal: str, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for backend in ("numpy", "torch", "jax", "reference"):
        options = ["--random", "i=4,j=4,d=3,e=2", "--seed", "7", "--outputs", "weights,out", "--backend", backend]
        assert main(["run", causal, *options, "--format", "json"]) == 0
        found[backend] = json.loads(capsys.readouterr().out)
    for backend in ("numpy", "torch"):
        for ours, theirs in zip(found[backend], found["reference"], strict=True):
            assert {**ours, "values": 0} == {**theirs, "values": 0}
            np.testing.assert_allclose(ours["values"], theirs["values"], rtol=1e-12, atol=1e-15)


def test_run_prints_the_same(causal: str, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown = set()
    for backend in ("numpy", "torch", "reference"):
        assert main(["run", causal, "--random", "i=3,j=3,d=2,e=2", "--backend", backend]) == 0
        shown.add(capsys.readouterr().out)
    assert len(shown) == 1
    assert "out[i, e]  3 × 2  float64" in shown.pop()


def test_run_saves_what_torch_computed(causal: str, torch: Any, tmp_path: Path) -> None:
    arrays = {name: np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32) for name in "QKV"}
    np.savez(tmp_path / "in.npz", **arrays)
    saved = tmp_path / "out.npy"
    options = ["--input", str(tmp_path / "in.npz"), "--backend", "torch", "--device", "cpu", "--save", str(saved)]
    assert main(["run", causal, *options]) == 0
    found = np.load(saved)
    assert found.dtype == np.float32
    assert found == pytest.approx(ix.compile(CAUSAL)(**arrays), abs=1e-6)


def test_run_on_a_device_that_is_not_there(causal: str, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--random", "i=2,j=2,d=2,e=2"]
    assert main(["run", causal, *options, "--backend", "torch", "--device", "nowhere"]) == 1
    assert "error[IX510]: no device is called `nowhere`" in capsys.readouterr().err
    for backend in ("numpy", "reference"):
        assert main(["run", causal, *options, "--backend", backend, "--device", "cuda"]) == 2
        assert "only the torch backend has devices" in capsys.readouterr().err


def test_run_says_where_it_fails(tmp_path: Path, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gather.ix"
    path.write_text("input x[i], p[k] : i64;\nlet y[k] = x[p[k]];\n")
    np.savez(tmp_path / "in.npz", x=np.ones(3), p=np.array([0, 5]))
    shown = set()
    for backend in ("numpy", "torch", "reference"):
        assert main(["run", str(path), "--input", str(tmp_path / "in.npz"), "--backend", backend]) == 1
        shown.add(capsys.readouterr().err)
    assert len(shown) == 1
    assert "error[IX305]: index 5 is out of bounds" in shown.copy().pop()
    assert "`k = 1`" in shown.pop()


@pytest.mark.parametrize("option", [["--backend", "cupy"], ["--dtype", "f8"], ["--backend", "reference"]])
def test_choices_are_listed(option: list[str], causal: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", causal, *option])
    assert caught.value.code == 2
    assert "choose from" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- cache


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system does not say who owns a file")
def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kept"
    monkeypatch.setenv("IX_CACHE", str(folder))
    monkeypatch.setattr(cached, "digest_of_sources", lambda: "as they are")
    file = tmp_path / "sum.ix"
    file.write_text("input x[i]; let y = sum[i](x[i]);\n")
    assert main(["run", str(file), "--random"]) == 0
    capsys.readouterr()
    assert main(["cache"]) == 0
    assert re.fullmatch(rf"{re.escape(os.path.realpath(folder))}\n1 text, \d.\d KiB\n", capsys.readouterr().out)
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.endswith("\n1 text removed\n")
    assert list(folder.iterdir()) == []
    folder.chmod(0o770)
    assert main(["cache"]) == 0
    assert "\nnot used: " in capsys.readouterr().out
    assert main(["cache", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"folder", "problem", "entries", "bytes"}
    assert "others may write to it" in found["problem"]
    monkeypatch.setenv("IX_CACHE", "0")
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == "not used: IX_CACHE=0 turns it off\n"
