"""Ranks: generated programs against a second evaluation, by counting; forward and backward, in every spelling."""

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
    "": lambda i, j, keep: np.ones(np.broadcast(i, j).shape, bool),
    "j <= i": lambda i, j, keep: j <= i,
    "abs(i - j) <= 1": lambda i, j, keep: abs(i - j) <= 1,
    "keep[i, j]": lambda i, j, keep: keep,
    "j < i && i < j": lambda i, j, keep: (j < i) & (i < j),
}
FORMS = {
    "in place": "let w[i, j] = softmax[j](s[i, j] where {test});",
    "behind": "let w[i, j] = softmax[j](s[i, j]) where {test};",
    "by name": "let w[i, j] = softmax[j](s[i, j] where r[i, j] < {k}{more});",
    "as a guard": "let top[i, j] = {test}; let w[i, j] = softmax[j](s[i, j] where top[i, j]);",
    "in a function": "fn largest(s[..r, j], k) -> [..r, j] {{ rank[j](s[..r, j]) < k }}\n"
    "let top[i, j] = largest(s, {k})[i, j]; let w[i, j] = softmax[j](s[i, j] where top[i, j]);",
}


def counted(x: Array, kept: Array) -> Array:
    """The ranks along the last axis, by counting."""
    odd, steps = np.isnan(x), np.arange(x.shape[-1])
    mine, other = x[..., :, None], x[..., None, :]
    first = (odd[..., :, None] & odd[..., None, :]) | (mine == other)
    before = (other > mine) | (odd[..., :, None] & ~odd[..., None, :]) | (first & (steps < steps[:, None]))
    return np.where(kept, (before & kept[..., None, :]).sum(-1), kept.sum(-1, keepdims=True))


@dataclass(frozen=True)
class Drawn:
    text: str
    arrays: dict[str, Array]
    wanted: list[Array]


def drawn(seed: int, odd: bool) -> Drawn:
    """A program that ranks scores and keeps the largest; its arrays, and its outputs by another way."""
    draw, noise = random.Random(seed), np.random.default_rng(seed)
    n, keys, k = (draw.choice((1, 2, 3, 5)) for _ in range(3))
    guard, form = draw.choice(sorted(GUARDS)), draw.choice(sorted(FORMS))
    guard = "" if form == "in a function" else guard
    scores = noise.integers(-2, 3, (n, keys)).astype(float) if draw.random() < 0.5 else noise.standard_normal((n, keys))
    if odd:
        scores[noise.random((n, keys)) < 0.3] = draw.choice((np.nan, np.inf, -np.inf))
    arrays = {"s": scores, "V": noise.standard_normal((keys, 2)), "keep": noise.random((n, keys)) < 0.6}
    where, more = (f" where {guard}", f", {guard}") if guard else ("", "")
    test = f"rank[j](s[i, j]{where}) < {k}" + (f" && {guard}" if guard else "")
    chosen = FORMS[form].format(test=test, k=k, more=more)
    text = f"""
input s[i, j], V[j, e], keep[i, j] : bool;
let r[i, j] = rank[j](s[i, j]{where});
let t[i, j] = rank[i, j](s[i, j]{where});
{chosen}
let o[i, e] = sum[j](w[i, j] * V[j, e]);
let used[i] = any[j](keep[i, j]);
output r, t, w, o, used;
"""
    i, j = np.ogrid[:n, :keys]
    kept = np.broadcast_to(GUARDS[guard](i, j, arrays["keep"]), (n, keys))
    places = counted(scores, kept)
    together = counted(scores.reshape(-1), kept.reshape(-1)).reshape(n, keys)
    top = kept & (places < k)
    with np.errstate(all="ignore"):
        raised = np.where(top, np.exp(scores - np.where(top, scores, -np.inf).max(1, keepdims=True)), 0)
        total = raised.sum(1, keepdims=True)
        weights = np.divide(raised, total, out=np.zeros_like(raised), where=total > 0)
    return Drawn(text, arrays, [places, together, weights, weights @ arrays["V"]])


