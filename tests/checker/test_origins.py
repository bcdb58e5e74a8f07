"""Definitions that begin above 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix
from indexical.views.text import show_output

X = np.array([1.0, 2.0, 4.0, 7.0, 5.0])
STEPS = "input x[t]; let y[t in 1..size(t)] = x[t] - x[t - 1];"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", [1, 2, 3, -2]),
        ("let z[t] = 2 * y[t] + t; output z;", [3, 6, 9, 0]),
        ("let z = y; let w[t] = z[t]; output w;", [1, 2, 3, -2]),
        ("let z[t in 1..size(t)] = y[t] * x[t]; output z;", [2, 8, 21, -10]),
        ("let z = sum[t](y[t] * t) + size(t); output z;", 11.0),
        ("let z = sum[t in 2..4](y[t]); output z;", 5.0),
        ("let z[t] = cumsum[t](y[t]); output z;", [1, 3, 6, 4]),
        ("let z[t] = cummax[t](y[t] * t) + y[t]; output z;", [2, 6, 12, 7]),
        ("let z[j in 0..5] = sum[t](y[t] where t <= j); output z;", [0, 1, 3, 6, 4]),
        ("let z[t] = { let w = y[t] * 2; let v[k in 0..2] = w + k; v[1] }; output z;", [3, 5, 7, -3]),
        ("fn f(a[i]) -> [i] { a[i] / sum[i](a[i]) } let z = f(y); output z;", [0.25, 0.5, 0.75, -0.5]),
        ("let h[1] = y[1]; let h[t in 2..size(t)] = h[t - 1] * y[t]; output h;", [1, 2, 6, -12]),
        ("let h[4] = y[4]; let h[t in 1..4] = { let k = h[t + 1]; k + y[t] }; output h;", [4, 3, 1, -2]),
        ("let m = argmax[t](y[t]); output m;", 3),
        ("let z[t in 3..3] = y[t]; output z;", []),
    ],
)
def test_every_way_is_what_it_says(text: str, wanted: object) -> None:
    program = ix.compile(STEPS + text)
    for backend in ("reference", "numpy", "torch"):
        np.testing.assert_allclose(program(X, backend=backend), wanted)


def test_gradients_and_jacobians_count_as_the_text_does() -> None:
    program = ix.compile(f"{STEPS} let z[t] = y[t] ** 2; let g[t, j] = (@z / @x)[t, j]; output z, g;")
    g = program(X)[1]
    tensor = torch.tensor(X, requires_grad=True)
    program(tensor, outputs="z")[1].backward()
    np.testing.assert_allclose(g[1], tensor.grad)
    found = ix.grad(program, of="z", by="x")(x=X, d_z=np.array([0.0, 1, 0, 0]))
    np.testing.assert_allclose(found, g[1])


def test_a_place_that_the_arrays_decide() -> None:
    program = ix.compile(f"{STEPS} input p[i] : i64; let z[i] = y[p[i]]; output z;")
    np.testing.assert_allclose(program(X, np.array([1, 4])), [1, -2])
    with pytest.raises(ix.CallError, match="index 0 is out of bounds for axis 0 of `y`, which has 4 points from 1 on"):
        program(X, np.array([1, 0]))


def test_an_attention_whose_queries_begin_later_is_causal_as_the_text_counts() -> None:
    text = """
input Q[i, d], K[j, d], V[j, e];
let q[i in 1..size(i), d] = Q[i, d];
let w[i, j] = softmax[j](sum[d](q[i, d] * K[j, d])) where j <= i;
let out[i, e] = sum[j](w[i, j] * V[j, e]);
attention out(query i, key j, causal);"""
    assert [found.code for found in ix.check(text) if found.severity == "error"] == []
    found = ix.check(text.replace("j <= i;", "j <= i + 1;"))
    assert "not causal: query 1 listens to key 2" in [finding.message for finding in found]


def test_what_is_told() -> None:
    program = ix.compile(f"{STEPS} expect y[1] == 2; expect y == [2, 5];")
    assert "begins        t at 1" in str(program.facts)
    assert show_output(program.ir.definitions["y"], program(X)).startswith("y[t from 1]  4  float64")
    assert "(`t = 1` of the text is 0 here)" in str(ix.trace(program, at="y[0]", x=[1, 3, 8]))
    assert str(ix.verify(program, x=[1, 3, 8])).count("holds") == 2
