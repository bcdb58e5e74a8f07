"""Definitions that recur together and begin at different steps: every engine against the reference, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.backends.mutual import draw

import indexical as ix
from indexical.ir import nodes as ir

pytestmark = pytest.mark.sampled(8)

Array = np.ndarray[Any, Any]

# Adam on a quadratic: the gradient and the corrected moments begin at step 1, all others have a base case.
ADAM = """
input start[k], target[k];
let theta[0, k] = start[k];
let m[0, k] = 0 * start[k];
let v[0, k] = 0 * start[k];
let g[s in 1..6, k] = 2 * (theta[s - 1, k] - target[k]);
let m[s in 1..6, k] = 0.9 * m[s - 1, k] + 0.1 * g[s, k];
let v[s in 1..6, k] = 0.999 * v[s - 1, k] + 0.001 * g[s, k] ** 2;
let mhat[s in 1..6, k] = m[s, k] / (1 - 0.9 ** s);
let vhat[s in 1..6, k] = v[s, k] / (1 - 0.999 ** s);
let theta[s in 1..6, k] = theta[s - 1, k] - 0.1 * mhat[s, k] / (sqrt(vhat[s, k]) + 0.00000001);
output theta, mhat, vhat;
"""
START, TARGET = np.array([0.5, 0.25]), np.array([1.0, -2.0])


def adam(start: Array, target: Array) -> tuple[Array, Array, Array]:
    """The same by hand."""
    theta, m, v = [start], np.zeros(2), np.zeros(2)
    first, second = [], []
    for step in range(1, 6):
        g = 2 * (theta[-1] - target)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        first.append(m / (1 - 0.9**step))
        second.append(v / (1 - 0.999**step))
        theta.append(theta[-1] - 0.1 * first[-1] / (np.sqrt(second[-1]) + 1e-8))
    return np.array(theta), np.array(first), np.array(second)


def outputs(found: Any) -> list[Array]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def later(program: ix.Program) -> dict[str, int]:
    """By how many steps definitions of a program are later than others."""
    return {name: n for item in program.ir.order if isinstance(item, ir.Stepwise) for name, n in item.later}


@pytest.mark.parametrize("backend", ["reference", "numpy", "torch", "jax"])
@pytest.mark.parametrize("isolate", [False, True])
def test_adam(backend: str, isolate: bool) -> None:
    program = ix.compile(ADAM)
    assert later(program) == {"mhat": 1, "vhat": 1}
    found = outputs(program(START, TARGET, backend=backend, isolate=isolate))
    for one, right in zip(found, adam(START, TARGET), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-4 if backend == "jax" else 1e-12)


def test_adam_is_exact_and_stands_alone() -> None:
    theta, first, _ = adam(START, TARGET)
    exact = ix.exact(ADAM, START, TARGET)
    np.testing.assert_allclose([[float(one) for one in row] for row in exact["theta"]], theta, rtol=1e-12)
    np.testing.assert_allclose([[float(one) for one in row] for row in exact["mhat"]], first, rtol=1e-12)
    for backend in ("numpy", "torch"):
        emitted: dict[str, Any] = {}
        start, target = (torch.tensor(one) if backend == "torch" else one for one in (START, TARGET))
        exec(ix.compile(ADAM).source(start, target, backend=backend), emitted)
        np.testing.assert_allclose(outputs(emitted["program"](start, target))[0], theta, rtol=1e-12)


def test_adam_has_derivatives() -> None:
    program = ix.compile(ADAM.replace("output theta, mhat, vhat;", "let last[k] = theta[5, k]; output last;"))
    start = torch.tensor(START, requires_grad=True)
    (by_torch,) = torch.autograd.grad(program(start, torch.tensor(TARGET)).sum(), start)
    by_hand = [
        (adam(START + step, TARGET)[0][5].sum() - adam(START - step, TARGET)[0][5].sum()) / 2e-6
        for step in 1e-6 * np.eye(2)
    ]
    np.testing.assert_allclose(by_torch, by_hand, rtol=1e-5)
    derived = ix.grad(program, by="start")
    np.testing.assert_allclose(derived(START, TARGET, np.ones(2), backend="numpy"), by_hand, rtol=1e-5)


@pytest.mark.parametrize("seed", range(80))
def test_drawn_systems_are_in_order(seed: int) -> None:
    drawn = draw(seed)
    program = ix.compile(drawn.text)
    expected = outputs(program(**drawn.arrays, backend="reference"))
    for backend in ("numpy", "torch"):
        for isolate in (False, True):
            found = outputs(program(**drawn.arrays, backend=backend, isolate=isolate))
            for one, right in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-12, err_msg=f"{backend}\n{drawn.text}")


def test_a_drawn_system_is_moved_somewhere() -> None:
    assert sum(bool(later(ix.compile(draw(seed).text))) for seed in range(40)) > 5


TABLES = {
    "later": """
        let p[0, j in 0..4] = 1.0; let p[i in 1..4, 0] = 1.0;
        let q[i in 1..4, j in 1..4] = p[i - 1, j] + p[i, j - 1];
        let p[i in 1..4, j in 1..4] = tanh(q[i, j]) * x[i, j];""",
    "later along one": """
        let p[0, j in 0..4] = x[0, j];
        let q[i in 1..4, j in 0..4] = tanh(p[i - 1, j]) + (if j > 0 { p[i, j - 1] } else { 0 });
        let p[i in 1..4, j in 0..4] = tanh(q[i, j]) * x[i, j];""",
    "backward": """
        let p[3, j in 0..4] = x[3, j]; let p[i in 0..3, 3] = x[i, 3];
        let q[i in 0..3, j in 0..3] = tanh(p[i + 1, j]) + p[i, j + 1] / 2;
        let p[i in 0..3, j in 0..3] = tanh(q[i, j]) * x[i, j];""",
    "backward along one": """
        let p[3, j in 0..4] = x[3, j]; let p[i in 0..3, 0] = x[i, 0];
        let q[i in 0..3, j in 1..4] = tanh(p[i + 1, j]) + p[i, j - 1];
        let p[i in 0..3, j in 1..4] = tanh(q[i, j]) * x[i, j];""",
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.sampled(1)
def test_definitions_of_a_table_that_begin_at_different_points_go_by_diagonals(name: str) -> None:
    program, x = ix.compile(f"input x[i, j]; {TABLES[name]} output p, q;"), np.linspace(-1, 1, 16).reshape(4, 4)
    assert str(program.plan(x, backend="torch")).count("by diagonals") == 2
    expected = outputs(program(x, backend="reference"))
    for backend in ("numpy", "torch", "jax"):
        for one, right in zip(outputs(program(x, backend=backend)), expected, strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-5)


@pytest.mark.sampled(0)
def test_steps_that_go_down() -> None:
    down = """
    input x[t];
    let a[5] = 1.0;
    let b[5] = 0.0;
    let b[t in 2..5] = a[t + 1] + x[t];
    let c[t in 2..5] = 2 * b[t];
    let a[t in 2..5] = tanh(c[t]) + b[t + 1];
    output a, c;
    """
    program, x = ix.compile(down), np.linspace(-1, 1, 6)
    expected = outputs(program(x, backend="reference"))
    for backend in ("numpy", "torch", "jax"):
        for one, right in zip(outputs(program(x, backend=backend)), expected, strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-5)


@pytest.mark.parametrize("backend", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("points", [0, 1, 5])
def test_a_line_of_what_is_made_along_two_axes(backend: str, points: int) -> None:
    """All that was made in the step before is put together, and no more than that."""
    program = ix.compile("""
        input a[i, j], b[i, j];
        let x[i, j] = if i == 0 { a[i, j] } else { 0.5 * x[i - 1, j] + sum[k](y[i - 1, k] * b[i, k]) };
        let y[i, j] = if j == 0 { b[i, j] } else { tanh(y[i, j - 1]) + x[i, j] };
        output x, y;
    """)
    rng = np.random.default_rng(points)
    a, b = rng.normal(size=(2, 4, points))
    for found, wanted in zip(program(a, b, backend=backend), program(a, b, backend="reference"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    loop = program.source(a, b, backend=backend).split("for i in")[1].split("\n    x = ")[0]
    assert "unbind" not in loop
    assert "(n_i, n_j)" not in loop
