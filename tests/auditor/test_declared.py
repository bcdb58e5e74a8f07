"""What a contract declares is judged, or listed as not judged with the reason; what it contradicts is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import indexical as ix
from indexical.auditor.declared import not_judged

torch = pytest.importorskip("torch")
nn = torch.nn
F = nn.functional

QKV = "q=b h i d, k=b h j d, v=b h j e, out=b h i e"
X = "x=b i c, out=b i c"
HALF = {"scale": 0.25, "softcap": 5.0, "rotary": "half"}


def given(*shape: int, names: str = "qkv") -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(*(shape or (2, 3, 5, 4)), generator=generator) for name in names}


def tables(length: int, width: int) -> tuple[Any, Any]:
    angles = torch.arange(length)[:, None] / 1e4 ** (torch.arange(0, width, 2) / width)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def turned(x: Any, cos: Any, sin: Any) -> Any:
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-two, one], -1) * sin


def scored(scale: float = 0.25, cap: float | None = 5.0, rotary: bool = False) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        if rotary:
            cos, sin = (table.to(q.dtype) for table in tables(q.shape[-2], q.shape[-1]))
            q, k = turned(q, cos, sin), turned(k, cos, sin)
        s = q @ k.mT * scale
        return (s if cap is None else cap * torch.tanh(s / cap)).softmax(-1) @ v

    return attention


SCORES: dict[str, tuple[Callable[..., Any], dict[str, Any], str | None]] = {
    "capped": (scored(), {"scale": 0.25, "softcap": 5.0}, None),
    "capped, another scale": (scored(0.5), {"scale": 0.25, "softcap": 5.0}, "scale"),
    "capped, a scale of 7": (scored(7.0), {"scale": 0.25, "softcap": 5.0}, "scale"),
    "not capped": (scored(cap=None), {"scale": 0.25, "softcap": 5.0}, "softcap"),
    "capped elsewhere": (scored(cap=9.0), {"scale": 0.25, "softcap": 5.0}, "softcap"),
    "turned and capped": (scored(rotary=True), HALF, None),
    "turned, another scale": (scored(7.0, rotary=True), HALF, "scale"),
    "turned, not capped": (scored(cap=None, rotary=True), HALF, "softcap"),
    "turned, and not told": (scored(0.5, None, True), {"scale": 0.5}, None),
    "turned, and not told, another scale": (scored(7.0, None, True), {"scale": 0.5}, "scale"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SCORES)
def test_a_scale_and_a_cap_are_judged_together(name: str) -> None:
    function, contract, law = SCORES[name]
    report = ix.audit(function, given(), QKV, contract)
    assert [finding.law for finding in report.findings] == ([] if law is None else [law]), report
    assert law is not None or report.undecided == ()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("kernel", [None, "relu"])
def test_an_epsilon_beside_the_sum_is_right(epsilon: float, kernel: str | None) -> None:
    least = 0.0 if kernel else 0.1

    def attention(q: Any, k: Any, v: Any) -> Any:
        w = ((q.relu() + least) @ (k.relu() + least).mT).tril()
        return (w @ v) / (w.sum(-1, keepdim=True) + epsilon)

    contract = {"causal": True, **({"kernel": kernel} if kernel else {})}
    report = ix.audit(attention, given(), QKV, contract)
    assert report.ok, report
    assert "rows" not in report.proved


@pytest.mark.parametrize("share", [0.999, 0.9])
def test_rows_that_are_short_for_another_reason_are_not(share: float) -> None:
    report = ix.audit(lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v * share, given(), QKV)
    assert [finding.law for finding in report.findings] == ["rows"]


class Fused(nn.Module):
    """Six heads, which share two of keys and values, from one weight; cosines and sines as arguments."""

    def __init__(self, way: str, tiled: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.way, self.tiled = nn.Linear(24, 40), nn.Linear(24, 24), way, tiled

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        b, t, _ = x.shape
        y = self.qkv(x).view(b, t, 10, 4)
        if self.way == "by group":
            y = y.view(b, t, 2, 5, 4)
            q, k, v = y[:, :, :, :3].flatten(2, 3), y[:, :, :, 3], y[:, :, :, 4]
        elif self.way == "in pairs":
            q, k, v = y[:, :, :6], y[:, :, 6::2], y[:, :, 7::2]
        else:
            q, k, v = y.split((6, 2, 2), 2)
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        k, v = (z.repeat(1, 3, 1, 1) if self.tiled else z.repeat_interleave(3, 1) for z in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(out.transpose(1, 2).reshape(b, t, 24))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("way", ["side by side", "by group", "in pairs"])
def test_a_fused_weight_of_groups_is_asked_from_inside(way: str, told: bool, tiled: bool) -> None:
    if tiled and not told:
        pytest.skip("with the heads to be found, groups in another order are no heads at all")
    torch.manual_seed(0)
    cos, sin = tables(5, 4)
    contract = {"causal": True, "rotary": "half", "scale": "1/sqrt(d)", **({"heads": 6, "groups": 3} if told else {})}
    report = ix.audit(Fused(way, tiled), {**given(2, 5, 24, names="x"), "cos": cos, "sin": sin}, X, contract)
    assert [finding.law for finding in report.findings] == (["groups"] if tiled else []), report
    assert tiled or report.undecided == ()


class Normed(nn.Module):
    """Queries and keys that are normed, with gains, each head alone or all together."""

    def __init__(self, gain: float, scale: float = 8**-0.5, together: bool = False, heads: int = 2) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(16, 16) for _ in range(4))
        width = 16 if together else 8
        self.gains = nn.ParameterList(nn.Parameter(torch.full((width,), gain)) for _ in range(2))
        self.scale, self.together, self.num_heads = scale, together, heads

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if not self.together:
            q, k = (y.view(b, t, 2, 8) for y in (q, k))
        sizes = ((y.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
        q, k = (y / size * gain for y, size, gain in zip((q, k), sizes, self.gains, strict=True))
        q, k, v = (y.reshape(b, t, 2, 8).transpose(1, 2) for y in (q, k, v))
        cos, sin = (table.to(x.dtype) for table in tables(t, 8))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, 16))


NORMED = {
    **{f"a gain of {gain}": (Normed(gain), True) for gain in (1.0, 1.5, 2.0, 4.0)},
    "another scale": (Normed(2.0, 7.0), False),
    "all heads together": (Normed(1.5, together=True), None),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NORMED)
def test_normed_queries_and_keys_are_judged_as_they_are_compared(name: str) -> None:
    module, right = NORMED[name]
    contract = {"causal": True, "heads": 2, "rotary": "half", "scale": "1/sqrt(d)"}
    report = ix.audit(module, given(2, 5, 16, names="x"), X, contract)
    assert [finding.law for finding in report.findings] == (["scale"] if right is False else []), report
    assert [reason.partition(":")[0] for reason in report.undecided] == (["scale"] if right is None else [])


class Masked(nn.Module):
    """A mask for each head, and an output projection that mixes heads."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(12, 12) for _ in range(4))
        self.turned = turned

    def forward(self, x: Any, mask: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, 3, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        keep = mask.flip(1) if self.turned else mask
        w = (q @ k.mT / 2).masked_fill(keep == 0, float("-inf")).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, t, c))


