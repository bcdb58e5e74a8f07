"""Rows that choose their matrices: all that chose one are multiplied at once, in every spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

GROUPED = {
    "plain": "input W[k, n, m], x[t, m], expert[t]; let out[t, n] = sum[m](W[expert[t], n, m] * x[t, m]);",
    "other names": "input A[g, a, b], y[r, b], who[r]; let out[r, a] = sum[b](y[r, b] * A[who[r], a, b]);",
    "permuted": "input W[n, m, k], x[t, m], expert[t]; let out[n, t] = sum[m](x[t, m] * W[n, m, expert[t]]);",
    "by a name": """
        input W[k, n, m], x[t, m], expert[t];
        let mine[t, n, m] = W[expert[t], n, m];
        let out[t, n] = sum[m](mine[t, n, m] * x[t, m]);""",
    "a bias and a function": """
        input W[k, n, m], x[t, m], expert[t], b[k, n];
        let out[t, n] = relu(sum[m](W[expert[t], n, m] * x[t, m]) + b[expert[t], n]);""",
    "two layers": """
        input W[k, n, m], U[k, m, n], x[t, m], expert[t];
        let y[t, n] = silu(sum[m](W[expert[t], n, m] * x[t, m]));
        let out[t, m] = sum[n](U[expert[t], m, n] * y[t, n]);""",
    "several each": """
        input W[k, n, m], x[t, m], expert[t, c], gate[t, c];
        let out[t, n] = sum[c](gate[t, c] * sum[m](W[expert[t, c], n, m] * x[t, m]));""",
    "several each, in one sum": """
        input W[k, n, m], x[t, m], expert[t, c], gate[t, c];
        let out[t, n] = sum[c, m](gate[t, c] * W[expert[t, c], n, m] * x[t, m]);""",
    "the largest": """
        input W[k, n, m], x[t, m], R[k, m];
        let expert[t] = argmax[k](sum[m](R[k, m] * x[t, m]));
        let out[t, n] = sum[m](W[expert[t], n, m] * x[t, m]);""",
    "two features": """
        input W[k, n, m, d], x[t, m, d], expert[t];
        let out[t, n] = sum[m, d](W[expert[t], n, m, d] * x[t, m, d]);""",
    "examples": """
        input W[k, n, m], x[b, t, m], expert[t];
        let out[b, t, n] = sum[m](W[expert[t], n, m] * x[b, t, m]);""",
}
PLAIN = {
    "under a guard": """
        input W[k, n, m], x[t, m], expert[t];
        let out[t, n] = sum[m](W[expert[t], n, m] * x[t, m]) where expert[t] > 0;""",
    "heads": """
        input W[k, h, n, m], x[t, h, m], expert[t];
        let out[t, h, n] = sum[m](W[expert[t], h, n, m] * x[t, h, m]);""",
    "an embedding": "input W[k, m], x[t, m], expert[t]; let out[t] = sum[m](W[expert[t], m] * x[t, m]);",
}
SIZES = {"k": 4, "g": 4, "n": 3, "a": 3, "m": 5, "b": 5, "c": 2, "d": 2, "h": 2}


def drawn(program: ix.Program, rows: int, **more: int) -> list[Any]:
    generator = torch.Generator().manual_seed(rows)
    sizes = {**SIZES, "t": rows, "r": rows, **more}
    arrays = []
    for tensor in program.ir.inputs:
        shape = [sizes[axis.coordinate] for axis in tensor.axes]
        if tensor.kind == "whole":
            arrays.append(torch.randint(sizes["k"], shape, generator=generator))
        else:
            arrays.append(torch.randn(shape, dtype=torch.float64, generator=generator))
    return arrays


def with_gradients(program: ix.Program, arrays: list[Any], **options: Any) -> list[Any]:
    leaves = [array.clone().requires_grad_(array.is_floating_point()) for array in arrays]
    out = program(*leaves, **options)
    arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    real = [leaf for leaf in leaves if leaf.requires_grad]
    return [out.detach(), *torch.autograd.grad(out, real, arriving, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("name", [*GROUPED, *PLAIN])
def test_it_is_what_is_written(name: str) -> None:
    program = ix.compile({**GROUPED, **PLAIN}[name])
    source = program.source(*drawn(program, 4))
    assert ("= by_place(" in source) == (name in GROUPED)
    for rows, more in (
        (0, {}),
        (1, {}),
        (2, {}),
        (9, {}),
        (9, {"k": 1, "g": 1}),
        (3, {"m": 0, "b": 0}),
        (3, {"k": 50}),
    ):
        if name in ("the largest", "other names") and "k" in more and more["k"] == 50:
            continue
        arrays = drawn(program, rows, **more)
        found, plain = with_gradients(program, arrays), with_gradients(program, arrays, isolate=True)
        reference = program(*(array.numpy() for array in arrays), backend="reference")
        np.testing.assert_allclose(found[0], reference, rtol=1e-9, atol=1e-9)
        for mine, right in zip(found, plain, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("under a guard", "out of bounds where a guard"), ("heads", "`h` is in the table and in what it is multiplied")],
)
def test_the_plan_says_why_not(name: str, reason: str) -> None:
    program = ix.compile(PLAIN[name])
    assert f"not by rows grouped by place: {'its place may be ' if 'guard' in name else ''}{reason}" in str(
        program.plan(*drawn(program, 4))
    )


def test_a_place_that_is_not_there_is_refused() -> None:
    program = ix.compile(GROUPED["plain"])
    arrays = drawn(program, 5)
    arrays[-1][3] = 4
    with pytest.raises(ix.Error, match="index 4 is out of bounds for axis 0 of `W`"):
        program(*arrays)


def test_rows_are_mapped_over_and_differentiated_twice() -> None:
    program = ix.compile(GROUPED["plain"])
    W, x, expert = drawn(program, 5)
    many = torch.stack((x, 2 * x))
    found = torch.func.vmap(lambda rows: program(W, rows, expert))(many)
    torch.testing.assert_close(found, torch.stack((program(W, x, expert), program(W, 2 * x, expert))))
    assert torch.autograd.gradgradcheck(lambda *real: program(*real, expert), (W.requires_grad_(), x.requires_grad_()))


def test_other_dtypes_meet() -> None:
    program = ix.compile(GROUPED["plain"])
    W, x, expert = drawn(program, 5)
    found = program(W.float(), x, expert.int())
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, program(W.float().double(), x, expert))


GROUPED_PRODUCTS = {
    "let out[k, n, m] = sum[t](a[t, n] * b[t, m] where p[t] == k);": True,
    "let out[m, k, n] = sum[u](b[u, m] * s[u] * a[u, n] where k == p[u]);": True,
    "let out[n, k, m] = 2 * sum[t](a[t, n] * (b[t, m] + 1) where k == p[t]);": True,
    "let out[k in 0..3, n, m] = sum[t in 0..size(t) / 2](a[t, n] * b[t, m] where p[t] == k);": True,
    "let out[k, n, m] = sum[t](a[t, n] * b[t, m] where p[t] == k, s[t] > 0);": False,
    "let out[k, n] = sum[t](a[t, n] * s[t] where p[t] == k);": False,
}


@pytest.mark.parametrize("rows", [0, 3, 24])
@pytest.mark.parametrize("text", GROUPED_PRODUCTS)
def test_products_of_rows_by_place(text: str, rows: int) -> None:
    """Rows that share a place are multiplied at once; a place that is not there is left out."""
    program = ix.compile(f"input a[t, n], b[t, m], s[t], p[t] : i64, size_of[k]; {text} output out;")
    draw = np.random.default_rng(rows)
    a, b, s = (torch.tensor(draw.normal(size=shape)) for shape in ((rows, 3), (rows, 2), (rows,)))
    given = [a, b, s, torch.tensor(draw.integers(-1, 5, rows)), torch.zeros(4, dtype=torch.float64)]
    assert ("a product of matrices for each" in str(program.plan(*given))) == GROUPED_PRODUCTS[text]
    right = program(*(array.numpy() for array in given), backend="reference")
    leaves = [array.requires_grad_() for array in given[:3]]
    flows = []
    for isolate in (False, True):
        found = program(*given, isolate=isolate)
        np.testing.assert_allclose(found.detach(), right, atol=1e-12)
        flows.append(torch.autograd.grad((found**2).sum(), leaves, allow_unused=True))
    for mine, plain in zip(*flows, strict=True):
        assert (mine is None) == (plain is None)
        if mine is not None:
            torch.testing.assert_close(mine, plain)


@pytest.mark.parametrize("rows", [5, 24])
def test_the_gradient_program_of_chosen_matrices_is_that_of_autograd(rows: int) -> None:
    program = ix.compile("input W[k, n, m], x[t, m], p[t]; let out[t, n] = sum[m](W[p[t], n, m] * x[t, m]);")
    generator = torch.Generator().manual_seed(rows)
    W, x, arriving = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((4, 3, 2), (rows, 2), (rows, 3))
    )
    places = torch.randint(4, (rows,), generator=generator)
    leaves = [W.requires_grad_(), x.requires_grad_()]
    right = torch.autograd.grad(program(*leaves, places, isolate=True), leaves, arriving)
    for mine, plain in zip(ix.grad(program)(W.detach(), x.detach(), places, arriving), right, strict=True):
        torch.testing.assert_close(mine, plain)
