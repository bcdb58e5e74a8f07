"""Clauses of single points, steps that an array counts, sums over what has no part: against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

Array = np.ndarray[Any, Any]
NUMBERS = np.random.default_rng(7)


def check(text: str, arrays: dict[str, Array]) -> ix.Program:
    """Both libraries, isolated and not, are the reference: values and shapes."""
    program = ix.compile(text)
    given: dict[str, Any] = {name: arrays[name] for name in program.inputs}
    right = outputs(program(**given, backend="reference"))
    for isolate in (False, True):
        for taken in (given, {name: torch.tensor(array) for name, array in given.items()}):
            found = outputs(program(**taken, isolate=isolate))
            for one, other in zip(found, right, strict=True):
                assert one.shape == other.shape, text
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=text)
    return program


def outputs(found: Any) -> list[Array]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def random(*shape: int) -> Array:
    return np.asarray(NUMBERS.uniform(-1.0, 1.0, shape))


POINTS = {
    "alone": "let out[0] = x[0, 0];",
    "a number": "let out[0] = 0.5;",
    "first": "let out[0, j] = x[1, j];",
    "last": "let out[j, 0] = sum[i](x[i, j]);",
    "between": "let y[j, 0] = sum[i](x[i, j]); let out[i, 0] = sum[j](y[j, 0] * x[i, j]);",
    "weights": "let w[0, i, j] = softmax[j](x[i, j] where j <= i); let out[0, i] = sum[j](w[0, i, j] * x[i, j]);",
    "attention": "let out[0, i, j] = sum[k](softmax[k](sum[d in 0..3](x[i, d] * x[k, d])) * x[k, j]);",
}


@pytest.mark.parametrize("name", POINTS)
def test_a_clause_of_one_point_has_an_axis_for_it(name: str) -> None:
    check(f"input x[i, j]; {POINTS[name]}", {"x": random(3, 3)})


STEPS = {
    "backward": "let t[0, p] = x[0, p] + t[1, p] * z[1, p]; let t[1, p] = x[1, p]; let out = sum[p](t[0, p]);",
    "no other axis": "let t[0] = x[0, 0] + 0.5 * t[1]; let t[1] = x[1, 0]; let out[m in 0..2] = t[m] * 2;",
    "second axis": "let t[p, 0] = x[0, p]; let t[p, 1] = t[p, 0] + x[1, p]; let out[p] = t[p, 1];",
    "two back": "let t[0] = x[0, 0]; let t[1] = x[1, 0]; let t[2] = 0.5 * t[0] + x[2, 0]; let out = t[2];",
    "product": "let t[1] = x[0, 0]; let t[0] = t[1] * x[1, 0]; let out = t[0];",
    "a range of one": "let t[m in 0..1, p] = x[m, p]; let t[m in 1..3, p] = 0.5 * t[m - 1, p] + x[m, p];",
}


@pytest.mark.parametrize("name", STEPS)
def test_a_scan_of_single_points(name: str) -> None:
    check(f"input x[m, p], z[m, p]; {STEPS[name]}", {"x": random(3, 3), "z": random(3, 3)})


@pytest.mark.parametrize("rule", ["tanh(d[p] + t[p - 1])", "0.5 * t[p - 1] + d[p]"])
@pytest.mark.parametrize("out", ["let out = t[s - 1] * 2;", "let out[p] = t[s - 1] * 2 where d[p] > 0;"])
def test_the_last_step_is_read_where_an_array_says_how_many(rule: str, out: str) -> None:
    text = f"input s : i64, d[p in 0..s]; let t[0] = d[0]; let t[p in 1..s] = {rule}; {out}"
    check(text, {"s": np.array(4), "d": random(4)})


def test_what_neither_place_nor_mask_varies_with_is_added_up_before() -> None:
    text = """input u[i, n], D[m, p, j];
    let out[i, n] = sum[m, p, j](D[m, p, j] where min(j, size(i) - 1) == i, j + m >= size(j),
        argmin[n_1](u[(j + 1) % size(i), n_1]) == n);"""
    check(text, {"u": random(2, 3), "D": random(3, 3, 3)})


def test_a_step_is_never_called_by_a_number() -> None:
    text = """input X[i], Y[i];
    let weights[d in 0..4] = (softmax[d](X[d] * Y[d])) where 2 <= d;
    let out = sum[d in 0..4](softmax[d](X[d] * Y[d]) * (if 2 <= d { weights[d] } else { 0 }));"""
    check(text, {"X": random(4), "Y": random(4)})


REPEATED = {
    "two sums": "let out = sum[h, i, d in 0..size(k)](a[i] * b[h]);",
    "a matrix and a vector": "let out[i] = sum[j, d in 0..size(k)](x[i, j] * z[j, 1] where j > 0);",
    "matrices": "let out[i, h] = sum[j, d in 0..size(k) * 2](x[i, j] * z[j, h]);",
    "mean": "let out[i, h] = mean[j, d in 0..size(k)](x[i, j] * z[j, h]);",
    "several": "let out[h] = sum[i, j, d in 0..3, e in 0..size(k)](x[i, j] * z[j, h] * a[i]);",
    "no points": "let out[i, h] = sum[j, d in 0..size(k) - 5](x[i, j] * z[j, h]);",
    "infinite": "let out[i, h] = sum[j, d in 0..size(n)](x[i, j] / (z[j, h] - z[j, h]));",
    "windows": "let out[i in 0..2] = sum[j in 0..2, h in 0..2, d in 0..size(k)](x[i + h, j] * z[h, j]);",
    "masked": "let out[i, h] = sum[j, d in 0..size(k)](x[i, j] * z[j, h] where j <= i);",
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_no_factor_varies_with_is_counted(name: str) -> None:
    arrays = {"a": random(3), "b": random(2), "x": random(3, 4), "z": random(4, 2), "y": random(5), "w": random(0)}
    check(f"input a[i], b[h], x[i, j], z[j, h], y[k], w[n]; {REPEATED[name]}", arrays)


ENDLESS = {
    "by name": "let out[i] = -sum[j](T[i, j] * log_p[i, j] where j <= i);",
    "in place": "let out[i] = -sum[j](T[i, j] * log_softmax[j](X[i, j] where j <= i) where j <= i);",
    "a branch": "let out[i, j] = if j <= i { T[i, j] * log_p[i, j] } else { 0 };",
    "a guard": "let out[i, j] = T[i, j] * log_p[i, j] where j <= i;",
    "through another": "let q[i, j] = log_p[i, j] * 2; let out[i] = sum[j](T[i, j] * q[i, j] where j <= i);",
    "divided": "let out[i, j] = if j <= i { log_p[i, j] / T[i, j] } else { 0 };",
    "of no points": "let top[i] = max[j](X[i, j] where j < i); let out[i] = if i > 0 { T[i, 0] * top[i] } else { 0 };",
    "contracted": "let top[i] = max[j](X[i, j] where j < i);"
    "let out[j, k] = sum[i](top[i] * T[i, k] * X[i, j] where j < i);",
    "entropy": "let out[i] = -sum[j](exp(log_p[i, j]) * log_p[i, j] where j <= i) + T[i, 0];",
    "entropy by weights": "let p[i, j] = softmax[j](X[i, j] where j <= i);"
    "let out[i] = -sum[j](p[i, j] * log_p[i, j] where j <= i) + T[i, 0];",
    "silu": "let out[i, j] = silu(log_p[i, j]) * T[i, j] where j <= i;",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_is_infinite_where_a_guard_removed_it_does_not_flow_back(name: str) -> None:
    shared = "let log_p[i, j] = log_softmax[j](X[i, j] where j <= i);" if "log_p" in ENDLESS[name] else ""
    arrays = {"X": random(3, 3) + 2, "T": random(3, 3)}
    program = check(
        f"input X[i, j], T[i, {'k' if '[i, k]' in ENDLESS[name] else 'j'}]; {shared} {ENDLESS[name]}", arrays
    )
    X, T = (torch.tensor(arrays[key], requires_grad=True) for key in "XT")
    result = program(X=X, T=T)
    way = torch.tensor(random(*result.shape))
    found = torch.autograd.grad(result, (X, T), way)
    given: dict[str, Any] = {**arrays, "d_out": way.numpy()}
    right = ix.grad(program, of="out", by=("X", "T"))(**given, backend="reference")
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("op", ["argmin", "argmax"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_place_among_no_points_at_which_nobody_looks(op: str, count: int) -> None:
    text = f"input x[i], s : i64; let out[i] = if i == {op}[k in 1..s](x[k]) {{ 1.0 }} else {{ 2.0 }} where 1 <= i;"
    check(text, {"x": random(count), "s": np.array(count)})
    text = f"input x[i], y[k]; let out[i] = if size(k) > 1 {{ x[{op}[k](y[k])] }} else {{ x[i] }};"
    check(text, {"x": random(3), "y": random(count - 1)})


def test_a_pole_before_a_loop_is_not_asked_about_its_step() -> None:
    text = """input y, z[h, i];
    let t[0, 0] = 0.5;
    let t[h in 1..3, 0] = tanh(t[h - 1, 0] + 0.3 / (abs(y) + 0.5));
    let t[0, i in 1..size(i)] = tanh(t[0, i - 1] - z[0, i]);
    let t[h in 1..3, i in 1..size(i)] = tanh(t[h - 1, i - 1] + z[h, i]);"""
    check(text, {"y": random(), "z": random(3, 4)})


LEANING = {
    "twice in a branch": "let out[k] = (if y[k] > 0 { sqrt(abs(y[k])) + tanh(sqrt(abs(y[k]))) } else { 0 })"
    "+ tanh(sqrt(abs(y[k])));",
    "two branches": "let s[k] = y[k] * 2; let out[k] = (if y[k] > 0 { log(s[k]) * exp(log(s[k])) } else { 0 })"
    "+ (if y[k] < 0 { exp(log(abs(s[k]))) * log(abs(s[k])) } else { 0 });",
    "sums": "let out[k] = sum[p](d[k, p] * tanh(log(abs(y[k]) + 1)) * (1 - tanh(log(abs(y[k]) + 1))) where y[k] > 0)"
    "- sum[p](d[k, p] * tanh(log(abs(y[k]) + 1)) * (1 - tanh(log(abs(y[k]) + 1))) where y[k] < 0);",
}


@pytest.mark.parametrize("name", LEANING)
def test_what_is_made_of_a_number_that_stands_in_is_not_used_elsewhere(name: str) -> None:
    check(f"input y[k], d[k, p]; {LEANING[name]}", {"y": random(6), "d": random(6, 2)})
