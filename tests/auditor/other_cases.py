"""More ways to be broken: weights that are no softmax, arguments in another order, modules, callables that fail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from tests.auditor.cases import FULL, INF, Case, causal, full, scores_of
from tests.auditor.layouts import B, D, H, N, Projected, _draw
from tests.auditor.mask_cases import QKV, SQUARE, rotated
from torch import nn

WIDTH = H * D
X_AXES = {"x": "b i c", "out": "b i c"}


def weighings() -> Iterator[Case]:
    example = _draw(SQUARE)

    def online(q: Any, k: Any, v: Any) -> Any:
        top = torch.full_like(q[..., :1], -INF)
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for j in range(k.shape[-2]):
            s = (q * k[..., j : j + 1, :]).sum(-1, keepdim=True) / 2
            top = torch.maximum(top, s)
            total, out = total + (s - top).exp(), out + (s - top).exp() * v[..., j : j + 1, :]
        return out / total

    def topmost(q: Any, k: Any, v: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(s < s.topk(3, -1).values[..., -1:], -INF).softmax(-1) @ v

    for name, target, law, cause in (
        ("softmax twice", lambda q, k, v: scores_of(q, k).softmax(-1).softmax(-1) @ v, "rows", "twice"),
        ("logarithm of the softmax", lambda q, k, v: scores_of(q, k).log_softmax(-1) @ v, "rows", "logarithm"),
        ("scaled after the softmax", lambda q, k, v: (q @ k.mT).softmax(-1) / 2 @ v, "rows", "after the softmax"),
        ("values rolled", lambda q, k, v: full(q, k, v.roll(1, -2)), "score", "one position apart"),
        ("no softmax", lambda q, k, v: scores_of(q, k) @ v, "rows", "missing"),
        (
            "features summed apart",
            lambda q, k, v: (q.sum(-1)[..., None] * k.sum(-1)[..., None, :] / 2).softmax(-1) @ v,
            "score",
            "apart",
        ),
        ("scores of one sign", lambda q, k, v: (q @ k.mT / 2).relu().softmax(-1) @ v, "score", "`relu`"),
        ("scores without a sign", lambda q, k, v: (q @ k.mT / 2).abs().softmax(-1) @ v, "score", "`abs`"),
        ("keys reshaped", lambda q, k, v: (q @ k.reshape(B, H, D, N) / 2).softmax(-1) @ v, "score", "reshaped"),
        ("online softmax without its correction", online, "irrelevant keys", "rescaled"),
        (
            "scores normalised over keys",
            lambda q, k, v: F.layer_norm(scores_of(q, k), (N,)).softmax(-1) @ v,
            "irrelevant keys",
            "normalised",
        ),
    ):
        yield Case(name, target, example, QKV, FULL, law, cause)
    yield Case(
        "over the queries, and without a mask",
        lambda q, k, v: scores_of(q, k).softmax(-2) @ v,
        example,
        QKV,
        {"causal": True},
        "normalisation",
        "over the queries, and not over the keys; and no mask",
    )
    yield Case(
        "masked scores lowered by ten",
        lambda q, k, v: (scores_of(q, k) - 10.0 * torch.ones(N, N).triu(1)).softmax(-1) @ v,
        example,
        QKV,
        {"causal": True},
        "causal",
        "changed by -10",
    )
    yield Case(
        "sigmoid, and declared so", lambda q, k, v: scores_of(q, k).sigmoid() @ v, example, QKV, {"rows": "free"}
    )
    yield Case("the three best keys", topmost, example, QKV, {})
    yield Case(
        "softmax in single precision", lambda q, k, v: scores_of(q, k).float().softmax(-1).to(v) @ v, example, QKV, FULL
    )
    yield Case("softmax in bf16", lambda q, k, v: scores_of(q, k).bfloat16().softmax(-1).to(v) @ v, example, QKV, FULL)
    packed, axes = _draw({"qkv": (B, N, 3, H, D)}), {"qkv": "b i 3 h d", "out": "b i h d"}
    for name, order, law, cause in (
        ("parts in order", (0, 1, 2), None, ""),
        ("parts k, q, v", (1, 0, 2), "locality", "exchanged"),
        ("parts q, v, k", (0, 2, 1), "roles", "another order"),
    ):

        def split(qkv: Any, order: tuple[int, ...] = order) -> Any:
            return full(*qkv.permute(2, 0, 3, 1, 4)[list(order)]).transpose(1, 2)

        yield Case(name, split, packed, axes, FULL, law, cause)
    same = _draw(dict.fromkeys("qkv", (1, 2, 4, 4)))
    declared = {"scale": "1/sqrt(d)"}

    def by_length(q: Any, k: Any, v: Any) -> Any:
        return (q @ k.mT / math.sqrt(k.shape[-2])).softmax(-1) @ v

    yield Case("scale by length, which is the width", by_length, same, QKV, declared, "scale", "number of keys")
    yield Case("scale by width, which is the length", full, same, QKV, declared)


class Separate(nn.Module):
    """Four projections; heads are not an attribute."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scale = scale

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        q, k, v = (m(x).view(b, n, H, D).permute(0, 2, 1, 3) for m in (self.W_q, self.W_k, self.W_v))
        return self.W_o(((q @ k.mT / self.scale).softmax(-1) @ v).permute(0, 2, 1, 3).reshape(b, n, c))