@pytest.mark.parametrize("turned", [False, True])
def test_a_mask_for_each_head_is_judged_before_heads_are_mixed(turned: bool) -> None:
    example = {**given(2, 5, 12, names="x"), "mask": torch.ones(2, 3, 5, 5)}
    axes = "x=b i c, mask=b h i j, out=b i c"
    report = ix.audit(Masked(turned), example, axes, {"heads": 3, "masks": {"mask": "keep"}})
    assert {finding.law for finding in report.findings} - {"gap"} == ({"mask"} if turned else set()), report


class Gated(Masked):
    """Heads that are multiplied by a gate, and heads that are mixed, before they are projected."""

    def __init__(self, mixed: bool) -> None:
        super().__init__()
        self.gate, self.mix = nn.Linear(12, 12), nn.Linear(3, 3)
        self.mixed = mixed

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, 3, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        w = (q @ k.mT / 2).softmax(-1)
        if self.mixed:
            w = self.mix(w.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        out = (w @ v).transpose(1, 2).reshape(b, t, c)
        return self.o(out * self.gate(x).sigmoid())


@pytest.mark.sampled(0)
@pytest.mark.parametrize("mixed", [False, True])
def test_gates_and_mixed_heads_are_not_judged(mixed: bool) -> None:
    report = ix.audit(Gated(mixed), given(2, 5, 12, names="x"), X, {"heads": 3, "scale": 0.5})
    laws = {finding.law for finding in report.findings} - {"dead parameter"}
    assert not laws, report


REFUSED = {
    "heads": ({"heads": 5}, X, "5 heads, and the queries are 12 wide"),
    "groups": ({"heads": 3, "groups": 3}, X, "3 heads share a key head"),
    "no whole groups": ({"heads": 3, "groups": 2}, X, "does not divide"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_contract_that_contradicts_the_sizes_is_refused(name: str) -> None:
    contract, axes, words = REFUSED[name]

    class Plain(Masked):
        def forward(self, x: Any) -> Any:  # type: ignore[override]
            return super().forward(x, torch.ones(1, 1, 1, 1))

    with pytest.raises(ix.CallError, match=words):
        ix.audit(Plain(), given(2, 5, 12, names="x"), axes, contract)


def test_every_key_of_a_contract_is_judged_or_listed() -> None:
    """Nothing was judged: all that is declared is listed, each mask by its name."""
    masks: dict[str, Any] = {"causal": True, "window": 2, "documents": "ids", "regions": [0], "masks": {"pad": "drop"}}
    scores: dict[str, Any] = {"scale": 1.0, "softcap": 3.0, "alibi": [0.5], "rotary": "half", "kernel": "relu"}
    rows: dict[str, Any] = {"rows": "<=1", "empty": "zero", "logit_range": 10.0, "attends": "i"}
    whole: dict[str, Any] = {"heads": 4, "groups": 2, "packing": "3 h d", "residual": True, "prefill": True}
    every = ix.Contract(**masks, **scores, **rows, **whole)
    listed = [name for name, _ in not_judged(every, (), {})]
    assert listed == [("mask `pad`" if name == "masks" else name) for name in every.declared]
    assert len(listed) == len(ix.Contract.__dataclass_fields__)
    report = ix.audit(lambda q, k, v: (q.cumsum(2) + v.tanh()), given(), QKV, {"scale": 0.5, "causal": True})
    assert {reason.partition(":")[0] for reason in report.undecided} >= {"scale"}
    assert set(report.undecided) <= set(report.unread)
    assert report.to_json()["undecided"] == list(report.undecided)
