"""Plain implementations: who asks whom, and which heads share."""

from __future__ import annotations

import math

import torch
from tests.variants.plain import attend, dot, lower, weigh
from torch import Tensor


def dot_product(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V)


def causal(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=lower(Q, K))


def multi_head(X: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> Tensor:
    return torch.einsum("hie,hen->in", attend(X @ W_Q, X @ W_K, X @ W_V), W_O)


def cross(X: Tensor, Y: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    return attend(X @ W_Q, Y @ W_K, Y @ W_V)


def multi_query(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return attend(Q, K[None], V[None], lower(Q, K))


def grouped_query(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    share = len(Q) // len(K)
    return attend(Q, K.repeat_interleave(share, 0), V.repeat_interleave(share, 0), lower(Q, K))


def additive(Q: Tensor, K: Tensor, V: Tensor, W: Tensor, U: Tensor, v: Tensor) -> Tensor:
    return weigh(torch.tanh((Q @ W)[:, None] + (K @ U)[None]) @ v) @ V


def multiplicative(Q: Tensor, K: Tensor, V: Tensor, W: Tensor) -> Tensor:
    return weigh(Q @ W @ K.T) @ V


def predictive_local(Q: Tensor, K: Tensor, V: Tensor, W: Tensor, v: Tensor, w: Tensor) -> Tensor:
    centre = len(K) * torch.sigmoid(torch.tanh(Q @ W) @ v)[:, None]
    away = torch.arange(len(K)) - centre
    weights = weigh(dot(Q, K), away.abs() <= w)
    return weights * torch.exp(-(away**2) / (2 * (w / 2) ** 2)) @ V


def pointer(Q: Tensor, K: Tensor, W: Tensor, U: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    scores = torch.tanh((Q @ W)[:, None] + (K @ U)[None]) @ v
    return torch.log_softmax(scores.masked_fill(seen, -torch.inf), -1)


def class_attention(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return attend(q[:, None], K, V)[:, 0]


def cross_covariance(Q: Tensor, K: Tensor, V: Tensor, temperature: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize
    return weigh(unit(Q, dim=-1) @ unit(K, dim=-1).transpose(1, 2) * temperature[:, None, None]) @ V


def simplicial(Q: Tensor, K: Tensor, L: Tensor, V: Tensor, W: Tensor) -> Tensor:
    scores = torch.einsum("hid,hjd,hkd->hijk", Q, K, L) / math.sqrt(Q.shape[-1])
    i, j, k = torch.meshgrid(*map(torch.arange, scores.shape[1:]), indexing="ij")
    weights = weigh(scores.flatten(2), ((j <= i) & (k <= i)).flatten(1)).view_as(scores)
    return torch.einsum("hijk,hje,hke->hie", weights, V, W)


def hopfield(start: Tensor, stored: Tensor, beta: Tensor) -> Tensor:
    state = start
    for _ in range(3):
        state = torch.softmax(beta * state @ stored.T, -1) @ stored
    return state


def slots(slots: Tensor, K: Tensor, V: Tensor) -> Tensor:
    shares = torch.softmax(dot(slots, K), 0)
    return shares / shares.sum(1, keepdim=True) @ V


def graph(X: Tensor, W: Tensor, a_query: Tensor, a_key: Tensor, edge: Tensor) -> Tensor:
    V = X @ W
    raw = torch.einsum("hie,he->hi", V, a_query)[..., None] + torch.einsum("hje,he->hj", V, a_key)[:, None]
    return weigh(torch.nn.functional.leaky_relu(raw, 0.2), edge | torch.eye(len(X), dtype=torch.bool)) @ V


def pair_bias(Q: Tensor, K: Tensor, V: Tensor, Z: Tensor, W_B: Tensor, gate: Tensor) -> Tensor:
    return torch.sigmoid(gate) * attend(Q, K, V, bias=torch.einsum("ijc,hc->hij", Z, W_B))


def induced_points(
    X: Tensor, P: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, U_Q: Tensor, U_K: Tensor, U_V: Tensor
) -> Tensor:
    heard = attend(P @ W_Q, X @ W_K, X @ W_V)
    return attend(X @ U_Q, heard @ U_K, heard @ U_V)


def perceiver(L: Tensor, K: Tensor, V: Tensor) -> Tensor:
    read = attend(L, K, V)
    return attend(read, read, read)
