"""Plain implementations: images, compressed and cached keys."""

from __future__ import annotations

import torch
from tests.variants.plain import attend, lower
from torch import Tensor


def axial(Q: Tensor, K: Tensor, V: Tensor, Q_c: Tensor, K_c: Tensor) -> Tensor:
    heard = attend(Q, K, V)
    Q_c, K_c, heard = (x.transpose(1, 2) for x in (Q_c, K_c, heard))
    return attend(Q_c, K_c, heard).transpose(1, 2)


def pixels(y: int, x: int) -> tuple[Tensor, Tensor]:
    """The row and the column of each pixel of an image that is laid out as one sequence."""
    rows, columns = torch.meshgrid(torch.arange(y), torch.arange(x), indexing="ij")
    return rows.flatten(), columns.flatten()


def swin(Q: Tensor, K: Tensor, V: Tensor, bias: Tensor) -> Tensor:
    y, x = pixels(*Q.shape[1:3])
    same = ((y + 1) // 3 * 100 + (x + 1) // 3)[:, None] == (y + 1) // 3 * 100 + (x + 1) // 3
    down, right = y[:, None] - y + 2, x[:, None] - x + 2
    near = bias[:, down.clamp(0, 4), right.clamp(0, 4)]
    out = attend(Q.flatten(1, 2), K.flatten(1, 2), V.flatten(1, 2), same, near)
    return out.unflatten(1, Q.shape[1:3])


def neighbourhood(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    rows = []
    height, width = Q.shape[1:3]
    for y in range(height):
        for x in range(width):
            top, left = min(max(y - 1, 0), height - 3), min(max(x - 1, 0), width - 3)
            k, v = (part[:, top : top + 3, left : left + 3].flatten(1, 2) for part in (K, V))
            rows.append(attend(Q[:, y, x, None], k, v))
    return torch.cat(rows, 1).unflatten(1, (height, width))


def reduced_keys(Q: Tensor, X: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    squares = X[: len(X) // 2 * 2, : X.shape[1] // 2 * 2].unfold(0, 2, 2).unfold(1, 2, 2)
    K, V = (torch.einsum("vucpq,hpqcd->hvud", squares, W).flatten(1, 2) for W in (W_K, W_V))
    return attend(Q, K, V)


def memory_compressed(Q: Tensor, K: Tensor, V: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    K, V = (
        torch.nn.functional.conv1d(x.transpose(1, 2), W.permute(2, 1, 0), stride=3).transpose(1, 2)
        for x, W in ((K, W_K), (V, W_V))
    )
    return attend(Q, K, V)


def compressed_blocks(Q: Tensor, K: Tensor, V: Tensor, P_K: Tensor, P_V: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    w = len(W_K)
    K, V = (
        ((x[:, : x.shape[1] // w * w].unflatten(1, (-1, w)) + P) * W[:, None]).sum(2)
        for x, P, W in ((K, P_K, W_K), (V, P_V, W_V))
    )
    last = torch.arange(K.shape[1]) * w + w - 1
    return attend(Q, K, V, last <= torch.arange(Q.shape[1])[:, None])


def paged_decode(Q: Tensor, K: Tensor, V: Tensor, table: Tensor, length: Tensor) -> Tensor:
    rows = []
    for q, pages, n in zip(Q, table, length, strict=True):
        k, v = (pool[pages].flatten(0, 1)[: int(n)].transpose(0, 1) for pool in (K, V))
        rows.append(attend(q[:, None], k, v)[:, 0])
    return torch.stack(rows)


def quantised_cache(
    Q: Tensor, K_8: Tensor, V_8: Tensor, K_scale: Tensor, K_zero: Tensor, V_scale: Tensor, V_zero: Tensor
) -> Tensor:
    K = K_8.to(Q.dtype) * K_scale[:, None] + K_zero[:, None]
    V = V_8.to(Q.dtype) * V_scale[..., None] + V_zero[..., None]
    return attend(Q, K, V, lower(Q, K, K.shape[1] - Q.shape[1]))


def persistent_memory(Q: Tensor, K: Tensor, V: Tensor, K_P: Tensor, V_P: Tensor) -> Tensor:
    K = torch.cat([K_P, K], 1)
    return attend(Q, K, torch.cat([V_P, V], 1), lower(Q, K, K_P.shape[1]))
