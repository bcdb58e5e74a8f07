"""Sums of which a condition leaves one point are read at that point, in every spelling, and are 0 where it is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

HEAD = "input E[n, m], p[i] : i64, t[b, i] : i32, w[n, i], x[i, n];"
SPELLINGS = {
    "a row": "let out[i, m] = sum[n](E[n, m] where n == p[i]);",
    "the other way round": "let out[i, m] = sum[k](E[k, m] where p[i] == k);",
    "turned": "let out[m, i] = sum[n](E[n, m] where n == p[i]);",
    "of several": "let out[m, i, b] = sum[n](E[n, m] where t[b, i] == n);",
    "some rows": "let out[i, m] = sum[n in 0..3](E[n, m] where n == p[i]);",
    "a step further": "let out[i, m] = sum[n](E[n, m] where n == p[i] + 1);",
    "less": "let out[i, m] = sum[n](E[n, m] where n - p[i] == 1);",
    "its own column": "let out[i] = sum[n](w[n, i] where n == p[i]);",
    "under one more": "let out[i, m] = sum[n](E[n, m] where n == p[i], i > 1, n < 4);",
    "before it": "let out[i, m] = sum[n](E[n, m] where n < 4, n == p[i]);",
    "a product": "let out[i, m] = sum[n](E[n, m] * w[n, i] where n == p[i]);",
    "of all rows": "let out = sum[i, n](x[i, n] where n == p[i]);",
    "of two": "let out[i, m] = sum[n, k](E[n, m] * E[k, m] where n == p[i], k == t[1, i]);",
    "a loss": "let s[i, n] = log_softmax[n](x[i, n]); let out = -sum[i, n](s[i, n] where n == p[i]) / size(i);",
    "inlined": "let q[i] = p[i]; let out[i, m] = 2 * sum[n](E[n, m] where n == q[i]) + 1;",
    "whole": "let out[i] = sum[n](n * n where n == p[i]);",
}
OTHERS = {
    "a view": "let out[i, m] = sum[n](E[n, m] where n == i);",
    "many": "let out[i, m] = sum[n](E[n, m] where n <= p[i]);",
    "places": "let out[n, m] = sum[i](x[i, m] where p[i] == n);",
    "the largest": "let out[i, m] = max[n](E[n, m] where n == p[i] % 5);",
}


def arrays(absent: bool) -> list[torch.Tensor]:
    draw = np.random.default_rng(4)
    p = draw.integers(-2, 8, 6) if absent else draw.integers(0, 4, 6)
    t = draw.integers(-2, 8, (2, 6)) if absent else draw.integers(0, 4, (2, 6))
    reals = [torch.tensor(draw.normal(size=shape)) for shape in ((5, 5), (5, 6), (6, 5))]
    return [reals[0], torch.tensor(p), torch.tensor(t, dtype=torch.int32), *reals[1:]]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("name", [*SPELLINGS, *OTHERS])
def test_values_and_gradients_are_those_of_the_relation(name: str, absent: bool) -> None:
    program = ix.compile(f"{HEAD} {({**SPELLINGS, **OTHERS})[name]} output out;")
    given = arrays(absent)
    plan = str(program.plan(*given))
    assert ("read at `" in plan) == (name in SPELLINGS)
    assert "is a factor" not in plan
    right = program(*(array.numpy() for array in given), backend="reference")
    np.testing.assert_allclose(program(*(array.numpy() for array in given), backend="numpy"), right, atol=1e-12)
    leaves = [array.clone().requires_grad_() if array.is_floating_point() else array for array in given]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    flows: list[Any] = []
    for isolate in (False, True):
        found = program(*leaves, isolate=isolate)
        np.testing.assert_allclose(found.detach(), right, atol=1e-12)
        if found.requires_grad:
            flows.append(torch.autograd.grad((found**2).sum(), wanted, allow_unused=True))
    for mine, plain in zip(*flows, strict=True):
        assert (mine is None) == (plain is None)
        if mine is not None:
            torch.testing.assert_close(mine, plain)


MULTIPLIED = {
    "a number": "sum[n](E[n, m] * ((n == p[i]) as f64))",
    "a choice": "sum[n]((if p[i] == n { 1 } else { 0 }) * E[n, m])",
    "the other choice": "sum[n](E[n, m] * (if p[i] != n { 0 } else { w[n, i] }))",
    "by name": "sum[n](h[i, n] * E[n, m])",
}


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_factor_is_no_guard_and_the_plan_says_why(name: str) -> None:
    """A row that is not the one may still count: 0 times its infinity is NaN."""
    before = "let h[i, n] = (n == p[i]) as f64;"
    program = ix.compile(f"{HEAD} {before} let out[i, m] = {MULTIPLIED[name]}; output out;")
    given = arrays(True)
    given[0][4] = torch.inf
    assert "is a factor, and 0 times an infinity is NaN" in str(program.plan(*given))
    right = program(*(array.numpy() for array in given), backend="reference")
    assert np.isnan(right).any()
    np.testing.assert_allclose(program(*given), right, atol=1e-12)


def test_what_is_left_out_counts_for_nothing() -> None:
    program = ix.compile(f"{HEAD} {SPELLINGS['a row']} output out;")
    given = arrays(False)
    given[0][4] = torch.nan
    assert program(*given).isfinite().all()


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_of_no_rows(rows: int) -> None:
    program = ix.compile(f"input E[n, m], p[i] : i64; {SPELLINGS['a row']}")
    found = program(torch.ones(rows, 2), torch.tensor([0, 1, -1]))
    assert found.tolist() == [[float(rows)] * 2, [0.0] * 2, [0.0] * 2]


def test_it_is_mapped_and_compiled() -> None:
    program = ix.compile(f"input E[n, m], p[i] : i64; {SPELLINGS['a row']}")
    table, places = torch.randn(2, 4, 3), torch.tensor([0, 5, 3])
    mapped = torch.func.vmap(lambda E: program(E, places))(table)
    for row, found in zip(table, mapped, strict=True):
        torch.testing.assert_close(found, program(row, places))


@pytest.mark.parametrize("place", [-1, 5])
@pytest.mark.parametrize("index", ["p[i], m", "m, p[i]", "t[b, i], m"])
def test_a_place_that_is_not_there_is_refused(index: str, place: int) -> None:
    """A read that the library checks by itself refuses as the reference does."""
    slots = "b, i, m" if "t" in index else "i, m"
    program = ix.compile(f"input E[n, m], p[i] : i64, t[b, i] : i32; let out[{slots}] = E[{index}]; output out;")
    table, p, t = arrays(False)[:3]
    right = program(table.numpy(), p.numpy(), t.numpy(), backend="reference")
    np.testing.assert_allclose(program(table, p, t), right)
    p[2] = t[1, 2] = place
    with pytest.raises(ix.Error, match="out of bounds"):
        program(table, p, t)
