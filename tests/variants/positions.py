"""Plain implementations: what tells a query how far away a key is."""

from __future__ import annotations

import math

import torch
from tests.variants.plain import attend, dot, lower, places, rotate, turn, weigh
from torch import Tensor
from torch.nn.functional import softplus


def alibi(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    slope = torch.tensor([2.0**-4, 2.0**-8, 2.0**-2], dtype=Q.dtype)[:, None, None]
    return attend(Q, K, V, lower(Q, K), -slope * (i - j).abs())


def t5_bias(Q: Tensor, K: Tensor, V: Tensor, bias: Tensor) -> Tensor:
    i, j = places(Q, K)
    back = (i - j).clamp(min=0)
    near = bias.shape[1] // 2
    far = near + (torch.log(back.clamp(min=1).double() / near) / math.log(128 / near) * (bias.shape[1] - near)).long()
    bucket = torch.where(back < near, back, far.clamp(max=bias.shape[1] - 1))
    return weigh(Q @ K.transpose(1, 2) + bias[:, bucket], lower(Q, K)) @ V


def shaw(Q: Tensor, K: Tensor, V: Tensor, K_R: Tensor, V_R: Tensor) -> Tensor:
    i, j = places(Q, K)
    c = len(K_R) // 2
    offset = (j - i).clamp(-c, c) + c
    keys, values = K[:, None] + K_R[offset], V[:, None] + V_R[offset]
    weights = weigh(torch.einsum("hid,hijd->hij", Q, keys) / math.sqrt(Q.shape[-1]))
    return torch.einsum("hij,hije->hie", weights, values)


def transformer_xl(Q: Tensor, K: Tensor, V: Tensor, R: Tensor, u: Tensor, v: Tensor) -> Tensor:
    i, j = places(Q, K)
    n = K.shape[-2] - Q.shape[-2]
    far = torch.einsum("hid,hijd->hij", Q + v[:, None], R[:, (i + n - j).clamp(min=0)])
    return attend(Q + u[:, None], K, V, lower(Q, K, n), far / math.sqrt(Q.shape[-1]))


def deberta(Q: Tensor, K: Tensor, V: Tensor, Q_R: Tensor, K_R: Tensor) -> Tensor:
    i, j = places(Q, K)
    c = K_R.shape[1] // 2

    def delta(far: Tensor) -> Tensor:
        return torch.where(far <= -c, 0, torch.where(far >= c, 2 * c - 1, far + c))

    scores = Q @ K.transpose(1, 2)
    scores = scores + torch.einsum("hid,hijd->hij", Q, K_R[:, delta(i - j)])
    scores = scores + torch.einsum("hjd,hijd->hij", K, Q_R[:, delta(j - i)])
    return weigh(scores / math.sqrt(3 * Q.shape[-1])) @ V


def untied_positions(Q: Tensor, K: Tensor, V: Tensor, P: Tensor, U_Q: Tensor, U_K: Tensor) -> Tensor:
    return weigh((dot(Q, K) + dot(P @ U_Q, P @ U_K)) / math.sqrt(2)) @ V


def rotary_pairs(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return attend(rotate(Q), rotate(K), V, lower(Q, K))


def rotary_halves(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return attend(rotate(Q, halves=True), rotate(K, halves=True), V, lower(Q, K))


def rotary_cache(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    n = K.shape[-2] - Q.shape[-2]
    return attend(rotate(Q, halves=True, offset=n), rotate(K, halves=True), V, lower(Q, K, n))


def partial_rotary(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    Q, K = (torch.cat([rotate(x[..., :4]), x[..., 4:]], -1) for x in (Q, K))
    return attend(Q, K, V, lower(Q, K))


def xpos(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    width = Q.shape[-1]
    rate = (torch.arange(0, width, 2, dtype=Q.dtype) / width + 0.4) / 1.4
    i, j = places(Q, K)
    fade = rate.repeat_interleave(2) ** ((i - j)[..., None] / 512)
    scores = torch.einsum("hid,hjd,ijd->hij", rotate(Q), rotate(K), fade) / math.sqrt(width)
    return weigh(scores, lower(Q, K)) @ V


def interpolated_rotary(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    position = torch.arange(Q.shape[-2], dtype=Q.dtype)
    Q, K = (turn(x, position, 10000.0, halves=True) for x in (Q, K))
    return attend(Q, K, V, lower(Q, K))


def rotary_image(Q: Tensor, K: Tensor, V: Tensor, place: Tensor) -> Tensor:
    def turned(x: Tensor) -> Tensor:
        return torch.cat([turn(x[:, axis], place[axis], 100.0, halves=False) for axis in range(2)], -1)

    return attend(turned(Q), turned(K), V)


def no_positions(X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    Q = X @ W_Q
    return attend(Q, X @ W_K, X @ W_V, lower(Q, Q))


def kerple(Q: Tensor, K: Tensor, V: Tensor, r_1: Tensor, r_2: Tensor) -> Tensor:
    i, j = places(Q, K)
    one, two = softplus(r_1)[:, None, None], softplus(r_2)[:, None, None]
    return attend(Q, K, V, lower(Q, K), -one * torch.log(1 + two * (i - j).abs()))


def sandwich(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = places(Q, K)
    k = torch.arange(1, 9, dtype=Q.dtype)
    waves = torch.cos((i - j)[..., None] / 10000 ** (k / 8)).sum(-1) - 8
    rate = 8 * torch.arange(1, len(Q) + 1, dtype=Q.dtype) / len(Q)
    return attend(Q, K, V, lower(Q, K), waves / rate[:, None, None])


def fire(Q: Tensor, K: Tensor, V: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, c: Tensor, limit: Tensor) -> Tensor:
    i, j = places(Q, K)
    part = torch.log(c * (i - j).clamp(min=0) + 1) / torch.log(c * torch.maximum(i.to(Q.dtype), limit) + 1)
    bias = torch.relu(part[..., None] * W_1 + b_1) @ W_2.T
    return attend(Q, K, V, lower(Q, K), bias.permute(2, 0, 1))


def contextual_positions(Q: Tensor, K: Tensor, V: Tensor, P: Tensor) -> Tensor:
    match = Q @ K.transpose(1, 2)
    gate = torch.sigmoid(match) * lower(Q, K)
    count = gate.flip(-1).cumsum(-1).flip(-1).clamp(max=len(P) - 1)
    asked = Q @ P.T
    below, above = (asked.gather(-1, place.long()) for place in (count.floor(), count.ceil()))
    between = count - count.floor()
    return attend(Q, K, V, lower(Q, K), between * above + (1 - between) * below)
