"""Causal products of two sides, written over all earlier positions or as a recurrence: one kernel, the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.backends.kernels import numpy_chunks, torch_chunks  # noqa: E402

pytestmark = pytest.mark.sampled(4)

CHUNKS = "chunks of matrix products"
SIDES = "input Q[i, d], K[j, d], V[j, e]"
HEADS = "input Q[h, i, d], K[h, j, d], V[h, j, e]"
QUADRATIC = {
    "named weights": f"{SIDES}; let w[i, j] = sum[d](Q[i, d] * K[j, d]) where j <= i;"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "in place": f"{SIDES}; let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e] where j <= i);",
    "one sum": f"{SIDES}; let out[i, e] = sum[j, d](Q[i, d] * K[j, d] * V[j, e] where j <= i);",
    "another order": "input V[j, e], K[d, j], Q[d, i];"
    "let out[e, i] = sum[k](V[k, e] * sum[c](K[c, k] * Q[c, i]) / 4 where i >= k);",
    "not itself": f"{SIDES}; let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e] where j < i);",
    "from here on": f"{SIDES}; let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e] where j >= i);",
    "feature maps": f"{SIDES}; let f[i, d] = relu(Q[i, d]) + 1; let g[j, d] = exp(K[j, d]);"
    "let w[i, j] = sum[d](f[i, d] * g[j, d]) where j <= i; let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "by a function": "fn heard(q[i, d], k[j, d], v[j, e]) -> [i, e]"
    " { let w[i, j] = sum[d](q[i, d] * k[j, d]); sum[j](w[i, j] * v[j, e] where j <= i) }"
    f"{SIDES}; let out[i, e] = heard(Q, K, V)[i, e];",
    "normalised": f"{SIDES}; let w[i, j] = sum[d](exp(Q[i, d]) * exp(K[j, d])) where j <= i;"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]) / sum[j](w[i, j]);",
    "carries nothing": f"{SIDES}; let out[i] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, 0] where j <= i);",
    "carries two": f"{SIDES}, U[j, f];"
    "let out[i, e, f] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e] * U[j, f] where j <= i);",
    "retention": f"{HEADS}, a[h]; let out[h, i, e] ="
    " sum[j](sum[d](Q[h, i, d] * K[h, j, d]) * exp(a[h] * (i - j)) * V[h, j, e] where j <= i);",
    "retention, as a table": f"{SIDES}, gamma; let D[i, j] = if j <= i {{ gamma ** (i - j) }} else {{ 0 }};"
    "let w[i, j] = sum[d](Q[i, d] * K[j, d]) * D[i, j]; let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "retention, of a number": f"{SIDES};"
    "let out[i, e] = sum[j](0.9 ** (i - j) * sum[d](Q[i, d] * K[j, d]) * V[j, e] where j <= i);",
    "retention, backward": f"{SIDES}, gamma;"
    "let out[i, e] = sum[j](gamma ** (j - i) * sum[d](Q[i, d] * K[j, d]) * V[j, e] where j > i);",
    "retention, a step less": f"{SIDES}, a;"
    "let out[i, e] = sum[j](exp(a * (i - j - 1)) * sum[d](Q[i, d] * K[j, d]) * V[j, e] where j < i);",
    "gates": f"{HEADS}, c[h, i];"
    "let w[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * exp(c[h, i] - c[h, j]) where j <= i;"
    "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);",
    "gates that are scaled": f"{SIDES}, c[i], b; let out[i, e] ="
    " sum[j](V[j, e] * exp(b * (c[i] - c[j])) * exp(-V[j, 0]) * sum[d](Q[i, d] * K[j, d]) where j <= i);",
    "gates of prefixes": f"{SIDES}, a[i]; let c[i] = sum[k](a[k] where k <= i);"
    "let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * exp(c[i] - c[j]) * V[j, e] where j <= i);",
    "gates from the end": f"{SIDES}, c[j];"
    "let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * exp(c[j] - c[i]) * V[j, e] where j >= i);",
    "gates of features": f"{SIDES}, c[i, d];"
    "let w[i, j] = sum[d](Q[i, d] * K[j, d] * exp(c[i, d] - c[j, d])) where j <= i;"
    "let out[i, e] = sum[j](w[i, j] * V[j, e]);",
    "rates of features": f"{SIDES}, r[d];"
    "let out[i, e] = sum[j](sum[d](exp(r[d] * (i - j)) * Q[i, d] * K[j, d]) * V[j, e] where j <= i);",
}
STATE = "input Q[t, d], K[t, d], V[t, e]"
RECURRENT = {
    "two clauses": f"{STATE}, a[t]; let S[0, d, e] = K[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = a[t] * S[t - 1, d, e] + K[t, d] * V[t, e];"
    "let out[t, e] = sum[d](Q[t, d] * S[t, d, e]);",
    "one clause": f"{STATE}, a[t];"
    "let S[e, d, t] = (if t > 0 { S[e, d, t - 1] * a[t] } else { 0 }) + V[t, e] * K[t, d];"
    "let out[t, e] = sum[d](S[e, d, t] * Q[t, d]) * 2;",
    "only added": f"{STATE}; let kv[t, d, e] = K[t, d] * V[t, e]; let S[0, d, e] = kv[0, d, e];"
    "let S[t in 1..size(t), d, e] = S[t - 1, d, e] + kv[t, d, e]; let out[t, e] = sum[d](Q[t, d] * S[t, d, e]);",
    "from 0": f"{STATE}, a[t]; let S[0, d, e] = 0.0; let S[t in 1..size(t), d, e] ="
    " exp(a[t]) * S[t - 1, d, e] + K[t, d] * V[t, e]; let out[t, e] = sum[d](Q[t, d] * S[t, d, e]);",
    "a step more": f"{STATE}, a[t]; let S[0, d, e] = 0.0; let S[t in 1..=size(t), d, e] ="
    " sigmoid(a[t - 1]) * S[t - 1, d, e] + K[t - 1, d] * V[t - 1, e];"
    "let out[t, e] = sum[d](Q[t, d] * S[t + 1, d, e]);",
    "before it is written": f"{STATE}; let S[0, d in 0..size(d), e in 0..size(e)] = 0.0;"
    "let S[t in 1..=size(t), d, e] = S[t - 1, d, e] + K[t - 1, d] * V[t - 1, e];"
    "let out[t in 0..size(t), e] = sum[d](Q[t, d] * S[t, d, e]);",
    "gates of features": f"{STATE}, A[t, d]; let S[0, d, e] = K[0, d] * V[0, e]; let S[t in 1..size(t), d, e] ="
    " A[t, d] * S[t - 1, d, e] + K[t, d] * V[t, e]; let out[t, e] = sum[d](Q[t, d] * S[t, d, e]);",
    "normalised": f"{STATE}; let f[t, d] = exp(K[t, d]); let S[0, d, e] = f[0, d] * V[0, e];"
    "let S[t in 1..size(t), d, e] = S[t - 1, d, e] + f[t, d] * V[t, e]; let z[0, d] = f[0, d];"
    "let z[t in 1..size(t), d] = z[t - 1, d] + f[t, d];"
    "let out[t, e] = sum[d](exp(Q[t, d]) * S[t, d, e]) / sum[d](exp(Q[t, d]) * z[t, d]);",
}
# What is nearly one, and what the plan says of it.
OTHERS = {
    "a window": (
        f"{SIDES}; let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e] where j <= i && i - j < 3);",
        "its guard",
    ),
    "a nonlinear weight": (
        f"{SIDES}; let out[i, e] = sum[j](relu(sum[d](Q[i, d] * K[j, d])) * V[j, e] where j <= i);",
        "varies with query and key at once",
    ),
    "decays that differ": (
        f"{SIDES}, c[i], g[j];"
        "let out[i, e] = sum[j](sum[d](Q[i, d] * K[j, d]) * exp(c[i] - 2 * c[j]) * V[j, e] where j <= i);",
        "not what its keys decay by",
    ),
    "the state is wanted": (f"{RECURRENT['two clauses']} output out, S;", "all steps of the state are read"),
    "a first step of its own": (
        RECURRENT["two clauses"].replace("K[0, d] * V[0, e]", "Q[0, d] * V[0, e]"),
        "its first step",
    ),
    "decays point by point": (
        RECURRENT["two clauses"].replace("a[t]", "a[t, d, e]"),
        "a decay of its own",
    ),
}
SIZES = (0, 1, 3, 4, 5, 11)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 positions."""
    for module in (numpy_chunks, torch_chunks):
        monkeypatch.setattr(module, "CHUNK", 4)
        monkeypatch.setattr(module, "AT_ONCE", 4)
        monkeypatch.setattr(module, "SHORTEST", 2)


