"""Attention in float64, in blocks of queries, and how far a result is from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .variants import HEADS, Inputs, Setting, points

# How many scores one block of queries may have.
SCORES = 1 << 23
# Above this, the first head of keys stands for all.
LONG = 1024


@dataclass(frozen=True, slots=True)
class Gap:
    """The largest and the root-mean-square difference from the exact values."""

    largest: float
    rms: float


def heads_asked(setting: Setting) -> int:
    """How many heads are evaluated exactly: all, or in long rows those that ask the first head of keys."""
    return HEADS if setting.size <= LONG else HEADS // setting.variant.key_heads


def exact_output(setting: Setting, inputs: Inputs, heads: int) -> Tensor:
    """The output of the first heads."""
    q, k, v = _doubled(setting, inputs, heads)
    with torch.no_grad():
        blocks = [_block(setting, inputs, q, k, v, rows) for rows in _blocks(setting.size, heads)]
    return torch.cat(blocks, 2)


def exact_gradients(setting: Setting, inputs: Inputs, heads: int) -> tuple[Tensor, ...]:
    """The gradients to the first heads of `q`, `k` and `v`, against the given cotangent."""
    q, k, v = leaves = _doubled(setting, inputs, heads)
    for leaf in leaves:
        leaf.requires_grad_()
    cotangent = inputs.cotangent[:, :heads].double()
    total = [torch.zeros_like(leaf) for leaf in leaves]
    for rows in _blocks(setting.size, heads):
        block = _block(setting, inputs, q, k, v, rows)
        for sum_, found in zip(total, torch.autograd.grad(block, leaves, cotangent[:, :, rows]), strict=True):
            sum_ += found
    return tuple(total)


def gap(found: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> Gap:
    """Over all tensors together; of `found` only the heads that were evaluated exactly."""
    pairs = zip(found, exact, strict=False)
    apart = torch.cat([(f.detach()[:, : e.shape[1]].double() - e).abs().flatten() for f, e in pairs])
    return Gap(apart.max().item(), apart.square().mean().sqrt().item())


def _doubled(setting: Setting, inputs: Inputs, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    answering = heads * setting.variant.key_heads // HEADS
    tensors = inputs.q[:, :heads], inputs.k[:, :answering], inputs.v[:, :answering]
    q, k, v = (tensor.detach().double() for tensor in tensors)
    return q, k, v


def _blocks(size: int, heads: int) -> list[slice]:
    step = max(1, SCORES // (size * heads))
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def _block(setting: Setting, inputs: Inputs, q: Tensor, k: Tensor, v: Tensor, rows: slice) -> Tensor:
    """What some queries gather: scores, a change, a guard, softmax, values; nothing is clever here."""
    variant, n = setting.variant, setting.size
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    extras = {
        name: tensor.detach().double() if tensor.is_floating_point() else tensor
        for name, tensor in inputs.extras.items()
    }
    b, h, i, j = points(q.shape[1], n, setting.device, rows)
    scores: Tensor = q[:, :, rows] @ k.mT / q.shape[-1] ** 0.5
    if variant.change is not None:
        scores = variant.change(scores, extras, n, b, h, i, j)
    if variant.guard is not None:
        scores = scores.masked_fill(~variant.guard(extras, n, b, h, i, j), float("-inf"))
    return scores.softmax(-1) @ v
