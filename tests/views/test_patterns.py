"""Patterns as text, JSON and HTML."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from indexical.diagnostics import CallError
from indexical.run.patterns import WORDS, find_patterns
from indexical.views import SORTS
from indexical.views import patterns as views
from indexical.views.patterns import patterns_html, patterns_json, show_patterns

SMALL = find_patterns([[[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]], [[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.2, 0.5, 0.3]]])


def heads_in(text: str) -> list[str]:
    """The heads of the table, from the top."""
    body = text.split("\n\n")[1].splitlines()[1:]
    return [line.split("  ")[1] for line in body]


def test_small_arrays_are_shown_whole() -> None:
    assert (
        show_patterns(SMALL)
        == """\
2 heads of 3 queries × 3 keys, float64

  head  word                                    rows         entropy  keys  self  previous  first  distance  causal
  0     causal-average, previous-token, peaked  1 of 3 each  0.33     1.33  0.50  0.50      0.50   0.50      yes
  1     mixed                                   3 of 3       1.49     2.80  0.27  0.23      0.20   0.97      no

  head 0  head 1
  █       ▒▓█
  ██      ▒▓█
   █      ▒█▓

rows of head 0
  query  position  word            entropy  keys  largest  at  self  previous  first  distance  heard  carrying  sum
  0      0         peaked          0.00     1.00  1.00     0   1.00  0.00      1.00   0.00      1      1         1
  1      1         causal-average  1.00     2.00  0.50     0   0.50  0.50      0.50   0.50      2      2         1
  2      2         previous-token  0.00     1.00  1.00     1   0.00  1.00      0.00   1.00      1      1         1

rows of head 1
  query  position  word   entropy  keys  largest  at  self  previous  first  distance  heard  carrying  sum
  0      0         mixed  1.49     2.80  0.50     2   0.20  0.00      0.20   1.30      3      3         1
  1      1         mixed  1.49     2.80  0.50     2   0.30  0.20      0.20   0.70      3      3         1
  2      2         mixed  1.49     2.80  0.50     1   0.30  0.50      0.20   0.90      3      3         1

