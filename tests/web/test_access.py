"""What helps everybody: names that say what is seen, landmarks that are told apart, text that can be read."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.web.conftest import Open

import indexical as ix
from indexical.pages import WebPage, show_lesson

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
space head(h), position(i, j), feature(d, e);
input Q[h, i, d], K[h, j, d], V[h, j, e];
let scores[h, i, j]  = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
let weights[h, i, j] = softmax[j](scores[h, i, j]) where j <= i;
let out[h, i, e]     = sum[j](weights[h, i, j] * V[h, j, e]);
"""

# A named control whose visible words are not in its name: who speaks to a machine says what is seen.
UNSAID = """() => [...document.querySelectorAll("[aria-label]:is(button, td, a, [role=button])")].flatMap((node) => {
  const plain = (text) => text.replace(/[^\\p{L}\\p{N}]+/gu, " ").trim().toLowerCase();
  const [seen, name] = [plain(node.innerText), plain(node.getAttribute("aria-label"))];
  return seen === "" || ` ${name} `.includes(` ${seen} `) ? [] : [`${node.innerText}: ${node.getAttribute("aria-label")}`];
})"""
LANDMARKS = """() => [...document.querySelectorAll("section[aria-label], nav, header, main")].map((node) => `${node.tagName} ${node.ariaLabel}`)"""
# The least contrast of the text of a page against what is painted behind it, and where; gradients are left out.
LEAST = """() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (text) => {
    if (!known.has(text)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = text;
      context.fillRect(0, 0, 1, 1);
      known.set(text, [...context.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(text);
  };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)).reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (node) => {
    for (let at = node; at !== null; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.backgroundImage !== "none") return null;
      if (rgba(style.backgroundColor)[3] === 255) return rgba(style.backgroundColor);
    }
    return [255, 255, 255];
  };
  let least = [99, ""];
  for (const node of document.querySelectorAll("body *")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()) || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest("script, noscript, select, .unseen, .waiting")) continue;
    const paper = behind(node);
    if (paper === null) continue;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(paper)];
    const found = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (found < least[0]) least = [found, `${node.className} ${node.textContent.trim().slice(0, 40)}`];
  }
  return least;
}"""


@cache
def pages() -> dict[str, WebPage]:
    draw = np.random.default_rng(0)
    arrays = draw.normal(size=(3, 2, 4, 3))
    weights = np.tril(np.exp(draw.normal(size=(2, 3, 9, 9))))
    broken = TEXT.replace("V[h, j, e])", "V[h, i, e])")
    return {
        "program": ix.show(TEXT, *arrays, labels={"position": ["The", "cat", "sat", "on"]}),
        "beside": ix.show(TEXT, *arrays, beside=broken),
        "lesson": show_lesson(ROOT / "examples" / "lessons" / "token_three.md"),
        "wall": ix.patterns(weights / weights.sum(-1, keepdims=True), tokens=list("abcabcabc")).page(),
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", list(pages()))
def test_names_landmarks_and_contrast(opened: Open, name: str) -> None:
    tab = opened(pages()[name], reduced_motion="reduce")
    tab.wait_for_timeout(50)
    if name == "wall":
        tab.wait_for_selector(".largest li")
        tab.locator(".wall-bar select").select_option(index=1)
    else:
        tab.locator(".outcome td.cell:not(.masked)").last.click()
    assert tab.evaluate(UNSAID) == []
    landmarks = tab.evaluate(LANDMARKS)
    assert len(landmarks) == len(set(landmarks))
    for scheme in ("light", "dark"):
        tab.locator("#theme").select_option(scheme)
        least, where = tab.evaluate(LEAST)
        assert least >= 4.5, where


def test_a_frame_in_a_notebook_has_a_title() -> None:
    piece: Any = pages()["program"]
    assert ' title="an interactive page"' in piece._repr_html_().split(">", 1)[0][-200:]
