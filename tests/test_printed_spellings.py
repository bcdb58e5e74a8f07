"""`ix verify` on pages: numbers as people print them, in prose, rows, tables, lists and formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexical as ix

PROGRAM = """```ix
let a             = 0.457;
let b             = -1.08;
let c             = 1234.567;
let h             = 0.5;
let r             = sqrt(2.0);
let third         = 2 / 3.0;
let tiny          = 0.000512;
let endless       = 1.0 / 0;
let w[j]          = [0.1, 0.2, 0.7];
let m[i, j]       = [[0.1, 0.2], [0.3, 0.4]];
let k[i, j in 0..2] = m[i, j] where j <= i;
let later[p in 2..5] = sqrt(p as f64);
```

"""


def verified(tmp_path: Path, text: str) -> Any:
    page = tmp_path / "page.md"
    page.write_text(f"{PROGRAM}{text}\n", encoding="utf-8")
    return ix.verify_page(page)


# An element, a spelling that holds, one that fails, and what the failing one should be, in the spelling of the page.
SPELLINGS = [
    ("a", "0.46", "0.47", "0.46"),
    ("a", "+0.46", "+0.47", "+0.46"),
    ("a", "≈ 0.46", "≈ 0.47", "0.46"),
    ("a", "~0.46", "~0.48", "0.46"),
    ("a", "46 %", "47 %", "46 %"),
    ("a", "46\u202f%", "47\u202f%", "46\u202f%"),
    ("a", "45.7 percent", "45.6 percent", "45.7 percent"),
    ("a", "457 ‰", "475 ‰", "457 ‰"),
    ("a", "**0.46**", "**0.47**", "0.46"),
    ("a", "_0.46_", "_0.47_", "0.46"),
    ("a", "<b>0.46</b>", "<b>0.47</b>", "0.46"),
    ("a", '<span class="x">0.46</span>', '<span class="x">0.47</span>', "0.46"),
    ("a", "[0.46](https://x.org/a_(b))", "[0.47](https://x.org/a_(b))", "0.46"),
    ("a", "~~0.40~~ 0.46", "~~0.46~~ 0.40", "0.46"),
    ("a", "0.46[^1]", "0.47[^1]", "0.46"),
    ("a", "0.46\u200b", "0.47\u200b", "0.46"),
    ("a", "«0.46»", "«0.47»", "0.46"),
    ("a", "0.46†", "0.47†", "0.46"),
    ("a", "`a = 0.46`", "`a = 0.47`", "0.46"),
    ("a", "4.6 × 10⁻¹", "4.7 × 10⁻¹", "4.6 × 10⁻¹"),
    ("a", "4.6 · 10^-1", "4.6 · 10^-2", "4.6 · 10^-1"),
    ("a", "4.6×10<sup>&minus;1</sup>", "4.7×10<sup>&minus;1</sup>", "4.6×10<sup>&minus;1</sup>"),
    ("a", "4.57e-1", "4.58e-1", "4.57e-1"),
    ("tiny", "5 × 10⁻⁴", "5 × 10⁻³", "5 × 10⁻⁴"),
    ("a", "0.457 ± 0.001", "0.459 ± 0.001", "0.457 ± 0.001"),
    ("a", "0.45 +/- 0.01", "0.44 +/- 0.01", "0.46 +/- 0.01"),
    ("a", "0.457(1)", "0.459(1)", "0.457(1)"),
    ("a", "(4.57 ± 0.01) × 10⁻¹", "(4.59 ± 0.01) × 10⁻¹", "(4.57 ± 0.01) × 10⁻¹"),
    ("a", "45.7 ± 0.1 %", "45.9 ± 0.1 %", "45.7 ± 0.1 %"),
    ("a", "is > 0.45", "is > 0.46", None),
    ("a", "is ≤ 0.46", "is ≤ 0.45", None),
    ("a", "is &lt; 0.46", "is &gt; 0.46", None),
    ("a", "more than 0.45", "more than 0.46", None),
    ("a", "at most 0.46", "at most 0.45", None),
    ("a", "0,46", "0,47", "0,46"),
    ("b", "–1.08", "–1.09", "–1.08"),
    ("b", "−1.08", "1.08", "-1.08"),
    ("b", "&minus;1.08", "&minus;1.09", "&minus;1.08"),
    ("b", "−$1.08", "−$1.09", "−$1.08"),
    ("a", "0.46", "−0.46", "0.46"),
    ("c", "1 234.57", "1 234.75", "1 234.57"),
    ("c", "1\u202f234.57", "1\u202f234.58", "1\u202f234.57"),
    ("c", "1&#8239;234.57", "1&#8239;243.57", "1&#8239;234.57"),
    ("c", "1,234.57", "1,243.57", "1,234.57"),
    ("c", "1'234.57", "1'234.58", "1'234.57"),
    ("c", "1234,567", "1234,576", "1234,567"),
    ("b", "−1,0800", "−1,0801", "−1,0800"),
    ("c", "1.234,57", "1.234,58", "1.234,57"),
    ("c", "$1,234.57", "$1,234.58", "$1,234.57"),
    ("c", "1234.57 €", "1234.58 €", "1234.57"),
    ("c", "≈ 1200", "≈ 1300", None),
    ("c", "≈ 1235", "≈ 1236", None),
    ("c", "about 1200", "about 1300", None),
    ("h", "1/2", "1/3", "1/2"),
    ("h", "½", "¼", "1/2"),
    ("h", "`1/2`", "`1/3`", "1/2"),
    ("r", "√2", "√3", "√2"),
    ("third", "0.666…", "0.665…", "0.666…"),
    ("third", "0.667", "0.666", "0.667"),
    ("k[0, 1]", "masked", "0.5", "masked"),
    ("k[0, 1]", "−∞", "−5", "masked"),
    ("endless", "∞", "−∞", "∞"),
    ("a", "$0.46$", "$0.45$", "0.46"),
    ("a", r"\(0.46\)", r"\(0.47\)", "0.46"),
    ("a", "$w_0 = 0.46$", "$w_0 = 0.48$", "0.46"),
    ("a", r"$w_{0,1} \approx 0.46$", r"$w_{0,1} \approx 0.47$", "0.46"),
    ("a", r"$\mathbf{0.46}$", r"$\mathbf{0.47}$", "0.46"),
    ("a", r"$\text{about } 0.46$", r"$\text{about } 0.47$", "0.46"),
    ("a", r"$\color{red}{0.46}$", r"$\color{red}{0.47}$", "0.46"),
    ("a", r"$46\,\%$", r"$47\,\%$", r"46\,\%"),
    ("a", r"$4.6 \times 10^{-1}$", r"$4.6 \times 10^{-2}$", r"4.6 \times 10^{-1}"),
    ("a", r"$0.457 \pm 0.001$", r"$0.467 \pm 0.001$", r"0.457 \pm 0.001"),
    ("a", r"$w > 0.45$", r"$w \geq 0.46$", None),
    ("c", r"$1\,234.57$", r"$1\,234.58$", r"1\,234.57"),
    ("c", r"$1{,}234.57$", r"$1{,}234.58$", r"1{,}234.57"),
    ("h", r"$\frac{1}{2}$", r"$\frac{1}{3}$", r"\frac{1}{2}"),
    ("h", r"$\frac12$", r"$\frac13$", r"\frac{1}{2}"),
    ("r", r"$\sqrt{2}$", r"$\sqrt{3}$", r"\sqrt{2}"),
    ("third", r"$\tfrac{2}{3} \approx 0.667$", r"$\tfrac{2}{3} \approx 0.666$", "0.667"),
    ("k[0, 1]", r"$-\infty$", "$3$", r"\text{masked}"),
]

PLACES = {
    "prose": "It is {} <!-- ix: {name} -->, that is all.",
    "before": "<!-- ix: {name} --> {}",
    "cell": "<!-- ix: {name} -->\n| v |\n|---|\n| {} |",
    "open table": "x | v\n--|--\n0 | {} <!-- ix: {name} -->",
    "web table": "<!-- ix: {name} -->\n<table><tr><th>v</th></tr>\n<tr><td>{}</td></tr></table>",
}


# Between a comment and the figure behind it stand no words.
WORDED = ("is", "~~", "mo", "at", "ab")
CASES = [(at, *each) for at in PLACES for each in SPELLINGS if at != "before" or each[1][:2] not in WORDED]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("place", "name", "good", "wrong", "should"), CASES)
def test_spellings(tmp_path: Path, place: str, name: str, good: str, wrong: str, should: str | None) -> None:
    found = verified(tmp_path, PLACES[place].replace("{name}", name).replace("{}", good))
    assert found, str(found)
    assert len(found.figures) == 1
    found = verified(tmp_path, PLACES[place].replace("{name}", name).replace("{}", wrong))
    (finding,) = found.diagnostics
    assert finding.code == "IX516", str(found)
    assert (finding.fix and finding.fix.replacement) == should
    label = finding.to_json()["labels"][0]
    assert label["line"] > PROGRAM.count("\n")


# A tensor, its figures as they are printed, and one of them changed.
ROWS = [
    ("w", "0.1, 0.2 and 0.7", "0.7"),
    ("w", "0.1,0.2,0.7", "0.2"),
    ("w", "0,1; 0,2; 0,7", "0,7"),
    ("w", "10 %, 20 % and 70 %", "70"),
    ("w", "(0.1, 0.2, 0.7)", "0.2"),
    ("w", "[0.1, 0.2, 0.7]", "0.2"),
    ("w", "`[0.1, 0.2, 0.7]`", "0.1"),
    ("w", "`tensor([0.1000, 0.2000, 0.7000])`", "0.2000"),
    ("w", "`array([0.1, 0.2, 0.7], dtype=float32)`", "0.2"),
    ("w", "$0.1$, $0.2$ and $0.7$", "0.2"),
    ("w", "$0.1, 0.2, 0.7$", "0.2"),
    ("w", "$w_0 = 0.1, w_1 = 0.2, w_2 = 0.7$", "0.2"),
    ("w", r"$\left[ 0.1, 0.2, 0.7 \right]$", "0.2"),
    ("w", r"$[0.1 \; 0.2 \; 0.7]^\top$", "0.2"),
    ("w", r"$w = \begin{pmatrix} 0.1 \\ 0.2 \\ 0.7 \end{pmatrix}$", "0.2"),
    ("w", "`w[0]` is 0.1, `w[1]` is 0.2 and `w[2]` is 0.7", " 0.2"),
    ("m", "[[0.1, 0.2], [0.3, 0.4]]", "0.3"),
    ("m", "[0.1, 0.2; 0.3, 0.4]", "0.3"),
    ("m", "`[[0.1 0.2] [0.3 0.4]]`", "0.3"),
    ("m", r"$\begin{bmatrix} 0.1 & 0.2 \\ 0.3 & 0.4 \end{bmatrix}$", "0.3"),
    ("m", r"$M = \left( \begin{array}{cc} 0.1 & 0.2 \\ \hline 0.3 & 0.4 \\ \end{array} \right)$", "0.3"),
    ("k", r"$\begin{matrix} 0.1 & -\infty \\ \frac{3}{10} & 0.4 \end{matrix}$", "0.4"),
    ("later", "1.41, 1.73 and 2", "1.73"),
    ("later", r"$\begin{bmatrix} \sqrt{2} & \sqrt{3} & 2 \end{bmatrix}$", "2 \\end"),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "text", "digits"), ROWS)
def test_rows(tmp_path: Path, name: str, text: str, digits: str) -> None:
    for place in ("{} <!-- ix: {name} -->.", "<!-- ix: {name} -->\n{}"):
        if "is 0.1" in text and place.startswith("<!"):
            continue
        found = verified(tmp_path, place.replace("{name}", name).replace("{}", text))
        assert found, str(found)
        assert len(found.figures) == {"w": 3, "m": 4, "k": 4, "later": 3}[name]
        changed = digits.replace(digits.strip("0., \\end"), "9" * len(digits.strip("0., \\end")))
        found = verified(tmp_path, place.replace("{name}", name).replace("{}", text.replace(digits, changed, 1)))
        (finding,) = found.diagnostics
        assert finding.code == "IX516", str(found)


BLOCKS = [
    ("w", "$$\nw = \\begin{bmatrix} 0.1 \\\\\n 0.2 \\\\\n 0.7 \\end{bmatrix}\n$$"),
    ("w", "\\[\nw = [0.1, 0.2, 0.7]\n\\]"),
    ("w", "\\begin{aligned} w_0 &= 0.1 \\\\\n w_1 &= 0.2 \\\\\n w_2 &= 0.7 \\end{aligned}"),
    ("w", "```text\n[0.1 0.2 0.7]\n```"),
    ("w", "~~~\ntensor([0.1000, 0.2000, 0.7000], dtype=torch.float64)\n~~~"),
    ("w", "```\n0.1\n0.2\n0.7\n```"),
    ("w", "    array([0.1, 0.2, 0.7])"),
    ("m", "```\n[[0.1 0.2]\n [0.3 0.4]]\n```"),
    ("m", "```pycon\n>>> m\narray([[0.1, 0.2],\n       [0.3, 0.4]])\n```"),
    ("m", "```\n0.1  0.2\n0.3  0.4\n```"),
    ("a, w", "```\na = 0.457\nw = [0.1, 0.2, 0.7]\n```"),
    ("m", "a | b\n--|--\n0.1 | 0.2\n0.3 | 0.4"),
    ("m", "| | a | b |\n|--|--|--|\n| x | $0.1$ | `0.2` |\n| y | **0.3** | 40 % |"),
    ("m", "| a | b |\n|--|--|\n| 0.1 (first) | 0.2 ✓ |\n| **0.3** (best) | w = 0.4 |"),
    ("m", "<table>\n<tr><td>0.1</td><td>0.2</td></tr>\n<tr><td>0.3<td>0.4\n</table>"),
    ("m", "|  |  |\n|--|--|\n| 0.1 | 0.2 |\n| 0.3 | 0.4 |"),
    ("m", "| | 1 |\n|-|-|\n| 0 | 0.2 |\n| 1 | 0.4 |"),
    ("w", "| token | w | score |\n|-|-|-|\n| a | 0.1 | 5 |\n| b | 0.2 | 6 |\n| c | 0.7 | 7 |"),
    ("later, w", "| Root | w |\n|-|-|\n| 1.41 | 0.1 |\n| 1.73 | 0.2 |\n| 2 | 0.7 |"),
    ("w, later", "| n | Later | W |\n|-|-|-|\n| a | 1.41 | 0.1 |\n| b | 1.73 | 0.2 |\n| c | 2 | 0.7 |"),
    ("w, w", "| theirs | ours |\n|-|-|\n| 0.1 | 0.10 |\n| 0.2 | 0.20 |\n| 0.7 | 0.70 |"),
    ("later", "| p = 2 | p = 4 |\n|-|-|\n| 1.41 | 2 |"),
    ("later", "p | root\n-|-\n2 | 1.41\n4 | 2"),
    ("later", "| 1.41 | 1.73 | 2 |\n|-|-|-|\n| 1.41 | 1.73 | 2 |"),
]


@pytest.mark.parametrize("between", ["\n", "\n\n"])
@pytest.mark.parametrize(("name", "text"), BLOCKS)
def test_blocks_under_a_comment(tmp_path: Path, name: str, text: str, between: str) -> None:
    found = verified(tmp_path, f"<!-- ix: {name} -->{between}{text}")
    assert found, str(found)
    assert len(found.figures) > 1


@pytest.mark.parametrize(
    "text",
    [
        "Of these 3 weights:\n<!-- ix: w -->\n$$ [0.1, 0.2, 0.7] $$",
        "Step 3:\n<!-- ix: a -->\n$$ a = 0.46 $$",
        "It is 0.46\n<!-- ix: a -->\n\n```\nprint(1)\n```",
        "It is 0.46\n<!-- ix: a -->\nand then 5.",
        "0.46 [3] <!-- ix: a -->, as is known",
        "- 0.46 <!-- ix: a -->\n- 50 % <!-- ix: h -->\n1. 0.5 <!-- ix: h -->",
        "1. 0.1\n2. 0.2\n3. 0.7\n<!-- ix: w -->",
        "<!-- ix: w -->\n1. the: 0.1\n2. cat: 0.2\n3. sat: 0.7",
        "> 46 % <!-- ix: a -->\n> and 0.5 <!-- ix: h -->",
        "0.46 <!-- ix: a --> <!-- ix: a -->",
        "<!-- ix: w[0] -->\n`0.1` and more than 5.",
    ],
)
def test_which_figures_a_comment_is_about(tmp_path: Path, text: str) -> None:
    found = verified(tmp_path, text)
    assert found, str(found)
    assert found.figures


@pytest.mark.parametrize(
    ("text", "words", "at"),
    [
        ("12k <!-- ix: c -->", "`12k` is no figure", "12k"),
        ("1.2.3 <!-- ix: c -->", "`1.2.3` is no figure", "1.2.3"),
        ("3–5 <!-- ix: c -->", "`5` is no figure", "5"),
        ("1 1/2 <!-- ix: c -->", "a sum or two figures", "1/2"),
        ("0.1 × 2.5 <!-- ix: c -->", "belongs to what stands before it", "2.5"),
        ("It is - 0.46 <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        ("It is minus 0.46 <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        ("It is −$0.46$ <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        ("0.45 – 0.46 <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        ("between 0.4 and 0.6 <!-- ix: a -->", "a range is no figure", "0.6"),
        ("0.46 < a < 0.5 <!-- ix: a -->", "a range is no figure", "0.5 <"),
        ("$0.46 < a < 0.5$ <!-- ix: a -->", "a range is no figure", "0.46"),
        ("a ≠ 0.46 <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        (r"$a \neq 0.46$ <!-- ix: a -->", "is no figure", r"a \neq"),
        ("±0.46 <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        ("> 1/3 is it, > 1/3 <!-- ix: a -->", "a bound is written as a decimal", "1/3 <"),
        ("0.46² <!-- ix: a -->", "a power or a note", "0.46²"),
        ("0.46<sup>1</sup> <!-- ix: a -->", "a power or a note", "0.46<sup>"),
        ("`softmax([0.1, 0.2, 0.7])` <!-- ix: w -->", "is no figure", "softmax"),
        ("w = − 0.46 <!-- ix: a -->", "belongs to what stands before it", "0.46"),
        ("0.457 12 <!-- ix: a -->", "one number or two", "0.457 12"),
        ("[[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]] <!-- ix: m -->", "`m` is 2 × 2", "[[0.1"),
        (r"$\begin{bmatrix} 0.1 & 0.2 \\ 0.3 & 0.4 \end{bmatrix}^T$ <!-- ix: m -->", "is no figure", r"\begin"),
        ("0.4,6 <!-- ix: a -->", "`0.4,6` is no figure", "0.4,6"),
        ("0.46 (a) <!-- ix: a -->, 0.457", "none stands beside this comment", "a -->"),
        ("0.46 ms <!-- ix: a -->", "`ms` stands between the last figure and this", "a -->"),
        (r"$0.\overline{3}$ <!-- ix: third -->", "is no figure", r"0.\overline"),
        (r"$2\frac{1}{2}$ <!-- ix: c -->", "a sum or a product", r"2\frac"),
        (r"$\begin{bmatrix} 0.1 & \cdots & 0.7 \end{bmatrix}$ <!-- ix: w -->", "figures are left out", r"\cdots"),
        ("[0.1, 0.2] <!-- ix: w -->", "`w` is 3, and this list has 2 figures", "[0.1"),
        ("[[0.1, 0.2], [0.3]] <!-- ix: m -->", "different lengths", "[[0.1"),
        ("`[0.1, nan, 0.7]` <!-- ix: w -->", "what is no number cannot be claimed", "nan"),
        ("0.5, 0.1, 0.2 and 0.7 <!-- ix: w -->", "more stand in a row", "w -->"),
        ("<!-- ix: a -->\n```\n0.457\n0.5\n```", "no name of the comment is left", "0.5\n```"),
        ("<!-- ix: a, h -->\n```\n0.457\n```", "`h` is a figure, and none stands under", "h -->"),
        ("<!-- ix: a -->\n| v |\n|-|\n| 0.46 (3 runs) |", "`0.46 (3 runs)` is no figure", "0.46 (3"),
        ("<!-- ix: a -->\n| v |\n|-|\n| 0.1–0.5 |", "a range is no figure", "0.1–0.5"),
        ("<!-- ix: m -->\n<table><tr><td colspan=2>0.1</td></tr></table>", "over several rows or columns", "<td"),
        ("<!-- ix: later[1] --> 1", "`p` has 3 points, from 2", "later[1]"),
    ],
)
def test_what_cannot_be_read_is_a_finding_at_its_place(tmp_path: Path, text: str, words: str, at: str) -> None:
    try:
        (finding,) = verified(tmp_path, text).diagnostics
    except ix.CallError as problem:
        (finding,) = problem.diagnostics
    assert finding.code == "IX517"
    assert words in str(finding)
    span = finding.labels[0].span
    whole = f"{PROGRAM}{text}\n"
    assert span.start == whole.rindex(at)


def test_no_finding_points_at_a_line_that_is_not_on_the_page(tmp_path: Path) -> None:
    """Tensors that begin above 0, and whatever else a claim is refused for."""
    table = "<!-- ix: later -->\n| 2 | 3 |\n|-|-|\n| 1.41 | 1.74 |"
    found = verified(tmp_path, f"It is 1.74 <!-- ix: later[3] -->.\n\n{table}")
    assert [figure.reference for figure in found.figures] == ["later[3]", "later[2]", "later[3]"]
    lines = (tmp_path / "page.md").read_text(encoding="utf-8").splitlines()
    for finding in found.diagnostics:
        place = finding.to_json()["labels"][0]
        assert lines[place["line"] - 1][place["column"] - 1 : place["end_column"] - 1] == "1.74"


def test_a_comma_that_may_be_a_point(tmp_path: Path) -> None:
    """`1,414` is 1414, and nobody is told that 1.414 is wrong."""
    found = verified(tmp_path, "It is 1,414 <!-- ix: r --> or 1,415 <!-- ix: r -->, and 1,235 <!-- ix: h -->.")
    assert [figure.verdict for figure in found.figures] == ["undecided", "fails", "fails"]
    assert "may be that, with a comma for its point" in str(found)


def test_a_wrong_figure_names_its_cause(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        """```ix
let q[d]     = [1.0, 0.0];
let k[j, d]  = [[1.0, 1.0], [0.0, 1.0], [0.5, 0.2]];
let score[j] = sum[d](q[d] * k[j, d]) / sqrt(size(d));
let w[j]     = softmax[j](score[j]);
```

$$ s = \\begin{bmatrix} 1.00 & 0.00 & 0.50 \\end{bmatrix} $$
<!-- ix: score -->

The weights are `[0.51, 0.19, 0.31]` <!-- ix: w -->.
""",
        encoding="utf-8",
    )
    found = ix.verify_page(page)
    wrong = [figure for figure in found.figures if figure.finding is not None]
    assert [figure.reference for figure in wrong] == ["score[0]", "score[2]", "w[0]", "w[1]", "w[2]"]
    assert {figure.cause.kind for figure in wrong if figure.cause is not None} == {"scale"}
    assert "cause: holds if, in `score`, the scale is left out" in str(found)
    assert "it explains 4 other figures too" in str(found)
    assert found.to_json()["figures"][0]["cause"]["kind"] == "scale"
    assert [figure["cause"] for figure in found.to_json()["figures"] if figure["verdict"] == "holds"] == [None]