words
  causal-average  exactly the keys 0 to the position are heard, several and not all, each near its share (near: 0.1)
  previous-token  the key before the position has most of the row (most: 0.6)
  peaked          one key has nearly the whole row (peak: 0.9)
  mixed           none of these holds"""
    )


def test_many_rows_are_shown_when_asked_for() -> None:
    found = find_patterns(np.eye(41))
    assert show_patterns(found).partition("\n\nwords\n")[0].endswith("\n\n41 rows are not shown")
    assert len(show_patterns(found, rows=True).split("\n\n")[-2].splitlines()) == 43
    assert "not shown" not in show_patterns(find_patterns(np.eye(40)))


@pytest.mark.parametrize("name", SORTS)
def test_heads_are_sorted(name: str) -> None:
    weights = np.random.default_rng(4).dirichlet(np.full(6, 0.4), size=(5, 6))
    weights[3] = 0
    found = find_patterns(weights)
    attribute = {"keys": "effective_keys", "self": "on_self", "previous": "on_previous", "first": "on_first"}
    shown = [int(head) for head in heads_in(show_patterns(found, sort_by=name))]
    assert sorted(shown) == list(range(5))
    if name == "head":
        assert shown == list(range(5))
    elif name == "word":
        places = [list(WORDS).index(found.heads[head].word or "") for head in shown]
        assert places == sorted(places)
    else:
        assert shown[-1] == 3, "what has no figure comes last"
        figures = [getattr(found.heads[head], attribute.get(name, name)) for head in shown[:-1]]
        assert figures == sorted(figures, reverse=True)


def test_a_sort_that_is_not_there() -> None:
    with pytest.raises(CallError, match="sort by one of: head, word, entropy") as caught:
        show_patterns(SMALL, sort_by="size")
    assert caught.value.diagnostics[0].code == "IX515"
    with pytest.raises(CallError):
        patterns_html(SMALL, sort_by="size")


def test_pictures_are_small_and_keep_the_shape() -> None:
    text = show_patterns(find_patterns(np.eye(100)))
    lines = [line.removeprefix("  ") for line in text.split("\n\n")[2].splitlines()]
    assert lines == [" " * number + "█" for number in range(24)]


def test_pictures_stand_side_by_side_within_80_columns() -> None:
    text = show_patterns(find_patterns(np.stack([np.tri(30) / np.arange(1, 31)[:, None]] * 4)))
    pictures = [line for line in text.splitlines() if "█" in line or "head 0  " in line]
    assert max(map(len, pictures)) <= 80
    assert text.count("head 2\n") == 1
    assert len(pictures) == 49


def test_what_is_not_heard_is_blank_and_what_is_no_weight_a_question() -> None:
    text = show_patterns(find_patterns([[1, 0, 1e-9], [0, np.nan, -1], [0, 0, 0]]))
    assert "\n\n  █ ░\n   ??\n\n\nrows\n" in text
    assert " nan " in text


def test_no_more_pictures_than_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_PICTURES", 2)
    found = find_patterns(np.stack([np.eye(3)] * 5))
    assert "… and 3 more heads without a picture" in show_patterns(found)
    assert patterns_html(found).count("<svg") == 2
    assert "The first 2 heads have a picture." in patterns_html(found)


def test_heads_that_are_not_causal_though_said_to_be() -> None:
    weights = np.stack([np.eye(3), np.full((3, 3), 1 / 3)])
    line = "said to be causal, but 1 head (1) gave weight to keys after the query"
    assert line in show_patterns(find_patterns(weights, causal=True))
    assert line in patterns_html(find_patterns(weights, causal=True))
    assert "said to be" not in show_patterns(find_patterns(weights))
    assert "(0; 1; 2; 3; 4; 5; 6; 7; …)" in show_patterns(find_patterns(np.full((9, 2, 2), 0.5), causal=True))


@pytest.mark.parametrize("shape", [(0,), (1, 0), (0, 3), (2, 0, 3), (2, 3, 0), (0, 3, 3)])
def test_empty_arrays_are_shown(shape: tuple[int, ...]) -> None:
    found = find_patterns(np.zeros(shape))
    assert show_patterns(found, rows=True)
    assert json.dumps(patterns_json(found), allow_nan=False)
    ElementTree.fromstring(patterns_html(found))


def test_json_is_plain_and_whole() -> None:
    found = find_patterns([[0.5, 0.5], [np.nan, 0], [np.inf, 0], [0, 0]])
    value: Any = json.loads(json.dumps(patterns_json(found), allow_nan=False))
    assert value["shape"] == [4, 2]
    assert value["causal"] is None
    assert value["thresholds"]["peak"] == 0.9
    (head,) = value["heads"]
    assert head["head"] == []
    assert sum(head["counts"].values()) == 4
    assert [row["word"] for row in head["rows"]] == found.words.tolist()
    assert [row["total"] for row in head["rows"]] == [1, None, "inf", 0]
    assert [row["largest_key"] for row in head["rows"]] == [0, 0, 0, None]
    assert head["rows"][0]["effective_keys"] == 2
    assert head["rows"][1]["entropy"] is None


def test_html_is_well_formed_without_scripts_and_scoped() -> None:
    html = patterns_html(SMALL)
    root = ElementTree.fromstring(html)
    assert root.get("class") == "ix-patterns"
    assert {element.tag for element in root.iter()} == {
        "div", "style", "table", "caption", "tr", "th", "td", "svg", "title", "rect",
    }  # fmt: skip
    assert not re.search(r"<script|\son\w+=|javascript:|https?:|url\(", html)
    style = root.findtext("style") or ""
    assert "prefers-color-scheme:dark" in style
    rules = re.sub(r"@media\([^)]*\)\{(.*?\})\}", r"\1", style)
    selectors = [name for rule in re.findall(r"([^{}]+)\{", rules) for name in rule.split(",")]
    assert all(selector.startswith(".ix-patterns") for selector in selectors)
    widths = {len(row) for table in root.iter("table") for row in list(table)[1:2] + list(table)[2:]}
    assert widths == {12, 14}


def test_thumbnails_cover_what_is_heard() -> None:
    root = ElementTree.fromstring(patterns_html(find_patterns(np.tri(5) / np.arange(1, 6)[:, None])))
    (picture,) = root.iter("svg")
    assert picture.get("viewBox") == "0 0 5 5"
    assert [(r.get("x"), r.get("y"), r.get("width"), r.get("class")) for r in picture.iter("rect")] == [
        ("0", str(row), str(row + 1), "s8") for row in range(5)
    ]


def test_thumbnails_are_averaged_down() -> None:
    weights = np.random.default_rng(3).dirichlet(np.ones(200), size=(100,))
    (picture,) = ElementTree.fromstring(patterns_html(find_patterns(weights))).iter("svg")
    assert picture.get("viewBox") == "0 0 48 48"
    assert len(list(picture.iter("rect"))) <= 48 * 48


def test_averages_are_means_of_their_parts() -> None:
    weights = np.zeros((48, 48))
    weights[:, :24] = 1.0
    weights[:, 24:36:2] = 1.0
    shades = views._shades(weights, 24, 8)
    assert shades.shape == (24, 24)
    assert shades[0].tolist() == [8] * 12 + [4] * 6 + [0] * 6
