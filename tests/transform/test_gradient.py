"""Gradients, tangents and Jacobians of small programs, whose derivatives one knows; what is known to go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import indexical as ix

ROTATED = "input x[i]; let y[i] = x[i - 1] where i >= 1; let loss = sum[i](y[i] ** 2);"


def statement(program: ix.Program, name: str) -> str:
    """What is printed for one definition, on one line."""
    text = str(program).replace("\n    ", " ")
    return next(line.partition("//")[0].strip() for line in text.splitlines() if line.startswith(f"let {name}"))


def grad(text: str, of: str | None = None, by: Any = None) -> ix.Program:
    return ix.grad(ix.compile(text), of, by)


# ------------------------------------------------------- what others get wrong


def test_the_gradient_of_an_inner_product_is_the_other_vector() -> None:
    program = grad("input x[i], c[i]; let loss = sum[i](x[i] * c[i]);", by="x")
    assert statement(program, "d_x") == "let d_x[i] = c[i];"
    c = np.array([2.0, -1.0, 0.5])
    assert program(x=np.zeros(3), c=c).tolist() == c.tolist()


def test_the_gradient_of_a_weighted_loss_is_not_zero() -> None:
    program = grad("input s[j], v[j]; let loss = sum[j](softmax[j](s[j]) * v[j]);", by="s")
    s, v = np.array([0.0, 1.0, -1.0]), np.array([1.0, 2.0, 4.0])
    weights = np.exp(s) / np.exp(s).sum()
    expected = weights * (v - (weights * v).sum())
    assert np.abs(expected).min() > 0.01
    np.testing.assert_allclose(program(s=s, v=v), expected, atol=1e-15)


def test_attention_by_the_query() -> None:
    torch = pytest.importorskip("torch")
    text = """input Q[i, d], K[j, d], V[j, e];
