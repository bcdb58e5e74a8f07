"""Who hears whom, in the ways that matter to the kernels, and the same attention written out in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Hearing:
    """Bounds (interval, batch, head, query) and groups (batch, head, place) among `size` keys."""

    lower: Tensor
    upper: Tensor
    size: int
    query_group: Tensor | None = None
    key_group: Tensor | None = None

    def arguments(self, scale: float, device: str = "cpu") -> tuple[Any, ...]:
        """What a kernel takes after query, key and value."""
        groups = (None if group is None else group.to(device) for group in (self.query_group, self.key_group))
        return (self.lower.to(device), self.upper.to(device), scale, *groups)

    def allowed(self) -> Tensor:
        """The same as a Boolean (batch, head, query, key)."""
        keys = torch.arange(self.size)
        inside = ((keys >= self.lower[..., None]) & (keys < self.upper[..., None])).any(0)
        if self.query_group is None or self.key_group is None:
            return inside
        return inside & (self.query_group[..., None] == self.key_group[..., None, :])


def plain(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    return lower[None, None, None], upper[None, None, None]


def hearings(batch: int, heads: int, rows: int, size: int) -> dict[str, Hearing]:
    """Every kind: laws and the lack of them, one interval and several, groups in order and not."""
    draw = torch.Generator().manual_seed(rows * size)
    row, key = torch.arange(rows), torch.arange(size)
    none, causal = torch.zeros_like(row), plain(torch.zeros_like(row), row + 1)
    query_group = torch.randint(-3, 4, (batch, 1, rows), generator=draw)
    key_group = torch.randint(-3, 4, (batch, 1, size), generator=draw)
    length = max(size // 3, 1)
    several = torch.randint(-9, size + 9, (2, 3, batch, heads, rows), generator=draw)
    sorted_groups = query_group.sort(-1).values, key_group.sort(-1).values
    sink = torch.stack([row - 19, none])[:, None, None], torch.stack([row + 1, none + 4])[:, None, None]
    return {
        "full": Hearing(*plain(none, none + size), size),
        "causal": Hearing(*causal, size),
        "the last rows of a causal square": Hearing(*plain(none, row + 1 + size - rows), size),
        "behind": Hearing(*plain(row, none + size), size),
        "window": Hearing(*plain(row - 19, row + 1), size),
        "window on both sides": Hearing(*plain(row - 70, row + 25), size),
        "prefix": Hearing(*plain(none, torch.clamp(row + 1, min=size // 4)), size),
        "sink and window": Hearing(*sink, size),
        "three of any": Hearing(several[0], several[1][:, :, :1], size),
        "few": Hearing(*plain(none + 5, torch.where(row % 7 == 3, 9, 5)), size),
        "documents": Hearing(*causal, size, (row // length)[None, None], (key // length)[None, None]),
        "groups": Hearing(*causal, size, query_group, key_group),
        "groups in order": Hearing(*causal, size, *sorted_groups),
        "dilated": Hearing(*plain(row - 90, row + 1), size, (row % 3)[None, None], (key % 3)[None, None]),
        "padded": Hearing(*plain(none, none + size), size, none[None, None], (key >= size // 2).long()[None, None]),
    }


def written_out(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, scale: float, bias: Tensor | None = None
) -> Tensor:
    """Softmax attention with all its weights, 0 for a row that hears nothing."""
    scores = query @ key.mT * scale
    return weighed(scores if bias is None else scores + bias, allowed, value)


def weighed(scores: Tensor, allowed: Tensor, value: Tensor) -> Tensor:
    scores = scores.masked_fill(~allowed, -math.inf)
    peak = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - peak.masked_fill(peak == -math.inf, 0.0))
    total = weights.sum(-1, keepdim=True)
    return (weights / total.masked_fill(total == 0, 1.0)) @ value


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    """Normal numbers, the same every time and on every device."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype) for shape in shapes]


def asking(tensors: Sequence[Tensor], device: str = "cpu", dtype: torch.dtype | None = None) -> list[Tensor]:
    """The same numbers, elsewhere, wanting gradients."""
    return [tensor.detach().to(device=device, dtype=dtype or tensor.dtype).requires_grad_() for tensor in tensors]


def gradients(out: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Those of a sum that tells every entry apart."""
    (probe,) = drawn(tuple(out.shape), seed=7)
    return list(torch.autograd.grad(out, inputs, probe.to(out)))


def error(found: Tensor, wanted: Tensor) -> float:
    """The largest difference."""
    return float((found.detach().cpu().double() - wanted.detach().double()).abs().max()) if wanted.numel() else 0.0


SIZES = {
    "square": (1, 2, 450, 450, 8, 8),
    "wide values, two batches": (2, 3, 250, 130, 4, 6),
    "more keys": (2, 2, 60, 800, 6, 3),
    "one row": (1, 2, 1, 9, 4, 4),
}


def tensors(size: str) -> list[Tensor]:
    """Query, key and value of a named size."""
    batch, heads, rows, keys, width, carried = SIZES[size]
    return drawn((batch, heads, rows, width), (batch, heads, keys, width), (batch, heads, keys, carried))


def hearing(size: str, name: str) -> Hearing:
    """Who hears whom at a named size."""
    return hearings(*SIZES[size][:4])[name]


def spoiled(inputs: Sequence[Tensor], allowed: Tensor) -> list[Tensor]:
    """Keys and values as bad as can be where nobody hears them."""
    query, key, value = inputs
    bad = allowed.any(-2).logical_not()[..., None]
    return [query, key.masked_fill(bad, math.nan), value.masked_fill(bad, math.inf)]


# ---- A score of its own: soft-capped, with a bias that is learned ---------------------------------------------------

CAP, SCALE = 5.0, 0.4


def capped(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    return CAP * torch.tanh(query @ key.mT * (SCALE / CAP)) + bias


def capped_score(arrays: Sequence[Tensor], rows: tuple[int, int], keys: tuple[int, int]) -> Tensor:
    query, key, bias = (array.to(torch.promote_types(array.dtype, torch.float32)) for array in arrays[:3])
    scores = query[..., slice(*rows), :] @ key[..., slice(*keys), :].mT
    return scores.mul_(SCALE / CAP).tanh_().mul_(CAP).add_(bias[slice(*rows), slice(*keys)])


def capped_backward(
    arrays: Sequence[Tensor],
    rows: tuple[int, int],
    keys: tuple[int, int],
    gradient: Tensor,
    totals: Sequence[Tensor | None],
) -> None:
    query, key = (array.to(gradient.dtype) for array in arrays[:2])
    part, other = query[..., slice(*rows), :], key[..., slice(*keys), :]
    if totals[2] is not None:
        totals[2][slice(*rows), slice(*keys)] += gradient.sum((0, 1))
    inner = gradient * (1 - torch.tanh(part @ other.mT * (SCALE / CAP)) ** 2) * SCALE
    if totals[0] is not None:
        totals[0][..., slice(*rows), :] += inner @ other
    if totals[1] is not None:
        totals[1][..., slice(*keys), :] += inner.mT @ part
