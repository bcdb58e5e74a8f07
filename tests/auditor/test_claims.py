"""Claims of a contract on the relation that was read: proved where they hold, refuted where they do not."""

from __future__ import annotations

import math
from typing import Any

import pytest

import indexical as ix
from indexical.auditor.claims import verdicts
from indexical.auditor.layout import parse_axes
from indexical.lift import reader

torch = pytest.importorskip("torch")

AXES = {"q": "b h i d", "k": "b h j d", "v": "b h j e", "out": "b h i e"}
PAD = torch.arange(6) >= torch.tensor([[5], [4]])
IDS = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]])
SLOPES = [0.5, 0.25, 0.125]


def given(**more: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {**{name: torch.randn(2, 3, 6, 4, generator=generator) for name in "qkv"}, **more}


def scored(q: Any, k: Any) -> Any:
    return q @ k.mT * q.shape[-1] ** -0.5


def steps(q: Any) -> Any:
    i = torch.arange(q.shape[-2])
    return i[:, None] - i


def within(width: int, ahead: int = 0) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        outside = (steps(q) < -ahead) | (steps(q) >= width)
        return scored(q, k).masked_fill(outside, -math.inf).softmax(-1) @ v

    return attention


def in_blocks(size: int) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        block = torch.arange(q.shape[-2]) // size
        return scored(q, k).masked_fill(block[:, None] != block, -math.inf).softmax(-1) @ v

    return attention


def dropping(turned: bool, at_query: bool = False) -> Any:
    def attention(q: Any, k: Any, v: Any, pad: Any) -> Any:
        pad = ~pad if turned else pad
        pad = pad[:, None, :, None] if at_query else pad[:, None, None]
        return scored(q, k).masked_fill(pad, -1e9).softmax(-1) @ v

    return attention


def within_documents(earlier: bool) -> Any:
    def attention(q: Any, k: Any, v: Any, ids: Any) -> Any:
        one, other = ids[:, None, :, None], ids[:, None, None]
        return scored(q, k).masked_fill(one < other if earlier else one != other, -math.inf).softmax(-1) @ v

    return attention


def scaled(power: float) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return ((q * q.shape[-1] ** power) @ (k * q.shape[-1] ** power).mT).softmax(-1) @ v

    return attention


def capped(cap: float) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return (cap * torch.tanh(scored(q, k) / cap)).softmax(-1) @ v

    return attention


def sloped(slopes: list[float]) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = scored(q, k) - torch.tensor(slopes)[:, None, None] * steps(q)
        return scores.masked_fill(steps(q) < 0, -math.inf).softmax(-1) @ v

    return attention


def turned(halves: bool) -> Any:
    def turn(x: Any) -> Any:
        angles = torch.arange(x.shape[-2])[:, None] * 1e4 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        one, two = x.chunk(2, -1)
        return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], -1)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return scored(turn(q), turn(k) if halves else k).softmax(-1) @ v

    return attention


CASES = {
    "causal": (within(9), {"causal": True}, {}, {"causal": True}),
    "one ahead": (within(9, 1), {"causal": True}, {}, {"causal": False}),
    "a window": (within(3), {"causal": True, "window": 3}, {}, {"causal": True, "window": True}),
    "too wide": (within(4), {"causal": True, "window": 3}, {}, {"causal": True, "window": False}),
    "too narrow": (within(2), {"causal": True, "window": 3}, {}, {"causal": True, "window": True, "gap": False}),
    "regions": (in_blocks(3), {"regions": [0, 0, 0, 1, 1, 1]}, {}, {}),
    "other regions": (in_blocks(2), {"regions": [0, 0, 0, 1, 1, 1]}, {}, {"regions": False}),
    "padding": (dropping(False), {"masks": {"pad": "drop"}}, {"pad": PAD}, {"mask": True}),
    "padding kept": (dropping(True), {"masks": {"pad": "drop"}}, {"pad": PAD}, {"mask": False}),
    "padding at queries": (
        dropping(False, True),
        {"masks": {"pad": "drop"}},
        {"pad": PAD},
        {"mask": False},
    ),
    "documents": (within_documents(False), {"documents": "ids"}, {"ids": IDS}, {"documents": True}),
    "earlier documents": (within_documents(True), {"documents": "ids"}, {"ids": IDS}, {"documents": False}),
    "a scale": (scaled(-0.25), {"scale": "1/sqrt(d)"}, {}, {"scale": True}),
    "another scale": (scaled(-0.5), {"scale": "1/sqrt(d)"}, {}, {"scale": False}),
    "a cap": (capped(20.0), {"softcap": 20.0}, {}, {"softcap": True}),
    "another cap": (capped(30.0), {"softcap": 20.0}, {}, {"softcap": False}),
    "slopes": (sloped(SLOPES), {"alibi": SLOPES}, {}, {"alibi": True}),
    "slopes turned round": (sloped(SLOPES[::-1]), {"alibi": SLOPES}, {}, {"alibi": False}),
    "rotary": (turned(True), {"rotary": "half"}, {}, {"rotary": True}),
    "rotary in pairs": (turned(True), {"rotary": "pair"}, {}, {"rotary": False}),
    "rotary on one side": (turned(False), {"rotary": "relative"}, {}, {"rotary": False}),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_proved_or_refuted_on_the_relation(case: str) -> None:
    function, contract, more, wanted = CASES[case]
    axes = {**AXES, **({"pad": "b j"} if "pad" in more else {"ids": "b i"} if "ids" in more else {})}
    layouts = parse_axes(axes)
    reading = reader(function, (), given(**more), axes).program()
    found = verdicts(reading, given(**more), layouts, {"d": 4}, ix.Contract(**contract))
    assert {law: told.holds for law, told in found.items()} == {"rows": True, **wanted}
    assert all(told.span is None or told.span.source.name.endswith("test_claims.py") for told in found.values())


def test_a_report_tells_what_is_proved_when_it_is_asked() -> None:
    contract = ix.Contract(causal=True, scale="1/sqrt(d)")
    report = ix.audit(within(9), given(), AXES, contract)
    assert "laws proved" not in str(report)
    assert report.proved == ("causal", "rows", "scale")
    assert "laws proved: causal, rows, scale" in str(report.with_proofs())
    broken = ix.audit(within(9), given(), AXES, ix.Contract(causal=True, window=3))
    assert [(finding.law, finding.confidence) for finding in broken.findings] == [("window", "proved")]
    assert broken.proved == ()
