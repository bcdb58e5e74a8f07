"""The command `ix`, as a newcomer types it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from indexical.cli import main

CAUSAL = """input Q[i, d], K[j, d], V[j, e];
let scores[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
"""


@pytest.fixture
def causal(tmp_path: Path) -> Path:
    path = tmp_path / "causal.ix"
    path.write_text(CAUSAL)
    return path


def test_check_is_silent_where_all_is_well(causal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(causal)]) == 0
    assert capsys.readouterr() == ("", "")


def test_check_reports_every_file(tmp_path: Path, causal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.ix"
    broken.write_text("let a = b;\nlet c = d;\n")
    assert main(["check", str(causal), str(broken), str(tmp_path / "missing.ix")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error[IX201]") == 2
    assert err.count("error[IX108]") == 1
    assert "\x1b[" not in err


def test_warnings_fail_only_when_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.ix"
    path.write_text("let y = 2.5 * (7 / 2);\n")
    assert main(["check", str(path)]) == 0
    assert "warning[IX352]" in capsys.readouterr().err
    assert main(["check", "--strict", str(path)]) == 1


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.ix"
    path.write_text("input scores[i];\nlet y[i] = scroes[i];\n")
    assert main(["check", "--format", "json", str(path)]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["code"] == "IX201"
    assert found["labels"][0] | {"file": "", "text": ""} == {
        "file": "",
        "line": 2,
        "column": 12,
        "end_line": 2,
        "end_column": 18,
        "text": "",
    }
    assert found["fix"]["replacement"] == "scores"


def test_run_with_files(causal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=(3, 2)) for name in "QKV"}
    np.save(tmp_path / "q.npy", arrays["Q"])
    np.savez(tmp_path / "kv.npz", K=arrays["K"], V=arrays["V"], other=np.zeros(3))
    inputs = ["--input", f"Q={tmp_path / 'q.npy'}", "--input", str(tmp_path / "kv.npz")]
    saved = tmp_path / "out.npz"
    assert main(["run", str(causal), *inputs, "--outputs", "weights,out", "--save", str(saved)]) == 0
    found = np.load(saved)
    assert found["weights"].sum(axis=1) == pytest.approx(1)
    assert found["out"] == pytest.approx(found["weights"] @ arrays["V"])
    assert main(["run", str(causal), *inputs, "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["coordinates"] == ["i", "e"]
    assert np.array(shown["values"]) == pytest.approx(found["out"])


def test_run_at_random_is_reproducible(causal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in ("0", "0", "1"):
        assert main(["run", str(causal), "--random", "i=4,j=4,d=2", "--seed", seed]) == 0
        out, err = capsys.readouterr()
        assert "sizes not given: e=3" in err
        outputs.append(out)
    assert outputs[0] == outputs[1] != outputs[2]
    assert outputs[0].startswith("out[i, e]  4 × 3  float64\n")


def test_a_size_goes_for_its_whole_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spaces.ix"
    path.write_text("space position(i, j);\ninput x[i], y[j];\nlet z[i, j] = x[i] * y[j];\n")
    assert main(["run", str(path), "--random", "i=5"]) == 0
    assert "5 × 5" in capsys.readouterr().out


def test_figures_need_no_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.ix"
    path.write_text("let S[i, j] = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];\nlet y[i] = sum[j](S[i, j]) where j <= i;\n")
    assert main(["run", str(path)]) == 0
    assert capsys.readouterr().out == "y[i]  3  int64\n[ 1  9 24]\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["run", "FILE"], 1, "the input `Q` is missing"),
        (["run", "FILE", "--random", "i=4", "--outputs", "wieghts"], 1, "did you mean `weights`?"),
        (["run", "FILE", "--random", "z=4"], 2, "no input has a coordinate `z`"),
        (["run", "FILE", "--random", "i=four"], 2, "sizes look like i=6,d=4"),
        (["run", "FILE", "--input", "Q=nowhere.npy"], 2, "nowhere.npy cannot be loaded"),
        (["run", "FILE", "--input", "FILE"], 2, "cannot be loaded"),
        (["run", "FILE", "--random", "", "--save", "/nonexistent/x.npz"], 2, "cannot be written"),
        (["run", "FILE", "--random", "i=1000000000000"], 1, "too many for this machine"),
        (["run", "FILE", "--random", "", "--precision", "-3"], 2, "a number of digits is 0 or more"),
        (["plan", "FILE", "--sizes", "i=99999999999999999999"], 1, "too many for this machine"),
        (["plan", "FILE", "--backend", "numpy", "--device", "cuda"], 2, "only the torch backend has devices"),
        (["run", "FILE", "--random", "", "--memory", "1MiB"], 2, "only the torch backend keeps a budget; add"),
        (["plan", "FILE", "--backend", "numpy", "--memory", "1MiB"], 2, "only the torch backend keeps a budget"),
        (["accuracy", "FILE", "--random", "", "--device", "cuda"], 2, "only the torch backend has devices"),
    ],
)
def test_mistakes_of_the_command(
    causal: Path, arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.replace("FILE", str(causal)) for argument in arguments]) == status
    assert words in capsys.readouterr().err


def test_an_output_that_is_asked_for_twice_is_given_once(causal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(causal), "--random", "i=2", "--outputs", "weights,weights"]) == 0
    assert capsys.readouterr().out.count("weights[") == 1


def test_fmt(causal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--check", str(causal)]) == 1
    assert causal.read_text() == CAUSAL
    assert main(["fmt", str(causal)]) == 0
    text = causal.read_text()
    assert "let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));\n" in text
    assert main(["fmt", "--check", str(causal)]) == 0


def test_fmt_leaves_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.ix"
    path.write_text("let a = (1;\n")
    assert main(["fmt", str(path)]) == 1
    assert path.read_text() == "let a = (1;\n"
    assert "error[IX102]" in capsys.readouterr().err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("let   y=1+2;"))
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == "let y = 1 + 2;\n"


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("check", "run", "fmt"))
    with pytest.raises(SystemExit) as stop:
        main(["run", "--help"])
    assert stop.value.code == 0
    assert "--random" in capsys.readouterr().out
