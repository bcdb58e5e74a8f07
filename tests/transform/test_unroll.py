"""A recurrence that is written out means what it meant: forward, backward, and as a text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import indexical as ix

LAYERS = """
input start[i, m], W[l, m, n], U[l, m, n];
let x[0, i, m]               = start[i, m];
let x[l in 1..size(l), i, m] = left[l - 1, i, m];
let scores[l, i, j]          = sum[m](x[l, i, m] * x[l, j, m]) / sqrt(size(m));
let weights[l, i, j]         = softmax[j](scores[l, i, j]) where j <= i;
let heard[l, i, m]           = sum[j](weights[l, i, j] * x[l, j, m]);
let left[l, i, m]            = x[l, i, m] + tanh(sum[n](W[l, m, n] * heard[l, i, n]));
let out[i, m]                = left[size(l) - 1, i, m];
output out;
"""
STATES = """
input given[l, m], start[m];
let x[0, m]                 = start[m];
let x[l in 1..=size(l), m]  = if l < 3 { tanh(x[l - 1, m]) + given[l - 1, m] } else { x[l - 2, m] * l };
let total[l in 0..=size(l)] = sum[m](x[l, m]);
output x, total;
"""
BACKWARD = """
input given[l, m];
let x[size(l) - 1, m]           = given[size(l) - 1, m];
let x[l in 0..size(l) - 1, m]   = x[l + 1, m] * 0.5 + given[l, m];
let shown[l, m]                 = x[l, m] * 2 where m > 0;
output shown;
"""
GRID = """
input cost[l, t];
let best[0, 0]                               = cost[0, 0];
let best[0, t in 1..size(t)]                 = best[0, t - 1] + cost[0, t];
let best[l in 1..size(l), 0]                 = best[l - 1, 0] + cost[l, 0];
let best[l in 1..size(l), t in 1..size(t)]   = min(best[l - 1, t], best[l, t - 1]) + cost[l, t];
output best;
"""
GUARDED = """
input given[l, m];
let x[0, m]               = given[0, m] where m > 0;
let x[l in 1..size(l), m] = sum[n](x[l - 1, n] * given[l, m]) where m <= l;
let y[m]                  = sum[l](x[l, m]);
output x, y;
"""
PROGRAMS = [LAYERS, STATES, BACKWARD, GRID, GUARDED]


def drawn(program: ix.Program, sizes: dict[str, int], seed: int = 0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        tensor.name: torch.randn([sizes.get(axis.coordinate.name, 3) for axis in tensor.axes], generator=draw).double()
        for tensor in program.ir.inputs
    }


def values(found: object) -> list[np.ndarray]:
    return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("text", PROGRAMS)
@pytest.mark.parametrize("count", [1, 4])
def test_what_is_written_out_means_the_same(text: str, count: int) -> None:
    program = ix.compile(text)
    arrays = drawn(program, {"l": count})
    wide = ix.unroll(program, l=count)
    asked = program.definitions
    expected = values(program(**arrays, backend="reference", outputs=asked))
    for found in (
        wide(**arrays, backend="reference", outputs=asked),
        wide(**arrays, outputs=asked),
        wide(**{name: array.numpy() for name, array in arrays.items()}, outputs=asked),
        ix.compile(wide.source_text)(**arrays, outputs=asked),
    ):
        for one, other in zip(values(found), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("text", PROGRAMS)
def test_gradients_are_the_same(text: str) -> None:
    program = ix.compile(text)
    arrays = drawn(program, {"l": 4})
    found = []
    for each in (program, ix.unroll(program, l=4)):
        leaves = {name: array.clone().requires_grad_() for name, array in arrays.items()}
        outputs = each(**leaves)
        total = sum((part * part).sum() for part in (outputs if isinstance(outputs, tuple) else (outputs,)))
        found.append(torch.autograd.grad(total, list(leaves.values()), allow_unused=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_each_layer_has_the_kernel_that_it_has_alone() -> None:
    program = ix.unroll(LAYERS, l=3)
    plan = str(program.plan(**drawn(program, {"l": 3, "i": 64, "m": 16, "n": 16})))
    assert plan.count("scaled_dot_product_attention") == 3
    assert "loop" not in plan


def test_inputs_must_have_the_size_that_was_said() -> None:
    program = ix.unroll(LAYERS, l=3)
    with pytest.raises(ix.Error, match=r"`[lW]`"):
        program(**drawn(program, {"l": 4}))


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        (LAYERS, {}, "no coordinate"),
        (LAYERS, {"k": 3}, "no recurrence goes along `k`"),
        (LAYERS, {"l": 2.5}, "a whole number"),
        (LAYERS, {"l": 0}, "a whole number"),
        (
            "input g[l], n : i64; let x[0] = g[0]; let x[l in 1..n] = x[l - 1] + 1; output x;",
            {"l": 3},
            "is not known from the size",
        ),
    ],
)
def test_what_cannot_be_written_out_is_refused(text: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ix.Error, match=message):
        ix.unroll(text, **sizes)
