"""Attention in shapes of its own: other libraries' habits, sizes that coincide, few digits, single keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.auditor.cases import CAUSAL, FULL, INF, Case, causal, full, scores_of, triangle
from tests.auditor.layouts import B, D, H, N, Projected, _draw
from tests.auditor.mask_cases import QKV, SQUARE, key_mask, rotated
from torch import nn

WIDTH = H * D
X_AXES = {"x": "b i c", "out": "b i c"}


def habits() -> Iterator[Case]:
    """Layouts, as other libraries have them."""
    heads = {**FULL, "heads": H}

    def sequence_first(split: str = "right", merge: str = "right") -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            flat = [
                x.reshape(N, B * H, D).transpose(0, 1) if split == "right" else x.reshape(B * H, N, D)
                for x in (q, k, v)
            ]
            out = torch.bmm((torch.bmm(flat[0], flat[1].mT) / 2).softmax(-1), flat[2])
            return (out.transpose(0, 1) if merge == "right" else out).reshape(N, B, WIDTH)

        return attention

    example = _draw(dict.fromkeys("qkv", (N, B, WIDTH)))
    axes = {"q": "i b (h d)", "k": "j b (h d)", "v": "j b (h e)", "out": "i b (h e)"}
    yield Case("sequence first", sequence_first(), example, axes, heads)
    yield Case("sequence first, viewed", sequence_first("view"), example, axes, heads, "batch", "`view` or")
    yield Case("sequence first, merged", sequence_first(merge="view"), example, axes, heads, "batch", "merged")

    def grouped(order: str, only_keys: bool = False) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            k = k.repeat(1, 3, 1, 1) if order == "repeat" else k.repeat_interleave(3, 1)
            v = v.repeat(1, 3, 1, 1) if order == "repeat" and not only_keys else v.repeat_interleave(3, 1)
            return full(q, k, v).transpose(1, 2)

        return attention

    groups = _draw({"q": (B, N, 6, D), "k": (B, N, 2, D), "v": (B, N, 2, D)})
    packed = {"q": "b i (g r) d", "k": "b j g d", "v": "b j g e", "out": "b i (g r) e"}
    apart = {**packed, "q": "b i h d", "out": "b i h e"}
    yield Case("groups packed", grouped("interleave"), groups, packed, FULL)
    yield Case("groups packed, repeated", grouped("repeat"), groups, packed, FULL, "groups", "`repeat`")
    yield Case("groups apart, repeated", grouped("repeat"), groups, apart, FULL, "groups", "`repeat`")
    yield Case("keys of groups repeated", grouped("repeat", True), groups, apart, FULL, "groups", "`repeat`")
    merged = {name: value.numpy() for name, value in _draw(dict.fromkeys("qkv", (B, N, WIDTH))).items()}
    letters = {"q": "b i (h d)", "k": "b j (h d)", "v": "b j (h e)", "out": "b i (h e)"}

    def arrays(right: bool) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            q, k, v = (x.reshape(B, -1, H, D).transpose(0, 2, 1, 3) for x in (q, k, v))
            e = np.exp(q @ k.swapaxes(-1, -2) / 2)
            out = e / e.sum(-1, keepdims=True) @ v
            return (out.transpose(0, 2, 1, 3) if right else out).reshape(B, -1, WIDTH)

        return attention

    yield Case("NumPy, merged", arrays(True), merged, letters, heads)
    yield Case("NumPy, merged wrongly", arrays(False), merged, letters, heads, "heads", "merged")
    long = _draw({"q": (B, H, 3, 8), "k": (B, H, 6, 8), "v": (B, H, 6, 8)})
    cached = {"prefill": True, "causal": "bottom-right"}
    yield Case("a cache", rotated(), long, QKV, cached)
    yield Case("a cache that positions do not count", rotated(offset=False), long, QKV, cached, "prefill", "")
    five = _draw(dict.fromkeys("qkv", (2, 3, 4, 5, 6)))
    free = {"q": "b u h i d", "k": "b u h j d", "v": "b u h j d", "out": "b u h i d"}
    yield Case("another batch", full, five, free, FULL)
    three = _draw(dict.fromkeys("qkv", (3, 5, 4)))
    over = dict.fromkeys(("q", "k", "v", "out"), "b i d")

    def over_batch(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)

    yield Case("over the batch on purpose", over_batch, three, over, {"attends": "b"})
    names = {"a": three["q"], "b": three["k"], "c": three["v"]}
    yield Case(
        "other names",
        F.scaled_dot_product_attention,
        dict(zip(("query", "key", "value"), names.values(), strict=True)),
        {"query": "b i d", "key": "b j d", "value": "b j e", "out": "b i e"},
        FULL,
    )


def edges() -> Iterator[Case]:
    """Sizes, digits and things added that are not the rule."""
    example = _draw(SQUARE)
    same = _draw(dict.fromkeys("qkv", (4, 4, 4, 4)))

    def along_batch(q: Any, k: Any, v: Any) -> Any:
        keep = torch.ones(len(q), len(q), dtype=torch.bool).tril()[:, None, None, :]
        return scores_of(q, k).masked_fill(~keep, -INF).softmax(-1) @ v

    yield Case("all sizes the same", causal, same, QKV, CAUSAL)
    yield Case(
        "heads for batch",
        lambda q, k, v: causal(q.transpose(0, 1), k.transpose(0, 1), v),
        same,
        QKV,
        CAUSAL,
        "batch",
        "",
    )
    yield Case("a mask along the batch", along_batch, same, QKV, CAUSAL, "causal", "along `b`")
    for name, target, law, cause in (
        ("keys rolled", lambda q, k, v: full(q, k.roll(1, 2), v), "score", "apart"),
        ("values rolled", lambda q, k, v: full(q, k, v.roll(1, 2)), "score", "apart"),
        ("output rolled", lambda q, k, v: full(q, k, v).roll(1, 2), "locality", ""),
        ("values of one head", lambda q, k, v: full(q, k, v[:, :1].expand_as(v)), "heads", ""),
        ("a key too few", lambda q, k, v: full(q, k[:, :, :-1], v[:, :, :-1]), "gap", "too much"),
        ("queries centred over positions", lambda q, k, v: full(q - q.mean(2, keepdim=True), k, v), "locality", ""),
    ):
        yield Case(name, target, example, QKV, FULL, law, cause)
    bias = torch.randn(H, N, N, generator=torch.Generator().manual_seed(0))
    linear = nn.Linear(D, D)
    for name, right, contract in (
        (
            "a learned bias, unscaled",
            lambda q, k, v: (q @ k.mT + bias.to(q)).softmax(-1) @ v,
            {"scale": 1, "causal": False},
        ),
        ("queries added to the output", lambda q, k, v: causal(q, k, v) + q, CAUSAL),
        ("single precision inside", lambda q, k, v: linear(q) * 0 + causal(q, k, v), CAUSAL),
        ("half precision inside", lambda q, k, v: causal(q.half(), k.half(), v.half()).to(q), CAUSAL),
        ("a key too few, not declared", lambda q, k, v: full(q, k[:, :, :-1], v[:, :, :-1]), {}),
        ("softmax over heads on purpose", lambda q, k, v: scores_of(q, k).softmax(1) @ v, {"attends": "h"}),
        ("efficient attention", lambda q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v), {"causal": False}),
        (
            "cosines with a temperature",
            lambda q, k, v: (10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1) @ v,
            {"causal": False, "scale": 10},
        ),
    ):
        yield Case(name, right, example, QKV, contract)

    def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return scores_of(q, k).masked_fill(~mask[:, None, None, :], -INF).softmax(-1) @ v

    yield Case("a mask that is not declared", masked, {**example, "mask": key_mask()}, QKV, {})
    yield Case(
        "a number as an argument",
        lambda q, k, v, scale: (q @ k.mT * scale).softmax(-1) @ v,
        {**example, "scale": 0.5},
        QKV,
        FULL,
    )
    for name, shapes, contract in (
        ("one key", {"q": (2, 3, 4, 4), "k": (2, 3, 1, 4), "v": (2, 3, 1, 4)}, FULL),
        ("one query", {"q": (2, 3, 1, 4), "k": (2, 3, 6, 4), "v": (2, 3, 6, 4)}, {"causal": "bottom-right"}),
        ("wide values", {"q": (2, 3, 5, 4), "k": (2, 3, 5, 4), "v": (2, 3, 5, 7)}, FULL),
        ("many heads", dict.fromkeys("qkv", (2, 8, 16, 64)), FULL),
    ):
        yield Case(name, full, _draw(shapes), QKV, contract)
    heads_merged = {**QKV, "out": "b i c"}
    weight = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0))
    yield Case(
        "heads merged as `c`", lambda q, k, v: causal(q, k, v).transpose(1, 2).flatten(2), example, heads_merged, CAUSAL
    )
    yield Case(
        "heads projected to `c`",
        lambda q, k, v: causal(q, k, v).transpose(1, 2).flatten(2) @ weight.to(q),
        example,
        heads_merged,
        CAUSAL,
    )


class Block(nn.Module):
    """A fused projection, a mask in a buffer, dropout, and norms and residuals where they are asked for."""

    def __init__(self, norm: str = "", slice_wrongly: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.n_head, self.norm, self.slice_wrongly = 4, norm, slice_wrongly
        self.c_attn, self.c_proj, self.drop = nn.Linear(16, 48), nn.Linear(16, 16), nn.Dropout(0.1)
        self.register_buffer("triangle", torch.ones(12, 12).tril())
        self.ln = nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        given = self.ln(x) if self.norm == "before" else x
        q, k, v = (y.view(b, n, 4, 4).transpose(1, 2) for y in self.c_attn(given).split(c, dim=2))
        mask = self.triangle[-n:, :n] if self.slice_wrongly else self.triangle[:n, :n]
        weights = self.drop((q @ k.mT / math.sqrt(4)).masked_fill(mask == 0, -INF).softmax(-1))
        out = self.c_proj((weights @ v).transpose(1, 2).reshape(b, n, c))
        return self.ln(x + out) if self.norm == "after" else x + out if self.norm else out


class Sinks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.sinks = Projected(self.core), nn.Parameter(torch.tensor([0.1, 0.5, -0.3]))

    def core(self, q: Any, k: Any, v: Any) -> Any:
        s = scores_of(q, k)
        column = self.sinks[None, :, None, None].expand(*s.shape[:-1], 1)
        return torch.cat([s.masked_fill(~triangle(s), -INF), column], -1).softmax(-1)[..., :-1] @ v

    def forward(self, x: Any) -> Any:
        return self.inner(x)


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(WIDTH, H, batch_first=True)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.attention(x, x, x, key_padding_mask=mask)[0]


def blocks() -> Iterator[Case]:
    x, declared = _draw({"x": (2, 6, 16)}), {"causal": True, "scale": "1/sqrt(d)"}
    yield Case("a block in training", Block().train(), x, X_AXES, {**declared, "packing": "(3 h d)"})
    yield Case("a block with a norm before", Block("before"), x, X_AXES, {**declared, "residual": True})
    yield Case("a block with a norm after", Block("after"), x, X_AXES, {**declared, "residual": True})
    yield Case(
        "a block without its residual", Block(), x, X_AXES, {**declared, "residual": True}, "residual", "not added"
    )
    yield Case("a buffer cut wrongly", Block(slice_wrongly=True), x, X_AXES, declared, "causal", "")
    short = _draw({"x": (B, N, WIDTH)})
    yield Case("sinks in a module", Sinks(), short, X_AXES, {"causal": True, "heads": H, "rows": "<=1"})
    masked, axes = {**short, "mask": ~key_mask()}, {**X_AXES, "mask": "b i"}
    yield Case("the library's mask", Padded(), masked, axes, {"masks": {"mask": "drop"}})
    yield Case(
        "the library's mask, kept for dropped", Padded(), masked, axes, {"masks": {"mask": "keep"}}, "mask", "wrong way"
    )
