"""A difference of weights is gathered with as two attentions, whatever it is called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.backends.old.plan.choose import choose  # noqa: E402
from indexical.backends.old.torch_ import DIALECT  # noqa: E402
from indexical.plan.target import FUSED  # noqa: E402

HEAD = "input Q1[h, i, d], K1[h, j, d], Q2[h, i, d], K2[h, j, d], V[h, j, e], lam, mu[h], a[d];"
WEIGHTS = "".join(
    f"let w{n}[h, i, j] = softmax[j](sum[d](Q{n}[h, i, d] * K{n}[h, j, d]) / sqrt(size(d))) where j <= i;"
    for n in (1, 2)
)
OUT = "let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);"
SPELLINGS = {
    "in place": "let out[h, i, e] = sum[j]((w1[h, i, j] - lam * w2[h, i, j]) * V[h, j, e]);",
    "by a name": f"let w[h, i, j] = w1[h, i, j] - lam * w2[h, i, j]; {OUT}",
    "other names": """
        let apart[h, p, q] = w1[h, p, q] - lam * w2[h, p, q];
        let out[h, n, c] = sum[m](V[h, m, c] * apart[h, n, m]);""",
    "permuted": """
        let w[j, h, i] = -lam * w2[h, i, j] + w1[h, i, j];
        let out[h, i, e] = sum[j](w[j, h, i] * V[h, j, e]);""",
    "two names": f"""
        let second[h, i, j] = lam * w2[h, i, j];
        let w[h, i, j] = w1[h, i, j] - second[h, i, j]; {OUT}""",
    "under a guard": f"let w[h, i, j] = w1[h, i, j] - lam * w2[h, i, j] where j <= i; {OUT}",
    "by head": f"let w[h, i, j] = mu[h] * w1[h, i, j] + (1 - mu[h]) * w2[h, i, j]; {OUT}",
    "a factor with a name": f"""
        let factor = exp(sum[d](a[d] * a[d])) - 0.2;
        let w[h, i, j] = w1[h, i, j] - factor * w2[h, i, j]; {OUT}""",
    "scaled and normalised": """
        let w[h, i, j] = w1[h, i, j] - lam * w2[h, i, j];
        let o[h, i, e] = 0.2 * sum[j](w[h, i, j] * V[h, j, e]);
        let out[h, i, e] = o[h, i, e] * rsqrt(mean[e](o[h, i, e] ** 2) + 1e-5);""",
}


def drawn(program: ix.Program, points: int) -> list[Any]:
    generator = torch.Generator().manual_seed(points)
    sizes = {"h": 2, "d": 3, "e": 4, "i": points, "j": points}
    shapes = [[sizes[axis.coordinate] for axis in tensor.axes] for tensor in program.ir.inputs]
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]


@pytest.mark.parametrize("name", SPELLINGS)
def test_no_weights_are_built(name: str) -> None:
    program = ix.compile(HEAD + WEIGHTS + SPELLINGS[name])
    plan = choose(program.ir, ("out",), dict.fromkeys(program.inputs, "f32"), DIALECT.target, "cpu", False)  # type: ignore[arg-type]
    kernels = [step.kernel for step in plan.steps]
    assert kernels.count(FUSED) == 2
    assert {"w1", "w2"} <= set(plan.unbuilt)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SPELLINGS)
def test_it_is_what_is_written(name: str) -> None:
    program = ix.compile(HEAD + WEIGHTS + SPELLINGS[name])
    backward = ix.grad(program)
    for points in (0, 1, 5):
        arrays = drawn(program, points)
        found = []
        for options in ({}, {"isolate": True}):
            leaves = [array.clone().requires_grad_() for array in arrays]
            out = program(*leaves, **options)
            arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
            flows = torch.autograd.grad(out, leaves, arriving, allow_unused=True, materialize_grads=True)
            found.append([out.detach(), *flows])
        reference = program(*(array.numpy() for array in arrays), backend="reference")
        np.testing.assert_allclose(found[0][0], reference, rtol=1e-9, atol=1e-9)
        derived = backward(*arrays, arriving)
        for mine, right, other in zip(*found, (found[0][0], *derived), strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(other, right, rtol=1e-8, atol=1e-9)
