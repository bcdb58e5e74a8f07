"""A choice by where a coordinate is means the same, whether its sides are computed whole or each at its own points."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix

HALF = "size(d) / 2"
PROGRAMS = {
    "halves": f"let y[i, d] = if d < {HALF} {{ -x[i, d + {HALF}] }} else {{ x[i, d - {HALF}] }};",
    "uneven": "let y[i, d] = if d < 1 { x[i, size(d) - 1] * 2 + x[i, d + 3] } else { x[i, d - 1] };",
    "turned round": f"let y[i, d] = if d >= {HALF} {{ x[i, d - {HALF}] }} else {{ x[i, d + {HALF}] * w[i] }};",
    "the other way": f"let y[i, d] = if {HALF} > d {{ x[i, d + 1] }} else {{ x[i, d - 1] }};",
    "up to the cut": f"let y[i, d] = if {HALF} <= d {{ x[i, d - 1] }} else {{ x[i, d + 1] }};",
    "another axis": "let y[d, i] = if i < 2 { x[i + 1, d] } else { x[i - 2, d] };",
    "in a sum": f"let y[i] = sum[d]((if d < {HALF} {{ x[i, d + 1] }} else {{ x[i, d - 1] }}) * x[i, d]);",
    "in a softmax": f"let y[i, d] = softmax[d](if d < {HALF} {{ x[i, d + 1] }} else {{ x[i, d - 1] }});",
    "under a guard": "let y[i, d] = (if d < 2 { x[i, d + 2] } else { x[i, d - 2] }) where d != i;",
    "within another": "let y[i, d] = if d < 3 { if d < 1 { x[i, d + 1] } else { x[i, d - 1] } } else { x[i, d - 3] };",
    "of both": "let y[i, d] = if d < 2 { if i < 1 { x[i + 1, d + 1] } else { x[i - 1, d + 2] } } else { x[i, d - 2] };",
    "one side without": f"let y[i, d] = if d < {HALF} {{ w[i] * x[i, d + 1] }} else {{ x[0, d - 1] + d }};",
    "the coordinate itself": f"let y[i, d] = if d < {HALF} {{ x[i, d + 1] * d }} else {{ x[i, d - 1] / d }};",
    "a recurrence": """let y[0, d] = x[0, d];
        let y[i in 1..size(i), d] = if d < 2 { y[i - 1, d + 1] } else { y[i - 1, d - 2] + x[i, d] };""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_pieces_mean_the_same(name: str) -> None:
    program = ix.compile(f"input x[i, d], w[i]; {PROGRAMS[name]} output y;")
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(4, 6)), draw.normal(size=4)
    given = {each: array for each, array in (("x", x), ("w", w)) if each in program.inputs}
    expected = program(**given, backend="reference")
    np.testing.assert_allclose(program(**given), expected, atol=1e-12)
    leaves = {each: torch.tensor(array, requires_grad=True) for each, array in given.items()}
    found = program(**leaves)
    np.testing.assert_allclose(found.detach(), expected, atol=1e-12)
    weight = torch.tensor(draw.normal(size=expected.shape))
    gradients = torch.autograd.grad((found * weight).sum(), [leaves["x"]])[0]
    exact = ix.grad(program, by="x")(**given, d_y=weight.numpy(), backend="reference")
    np.testing.assert_allclose(gradients, exact, atol=1e-12)


def test_halves_are_two_slices() -> None:
    program = ix.compile(f"input x[i, d]; {PROGRAMS['halves']}")
    source = program.source(torch.ones(4, 6))
    assert "torch.cat((" in source
    assert "padded" not in source


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_few_points(size: int) -> None:
    program = ix.compile("input x[d], z[p]; let y[d] = if d < 2 { z[d + 1] } else { x[d - 2] };")
    x, z = np.arange(size) * 1.5, np.arange(4.0)
    expected = program(x, z, backend="reference")
    np.testing.assert_array_equal(program(x, z), expected)
    np.testing.assert_array_equal(program(torch.tensor(x), torch.tensor(z)), expected)
