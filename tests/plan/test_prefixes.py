"""Prefixes: running totals and scans in the plan, with the values of the reference, forward and backward."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
import torch

import indexical as ix

ORDERS = ("k <= i", "k < i", "k >= i", "k > i", "k <= i + 1", "k < i - 1", "i + 2 <= k", "i - k > -2", "past[i, k]")
RANGES = ("k in 0..=i", "k in 0..i", "k in i..n", "k in 1..=i", "k in i + 1..n")
BODIES = (
    "x[h, k]",
    "x[h, k] * y[k]",
    "x[h, k] * y[k] ** 2",
    "x[h, k] * y[i]",
    "y[k] * x[h, i] * x[h, k]",
    "tanh(y[k])",
)
DECAYS = ("g[h] ** (i - k)", "g[h] ** (k - i)", "0.5 ** (i - k)", "exp(-(i - k) * g[h])", "exp2((k - i) * y[0] / 3)")
STEPS = (
    "prod[m](y[m] where k < m && m <= i)",
    "prod[m](y[m] where i < m && m <= k)",
    "prod[m in k + 1..=i](y[m])",
    "prod[m](y[m] where k <= m && m < i && ok[m])",
    "prod[m in k..i](y[m])",
    "prod[m](y[m] where k + 1 < m && m <= i + 1)",
)
MORE = ("", "", " && ok[k]", " && ok[k] && k != 2", " && ok[i]", " && ok[k] && ok[i]")
WORDS = ("a running", "a scan with a decay")


def drawn(seed: int) -> str:
    draw = random.Random(seed)
    op = draw.choice(("sum", "sum", "sum", "mean", "max", "min", "prod", "any", "all", "argmax"))
    body = draw.choice(BODIES)
    if op == "sum" and draw.random() < 0.4:
        body = f"{draw.choice((*DECAYS, *STEPS))} * {body}"
    elif op not in ("sum", "mean"):
        body = draw.choice(BODIES[:3])
    body = f"{body} > 0" if op in ("any", "all") else body
    if draw.random() < 0.3:
        scan = f"{op}[{draw.choice(RANGES)}]({body})"
    else:
        scan = f"{op}[k]({body} where {draw.choice(ORDERS)}{draw.choice(MORE)})"
    later = draw.choice(("", " where i > 0", " where i != 1")) if op != "mean" else " where i > 1, i < n - 3"
    return f"""
