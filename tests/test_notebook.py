"""What a notebook shows: HTML without scripts, every text escaped, tables that are not too large."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexical as ix
from indexical.pages import show, show_lesson
from indexical.readings import TraceSheet

LESSONS = Path(__file__).resolve().parent.parent / "examples" / "lessons"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>&\"'"
SOURCE = f"""// {EVIL}
space position(i, j), feature(d, e); // {EVIL}

input Q[i, d], K[j, d], V[j, e];

let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);

assert all[i, j](weights[i, j] < 2), "{EVIL.replace(chr(34), "")}";
expect sum[j](weights[i, j]) == 2; // {EVIL}
"""
FIGURES = [[1, 0], [0, 1], [1, 1]]
ARRAYS = np.array(FIGURES, dtype=float)

PROGRAM = ix.compile(SOURCE)
SHEETS: dict[str, Callable[[], Any]] = {
    "program": lambda: PROGRAM,
    "facts": lambda: PROGRAM.facts,
    "cost": lambda: PROGRAM.cost(),
    "plan": lambda: PROGRAM.plan(ARRAYS, ARRAYS, ARRAYS),
    "exact": lambda: ix.exact(PROGRAM, FIGURES, FIGURES, FIGURES),
    "symbols": lambda: ix.exact(PROGRAM, FIGURES, FIGURES),
    "tensor": lambda: ix.exact(PROGRAM, FIGURES, FIGURES, FIGURES)["weights"],
    "steps": lambda: ix.trace(PROGRAM, FIGURES, FIGURES, FIGURES),
    "trace": lambda: ix.trace(PROGRAM, FIGURES, FIGURES, FIGURES, at="out[2, 0]"),
    "verdicts": lambda: ix.verify(PROGRAM, FIGURES, FIGURES, FIGURES),
    "accuracy": lambda: ix.accuracy(PROGRAM, ARRAYS, ARRAYS, ARRAYS),
    "patterns": lambda: ix.patterns(np.eye(3)),
    "page": lambda: show(PROGRAM, FIGURES, FIGURES, FIGURES, title=EVIL),
    "floats": lambda: show(PROGRAM, ARRAYS / 3, ARRAYS / 3, ARRAYS / 3),
}


class Reader(HTMLParser):
    """Which elements and attributes there are, that all of them are closed, and what is left as text."""

    VOID = frozenset(("br", "img", "rect", "hr", "meta", "input", "link"))

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def piece(name: str) -> str:
    html = SHEETS[name]()._repr_html_()
    assert isinstance(html, str)
    return html


@pytest.mark.parametrize("name", SHEETS)
def test_no_scripts_and_nothing_from_outside(name: str) -> None:
    html = piece(name)
    assert "<script" not in html.lower()
    assert "<img" not in html.lower()
    found = read(html)
    assert not found.tags & {"script", "img", "link", "object", "embed", "form", "base"}
    assert not [
        attribute for attribute in found.attributes if attribute.startswith("on") or attribute in ("src", "href")
    ]


@pytest.mark.parametrize("name", [name for name in SHEETS if name not in ("page", "floats")])
def test_a_piece_keeps_its_style_to_itself(name: str) -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", piece(name))
    flat = re.sub(r"@media[^{]*\{((?:[^{}]*\{[^}]*\})*)\}", r"\1", style)
    selectors = [part.strip() for rule in re.findall(r"([^{}]+)\{[^}]*\}", flat) for part in rule.split(",")]
    assert selectors
    assert all(selector.startswith((".indexical", ".ix-patterns")) for selector in selectors)


def test_a_program_is_all_there_in_its_colours() -> None:
    found = read(piece("program"))
    assert SOURCE.rstrip() in found.text
    html = piece("program")
    (colour,) = set(re.findall(r'<span style="color:(#\w+)">j</span>', html))
    assert colour not in set(re.findall(r'<span style="color:(#\w+)">i</span>', html))


def test_a_program_is_its_page_on_numbers_that_are_drawn() -> None:
    html = piece("program")
    assert html.startswith("<iframe")
    assert "on numbers that are drawn" in html
    alone = ix.compile("let x[i] = [1, 2]; let y = sum[i](x[i]);")._repr_html_()
    assert "drawn" not in alone.partition("&lt;style&gt;")[0]
    large = ix.compile("input x[i]; let y[k in 0..10000000] = x[0];")._repr_html_()
    assert "<iframe" not in large


@pytest.mark.parametrize("name", ["facts", "cost", "plan", "steps", "trace", "verdicts", "accuracy"])
def test_sheets_are_their_text(name: str) -> None:
    sheet = SHEETS[name]()
    assert str(sheet) in read(sheet._repr_html_()).text
    assert "<pre>" in sheet._repr_html_()


def test_exact_results_are_tables() -> None:
    html = piece("exact")
    assert html.count("<table>") == 3
    assert html.count('<td class="masked"></td>') == 3
    assert "<td>e^√2/(e^(√2/2)+e^(√2/2)+e^√2)</td>" in html
    assert "masked</td>" not in html
    assert "weights[i, j]" in read(html).text
    assert "weights[2, 0]·V[0]" in read(piece("symbols")).text


def test_where_exactness_ends_is_said() -> None:
    html = ix.exact("let x[i] = [1.0, 2.0]; let y[i] = log(x[i]);")._repr_html_()
    assert "exactness ends at <code>y</code>: log" in html


def test_leading_axes_stand_under_each_other() -> None:
    html = ix.exact("input x[b, i, j]; let y[b, i, j] = x[b, i, j];", np.arange(8).reshape(2, 2, 2))._repr_html_()
    assert html.count("<table>") == 2
    assert "<p>b = 0</p>" in html
    assert "<p>b = 1</p>" in html


@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 3), (3, 0), (2, 0, 2)])
def test_tables_of_any_shape(shape: tuple[int, ...]) -> None:
    names = ", ".join("abc"[: len(shape)])
    home = f"[{names}]" if names else ""
    source = f"input x{home}; let y{home} = 2 * x{home};"
    read(ix.exact(source, np.ones(shape, dtype=int))._repr_html_())
    read(show(source, np.ones(shape, dtype=int))._repr_html_())
    read(show(source, np.full(shape, 0.1))._repr_html_())


def test_large_tensors_are_counted() -> None:
    program = ix.compile("input x[i, j]; let y[i, j] = 2 * x[i, j];")
    html = ix.exact(program, np.arange(10_000).reshape(100, 100))._repr_html_()
    assert "10,000 numbers" in html
    assert len(html) < 2_000
    page = show(program, np.random.default_rng(0).standard_normal((300, 300)))
    table = page._repr_html_().partition("<details>")[2]
    assert "300 × 300" in table
    assert len(table) < 5_000


def test_a_page_stands_in_a_frame_of_its_own() -> None:
    page = SHEETS["page"]()
    html = page._repr_html_()
    found = read(html)
    assert "iframe" in found.tags
    assert 'sandbox="allow-scripts allow-downloads"' in html
    assert "allow-same-origin" not in html
    frame, _, tables = html.partition("<details>")
    assert "&lt;!doctype html&gt;" in frame
    assert tables.count("<table>") == 6
    assert tables.count('class="masked"') == 3


def test_a_lesson_has_its_tables_as_well() -> None:
    html = show_lesson(LESSONS / "token_three.md")._repr_html_()
    assert "<table>" in html.partition("<details>")[2]


def test_patterns_have_tables_and_pictures() -> None:
    html = ix.patterns(np.stack([np.eye(4), np.full((4, 4), 0.25)]))._repr_html_()
    found = read(html)
    assert {"table", "svg", "rect", "title"} <= found.tags
    assert "uniform" in found.text
    large = ix.patterns(np.full((64, 128, 128), 1 / 128, dtype=np.float32))._repr_html_()
    assert "The first 48 heads have a picture." in large
    assert len(large) < 1_000_000
    read(ix.patterns(np.zeros((0, 3, 3)))._repr_html_())
    read(ix.patterns([[np.nan, -1.0, np.inf]])._repr_html_())


def test_traces_and_weights_stand_on_their_page() -> None:
    steps, one = (ix.trace(PROGRAM, FIGURES, FIGURES, FIGURES, at=at) for at in (None, "out[2, 0]"))
    assert "&quot;opens&quot;" not in steps._repr_html_()
    assert "&quot;opens&quot;:&quot;cell=out[2,0]&quot;" in one._repr_html_()
    assert isinstance(one, TraceSheet)
    assert "&quot;opens&quot;:&quot;cell=weights[1,0]&quot;" in one.at("weights[1, 0]")._repr_html_()
    for sheet in (steps, one, ix.patterns(np.eye(3))):
        html = sheet._repr_html_()
        assert html.startswith("<iframe srcdoc=")
        assert "<details><summary>as t" in html
    large = ix.patterns(np.broadcast_to(np.float16(1 / 1100), (1, 1100, 1100)))
    assert "<iframe" not in large._repr_html_()
