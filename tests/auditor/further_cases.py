"""Mistakes that only show inside a library's habits: late biases, single heads, shifted windows, few positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from tests.auditor.cases import CAUSAL, FULL, INF, Case, causal, full, scores_of, triangle
from tests.auditor.layouts import B, D, H, N, _draw
from tests.auditor.mask_cases import QKV, SQUARE, banded, key_mask, pair, turn
from torch import nn

X = {"x": "b i c", "out": "b i c"}
WIDTH = H * D


def late() -> Iterator[Case]:
    """Something is added, summed or split where it changes the meaning and not the shape."""
    square = _draw(SQUARE)
    biased = {**square, "bias": _draw({"bias": (H, N, N)})["bias"]}
    axes = {**QKV, "bias": "h i j"}

    def after(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return (scores_of(q, k).softmax(-1) + bias) @ v

    def before(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return (scores_of(q, k) + bias).softmax(-1) @ v

    declared = {**FULL, "masks": {"bias": "additive"}}
    yield from pair("a bias after the softmax", after, before, biased, axes, FULL, "rows", "after the softmax")
    yield from pair(
        "an additive mask after the softmax", after, before, biased, axes, declared, "mask", "after the softmax"
    )

    def apart(q: Any, k: Any, v: Any) -> Any:
        return torch.einsum("bhij,bhke->bhie", scores_of(q, k).softmax(-1), v)

    yield from pair("values of another letter", apart, full, square, QKV, FULL, "dead input", "summed apart")

    def of_heads(q: Any, k: Any, v: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(~triangle(s), -1e9).softmax(1) @ v

    yield from pair("over heads with -1e9", of_heads, causal, square, QKV, CAUSAL, "normalisation", "over the heads")

    def powers(base: float) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            raised = torch.exp2(scores_of(q, k) * base)
            return raised / raised.sum(-1, keepdim=True) @ v

        return attention

    yield from pair("powers of 2", powers(1.0), powers(math.log2(math.e)), square, QKV, FULL, "scale", "powers of 2")
    yield from pair(
        "scaled by the batch",
        lambda q, k, v: (q @ k.mT / math.sqrt(len(q))).softmax(-1) @ v,
        full,
        _draw(dict.fromkeys("qkv", (7, 2, N, D))),
        QKV,
        FULL,
        "scale",
        "size of the batch",
    )
    yield Case("heads of values flipped", lambda q, k, v: full(q, k, v.flip(1)), square, QKV, FULL, "heads", "order")

    def packed(order: tuple[int, ...]) -> Any:
        def attention(qkv: Any) -> Any:
            q, k, v = qkv.view(B, N, 3, 3, D).permute(*order)
            return full(q, k, v).transpose(1, 2).reshape(B, N, WIDTH)

        return attention

    heads = {**FULL, "heads": H}
    fused, letters = _draw({"qkv": (B, N, 3 * WIDTH)}), {"qkv": "b i (3 h d)", "out": "b i (h d)"}
    yield from pair(
        "packed by head", packed((3, 0, 2, 1, 4)), packed((2, 0, 3, 1, 4)), fused, letters, heads, "packing", "order"
    )


def reached() -> Iterator[Case]:
    """Who hears whom, where scores are no multiple of `q·k`, or masks are read the wrong way round."""
    window = {"causal": True, "window": 3}
    long = _draw(dict.fromkeys("qkv", (B, H, 7, D)))
    yield from pair("a window shifted", banded(-3, -1), banded(-2, 0), long, QKV, window, "window", "shifted by one")

    def documents(first: bool) -> Any:
        def attention(q: Any, k: Any, v: Any, ids: Any) -> Any:
            same = ids[:, None, :, None] == ids[:, None, None, :]
            s = scores_of(q, k)
            keep = (same[:1] if first else same) & triangle(s)
            return s.masked_fill(~keep, -INF).softmax(-1) @ v

        return attention

    ids = torch.tensor([[0, 0, 1, 1, 2], [0, 0, 0, 1, 1]])
    yield from pair(
        "documents of the first example",
        documents(True),
        documents(False),
        {**_draw(SQUARE), "ids": ids},
        {**QKV, "ids": "b j"},
        {"causal": True, "documents": "ids"},
        "documents",
        "first example",
    )

    def quiet(turned: bool) -> Any:
        def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
            drop = mask if turned else ~mask
            return scores_of(q, k).masked_fill(drop[:, None, None, :], -INF).softmax(-1).nan_to_num(0.0) @ v

        return attention

    masked, axes = {**_draw(SQUARE), "mask": key_mask()}, {**QKV, "mask": "b j"}
    keep = {"masks": {"mask": "keep"}}
    yield from pair("polarity, without NaN", quiet(True), quiet(False), masked, axes, keep, "mask", "wrong way round")

    def both(fill: float) -> Any:
        def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
            kept = mask[:, None, :, None] & mask[:, None, None, :]
            return scores_of(q, k).masked_fill(~kept, fill).softmax(-1) @ v

        return attention

    yield Case("padded queries too", both(-1e9), masked, axes, keep)
    yield Case("padded queries too, NaN", both(-INF), masked, axes, keep, "finite", "queries as well")

    def cached(offset: int) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            i, j = q.shape[-2], k.shape[-2]
            s = scores_of(turn(q, torch.arange(j - i, j)), turn(k, torch.arange(j)))
            return s.masked_fill(~triangle(s, j - i + offset), -INF).softmax(-1) @ v

        return attention

    short = _draw({"q": (B, H, 3, D), "k": (B, H, 7, D), "v": (B, H, 7, D)})
    corner = {"causal": "bottom-right"}
    yield from pair("rotated and one ahead", cached(1), cached(0), short, QKV, corner, "causal", "key after it")
    yield Case("rotated, at the other corner", cached(-4), short, QKV, corner, "causal", "top-left corner")


def turned() -> Iterator[Case]:
    """Rotary positions of queries, keys and values."""
    rotary = {"causal": True, "rotary": "half", "scale": "1/sqrt(d)"}
    example = _draw(dict.fromkeys("qkv", (B, H, N, 8)))

    def attention(ahead: int = 0, values: bool = False) -> Any:
        def f(q: Any, k: Any, v: Any) -> Any:
            at = torch.arange(q.shape[-2])
            return causal(turn(q, at + ahead), turn(k, at), turn(v, at) if values else v)

        return f

    yield from pair("queries one ahead", attention(1), attention(), example, QKV, rotary, "rotary", "positions")
    yield Case("values rotated", attention(values=True), example, QKV, rotary, "layout", "values are rotated")


# ------------------------------------------------------------------------ modules


class Heads(nn.Module):
    """One projection a head, in lists."""

    def __init__(self, axis: int = -1, scale: float = D**-0.5) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.axis, self.scale = axis, scale
        self.q, self.k, self.v = (nn.ModuleList(nn.Linear(WIDTH, D) for _ in range(H)) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        parts = []
        for q, k, v in zip(self.q, self.k, self.v, strict=True):
            parts.append((q(x) @ k(x).mT * self.scale).softmax(self.axis) @ v(x))
        return self.out(torch.cat(parts, -1))


class Pixels(nn.Module):
    """Attention over pixels, by convolutions of one pixel; values are wider than keys."""

    def __init__(self, axis: int = -1, turned: bool = True) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.axis, self.turned = axis, turned
        self.query_conv, self.key_conv, self.value_conv = (nn.Conv1d(8, width, 1) for width in (4, 4, 8))

    def forward(self, x: Any) -> Any:
        weights = (self.query_conv(x).mT @ self.key_conv(x)).softmax(self.axis)
        return self.value_conv(x) @ (weights.mT if self.turned else weights)


class Library(nn.Module):
    """The library's attention with a mask of its own."""

    def __init__(self, mask: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.mask = mask
        self.attention = nn.MultiheadAttention(WIDTH, H, batch_first=True)

    def forward(self, x: Any) -> Any:
        n = x.shape[1]
        mask = self.mask(torch.ones(n, n, dtype=torch.bool).triu(1))
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class Biased(nn.Module):
    """One head; a bias may be made and left out."""

    def __init__(self, width: int = D, used: bool = True) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.width, self.used = width, used
        self.query, self.key, self.value = (nn.Linear(WIDTH, D) for _ in range(3))

    def forward(self, x: Any) -> Any:
        s = self.query(x) @ self.key(x).mT / math.sqrt(self.width)
        v = self.value(x) if self.used else F.linear(x, self.value.weight)
        return s.masked_fill(~triangle(s), -INF).softmax(-1) @ v


def inside() -> Iterator[Case]:
    x = _draw({"x": (B, N, WIDTH)})
    heads = {**FULL, "heads": H}
    yield from pair(
        "heads in lists, over queries", Heads(-2), Heads(), x, X, heads, "normalisation", "over the queries"
    )
    yield Case("heads in lists, unscaled", Heads(scale=1.0), x, X, heads, "scale", "missing")
    image, axes = _draw({"x": (B, 8, N)}), {"x": "b c i", "out": "b c i"}
    yield from pair(
        "pixels over queries", Pixels(1), Pixels(), image, axes, {"heads": 1}, "normalisation", "over the queries"
    )
    yield Case("pixels transposed", Pixels(turned=False), image, axes, {"heads": 1}, "normalisation", "transposed")
    marked = {**CAUSAL, "heads": H}
    yield from pair(
        "the library's mask as numbers",
        Library(lambda future: future.double()),
        Library(lambda future: torch.zeros(future.shape, dtype=torch.float64).masked_fill(future, -INF)),
        x,
        X,
        marked,
        "causal",
        "0 and 1",
    )
    single, axes = {**CAUSAL, "heads": 1}, {"x": "b i c", "out": "b i e"}
    yield from pair("scaled by the model", Biased(WIDTH), Biased(), x, axes, single, "scale", "width of the model")
    yield Case("a bias that is left out", Biased(used=False), x, axes, single, "dead parameter", "not used")
