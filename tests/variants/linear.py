"""Plain implementations: attention without a softmax of pairs, most of them step by step."""

from __future__ import annotations

import math

import torch
from tests.variants.plain import attend, dot, lower, places
from torch import Tensor
from torch.nn.functional import elu


def linear(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    share = (elu(Q) + 1) @ (elu(K) + 1).transpose(1, 2) * lower(Q, K)
    return share @ V / share.sum(-1, keepdim=True)


def linear_recurrent(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return linear(Q, K, V)


def performer(Q: Tensor, K: Tensor, V: Tensor, omega: Tensor) -> Tensor:
    def feature(x: Tensor) -> Tensor:
        y = x / x.shape[-1] ** 0.25
        return torch.exp(y @ omega.T - (y**2).sum(-1, keepdim=True) / 2)

    share = feature(Q) @ feature(K).transpose(1, 2)
    return share / share.sum(-1, keepdim=True) @ V


def efficient(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return torch.softmax(Q, -1) @ torch.softmax(K, 1).transpose(1, 2) @ V


def cosformer(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    i, j = (math.pi / 2 * place.to(Q.dtype) / K.shape[1] for place in places(Q, K))
    fade = torch.cos(i) * torch.cos(j) + torch.sin(i) * torch.sin(j)
    share = torch.relu(Q) @ torch.relu(K).transpose(1, 2) * fade * lower(Q, K)
    return share @ V / share.sum(-1, keepdim=True).clamp(min=1e-6)


def taylor(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    def feature(x: Tensor) -> Tensor:
        y = x / x.shape[-1] ** 0.25
        square = (y[..., :, None] * y[..., None, :]).flatten(-2) / math.sqrt(2)
        return torch.cat([torch.ones_like(y[..., :1]), y, square], -1)

    share = feature(Q) @ feature(K).transpose(1, 2) * lower(Q, K)
    return share / share.sum(-1, keepdim=True) @ V


def retention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    decay = (1 - 2.0 ** (-5 - torch.arange(len(Q), dtype=Q.dtype)))[:, None, None]
    memory, rows = torch.zeros(len(Q), Q.shape[-1], V.shape[-1], dtype=Q.dtype), []
    for t in range(Q.shape[1]):
        memory = decay * memory
        if t < K.shape[1]:
            memory = memory + K[:, t, :, None] * V[:, t, None]
        rows.append(torch.einsum("hd,hde->he", Q[:, t], memory))
    return torch.stack(rows, 1) / math.sqrt(Q.shape[-1])


def gated_linear(Q: Tensor, K: Tensor, V: Tensor, gate: Tensor) -> Tensor:
    decay = torch.nn.functional.logsigmoid(gate).cumsum(1)
    between = torch.exp(decay[:, :, None] - decay[:, None])
    scores = torch.einsum("hid,hjd,hijd->hij", Q, K, between)
    return scores * lower(Q, K) @ V


def state_space_duality(C: Tensor, B: Tensor, X: Tensor, step: Tensor, a: Tensor) -> Tensor:
    delta = torch.nn.functional.softplus(step)
    keep = torch.exp(-torch.exp(a)[:, None] * delta)
    memory, rows = torch.zeros(len(X), C.shape[-1], X.shape[-1], dtype=X.dtype), []
    for t in range(len(C)):
        fresh = delta[:, t, None, None] * B[t][None, :, None] * X[:, t, None]
        memory = keep[:, t, None, None] * memory + fresh
        rows.append(torch.einsum("n,hnp->hp", C[t], memory))
    return torch.stack(rows, 1)


def gated_delta(Q: Tensor, K: Tensor, V: Tensor, beta: Tensor, gate: Tensor) -> Tensor:
    return _delta(Q, K, V, torch.sigmoid(beta), torch.sigmoid(gate))


def delta_rule(Q: Tensor, K: Tensor, V: Tensor, beta: Tensor) -> Tensor:
    return _delta(Q, K, V, torch.sigmoid(beta), torch.ones_like(beta))


def _delta(Q: Tensor, K: Tensor, V: Tensor, rate: Tensor, keep: Tensor) -> Tensor:
    """`S <- keep S (1 - rate k kᵀ) + rate v kᵀ`, the transpose of the memory, as it is published."""
    key = K / torch.sqrt((K**2).sum(-1, keepdim=True) + 1e-6)
    eye = torch.eye(K.shape[-1], dtype=K.dtype)
    S, rows = torch.zeros(len(Q), V.shape[-1], K.shape[-1], dtype=Q.dtype), []
    for t in range(Q.shape[1]):
        k, r = key[:, t], rate[:, t, None, None]
        S = keep[:, t, None, None] * S @ (eye - r * k[:, :, None] * k[:, None]) + r * V[:, t, :, None] * k[:, None]
        rows.append(torch.einsum("hed,hd->he", S, Q[:, t]))
    return torch.stack(rows, 1)


def test_time_training(Q: Tensor, K: Tensor, V: Tensor, beta: Tensor, start: Tensor) -> Tensor:
    rate, rows, w = torch.sigmoid(beta) / K.shape[-1], [], start
    for t in range(Q.shape[1]):
        loss = ((torch.tanh(torch.einsum("hd,hde->he", K[:, t], w)) - V[:, t]) ** 2).sum() / 2
        w = w - rate[:, t, None, None] * torch.autograd.grad(loss, w, create_graph=True)[0]
        rows.append(torch.tanh(torch.einsum("hd,hde->he", Q[:, t], w)))
    return torch.stack(rows, 1)


def rwkv(K: Tensor, V: Tensor, R: Tensor, fade: Tensor, bonus: Tensor) -> Tensor:
    above = below = torch.zeros_like(K[0])
    rows = []
    for k, v, r in zip(K, V, R, strict=True):
        here = torch.exp(bonus + k)
        rows.append(torch.sigmoid(r) * (above + here * v) / (below + here))
        above = torch.exp(-torch.exp(fade)) * above + torch.exp(k) * v
        below = torch.exp(-torch.exp(fade)) * below + torch.exp(k)
    return torch.stack(rows)


def attention_free(Q: Tensor, K: Tensor, V: Tensor, bias: Tensor) -> Tensor:
    share = torch.exp(bias) * lower(Q, K)
    return torch.sigmoid(Q) * (share @ (torch.exp(K) * V)) / (share @ torch.exp(K))


def linformer(Q: Tensor, K: Tensor, V: Tensor, E: Tensor, F: Tensor) -> Tensor:
    return attend(Q, E @ K, F @ V)


def nystrom(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    asking, answering = (x[: len(Q) // 4 * 4].unflatten(0, (4, -1)).mean(1) for x in (Q, K))
    middle = torch.softmax(dot(asking, answering), -1)
    eye = torch.eye(len(middle), dtype=Q.dtype)
    Z = middle.T / middle.sum(0).max()
    for _ in range(6):
        P = middle @ Z
        Z = Z @ (13 * eye - P @ (15 * eye - P @ (7 * eye - P))) / 4
    return torch.softmax(dot(Q, answering), -1) @ Z @ torch.softmax(dot(asking, K), -1) @ V


def lambda_layer(Q: Tensor, K: Tensor, V: Tensor, P: Tensor) -> Tensor:
    weights = torch.softmax(K, 0)[None] + P
    return torch.einsum("id,ijd,je->ie", Q, weights, V)
