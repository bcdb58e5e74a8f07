"""Masks, windows, documents, groups, layouts, positions: broken, repaired, and right though they look wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.auditor.cases import CAUSAL, FULL, INF, Case, causal, full, scores_of, triangle
from tests.auditor.layouts import B, D, H, N, Projected, _draw

QKV = {"q": "b h i d", "k": "b h j d", "v": "b h j e", "out": "b h i e"}
SQUARE = {"q": (B, H, N, D), "k": (B, H, N, D), "v": (B, H, N, D)}
LONGER = {"q": (B, H, 3, D), "k": (B, H, N, D), "v": (B, H, N, D)}


def pair(
    name: str, broken: Any, right: Any, example: Any, axes: Any, contract: Any, law: str, cause: str = ""
) -> Iterator[Case]:
    yield Case(name, broken, example, axes, contract, law, cause)
    yield Case(f"{name}, repaired", right, example, axes, contract)


# ------------------------------------------------------------------------ masks


def padded(keep: Any) -> Any:
    """Attention with a mask of keys, `b j`."""

    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return scores_of(q, k).masked_fill(~keep(mask), -INF).softmax(-1) @ v

    return attention


def key_mask(n: int = N) -> Any:
    mask = torch.ones(B, n, dtype=torch.bool)
    mask[1, -1] = False
    return mask


def finite_padded(keep: Any) -> Any:
    def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return scores_of(q, k).masked_fill(~keep(mask), -1e9).softmax(-1) @ v

    return attention


def masks() -> Iterator[Case]:
    example = {**_draw(SQUARE), "mask": key_mask()}
    axes = {**QKV, "mask": "b j"}
    keep = {"masks": {"mask": "keep"}, "causal": False}
    right = padded(lambda m: m[:, None, None, :])
    yield from pair(
        "padding ignored", lambda q, k, v, mask: full(q, k, v), right, example, axes, keep, "mask", "ignored"
    )
    yield from pair(
        "padding inverted",
        finite_padded(lambda m: ~m[:, None, None, :]),
        right,
        example,
        axes,
        keep,
        "mask",
        "wrong way round",
    )
    yield from pair(
        "padding on queries",
        finite_padded(lambda m: m[:, None, :, None]),
        right,
        example,
        axes,
        keep,
        "mask",
        "queries",
    )
    drop = {"masks": {"mask": "drop"}, "causal": False}
    yield from pair(
        "dropped, taken for kept",
        finite_padded(lambda m: m[:, None, None, :]),
        padded(lambda m: ~m[:, None, None, :]),
        example,
        axes,
        drop,
        "mask",
        "wrong way round",
    )
    four = dict.fromkeys("qkv", (4, 2, 4, D))
    square = {**_draw(four), "mask": torch.ones(4, 4, dtype=torch.bool).tril()}
    yield from pair(
        "padding along the queries, batch = length",
        padded(lambda m: m[None, None]),
        right,
        square,
        axes,
        keep,
        "mask",
        "along the queries",
    )
    both = {"masks": {"mask": "keep"}, "causal": True}

    def joined(q: Any, k: Any, v: Any, mask: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(~(mask[:, None, None, :] & triangle(s)), -1e9).softmax(-1) @ v

    def either(q: Any, k: Any, v: Any, mask: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(~(mask[:, None, None, :] | triangle(s)), -1e9).softmax(-1) @ v

    yield from pair("padding or causal", either, joined, example, axes, both, "mask", "`or`")
    yield from pair("padding without causal", right, joined, example, axes, both, "causal", "missing")

    def late(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (scores_of(q, k).softmax(-1) * mask[:, None, None, :]) @ v

    yield from pair("padding after the softmax", late, right, example, axes, keep, "rows", "after the softmax")

    def renormalised(q: Any, k: Any, v: Any, mask: Any) -> Any:
        w = scores_of(q, k).softmax(-1) * mask[:, None, None, :]
        return (w / w.sum(-1, keepdim=True)) @ v

    yield Case("masked after the softmax, normalised again", renormalised, example, axes, keep)

    def additive(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (scores_of(q, k) + mask[:, None, None, :]).softmax(-1) @ v

    def scaled_with(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return ((q @ k.transpose(-1, -2) + mask[:, None, None, :]) / math.sqrt(q.shape[-1])).softmax(-1) @ v

    def subtracted(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (scores_of(q, k) - mask[:, None, None, :].clamp(min=-1e9)).softmax(-1) @ v

    added = {**_draw(SQUARE), "mask": torch.where(key_mask(), 0.0, -1e9)}
    plus = {"masks": {"mask": "additive"}, "causal": False}
    yield from pair(
        "additive mask scaled", scaled_with, additive, added, axes, plus, "mask", "before the scores are scaled"
    )
    yield from pair("additive mask subtracted", subtracted, additive, added, axes, plus, "mask", "")
    yield from pair(
        "additive mask taken for Boolean",
        lambda q, k, v, mask: right(q, k, v, mask.bool()),
        additive,
        added,
        axes,
        plus,
        "mask",
        "wrong way round",
    )
    pairs = {**_draw(SQUARE), "mask": torch.rand(B, 1, N, N, generator=torch.Generator().manual_seed(1)) > 0.3}
    pairs["mask"] |= torch.eye(N, dtype=torch.bool)
    over = {**QKV, "mask": "b 1 i j"}
    yield from pair(
        "pair mask transposed",
        finite_padded(lambda m: m.transpose(-1, -2)),
        padded(lambda m: m),
        pairs,
        over,
        keep,
        "mask",
        "transposed",
    )
    flat = dict.fromkeys("qkv", (B * H, N, D))
    packed = {"q": "(b h) i d", "k": "(b h) j d", "v": "(b h) j e", "out": "(b h) i e", "mask": "b j"}
    heads = {**keep, "heads": H}

    def repeated(interleave: bool) -> Any:
        def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
            many = mask.repeat_interleave(H, 0) if interleave else mask.repeat(H, 1)
            return scores_of(q, k).masked_fill(~many[:, None, :], -INF).softmax(-1) @ v

        return attention

    yield from pair(
        "mask repeated in another order",
        repeated(False),
        repeated(True),
        {**_draw(flat), "mask": key_mask()},
        packed,
        heads,
        "mask",
        "repeated in another order",
    )

    def quiet(q: Any, k: Any, v: Any, mask: Any) -> Any:
        keep = mask[:, None, None, :]
        return torch.nan_to_num(scores_of(q, k).masked_fill(~keep, -INF).softmax(-1)) @ v

    empty = {**keep, "empty": "zero"}
    yield from pair("NaN for a row without keys", right, quiet, example, axes, empty, "empty", "0/0")
    yield from pair(
        "an average for a row without keys",
        finite_padded(lambda m: m[:, None, None, :]),
        quiet,
        example,
        axes,
        empty,
        "empty",
        "finite",
    )

    def strong(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return scores_of(q, k).masked_fill(~mask[:, None, None, :], -1e4).softmax(-1) @ v

    yield from pair(
        "-1e4 under large scores", strong, right, example, axes, {**keep, "logit_range": 1e5}, "mask strength", "finite"
    )
    yield Case("-1e4 under ordinary scores", strong, example, axes, keep)
    yield from _windows()
    yield from _caps()


def banded(low: int, high: int) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        s = scores_of(q, k)
        distance = torch.arange(s.shape[-1])[None] - torch.arange(s.shape[-2])[:, None] - (s.shape[-1] - s.shape[-2])
        return s.masked_fill((distance < low) | (distance > high), -INF).softmax(-1) @ v

    return attention


def _windows() -> Iterator[Case]:
    example, contract = _draw(dict.fromkeys("qkv", (B, H, 6, D))), {"causal": True, "window": 3}
    right = banded(-2, 0)
    yield from pair("window one too long", banded(-3, 0), right, example, QKV, contract, "window", "one key too long")
    yield from pair("window one too short", banded(-1, 0), right, example, QKV, contract, "window", "one key too short")
    yield from pair("window missing", banded(-99, 0), right, example, QKV, contract, "window", "window is missing")
    yield from pair("window on both sides", banded(-2, 2), right, example, QKV, contract, "window", "ahead")
    cached = {"causal": "bottom-right"}
    long = _draw(LONGER)
    yield from pair("top-left with a cache", causal, banded(-99, 0), long, QKV, cached, "causal", "top-left")

    def square(q: Any, k: Any, v: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(~triangle(s, s.shape[-1] - s.shape[-2]), -INF).softmax(-1) @ v

    yield from pair(
        "bottom-right where square is declared",
        square,
        causal,
        long,
        QKV,
        {"causal": "square"},
        "causal",
        "bottom-right",
    )
    yield from pair(
        "prefill: the last rows of a full pass", causal, square, long, QKV, {"prefill": True}, "prefill", ""
    )

    def documents(q: Any, k: Any, v: Any, ids: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(~((ids[:, None, :, None] == ids[:, None, None, :]) & triangle(s)), -INF).softmax(-1) @ v

    def neighbours(q: Any, k: Any, v: Any, ids: Any) -> Any:
        s = scores_of(q, k)
        return s.masked_fill(~((ids[:, None, :, None] >= ids[:, None, None, :]) & triangle(s)), -INF).softmax(-1) @ v

    ids = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    packed = {**_draw(SQUARE), "ids": ids}
    axes = {**QKV, "ids": "b j"}
    declared = {"causal": True, "documents": "ids"}
    yield from pair(
        "documents ignored",
        lambda q, k, v, ids: causal(q, k, v),
        documents,
        packed,
        axes,
        declared,
        "documents",
        "ignored",
    )
    yield from pair("documents compared by order", neighbours, documents, packed, axes, declared, "documents", "")
    regions = [0, 0, 1, 1, 1]

    def region(q: Any, k: Any, v: Any) -> Any:
        r = torch.tensor(regions)
        return scores_of(q, k).masked_fill(r[:, None] != r[None], -100.0 * 1e3).softmax(-1) @ v

    yield from pair("regions ignored", full, region, _draw(SQUARE), QKV, {"regions": regions}, "regions", "ignored")


def _caps() -> Iterator[Case]:
    example = _draw(SQUARE)
    contract = {**CAUSAL, "softcap": 5.0}

    def capped(order: str) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            s = scores_of(q, k)
            if order == "late":
                return (5 * torch.tanh(s.masked_fill(~triangle(s), -INF) / 5)).softmax(-1) @ v
            if order == "wrong":
                s = torch.tanh(s / 5)
            elif order == "right":
                s = 5 * torch.tanh(s / 5)
            return s.masked_fill(~triangle(s), -INF).softmax(-1) @ v

        return attention

    yield from pair(
        "cap after the mask", capped("late"), capped("right"), example, QKV, contract, "causal", "cap is applied after"
    )
    yield from pair("cap missing", capped("none"), capped("right"), example, QKV, contract, "softcap", "not capped")
    yield from pair(
        "cap without its factor",
        capped("wrong"),
        capped("right"),
        example,
        QKV,
        contract,
        "softcap",
        "capped at about 1,",
    )

    def sunk(scaled: bool) -> Any:
        def attention(q: Any, k: Any, v: Any, sink: Any) -> Any:
            s = q @ k.transpose(-1, -2)
            column = sink[None, :, None, None].expand(*s.shape[:-1], 1)
            s = torch.cat([s, column], -1) / 2 if scaled else torch.cat([s / 2, column], -1)
            return s.softmax(-1)[..., :-1] @ v

        return attention

    with_sink = {**example, "sink": torch.tensor([0.3, -0.2, 1.0])}
    axes = {**QKV, "sink": "h"}
    yield from pair(
        "sink scaled",
        sunk(True),
        sunk(False),
        with_sink,
        axes,
        {"rows": "<=1", "scale": "1/sqrt(d)", "causal": False},
        "sink",
        "scaled",
    )

    def first(kept: slice) -> Any:
        def attention(q: Any, k: Any, v: Any, sink: Any) -> Any:
            s = scores_of(q, k)
            column = sink[None, :, None, None].expand(*s.shape[:-1], 1)
            return torch.cat([column, s], -1).softmax(-1)[..., kept] @ v

        return attention

    wrong, right = first(slice(0, -1)), first(slice(1, None))
    contract = {"rows": "<=1", "causal": False}
    yield from pair("sink first", wrong, right, with_sink, axes, contract, "sink", "stands first")

    def off_by_one(q: Any, k: Any, v: Any) -> Any:
        e = scores_of(q, k).exp()
        return e / (1 + e.sum(-1, keepdim=True)) @ v

    yield Case("softmax off by one", off_by_one, example, QKV, {"rows": "<=1", "causal": False})


# ----------------------------------------------------------------------- shapes


def shapes() -> Iterator[Case]:
    merged = dict.fromkeys("qkv", (B, N, H * D))
    axes = {"q": "b i (h d)", "k": "b j (h d)", "v": "b j (h e)", "out": "b i (h e)"}
    heads = {**FULL, "heads": H}

    def split(x: Any) -> Any:
        return x.view(B, -1, H, D).transpose(1, 2)

    def viewed(x: Any) -> Any:
        return x.reshape(B, H, -1, D)

    def right(q: Any, k: Any, v: Any) -> Any:
        return full(split(q), split(k), split(v)).transpose(1, 2).reshape(B, -1, H * D)

    def view_for_transpose(q: Any, k: Any, v: Any) -> Any:
        return full(viewed(q), viewed(k), viewed(v)).transpose(1, 2).reshape(B, -1, H * D)

    def view_in_and_out(q: Any, k: Any, v: Any) -> Any:
        return full(viewed(q), viewed(k), viewed(v)).reshape(B, -1, H * D)

    def merged_wrongly(q: Any, k: Any, v: Any) -> Any:
        return full(split(q), split(k), split(v)).reshape(B, -1, H * D)

    def merged_by_feature(q: Any, k: Any, v: Any) -> Any:
        return full(split(q), split(k), split(v)).permute(0, 2, 3, 1).reshape(B, -1, H * D)

    def keys_viewed(q: Any, k: Any, v: Any) -> Any:
        return full(split(q), viewed(k), split(v)).transpose(1, 2).reshape(B, -1, H * D)

    example = _draw(merged)
    for broken in (view_for_transpose, view_in_and_out, merged_wrongly, merged_by_feature, keys_viewed):
        words = "merged in the wrong order" if broken.__name__.startswith("merged") else "`view` or `reshape`"
        yield from pair(broken.__name__, broken, right, example, axes, heads, "heads", words)

    def batch_first(q: Any, k: Any, v: Any) -> Any:
        return full(q[:, None], k[:, None], v[:, None])[:, 0]

    sequence = dict.fromkeys("qkv", (N, B, D))
    seconds = {"q": "i b d", "k": "j b d", "v": "j b e", "out": "i b e"}

    def batch_second(q: Any, k: Any, v: Any) -> Any:
        return batch_first(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)

    yield from pair(
        "batch-first code on batch-second arrays", batch_first, batch_second, _draw(sequence), seconds, {}, "batch", ""
    )

    def moved(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    later = {"q": "b i h d", "k": "b j h d", "v": "b j h e", "out": "b i h e"}
    swapped = _draw(dict.fromkeys("qkv", (B, N, H, D)))
    yield from pair("heads attend to heads", F.scaled_dot_product_attention, moved, swapped, later, {}, "heads")

    def grouped(interleaved: bool) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            n = q.shape[1] // k.shape[1]
            many = (lambda x: x.repeat_interleave(n, 1)) if interleaved else (lambda x: x.repeat(1, n, 1, 1))
            return full(q, many(k), many(v))

        return attention

    groups = {"q": (B, 6, N, D), "k": (B, 2, N, D), "v": (B, 2, N, D)}
    letters = {"q": "b h i d", "k": "b g j d", "v": "b g j e", "out": "b h i e"}
    yield from pair(
        "groups repeated in the wrong order",
        grouped(False),
        grouped(True),
        _draw(groups),
        letters,
        {"groups": 3},
        "groups",
        "`repeat`",
    )

    def by_group(q: Any, k: Any, v: Any) -> Any:
        g = k.shape[1]
        s = torch.einsum("bgrid,bgjd->bgrij", q.unflatten(1, (g, -1)), k) / 2
        return torch.einsum("bgrij,bgje->bgrie", s.softmax(-1), v).flatten(1, 2)

    yield Case("groups by an einsum", by_group, _draw(groups), letters, {"groups": 3})
    apart = {**letters, "q": "b (r g) i d", "out": "b (r g) i e"}
    yield Case("groups packed the other way, and declared so", grouped(False), _draw(groups), apart, {})
    one = {"q": (B, H, N, D), "k": (B, N, D), "v": (B, N, D)}
    yield Case(
        "one key head for all",
        lambda q, k, v: full(q, k[:, None], v[:, None]),
        _draw(one),
        {"q": "b h i d", "k": "b j d", "v": "b j e", "out": "b h i e"},
        FULL,
    )


# -------------------------------------------------------------------- positions


def turn(x: Any, at: Any, pairing: str = "half", base: float = 10000.0) -> Any:
    d = x.shape[-1]
    angle = at[:, None] * base ** (-torch.arange(0, d, 2).to(x) / d)
    cos, sin = angle.cos(), angle.sin()
    if pairing == "half":
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def rotated(
    left: str = "half", right: str = "half", offset: bool = True, base: float = 10000.0, mask: bool = True
) -> Any:
    def attention(q: Any, k: Any, v: Any) -> Any:
        i, j = q.shape[-2], k.shape[-2]
        at = torch.arange(j).to(q)
        mine = at[j - i :] if offset else at[:i]
        q = turn(q, mine, left) if left != "none" else q
        k = turn(k, at, right, base) if right != "none" else k
        return banded(-99, 0 if mask else 99)(q, k, v)

    return attention


def positions() -> Iterator[Case]:
    example = _draw(dict.fromkeys("qkv", (B, H, 6, 8)))
    half, paired, any_ = (
        {"causal": True, "rotary": kind, "scale": "1/sqrt(d)"} for kind in ("half", "pair", "relative")
    )
    yield from pair(
        "queries not rotated", rotated("none"), rotated(), example, QKV, half, "rotary", "queries are not rotated"
    )
    yield from pair(
        "keys not rotated", rotated("half", "none"), rotated(), example, QKV, half, "rotary", "and the keys are not"
    )
    yield from pair("neither rotated", causal, rotated(), example, QKV, any_, "rotary", "neither queries nor keys")
    yield from pair("rotated in pairs", rotated("pair", "pair"), rotated(), example, QKV, half, "rotary", "pairing")
    yield from pair("rotated in halves", rotated(), rotated("pair", "pair"), example, QKV, paired, "rotary", "pairing")
    different = "in different pairs"
    yield from pair("two pairings", rotated("half", "pair"), rotated(), example, QKV, half, "rotary", different)
    yield from pair("two bases", rotated(base=100.0), rotated(), example, QKV, any_, "rotary", "by another base")
    longer = _draw({"q": (B, H, 3, 8), "k": (B, H, 6, 8), "v": (B, H, 6, 8)})
    cached = {**half, "causal": "bottom-right"}
    yield from pair(
        "positions without the cache", rotated(offset=False), rotated(), longer, QKV, cached, "rotary", "cache"
    )
    slopes = [0.5, 0.25, 0.125]

    def alibi(sign: float, order: int = 1, scaled: bool = False) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            s = scores_of(q, k)
            n = s.shape[-1]
            distance = torch.arange(n)[None] - torch.arange(n)[:, None]
            bias = sign * torch.tensor(slopes[::order]).to(q)[:, None, None] * distance
            s = s + bias / (2 if scaled else 1)
            return s.masked_fill(~triangle(s), -INF).softmax(-1) @ v

        return attention

    contract = {"causal": True, "alibi": slopes}
    square = _draw(SQUARE)
    yield from pair("slopes with the wrong sign", alibi(-1), alibi(1), square, QKV, contract, "alibi", "wrong sign")
    yield from pair("slopes reversed", alibi(1, -1), alibi(1), square, QKV, contract, "alibi", "reverse order")
    yield from pair(
        "slopes scaled", alibi(1, 1, True), alibi(1), square, QKV, contract, "alibi", "before the scores are scaled"
    )
    yield from pair("slopes missing", causal, alibi(1), square, QKV, contract, "alibi", "not added")


# ---------------------------------------------------------------------- modules


class Fused(torch.nn.Module):
    def __init__(self, how: str = "3 h d") -> None:
        super().__init__()
        torch.manual_seed(2)
        self.n_head, self.how = H, how
        self.c_attn, self.c_proj = torch.nn.Linear(H * D, 3 * H * D), torch.nn.Linear(H * D, H * D)

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        if self.how == "3 h d":
            q, k, v = (y.view(b, n, H, D).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        else:
            q, k, v = self.c_attn(x).view(b, n, H, 3 * D).transpose(1, 2).chunk(3, -1)
        return self.c_proj(causal(q, k, v).transpose(1, 2).reshape(b, n, c))


class Plain(torch.nn.Module):
    """Weights that are parameters, and products by hand."""

    def __init__(self, residual: bool = False, dead: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.residual, self.dead = residual, dead
        self.wq, self.wk, self.wv, self.wo = (torch.nn.Parameter(torch.randn(H * D, H * D) / 4) for _ in range(4))

    def forward(self, x: Any) -> Any:
        b, n, c = x.shape
        k = x @ self.wq if self.dead else x @ self.wk
        q, k, v = (y.view(b, n, H, D).transpose(1, 2) for y in (x @ self.wq, k, x @ self.wv))
        out = full(q, k, v).transpose(1, 2).reshape(b, n, c) @ self.wo
        return out + x if self.residual else out


class Cross(torch.nn.Module):
    def __init__(self, swapped: bool = False) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.to_q, self.to_kv = torch.nn.Linear(H * D, H * D, bias=False), torch.nn.Linear(8, 2 * H * D, bias=False)
        self.to_out = torch.nn.Linear(H * D, H * D)
        self.heads, self.swapped = H, swapped

    def forward(self, x: Any, context: Any) -> Any:
        b = x.shape[0]
        k, v = self.to_kv(context).chunk(2, -1)
        q, k, v = (y.reshape(b, -1, H, D).transpose(1, 2) for y in (self.to_q(x), k, v))
        w = scores_of(q, k).softmax(-2 if self.swapped else -1)
        return self.to_out((w @ v).transpose(1, 2).reshape(b, -1, H * D))


def modules() -> Iterator[Case]:
    x = _draw({"x": (B, N, H * D)})
    axes = {"x": "b i c", "out": "b i c"}
    packed = {**CAUSAL, "heads": H, "packing": "(3 h d)"}
    yield from pair("fused weight split by head", Fused("h 3 d"), Fused(), x, axes, packed, "packing", "another order")
    yield Case("fused weight split by head, declared so", Fused("h 3 d"), x, axes, {**packed, "packing": "(h 3 d)"})
    yield Case("fused weight split by head, not declared", Fused("h 3 d"), x, axes, {**CAUSAL, "heads": H})
    heads = {**FULL, "heads": H}
    yield from pair(
        "residual missing", Plain(), Plain(residual=True), x, axes, {**heads, "residual": True}, "residual", "not added"
    )
    yield from pair("dead projection", Plain(dead=True), Plain(), x, axes, heads, "dead parameter", "not used")
    both = _draw({"x": (B, 3, H * D), "context": (B, 7, 8)})
    outer = {"x": "b i c", "context": "b j f", "out": "b i c"}
    yield from pair(
        "cross attention over the queries",
        Cross(True),
        Cross(),
        both,
        outer,
        {"heads": H},
        "normalisation",
        "over the queries",
    )

    class Second(Projected):
        def forward(self, x: Any) -> Any:
            return super().forward(x.transpose(0, 1)).transpose(0, 1)

    first = _draw({"x": (N, B, H * D)})
    yield from pair(
        "batch-first module on batch-second arrays",
        Projected(full),
        Second(full),
        first,
        {"x": "i b c", "out": "i b c"},
        heads,
        "batch",
        "",
    )

    class Viewed(torch.nn.Module):
        def __init__(self, right: bool) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.query, self.key, self.value = (torch.nn.Linear(H * D, H * D) for _ in range(3))
            self.right = right

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape

            def split(y: Any) -> Any:
                return y.view(b, n, H, D).transpose(1, 2) if self.right else y.view(b, H, n, D)

            return full(split(self.query(x)), split(self.key(x)), split(self.value(x))).transpose(1, 2).reshape(b, n, c)

    yield from pair(
        "module with view for transpose", Viewed(False), Viewed(True), x, axes, heads, "heads", "`view` or `reshape`"
    )

    class Dropped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = Projected(full), torch.nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.inner(self.drop(x))

    yield Case("dropout that evaluation turns off", Dropped().train(), x, axes, {"heads": H})


# ---------------------------------------------------------------------- unusual


def unusual() -> Iterator[Case]:
    example = _draw(SQUARE)
    keys_first = {"q": "b h i d", "k": "b h j d", "v": "b h j e", "out": "b h i e"}

    def over_dim_two(q: Any, k: Any, v: Any) -> Any:
        w = (k @ q.transpose(-1, -2) / 2).softmax(2)
        return torch.einsum("bhji,bhje->bhie", w, v)

    yield Case("softmax over dim 2, which is the key", over_dim_two, example, keys_first, FULL)

    def over_dim_one(q: Any, k: Any, v: Any) -> Any:
        return torch.einsum("bjih,bhje->bhie", torch.einsum("bhid,bhjd->bjih", q, k).div(2).softmax(1), v)

    yield Case("softmax over dim 1, which is the key", over_dim_one, example, keys_first, FULL)
    quarter = D**-0.25
    yield Case(
        "a fourth root on both sides",
        lambda q, k, v: ((q * quarter) @ (k * quarter).mT).softmax(-1) @ v,
        example,
        QKV,
        FULL,
    )
    yield Case("only the query scaled", lambda q, k, v: (q * D**-0.5 @ k.mT).softmax(-1) @ v, example, QKV, FULL)
    yield Case(
        "no scale, and declared so",
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
        example,
        QKV,
        {"scale": 1, "causal": False},
    )
    yield Case(
        "a scale that is not declared",
        lambda q, k, v: (q @ k.mT * 0.3).softmax(-1) @ v,
        example,
        QKV,
        {"causal": False},
    )
    yield Case("causal that is not declared", causal, example, QKV, {})

    def by_hand(q: Any, k: Any, v: Any) -> Any:
        s = scores_of(q, k)
        e = (s - s.amax(-1, keepdim=True)).exp() * triangle(s)
        return (e / e.sum(-1, keepdim=True)) @ v

    yield Case("exponentials masked, then normalised", by_hand, example, QKV, CAUSAL)

    def flash(q: Any, k: Any, v: Any) -> Any:
        top = torch.full_like(q[..., :1], -INF)
        total, out = torch.zeros_like(top), torch.zeros_like(q)
        for j in range(k.shape[-2]):
            s = (q * k[..., j : j + 1, :]).sum(-1, keepdim=True) / 2
            new = torch.maximum(top, s)
            total = total * (top - new).exp() + (s - new).exp()
            out = out * (top - new).exp() + (s - new).exp() * v[..., j : j + 1, :]
            top = new
        return out / total

    yield Case("an online softmax", flash, example, QKV, FULL)
    yield Case(
        "the fused kernel",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        example,
        QKV,
        CAUSAL,
    )

    def linear(normalise: str = "right", feature: Any = lambda x: F.elu(x) + 1) -> Any:
        def attention(q: Any, k: Any, v: Any) -> Any:
            q, k = feature(q), F.elu(k) + 1
            state = torch.einsum("bhjd,bhje->bhjde", k, v).cumsum(2)
            total = torch.einsum(
                "bhid,bhid->bhi", q, k.cumsum(2) if normalise == "right" else k.sum(2, keepdim=True).expand_as(k)
            )
            out = torch.einsum("bhid,bhide->bhie", q, state)
            return out if normalise == "none" else out / total[..., None]

        return attention

    kernel = {"kernel": "elu+1", "causal": True}
    yield Case("linear attention", linear(), example, QKV, kernel)
    yield Case("linear attention, normaliser of all keys", linear("all"), example, QKV, kernel, "rows", "divided by")
    yield Case("linear attention, no normaliser", linear("none"), example, QKV, kernel, "rows", "divided by")
    yield Case("linear attention, another feature map", linear("right", F.softplus), example, QKV, kernel, "kernel", "")

    def not_causal(q: Any, k: Any, v: Any) -> Any:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        return (q @ (k.mT @ v)) / (q @ k.sum(2)[..., None])

    yield Case("linear attention over the future", not_causal, example, QKV, kernel, "causal", "")
    yield Case("linear attention of all keys", not_causal, example, QKV, {"kernel": "elu+1", "causal": False})

    def slots(q: Any, k: Any, v: Any) -> Any:
        return scores_of(q, k).softmax(-2) @ v

    yield Case(
        "slots, normalised over the query on purpose", slots, example, QKV, {"attends": "i", "scale": "1/sqrt(d)"}
    )
    yield Case(
        "attention over the batch on purpose",
        Projected(full),
        {"x": torch.randn(3, 5, H * D)},
        {"x": "i b c", "out": "i b c"},
        {"heads": H, "attends": "b"},
    )

    def numpy_attention(q: Any, k: Any, v: Any) -> Any:
        s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("bhij,bhje->bhie", e / e.sum(-1, keepdims=True), v)

    arrays = {name: value.numpy() for name, value in example.items()}
    yield Case("NumPy", numpy_attention, arrays, QKV, FULL)
    yield Case("NumPy over the queries", _over, arrays, QKV, FULL, "normalisation", "over the queries")
    yield Case("weights returned as well", lambda q, k, v: (full(q, k, v), scores_of(q, k)), example, QKV, FULL)
    gate = torch.linspace(0.5, 2, H)[:, None, None]
    yield Case(
        "a temperature a head",
        lambda q, k, v: (scores_of(q, k) * gate).softmax(-1) @ v,
        example,
        QKV,
        {"causal": False},
    )
    yield Case(
        "a norm of queries and keys",
        lambda q, k, v: full(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v),
        example,
        QKV,
        {"causal": False},
    )
    yield Case(
        "rotary that is not declared", rotated(), _draw(dict.fromkeys("qkv", (B, H, N, 8))), QKV, {"causal": True}
    )
    long = torch.nn.functional.scaled_dot_product_attention
    yield Case("large sizes", lambda q, k, v: long(q, k, v), _draw(dict.fromkeys("qkv", (2, 4, 48, 32))), QKV, FULL)


def _over(q: Any, k: Any, v: Any) -> Any:
    s = np.einsum("bhid,bhjd->bhij", q, k) / 2
    e = np.exp(s)
    return np.einsum("bhij,bhje->bhie", e / e.sum(2, keepdims=True), v)
