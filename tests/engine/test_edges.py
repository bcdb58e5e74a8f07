"""Small programs on the edges of the language: overflow, division by 0, no points, places outside, ties and guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.engine import door
from tests.engine.drawing import Array, Drawn
from tests.engine.judging import Judged

import indexical as ix

INF, NAN = np.inf, np.nan

CASES: list[tuple[str, dict[str, Array]]] = [
    ("input a[i]: i64; let y[i] = a[i] / -1;", {"a": np.array([-(2**63), 3], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] / -1;", {"a": np.array([-5, 3], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] + a[i];", {"a": np.array([1, 2, 2**62], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] + a[i];", {"a": np.array([1, 2, -(2**62)], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] + a[i] where a[i] < 5;", {"a": np.array([1, 2, 2**62], "int64")}),
    ("input a[i]: i64; let y[i] = if a[i] < 5 {a[i] * a[i]} else {0};", {"a": np.array([1, 2, 2**62], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] * a[i];", {"a": np.array([1, 2, 2**62], "int64")}),
    ("input a[i]: i64; let y[i] = -a[i];", {"a": np.array([1, -(2**63)], "int64")}),
    ("input a[i]: i64; let y[i] = abs(a[i]);", {"a": np.array([1, -(2**63)], "int64")}),
    ("input a[i]: i64; let y[i] = 7 / a[i];", {"a": np.array([1, 0], "int64")}),
    ("input a[i]: i64; let y[i] = 7 / a[i] where a[i] != 0;", {"a": np.array([1, 0], "int64")}),
    ("input a[i]: i64; let y[i] = 7 % a[i];", {"a": np.array([1, 0], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] / 2;", {"a": np.array([-3, 3], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] % 2;", {"a": np.array([-3, 3], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] ** a[i];", {"a": np.array([3, 4], "int64")}),
    ("input a[i]: i64; let y[i] = a[i] ** a[i];", {"a": np.array([3, 40], "int64")}),
    ("input a[i]: i64; let y[i] = 2 ** a[i];", {"a": np.array([3, -1], "int64")}),
    ("input a[i]: i64; let y = sum[i](a[i]);", {"a": np.array([2**62, 2**62, 1], "int64")}),
    ("input a[i]: i64; let y = sum[i](a[i] where a[i] < 9);", {"a": np.array([2**62, 2**62, 1], "int64")}),
    ("input a[i]: i64; let y = prod[i](a[i]);", {"a": np.array([2**62, 4, 1], "int64")}),
    ("input a[i]: i64; let y[i] = cumsum[i](a[i]);", {"a": np.array([2**62, 2**62, 1], "int64")}),
    ("input a[i]: i64; let y = max[i](a[i]);", {"a": np.array([], "int64")}),
    ("input a[i]: i64; let y = max[i](a[i] where a[i] > 5);", {"a": np.array([1, 2], "int64")}),
    ("input a[i]; let y = max[i](a[i]);", {"a": np.array([], "float64")}),
    ("input a[i]; let y = mean[i](a[i]);", {"a": np.array([], "float64")}),
    ("input a[i]; let y = mean[i](a[i] where i > 5);", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y = mean[i](a[i] where a[i] > 5);", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y = argmax[i](a[i]);", {"a": np.array([], "float64")}),
    ("input a[i]; let y = argmax[i](a[i] where a[i] > 5);", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y = argmax[i](a[i] where i > 5);", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y = argmax[i](a[i] where i > 0);", {"a": np.array([-INF, -INF], "float64")}),
    ("input a[i]; let y[i] = rank[i](a[i] where i > 0);", {"a": np.array([-INF, -INF, 1.0], "float64")}),
    (
        "input a[i]; input b[i]; let y = argmax[i](a[i] where b[i] > 0);",
        {"a": np.array([-INF, -INF, NAN], "float64"), "b": np.array([0.0, 1.0, 0.0], "float64")},
    ),
    ("input a[i]; let y[i] = a[i] as i64;", {"a": np.array([1.5, -2.5], "float64")}),
    ("input a[i]; let y[i] = a[i] as i64;", {"a": np.array([1.5, NAN], "float64")}),
    ("input a[i]; let y[i] = a[i] as i32;", {"a": np.array([1.5, 3000000000.0], "float64")}),
    ("input a[i]; let y[i] = a[i] as i32 where a[i] < 5;", {"a": np.array([1.5, 3000000000.0], "float64")}),
    ("input a[i]: i64; let y[i] = a[i] as i32;", {"a": np.array([1, 2**40], "int64")}),
    ("input a[i]: i32; let y[i] = a[i] + a[i];", {"a": np.array([1, 2**30], "int32")}),
    ("input a[i]: i32; let y[i] = a[i] * a[i] / a[i];", {"a": np.array([1, 2**30], "int32")}),
    ("input a[i]: i32; let y[i] = a[i] + i;", {"a": np.array([1, 2**30], "int32")}),
    ("input a[i]: i32; let y = sum[i](a[i]);", {"a": np.array([2**30, 2**30], "int32")}),
    ("input a[i]: i32; let y[i] = a[i] < 5000000000;", {"a": np.array([1, 2**30], "int32")}),
    ("input n: i64; let y = n * n;", {"n": np.array(2**62, "int64")}),
    ("input n: i64; let y = 5 / n;", {"n": np.array(0, "int64")}),
    ("input n: i64; let y = if n > 0 {5 / n} else {3};", {"n": np.array(0, "int64")}),
    ("input n: i64; let y[i in 0..4] = if i > 7 {5 / n} else {3};", {"n": np.array(0, "int64")}),
    ("input n: i64; let y[i in 0..4] = if i > 2 {5 / n} else {3};", {"n": np.array(0, "int64")}),
    ("input n: i64; let y[i in 0..4] = 5 % n + i;", {"n": np.array(0, "int64")}),
    ("input a[i]; let y = a[5];", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y[i] = a[i + 1] where i < 1;", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y[i] = if i + 1 < size(i) {a[i + 1]} else {0};", {"a": np.array([1.0, 2.0], "float64")}),
    (
        "input a[i]; input p[j]: i64; let y[j] = a[p[j]];",
        {"a": np.array([1.0, 2.0], "float64"), "p": np.array([0, 1, 2], "int64")},
    ),
    (
        "input a[i]; input p[j]: i64; let y[j] = a[p[j]];",
        {"a": np.array([1.0, 2.0], "float64"), "p": np.array([0, 1, -1], "int64")},
    ),
    (
        "input a[i]; input p[j]: i64; let y[j] = a[p[j]] where p[j] >= 0;",
        {"a": np.array([1.0, 2.0], "float64"), "p": np.array([0, 1, -1], "int64")},
    ),
    (
        "input a[i]; input p[j]: i64; let y[j] = a[p[j]] where p[j] >= 0 && p[j] < 2;",
        {"a": np.array([1.0, 2.0], "float64"), "p": np.array([0, 7, -1], "int64")},
    ),
    ("input a[i]; let c[i in 0..3] = 2.0; let y[i] = c[i + 1];", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let c[k in 0..3] = 2.0; let y[i] = c[i + 2];", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y[i] = [1, 2, 3][i + 2];", {"a": np.array([1.0, 2.0], "float64")}),
    (
        "input a[i]; input b[j]; let y[i] = a[i] + b[i];",
        {"a": np.array([1.0, 2.0], "float64"), "b": np.array([1.0, 2.0], "float64")},
    ),
    ("input a[i]; let y = sqrt(size(i)) / (size(i) - 2) ;", {"a": np.array([1.0, 2.0], "float64")}),
    (
        "input a[i]; let y[i] = a[i] * exp(1000.0 * size(i)) + log(size(i) - 2) ;",
        {"a": np.array([1.0, 2.0], "float64")},
    ),
    ("input a[i]; let y[i] = a[i] + (size(i) - 3.0) ** 0.5;", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y[i] = a[i] * (1 / (size(i) - 2.0));", {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y[i] = a[i] + ((size(i) * 1.5) as i64);", {"a": np.array([1.0, 2.0], "float64")}),
    ('input a[i]; assert size(i) > 3, "few"; let y[i] = a[i];', {"a": np.array([1.0, 2.0], "float64")}),
    ("input a[i]; let y[i, k in 0..3] = sum[j in 0..(i + k) % 3](a[i] * j);", {"a": np.array([1.0, 2.0], "float64")}),
    (
        "input a[i]; let y[i] = a[i] where a[i] > 1; let z[i] = log(a[i] - 1) where a[i] > 1; let w[i] = "
        "y[i] * z[i];",
        {"a": np.array([1.0, 2.0, INF], "float64")},
    ),
    ("input a[i]: i64; let y[i] = rank[i](a[i] where i > 0);", {"a": np.array([5, -(2**63), 7], "int64")}),
    ("input a[i]: i64; let y = argmax[i](a[i] where i > 0);", {"a": np.array([-(2**63), -(2**63)], "int64")}),
    ("input a[i]: i64; let y[i] = clamp(a[i], 0, 3) + max(a[i], 1, 2);", {"a": np.array([-5, 7], "int64")}),
    ("input a[i]: i8; let y[i] = a[i] * 100;", {"a": np.array([100, 3], "int8")}),
    ("input a[i]: u8; let y[i] = a[i] - 100;", {"a": np.array([100, 3], "uint8")}),
    (
        "input a[i]; let m = argmax[i in 1..2](a[i] where a[i] > 9); let y = m;",
        {"a": np.array([1.0, 2.0], "float64")},
    ),
    ("input a[i]; let y[i] = sum[k in 0..3](if k > 5 {a[i + k]} else {0});", {"a": np.array([1.0, 2.0], "float64")}),
    (
        "input a[i]; let y[i, k in 0..3] = tanh(sum[n in 0..3](0.1 where i <= k));",
        {"a": np.array([1.0, 2.0], "float64")},
    ),
    (
        "input a[i], b[j]; let w[i] = tanh(a[i]); let t = sum[n in 0..size(i)](w[n]); "
        "let y[j] = sum[n in 0..size(i)](w[n] * (a[n] - t) where n / 2 == j);",
        {"a": np.array([1.0, 2.0, 4.0], "float64"), "b": np.array([1.0, 2.0], "float64")},
    ),
    (
        "input a[i], p[j]: i64; let y[j] = sum[i](a[i] where i == p[j], i == p[j]);",
        {"a": np.array([1.0, 2.0, 4.0], "float64"), "p": np.array([1, 7], "int64")},
    ),
    (
        "input a[i]; let y[i] = (tanh(y[i - 1]) + cumsum[i](a[i])) where i > 0;",
        {"a": np.array([1.0, 2.0, 4.0], "float64")},
    ),
    ("input a[i, j]; let y[k in 0..1, n in 0..3] = a[2 - n + k, 2 - n + k];", {"a": np.arange(9.0).reshape(3, 3)}),
    ("input a[n, j, i]; let y[i, k] = a[k, k, i - k] where k <= i;", {"a": np.arange(27.0).reshape(3, 3, 3)}),
]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_an_edge_is_as_the_reference_has_it(number: int, library: str) -> None:
    text, arrays = CASES[number]
    case = Judged(Drawn(text, arrays, "edges", number))
    for plainly in (False, True):
        fault = case.fault(library, isolate=True, plainly=plainly)
        assert fault is None, f"{text}\n{fault}"


def test_edges_are_refused_and_are_not() -> None:
    refused = sum(Judged(Drawn(text, arrays, "edges", 0)).wanted is None for text, arrays in CASES)
    assert 30 <= refused <= len(CASES) - 30


def test_what_is_computed_ahead_of_a_loop_may_not_be_there() -> None:
    """A row that only later turns of the outer loop read, of an array that has none."""
    text = """
        input a[i]: i64, b[j]: i64;
        let D[0, j in 0..=size(j)] = j;
        let D[i in 1..=size(i), 0] = i;
        let D[i in 1..=size(i), j in 1..=size(j)] = {
            let other = if a[i - 1] == b[j - 1] { 0 } else { 1 };
            min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + other)
        };
        let distance = D[size(i), size(j)];"""
    program = ix.compile(text)
    given = np.zeros(0, int), np.array([1, 2, 0])
    assert program(*given, isolate=True) == program(*map(torch.from_numpy, given), isolate=True) == 3


def test_what_a_guard_removes_may_be_infinite_in_a_recurrence() -> None:
    text = """
        input w[l, i, j], v[l, j, e];
        let x[0, i, e] = v[0, i, e];
        let x[l in 1..size(l), i, e] = tanh(sum[j](w[l, i, j] * y[l - 1, j, e] where j <= i));
        let y[l in 0..size(l), i, e] = 1 / (x[l, i, e] - v[l, i, e] * x[l, i, e]);
        output x;"""
    generator = np.random.default_rng(0)
    v = generator.standard_normal((3, 4, 2))
    v[:, 2] = 1  # Here x - v·x is 0.
    given = generator.standard_normal((3, 4, 4)), v
    program = ix.compile(text)
    np.testing.assert_allclose(program(*given), program(*given, backend="reference"))


def test_layers_gather_with_weights_by_one_product() -> None:
    """Values that may be infinite, as those of a norm may, are kept apart by `isolate` alone, as in a kernel."""
    text = """
        input q[l, i, d], v[i, e];
        let y[0, i, e] = v[i, e];
        let y[l in 1..size(l), i, e] = x[l - 1, i, e] / sqrt(sum[k](x[l - 1, i, k] ** 2));
        let w[l in 0..size(l), i, j] = softmax[j](sum[d](q[l, i, d] * q[l, j, d])) where j <= i;
        let x[l in 0..size(l), i, e] = sum[j](w[l, i, j] * y[l, j, e]);
        output x;"""
    generator = np.random.default_rng(0)
    q, v = generator.standard_normal((3, 5, 4)), generator.standard_normal((5, 2))
    program = ix.compile(text)
    np.testing.assert_allclose(program(q, v), program(q, v, backend="reference"))
    assert " @ " in program.source(q, v).split("x_rows[")[-1]
    assert "NaN and infinity may spread (`isolate=True` keeps them apart)" in str(program.plan(q, v))
    v[3] = INF
    found = program(q, v, isolate=True)
    np.testing.assert_allclose(found, program(q, v, backend="reference"))
    assert np.isfinite(found[0, :3]).all()


def test_only_weights_leave_what_they_remove_to_isolate() -> None:
    """The guard of another factor keeps a pole out, also where a softmax is beside it."""
    text = """
        input s[i, j], x[j];
        let y[0, i] = x[i];
        let w[t in 0..3, i, j] = softmax[j](s[i, j] * y[t, i]) where j <= i;
        let m[t in 0..3, i, j] = y[t, i] * s[i, j] where x[j] != 0;
        let y[t in 1..3, i] = tanh(sum[j](w[t - 1, i, j] * m[t - 1, i, j] * (1 / x[j])))
            + tanh(sum[j](m[t - 1, i, j] * (w[t - 1, i, j] / x[j]))) + sum[j](w[t - 1, i, j] * x[i - j]);
        output y;"""
    program = ix.compile(text)
    given = np.random.default_rng(0).standard_normal((4, 4)), np.array([1.0, 0.0, 3.0, 0.5])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(program(*given), program(*given, backend="reference"))


@pytest.mark.parametrize(
    "text", ["a % b", "max(a, b)", "min(1, a, b)", "clamp(a, b, 1)", "clamp(1, a, b)", "rsqrt(a * b)"]
)
def test_numbers_of_the_host_are_as_the_reference_has_them(text: str) -> None:
    """Scalars that are Python's numbers, whose own functions raise errors, or lose a NaN that stands second."""
    program = ix.compile(f"input a, b, x[i]; let y[i] = x[i] + ({text});")
    numbers = (0.0, -0.0, 1.5, -2.5, INF, -INF, NAN)
    for a, b in ((a, b) for a in numbers for b in numbers):
        expected = program(a, b, np.ones(1), backend="reference")
        np.testing.assert_array_equal(program(a, b, np.ones(1)), expected, f"{a}, {b}")
        np.testing.assert_array_equal(program(a, b, torch.ones(1, dtype=torch.float64)), expected, f"{a}, {b}")


