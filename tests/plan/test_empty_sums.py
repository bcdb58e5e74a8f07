"""Attention by hand over no keys: what the reference says of the sums as they are written."""

from __future__ import annotations

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

HEAD = "input Q[i, d], K[j, d], V[j, e]; let s[i, j] = sum[d](Q[i, d] * K[j, d]);"
CAPPED = "let c[i, j] = exp(30 * tanh(s[i, j] / 30));"
PROGRAMS = {
    "weights": "let z[i] = sum[j](exp(s[i, j])); let w[i, j] = exp(s[i, j]) / z[i];"
    "let o[i, e] = sum[j](w[i, j] * V[j, e]);",
    "quotient": "let o[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / sum[j](exp(s[i, j]));",
    "projected": "let o[i, e] = sum[j](exp(s[i, j]) * V[j, e]) / sum[j](exp(s[i, j])); let p[i] = sum[e](o[i, e]);",
    "guarded": "let o[i, e] = sum[j](exp(s[i, j]) * V[j, e] where j < i) / sum[j](exp(s[i, j]) where j < i);",
    "causal": "let o[i, e] = sum[j](exp(s[i, j]) * V[j, e] where j <= i) / sum[j](exp(s[i, j]) where j <= i);",
    "capped": CAPPED + "let o[i, e] = sum[j](c[i, j] * V[j, e]) / sum[j](c[i, j]);",
    "capped weights": CAPPED + "let z[i] = sum[j](c[i, j]); let o[i, e] = sum[j](c[i, j] / z[i] * V[j, e]);",
    "capped and guarded": CAPPED
    + "let o[i, e] = sum[j](c[i, j] * V[j, e] where j < i) / sum[j](c[i, j] where j < i);",
    "guarded weights": "let z[i] = sum[j](exp(s[i, j]) where j < i);"
    "let o[i, e] = sum[j](exp(s[i, j]) / z[i] * V[j, e] where j < i);",
}
SIZES = [(3, 0), (0, 3), (0, 0), (1, 1), (3, 1), (1, 3), (4, 4)]


def drawn(queries: int, keys: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(queries * 8 + keys)
    return tuple(rng.standard_normal(shape) for shape in ((queries, 2), (keys, 2), (keys, 3)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_few_queries_and_keys(name: str) -> None:
    program = ix.compile(HEAD + PROGRAMS[name])
    for sizes in SIZES:
        arrays = drawn(*sizes)
        expected = program(*arrays, backend="reference")
        np.testing.assert_allclose(program(*arrays), expected, err_msg=str(sizes))
        tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
        found = program(*tensors)
        np.testing.assert_allclose(found.detach(), expected, err_msg=str(sizes))
        slopes = torch.autograd.grad(found.sum(), tensors)
        apart = torch.autograd.grad(program(*tensors, isolate=True).sum(), tensors)
        for one, other in zip(slopes, apart, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12, err_msg=str(sizes))


@pytest.mark.parametrize("name", ["quotient", "capped", "capped weights", "capped and guarded"])
def test_the_derivative_of_few_queries_and_keys(name: str) -> None:
    derivative = ix.grad(ix.compile(HEAD + PROGRAMS[name]))
    for sizes in SIZES:
        arrays = (*drawn(*sizes), np.ones((sizes[0], 3)))
        expected = derivative(*arrays, backend="reference")
        for found in (derivative(*arrays), derivative(*map(torch.tensor, arrays))):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-12, err_msg=str(sizes))


def test_a_range_without_points() -> None:
    body = "sum[j in 0..i](exp(s[i, j]) * V[j, e]) / sum[j in 0..i](exp(s[i, j]))"
    program = ix.compile(HEAD + f"let o[i, e] = {body};")
    arrays = drawn(4, 4)
    expected = program(*arrays, backend="reference")
    assert np.isnan(expected[0]).all()
    np.testing.assert_allclose(program(*arrays), expected)
    np.testing.assert_allclose(program(*map(torch.tensor, arrays)), expected)
