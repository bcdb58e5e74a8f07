"""Attention as the library calls it, and in other layouts: as programs, and written out by hand in PyTorch."""

from __future__ import annotations

import torch
from tests.transform.attentions import CAUSAL, USUAL, Arrays, Written, gather, places, scores, share
from torch import Tensor


def _call(name: str, more: str = "", inputs: str = "", module: str = "attention") -> str:
    return (
        f"use std::{module}::{{{name}}};\n"
        f"input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{inputs};\n"
        f"let out = {name}(Q, K, V{more});\n"
    )


def _alibi(a: Arrays) -> Tensor:
    slopes = torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64)[:, None, None]
    i, j = places()
    return gather(scores(a) - slopes * (i - j).abs(), a, CAUSAL)


def _sinks(a: Arrays) -> Tensor:
    sink = a["sink"][None, :, None, None].expand(2, 2, 5, 1)
    mask = torch.cat([CAUSAL, torch.ones(5, 1, dtype=torch.bool)], -1)
    return share(torch.cat([scores(a), sink], -1), mask)[..., :-1] @ a["V"]


def _rotated(x: Tensor) -> Tensor:
    """Pairs of neighbouring features, turned by the position."""
    angle = torch.arange(x.shape[-2], dtype=torch.float64)
    even, odd = x[..., 0], x[..., 1]
    turned = [even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()]
    return torch.stack(turned, -1)


def _heads(a: Arrays) -> Tensor:
    project = {name: torch.einsum("bim,hmd->bhid", a["X"], a[f"W_{name}"]) for name in "QKV"}
    return torch.einsum("bhie,hem->bim", gather(scores(project), project, CAUSAL), a["W_O"])


def _normed(a: Arrays) -> Tensor:
    centred = a["X"] - a["X"].mean(-1, keepdim=True)
    spread = (centred**2).mean(-1, keepdim=True)
    x = centred * torch.rsqrt(spread + 0.1) * a["gain"] + a["bias"]
    return a["X"] + torch.softmax(x @ x.transpose(-1, -2), -1) @ x


def _linear(a: Arrays) -> Tensor:
    return (scores(a) * 2**0.5 * CAUSAL) @ a["V"]


def _grouped(a: Arrays) -> Tensor:
    both = {"Q": a["Q"], "K": a["K"].expand(2, 2, 5, 2), "V": a["V"].expand(2, 2, 5, 3)}
    return gather(scores(both), both, CAUSAL)


def _state(a: Arrays) -> Tensor:
    state = a["start"]
    for step in range(a["x"].shape[0]):
        state = torch.tanh(a["x"][step] + a["U"] @ state)
    return state


