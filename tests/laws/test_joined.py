"""Normalisers and `argmax` over several coordinates: generated programs against a second evaluation, in NumPy."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

Array = np.ndarray[Any, Any]

GUARDS = {
    "": lambda i, y, x, keep: np.ones(np.broadcast(i, y, x).shape, bool),
    "y <= x": lambda i, y, x, keep: y <= x,
    "abs(i - y) <= 1, x <= i": lambda i, y, x, keep: (abs(i - y) <= 1) & (x <= i),
    "y > 1": lambda i, y, x, keep: y > 1,
    "keep[y, x]": lambda i, y, x, keep: keep[y, x],
    "y < x, x < y": lambda i, y, x, keep: (y < x) & (x < y),
}
SCORES = {
    "sum[d](Q[i, d] * K[y, x, d]) / sqrt(size(d))": lambda q, k, b: np.einsum("id,yxd->iyx", q, k) / q.shape[1] ** 0.5,
    "B[y, x] * Q[i, 0] - 1": lambda q, k, b: b * q[:, :1, None] - 1,
    "tanh(B[y, x] + Q[i, 1])": lambda q, k, b: np.tanh(b + q[:, 1, None, None]),
    "B[y, x]": lambda q, k, b: np.broadcast_to(b, (len(q), *b.shape)),
}


@dataclass(frozen=True)
class Drawn:
    """A program, its arrays, and its outputs by another way: log weights, weights, the gather, the place."""

    text: str
    arrays: dict[str, Array]
    wanted: list[Array]


def drawn(seed: int) -> Drawn:
    draw, noise = random.Random(seed), np.random.default_rng(seed)
    n, height, width = (draw.choice((1, 2, 3, 5)) for _ in range(3))
    guard, score = draw.choice(sorted(GUARDS)), draw.choice(sorted(SCORES))
    order = draw.choice(("y, x", "x, y"))
    inline = draw.random() < 0.4
    arrays = {
        "Q": noise.standard_normal((n, 2)),
        "K": noise.standard_normal((height, width, 2)),
        "B": noise.standard_normal((height, width)),
        "V": noise.standard_normal((height, width, 3)),
        "keep": noise.random((height, width)) < 0.5,
    }
    where = f" where {guard}" if guard else ""
    named = "" if inline else f"let s[i, y, x] = {score};"
    body = score if inline else "s[i, y, x]"
    text = f"""
input Q[i, d], K[y, x, d], B[y, x], V[y, x, e], keep[y, x] : bool;
{named}
let l[i, y, x] = log_softmax[{order}]({body}{where});
let w[i, y, x] = softmax[{order}]({body}{where});
let o[i, e] = sum[y, x](w[i, y, x] * V[y, x, e]);
let m[i] = argmax[{order}]({body});
let used = sum[y, x](if keep[y, x] {{ K[y, x, 0] + B[y, x] }} else {{ 0 }}) + sum[i](Q[i, 0]);
output l, w, o, m, used;
"""
    i, y, x = np.ogrid[:n, :height, :width]
    kept = np.broadcast_to(GUARDS[guard](i, y, x, arrays["keep"]), (n, height, width))
    scores = np.broadcast_to(SCORES[score](arrays["Q"], arrays["K"], arrays["B"]), kept.shape)
    raised = np.where(kept, np.exp(scores - scores.max((1, 2), keepdims=True)), 0)
    total = raised.sum((1, 2), keepdims=True)
    weights = np.divide(raised, total, out=np.zeros_like(raised), where=total > 0)
    with np.errstate(divide="ignore"):
        logs = np.where(kept, np.log(weights), -np.inf)
    flat = (scores if order == "y, x" else scores.transpose(0, 2, 1)).reshape(n, -1)
    gathered = np.einsum("iyx,yxe->ie", weights, arrays["V"])
    return Drawn(text, arrays, [logs, weights, gathered, flat.argmax(1)])


@pytest.mark.parametrize("start", range(0, 12, 4))
def test_every_way_is_what_it_says(start: int) -> None:
    for seed in range(start, start + 4):
        case = drawn(seed)
        program = ix.compile(case.text)
        tensors = {name: torch.tensor(array) for name, array in case.arrays.items()}
        ways = [program(**case.arrays, backend="reference"), program(**case.arrays)]
        ways += [program(**tensors), program(**tensors, isolate=True), program(**tensors, outputs="o")]
        for found in ways[:-1]:
            for one, other in zip(found[:4], case.wanted, strict=True):
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")
        np.testing.assert_allclose(ways[-1], case.wanted[2], rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", range(12, 18, 3))
def test_gradients_agree(start: int) -> None:
    for seed in range(start, start + 3):
        case = drawn(seed)
        program = ix.compile(case.text)
        seeded = np.random.default_rng(seed).standard_normal(case.wanted[2].shape)
        names = ("Q", "K", "B", "V")
        wanted = ix.grad(program, of="o", by=names)(**case.arrays, d_o=seeded, backend="reference")
        for isolate in (False, True):
            tensors = {n: torch.tensor(a, requires_grad=n in names) for n, a in case.arrays.items()}
            (program(**tensors, outputs="o", isolate=isolate) * torch.tensor(seeded)).sum().backward()
            for name, one in zip(names, wanted, strict=True):
                grad = tensors[name].grad
                found = np.zeros_like(one) if grad is None else np.asarray(grad)
                np.testing.assert_allclose(found, one, rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}, {name}")
        derived = ix.grad(program, of="o", by=names)(**case.arrays, d_o=seeded)
        for one, other in zip(derived, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}")
