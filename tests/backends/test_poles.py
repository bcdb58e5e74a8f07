"""Functions that are not finite where a guard removes the point: no gradient hears of it, whatever they multiply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

DOT = "sum[d](Q[h, i, d] * K[h, j, d])"
GATHER = "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);"
SUMS = {
    "a quotient": "let out[i] = sum[j](s / (i - j + 1) where j <= i);",
    "in a definition": "let t[i, j] = s / (i - j + 1) where j <= i; let out[i] = sum[j](t[i, j]);",
    "in one without a guard": "let t[i, j] = s / (i - j); let out[i] = sum[j](t[i, j] where j < i);",
    "a logarithm": "let out[i] = sum[j](s * log(i - j) * x[j] where j < i);",
    "a root": "let out[i] = sum[j](x[j] * sqrt(i - j) where j < i);",
    "a power": "let out[i] = sum[j](s * (i - j) ** 0.5 where j < i);",
    "a learned power": "let out[i] = sum[j]((i - j) ** s where j < i);",
    "an overflow": "let out[i] = sum[j](s * exp(400 * (j - i)) where j < i);",
    "a product": "let out[i] = prod[j](s / (i - j) where j < i);",
    "a largest": "let out[i] = max[j](s / (i - j) where j < i);",
    "a branch": "let out[i] = sum[j](if j < i { s / (i - j) } else { 0 });",
    "of a sum": "let out[i] = sum[j](s * (x[j] + log(i - j)) where j < i);",
    "a dividend": "let out[i] = sum[j](log(i - j) / (s * s + x[j] * x[j]) where j < i);",
    "a key that nobody reads": "let out[i] = sum[j](sqrt(j - 1) * x[j] where 0 < j, j < i);",
    "a root of what is learned": "let out[i] = sum[j](sqrt(x[j] * x[j] * (j - 0.5)) where 0 < j, j < i);",
    "by a name": "let far[i, j] = log(i - j); let out[i] = sum[j](s * far[i, j] * x[j] where j < i);",
    "a number given": "let out[i] = sum[j](x[i] / n[i] where j < n[i]);",
}
ATTENTIONS = {
    "a bias": f"let w[h, i, j] = softmax[j]({DOT} + slope[h] / (i - j + 1)) where j <= i; {GATHER}",
    "a bias by a name": f"""let bias[h, i, j] = slope[h] * log(i - j + 1);
        let s[h, i, j] = {DOT} + bias[h, i, j]; let w[h, i, j] = softmax[j](s[h, i, j]) where j <= i; {GATHER}""",
    "a distance by a name": f"""let far[i, j] = log(i - j + 1);
        let w[h, i, j] = softmax[j]({DOT} + slope[h] * far[i, j]) where j <= i; {GATHER}""",
    "a factor": f"let w[h, i, j] = softmax[j]({DOT} / (i - j + 1) * slope[h]) where j <= i; {GATHER}",
    "weights, too": f"""let s[h, i, j] = {DOT} / (i - j + 1) * slope[h];
        let w[h, i, j] = softmax[j](s[h, i, j]) where j <= i; {GATHER} output out, w;""",
    "a sigmoid": f"""let s[h, i, j] = {DOT} / (i - j + 1) * slope[h];
        let w[h, i, j] = sigmoid(s[h, i, j]) where j <= i; {GATHER}""",
    "no softmax": f"""let w[h, i, j] = {DOT} / sqrt(i - j) * slope[h];
        let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e] where j < i);""",
    "by hand": f"""let s[h, i, j] = {DOT} + slope[h] / (i - j + 1); let w[h, i, j] = exp(s[h, i, j]) where j <= i;
        let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]) / sum[j](w[h, i, j]);""",
    "at a key": f"let w[h, i, j] = softmax[j]({DOT} / tanh(j)) where 0 < j, j <= i; {GATHER}",
    "at a query": f"let w[h, i, j] = softmax[j]({DOT} * slope[h] / log(i)) where 0 < j, j < i; {GATHER}",
    "in a branch": f"""let w[h, i, j] = softmax[j](
        if j < i {{ {DOT} * sqrt(i - j) }} else {{ slope[h] * {DOT} }}) where j <= i; {GATHER}""",
    "inside a function": f"let w[h, i, j] = softmax[j]({DOT} + tanh(slope[h] + log(i - j + 1))) where j <= i; {GATHER}",
    "a value": f"""let w[h, i, j] = softmax[j]({DOT} + slope[h]) where j <= i;
        let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e] / (i - j + 1));""",
}


def check(program: ix.Program, arrays: list[torch.Tensor], numbers: list[torch.Tensor]) -> None:
    """Gradients by PyTorch, with and without `isolate`, are slopes of what is computed, and all are finite."""
    generator = torch.Generator().manual_seed(1)
    ways = [torch.randn(array.shape, dtype=torch.float64, generator=generator) for array in arrays]

    def total(values: list[torch.Tensor], isolate: bool = False) -> torch.Tensor:
        found = program(*values, *numbers, isolate=isolate)
        several = found if isinstance(found, tuple) else (found,)
        return sum((one[one.isfinite()] ** 2).sum() for one in several)  # type: ignore[return-value]

    step = 1e-6
    ahead, back = ([a + sign * step * way for a, way in zip(arrays, ways, strict=True)] for sign in (1, -1))
    slope = (total(ahead) - total(back)) / (2 * step)
    for isolate in (False, True):
        leaves = [array.clone().requires_grad_() for array in arrays]
        flows = torch.autograd.grad(total(leaves, isolate), leaves, allow_unused=True)
        found = sum((flow * way).sum() for flow, way in zip(flows, ways, strict=True) if flow is not None)
        torch.testing.assert_close(found, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SUMS)
def test_a_sum(name: str) -> None:
    program = ix.compile(f"space place(i, j); input x[i], s, n[i] : i64, y[j]; {SUMS[name]} output out;")
    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    check(program, [x, torch.tensor(0.7, dtype=torch.float64)], [torch.tensor([0, 2, 6, 0, 1, 3]), x])


@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention(name: str) -> None:
    program = ix.compile(f"input Q[h, i, d], K[h, j, d], V[h, j, e], slope[h]; {ATTENTIONS[name]}")
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 20, 4), (2, 20, 4), (2, 20, 5), (2,))
    check(program, [torch.randn(s, dtype=torch.float64, generator=generator) / 2 for s in shapes], [])


CAUSAL, LATER = "softmax[j](s[i, j]) where j <= i", "softmax[j](s[i, j]) where j > i"
FACTORS = {
    "of values": (CAUSAL, "V[j, e] * log(y[i]) where y[i] > 0, j <= i"),
    "of values, over no keys": (LATER, "V[j, e] * log(y[i]) where j > i"),
    "of values without a guard": (LATER, "V[j, e] * log(y[i])"),
    "of weights": ("sigmoid(s[i, j]) * log(y[i]) where y[i] > 0, j <= i", "V[j, e]"),
    "of weights, over no keys": ("sigmoid(s[i, j]) * log(y[i]) where j > i", "V[j, e]"),
    "of weights, out of bounds": ("sigmoid(s[i, j]) * y[i + 1] where i + 1 < size(i), j <= i", "V[j, e]"),
    "of values of weights": ("sigmoid(s[i, j]) where j <= i", "V[j, e] * log(y[i]) where y[i] > 0"),
    "of a softmax": (f"log(y[i]) * {LATER}", "V[j, e]"),
    "of a mask": ("softmax[j](s[i, j]) * log(y[i]) where m[i, j]", "V[j, e]"),
    "a divisor": ("sigmoid(s[i, j]) / y[i] where y[i] != 0, j <= i", "V[j, e]"),
    "picked": (
        "relu(exp(s[i, j]) - 1) / (1 + sum[k](abs(exp(s[i, k]) - 1) where y[i] > 0, k <= i)) * log(y[i])"
        " where y[i] > 0, j <= i",
        "V[j, e]",
    ),
    "a sink": (
        "exp(s[i, j]) / (exp(log(y[i])) + sum[k](exp(s[i, k]) where k <= i, y[i] > 0)) where j <= i, y[i] > 0",
        "V[j, e]",
    ),
    "a sink out of bounds": (
        "exp(s[i, j]) / (exp(-y[i + 1]) + sum[k](exp(s[i, k]) where k <= i, i + 1 < size(i)))"
        " where j <= i, i + 1 < size(i)",
        "V[j, e]",
    ),
}


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_of_the_query_alone(name: str, backend: str) -> None:
    """It stands outside of the sum over keys, and still has to have a value only where there is one."""
    weights, summed = FACTORS[name]
    text = f"""input Q[i, d], K[j, d], V[j, e], y[i], m[i, j] : bool;
        let s[i, j] = sum[d](Q[i, d] * K[j, d]); let w[i, j] = {weights};
        let out[i, e] = sum[j](w[i, j] * {summed});"""
    program, rng = ix.compile(text), np.random.default_rng(5)
    Q, K, V = (rng.normal(size=(7, n)) for n in (3, 3, 2))
    y = np.array([1.5, -1, 0.5, 0 if "y[i] " in text else 2, 3, 0.25, -2])
    m = np.diag([True] * 7)
    m[1] = m[6] = False
    Q[0] = K[0] = 1  # What is picked is above 1.
    given: tuple[Any, ...] = (Q, K, V, y, m)
    wanted = program(*given, backend="reference")
    for isolate in (False, True):
        np.testing.assert_allclose(program(*given, backend=backend, isolate=isolate), wanted, atol=1e-12)
    here = {"numpy": np.asarray, "torch": torch.tensor, "jax": np.asarray}[backend]
    scope: dict[str, Any] = {}
    exec(program.source(*given, backend=backend), scope)
    found = scope["program"](*(here(one) for one in given))
    np.testing.assert_allclose(found, wanted, atol=1e-12 if backend != "jax" else 1e-5)


def test_a_derivative_of_a_definition_without_a_guard() -> None:
    program = ix.compile(f"input Q[h, i, d], K[h, j, d], V[h, j, e], slope[h]; {ATTENTIONS['a distance by a name']}")
    check_derivative(program, [torch.randn(s, dtype=torch.float64) for s in ((2, 7, 4), (2, 7, 4), (2, 7, 5), (2,))])


CHOICES = {
    "a largest": "let out[i] = max[j](s / (x[j] * z[i, j] * (if j < i { z[i, j] } else { s }) + 1) where j < i);",
    "a sum": """let t[i, j] = if 2 * j < i { x[j] * s } else { x[i] * s } where 0 < j, j < i;
        let out[i] = sum[j](t[i, j] * x[j]);""",
}


@pytest.mark.parametrize("body", CHOICES.values(), ids=CHOICES)
def test_a_derivative_of_a_choice(body: str) -> None:
    program = ix.compile(f"space place(i, j); input x[i], z[i, j], s; {body} output out;")
    check_derivative(program, [torch.randn(s, dtype=torch.float64) for s in ((6,), (6, 6), ())])


def check_derivative(program: ix.Program, arrays: list[torch.Tensor]) -> None:
    leaves = [array.clone().requires_grad_() for array in arrays]
    result = program(*leaves)
    flowing = torch.where(result.isfinite(), torch.randn(result.shape, dtype=torch.float64), 0.0).detach()
    right = torch.autograd.grad(result, leaves, flowing, allow_unused=True)
    found = ix.grad(program, "out", list(program.inputs))(*arrays, flowing)
    for mine, wanted in zip(found, right, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if wanted is None else wanted)


REMOVED = {
    "a divisor of the key": ("softmax[j](s[i, j] where z[j] != 0)", "v[j] / z[j]"),
    "a logarithm of the key": ("softmax[j](s[i, j]) where z[j] > 0", "v[j] * log(z[j])"),
    "a distance": ("softmax[j](s[i, j] where j < i)", "v[j] / (i - j)"),
}


@pytest.mark.parametrize("backend", ["reference", "numpy", "torch", "jax"])
@pytest.mark.parametrize("name", REMOVED)
def test_a_derivative_where_weights_are_removed(name: str, backend: str) -> None:
    """What flows back through a pole leaves no sum without the guard of the weights in it."""
    weights, value = REMOVED[name]
    text = f"input s[i, j], v[j], z[j]; let w[i, j] = {weights}; let out[i] = sum[j](w[i, j] * {value}) + 0 * z[i];"
    program, rng = ix.compile(text), np.random.default_rng(4)
    arrays = [torch.tensor(rng.normal(size=(4, 4))), torch.tensor(rng.normal(size=4)), torch.tensor([1.0, 0, 2, -1])]
    leaves = [array.double().requires_grad_() for array in arrays]
    right = torch.autograd.grad(program(*leaves, isolate=True).sum(), leaves)
    derived = ix.grad(program, "out", ["s", "v", "z"])
    here = {"torch": lambda x: x.detach()}.get(backend, lambda x: x.detach().numpy())
    for isolate in (False, True):
        found = derived(*map(here, leaves), here(torch.ones(4).double()), backend=backend, isolate=isolate)
        for mine, wanted in zip(found, right, strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-12 if backend != "jax" else 1e-5)