LAYOUTS: dict[str, Written] = {
    "std: causal": Written(_call("causal_attention"), lambda a: gather(scores(a), a, CAUSAL), USUAL),
    "std: window": Written(
        _call("window_attention", ", 2"),
        lambda a: gather(scores(a), a, CAUSAL & (places()[0] - places()[1] < 2)),
        USUAL,
    ),
    "std: prefix": Written(
        _call("prefix_attention", ", 2"), lambda a: gather(scores(a), a, CAUSAL | (places()[1] < 2)), USUAL
    ),
    "std: ALiBi": Written(_call("alibi_attention"), _alibi, USUAL),
    "std: documents": Written(
        _call("document_attention", ", doc", ", doc[b, i] : i64"),
        lambda a: gather(scores(a), a, (a["doc"][:, :, None] == a["doc"][:, None, :])[:, None] & CAUSAL),
        USUAL,
        {"doc": torch.tensor([[0, 0, 1, 1, 1], [2, 2, 2, 3, 2]])},
    ),
    "std: capped": Written(
        "use std::attention::{capped_attention};\n"
        "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], cap;\n"
        "let allowed[i in 0..5, j in 0..5] = j <= i;\n"
        "let out = capped_attention(Q, K, V, cap, allowed);\n",
        lambda a: gather(a["cap"] * torch.tanh(scores(a) / a["cap"]), a, CAUSAL),
        {**USUAL, "cap": ""},
    ),
    "std: sinks": Written(
        "use std::attention::{sink_attention};\n"
        "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e], sink[h];\n"
        "let allowed[i in 0..5, j in 0..5] = j <= i;\n"
        "let out = sink_attention(Q, K, V, sink, allowed);\n",
        _sinks,
        {**USUAL, "sink": "h"},
    ),
    "std: online": Written(_call("online_attention", module="recurrence"), lambda a: gather(scores(a), a), USUAL),
    "std: linear": Written(
        "use std::recurrence::{linear_attention};\n"
        "input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e];\n"
        "let out = linear_attention(Q, K, V);\n",
        _linear,
        {"Q": "bhid", "K": "bhid", "V": "bhie"},
    ),
    "std: rotary": Written(
        "use std::positions::{rotary_pairs};\nuse std::attention::{causal_attention};\n"
        "input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e];\n"
        "let out = causal_attention(rotary_pairs(Q, 100.0), rotary_pairs(K, 100.0), V);\n",
        lambda a: gather(scores({"Q": _rotated(a["Q"]), "K": _rotated(a["K"])}), a, CAUSAL),
        {"Q": "bhid", "K": "bhid", "V": "bhie"},
    ),
    "std: grouped": Written(
        "use std::attention::{causal_grouped_query_attention};\n"
        "input Q[b, h, i, d], K[b, g, j, d], V[b, g, j, e];\n"
        "let out = causal_grouped_query_attention(Q, K, V);\n",
        _grouped,
        {"Q": "bhid", "K": "bgjd", "V": "bgje"},
    ),
    "std: heads": Written(
        "use std::layers::{causal_multi_head_attention};\n"
        "input X[b, i, m], W_Q[h, m, d], W_K[h, m, d], W_V[h, m, e], W_O[h, e, m];\n"
        "let out = causal_multi_head_attention(X, W_Q, W_K, W_V, W_O);\n",
        _heads,
        {"X": "bim", "W_Q": "hmd", "W_K": "hmd", "W_V": "hme", "W_O": "hem"},
    ),
    "normed, with a residual": Written(
        "use std::norms::{layer_norm};\n"
        "input X[b, i, m], gain[m], bias[m];\n"
        "let N = layer_norm(X, gain, bias, 0.1);\n"
        "let weights[b, i, j] = softmax[j](sum[m](N[b, i, m] * N[b, j, m]));\n"
        "let out[b, i, m] = X[b, i, m] + sum[j](weights[b, i, j] * N[b, j, m]);\n",
        _normed,
        {"X": "bim", "gain": "m", "bias": "m"},
    ),
    "packed heads": Written(
        "input Q[b, i, m], K[b, i, m], V[b, i, m];\n"
        "let weights[b, h in 0..2, i, j] =\n"
        "    softmax[j](sum[d in 0..2](Q[b, i, h * 2 + d] * K[b, j, h * 2 + d])) where j <= i;\n"
        "let out[b, i, m] = sum[j](weights[b, m / 2, i, j] * V[b, j, m]);\n",
        lambda a: (
            (
                share(torch.einsum("bihd,bjhd->bhij", a["Q"].reshape(2, 5, 2, 2), a["K"].reshape(2, 5, 2, 2)), CAUSAL)
                @ a["V"].reshape(2, 5, 2, 2).transpose(1, 2)
            )
            .transpose(1, 2)
            .reshape(2, 5, 4)
        ),
        {"Q": "bim", "K": "bim", "V": "bim"},
    ),
    "gathered keys": Written(
        "input Q[i, d], K[j, d], V[j, e], p[j] : i64;\n"
        "let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[p[j], d])) where j <= i;\n"
        "let out[i, e] = sum[j](weights[i, j] * V[p[j], e]);\n",
        lambda a: share(a["Q"] @ a["K"][a["p"]].T, CAUSAL) @ a["V"][a["p"]],
        {"Q": "id", "K": "jd", "V": "je"},
        {"p": torch.tensor([4, 0, 0, 2, 4])},
    ),
    "hand-made": Written(
        "input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];\n"
        "let scores[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));\n"
        "let top[b, h, i] = max[j](scores[b, h, i, j] where j <= i);\n"
        "let shares[b, h, i, j] = exp(scores[b, h, i, j] - top[b, h, i]) where j <= i;\n"
        "let out[b, h, i, e] = sum[j](shares[b, h, i, j] * V[b, h, j, e]) / sum[j](shares[b, h, i, j]);\n",
        lambda a: gather(scores(a), a, CAUSAL),
        USUAL,
    ),
    "one query": Written(
        "input q[d], K[j, d], V[j, e];\n"
        "let weights[j] = softmax[j](sum[d](q[d] * K[j, d]));\n"
        "let out[e] = sum[j](weights[j] * V[j, e]);\n",
        lambda a: torch.softmax(a["K"] @ a["q"], -1) @ a["V"],
        {"q": "d", "K": "jd", "V": "je"},
    ),
    "a recurrence": Written(
        "input x[i, d], U[d, e], start[d];\n"
        "let state[0, d] = start[d];\n"
        "let state[i in 1..=size(i), d] = tanh(x[i - 1, d] + sum[e](U[d, e] * state[i - 1, e]));\n"
        "let out[d] = state[size(i), d];\n",
        _state,
        {"x": "id", "U": "dd", "start": "d"},
    ),
}