def arrays(program: ix.Program, count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    lengths = {"i": count, "j": count, "t": count, "d": 3, "e": 2, "f": 2, "h": 2}
    shapes = [[lengths[axis.coordinate.name] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) / 2 for shape in shapes]


def out_of(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", QUADRATIC | {f"recurrent {name}": body for name, body in RECURRENT.items()})
def test_values_and_gradients_are_those_of_the_relation(name: str) -> None:
    body = RECURRENT[name.removeprefix("recurrent ")] if name.startswith("recurrent ") else QUADRATIC[name]
    program = ix.compile(f"{body} output out;")
    for count in SIZES:
        if count == 0 and name.startswith("recurrent"):
            continue
        given = arrays(program, count)
        assert any(step.kernel == CHUNKS for step in program.plan(*given).steps)
        right = out_of(program(*(array.numpy() for array in given), backend="reference"))
        np.testing.assert_allclose(out_of(program(*(array.numpy() for array in given))), right, 1e-9, 1e-9)
        leaves = [array.clone().requires_grad_() for array in given]
        np.testing.assert_allclose(out_of(program(*leaves)).detach(), right, rtol=1e-9, atol=1e-9)
        flows = [
            torch.autograd.grad((out_of(program(*leaves, isolate=isolate)) ** 2).sum(), leaves, allow_unused=True)
            for isolate in (False, True)
        ]
        for mine, plain in zip(*flows, strict=True):
            if mine is not None and plain is not None:
                torch.testing.assert_close(mine, plain, rtol=1e-8, atol=1e-8)
            else:  # Nothing is asked of it: where there is one position, no step decays.
                assert all(part is None or bool((part.abs() < 1e-9).all()) for part in (mine, plain))


@pytest.mark.parametrize("name", OTHERS)
def test_the_plan_says_why_not(name: str) -> None:
    body, reason = OTHERS[name]
    program = ix.compile(body if "output" in body else f"{body} output out;")
    given = arrays(program, 11)
    steps = program.plan(*given).steps
    assert not any(step.kernel == CHUNKS for step in steps)
    assert any(refusal.way == CHUNKS and reason in refusal.reason for step in steps for refusal in step.refusals)
    right = out_of(program(*(array.numpy() for array in given), backend="reference"))
    np.testing.assert_allclose(out_of(program(*given)), right, rtol=1e-9, atol=1e-9)


def test_fewer_keys_than_queries_and_more() -> None:
    program = ix.compile(f"{QUADRATIC['named weights']} output out;")
    backward = ix.compile(f"{QUADRATIC['from here on']} output out;")
    for rows, keys in ((3, 9), (9, 3), (10, 0)):
        given = [torch.randn(size, 3, dtype=torch.float64) for size in (rows, keys, keys)]
        for one in (program, backward):
            right = out_of(one(*(array.numpy() for array in given), backend="reference"))
            np.testing.assert_allclose(one(*given), right, rtol=1e-9, atol=1e-9)


def test_decays_that_vanish_are_exact() -> None:
    """A gate of 0, gates below the least number, and gates of either sign: no division, no NaN."""
    program = ix.compile(f"{RECURRENT['two clauses']} output out;")
    given = arrays(program, 23)
    given[3][5], given[3][9], given[3][10:14] = 0.0, -0.7, 1e-200
    right = out_of(program(*(array.numpy() for array in given), backend="reference"))
    np.testing.assert_allclose(program(*given), right, rtol=1e-9, atol=1e-9)
    leaves = [array.clone().requires_grad_() for array in given]
    flows = [torch.autograd.grad((program(*leaves, isolate=way) ** 2).sum(), leaves) for way in (False, True)]
    for mine, plain in zip(*flows, strict=True):
        torch.testing.assert_close(mine, plain)
    narrow = [array.float() for array in given]
    np.testing.assert_allclose(program(*narrow), right, rtol=1e-4, atol=1e-5)


def test_levels_far_apart_do_not_overflow() -> None:
    program = ix.compile(f"{QUADRATIC['gates of features']} output out;")
    given = [array.float() for array in arrays(program, 37)]
    given[3] = -torch.rand(37, 3).mul(200).cumsum(0)
    right = out_of(program(*(array.numpy() for array in given), backend="reference"))
    leaves = [array.clone().requires_grad_() for array in given]
    found = program(*leaves)
    np.testing.assert_allclose(found.detach(), right, rtol=1e-4, atol=1e-4)
    assert all(bool(part.isfinite().all()) for part in torch.autograd.grad(found.sum(), leaves))


def test_derived_gradients_are_chunks_too() -> None:
    program = ix.compile(
        f"{SIDES}, a; let w[i, j] = sum[d](Q[i, d] * K[j, d]) * exp(a * (i - j)) where j <= i;"
        "let out[i, e] = sum[j](w[i, j] * V[j, e]); let loss = sum[i, e](out[i, e] ** 2); output loss;"
    )
    given = [array.requires_grad_() for array in arrays(program, 11)]
    derived = ix.grad(program, by=["Q", "K", "V"])
    for mine, plain in zip(derived(*given), torch.autograd.grad(program(*given), given[:3]), strict=True):
        torch.testing.assert_close(mine, plain)
    steps = derived.plan(*given).steps
    assert sum(step.kernel == CHUNKS for step in steps) >= 3, derived.plan(*given)
