"""A wall of heads in a real browser: what is drawn, said, sorted, searched, zoomed and linked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web.conftest import Open

import indexical as ix
from indexical.pages import WebPage

WORDS = "the cat sat on the mat and the cat ran".split()


@cache
def wall() -> WebPage:
    """Six heads over ten words: one hears the word before, one the first word, the others anything."""
    size = len(WORDS)
    apart = np.subtract.outer(np.arange(size), np.arange(size))
    scores = np.random.default_rng(1).normal(size=(2, 3, size, size)) * 2
    scores[0, 1] += 12 * (apart == 1)
    scores[1, 2, :, 0] += 12
    weights = np.exp(np.where(apart >= 0, scores, -np.inf))
    return ix.patterns(weights / weights.sum(-1, keepdims=True), tokens=WORDS).page("Six heads")


def ready(opened: Open, hash: str = "", **options: Any) -> Any:
    tab = opened(wall(), hash, **options)
    tab.wait_for_selector(".largest li")
    return tab


def test_it_opens_on_a_head_with_a_sentence_and_evidence(opened: Open) -> None:
    tab = ready(opened)
    assert tab.locator(".small-head").count() == 6
    assert tab.locator(".head-title").inner_text() == "layer 0, head 1 previous-token 9 of 10 rows, peaked 1 of 10 rows"
    assert tab.locator(".head-side .say").inner_text().startswith("ran9 takes 100 % from cat8")
    assert "within 2.8 %" in tab.locator(".about").inner_text()
    shares = tab.evaluate("[...document.querySelectorAll('.largest .others > b, .largest .key > b')].map((b) => parseInt(b.textContent))")
    assert sum(shares) == 100


@pytest.mark.sampled(0)
def test_heads_are_sorted_by_a_word_and_chosen(opened: Open) -> None:
    tab = ready(opened)
    tab.locator(".wall-bar select").select_option(label="first-token sink")
    first = tab.locator(".small-head").first
    assert first.inner_text() == "1·2\n8 of 10"
    first.click()
    tab.wait_for_function("() => document.querySelector('.head-title').textContent.startsWith('layer 1, head 2')")
    assert tab.evaluate("location.hash") == "#head=1,2&row=9"


def test_pointing_reads_a_weight_and_clicking_chooses_it(opened: Open) -> None:
    tab = ready(opened, "#head=0,0&row=4&key=2")
    assert tab.evaluate("[...document.querySelectorAll('.head-side .say b')].map((b) => b.firstChild.textContent)")[::2] == ["the", "sat"]
    box = tab.locator(".matrix").bounding_box()
    cell = (box["width"] - 94) / 10
    tab.mouse.move(box["x"] + 64 + 9.5 * cell, box["y"] + 56 + 5)
    tab.wait_for_function("() => document.querySelector('.head-side .say').textContent.includes('takes nothing')")
    tab.mouse.click(box["x"] + 64 + 0.5 * cell, box["y"] + 56 + 5)
    assert tab.evaluate("location.hash") == "#head=0,0&row=0&key=0"


@pytest.mark.sampled(0)
def test_search_zoom_and_keys(opened: Open) -> None:
    tab = ready(opened)
    field = tab.locator(".seek")
    field.fill("cat")
    assert tab.locator(".tools .hint").inner_text() == "2 found"
    field.press("Enter")
    assert "row=1" in tab.evaluate("location.hash")
    field.press("Enter")
    assert "row=8" in tab.evaluate("location.hash")
    tab.locator(".matrix").focus()
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("location.hash") == "#head=0,1&row=7&key=1"
    tab.keyboard.press("+")
    tab.keyboard.press("+")
    tab.locator("input[value=log]").check()
    assert tab.locator(".scale").inner_text().endswith("1")


def test_the_stage_follows_the_head_and_the_cell(opened: Open) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with ix.watch(model, tokens=["a", "b", "c", "d"]) as seen:
        model(*[torch.randn(1, 4, 8)] * 3)
    tab = opened(seen.page("Two heads"), "#head=0,1&row=2&step=3&cell=out[2,1]")
    tab.wait_for_selector(".head-stage .craft")
    assert tab.locator(".head-stage > h2").inner_text() == "The arithmetic of layer 0, head 1"
    assert tab.evaluate("PAGES.length === 1 && PAGES[0].path.at(-1).name") == "out"
    assert tab.evaluate("location.hash") == "#head=0,1&row=2&step=3&cell=out[2,1]"
    assert "the same within" in tab.locator(".about").inner_text()
    shown = tab.evaluate("[...PAGES[0].tables.get('weights').values]")
    assert shown == pytest.approx(seen.weights[0, 1].reshape(-1).tolist(), abs=1e-6)
    tab.locator(".small-head").first.click()
    tab.wait_for_function("() => document.querySelector('.head-stage > h2').textContent.endsWith('head 0')")
    assert tab.evaluate("PAGES.length") == 1
    tab.locator(".matrix").focus()
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("PAGES[0].here.i") == 1


@pytest.mark.sampled(0)
def test_weights_beside_the_largest_are_made_again(opened: Open) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    heard = torch.rand(24, 24, generator=torch.Generator().manual_seed(0)) < 0.6
    with ix.watch(model) as seen:
        model(*[3 * torch.randn(1, 24, 8)] * 3, attn_mask=~heard)
    tab = opened(seen.page(), "#head=0,1&row=23")
    tab.locator(".largest button.others").click()
    assert tab.locator(".largest .more").count() == int(heard[23].sum()) - 8
    assert tab.locator(".largest .more small").first.inner_text().startswith("≈ 0.")
    made = tab.evaluate("unpacked(DATA.blocks[0], 1).then((head) => [...head.totals.keys()].map((query) => [...head.again.row(query, head.totals[query])]))")
    assert np.array(made) == pytest.approx(seen.weights[0, 1], rel=2e-3)
    part = tab.evaluate("unpacked(DATA.blocks[0], 1).then((head) => [...head.again.parts(23, 3, 20, head.row(23)[0].key)])")
    row = seen.weights[0, 1, 23]
    assert np.array(part) == pytest.approx(row[3:20] / row.max(), rel=2e-3)


def test_a_phone_has_no_sideways_scrolling(opened: Open) -> None:
    tab = ready(opened, color_scheme="dark")
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_in_a_notebook_it_works_in_its_frame(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><meta charset=utf-8>{ix.patterns(np.eye(4))._repr_html_()}", encoding="utf-8")
    tab = browser.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(file.as_uri())
    tab.frame_locator("iframe").locator(".largest li").first.wait_for()
    assert problems == []
    tab.close()