let out[i, e] = sum[j](softmax[j](sum[d](Q[i, d] * K[j, d]) / sqrt(size(d)) where j <= i) * V[j, e]);"""
    q, k, v, d_out = (torch.randn(5, 3, dtype=torch.float64) for _ in range(4))
    found = grad(text, by="Q")(q, k, v, d_out)
    q.requires_grad_()
    scores = (q @ k.T / 3**0.5).masked_fill(torch.ones(5, 5).tril() == 0, -torch.inf)
    (expected,) = torch.autograd.grad(scores.softmax(-1) @ v, q, d_out)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_a_shifted_index_is_shifted_back() -> None:
    program = grad("input x[i]; let y[i] = x[i + 1] where i + 1 < size(i);")
    assert statement(program, "d_x") == "let d_x[i] = d_y[i - 1] where 1 <= i;"
    assert "x[i - 1]" in str(grad("input x[i]; let loss = sum[i](x[i - 1] * x[i] where i >= 1);"))
    assert statement(grad(ROTATED), "d_x") == "let d_x[i] = d_y[i + 1] where i + 1 < size(i);"


def test_guards_inside_reductions_are_differentiated() -> None:
    program = grad("input x[i], keep[i] : bool; let loss = sum[i](x[i] ** 2 where keep[i], i >= 1);", by="x")
    found = program(x=np.array([1.0, 2.0, 3.0, 4.0]), keep=np.array([True, False, True, True]))
    assert found.tolist() == [0, 0, 6, 8]


# ------------------------------------------------------------------- constructs


def test_a_convolution_is_read_backwards() -> None:
    program = grad("input x[n], w[k]; let y[i in 0..size(n) - size(k) + 1] = sum[k](x[i + k] * w[k]);")
    line = "let d_x[n] = sum[k](w[k] * d_y[n - k] where k <= n, n - k <= size(n) - size(k));"
    assert statement(program, "d_x") == line
    assert statement(program, "d_w") == "let d_w[k] = sum[i](d_y[i] * x[i + k]);"


def test_repacked_heads_are_taken_apart() -> None:
    program = grad("input x[b, h, i, d]; let y[b, i, m in 0..size(h) * size(d)] = x[b, m / size(d), i, m % size(d)];")
    assert statement(program, "d_x") == "let d_x[b, h, i, d] = d_y[b, i, h * size(d) + d];"


def test_a_gather_adds_up_what_was_gathered() -> None:
    program = grad("input E[n, m], p[i]; let y[i, m] = E[p[i], m];", by="E")
    assert statement(program, "d_E") == "let d_E[n, m] = sum[i](d_y[i, m] where p[i] == n);"
    found = program(E=np.zeros((3, 1)), p=np.array([2, 0, 2]), d_y=np.array([[1.0], [10.0], [100.0]]))
    assert found.ravel().tolist() == [10, 0, 101]


def test_a_recurrence_runs_backwards() -> None:
    program = grad(
        "input a[t], x[t]; let y[0] = x[0]; let y[t in 1..size(t)] = a[t] * y[t - 1] + x[t];let last = y[size(t) - 1];",
        of="last",
    )
    assert "let d_y[size(t) - 1]         = 1.0;" in str(program)
    assert "let d_y[t in 0..size(t) - 1] = a[t + 1] * d_y[t + 1];" in str(program)
    assert statement(program, "d_x") == "let d_x[t] = d_y[t];"


def test_a_product_with_zeros() -> None:
    program = grad("input x[i]; let y = prod[i](x[i]);")
    assert program(x=np.array([2.0, 0.0, 3.0])).tolist() == [0, 6, 0]
    assert program(x=np.array([0.0, 0.0, 3.0])).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("body", "at", "expected"),
    [
        ("max[i](x[i])", [1.0, 3.0, 3.0], [0, 1, 0]),
        ("min[i](x[i])", [1.0, 1.0, 3.0], [1, 0, 0]),
        ("sum[i](relu(x[i]) + abs(x[i]))", [0.0, 2.0, -2.0], [0, 2, -1]),
        ("sum[i](max(x[i], 0 * x[i]))", [0.0, 2.0, -2.0], [1, 1, 0]),
        ("sum[i](clamp(x[i], -1, 1))", [-1.0, 1.0, 2.0], [1, 1, 0]),
    ],
)
def test_kinks_take_one_side(body: str, at: list[float], expected: list[float]) -> None:
    assert grad(f"input x[i]; let y = {body};")(x=np.array(at)).tolist() == expected


def test_a_definition_is_held_independent() -> None:
    text = "input x[i]; let y[i] = x[i] ** 2; let loss = sum[i](x[i] * y[i]);"
    x = np.array([1.0, 2.0, 3.0])
    assert grad(text, "loss", "y")(x).tolist() == x.tolist()
    assert grad(text, "loss", "x")(x).tolist() == (3 * x**2).tolist()
    assert grad(text, "loss", ("x", "y"))(x).d_x.tolist() == (x**2).tolist()


def test_what_nothing_reaches_is_zero() -> None:
    program = grad("input x[i], c[i]; let y[i] = 2 * x[i];", by=("x", "c"))
    found = program(np.ones(2), np.ones(2), np.ones(2))
    assert found.d_x.tolist() == [2, 2]
    assert found.d_c.tolist() == [0, 0]


# ----------------------------------------------------------------- in the language


def test_a_jacobian_has_the_coordinates_of_both() -> None:
    program = ix.compile("input A[i, j], B[j, k]; let C[i, k] = sum[j](A[i, j] * B[j, k]); let dC_dA = @C / @A;")
    assert [str(axis.coordinate) for axis in program.ir.tensors["dC_dA"].axes] == ["i", "k", "i_1", "j"]
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    expected = np.einsum("ia,jk->ikaj", np.eye(2), b)
    assert program(a, b, outputs="dC_dA").tolist() == expected.tolist()


def test_second_derivatives_by_asking_again() -> None:
    text = "input x[i]; let loss = sum[i](x[i] ** 3) / 6; let g = @loss / @x; let H = @g / @x; output g, H;"
    found = ix.compile(text)(np.array([1.0, 2.0]))
    assert found.g.tolist() == [0.5, 2]
    assert found.H.tolist() == [[1, 0], [0, 2]]


def test_a_jacobian_is_read_where_it_is_needed() -> None:
    text = "input x[i], v[i]; let y[i] = x[i] * sum[j](x[j]); let w[i] = sum[k]((@y / @x)[i, k] * v[k]);"
    x, v = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 2.0])
    expected = v * x.sum() + x * v.sum()
    np.testing.assert_allclose(ix.compile(text)(x, v), expected)


def test_a_scalar_by_a_scalar_is_a_number() -> None:
    assert ix.compile("input s; let y = s ** 2; let z = 3 * (@y / @s);")(2.0) == 12


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("input x[i]; let y[i] = floor(x[i]); let s = @y / @x;", "IX218"),
        ("input x[i]; let y = argmax[i](x[i]); let s = @y / @x;", "IX218"),
        ("input p[i] : i64; let y[i] = 2.0 * p[i]; let s = @y / @p;", "IX218"),
        ("input x[i]; let s = @y / @x;", "IX201"),
        ("input x[i]; let y[i] = x[i]; let s[i] = @y / @x;", "IX205"),
        ("input x[i]; let y[i] = x[i]; let s = 2 * (@y / @x);", "IX209"),
    ],
)
def test_what_cannot_be_taken_says_so(text: str, code: str) -> None:
    assert code in {found.code for found in ix.check(text)}


def test_a_step_beside_a_slope_is_passed_over() -> None:
    assert ix.compile("input x; let y = x - floor(x); let s = @y / @x; output s;")(2.5) == 1


# --------------------------------------------------------------------- with PyTorch


def test_autograd_flows_through_a_derivative() -> None:
    torch = pytest.importorskip("torch")
    program = ix.compile("input x[i]; let loss = sum[i](exp(x[i]) * x[i]); let g = @loss / @x; output g;")
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(program(x).sum(), x)
    torch.testing.assert_close(found, torch.exp(x) * (x + 2))


def test_a_gradient_of_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    first = grad("input x[i], A[i, j]; let loss = sum[j](tanh(sum[i](A[i, j] * x[i])));", by="x")
    second = ix.grad(first, by="x")
    x, a, v = torch.randn(3, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64), torch.randn(3).double()
    hessian = torch.autograd.functional.hessian(lambda x: torch.tanh(a.T @ x).sum(), x)
    torch.testing.assert_close(second(x=x, A=a, d_d_x=v), hessian @ v, atol=1e-12, rtol=0)


# ----------------------------------------------------------------------- tangents


def test_a_tangent_is_the_transpose_of_a_gradient() -> None:
    text = """input Q[i, d], K[j, d];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where j <= i;
