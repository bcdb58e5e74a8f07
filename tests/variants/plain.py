"""What the plain implementations share: scores, weights under a mask, and places, in PyTorch alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def dot(Q: Tensor, K: Tensor) -> Tensor:
    """Scaled products of every query with every key."""
    return Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])


def weigh(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Softmax over the last axis; a row in which nothing is allowed is 0."""
    if allowed is None:
        return torch.softmax(scores, -1)
    hidden = scores.masked_fill(~allowed, -torch.inf)
    top = hidden.detach().amax(-1, keepdim=True).clamp(min=-1e300)
    share = torch.where(allowed, torch.exp(torch.where(allowed, scores, top) - top), 0.0)
    return share / share.sum(-1, keepdim=True).clamp(min=1e-300)


def attend(Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None = None, bias: Tensor | float = 0.0) -> Tensor:
    return weigh(dot(Q, K) + bias, allowed) @ V


def places(Q: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """The place of each query, as a column, and of each key, as a row."""
    return torch.arange(Q.shape[-2])[:, None], torch.arange(K.shape[-2])[None, :]


def lower(Q: Tensor, K: Tensor, offset: int = 0) -> Tensor:
    i, j = places(Q, K)
    return j <= i + offset


def turn(x: Tensor, position: Tensor, base: float, halves: bool) -> Tensor:
    """Rotary positions by complex numbers, in neighbouring pairs or in halves."""
    width = x.shape[-1]
    k = torch.arange(width // 2, dtype=x.dtype)
    angle = position.to(x.dtype)[:, None] * base ** (-2 * k / width)
    pairs = torch.stack(x.chunk(2, -1), -1) if halves else x.unflatten(-1, (-1, 2))
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    return torch.cat(turned.unbind(-1), -1) if halves else turned.flatten(-2)


def rotate(x: Tensor, halves: bool = False, offset: int = 0, base: float = 10000.0) -> Tensor:
    """`turn` by the place in the row."""
    return turn(x, torch.arange(x.shape[-2]) + offset, base, halves)
