"""`ix check --fix`: every mechanical fix, put into the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexical as ix
from indexical.cli import main

BROKEN = """\
input scores[i, j], x[e] : float32;
let past[i, j] = scores[i, j] where j ≤ i;
let weights[i, j] = softmax[j](past[i, j]);
let half[i, j] = softmax[j](past[i, j]) / 2 where j > 0;
let raised[a, b] = exp(past[a, b]) × 2;
let most[a] = max[b](past[a, b] where b > 0);
let total[i] = sum[j](exp(past[i, j]))
let more[i, j] = past[i, j] + 1;
let logs[u, v] = log(more[u, v]) where u > 1;
# a norm
let y[e] = x[e] * rsqrt(mean[e](x[e] ** 2));
output weights, half, raised, mots, total, logs, y;
"""

MENDED = """\
input scores[i, j], x[e] : f32;
let past[i, j] = scores[i, j] where j <= i;
let weights[i, j] = softmax[j](past[i, j] where j <= i);
let half[i, j] = softmax[j](past[i, j] where j <= i) / 2 where j > 0;
let raised[a, b] = exp(past[a, b]) * 2 where b <= a;
let most[a] = max[b](past[a, b] where b > 0, b <= a);
let total[i] = sum[j](exp(past[i, j]) where j <= i);
let more[i, j] = past[i, j] + 1;
let logs[u, v] = log(more[u, v]) where u > 1, v <= u;
// a norm
let y[e] = x[e] * rsqrt(mean[e](x[e] ** 2));
output weights, half, raised, most, total, logs, y;
"""


def test_what_is_mechanical_is_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.ix"
    path.write_text(BROKEN, encoding="utf-8")
    assert main(["check", "--strict", "--fix", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == MENDED
    assert "12 fixes" in capsys.readouterr().err
    assert main(["check", "--strict", "--fix", str(path)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("let y[i] = x[i] > 0 and (x[i] < 1 or x[i] > 2);", "let y[i] = x[i] > 0 && (x[i] < 1 || x[i] > 2);"),
        ("let y[i] = x[i] where not(i > 1) and i > 0;", "let y[i] = x[i] where !(i > 1) && i > 0;"),
        ("let y[i] = π * x[i];", "let y[i] = pi * x[i];"),
        ("use std::norm::{unit_norm};\nlet y = unit_norm(x, 1e-6);", None),
    ],
)
def test_words_of_other_languages_are_mended(text: str, mended: str | None, tmp_path: Path) -> None:
    path = tmp_path / "words.ix"
    path.write_text(f"input x[i];\n{text}\n", encoding="utf-8")
    assert main(["check", "--strict", "--fix", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == f"input x[i];\n{mended or text.replace('std::norm:', 'std::norms:')}\n"


def test_the_file_keeps_its_mark_and_its_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "other.ix"
    path.write_bytes(b"\xef\xbb\xbfinput x[i];\r\nlet y[i] = x[i] \xc3\x97 2;\r\n")
    assert main(["check", "--fix", str(path)]) == 0
    assert path.read_bytes() == b"\xef\xbb\xbfinput x[i];\r\nlet y[i] = x[i] * 2;\r\n"


def test_what_is_no_mend_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "left.ix"
    text = "input x[i];\nlet y[i] = x[i] * (2;\nlet z[i] = w[i] where i > 0;\n"
    path.write_text(text)
    assert main(["check", "--fix", str(path)]) == 1
    assert path.read_text() == text
    assert "IX102" in capsys.readouterr().err


def test_a_guard_in_letters_that_are_not_there_has_no_fix() -> None:
    text = "input x[i, j], p[i]; let a[i, j] = x[i, j] where j <= i; let b[i] = max[j](a[p[i], j]);"
    found = [finding for finding in ix.check(text) if finding.code == "IX309"]
    assert [finding.fix is not None and finding.fix.replacement for finding in found] == [" where j <= p[i]"]


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("let y[e] = x[e] * rsqrt(mean[e](x[e] ** 2) + 1e-6);", False),
        ("let y[e] = (x[e] - mean[e](x[e])) * rsqrt(mean[e]((x[e] - mean[e](x[e])) ** 2));", False),
        ("let y[e] = exp(x[e]) / sum[e](exp(x[e]));", False),
        ("let y[e] = x[e] / { let n = sum[e](x[e] ** 2); n };", True),
        ("let y[e] = sum[e](x[e]);", True),
        ("let y[e] = x[e] * sum[e](x[e] * w[e]);", True),
        ("let y[e] = w[e] * sum[e](x[e]);", True),
        ("let y[e] = x[e] * sum[e in 0..2](x[e]);", True),
    ],
)
def test_a_norm_is_no_shadowing(text: str, warns: bool) -> None:
    found = [finding.code for finding in ix.check(f"input x[e], w[e]; let used[e] = w[e]; {text}")]
    assert ("IX204" in found) == warns
