"""A small decoder with rotary positions, grouped heads and a cache, and one mistake in it where one is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

WIDTH, HEADS, GROUPS, VOCABULARY = 16, 4, 2, 40
ANGLES = 100.0 ** (-torch.arange(WIDTH // HEADS // 2) / (WIDTH // HEADS // 2))  # Of one position.


class Rotary(nn.Module):
    """The angles of positions, over their features."""

    def forward(self, x: Any, at: Any) -> Any:
        return at[:, :, None] * ANGLES.to(x)


def rotate(x: Any, angle: Any) -> Any:
    angle = angle[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Attention(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))

    def forward(self, x: Any, at: Any, keep: Any, past: Any) -> Any:
        b, n, _ = x.shape
        q = self.q_proj(x).view(b, n, HEADS, -1).transpose(1, 2)
        k, v = (p(x).view(b, n, GROUPS, -1).transpose(1, 2) for p in (self.k_proj, self.v_proj))
        if self.bug == "positions" and past is not None:
            at = torch.zeros_like(at)
        late = ANGLES if self.bug == "late" else 0.0
        q, k = rotate(q, at), k if self.bug == "queries" else rotate(k, at + late)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        cache = (k, v)
        k, v = (y.repeat_interleave(HEADS // GROUPS, 1) for y in (k, v))
        scores = q @ k.mT / 2
        j = torch.arange(k.shape[2])
        ahead = j[None] > torch.arange(n)[:, None] + (k.shape[2] - n) + (1 if self.bug == "future" else 0)
        scores = scores.masked_fill(ahead, -1e9)
        if keep is not None and self.bug != "padding":
            scores = scores.masked_fill(~keep[:, None, None, :].bool(), -1e9)
        if self.bug == "batch":
            scores = scores - 0.5 * scores.mean(0, keepdim=True)
        out = scores.softmax(-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, n, WIDTH)), cache


class Block(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention(bug)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Any, at: Any, keep: Any, past: Any) -> Any:
        y, cache = self.attention(self.norm(x), at, keep, past)
        x = x + y
        return x + self.mlp(x), cache


class Decoder(nn.Module):
    """Three blocks; the mistake is in the second."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.rotary = Rotary()
        self.layers = nn.ModuleList([Block(""), Block(bug), Block("")])
        self.bug = bug

    def forward(
        self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None, past_key_values: Any = None
    ) -> Any:
        seen = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        at = position_ids if position_ids is not None else torch.arange(input_ids.shape[1])[None] + seen
        x = self.embedding(input_ids)
        angles = self.rotary(x, at)
        if self.bug == "random":
            x = nn.functional.dropout(x, 0.1)
        caches = []
        for number, layer in enumerate(self.layers):
            past = None if past_key_values is None else past_key_values[number]
            x, cache = layer(x, angles, attention_mask, past)
            caches.append(cache)
        return SimpleNamespace(logits=self.head(x), past_key_values=caches)
