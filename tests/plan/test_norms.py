"""Normalisations run as the library's kernels in every spelling of them, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402

NAMED = """
let centre[i] = mean[m](x[i, m]);
let spread[i] = mean[m]((x[i, m] - centre[i]) ** 2);
let y[{axes}] = {body};
"""
SPELLINGS = {
    "named": NAMED.format(axes="i, m", body="(x[i, m] - centre[i]) * rsqrt(spread[i] + 1e-5) * g[m] + b[m]"),
    "divided": NAMED.format(axes="i, m", body="b[m] + g[m] * ((x[i, m] - centre[i]) / sqrt(1e-5 + spread[i]))"),
    "no bias": NAMED.format(axes="i, m", body="g[m] * (x[i, m] - centre[i]) / sqrt(spread[i] + 1e-5)"),
    "no gain": NAMED.format(axes="i, m", body="(x[i, m] - centre[i]) * rsqrt(spread[i] + 1e-5) + b[m]"),
    "turned": NAMED.format(axes="m, i", body="(x[i, m] - centre[i]) * rsqrt(spread[i] + 1e-5) * g[m] + b[m]"),
    "a product": """
        let c[i] = mean[k](x[i, k]);
        let v[i] = mean[k]((x[i, k] - c[i]) * (x[i, k] - c[i]));
        let y[i, m] = (x[i, m] - c[i]) * rsqrt(v[i] + 1e-5) * g[m] + b[m];""",
    "in one line": """
        let y[i, m] = (x[i, m] - mean[k](x[i, k])) / sqrt(mean[k]((x[i, k] - mean[l](x[i, l])) ** 2) + 1e-5) * g[m];""",
    "of a sum": """
        let c[i] = mean[m](x[i, m] + b[m]);
        let v[i] = mean[m]((x[i, m] + b[m] - c[i]) ** 2);
        let y[i, m] = (x[i, m] + b[m] - c[i]) * rsqrt(v[i] + 1e-5) * g[m];""",
}
SQUARE = "let square[i] = mean[m](x[i, m] ** 2); let y[{axes}] = {body};"
BY_SQUARE = {
    "of std": "let y = rms_norm(x, g, 1e-5);",
    "a mean square": SQUARE.format(axes="i, m", body="x[i, m] * rsqrt(square[i] + 1e-5) * g[m]"),
    "divided by its root": SQUARE.format(axes="i, m", body="g[m] * (x[i, m] / sqrt(1e-5 + square[i]))"),
    "a mean square without gain": SQUARE.format(axes="i, m", body="x[i, m] * rsqrt(square[i] + 1e-5)"),
    "a mean square turned": SQUARE.format(axes="m, i", body="x[i, m] * rsqrt(square[i] + 1e-5) * g[m]"),
    "a mean of products": "let y[i, m] = x[i, m] / sqrt(mean[k](x[i, k] * x[i, k]) + 1e-5) * g[m];",
    "the mean square of a sum": """
        let y[i, m] = (x[i, m] + b[m]) * rsqrt(mean[k]((x[i, k] + b[k]) ** 2) + 1e-5);""",
    "about the mean of half of the points": """
        let c[i] = mean[k in 0..size(m) / 2](x[i, k]);
        let v[i] = mean[m]((x[i, m] - c[i]) ** 2);
        let y[i, m] = (x[i, m] - c[i]) * rsqrt(v[i] + 1e-5) * g[m];""",
}
OTHERS = {
    "a mean square and a bias": SQUARE.format(axes="i, m", body="x[i, m] * rsqrt(square[i] + 1e-5) * g[m] + b[m]"),
    "the square of another": SQUARE.format(axes="i, m", body="(x[i, m] + b[m]) * rsqrt(square[i] + 1e-5) * g[m]"),
    "its length": "let s[i] = sum[m](x[i, m] ** 2); let y[i, m] = x[i, m] * rsqrt(s[i] + 1e-5);",
    "the mean of another": NAMED.format(axes="i, m", body="(x[i, m] - centre[i] * 2) * rsqrt(spread[i] + 1e-5)"),
    "no mean": NAMED.format(axes="i, m", body="x[i, m] * rsqrt(spread[i] + 1e-5) * g[m]"),
    "a gain of a row": NAMED.format(axes="i, m", body="(x[i, m] - centre[i]) * rsqrt(spread[i] + 1e-5) * centre[i]"),
    "a root of a root": NAMED.format(axes="i, m", body="(x[i, m] - centre[i]) * rsqrt(sqrt(spread[i] + 1e-5)) * g[m]"),
    "a power of three": """
        let c[i] = mean[m](x[i, m]);
        let v[i] = mean[m]((x[i, m] - c[i]) ** 3);
        let y[i, m] = (x[i, m] - c[i]) * rsqrt(v[i] + 9.0) * g[m];""",
    "guarded": NAMED.format(axes="i, m", body="(x[i, m] - centre[i]) * rsqrt(spread[i] + 1e-5) where m <= i"),
}


def arrays(dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in ((5, 6), (6,), (6,))]


def program(body: str) -> ix.Program:
    return ix.compile(f"use std::norms::{{rms_norm}}; input x[i, m], g[m], b[m];{body} output y;")


@pytest.mark.parametrize("name", [*SPELLINGS, *BY_SQUARE, *OTHERS])
def test_values_and_gradients_are_those_of_the_relation(name: str) -> None:
    made = program({**SPELLINGS, **BY_SQUARE, **OTHERS}[name])
    given = arrays()
    kernel = "layer_norm" if name in SPELLINGS else "rms_norm" if name in BY_SQUARE else "arrays"
    assert made.plan(*given).steps[-1].kernel == kernel
    right = made(*(array.numpy() for array in given), backend="reference")
    leaves = [array.clone().requires_grad_() for array in given]
    np.testing.assert_allclose(made(*leaves).detach(), right, rtol=1e-12, atol=1e-12)
    flows = [
        torch.autograd.grad((made(*leaves, isolate=isolate) ** 2).sum(), leaves, allow_unused=True)
        for isolate in (False, True)
    ]
    for mine, plain in zip(*flows, strict=True):
        assert (mine is None) == (plain is None)
        if mine is not None:
            torch.testing.assert_close(mine, plain)


def test_its_mean_is_built_where_it_is_asked_for() -> None:
    made = ix.compile(f"input x[i, m], g[m], b[m];{SPELLINGS['named']} output y, centre;")
    plan = made.plan(*arrays())
    assert [step.definition for step in plan.steps] == ["centre", "y"]
    assert plan.unbuilt == ("spread",)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    given = arrays(dtype)
    layer = torch.nn.functional.layer_norm(given[0], (6,), given[1], given[2], 1e-5)
    square = torch.nn.functional.rms_norm(given[0], (6,), given[1], 1e-5)
    for text, right in ((SPELLINGS["named"], layer), (BY_SQUARE["a mean square"], square)):
        made = program(text)
        assert made(*given).dtype == dtype
        torch.testing.assert_close(made(*given), right)


def test_arrays_of_several_dtypes_are_computed_step_by_step() -> None:
    made = program(SPELLINGS["named"])
    given = [arrays(torch.float32)[0], *arrays()[1:]]
    assert made.plan(*given).steps[-1].kernel == "arrays"
    assert made(*given).dtype == torch.float64


def test_a_mean_over_no_points_is_refused() -> None:
    with pytest.raises(ix.Error, match="`mean` over no points has no value"):
        program(SPELLINGS["named"])(torch.zeros(2, 0), torch.zeros(0), torch.zeros(0))
