"""Lessons that are made of programs: their figures hold, `ix show` reads them, and they say what a step does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.cli import main
from indexical.pages import show_lesson

ATTENTION = """space position(i, j), feature(d, e);

input Q[i, d], K[j, d], V[j, e];

let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]);
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);
"""

Q = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": (ATTENTION, {"Q": Q, "K": Q, "V": Q * 1.5}),
    "causal": (ATTENTION.replace("scores[i, j]);", "scores[i, j]) where j <= i;"), {"Q": Q, "K": Q, "V": Q * 2}),
    "two_heads": (
        "input Q[h, i, d], V[h, j, e]; let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * Q[h, j, d])); "
        "let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]); let joined[i, e] = sum[h](out[h, i, e]);",
        {"Q": np.stack([Q, Q / 2]), "V": np.stack([Q, Q + 1])},
    ),
    "recurrence": (
        "input x[t], decay; let state[0] = x[0]; let state[t in 1..size(t)] = decay * state[t - 1] + x[t]; "
        "let last = state[size(t) - 1];",
        {"x": np.array([1.0, 2.0, 4.5]), "decay": 0.5},
    ),
    "layer_norm": (
        "input x[i, d], gain[d]; let middle[i] = mean[d](x[i, d]); "
        "let spread[i] = mean[d]((x[i, d] - middle[i]) ** 2); "
        "let out[i, d] = (x[i, d] - middle[i]) / sqrt(spread[i] + 0.00001) * gain[d];",
        {"x": Q + np.array([0.0, 2.0]), "gain": np.array([1.0, 0.5])},
    ),
    "cross": (
        "input text[i, d], image[p, d]; let weights[i, p] = softmax[p](sum[d](text[i, d] * image[p, d])); "
        "let out[i, d] = sum[p](weights[i, p] * image[p, d]); let seen[i] = argmax[p](weights[i, p]); "
        "output out, seen;",
        {"text": Q[:2], "image": Q},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_lesson_holds_and_is_read(name: str, tmp_path: Path) -> None:
    text, inputs = PROGRAMS[name]
    lesson = ix.lesson(text, title=name, **inputs)
    page = lesson.save(tmp_path / "lesson.md")
    found = ix.verify_page(page)
    assert found, str(found)
    assert len(found.figures) >= 9
    assert show_lesson(page).title == name
    assert str(lesson).count("```question") >= 2
    assert "<!--" not in "".join(map(str, show_lesson(page)._blocks))


def test_a_figure_that_somebody_changed_is_found(tmp_path: Path) -> None:
    text, inputs = PROGRAMS["causal"]
    page = tmp_path / "lesson.md"
    page.write_text(str(ix.lesson(text, **inputs)).replace("| 0.330 |", "| 0.331 |"), encoding="utf-8")
    assert [finding.code for finding in ix.verify_page(page).diagnostics] == ["IX516"]


def test_what_a_lesson_says() -> None:
    text, inputs = PROGRAMS["causal"]
    said = str(ix.lesson(text, title="Who may hear whom", **inputs))
    assert said.startswith("# Who may hear whom\n\nThree steps lead from `Q`, `K` and `V` to `out`.")
    assert "let Q[i, d]" in said
    assert "multiply `Q[i, d]` by `K[j, d]`, and add up over `d`; then divide by `sqrt(2)`" in said.replace("\n", " ")
    assert "Only points where `j <= i` take part" in said.replace("\n", " ")
    assert "reveal: `j <= i` does not hold" in said
    assert "(1·1 + 1·1)/√2 ≈ 1.414 <!-- ix: scores[2, 2] -->" in said


@pytest.mark.parametrize(
    ("text", "inputs", "words"),
    [
        ("input x[..r, i]; let y[..r, i] = 2 * x[..r, i];", {"x": np.ones((2, 2))}, "axes without names"),
        ("input x[i]; let y[i] = 2 * x[i];", {"x": np.array([np.inf])}, "is no number"),
        ("input x[i]; let y[i] = 2 * x[i];", {"x": np.ones(500)}, "more than 400 numbers"),
        ("input x[i]; let y[i] = 2 * x[i];", {"x": np.ones((2, 2))}, "1 axes, and 2 were given"),
        ("input x[i]; let y[i] = 2 * x[i];", {}, "x"),
    ],
)
def test_what_is_no_lesson_is_refused(text: str, inputs: dict[str, Any], words: str) -> None:
    with pytest.raises(ix.CallError, match=words):
        ix.lesson(text, **inputs)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, page = tmp_path / "two_steps.ix", tmp_path / "lesson.md"
    program.write_text("input x[i]; let y[i] = x[i] / 3; let z = sum[i](y[i]);", encoding="utf-8")
    assert main(["lesson", str(program), "--value", "x=[1, 2.5]", "-o", str(page)]) == 0
    assert "# Two steps" in page.read_text(encoding="utf-8")
    assert main(["verify", str(page)]) == 0
    assert main(["lesson", str(program), "--random", "i=3"]) == 0
    assert "What is given" in capsys.readouterr().out
    assert main(["lesson", str(program), "--value", 'x=["1/3"]']) == 2