input x[h, i], y[i], g[h], ok[i] : bool;
let n = size(i);
let past[i, k in 0..n] = k <= i;
let out[h, i] = {scan}{later};
let used[h] = g[h] + sum[i](y[i] + x[h, i] where ok[i]);
output out, used;
"""


def arrays(seed: int, points: int = 7) -> dict[str, Any]:
    noise = np.random.default_rng(seed)
    reals = {"x": noise.standard_normal((2, points)), "y": noise.standard_normal(points), "g": np.array([0.5, 0.9])}
    return {**reals, "ok": noise.random(points) < 0.7}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", range(0, 60, 20))
def test_a_prefix_is_what_it_says(start: int) -> None:
    taken = 0
    for seed in range(start, start + 20):
        program, given = ix.compile(drawn(seed)), arrays(seed, 0 if seed % 10 == 9 else 7)
        tensors = {name: torch.tensor(array) for name, array in given.items()}
        try:
            wanted = program(**given, backend="reference", outputs="out")
        except ix.Error as error:
            for refused in (given, tensors):
                with pytest.raises(ix.Error, match=error.diagnostics[0].code):
                    program(**refused, outputs="out")
            continue
        ways = [program(**given, outputs="out"), program(**tensors, outputs="out")]
        ways += [program(**one, outputs="out", isolate=True) for one in (given, tensors)]
        for found in ways:
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-9, atol=1e-12, err_msg=drawn(seed))
        taken += any(words in str(program.plan(**tensors)) for words in WORDS)
    assert taken > 12


@pytest.mark.parametrize("start", range(60, 84, 12))
def test_its_gradient_is_that_of_the_relation(start: int) -> None:
    for seed in range(start, start + 12):
        text, given = drawn(seed), arrays(seed)
        program = ix.compile(text)
        if program.ir.definitions["out"].kind != "real":
            continue
        try:
            wanted = program(**given, backend="reference", outputs="out")
        except ix.Error:
            continue
        seeded = np.random.default_rng(seed).standard_normal(wanted.shape) * np.isfinite(wanted)
        names = ("x", "y", "g")
        tensors = {n: torch.tensor(a, requires_grad=n in names) for n, a in given.items()}
        found = program(**tensors, outputs="out")
        (torch.where(torch.tensor(seeded) != 0, found, 0) * torch.tensor(seeded)).sum().backward()
        by = [name for name in names if tensors[name].grad is not None]
        derived = ix.grad(program, of="out", by=by)
        one, other = (derived(**given, d_out=seeded, backend=backend) for backend in ("reference", "numpy"))
        several = [(one, other)] if len(by) == 1 else list(zip(one, other, strict=True))
        for name, (relation, emitted) in zip(by, several, strict=True):
            np.testing.assert_allclose(tensors[name].grad, relation, rtol=1e-7, atol=1e-9, err_msg=text)
            np.testing.assert_allclose(emitted, relation, rtol=1e-7, atol=1e-9, err_msg=text)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "argmax"])
def test_it_may_be_bounded_on_both_sides(op: str) -> None:
    scan = f"{op}[k](x[k] * x[j] where j <= k && k <= i && ok[i] && ok[k])"
    program = ix.compile(f"input x[i], ok[i] : bool; let y[i, j in 0..size(i)] = {scan} where j < i;")
    x, ok = np.array([0.5, -1.0, 2.0, 1.0, -0.5]), np.array([True, False, True, True, False])
    assert WORDS[0] in str(program.plan(x, ok))
    for backend in ("numpy", "torch"):
        np.testing.assert_allclose(np.asarray(program(x, ok, backend=backend)), program(x, ok, backend="reference"))


@pytest.mark.parametrize("scan", ["sum[k](x[k] / i where k < i)", "sum[k](x[k] / (size(i) - 1 - i) where k > i)"])
def test_the_sum_of_nothing_is_0_whatever_it_is_divided_by(scan: str) -> None:
    program, x = ix.compile(f"input x[i]; let y[i] = {scan};"), np.arange(1.0, 6)
    for backend in ("numpy", "torch"):
        np.testing.assert_allclose(np.asarray(program(x, backend=backend)), program(x, backend="reference"))


@pytest.mark.parametrize("guard", ["k < i && y[k + 1] > 0", "k < i && y[i - 1] > 0", "k < i && i > 0 && y[i - 1] > 0"])
def test_a_guard_that_needs_the_order_is_asked_under_it(guard: str) -> None:
    program = ix.compile(f"input x[i], y[i]; let z[i] = prod[k](x[k] where {guard});")
    x, y = np.arange(1.0, 6), np.array([1.0, -1, 1, 1, -1])
    for backend in ("numpy", "torch"):
        np.testing.assert_allclose(np.asarray(program(x, y, backend=backend)), program(x, y, backend="reference"))


def test_jax_runs_them_too() -> None:
    pytest.importorskip("jax")
    given = arrays(0)
    scans = (
        "sum[k](x[h, k] where k < i)",
        "max[k](x[h, k] where k >= i)",
        "sum[k](g[h] ** (i - k) * x[h, k] where k <= i)",
    )
    scans += (
        "any[k](x[h, k] > 1 where k <= i)",
        "all[k](x[h, k] < 1 where k <= i)",
        "prod[k](x[h, k] where k <= i + 1)",
    )
    lets = "\n".join(f"let y{n}[h, i] = {scan};" for n, scan in enumerate(scans))
    program = ix.compile(f"input x[h, i], g[h];\n{lets}")
    given = {name: given[name] for name in ("x", "g")}
    for one, other in zip(program(**given, backend="jax"), program(**given, backend="reference"), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-9, atol=1e-12)


def test_whole_numbers_that_do_not_fit_are_refused() -> None:
    program = ix.compile("input n[i] : i64; let y[i] = sum[k](n[k] where k <= i);")
    array = np.array([2**62, 2**61, 2**61 - 1, -5])
    np.testing.assert_array_equal(program(array), array.cumsum())
    for backend in ("reference", "numpy", "torch"):
        with pytest.raises(ix.Error, match="IX505"):
            program(np.array([2**62, 2**62, -(2**62)]), backend=backend)


@pytest.mark.parametrize(
    "body", ["x[k]", "0.999 ** (i - k) * x[k]", "exp(-(i - k) * 40.0) * x[k]"], ids=["plain", "slow", "fast"]
)
def test_it_takes_linear_time_and_memory_and_stays_accurate(body: str) -> None:
    program = ix.compile(f"input x[i]; let y[i] = sum[k]({body} where k <= i);")
    x = torch.rand(200_000, requires_grad=True)
    began = time.perf_counter()
    y = program(x)
    y.sum().backward()
    assert time.perf_counter() - began < 20  # of all pairs there are 4e10
    factor = {"x": 1.0, "0": 0.999, "e": np.exp(-40.0)}[body[0]]
    exact, last = np.empty(len(x)), 0.0
    for n, value in enumerate(x.detach().double().tolist()):
        last = exact[n] = factor * last + value
    assert np.abs(y.detach().double().numpy() / exact - 1).max() < 1e-4


def test_what_is_no_prefix_stays_what_it_was() -> None:
    texts = (
        "sum[k](x[k] where k <= i, k > i - 3)",  # a difference of two prefixes would cancel
        "sum[k](x[k] * x[i - k] where k <= i)",
        "sum[k](x[k] where 2 * k <= i)",
        "sum[k](x[k] ** (i - k) where k <= i)",
    )
    for text in texts:
        program, x = ix.compile(f"input x[i]; let y[i] = {text};"), np.arange(1.0, 6)
        assert not any(words in str(program.plan(torch.tensor(x))) for words in WORDS)
        np.testing.assert_allclose(program(x), program(x, backend="reference"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ["j < k < i", "k < i && j <= k", "k < j && k >= i - 3", "k <= j && doc[k] == doc[i]"])
@pytest.mark.parametrize("op", ["sum", "prod", "max"])
def test_a_prefix_may_be_bounded_by_another_coordinate_too(op: str, order: str) -> None:
    source = f"""input x[i, k], doc[i] : i64;
let out[i, j in 0..size(k)] = {op}[k](tanh(x[i, k]) where {order});"""
    noise = np.random.default_rng(0)
    given = {"x": noise.standard_normal((5, 5)), "doc": np.array([0, 0, 1, 1, 1])}
    compiled = ix.compile(source)
    assert "a running" in str(compiled.plan(**given))
    tensors = {name: torch.from_numpy(array) for name, array in given.items()}
    wanted = compiled(**given, backend="reference")
    assert np.allclose(compiled(**given), wanted)
    assert np.allclose(compiled(**tensors).numpy(), wanted)
