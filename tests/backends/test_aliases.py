"""A slice is a view: it is copied where it is handed out, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import indexical as ix

torch = pytest.importorskip("torch")

SUBLAYER = """use std::layers::{causal_sublayer};
input X[i, m], W_Q[l, h, m, d], W_K[l, h, m, d], W_V[l, h, m, e], W_O[l, h, e, m];
let Q[h, m, d] = W_Q[0, h, m, d];
let K[h, m, d] = W_K[0, h, m, d];
let V[h, m, e] = W_V[0, h, m, e];
let O[h, e, m] = W_O[0, h, e, m];
let Y = causal_sublayer(X, Q, K, V, O);
output Y;
"""
FUNCTION = "fn kept(x[i, m]) -> [i, m] {{ {} }} input x[i, m]; "

# Each hands out what is an alias of an input, of another output or of one row that is repeated.
HANDED_OUT = {
    "an input": "input x[i, m]; let z[i, m] = x[i, m];",
    "a slice": "input x[i, m]; let z[i] = x[i, 0];",
    "a turned input": "input x[i, m]; let z[m, i] = x[i, m];",
    "by another name": "input x[i, m]; let h[i, m] = x[i, m]; let z[i, m] = h[i, m]; output z;",
    "by a function": FUNCTION.format("x[i, m]") + "let z = kept(x);",
    "by two functions": FUNCTION.format("let h[i, m] = x[i, m]; h[i, m]")
    + "let y = kept(x); let z = kept(y); output z;",
    "two outputs": "input x[i, m]; let y[i, m] = x[i, m] + 1; let z[i, m] = y[i, m]; output y, z;",
    "a row that is repeated": "input x[i, m]; let s[m] = exp(x[0, m]); let z[i, m] = s[m] where i < size(i); output z;",
    "repeated by a function": FUNCTION.format("let h[i, m] = exp(x[i, 0]); h[i, m]") + "let z = kept(x);",
    "a choice": "input x[i, m]; let h[i, m] = if 1 > 0 { x[i, m] } else { x[i, m] }; let z[i, m] = h[i, m]; output z;",
}


def test_weights_are_not_copied_to_be_read() -> None:
    shapes = ((5, 4), (2, 2, 4, 2), (2, 2, 4, 2), (2, 2, 4, 2), (2, 2, 2, 4))
    arrays = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    program = ix.compile(SUBLAYER)
    assert "clone" not in program.source(*arrays)
    plain = [array.detach().numpy() for array in arrays]
    assert ".copy()" not in program.source(*plain)
    found = program(*arrays)
    np.testing.assert_allclose(found.detach().numpy(), program(*plain, backend="reference"), rtol=1e-10)
    whole = ix.grad(program)(*plain, np.ones((5, 4)), backend="reference")
    for mine, expected in zip(torch.autograd.grad(found.sum(), arrays), whole, strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", HANDED_OUT)
def test_what_is_handed_out_is_nobody_elses(name: str, backend: str) -> None:
    program = ix.compile(HANDED_OUT[name])
    given = np.arange(6.0).reshape(2, 3)
    array: Any = given.copy() if backend == "numpy" else torch.tensor(given)
    found = program(array)
    results = list(found) if isinstance(found, tuple) else [found]
    for number, result in enumerate(results):
        others = [other.tolist() for other in results[number + 1 :]]
        result[...] = -7.0
        assert array.tolist() == given.tolist()
        assert [other.tolist() for other in results[number + 1 :]] == others
        assert (result == -7.0).all()
