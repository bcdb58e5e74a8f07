"""One query that hears all keys goes to the library's own kernel, whatever guard the program has for several."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix

OFFSET = """
space position(i, j), feature(d, e);
input Q[h, i, d], K[g, j, d], V[g, j, e];
let group = size(h) / size(g);
let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h / group, j, d]) / sqrt(size(d))) where j <= {bound};
let out[h, i, e] = sum[j](weights[h, i, j] * V[h / group, j, e]);
"""


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("bound", ["i + size(j) - size(i)", "size(j) - size(i) + i + 2", "i + 2"])
def test_queries_at_the_end_hear_what_the_reference_says(bound: str, queries: int) -> None:
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=shape) for shape in ((4, queries, 3), (2, 5, 3), (2, 5, 2))]
    program = ix.compile(OFFSET.replace("{bound}", bound))
    expected = program(*arrays, backend="reference")
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    found = program(*tensors)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-9)
    assert all(gradient is not None for gradient in torch.autograd.grad(found.sum(), tensors))
    plan = str(program.plan(*tensors))
    assert ("one query alone" in plan) == ("size" in bound)
