"""Documents by real labels: an equality of labels is one, whatever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import indexical as ix  # noqa: E402
from indexical.backends.old.plan.choose import choose  # noqa: E402
from indexical.backends.old.torch_ import DIALECT  # noqa: E402
from indexical.plan.target import INTERVALS  # noqa: E402

TEXT = """
    input Q[b, i, d], K[b, j, d], V[b, j, e], {inputs};
    let w[b, i, j] = softmax[j](sum[d](Q[b, i, d] * K[b, j, d])) where {guard};
    let out[b, i, e] = sum[j](w[b, i, j] * V[b, j, e]);
"""
GUARDS = {
    "one row of labels": ("doc[p]", "doc[i] == doc[j]"),
    "the other way round": ("doc[p]", "doc[j] == doc[i], j <= i"),
    "a label for each example": ("doc[b, p]", "j <= i, doc[b, i] == doc[b, j]"),
    "labels of two kinds": ("asks[i], answers[j]", "asks[i] == answers[j]"),
    "two labels": ("doc[p], part[p]", "doc[i] == doc[j], part[i] == part[j]"),
    "a real label and a whole one": ("doc[p], part[p] : i64", "doc[i] == doc[j], part[i] == part[j]"),
    "another number": ("doc[p]", "doc[i] == 2 * doc[j] - 1"),
    "with a name": ("doc[p]", "same[i, j] && j <= i"),
}
ALONE = ("one row of labels", "the other way round", "a label for each example", "labels of two kinds", "with a name")


def compiled(name: str) -> ix.Program:
    inputs, guard = GUARDS[name]
    more = "let same[i, j] = doc[i] == doc[j];" if "same" in guard else ""
    return ix.compile(TEXT.format(inputs=inputs, guard=guard) + more)


def drawn(program: ix.Program, points: int, values: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(points)
    sizes = {"b": 2, "d": 3, "e": 4, "i": points, "j": points, "p": points}
    arrays = []
    for tensor in program.ir.inputs:
        shape = [sizes[axis.coordinate] for axis in tensor.axes]
        if tensor.name in ("Q", "K", "V"):
            arrays.append(torch.randn(shape, dtype=torch.float64, generator=generator))
        else:
            labels = torch.tensor(values) if tensor.kind == "real" else torch.arange(3)
            arrays.append(labels[torch.randint(len(labels), shape, generator=generator)])
    return arrays


@pytest.mark.parametrize("name", ALONE)
def test_labels_are_groups(name: str) -> None:
    program = compiled(name)
    dtypes = {tensor.name: "f32" for tensor in program.ir.inputs}
    plan = choose(program.ir, ("out",), dtypes, DIALECT.target, "cpu", False)  # type: ignore[arg-type]
    assert [step.kernel for step in plan.steps if step.definition == "out"] == [INTERVALS]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("values", [[1, 2, 3], [1.0, -0.0, 0.0, 0.5], [1.0, np.nan, 0.0], [np.inf, -np.inf, np.nan]])
@pytest.mark.parametrize("name", GUARDS)
def test_they_are_what_is_written(name: str, values: list[float]) -> None:
    program = compiled(name)
    for points in (0, 1, 2, 9):
        arrays = drawn(program, points, values)
        found = []
        for options in ({}, {"isolate": True}):
            leaves = [array.clone().requires_grad_(array.dtype == torch.float64) for array in arrays]
            out = program(*leaves, **options)
            arriving = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
            found.append([out.detach(), *torch.autograd.grad(out, leaves[:3], arriving)])
        reference = program(*(array.numpy() for array in arrays), backend="reference")
        np.testing.assert_allclose(found[0][0], reference, rtol=1e-9, atol=1e-9)
        for mine, right in zip(*found, strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-8, atol=1e-9)