@pytest.mark.parametrize("library", [np.array, torch.tensor])
def test_a_power_by_a_whole_number_of_the_host(library: Callable[[list[int]], Any]) -> None:
    program = ix.compile("input b[i] : i64, s : i64; let r[i] = b[i] ** s;")
    assert [int(one) for one in program(library([2, 3]), 2)] == [4, 9]
    with pytest.raises(ix.CallError, match="IX505"):
        program(library([2, 3]), -1)


@pytest.mark.parametrize("shapes", [((5, 0), (4, 0)), ((5, 2), (0, 2)), ((0, 2), (4, 2)), ((5, 2), (4, 2))])
def test_the_way_back_of_a_scatter_knows_what_has_no_place(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """PyTorch looks at no place where it adds no numbers, and looks at all of them on the way back."""
    program = ix.compile("input x[t, d], y[n, d], p[t] : i64; let s[n, d] = y[n, d] + sum[t](x[t, d] where p[t] == n);")
    x, y = (torch.ones(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    places = torch.tensor([0, 9, -1, 3, 4])[: len(x)]
    program(x, y, places).sum().backward()
    there = (places >= 0) & (places < len(y))
    torch.testing.assert_close(x.grad, there.to(x.dtype)[:, None].expand_as(x))


def _of_jax(array: Array) -> Any:
    return pytest.importorskip("jax").numpy.asarray(array)


_MADE: dict[str, Callable[[Array], Any]] = {"numpy": np.asarray, "torch": torch.from_numpy, "jax": _of_jax}


@pytest.mark.parametrize("library", door.LIBRARIES)
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("input x[i, k]; let y[i] = mean[k](x[i, k]);", [(0, 0)]),
        ("input x[i, k]; let y[i] = mean[k](x[i, k] where k < 2);", [(0, 0)]),
        ("input x[i, k]; let y[i] = argmax[k](x[i, k]);", [(0, 0)]),
        ("input x[i, k]: i32; let y[i] = max[k](x[i, k]);", [(0, 0)]),
        ("input w[k], z[i]; let y[i] = z[i] * mean[k](w[k]);", [(0,), (0,)]),
        ("input w[k], z[i]; let y[i] = z[i] * argmin[k](w[k] where k < 2);", [(0,), (0,)]),
        ("input x[j, k], z[j]; let y = sum[j](z[j] * mean[k](x[j, k]));", [(0, 0), (0,)]),
        ("input x[t, i]; let y[t, i] = (x[t, i] + mean[s in 1..t](y[s, i])) where t > 0;", [(2, 0)]),
        (
            "input x[t], w[k]; let y[t] = x[t] where t == 0; "
            "let y[t] = sin(y[t - 1] * x[t]) + mean[k](w[k] * y[t - 1]) where t >= 1;",
            [(0,), (0,)],
        ),
    ],
)
def test_an_emitted_file_refuses_nothing_where_no_point_asks(
    text: str, shapes: list[tuple[int, ...]], library: str
) -> None:
    program = ix.compile(text)
    whole = [one.kind == "whole" for one in program.ir.inputs]
    arrays = [np.zeros(shape, "i4" if is_whole else "f4") for shape, is_whole in zip(shapes, whole, strict=True)]
    given = dict(zip(program.inputs, map(_MADE[library], arrays), strict=True))
    source = program.source(**given)
    assert "IX310" in source
    found, expected = door.load(source)["program"](*given.values()), program(**given)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert not np.asarray(found).any()


def test_a_definition_without_points_refuses_no_gradient_of_another() -> None:
    text = "input x[i], y[j], z[k]; let c[j] = x[0] * y[j]; let o[k] = z[k] ** 2;"
    x, y, z = (torch.ones(size, dtype=torch.float64, requires_grad=True) for size in (0, 0, 3))
    program = ix.compile(text)
    for memory in (None, "1MiB"):
        with pytest.warns(ix.SlowPath):
            found = program(x, y, z, memory=memory)
        assert found.c.shape == (0,)
        torch.testing.assert_close(torch.autograd.grad(found.o.sum(), z)[0], 2 * z)


SHIFTED = {
    "sums": "A[t + u, b + c] * Z[c, b] where 0 <= t + u < size(k), 0 <= b + c < size(i)",
    "differences": "A[u + 1, b - c] * Z[c, b] where 0 <= u + 1 < size(k), 0 <= b - c < size(i)",
    "quotients": "A[t / 2 + u, b + c - 1] * Z[size(c) - 1 - c, b] where t / 2 + u < size(k), 0 <= b + c - 1 < size(i)",
    "steps": "Z[c, b] * A[t - u, 2 * b + c] where c <= b, 2 * b + c < size(i), 0 <= t - u < size(k)",
}


@pytest.mark.parametrize("backend", door.LIBRARIES)
@pytest.mark.parametrize("name", SHIFTED)
def test_a_table_that_is_read_outside_along_another_axis(name: str, backend: str) -> None:
    """Its weights may be added up for each place first: other places are still not there."""
    program = ix.compile(f"""
        input A[k, i], Z[c, k], many[u];
        let y[c, u in 0..size(u), t in 0..size(i)] = sum[b in 0..size(k) - 1]({SHIFTED[name]});
    """)
    rng = np.random.default_rng(0)
    for k, i, c, u in ((2, 2, 6, 2), (4, 6, 2, 4), (1, 6, 4, 6), (6, 4, 1, 4), (5, 3, 5, 2)):
        given = rng.normal(size=(k, i)), rng.normal(size=(c, k)), np.zeros(u)
        wanted = program(*given, backend="reference")
        np.testing.assert_allclose(program(*given, backend=backend), wanted, atol=1e-12)


@pytest.mark.parametrize("backend", door.LIBRARIES)
def test_a_place_of_a_table_that_is_not_there_is_refused_beside_one_that_is_summed(backend: str) -> None:
    program = ix.compile("input A[k, i], Z[c, m], T[t]; let y[t, c] = sum[m](A[t + 1, m + c] * Z[c, m]) + T[t];")
    with pytest.raises(ix.Error, match="IX305"):
        program(np.ones((2, 3)), np.ones((2, 2)), np.ones(2), backend=backend)


@pytest.mark.parametrize("backend", door.LIBRARIES)
def test_a_remainder_of_no_points_is_not_read_where_a_guard_removes_it(backend: str) -> None:
    program = ix.compile("input C[j], N[i]; let y[i] = if N[i] > 5 { C[(i + 1) % size(j)] } else { 1.0 };")
    for isolate in (False, True):
        np.testing.assert_array_equal(program(np.zeros(0), np.zeros(3), backend=backend, isolate=isolate), np.ones(3))


@pytest.mark.parametrize("backend", door.LIBRARIES)
def test_a_sum_of_chosen_whole_numbers_has_the_dtype_of_the_choice(backend: str) -> None:
    program = ix.compile("input p[i] : i64; let y[n in 0..2] = 0.1 * sum[i](2 * ((p[i] == n) as f64));")
    found = np.asarray(program(np.array([0, 1, 1]), backend=backend))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [0.2, 0.4], rtol=1e-15)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_an_emitted_sum_has_to_fit_only_where_it_is_asked_for(backend: str) -> None:
    program = ix.compile("input a[i] : i64, m[i] : bool; let y[i] = sum[j in 0..3](a[i] where j <= i) where m[i];")
    a, m = np.array([1, 2, 3, 2**62]), np.array([True, False, True, False])
    scope: dict[str, Any] = {}
    exec(program.source(a, m, backend=backend), scope)
    here = torch.from_numpy if backend == "torch" else np.asarray
    assert scope["program"](here(a), here(m)).tolist() == [1, 0, 9, 0]


def test_guards_that_are_checked_take_time_linear_in_their_number() -> None:
    """Each is lowered once, though each asks for the mask of those before it."""
    guard = " && ".join(f"a{n} * i - j >= a{n} * j - i" for n in range(12))
    given = "".join(f", a{n} : i64" for n in range(12))
    program = ix.compile(f"input x[i, j]{given}; let y[i] = sum[j](tanh(x[i, j]) where {guard});")
    numbers = {f"a{n}": n + 1 for n in range(12)}
    x = np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(program(x, **numbers), program(x, **numbers, backend="reference"))
