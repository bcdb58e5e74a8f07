"""`ix verify` on web pages saved as HTML, and on notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import indexical as ix
from indexical.cli import main

PROGRAM = """let scores[j]  = [1.0, 2.0, 3.0];
let weights[j] = softmax[j](scores[j]) where j &lt;= 2;
let total      = -sum[j](scores[j]);
"""
BLOCK = f'<pre><code class="language-ix">{PROGRAM}</code></pre>\n'


def on_the_web(tmp_path: Path, text: str, block: str = BLOCK) -> Any:
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html>\n<html><body>\n{block}{text}\n</body></html>\n", encoding="utf-8")
    return ix.verify_page(page)


@pytest.mark.parametrize(
    "text",
    [
        "<p>It is <b>0.09</b> <!-- ix: weights[0] --> here.</p>",
        "<p>It is <!-- ix: weights[0] --> <em>0.09</em>.</p>",
        '<p><a href="x.html">0.67</a><!-- ix: weights[2] --> and 67&nbsp;% <!-- ix: weights[2] --></p>',
        "<p>&minus;6 <!-- ix: total -->, &#8722;6 <!-- ix: total -->, &#x2212;6 <!-- ix: total --></p>",
        "<p>&ndash;6.0 <!-- ix: total --></p>",
        "<p>9.0&nbsp;&times;&nbsp;10<sup>&minus;2</sup> <!-- ix: weights[0] --></p>",
        "<p>9.0&times;10<sup>&#8722;2</sup> <!-- ix: weights[0] --></p>",
        "<ul><li>&lt; 0.25 <!-- ix: weights[1] --><li>&gt; 0.24 <!-- ix: weights[1] --></ul>",
        r"<p>\(w_1 \approx 0.24\) <!-- ix: weights[1] --></p>",
        "<p><code>[0.09, 0.24, 0.67]</code> <!-- ix: weights --></p>",
        r"<p>\(w_1 &lt; 0.25\) <!-- ix: weights[1] --></p>",
        r"<!-- ix: weights --><p>\[ \begin{bmatrix} 0.09 &amp; 0.24 &amp; 0.67 \end{bmatrix} \]</p>",
        "<!-- ix: weights --><ol><li>the: 0.09</li><li>cat: 0.24</li><li>sat: 0.67</li></ol>",
        '<p><span class="MathJax"><b>0.1</b></span><script type="math/tex">0.09</script><!-- ix: weights[0] --></p>',
        "<p>0.0&shy;9&#8203; <!-- ix: weights[0] --></p>",
        "<!-- ix: weights --><table><tr><th>a<th>b<th>c<tr><td>0.09<td>0.24<td>0.67</table>",
        "<!-- ix: weights -->\n<div><table><tbody><tr><td>0.09</td><td>0.24</td><td>0.67</td></tr></table></div>",
        "<!-- ix: weights -->\n<table><tr><th>j</th><th>w</th></tr><tr><th>2</th><td>0.67</td></tr></table>",
        "<!-- ix: weights -->\n<pre>tensor([0.0900, 0.2447, 0.6652])</pre>",
        "<!-- ix: weights -->\n<p>$$ \\begin{bmatrix} 0.09 \\\\ 0.24 \\\\ 0.67 \\end{bmatrix} $$</p>",
        '<p><span class="katex"><span class="katex-mathml"><math><mn>0.24</mn><annotation encoding="application/x-tex">'
        'w \\approx 0.24</annotation></math></span><span class="katex-html"><span>0.25</span></span></span>'
        "<!-- ix: weights[1] --></p>",
        "<script>x = '<!-- ix: nothing -->';</script><p>0.09 <!-- ix: weights[0] --></p>",
    ],
)
def test_figures_of_web_pages_that_hold(tmp_path: Path, text: str) -> None:
    found = on_the_web(tmp_path, text)
    assert found, str(found)
    assert found.figures


@pytest.mark.parametrize(
    "block",
    [
        BLOCK,
        f'<pre class="ix"><code>{PROGRAM}</code></pre>\n',
        f'<div class="highlight-ix notranslate"><div class="highlight"><pre>{PROGRAM}</pre></div></div>\n'.replace(
            'notranslate"><div class="highlight">', 'notranslate">'
        ),
        BLOCK.replace("let", '<span class="k">let</span>'),
        '<script type="text/ix">\n' + PROGRAM.replace("&lt;", "<") + "</script>\n",
    ],
)
def test_programs_of_web_pages(tmp_path: Path, block: str) -> None:
    found = on_the_web(tmp_path, "<p>0.09 <!-- ix: weights[0] --></p>", block)
    assert found, str(found)
    found = on_the_web(tmp_path, "<p>0.10 <!-- ix: weights[0] --></p>", block)
    (finding,) = found.diagnostics
    assert finding.fix is not None
    assert finding.fix.replacement == "0.09"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<p>&#8722;7 <!-- ix: total --></p>", "`total` is -6, and &#8722;7 is printed"),
        ("<p><math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> <!-- ix: total --></p>", "where it is written in LaTeX"),
        ("<p>1 <!-- ix total --></p>", "a comment is written"),
        ("<!-- ix: weights --><table><tr><td>1", "this <table> is not closed"),
        ("<!-- ix: weights --><table><tr><td rowspan='2'>1</table>", "over several rows or columns"),
        ("<pre>open", "this <pre> is not closed"),
        ("<p>1 <!-- ix: wieghts[0] --></p>", "did you mean `weights`?"),
    ],
)
def test_findings_of_web_pages(tmp_path: Path, text: str, words: str) -> None:
    try:
        said = str(on_the_web(tmp_path, text))
    except ix.CallError as problem:
        said = str(problem)
    assert words in said
    assert "page.html:7:" in said


def test_an_error_of_a_program_is_shown_at_its_place_of_the_web_page(tmp_path: Path) -> None:
    block = '<pre><code class="language-ix">let a = 1 &lt; <span>b</span>;</code></pre>\n'
    found = on_the_web(tmp_path, "<p>1 <!-- ix: a --></p>", block)
    assert f"page.html:3:{block.index('b</span>') + 1}" in str(found)


# ------------------------------------------------------------------------------- notebooks


def text_cell(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def code_cell(text: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": text, "outputs": list(outputs)}


def result(text: str) -> dict[str, Any]:
    data = {"text/plain": text.splitlines(keepends=True), "text/html": ["<b>0</b>"]}
    return {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def in_a_notebook(tmp_path: Path, *cells: Any) -> Any:
    page = tmp_path / "lesson.ipynb"
    text = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    page.write_text(json.dumps(text), encoding="utf-8")
    before = page.read_bytes()
    found = ix.verify_page(page)
    assert page.read_bytes() == before
    return found


MAGIC = code_cell("%%ix attend --quiet\n" + PROGRAM.replace("&lt;", "<"))
LOADED = code_cell("%load_ext indexical\nimport indexical as ix\n!pip list\n")


@pytest.mark.parametrize(
    "cells",
    [
        [MAGIC, text_cell("It is $0.09$ <!-- ix: weights[0] -->.")],
        [MAGIC, text_cell("It is 0.09 <!-- ix: attend: weights[0] -->.")],
        [text_cell("```ix\nlet x = 2;\n```\n"), text_cell("2 <!-- ix: x -->")],
        [LOADED, code_cell('p = ix.compile("""\nlet x = 2;\n""")'), text_cell("2 <!-- ix: x -->")],
        [MAGIC, code_cell("w  # ix: weights", result("array([0.09003057, 0.24472847, 0.66524096])"))],
        [MAGIC, code_cell("print(w)\n# ix: weights", stream("[0.09003057 0.24472847 0.66524096]\n"))],
        [MAGIC, code_cell("# ix: weights\nw", result("tensor([0.0900,\n        0.2447, 0.6652])"))],
        [MAGIC, code_cell("# ix: weights", result("{'w': array([0.0900, 0.2447, 0.6652], dtype=float32)}"))],
        [MAGIC, code_cell("# ix: scores, weights", result("(array([1., 2., 3.]), array([0.09, 0.24, 0.67]))"))],
        [MAGIC, code_cell("# ix: total, weights[0]\n…", stream("total: -6.0\n"), stream("w = 0.090\n"))],
        [MAGIC, code_cell("# ix: total\nprint(1)\n# ix: weights[0]", stream("-6.0\n"), result("np.float64(0.0900)"))],
        [MAGIC, code_cell("# ix: weights", stream("[0.1 0.2 0.7]\n"))],
        [MAGIC, code_cell("# ix: weights[0], total\nprint(w[0], total)", stream("0.09 -6.0\n"))],
        [MAGIC, code_cell("# ix: weights[0], total", stream("w=0.09 total=-6.0\n"))],
        [MAGIC, code_cell("# ix: weights[0], total", result("(np.float64(0.09003), -6.0)"))],
        [MAGIC, code_cell("# ix: weights[0], total", result("{'w': 0.09, 'total': -6.0}"))],
        [MAGIC, code_cell("# ix: weights, total", result("{'w': tensor([0.09, 0.24, 0.67]), 'total': tensor(-6.)}"))],
        [MAGIC, code_cell("# ix: weights", result("[np.float64(0.09), np.float64(0.24), np.float64(0.67)]"))],
    ],
)
def test_figures_of_notebooks_that_hold(tmp_path: Path, cells: list[Any]) -> None:
    found = in_a_notebook(tmp_path, *cells)
    assert found, str(found)
    assert found.figures


def test_findings_of_notebooks_name_the_cell_and_the_line(tmp_path: Path) -> None:
    found = in_a_notebook(
        tmp_path,
        MAGIC,
        text_cell("# Title\n\nThe first is 0.10 <!-- ix: weights[0] -->."),
        code_cell("# ix: weights\nprint(w)", stream("weights:\n[0.0900 0.2447 0.6655]\n")),
        code_cell("# ix: total", stream("\x1b[1m5\x1b[0m\n")),
    )
    said = str(found)
    assert "lesson.ipynb, cell 2:3:14" in said
    assert "lesson.ipynb, cell 3, output 1:2:16" in said
    assert "lesson.ipynb, cell 4, output 1:1:1" in said
    figures = found.to_json()["figures"]
    assert [(each["cell"], each["line"]) for each in figures if each["verdict"] == "fails"] == [
        ("cell 2", 3),
        ("cell 3, output 1", 2),
        ("cell 4, output 1", 1),
    ]


def test_an_error_of_a_program_is_shown_in_its_cell(tmp_path: Path) -> None:
    found = in_a_notebook(tmp_path, text_cell("x"), code_cell("%%ix\nlet a = b;\n"), text_cell("1 <!-- ix: a -->"))
    assert "lesson.ipynb, cell 2:2:9" in str(found)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([MAGIC, code_cell("# ix: weights", stream("nothing\n"))], "none stands under this comment"),
        ([MAGIC, code_cell("# ix: weights")], "none stands under this comment"),
        ([MAGIC, code_cell("# ix: total", stream("-6\n5\n"))], "no name of the comment is left"),
        ([MAGIC, code_cell("# ix: weights", stream("[0.09 ... 0.67]\n"))], "figures are left out here"),
        ([MAGIC, code_cell("# ix: wieghts", stream("1\n"))], "did you mean `weights`?"),
        ([text_cell("```ix\nlet x = 1;")], "this block is not closed"),
        ([text_cell("1 <!-- ix x -->")], "a comment is written"),
    ],
)
def test_notebooks_with_mistakes(tmp_path: Path, cells: list[Any], words: str) -> None:
    try:
        said = str(in_a_notebook(tmp_path, *cells))
    except ix.CallError as problem:
        said = str(problem)
    assert words in said
    assert f"lesson.ipynb, cell {len(cells)}" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is no JSON"),
        ('{"cells": [', "it is no JSON: line 1"),
        ("[]", "it has no list of `cells`"),
        ('{"worksheets": []}', "of an old format"),
        ('{"cells": [3]}', "cell 1 has no `cell_type`"),
        ('{"cells": [{"cell_type": "markdown", "source": 5}]}', "cell 1 has no text"),
        ('{"cells": [{"cell_type": "code", "source": "", "outputs": [4]}]}', "cell 1, output 1 is no output"),
        ('{"cells": [{"cell_type": "code", "source": "", "outputs": [{"text": 4}]}]}', "cell 1, output 1 has no text"),
        ("[" * 100_000, "it is no JSON"),
    ],
)
def test_damaged_notebooks(tmp_path: Path, text: str, words: str) -> None:
    page = tmp_path / "lesson.ipynb"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ix.CallError, match="IX108") as problem:
        ix.verify_page(page)
    assert words in str(problem.value)


def test_the_command_reads_all_kinds_of_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_the_web(tmp_path, "<p>0.10 <!-- ix: weights[0] --></p>")
    in_a_notebook(tmp_path, MAGIC, text_cell("0.09 <!-- ix: weights[0] -->"))
    assert main(["verify", str(tmp_path / "page.html"), str(tmp_path / "lesson.ipynb")]) == 1
    said = capsys.readouterr().out
    assert "page.html: 1 figure: 1 does not" in said
    assert "lesson.ipynb: 1 figure: 1 holds" in said
    assert main(["verify", str(tmp_path / "lesson.ipynb"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["figures"][0]["cell"] == "cell 2"