@pytest.mark.parametrize("start", range(0, 24, 8))
def test_every_way_ranks_the_same(start: int) -> None:
    for seed in range(start, start + 8):
        case = drawn(seed, odd=False)
        program = ix.compile(case.text)
        tensors = {name: torch.tensor(array) for name, array in case.arrays.items()}
        ways = [program(**case.arrays, backend="reference"), program(**case.arrays)]
        ways += [program(**tensors), program(**tensors, isolate=True), program(**case.arrays, isolate=True)]
        for found in ways:
            for one, other in zip(found, case.wanted, strict=False):
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")


@pytest.mark.parametrize("backend", ["reference", "numpy", "torch", "jax"])
def test_infinities_and_nan_have_their_places(backend: str) -> None:
    if backend == "jax":
        pytest.importorskip("jax")
    for seed in range(24, 26 if backend == "jax" else 30):
        case = drawn(seed, odd=True)
        found = ix.compile(case.text)(**case.arrays, backend=backend, outputs=("r", "t"))
        for one, other in zip(found, case.wanted, strict=False):
            np.testing.assert_array_equal(np.asarray(one), other, err_msg=f"seed {seed}")


@pytest.mark.parametrize("start", range(30, 42, 6))
def test_gradients_flow_through_what_was_chosen(start: int) -> None:
    for seed in range(start, start + 6):
        case = drawn(seed, odd=False)
        program = ix.compile(case.text)
        seeded = np.random.default_rng(seed).standard_normal(case.wanted[3].shape)
        names = ("s", "V")
        wanted = ix.grad(program, of="o", by=names)(**case.arrays, d_o=seeded, backend="reference")
        derived = ix.grad(program, of="o", by=names)(**case.arrays, d_o=seeded)
        tensors = {n: torch.tensor(a, requires_grad=n in names) for n, a in case.arrays.items()}
        (program(**tensors, outputs="o") * torch.tensor(seeded)).sum().backward()
        for name, one, other in zip(names, wanted, derived, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}, {name}")
            found = tensors[name].grad
            assert found is not None
            np.testing.assert_allclose(found, one, rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}, {name}")


def test_whole_numbers_are_ranked_to_their_ends() -> None:
    program = ix.compile("input n[i] : i64; let r[i] = rank[i](n[i]); let g[i] = rank[i](n[i] where n[i] != 0);")
    array = np.array([0, -(2**63), 2**63 - 1, 0, 5, -(2**63)])
    kept = array != 0
    for backend in ("reference", "numpy", "torch"):
        one, other = program(array, backend=backend)
        np.testing.assert_array_equal(np.asarray(one), np.argsort(np.argsort(~array, kind="stable")))
        np.testing.assert_array_equal(np.asarray(other)[~kept], 4)
        np.testing.assert_array_equal(np.asarray(other)[kept], [2, 0, 1, 3])


def test_the_plan_sorts() -> None:
    program = ix.compile("input s[i, j]; let r[i, j] = rank[j](s[i, j] where j <= i);")
    assert "the ranks along `j` by a stable sort" in str(program.plan(torch.zeros(3, 4)))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("let r[i] = rank[j](s[i, j]);", "IX210"),
        ("let r[j] = rank[j, j](s[0, j]);", "IX211"),
        ("let r[i, j] = rank[j](s[i, j] > 0);", "IX351"),
        ("let t[i, j] = s[i, j] where j <= i; let r[i, j] = rank[j](t[i, j]);", "IX309"),
        ("let rank[i] = s[i, 0];", "IX203"),
        ("let r[j] = rank[j](s[0, j]) * 1.0; let y = sum[j](r[j]); let d = @y / @s;", "IX218"),
    ],
)
def test_what_has_no_order_is_refused(text: str, code: str) -> None:
    with pytest.raises(ix.Error, match=code):
        ix.compile(f"input s[i, j]; {text}")


def test_the_first_is_always_kept() -> None:
    quiet = "softmax[j](s[i, j] where rank[j](s[i, j]) < 2)"
    causal = "softmax[j](s[i, j] where j <= i, rank[j](s[i, j] where j <= i) < 2)"
    for weights in (quiet, causal):
        assert ix.compile(f"input s[i, j]; let w[i, j] = {weights};").diagnostics == ()
    loud = ("softmax[j](s[i, j] where rank[j](s[i, j]) > 2)", "softmax[j](s[i, j] where j < i, rank[j](s[i, j]) < 2)")
    for weights in loud:
        assert [d.code for d in ix.compile(f"input s[i, j]; let w[i, j] = {weights};").diagnostics] == ["IX415"]
