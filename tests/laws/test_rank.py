"""Ranks: generated programs against a second evaluation, by counting; forward and backward, in every spelling."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

pytestmark = pytest.mark.sampled(2)

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
        for given in (case.arrays, tensors):
            gathered = np.asarray(program(**given, outputs="o"))
            np.testing.assert_allclose(gathered, case.wanted[3], rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}")
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


SELECTED = {
    "heads": """
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]);
let w[h, i, j] = softmax[j](s[h, i, j] where j <= i, rank[j](s[h, i, j] where j <= i) < 3);
let out[h, i, d] = sum[j](w[h, i, j] * V[h, j, d]);""",
    "in place": """
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]);
let out[h, i, d] = 2 * sum[j](softmax[j](s[h, i, j] where 3 > rank[j](s[h, i, j]), j != 1) * V[h, j, d]);""",
    "by name": """
let s[h, i, j] = floor(sum[d](Q[h, i, d] * K[h, j, d]));
let r[h, i, j] = rank[j](s[h, i, j]);
let out[h, i, d] = sum[j](V[h, j, d] * s[h, i, j] where r[h, i, j] <= 2);""",
    "scaled": """
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
let w[h, i, j] = softmax[j](s[h, i, j] where j <= i, rank[j](s[h, i, j] where j <= i) < 3);
let out[h, i, d] = sum[j](w[h, i, j] * V[h, j, d]);""",
    "scaled, and summed": """
let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * 0.25;
let out[h, i, d] = sum[j](V[h, j, d] * exp(s[h, i, j]) where rank[j](s[h, i, j]) < 3);""",
    "for all queries": """
let c[h, j] = sum[d](K[h, j, d] ** 2);
let out[h, i, d] = Q[h, i, d] * sum[j](softmax[j](c[h, j] where rank[j](c[h, j]) < 3) * V[h, j, d] where j != 2);""",
}


@pytest.mark.parametrize("form", SELECTED)
@pytest.mark.parametrize("keys", [1, 3, 6])
def test_what_was_selected_is_gathered(form: str, keys: int) -> None:
    program = ix.compile(f"input Q[h, i, d], K[h, j, d], V[h, j, d];{SELECTED[form]}")
    noise = np.random.default_rng(keys)
    shapes = {"Q": (2, 5, 4), "K": (2, keys, 4), "V": (2, keys, 4)}
    given = {name: noise.standard_normal(shape) for name, shape in shapes.items()}
    assert "the places of the 3 largest along `j`" in str(program.plan(**given, outputs="out"))
    wanted = program(**given, backend="reference", outputs="out")
    seeded = noise.standard_normal(wanted.shape)
    flowing = ix.grad(program, of="out", by=("V",))(**given, d_out=seeded, backend="reference")
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in given.items()}
    found = program(**tensors, outputs="out")
    (found * torch.tensor(seeded)).sum().backward()
    for one in (found.detach(), program(**given, outputs="out")):
        np.testing.assert_allclose(np.asarray(one), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(tensors["V"].grad, flowing, rtol=1e-9, atol=1e-12)


def test_a_scale_is_left_to_what_was_selected() -> None:
    text = f"input Q[h, i, d], K[h, j, d], V[h, j, d];{SELECTED['scaled']}"
    given = [torch.zeros(2, 3, 4)] * 3
    turned = text.replace("/ sqrt(size(d))", "* -0.5")
    scaled, backward = (ix.compile(one).plan(*given, outputs="out") for one in (text, turned))
    assert "s" in scaled.unbuilt  # Only the few that are read are divided.
    assert "s" not in backward.unbuilt


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_largest_few_are_those_of_lowest_rank(limit: int) -> None:
    program = ix.compile(
        f"""
input s[i, j], keep[i, j] : bool, V[j];
let a[i, j] = rank[j](s[i, j]) < {limit};
let b[i, j] = rank[i](s[i, j] where keep[i, j]) < {limit};
let o[i] = sum[j](V[j] where keep[i, j], rank[j](s[i, j] where keep[i, j]) < {limit});
output a, b, o;"""
    )
    for seed in range(6):
        noise = np.random.default_rng(seed)
        s, kind = noise.integers(-2, 3, (4, 6)) * 1.0, noise.random((4, 6))
        s = np.where(kind < 0.1, np.nan, np.where(kind < 0.2, np.inf, np.where(kind < 0.4, -np.inf, s)))
        given = {"s": s, "keep": noise.random((4, 6)) < 0.6, "V": noise.standard_normal(6)}
        wanted = program(**given, backend="reference")
        for backend in ("numpy", "torch"):
            for one, other in zip(program(**given, backend=backend), wanted, strict=True):
                np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=1e-12, atol=1e-12)
            found = program(**given, backend=backend, outputs="o")
            np.testing.assert_allclose(np.asarray(found), wanted[2], rtol=1e-12, atol=1e-12)


def test_weights_that_are_wanted_are_not_selected_twice() -> None:
    program = ix.compile(
        "input s[i, j], V[j, e]; let w[i, j] = softmax[j](s[i, j] where rank[j](s[i, j]) < 2);"
        "let o[i, e] = sum[j](w[i, j] * V[j, e]); output w, o;"
    )
    plan = str(program.plan(torch.zeros(3, 4), torch.zeros(4, 2)))
    assert "the 2 largest along `j`, and not all ranks" in plan
    assert "the places of" not in plan


def test_a_library_that_maps_over_calls_sorts() -> None:
    program = ix.compile("input s[j], V[j]; let o = sum[j](softmax[j](s[j] where rank[j](s[j]) < 2) * V[j]);")
    s, V = torch.randn(3, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    found = torch.func.vmap(lambda row: program(row, V))(s)
    torch.testing.assert_close(found, torch.stack([program(row, V) for row in s]))


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
