"""Recurrences as scans, along diagonals and step by step: against the reference, and what the plan says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.backends.linear import Drawn, draw

import indexical as ix

pytestmark = pytest.mark.sampled(8)

Array = np.ndarray[Any, Any]
BACKENDS = ("numpy", "torch")


def outputs(found: Any) -> list[Array]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def plan_of(program: ix.Program, arrays: dict[str, Array], **options: Any) -> str:
    return str(program.plan(**arrays, backend="torch", **options))


def check(text: str, arrays: dict[str, Array]) -> ix.Program:
    """Both backends, isolated and not, are the reference."""
    program = ix.compile(text)
    expected = outputs(program(**arrays, backend="reference"))
    for backend in BACKENDS:
        for isolate in (False, True):
            for one, right in zip(outputs(program(**arrays, backend=backend, isolate=isolate)), expected, strict=True):
                np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-12, err_msg=f"{backend}\n{text}")
    return program


def random_arrays(**shapes: tuple[int, ...]) -> dict[str, Array]:
    numbers = np.random.default_rng(0)
    return {name: numbers.uniform(-0.9, 0.9, shape) for name, shape in shapes.items()}


# ------------------------------------------------------------------------------ scans


@pytest.mark.parametrize("seed", range(120))
def test_a_drawn_linear_recurrence_is_a_scan(seed: int) -> None:
    drawn = draw(seed)
    program = check(drawn.text, drawn.arrays)
    assert "\n  by scan" in plan_of(program, drawn.arrays), drawn.text


SCANS = {
    "state": (
        "input g[t], K[t, d], V[t, e]; let S[0, d, e] = K[0, d] * V[0, e];"
        "let S[t in 1..size(t), d, e] = S[t - 1, d, e] * g[t] + K[t, d] * V[t, e];",
        {"g": (70,), "K": (70, 2), "V": (70, 3)},
    ),
    "through another name": (
        "input a[t, m], x[t, m]; let kept[t in 0..size(t), m] = if t > 0 { a[t, m] * h[t - 1, m] } else { 0 };"
        "let h[t in 0..size(t), m] = kept[t, m] + x[t, m]; output h, kept;",
        {"a": (70, 2), "x": (70, 2)},
    ),
    "one after the other": (
        "input a[t, m], x[t, m]; let h[0, m] = 0.0; let h[t in 1..size(t), m] = a[t, m] * h[t - 1, m] + x[t, m];"
        "let g[size(t) - 1, m] = 0.0; let g[t in 0..size(t) - 1, m] = 0.9 * g[t + 1, m] + h[t, m]; output g, h;",
        {"a": (70, 2), "x": (70, 2)},
    ),
    "in a function": (
        "input x[t, m]; fn smooth(x[t, m], a) -> [t, m] { let h[0, m] = x[0, m];"
        "let h[t in 1..size(t), m] = a * h[t - 1, m] + (1 - a) * x[t, m]; h } let o = smooth(x, 0.9);",
        {"x": (70, 2)},
    ),
    "with edges": (
        "input a[t, m], x[t, m]; let h[0, m] = x[0, m]; let h[t in 1..size(t), 0] = x[t, 0];"
        "let h[t in 1..size(t), m in 1..size(m)] = a[t, m] * h[t - 1, m] + x[t, m];",
        {"a": (70, 3), "x": (70, 3)},
    ),
    "two rules": (
        "input a[t, m], x[t, m]; let h[0, m] = x[0, m]; let h[t in 1..10, m] = a[t, m] * h[t - 1, m] + x[t, m];"
        "let h[t in 10..size(t), m] = -h[t - 1, m] * 0.5;",
        {"a": (70, 3), "x": (70, 3)},
    ),
    "no steps": ("input x[t]; let h[t] = x[t] + if t > 0 { 0.5 * h[t - 1] } else { 0 };", {"x": (0,)}),
    "running sum": ("input x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = h[t - 1] + x[t];", {"x": (70,)}),
    "running sum from behind": (
        "input x[m, t]; let h[m, t] = x[m, t] + if t + 1 < size(t) { h[m, t + 1] } else { 0 };",
        {"x": (2, 70)},
    ),
}


@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str) -> None:
    text, shapes = SCANS[name]
    arrays = random_arrays(**shapes)
    assert "by scan" in plan_of(check(text, arrays), arrays)


REFUSED = {
    "`tanh` of it is not linear": "tanh(h[t - 1, m]) + x[t, m]",
    "`max` of it is not linear": "max(h[t - 1, m] + 1, x[t, m])",
    "it is multiplied with itself": "h[t - 1, m] * h[t - 1, m]",
    "it is divided by": "x[t, m] / (2 + h[t - 1, m] ** 2)",
    "a condition asks for it": "if h[t - 1, m] > 0 { h[t - 1, m] } else { x[t, m] }",
    "dense: its coefficients mix the points of `n`": "sum[n](x[m, n] * h[t - 1, n])",
    "dense: `h[t - 1, 1 - m]` is not its own point of `m`": "0.5 * h[t - 1, 1 - m]",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_no_scan_says_why(reason: str) -> None:
    text = f"input x[t, m]; let h[0, m] = x[0, m]; let h[t in 1..2, m in 0..2] = {REFUSED[reason]};"
    arrays = random_arrays(x=(2, 2))
    program = check(text, arrays)
    assert f"not by scan: {reason}" in plan_of(program, arrays)


def test_several_offsets_and_whole_numbers_are_stepped() -> None:
    twice = "input x[t]; let h[0] = x[0]; let h[1] = x[1]; let h[t in 2..size(t)] = 0.5 * h[t - 1] + 0.2 * h[t - 2];"
    arrays = random_arrays(x=(9,))
    assert "not by scan: it reads back 1 and 2 steps: several offsets" in plan_of(check(twice, arrays), arrays)
    whole = "input x[t] : i64; let h[0] = x[0]; let h[t in 1..size(t)] = h[t - 1] + x[t];"
    numbers = {"x": np.arange(9)}
    assert "not by scan: whole numbers are checked at every step" in plan_of(check(whole, numbers), numbers)


def test_the_plan_counts_steps_and_isolation_has_none() -> None:
    drawn = "input a[t], x[t]; let h[0] = x[0]; let h[t in 1..size(t)] = a[t] * h[t - 1] + x[t];"
    program, arrays = ix.compile(drawn), random_arrays(a=(10_000,), x=(10_000,))
    assert "  along `t` in 299 steps, not 10,000\n" in plan_of(program, arrays)
    isolated = plan_of(program, arrays, isolate=True)
    assert "by loop\n  one step after the other along `t`: 10,000 steps" in isolated
    assert "not by scan: it multiplies in another order, and `isolate=True` was asked for" in isolated


# ------------------------------------------------------------------------ not finite


def spoiled(drawn: Drawn, seed: int) -> dict[str, Array]:
    """The arrays with infinities, NaN, zeros and numbers that overflow in a few places."""
    numbers = np.random.default_rng(seed)
    arrays = {name: array.copy() for name, array in drawn.arrays.items()}
    for name in ("a", "x"):
        for value in (np.inf, -np.inf, np.nan, 0.0, 1e200, 1e-200):
            if numbers.random() < 0.5:
                flat = arrays[name].reshape(-1)
                flat[numbers.integers(len(flat))] = value
    return arrays


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_finite_stays_where_it_is(seed: int, backend: str) -> None:
    """The same cells are infinite and NaN as in a loop, and all others are the same numbers."""
    drawn = draw(seed, steps=66)
    if any(word in drawn.text for word in ("- h[", "(h[", "where")):
        return  # y - y * g is not (1 - g) * y where g is infinite, nor what was removed 0 times infinity
    program, arrays = ix.compile(drawn.text), spoiled(drawn, seed)
    found = np.asarray(program(**arrays, backend=backend))
    expected = np.asarray(program(**arrays, backend=backend, isolate=True))
    assert (np.isnan(found) == np.isnan(expected)).all(), drawn.text
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=drawn.text)


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_that_overflow_and_vanish(backend: str) -> None:
    """A product of factors may be infinite where no step is, and 0 times it is not NaN."""
    text = "input a[t, m], x[t, m]; let h[0, m] = x[0, m]; let h[t in 1..size(t), m] = a[t, m] * h[t - 1, m] + x[t, m];"
    program = ix.compile(text)
    a, x = np.full((400, 3), 1e30), np.zeros((400, 3))
    x[5, 0] = np.inf
    a[200:, 1], x[150, 1] = 0.0, 1e-250
    a[:, 2], x[::2, 2] = 0.0, 3.0
    found = np.asarray(program(a, x, backend=backend))
    expected = np.asarray(program(a, x, backend=backend, isolate=True))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isfinite(found[:5]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_that_starts_anew_does_not_hear_infinity(backend: str) -> None:
    text = "input x[t], anew[t] : bool; let h[t] = if anew[t] || t == 0 { x[t] } else { 0.5 * h[t - 1] + x[t] };"
    program = ix.compile(text)
    x, anew = np.ones(90), np.zeros(90, bool)
    x[20], anew[40] = np.inf, True
    found = np.asarray(program(x, anew, backend=backend))
    assert np.isinf(found[20:40]).all()
    assert np.isfinite(found[:20]).all()
    assert np.isfinite(found[40:]).all()


# -------------------------------------------------------------------------- gradients


def tensors(arrays: dict[str, Array]) -> dict[str, torch.Tensor]:
    return {n: torch.from_numpy(a).requires_grad_(a.dtype == np.float64) for n, a in arrays.items()}


@pytest.mark.parametrize("seed", range(40))
def test_gradients_are_those_of_a_loop(seed: int) -> None:
    drawn = draw(seed, steps=40)
    program = ix.compile(drawn.text)
    found = []
    for isolate in (False, True):
        given = tensors(drawn.arrays)
        result = program(**given, isolate=isolate)
        (result * torch.linspace(-1, 1, result.numel(), dtype=torch.float64).reshape(result.shape)).sum().backward()
        found.append([torch.zeros(()) if t.grad is None else t.grad for t in given.values()])
    for one, right in zip(*found, strict=True):
        torch.testing.assert_close(one, right, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scan_has_second_derivatives_and_tangents() -> None:
    text = "input a[t], x[t, m]; let h[t, m] = x[t, m] + if t > 0 { a[t] * h[t - 1, m] } else { 0 };"
    program = ix.compile(text)
    given = tuple(tensors(random_arrays(a=(36,), x=(36, 2))).values())
    assert torch.autograd.gradcheck(program, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(program, given)


@pytest.mark.parametrize("name", ["dense", "table"])
def test_loops_have_gradients(name: str) -> None:
    text, shapes = {
        "dense": (
            "input A[m, n], x[b, t, m]; let h[b, 0, m] = x[b, 0, m];"
            "let h[b, t in 1..size(t), m] = tanh(sum[n](A[m, n] * h[b, t - 1, n]) + x[b, t, m] * x[b, t - 1, m]);",
            {"A": (2, 2), "x": (2, 4, 2)},
        ),
        "table": (
            "input x[i, j]; let g[i, j] = x[i, j] + (if i > 0 { tanh(g[i - 1, j]) } else { 0 })"
            " + (if j > 0 { g[i, j - 1] * x[i, j - 1] } else { 0 });",
            {"x": (3, 4)},
        ),
    }[name]
    assert torch.autograd.gradcheck(ix.compile(text), tuple(tensors(random_arrays(**shapes)).values()))


# ------------------------------------------------------------------------------ tables

TABLES = {
    "forward": ("i > 0", "tanh(g[i - 1, j])", "j > 0", "g[i, j - 1] * x[i, j]"),
    "backward": ("i + 1 < size(i)", "tanh(g[i + 1, j])", "j + 1 < size(j)", "g[i, j + 1] / 2"),
    "both ways": ("i > 0", "tanh(g[i - 1, j])", "j + 1 < size(j)", "g[i, j + 1] / 2"),
    "steep": ("i > 0 && j + 1 < size(j)", "g[i - 1, j + 1] / 2", "j > 0", "sin(g[i, j - 1])"),
    "steeper": ("i > 0 && j + 2 < size(j)", "g[i - 1, j + 2] / 2", "j > 0", "sin(g[i, j - 1])"),
    "corner": ("i > 0 && j > 0", "max(g[i - 1, j - 1], g[i - 1, j], g[i, j - 1])", "j > 1", "g[i, j - 2]"),
}


def table(first: str, one: str, second: str, other: str) -> str:
    terms = f"(if {first} {{ {one} }} else {{ 0 }}) + (if {second} {{ {other} }} else {{ 0 }})"
    return f"input x[i, j]; let g[i, j] = x[i, j] + {terms};"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("shape", [(5, 7), (6, 2), (1, 4), (0, 3), (3, 0)])
def test_a_table_goes_by_diagonals(name: str, shape: tuple[int, int]) -> None:
    arrays = random_arrays(x=shape)
    program = check(table(*TABLES[name]), arrays)
    assert "by diagonals" in plan_of(program, arrays)


def test_tables_of_several_definitions_and_other_coordinates() -> None:
    gaps = """
        input s[i, j];
        let M[i, j] = s[i, j]
            + (if i > 0 && j > 0 { max(M[i - 1, j - 1], X[i - 1, j - 1], Y[i - 1, j - 1]) } else { 0 });
        let X[i in 0..size(i), j in 0..size(j)] = if i > 0 { max(M[i - 1, j] - 1.5, X[i - 1, j] - 0.5) } else { -3.0 };
        let Y[i in 0..size(i), j in 0..size(j)] = if j > 0 { max(M[i, j - 1] - 1.5, Y[i, j - 1] - 0.5) } else { -3.0 };
        output M, X, Y;
    """
    arrays = random_arrays(s=(5, 6))
    assert plan_of(check(gaps, arrays), arrays).count("by diagonals") == 3
    vectors = """
        input x[i, m, j], A[m, n];
        let g[i, m, j] = x[i, m, j] + (if i > 0 { sum[n](A[m, n] * g[i - 1, n, j]) } else { 0 })
            + (if j > 0 { tanh(g[i, m, j - 1]) } else { 0 });
    """
    arrays = random_arrays(x=(4, 3, 5), A=(3, 3))
    assert "by diagonals" in plan_of(check(vectors, arrays), arrays)


@pytest.mark.parametrize(
    ("first", "one", "reason"),
    [
        ("i > 0", "sum[k in 0..size(j)](g[i - 1, k])", "is at no fixed distance"),
        (
            "i > 0 && j + 4 < size(j)",
            "g[i - 1, j + 4]",
            "its points do not lie in diagonals",
        ),
    ],
)
def test_what_has_no_diagonals_is_stepped_point_by_point(first: str, one: str, reason: str) -> None:
    arrays = random_arrays(x=(3, 6))
    found = plan_of(check(table(first, one, "j > 0", "tanh(g[i, j - 1])"), arrays), arrays)
    assert "by loop\n  one step after the other along `i` and `j`: 18 steps\n  not by diagonals: " in found
    assert reason in found


# ------------------------------------------------------------------------------- loops

DENSE = "sum[n](A[n, m] * d_h[t + 1, n] * (1 - h[t + 1, n] * h[t + 1, n])"


@pytest.mark.parametrize(
    "clauses",
    [
        f"let d_h[size(t) - 1, m] = d_out[size(t) - 1, m]; let d_h[t in 0..size(t) - 1, m] = d_out[t, m] + {DENSE});",
        f"let d_h[t, m] = d_out[t, m] + {DENSE} where t + 1 < size(t));",
        f"let d_h[t, m] = d_out[t, m] + if t + 1 < size(t) {{ {DENSE}) }} else {{ 0 }};",
    ],
)
def test_what_flows_back_through_a_dense_recurrence(clauses: str) -> None:
    """One matrix product in a step, whatever the spelling."""
    arrays = random_arrays(A=(3, 3), h=(6, 3), d_out=(6, 3))
    program = check(f"input A[n, m], h[t, m], d_out[t, m]; {clauses}", arrays)
    source = program.source(**arrays, backend="torch")
    turn = source[source.index("for t in") :]
    assert " @ " in turn or "torch.addmv(" in turn
    assert ".sum(" not in turn


def test_networks_and_decoders_run_in_the_engine() -> None:
    gated = """
        input x[t, m], W[g in 0..3, n, m], U[g, n, p];
        let h[0, n in 0..size(n)] = 0.0;
        let h[s in 1..=size(t), n in 0..size(n)] = (1 - z[s - 1, n]) * h[s - 1, n] + z[s - 1, n] * c[s - 1, n];
        let z[t in 0..size(t), n] = sigmoid(sum[m](W[0, n, m] * x[t, m]) + sum[p](U[0, n, p] * h[t, p]));
        let r[t in 0..size(t), n] = sigmoid(sum[m](W[1, n, m] * x[t, m]) + sum[p](U[1, n, p] * h[t, p]));
        let c[t in 0..size(t), n] = tanh(sum[m](W[2, n, m] * x[t, m]) + sum[p](U[2, n, p] * r[t, p] * h[t, p]));
        output h;
    """
    check(gated, random_arrays(x=(5, 2), W=(3, 3, 2), U=(3, 3, 3)))
    decoder = """
        input x0[m], W[m, n], e[t, m];
        let x[0, m] = x0[m];
        let x[t in 1..size(t), m] = e[t, m] + tanh(sum[s in 0..t](sum[n](W[m, n] * x[s, n]) * weights[t, s]));
        let weights[t in 0..size(t), s in 0..size(t)] = softmax[s](sum[n](query[t, n] * x[s, n])) where s < t;
        let query[t in 0..size(t), m] = if t > 0 { x[t - 1, m] } else { 0 };
        output x;
    """
    check(decoder, random_arrays(x0=(3,), W=(3, 3), e=(6, 3)))


KEPT = {
    "loop": ("tanh(h[t - 1, m]) + x[t, m]", 1, "one step is kept at a time, 24 B and not 1.6 KiB"),
    "two back": ("tanh(h[t - 1, m]) + (if t > 1 { h[t - 2, m] } else { 0 })", 1, "2 steps are kept at a time"),
    "scan": ("0.5 * h[t - 1, m] + x[t, m]", 1, "one step is kept at a time"),
    "sum": ("h[t - 1, m] + x[t, m]", 1, "one step is kept at a time"),
    "more": ("tanh(h[t - 1, m]) + x[t, m]", 2, None),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_read_is_not_kept(name: str) -> None:
    rule, before, words = KEPT[name]
    clauses = f"let h[0, m] = x[0, m]; let h[t in 1..size(t), m] = {rule};"
    text = f"input x[t, m]; {clauses} let o[m] = h[size(t) - {before}, m];"
    arrays = random_arrays(x=(70, 3))
    found = plan_of(check(text, arrays), arrays)
    assert (words in found) if words else ("kept" not in found)
    given = tensors(arrays)
    assert torch.autograd.gradcheck(ix.compile(text), (given["x"][:5].detach().requires_grad_(),))


def test_what_is_sliced_in_a_step_keeps_the_way_back_linear() -> None:
    clauses = "let h[0, m] = x[0, m]; let h[t in 1..size(t), m] = tanh(h[t - 1, m] * y[m, t]) + x[t, m];"
    source = ix.compile(f"input x[t, m], y[m, t]; {clauses}").source(
        **random_arrays(x=(5, 3), y=(3, 5)), backend="torch"
    )
    assert "x_steps = x.unbind(0)" in source
    assert "y_steps = y.unbind(1)" in source


def test_a_recurrence_of_one_step_is_its_base_case() -> None:
    program = ix.compile("input y[i in 0..3]; let h[e in 0..1, i] = if e > 0 { tanh(h[e - 1, i]) } else { y[i] };")
    y = torch.arange(3.0)
    assert torch.equal(program(y), y[None])


def test_the_last_step_is_an_array_for_kernels_that_read_it() -> None:
    """Of a recurrence only its last step is kept where nothing else is read; scores read arrays."""
    program = ix.compile(
        "input x[i, d]; let z[0, i, d] = x[i, d]; let z[l in 1..3, i, d] = tanh(z[l - 1, i, d]);"
        "let y[i, d] = z[2, i, d]; let s[i, j] = sigmoid(sum[d](y[i, d] * y[j, d]) - (i - j));"
        "let out[i, e] = sum[j](s[i, j] * y[j, e] where j <= i, i - j < 3); output out;"
    )
    x = np.random.default_rng(0).normal(size=(5, 3))
    found = program(torch.tensor(x, requires_grad=True))
    np.testing.assert_allclose(found.detach(), program(x, backend="reference"), atol=1e-12)
    found.sum().backward()
