"""Attention as it is written elsewhere: the layouts and habits that a reader has to know."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.tril(torch.ones(scores.shape[-2:]))
    weights = scores.masked_fill(mask == 0, float("-inf")).softmax(dim=-1)
    return weights @ v


class Fused(nn.Module):
    """One projection for queries, keys and values, cut into three; the mask is kept."""

    def __init__(self, width: int = 12, heads: int = 3, longest: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.project(x).chunk(3, dim=2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))  # type: ignore[index]
        y = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.mix(y)  # type: ignore[no-any-return]


class Separate(nn.Module):
    """Three projections, and a mask of whole numbers that is given."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        def split(x: Tensor) -> Tensor:
            return x.view(x.size(0), -1, self.heads, x.size(-1) // self.heads).transpose(1, 2)

        q, k, v = split(self.query(q)), split(self.key(k)), split(self.value(v))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        weights = F.softmax(scores.masked_fill(mask.unsqueeze(1) == 0, -1e9), dim=-1)
        return self.out(torch.matmul(weights, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def einsums(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k)
    scores = scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores / q.shape[-1] ** 0.5, dim=-1), v)


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def turned_halves(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary_halves(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    q = q * cos + turned_halves(q) * sin
    k = k * cos + turned_halves(k) * sin
    return F.scaled_dot_product_attention(q, k, v)


def rotary_pairs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    angles = torch.outer(
        torch.arange(q.shape[-2]).float(), 10000.0 ** (-torch.arange(0, q.shape[-1], 2).float() / q.shape[-1])
    )

    def turn(x: Tensor) -> Tensor:
        even, odd = x[..., ::2], x[..., 1::2]
        pair = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
        return torch.stack(pair, -1).flatten(-2)

    return F.scaled_dot_product_attention(turn(q), turn(k), v)


def cached(q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor) -> Tensor:
    k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
    i = torch.arange(q.shape[2])[:, None] + past_k.shape[2]
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return scores.masked_fill(torch.arange(k.shape[2]) > i, float("-inf")).softmax(-1) @ v


def window(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i = torch.arange(q.shape[2])
    seen = (i[None] <= i[:, None]) & (i[:, None] - i[None] < 4)
    bias = torch.where(seen, 0.0, float("-inf"))
    return (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v


def documents(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=ids[:, None, :, None] == ids[:, None, None, :])


def biased(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Tensor:
    i = torch.arange(q.shape[2])
    scores = 50 * torch.tanh(q @ k.mT / math.sqrt(q.shape[-1]) / 50)
    scores = scores + slopes[:, None, None] * (i[None] - i[:, None])
    return (scores + torch.full(scores.shape[-2:], float("-inf")).triu(1)).softmax(-1) @ v


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True) @ v


def packed(x: Tensor, w: Tensor, mix: Tensor) -> Tensor:
    b, t, c = x.shape
    q, k, v = (x @ w.T).reshape(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
    weights = (q @ k.transpose(-2, -1) * (c // 4) ** -0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(b, t, c) @ mix.T


class Block(nn.Module):
    """Norms, residuals and a feed-forward part around an attention."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Fused(width)
        self.up, self.down = nn.Linear(width, 24), nn.Linear(24, width)

    def forward(self, x: Tensor) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.down(F.gelu(self.up(self.after(x))))
