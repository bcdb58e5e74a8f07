"""Who hears whom, in the ways that matter to the kernels, and the same attention written out in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.pairs import called_few
from torch import Tensor

import indexical as ix
from indexical.backends.kernels import torch_fold


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
        keys = torch.arange(self.size, device=self.lower.device)
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


def capped_rows(tensors: Sequence[Tensor], *_: Any) -> tuple[Tensor, ...]:
    """The rows of an attention with this score, written out, and something beside."""
    query, key, bias, value, lower, upper = tensors
    out = weighed(capped(query, key, bias), Hearing(lower[None], upper[None], key.shape[-2]).allowed(), value)
    return out, out.sum(-1)


def capped_back(
    arriving: Sequence[Tensor], found: Any, tensors: Sequence[Tensor], sizes: Any, scalars: Any, sums: Sequence[Any]
) -> None:
    query, key, bias, value, lower, upper = tensors
    allowed = Hearing(lower[None], upper[None], key.shape[-2]).allowed()
    arrived = arriving[0] + arriving[1][..., None]
    eye = torch.eye(value.shape[-2], dtype=value.dtype, device=value.device)
    weights, steep = weighed(capped(query, key, bias), allowed, eye), capped(query, key, bias) - bias
    to_weights = arrived @ value.mT
    to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdim=True))
    through = to_scores * (1 - (steep / CAP) ** 2) * SCALE
    given = through @ key, through.mT @ query, to_scores.sum((0, 1)), weights.mT @ arrived
    for part, more in zip(sums, given, strict=False):
        if part is not None:
            part += more


def capped_like(tensors: Sequence[Tensor], *_: Any) -> tuple[Tensor, ...]:
    query, _key, _bias, value, *_ = tensors
    return query.new_empty(*query.shape[:-1], value.shape[-1]), query.new_empty(query.shape[:-1])


def capped_alone(name: str) -> Any:
    """The same as a function that PyTorch differentiates: of query, key, bias, value and bounds."""
    attend = torch_fold.folded(name, capped_rows, capped_back, capped_like, 2)
    return lambda arrays, value, lower, upper: attend([*arrays, value, lower, upper], [], [])[0]


# Lines of the same as a relation, with or without a mask.
CAPPED = """
    input Q[b, h, i, d], K[b, h, j, d], B[i, j], V[b, h, j, e];
    input lo[x, y, i] : i64, hi[x, y, i] : i64, m[z, y, i, j] : bool;
    let w[b, h, i, j] = softmax[j](5 * tanh(0.08 * sum[d](Q[b, h, i, d] * K[b, h, j, d])) + B[i, j])
        where lo[b % size(x), h % size(y), i] <= j, j < hi[b % size(x), h % size(y), i]{mask};
    let out[b, h, i, e] = sum[j](w[b, h, i, j] * V[b, h, j, e]);
"""


def capped_by_tiles(arrays: Sequence[Tensor], value: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The same by tiles, of query, key, bias and perhaps a mask."""
    with called_few(0):
        program = ix.compile(CAPPED.format(mask=", m[b % size(z), h % size(y), i, j]" if len(arrays) > 3 else ""))
        mask = arrays[3] if len(arrays) > 3 else torch.ones_like(arrays[2], dtype=torch.bool)
        mask = mask.expand(1, 1, *mask.shape[-2:]) if mask.dim() < 3 else mask
        lower, upper = (x.expand(*x.shape[:-1], x.shape[-1]) for x in torch.broadcast_tensors(lower, upper))
        while lower.dim() < 3:
            lower, upper = lower[None], upper[None]
        heads = max(lower.shape[1], mask.shape[1])
        lower, upper = (x.expand(-1, heads, -1) for x in (lower, upper))
        given = dict(zip("QKBV", (*arrays[:3], value), strict=True))
        given |= {"lo": lower.contiguous(), "hi": upper.contiguous(), "m": mask.expand(-1, heads, -1, -1).contiguous()}
        assert "stream" in str(program.plan(**given))
        found: Tensor = program(**given)
        return found