let out[i] = sum[j](weights[i, j] * log_softmax[j](K[j, 0]));"""
    program = ix.compile(text)
    noise = np.random.default_rng(0)
    q, k, dot_q, dot_k = (noise.normal(size=(4, 3)) for _ in range(4))
    d_out = noise.normal(size=4)
    forward = ix.jvp(program)(Q=q, K=k, dot_Q=dot_q, dot_K=dot_k)
    backward = ix.grad(program)(Q=q, K=k, d_out=d_out)
    np.testing.assert_allclose(
        (forward * d_out).sum(), (backward.d_Q * dot_q).sum() + (backward.d_K * dot_k).sum(), rtol=1e-12
    )


# ------------------------------------------------------------------------- batches


def test_a_batch_is_what_each_gives() -> None:
    text = """input Q[i, d], K[j, d], V[j, e];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where j <= i;
let out[i, e] = sum[j](weights[i, j] * V[j, e]);
attention out(query i, key j, compare d, carry e, causal);"""
    program = ix.compile(text)
    batched = ix.batch(program, b=("Q", "V"))
    noise = np.random.default_rng(1)
    q, k, v = noise.normal(size=(2, 4, 3)), noise.normal(size=(4, 3)), noise.normal(size=(2, 4, 5))
    expected = np.stack([program(q[n], k, v[n]) for n in range(2)])
    np.testing.assert_allclose(batched(q, k, v), expected, rtol=1e-12)
    assert "attention out(query i, key j, compare d, carry e, batch b, causal);" in str(batched)


def test_a_batch_of_a_recurrence_with_a_claim() -> None:
    text = """input a[t], x[t], floor_;
let y[0] = x[0];
let y[t in 1..size(t)] = a[t] * y[t - 1] + x[t];
assert all[t](x[t] >= floor_), "too low";"""
    program = ix.compile(text)
    batched = ix.batch(program, n="x")
    a, x = np.array([0.5, 0.25, 2.0]), np.arange(6.0).reshape(2, 3)
    expected = [program(a, row, -1.0).tolist() for row in x]
    assert batched(a, x, -1.0).tolist() == expected
    with pytest.raises(ix.Error, match="too low"):
        batched(a, x, 1.0)