class Grouped(nn.Module):
    def __init__(self, interleave: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.interleave, self.num_heads = interleave, 4
        self.q_proj, self.o_proj = nn.Linear(16, 16), nn.Linear(16, 16)
        self.k_proj, self.v_proj = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        q = self.q_proj(x).view(b, n, 4, 4).transpose(1, 2)
        k, v = (m(x).view(b, n, 2, 4).transpose(1, 2) for m in (self.k_proj, self.v_proj))
        k, v = (y.repeat_interleave(2, 1) if self.interleave else y.repeat(1, 2, 1, 1) for y in (k, v))
        return self.o_proj(causal(q, k, v).transpose(1, 2).reshape(b, n, c))


class Context(nn.Module):
    def __init__(self, wrong: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wrong = wrong

    def forward(self, x: Any, context: Any) -> Any:
        b, n, c = x.shape
        projected = (self.to_q(x), self.to_k(context), self.to_v(x if self.wrong else context))
        q, k, v = (y.view(b, -1, H, D).transpose(1, 2) for y in projected)
        return self.to_out(full(q, k, v).transpose(1, 2).reshape(b, n, c))


class Library(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(WIDTH, H, batch_first=batch_first)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, need_weights=False)[0]


class Masked(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner, self.how = Projected(self.core), how

    def core(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        keep = {
            "keys": mask[:, None, None, :],
            "queries": mask[:, None, :, None],
            "first": mask[:1, None, None, :],
            "inverted": ~mask[:, None, None, :],
        }[self.how]
        return scores_of(q, k).masked_fill(~keep, -1e9).softmax(-1) @ v

    def forward(self, x: Any, mask: Any) -> Any:
        return self.inner(x, mask=mask)


def projections() -> Iterator[Case]:
    x = _draw({"x": (B, N, WIDTH)})
    scale = {"scale": "1/sqrt(d)"}
    yield Case("heads that are not declared", Separate(), x, X_AXES, scale)
    yield Case("heads that are not declared, unscaled", Separate(1.0), x, X_AXES, scale, "scale", "missing")
    wide, groups = _draw({"x": (B, N, 16)}), {"causal": True, "groups": 2, "heads": 4}
    yield Case("groups in a module", Grouped(True), wide, X_AXES, groups)
    yield Case("groups in a module, in the wrong order", Grouped(False), wide, X_AXES, groups, "groups", "`repeat`")
    both = _draw({"x": (B, N, WIDTH), "context": (B, N, WIDTH)})
    axes = {"x": "b i c", "context": "b j c", "out": "b i c"}
    yield Case("values of the context", Context(False), both, axes, {"heads": H})
    yield Case("values of the queries", Context(True), both, axes, {"heads": H}, "source", "exchanged")
    yield Case("the library's module", Library(True), x, X_AXES, {"heads": H})
    yield Case("the library's module, batch second", Library(False), x, X_AXES, {"heads": H}, "batch", "exchanged")
    module = nn.MultiheadAttention(WIDTH, H, batch_first=True)
    three = {"query": x["x"], "key": x["x"], "value": x["x"]}
    letters = {"query": "b i c", "key": "b j c", "value": "b j c", "out": "b i c"}
    yield Case("the library's module by itself", module, three, letters, {})
    masked, mask_axes = {**x, "mask": torch.ones(B, N, dtype=torch.bool)}, {**X_AXES, "mask": "b i"}
    kept = {"heads": H, "masks": {"mask": "keep"}}
    for how, cause in (("keys", None), ("queries", "queries"), ("first", "first point"), ("inverted", "wrong way")):
        law = None if cause is None else "mask"
        yield Case(f"module masked by {how}", Masked(how), masked, mask_axes, kept, law, cause or "")
    turned = {"heads": H, "causal": True, "rotary": "half", "scale": "1/sqrt(d)"}
    long = _draw({"x": (B, 6, 24)})
    yield Case("rotary in a module", Projected(rotated(), 24), long, X_AXES, turned)
    yield Case(
        "rotary in a module, on one side",
        Projected(rotated("half", "none"), 24),
        long,
        X_AXES,
        turned,
        "rotary",
        "the keys are not",
    )
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(WIDTH, WIDTH, generator=generator) / 3 for name in ("wq", "wk", "wv", "wo")}
    packed = "c (h d)"
    named = {"x": "b i c", "wq": packed, "wk": packed, "wv": packed, "wo": "(h d) c", "out": "b i c"}

    def function(axis: int) -> Any:
        def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
            b, n, c = x.shape
            q, k, v = ((x @ w).view(b, n, H, D).transpose(1, 2) for w in (wq, wk, wv))
            return (scores_of(q, k).softmax(axis) @ v).transpose(1, 2).reshape(b, n, c) @ wo

        return attention

    yield Case("weights that are arguments", function(-1), {**x, **weights}, named, {"heads": H, **scale})
    yield Case(
        "weights that are arguments, over queries",
        function(2),
        {**x, **weights},
        named,
        {"heads": H},
        "normalisation",
        "queries",
    )


def failures() -> Iterator[Case]:
    example = _draw(SQUARE)
    yield Case("raises", lambda q, k, v: q @ k, example, QKV, {}, "runs", "does not run")
    yield Case("wrong shape", lambda q, k, v: full(q, k, v).transpose(1, 2), example, QKV, {}, "shape", "not those")
    yield Case("nothing returned", lambda q, k, v: None, example, QKV, {}, "shape", "nothing")
