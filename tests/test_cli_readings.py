"""`ix exact`, `ix trace` and `ix verify` on the command line: what they print, exit with and refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from indexical.cli import main
from indexical.cli.waiting import told

LESSONS = Path(__file__).resolve().parent.parent / "examples" / "lessons"
THREE = str(LESSONS / "three_by_two.ix")
NAMED = str(LESSONS / "named_softmax.ix")


def test_trace_prints_one_number_or_all_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", THREE, "--at", "out[0, 0]"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("out[0, 0] = 2.4\n")
    assert "Position 0 gives 50 % of its attention to position 0" in shown
    assert main(["trace", THREE]) == 0
    assert "step 2 of 2: out" in capsys.readouterr().out


def test_trace_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", NAMED, "--at", "out[2, 0]", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    scan = found["elements"]["out[2, 0]"]["scans"][0]
    assert [term["factors"][0]["element"] for term in scan["terms"]] == [f"weights[2, {j}]" for j in range(3)]
    assert main(["trace", NAMED, "--at", "out[0, 0]", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["place"] for entry in found["elements"]["out[0, 0]"]["scans"][0]["silent"]] == [[1], [2]]
    assert found["elements"]["weights[0, 1]"]["why"] == "`j <= i` does not hold"


def test_verify_says_which_figures_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", NAMED]) == 0
    assert main(["verify", THREE]) == 1
    shown = capsys.readouterr().out
    assert "12/5 = 2.4" in shown
    assert "5 claims, 18 figures: 12 hold, 6 fail" in shown
    assert main(["verify", THREE, NAMED, "--format", "json"]) == 1
    assert [report["holds"] for report in json.loads(capsys.readouterr().out)] == [False, True]


def test_verify_within_rounding_fails_only_if_strict(tmp_path: Path) -> None:
    file = tmp_path / "rounded.ix"
    file.write_text("let a = ~0.5;\nexpect a == 0.52;\n")
    assert main(["verify", str(file)]) == 0
    assert main(["verify", str(file), "--strict"]) == 1


@pytest.mark.parametrize("point", ["out[", "out[2]", "out[9, 9]", "nope[0]", "out[-1, 0]", "", "öut[0]", "out[٣, 0]"])
def test_points_that_are_none(point: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", THREE, "--at", point]) == 1
    assert capsys.readouterr().err.startswith("error[IX515]")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["exact", THREE, "--digits", "0"], 2),
        (["exact", THREE, "--digits", "-1"], 2),
        (["trace", THREE, "--depth", "-1"], 2),
        (["exact", THREE, "--outputs", "nope"], 1),
        (["exact", NAMED, "--sizes", "e=-1"], 2),
        (["exact", NAMED, "--sizes", "q=3"], 1),
        (["exact", NAMED, "--input", "V=missing.npy"], 2),
        (["exact", "missing.ix"], 1),
        (["trace", "missing.ix", "--at", "x"], 1),
        (["verify", "missing.ix"], 1),
    ],
)
def test_one_clear_error(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("option", [["--digits", "abc"], ["--depth", "x"]])
def test_options_that_are_no_numbers(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["exact" if option[0] == "--digits" else "trace", THREE, *option])
    assert caught.value.code == 2
    assert "invalid int value" in capsys.readouterr().err


@pytest.mark.parametrize(
    "array",
    [np.array([[1, np.nan]] * 3), np.array([["a", "b"]] * 3), np.ones((3, 2), complex), np.ones((3, 2), bool),
     np.ones((2, 2)), np.ones(3), np.array(["2020-01-01"] * 6, "M8[D]").reshape(3, 2)],
    ids=["nan", "text", "complex", "bool", "shape", "rank", "dates"],
)  # fmt: skip
def test_arrays_that_are_none(array: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "V.npy", array)
    for command in ("exact", "trace", "verify"):
        assert main([command, NAMED, "--input", f"V={tmp_path / 'V.npy'}"]) == 1
        assert capsys.readouterr().err.count("error[") == 1


def test_digits_are_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exact", NAMED, "--outputs", "weights", "--digits", "20"]) == 0
    assert "0.26894142136999512075" in capsys.readouterr().out


def test_whoever_waits_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with told("verify", first=0.01):
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 8
    assert all(line.startswith("ix verify: still computing, after ") for line in lines)
    with told("run", first=0.01):
        time.sleep(0.05)
    assert not capsys.readouterr().err
