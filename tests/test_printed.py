"""`ix verify` on Markdown pages: figures in prose and tables, tied by comments to the programs that stand there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.cli import main
from indexical.views.forms import form

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """```ix named.ix
let Q[i, d] = [[1, 0], [0, 1], [1, 1]];
let scores[i, j]  = sum[d](Q[i, d] * Q[j, d]);
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let total         = sum[i, j](scores[i, j]) / 3.2;
```

"""


def verified(tmp_path: Path, text: str, **options: Any) -> Any:
    page = tmp_path / "page.md"
    page.write_text(PROGRAM + text, encoding="utf-8")
    return ix.verify_page(page, **options)


@pytest.mark.parametrize(
    "text",
    [
        "0.58 <!-- ix: weights[2, 2] -->",
        "**0.576** <!-- ix: weights[2,2] -->, and so on",
        "(58 %) <!-- ix: weights[2, 2] -->",
        "57.6% <!-- ix: weights[2, 2] -->",
        "`0.5761` <!-- ix: weights[2, 2] -->",
        "`e^2/(e^1+e^1+e^2)` <!-- ix: weights[2, 2] -->",
        "`e/(2+e)` <!-- ix: weights[2, 2] -->",
        "about ≈ 0.58\n<!-- ix: weights[2, 2] --> of it",
        "it is <!-- ix: weights[2, 2] --> 0.58 here",
        "<!-- ix: total --> 2.5",
        "5/2 <!-- ix: total --> of them, then 2.50 <!-- ix: total -->.",
        "0.21, 0.21 and 0.58 <!-- ix: weights[2] -->",
        "2 <!-- ix: named.ix: scores[2, 2] --> and 2 <!-- ix: named.ix scores[2, 2] -->",
        "| a | b |\n|---|---|\n| 0.58 <!-- ix: weights[2, 2] --> | 2 <!-- ix: scores[2, 2] --> |",
        "<!-- ix: scores -->\n\n| | 0 | 1 | 2 |\n|-|-|-|-|\n| a | 1 | 0 | 1 |\n| b | 0 | 1 | *1* |\n| c | 1 | 1 | 2 |",
        "<!-- ix: scores -->\n| 1 | 0 | 2 |\n|-|-|-|\n| 0 | 1 | 1 |\n| 1 | 0 | 1 |\n| 1 | 1 | 2 |",
        "<!-- ix: weights -->\n| | 0 | 1 | 2 |\n|-|-|-|-|\n| i = 0 | 1 | masked | – |\n| i = 2 | 0.21 | | 0.58 |",
        "<!-- ix: weights[2] -->\n| The | cat | sat |\n|-|-|-|\n| 0.21 | 0.21 | 0.58 |",
        "<!-- ix: scores[2], weights[2] -->\n| j | `scores` | w |\n|-|-|-|\n"
        "| 0 | 1 | 0.21 |\n| 1 | 1 | 0.21 |\n| 2 | 2 | 0.58 |",
        "<!-- ix: scores[1] -->\n| j | score |\n|-|-|\n| 2 | 1 |\n| 1 | 1 |",
        "<!-- ix: total -->\n| total |\n|-|\n| 2.5 |",
    ],
)
def test_figures_that_hold(tmp_path: Path, text: str) -> None:
    found = verified(tmp_path, text)
    assert found, str(found)
    assert found.figures


@pytest.mark.parametrize(
    ("text", "column", "should"),
    [
        ("0.59 <!-- ix: weights[2, 2] -->", 1, "0.58"),
        ("so 57 % <!-- ix: weights[2, 2] -->", 4, "58 %"),
        ("`0.5762` <!-- ix: weights[2, 2] -->", 2, "0.5761"),
        ("`e/(1+e)` <!-- ix: weights[2, 2] -->", 2, "e/(2+e)"),
        ("−3 <!-- ix: scores[2, 2] -->", 1, "2"),
        ("0.21, 0.22 and 0.58 <!-- ix: weights[2] -->", 7, "0.21"),
        ("1 <!-- ix: weights[0, 1] -->", 1, "masked"),
        ("7/2 <!-- ix: total -->", 1, "5/2"),
    ],
)
def test_figures_that_fail_say_where_and_what_it_should_be(tmp_path: Path, text: str, column: int, should: str) -> None:
    found = verified(tmp_path, text)
    (finding,) = found.diagnostics
    place = finding.to_json()["labels"][0]
    assert (finding.code, place["line"], place["column"]) == ("IX516", 8, column)
    assert finding.fix is not None
    assert finding.fix.replacement == should
    assert f"page.md:8:{column}" in str(found)
    assert "^" in str(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 <!-- ix: wieghts[0, 0] -->", "did you mean `weights`?"),
        ("1 <!-- ix: scores[3, 0] -->", "`i` has 3 points, from 0"),
        ("1 <!-- ix: total[0] -->", "the scalar `total`"),
        ("1 <!-- ix: scores[i, j] -->", "is no element"),
        ("one <!-- ix: scores[0, 0] --> figure", "none stands beside this comment"),
        ("0.21 and 0.58 <!-- ix: weights[2] -->", "is 3 figures, and 2 figures stand"),
        ("1 <!-- ix: other.ix: scores[0, 0] -->", "no program of this page is called `other.ix`"),
        ("1 <!-- ix: -->", "names no element"),
        ("<!-- ix: scores -->\n| 1 | 0 |\n|-|-|\n| 1 | 0 |", "is 3 × 3, and the table under this has 1 × 2"),
        ("<!-- ix: weights[2] -->\n| a | b | c |\n|-|-|-|\n| 0.21 | some | 0.58 |", "`some` is no figure"),
        ("```python\nopen", "not closed"),
        ("1 <!-- ix scores[0, 0] -->", "a comment is written"),
        ("1 <!-- ix: scores[0,\n0] -->", "a comment is written"),
    ],
)
def test_comments_that_name_nothing(tmp_path: Path, text: str, words: str) -> None:
    try:
        said = str(verified(tmp_path, text))
    except ix.CallError as problem:
        said = str(problem)
    assert words in said
    assert "error[IX517]" in said


def test_code_front_matter_and_plain_comments_are_left_alone(tmp_path: Path) -> None:
    text = "`0.1 <!-- ix: nothing -->` <!-- a remark -->\n\n~~~md\n0.1 <!-- ix: nothing -->\n~~~\n\n    ```\n"
    page = tmp_path / "page.md"
    page.write_text(f"---\nx: 0.1 <!-- ix: nothing -->\n---\n{text.rstrip(' `' + chr(10))}\n", encoding="utf-8")
    found = ix.verify_page(page)
    assert found
    assert "no figure is tied to a program" in str(found)


def test_several_programs_and_files_beside_the_page(tmp_path: Path) -> None:
    (tmp_path / "beside.ix").write_text("let x = 3;\n", encoding="utf-8")
    second = "```ix\nlet scores = 7;\n```\n\n7 <!-- ix: scores -->, 3 <!-- ix: x -->, 1 <!-- ix: weights[0, 0] -->\n"
    found = verified(tmp_path, "1 <!-- ix: scores[0, 0] -->\n\n```ix beside.ix\n```\n\n" + second)
    assert found, str(found)
    assert len(found.figures) == 4


def test_claims_inputs_and_rounding(tmp_path: Path) -> None:
    page = tmp_path / "claims.md"
    text = "```ix\ninput x;\nlet y = ~0.33 * x;\nexpect y == 5;\n```\n\n1.00 <!-- ix: y -->\n"
    page.write_text(text, encoding="utf-8")
    found = ix.verify_page(page, x=3)
    assert [finding.message for finding in found.diagnostics] == ["a claim of this program fails"]
    page.write_text(text.replace("```ix", "<!-- ix: claims fail -->\n```ix"), encoding="utf-8")
    assert ix.verify_page(page, x=3)
    assert not ix.verify_page(page, strict=True, x=3)
    page.write_text(text.replace("```ix", "<!-- ix: claims fail -->\n```ix").replace("5", "0.99"), encoding="utf-8")
    assert "none does" in str(ix.verify_page(page, x=3))


def test_a_program_that_does_not_compile_is_shown_at_its_line_of_the_page(tmp_path: Path) -> None:
    found = verified(tmp_path, "```ix\nlet a = b;\n```\n\n1 <!-- ix: a -->")
    assert "page.md:9:9" in str(found)
    assert not found


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{PROGRAM}0.59 <!-- ix: weights[2, 2] -->\n", encoding="utf-8")
    assert main(["verify", str(page)]) == 1
    assert "1 figure: 1 does not" in capsys.readouterr().out
    assert main(["verify", str(page), "--format", "json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["figures"][0]["should_be"] == "0.58"
    assert (report["figures"][0]["line"], report["figures"][0]["column"]) == (8, 1)


def test_the_command_gives_values_to_open_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("```ix\ninput x[i];\nlet y[i] = 2 * x[i];\n```\n\n`[2, 4]` <!-- ix: y -->\n", encoding="utf-8")
    np.savez(tmp_path / "all.npz", x=np.array([1.0, 2.0]), other=np.array([0.0]))
    assert main(["verify", str(page), "--value", "x=[1, 2]"]) == 0
    assert main(["verify", str(page), "--input", str(tmp_path / "all.npz")]) == 0
    assert main(["verify", str(page), "--value", "x=[1, 3]"]) == 1
    assert "`y[1]` is 6, and 4 is printed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2√2", "2.0 * sqrt(2.0)"), ("e^-1", "exp((-1.0))"), ("π/2", "pi / 2.0"), ("x + 1", None), ("(1", None)],
)
def test_exact_forms(text: str, expected: str | None) -> None:
    assert form(text) == expected


PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/lessons/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_own_pages(page: Path) -> None:
    found = ix.verify_page(page)
    assert found, str(found)
