"""Plain implementations: how scores become weights, and what is done with what was heard."""

from __future__ import annotations

import math

import torch
from tests.variants.plain import attend, dot, lower, places, rotate, weigh
from torch import Tensor
from torch.nn.functional import layer_norm, logsigmoid, normalize


def soft_cap(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return weigh(50 * torch.tanh(dot(Q, K) / 50), lower(Q, K)) @ V


def query_key_norm(Q: Tensor, K: Tensor, V: Tensor, gain_Q: Tensor, gain_K: Tensor) -> Tensor:
    return attend(layer_norm(Q, gain_Q.shape, gain_Q, eps=1e-6), layer_norm(K, gain_K.shape, gain_K, eps=1e-6), V)


def cosine(Q: Tensor, K: Tensor, V: Tensor, scale: Tensor) -> Tensor:
    return weigh(scale[:, None, None] * normalize(Q, dim=-1) @ normalize(K, dim=-1).transpose(1, 2)) @ V


def scalable_softmax(Q: Tensor, K: Tensor, V: Tensor, s: Tensor) -> Tensor:
    heard = torch.arange(1, Q.shape[-2] + 1, dtype=Q.dtype)[:, None]
    return weigh(s[:, None, None] * torch.log(heard) * dot(Q, K), lower(Q, K)) @ V


def distance(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    far = (Q**2).sum(-1)[..., None] + (K**2).sum(-1)[:, None] - 2 * Q @ K.transpose(1, 2)
    return weigh(-far / math.sqrt(Q.shape[-1])) @ V


def talking_heads(Q: Tensor, K: Tensor, V: Tensor, before: Tensor, after: Tensor) -> Tensor:
    scores = torch.einsum("hij,hg->gij", dot(Q, K), before)
    return torch.einsum("gij,gf->fij", weigh(scores, lower(Q, K)), after) @ V


def differential(Q_1: Tensor, K_1: Tensor, Q_2: Tensor, K_2: Tensor, V: Tensor, mix: Tensor, gain: Tensor) -> Tensor:
    allowed = lower(Q_1, K_1)
    heard = attend(Q_1, K_1, V, allowed) - mix * attend(Q_2, K_2, V, allowed)
    return 0.2 * torch.nn.functional.rms_norm(heard, gain.shape, gain, eps=1e-5)


def softmax_off_by_one(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    scores = torch.cat([dot(Q, K), torch.zeros(*Q.shape[:2], 1, dtype=Q.dtype)], -1)
    return torch.softmax(scores, -1)[..., :-1] @ V


def learned_sinks(Q: Tensor, K: Tensor, V: Tensor, sink: Tensor) -> Tensor:
    scores = dot(Q, K).masked_fill(~lower(Q, K), -torch.inf)
    scores = torch.cat([scores, sink[:, None, None].expand(*Q.shape[:2], 1)], -1)
    return torch.softmax(scores, -1)[..., :-1] @ V


def sigmoid(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.sigmoid(dot(Q, K) - math.log(K.shape[-2])) * lower(Q, K) @ V


def relu(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.relu(dot(Q, K)) / K.shape[-2] @ V


def softpick(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    scores = dot(Q, K).masked_fill(~lower(Q, K), -torch.inf)
    top = scores.amax(-1, keepdim=True).clamp(min=0)
    share = torch.where(lower(Q, K), torch.expm1(dot(Q, K)), 0.0)
    total = share.abs().sum(-1, keepdim=True) + 1e-8 * torch.exp(top)
    return torch.relu(share) / total @ V


def stick_breaking(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    beta = torch.sigmoid(dot(Q, K))
    rows = []
    for i in range(Q.shape[1]):
        left, row = torch.ones(len(Q), dtype=Q.dtype), torch.zeros(len(Q), V.shape[-1], dtype=Q.dtype)
        for j in reversed(range(min(i, K.shape[1]))):
            row = row + (left * beta[:, i, j])[:, None] * V[:, j]
            left = left * (1 - beta[:, i, j])
        rows.append(row)
    return torch.stack(rows, 1)


def forgetting(Q: Tensor, K: Tensor, V: Tensor, gate: Tensor) -> Tensor:
    i, j = places(Q, K)
    between = ((i[..., None] >= torch.arange(K.shape[1])) & (j[..., None] < torch.arange(K.shape[1]))).to(Q.dtype)
    bias = torch.einsum("ijk,hk->hij", between, logsigmoid(gate))
    return attend(Q, K, V, lower(Q, K), bias)


def selective(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    match = dot(Q, K)
    chosen = torch.relu(match[0]).tril(-1)
    chosen = torch.cat([torch.zeros_like(chosen[:, :1]), chosen[:, 1:]], 1)
    masked = chosen.cumsum(0) - chosen
    return weigh(match - masked, lower(Q, K)) @ V


def gated_output(X: Tensor, Q: Tensor, K: Tensor, V: Tensor, W_G: Tensor) -> Tensor:
    return torch.sigmoid(X @ W_G) * attend(Q, K, V, lower(Q, K))


def value_residual(Q: Tensor, K: Tensor, V: Tensor, V_first: Tensor, mix: Tensor) -> Tensor:
    return attend(Q, K, torch.lerp(V_first, V, mix[:, None, None]), lower(Q, K))


def multi_token(Q: Tensor, K: Tensor, V: Tensor, kernel: Tensor) -> Tensor:
    match = torch.where(lower(Q, K), dot(Q, K), 0.0)
    heads, back, wide = kernel.shape
    left = wide - 1 - wide // 2
    padded = torch.nn.functional.pad(match, (left, wide // 2, back - 1, 0))
    kernel = kernel.flip(1, 2)[:, None]
    scores = torch.nn.functional.conv2d(padded[None], kernel, groups=heads)[0]
    return weigh(scores, lower(Q, K)) @ V


def retrieved_memory(Q: Tensor, K: Tensor, V: Tensor, K_M: Tensor, V_M: Tensor, gate: Tensor) -> Tensor:
    near = attend(Q, K, V, lower(Q, K))
    far = attend(Q[:, :, None], K_M, V_M)[:, :, 0]
    return torch.lerp(near, far, torch.sigmoid(gate)[:, None, None])


def latent(Q: Tensor, Q_R: Tensor, C: Tensor, K_R: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    queries = torch.cat([Q, rotate(Q_R)], -1)
    keys = torch.cat([C @ W_K, rotate(K_R).expand(len(Q), -1, -1)], -1)
    return attend(queries, keys, C @ W_V, lower(Q, C))


def tensor_product(Q: Tensor, A_K: Tensor, B_K: Tensor, A_V: Tensor, B_V: Tensor) -> Tensor:
    K, V = (torch.einsum("jrh,jrd->hjd", a, b) / a.shape[1] for a, b in ((A_K, B_K), (A_V, B_V)))
    return attend(Q, K, V, lower(Q, K))
