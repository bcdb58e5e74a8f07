"""Axes in the letters that people use, and guessed axes: the audit reads them, says what it took them for, and answers
in them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.auditor.cases import causal, full, one_ahead
from tests.auditor.layouts import LAYOUTS, Projected, _draw

import indexical as ix
from indexical.auditor.contract import Contract
from indexical.auditor.layout import parse_axes
from indexical.auditor.letters import in_our_letters

CONTRACT = {"causal": True, "scale": "1/sqrt(d)"}
X, HEADS_FIRST, HEADS_LAST = (2, 5, 12), (2, 3, 5, 4), (2, 5, 3, 4)


def positions_first(q: Any, k: Any, v: Any) -> Any:
    return causal(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("x=b s d, out=b s d", "x=b i c, out=b i c"),
        ("x=b t c, out=b t c", "x=b i c, out=b i c"),
        ("x=n l c, out=n l c", "x=b i c, out=b i c"),
        ("x=bsz seq dim, mask=bsz seq, out=bsz seq dim", "x=b i c, mask=b i, out=b i c"),
        ("x=b s d, mask=b 1 s s, out=b s d", "x=b i c, mask=b 1 i j, out=b i c"),
        ("q=B H N D, k=B H N D, v=B H N D, out=B H N D", "q=b h i d, k=b h i d, v=b h i d, out=b h i d"),
        ("q=b h t d, k=b h s d, v=b h s d, out=b h t d", "q=b h i d, k=b h j d, v=b h j d, out=b h i d"),
        ("q=B T N H, k=B S N H, v=B S N H, out=B T N H", "q=b i h d, k=b j h d, v=b j h d, out=b i h d"),
        ("q=b hq n d, k=b hkv n d, v=b hkv n d, out=b hq n d", "q=b h i d, k=b g i d, v=b g i d, out=b h i d"),
        (
            "query=batch heads seq head_dim, key=batch heads seq head_dim, value=batch heads seq head_dim, "
            "out=batch heads seq head_dim",
            "query=b h i d, key=b h i d, value=b h i d, out=b h i d",
        ),
        ("q=b w i d, k=b w j d, v=b w j e, out=b w i e", "q=b w i d, k=b w j d, v=b w j e, out=b w i e"),
    ],
)
def test_common_letters_are_read(given: str, ours: str) -> None:
    letters = in_our_letters(parse_axes(given), Contract())
    assert letters.layouts == parse_axes(ours)
    assert bool(letters.assumed) == (given != ours)


def test_a_finding_has_the_letters_of_the_user() -> None:
    report = ix.audit(one_ahead, _draw(dict.fromkeys("qkv", HEADS_FIRST)), _all("B H S D"), CONTRACT)
    (finding,) = report.findings
    assert "S = 1" in finding.witness
    assert "i = " not in finding.witness
    assert "`S`: queries" in report.found["axes"]


def test_positions_that_are_not_clear_are_refused() -> None:
    with pytest.raises(ix.Error, match="has the positions"):
        ix.audit(full, _draw(dict.fromkeys("qkv", HEADS_FIRST)), _all("b s t d"))


def _all(text: str) -> dict[str, str]:
    return dict.fromkeys(("q", "k", "v", "out"), text)


@pytest.mark.parametrize(
    ("target", "shapes", "guessed"),
    [
        (causal, dict.fromkeys("qkv", HEADS_FIRST), "q=b h i d, k=b h j d, v=b h j e, out=b h i e"),
        (positions_first, dict.fromkeys("qkv", HEADS_LAST), "q=b i h d, k=b j h d, v=b j h e, out=b i h e"),
        (Projected(causal), {"x": X}, "x=b i c, out=b i c"),
        (LAYOUTS["packed"](causal)[0], {"qkv": (2, 5, 36)}, "qkv=b i (3 h d), out=b i (h d)"),
        (
            lambda q, k, v: causal(q, *(x.repeat_interleave(3, 1) for x in (k, v))),
            {"q": (2, 6, 5, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 4)},
            "q=b h i d, k=b g j d, v=b g j e, out=b h i e",
        ),
        (
            lambda q, k, v: causal(q, k, v).transpose(1, 2).flatten(2),
            dict.fromkeys("qkv", HEADS_FIRST),
            "q=b h i d, k=b h j d, v=b h j e, out=b i (h e)",
        ),
    ],
)
def test_axes_are_guessed_and_shown(target: Any, shapes: dict[str, Any], guessed: str) -> None:
    report = ix.audit(target, _draw(shapes), contract={**CONTRACT, **({} if "q" in shapes else {"heads": 3})})
    assert report.found["axes"] == guessed
    assert report.ok, report


def test_masks_are_guessed_by_their_sizes() -> None:
    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None].bool())

    example = {**_draw(dict.fromkeys("qkv", HEADS_FIRST)), "mask": torch.ones(2, 5)}
    report = ix.audit(attention, example, contract={"masks": {"mask": "keep"}})
    assert report.ok
    assert report.found["axes"].endswith("mask=b j")


def test_axes_that_are_not_clear_are_refused() -> None:
    with pytest.raises(ix.Error, match="not clear"):
        ix.audit(lambda a, b, c: a + b + c, _draw(dict.fromkeys("abc", X)))
