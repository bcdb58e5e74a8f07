"""Plain implementations: who hears whom, as a mask that is built whole."""

from __future__ import annotations

import torch
from tests.variants.plain import attend, lower, places
from torch import Tensor


def sliding_window(Q: Tensor, K: Tensor, V: Tensor, w: Tensor) -> Tensor:
    return attend(Q, K, V, lower(Q, K) & ~lower(Q, K, -int(w)))


def dilated_window(Q: Tensor, K: Tensor, V: Tensor, w: Tensor) -> Tensor:
    i, j = places(Q, K)
    heard = [i + 2 * step == j for step in range(-int(w), int(w) + 1)]
    return attend(Q, K, V, torch.stack(heard).any(0))


def block_local(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    return attend(Q, K, V, (j <= i) & (j >= (i // 3 - 1) * 3))


def strided_sparse(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    back = i - j
    return attend(Q, K, V, (back >= 0) & ((back < 4) | (back % 4 == 0)))


def fixed_sparse(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    return attend(Q, K, V, (j <= i) & ((j // 4 == i // 4) | (j % 4 == 3)))


def longformer(Q: Tensor, K: Tensor, V: Tensor, w: Tensor, g: Tensor) -> Tensor:
    i, j = places(Q, K)
    return attend(Q, K, V, ((i - j).abs() <= w) | (i < g) | (j < g))


def bigbird(Q: Tensor, K: Tensor, V: Tensor, drawn: Tensor) -> Tensor:
    blocks = len(drawn)
    p, q = torch.arange(blocks)[:, None], torch.arange(blocks)
    together = drawn | (p == 0) | (q == 0) | ((p - q).abs() <= 1)
    wide = together.repeat_interleave(3, 0).repeat_interleave(3, 1)
    return attend(Q, K, V, wide[: Q.shape[-2], : K.shape[-2]])


def prefix_lm(Q: Tensor, K: Tensor, V: Tensor, p: Tensor) -> Tensor:
    allowed = lower(Q, K)
    allowed[:, : int(p)] = True
    return attend(Q, K, V, allowed)


def documents(Q: Tensor, K: Tensor, V: Tensor, document: Tensor) -> Tensor:
    parts = [(document == name).nonzero()[:, 0] for name in document.unique()]
    out = torch.zeros(*Q.shape[:2], V.shape[-1], dtype=V.dtype)
    for part in parts:
        q, k, v = Q[:, part], K[:, part], V[:, part]
        out = out.index_copy(1, part, attend(q, k, v, lower(q, k)))
    return out


def streaming(Q: Tensor, K: Tensor, V: Tensor, w: Tensor, s: Tensor) -> Tensor:
    allowed = lower(Q, K) & ~lower(Q, K, -int(w))
    allowed[:, : int(s)] |= lower(Q, K)[:, : int(s)]
    return attend(Q, K, V, allowed)


def dilated_segments(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    heads = torch.arange(len(Q))[:, None, None]
    same = (i // 6 == j // 6) & (j <= i)
    return attend(Q, K, V, same & (i % 2 == heads % 2) & (j % 2 == heads % 2))


def log_sparse(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    back = i - j
    return attend(Q, K, V, (back >= 0) & (back & (back - 1) == 0))


def hashed_buckets(Q: Tensor, V: Tensor, bucket: Tensor) -> Tensor:
    K = Q / torch.sqrt((Q**2).sum(-1, keepdim=True) + 1e-6)
    return attend(Q, K, V, lower(Q, K) & (bucket[:, :, None] == bucket[:, None, :]))


def tree(Q: Tensor, K: Tensor, V: Tensor, ancestor: Tensor) -> Tensor:
    kept = K.shape[-2] - Q.shape[-2]
    allowed = torch.cat([torch.ones(len(ancestor), kept, dtype=torch.bool), ancestor], 1)
    return attend(Q, K, V, allowed)
