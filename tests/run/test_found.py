"""Mistakes that laws and fuzzing found in calls and values: each stays mended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import indexical as ix

X = np.array([1.0, 10.0, 100.0])

VALUES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "a local inside a normaliser does not know the branch around it": (
        "input x[k]; let y[k] = if k > 0 { cumsum[k]({ let l = sum[m](x[m] * x[k]); l }) } else { 0.0 };",
        {"x": X},
        [0.0, 1221.0, 12321.0],
    ),
    "nor the guard": (
        "input x[k]; let y[k] = (cumsum[k]({ let l[h in 0..1] = x[k]; l[0] })) where k > 0;",
        {"x": X},
        [0.0, 11.0, 111.0],
    ),
    "a row of softmax belongs to one range": (
        "input x[i]; let y[i] = sum[j in i..size(i)](softmax[j](x[0]));",
        {"x": X},
        [1.0, 1.0, 1.0],
    ),
    "also to a growing one": (
        "input x[i]; let y[i] = sum[j in 0..=i](softmax[j](x[0]) * (i + 1));",
        {"x": X},
        [1.0, 2.0, 3.0],
    ),
    "an argument binds what the function binds": (
        "fn f(s) { sum[e in 0..3](cumsum[e](s)) } input z[e]; let y = f(max[e](z[e]));",
        {"z": [2.0]},
        12.0,
    ),
    "a size in a guard is no coordinate of it": (
        "input x[i], w[j]; let y[i] = mean[j](w[j]) * x[i] where i < size(j);",
        {"x": X, "w": [2.0, 4.0]},
        [3.0, 30.0, 0.0],
    ),
    "nor is one bound deeper": (
        "input x[i], w[j]; let y[i] = (sum[j](w[j]) * x[i]) where i < size(j);",
        {"x": X, "w": [2.0, 4.0]},
        [6.0, 60.0, 0.0],
    ),
    "a guard may bind what the body binds": (
        "input x[e], y[j]; let a[e] = (x[e] * y[argmin[j](y[j])]) where x[e] > y[argmax[j](y[j])];",
        {"x": X, "y": [2.0, 4.0]},
        [0.0, 20.0, 200.0],
    ),
    "a local may capture a coordinate that starts late": (
        "input x[t], y[i]; let h[0] = 0.0; let h[t in 1..size(t)] = h[t - 1] + { let l[i] = y[i] * x[t]; l[1] };",
        {"x": X, "y": [0.0, 2.0]},
        [0.0, 20.0, 220.0],
    ),
    "so may what a function gives": (
        "fn f(g[d], s) -> [d] { g[d] * s } input x[t], y[i]; let h[0] = 0.0;"
        "let h[t in 1..size(t)] = h[t - 1] + f(y, x[t])[1];",
        {"x": X, "y": [0.0, 2.0]},
        [0.0, 20.0, 220.0],
    ),
    "clauses whose sizes agree in the call": (
        "input a[k], b[m], x[t]; let h[0, k] = a[k]; let h[t in 1..size(t), m] = h[t - 1, m] + b[m] * x[t];",
        {"a": [1.0, 2.0], "b": [3.0, 4.0], "x": [0.0, 10.0]},
        [[1.0, 2.0], [31.0, 42.0]],
    ),
    "a range that a later input explains": (
        "input u[n in 0..size(j) * 2], x[j in 0..1]; let y[n] = u[n] * x[0];",
        {"u": [1.0, 2.0], "x": [3.0]},
        [3.0, 6.0],
    ),
    "a coordinate on an axis as long as itself": (
        "input x[i]; let h[i, p in 0..size(i)] = if i > 0 { h[i - 1, i] + 1 } else { x[p] };",
        {"x": [1.0, 10.0]},
        [[1.0, 10.0], [11.0, 11.0]],
    ),
    "a size that another slot explains": (
        "input x[i]; let h[e in 0..size(t), t] = if e > 0 { h[e - 1, t] } else { x[t] };"
        "let y[e, m] = h[m, m] * h[e, m]; output y;",
        {"x": [1.0, 10.0]},
        [[1.0, 100.0], [1.0, 100.0]],
    ),
    "a size that agrees with itself and with another": (
        "input z[j]; let y[j] = { let l[p in 0..size(j)] = z[p]; l[j] * z[j] };",
        {"z": X},
        [1.0, 100.0, 10000.0],
    ),
    "a scalar that is called as a coordinate elsewhere": (
        "input x[k]; let a[i in 0..2] = n + sum[n](x[n]); let n = 7; output a;",
        {"x": X},
        [118.0, 118.0],
    ),
    "a constant that only a range reads": (
        "let x = [1, 2, 3, 4]; let half = size(i) / 2; let front[k in 0..half] = x[k]; input w[i]; output front;",
        {"w": np.zeros(4)},
        [1, 2],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value(name: str) -> None:
    text, arrays, expected = VALUES[name]
    found = ix.compile(text)(**arrays)
    assert found.tolist() == pytest.approx(expected, rel=1e-14) if np.ndim(expected) < 2 else found.tolist() == expected


def test_sizes_that_ask_for_each_other() -> None:
    found = ix.check("let y[e in 0..size(k), k in 0..size(e)] = e * k;")
    assert [finding.severity for finding in found] == ["error"]


def test_a_quotient_ties_no_space() -> None:
    text = "space a(k), b(n), c(j); input q[k in 0..4, n], z[j in 0..1]; let y[k, n] = q[n / size(j), n] * z[0];"
    assert ix.compile(text)(np.ones((4, 2)), [2.0]).tolist() == [[2.0, 2.0]] * 4


def test_spaces_are_told_apart_each_time() -> None:
    """What is short-lived must not be taken for what comes after it in the same place of the memory."""
    text = """space s0(i, j, p1, p2), s1(k, p3, p4), s2(m, p5, p6);
        input x[i], y[k in 0..4, m];
        let y7[k, p4] = softmax[p4](sum[p6](y[k, p6] * y[p4, p6]) / sqrt(3));
        let y8[p5, m, p1] = if p1 <= m { log_softmax[p1](if p1 > 0 { y[2, m] } else { y[0, p5] }) } else { x[p1] };
        let y10[p3, c9] = sum[p4](softmax[p4](sum[k](y7[p3, k] * y7[p4, k]) where p3 <= p4) * y7[p4, c9]);"""
    for _ in range(20):
        assert [str(found) for found in ix.check(text) if found.severity == "error"] == []


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("input p[j] : i32; let y = argmax[j](p[j]);", "int64"),
        ("input p[j] : i32; let y = sum[j](p[j]) + argmin[j](p[j]);", "int32"),
        ("input p[j] : i32; let y[m in 0..2] = size(m) + m;", "int64"),
    ],
)
def test_places_and_sizes_are_weak(text: str, dtype: str) -> None:
    assert ix.compile(text)(np.array([3, 4], np.int32)).dtype == np.dtype(dtype)
