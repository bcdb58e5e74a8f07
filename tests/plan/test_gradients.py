"""The derivative of attention in a plan: in any spelling by the backward of a kernel, and nothing that is not one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.plan.derivatives import NEAR_MISSES, PARTS, SIZES, SPELLINGS, derivative

import indexical as ix
from indexical.ir.verify import verify
from indexical.plan.steps import Plan, Step

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.sampled(6)


def drawn(program: ix.Program, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    lengths = {"x": 5, "y": 6, "f": 3, "w": 4, **SIZES}
    found = {}
    for tensor in program.ir.inputs:
        shape = [lengths[str(axis.coordinate)] for axis in tensor.axes]
        found[tensor.name] = torch.randn(shape, dtype=torch.float64, generator=generator)
    return found


def several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


def backward(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.gradient is not None]


def agree(program: ix.Program, arrays: dict[str, Any], **options: Any) -> None:
    """What a call gives is what the reference says."""
    plain = {name: array.numpy() for name, array in arrays.items()}
    expected = several(program(**plain, backend="reference"))
    for found, right in zip(several(program(**arrays, **options)), expected, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_the_backward_of_a_kernel(name: str) -> None:
    program = ix.compile(SPELLINGS[name])
    arrays = drawn(program)
    plan = program.plan(**arrays)
    assert verify(plan.program) == []
    assert len(backward(plan)) == 1, str(plan)
    large = {"scores", "weights", "d_weights", "d_scores", "p", "q", "s"}
    assert not large & {name for step in plan.steps for name in (step.definition, *step.beside)}
    agree(program, arrays)


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_program_of_a_plan_says_the_same(name: str) -> None:
    """The definitions that were made on the way are what the kernel computes."""
    from indexical.run import pointwise

    program = ix.compile(SPELLINGS[name])
    arrays = {name: array.numpy() for name, array in drawn(program, 1).items()}
    plan = program.plan(**arrays, backend="torch")
    before, after = (pointwise.run(p, arrays, program.outputs) for p in (program.ir, plan.program))
    for output in program.outputs:
        np.testing.assert_allclose(after[output], before[output], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_nearly_a_derivative_is_computed_as_it_stands(name: str) -> None:
    program = ix.compile(NEAR_MISSES[name])
    arrays = drawn(program)
    assert backward(program.plan(**arrays)) == []
    agree(program, arrays)


@pytest.mark.parametrize("name", [*SPELLINGS, *NEAR_MISSES])
def test_numpy_computes_it_in_blocks_of_rows(name: str) -> None:
    program = ix.compile({**SPELLINGS, **NEAR_MISSES}[name])
    arrays = drawn(program)
    plan = program.plan(**{name: array.numpy() for name, array in arrays.items()})
    if name not in ("half of the rows", "a mean over the queries"):
        assert [step.kernel for step in plan.steps if step.block is not None], str(plan)
    agree_in_numpy(program, arrays)


def agree_in_numpy(program: ix.Program, arrays: dict[str, Any]) -> None:
    plain = {name: array.numpy() for name, array in arrays.items()}
    expected = several(program(**plain, backend="reference"))
    for found, right in zip(several(program(**plain)), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", [*SPELLINGS, *NEAR_MISSES])
def test_all_weights_can_be_kept(name: str) -> None:
    program = ix.compile({**SPELLINGS, **NEAR_MISSES}[name])
    arrays = drawn(program)
    plan = program.plan(**arrays, recompute=False)
    assert all(step.gradient is None and step.block is None for step in plan.steps)
    agree(program, arrays, recompute=False)


def test_a_plan_says_what_is_made_again_and_what_it_takes() -> None:
    program = ix.compile(derivative())
    q = torch.empty(1, 8, 2048, 64)
    shown = str(program.plan(q, q, q, q))
    assert "by the backward of scaled_dot_product_attention" in shown
    assert "`weights` is made again, tile by tile: 4.1 MiB; `recompute=False` keeps all of it: 512 MiB" in shown
    assert "hears `j` where `j <= i`; no mask is built" in shown
    kept = str(program.plan(q, q, q, q, recompute=False))
    assert kept.startswith("torch on cpu, nothing made again for the way back")
    assert kept.endswith("kept for the way back\n  weights[b, h, i, j]  128 MiB")


def test_blocks_say_how_many_rows_and_why() -> None:
    program = ix.compile(derivative(scores=PARTS["scores"].replace("sum[d]", "tanh(sum[d]").replace(";", ");")))
    q = torch.empty(1, 8, 2048, 64)
    shown = str(program.plan(q, q, q, q))
    assert "by blocks of `i`" in shown
    assert "4 definitions as large as `weights` for 64 rows of `i` at a time: 16.0 MiB" in shown
    assert "not by the backward of its kernel: no dot product stands alone in the score" in shown


def test_what_a_program_without_attention_keeps_is_said() -> None:
    program = ix.grad(
        ix.compile("input A[i, k], B[k, j];\nlet C[i, j] = tanh(sum[k](A[i, k] * B[k, j]));\n"), of="C", by="A"
    )
    shown = str(program.plan(np.zeros((64, 32)), np.zeros((32, 128)), np.zeros((64, 128))))
    assert "kept for the way back" in shown
    assert "[i, j]  64.0 KiB" in shown.split("kept for the way back")[1]


def test_the_plan_as_data() -> None:
    program = ix.compile(derivative())
    q = torch.empty(1, 2, 16, 8)
    shown = program.plan(q, q, q, q).to_json()
    steps = shown["steps"]
    assert isinstance(steps, list)
    assert {steps[0]["name"], *steps[0]["beside"]} == {"d_Q", "d_K", "d_V"}
    assert shown["recompute"] is True


def test_several_attentions_in_one_program() -> None:
    forward = ix.compile(
        """input X[b, i, m], A[h, d, m], B[h, d, m], C[h, e, m], D[h, e, m];
let Q[b, h, i, d] = sum[m](X[b, i, m] * A[h, d, m]);
let K[b, h, j, d] = sum[m](X[b, j, m] * B[h, d, m]);
let V[b, h, j, e] = sum[m](X[b, j, m] * C[h, e, m]);
let first[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d])) where j <= i;
let heads[b, h, i, e] = sum[j](first[b, h, i, j] * V[b, h, j, e]);
let Y[b, i, m] = sum[h, e](heads[b, h, i, e] * D[h, e, m]);
let second[b, i, j] = softmax[j](sum[m](Y[b, i, m] * X[b, j, m])) where j <= i, i - j < 3;
let Z[b, i, m] = sum[j](second[b, i, j] * X[b, j, m]);
let loss = sum[b, i, m](Z[b, i, m] * Z[b, i, m]);
"""
    )
    program = ix.grad(forward, of="loss", by=("X", "A", "B", "C", "D"))
    arrays = drawn(program)
    plan = program.plan(**arrays)
    assert sorted(step.kernel for step in backward(plan)) == [
        "the backward of key intervals",
        "the backward of scaled_dot_product_attention",
    ]
    leaves = {name: array.clone().requires_grad_() for name, array in arrays.items()}
    expected = torch.autograd.grad(forward(**leaves, isolate=True), list(leaves.values()))
    for found, right in zip(program(**arrays), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


def test_a_second_derivative_whose_form_is_too_large_is_built() -> None:
    """Whether a definition gathers with weights cannot be said of all: one that grows too large is left as it is."""
    text = """
        input x[i], c;
        let y[k] = x[k] * c;
        let z[k] = softmax[k](y[k]**3 / (0.5 + y[k]**2) - y[k]**3 / (0.5 + sum[j]((y[k] * x[j])**2)));
    """
    program = ix.grad(ix.grad(ix.compile(text), of="z", by="c"), of="d_c", by="c")
    given = {"x": np.array([0.1, -0.1, 0.6]), "c": 0.7, "d_z": np.array([1.0, 2.0, -1.0]), "d_d_c": 1.0}
    arrays = [given[name] for name in program.inputs]
    np.testing.assert_allclose(program(*arrays), program(*arrays, isolate=True), rtol=1e-10)


def test_a_table_that_is_compared_at_a_distance_has_a_gradient() -> None:
    """The sum over queries of what stands on a diagonal is no convolution, whatever the queries are called there."""
    text = """
        input Q[h, i, d], K[h, j, d], V[h, j, e], R[i, d];
        let w[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) + sum[d](Q[h, i, d] * R[i - j, d])) where j <= i;
        let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
    """
    forward = ix.compile(text)
    program = ix.grad(forward)
    shapes = {"Q": (2, 6, 4), "K": (2, 6, 4), "V": (2, 6, 3), "R": (6, 4), "d_out": (2, 6, 3)}
    generator = torch.Generator().manual_seed(0)
    given = {name: torch.randn(shape, dtype=torch.float64, generator=generator) for name, shape in shapes.items()}
    leaves = {name: given[name].clone().requires_grad_() for name in forward.inputs}
    expected = torch.autograd.grad(forward(**leaves), list(leaves.values()), given["d_out"])
    for found, right in zip(program(**given), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


def test_a_pole_beside_an_empty_sum_is_not_heard() -> None:
    """A query without keys has a slope of 0 where the root in its scores has none: nothing is summed there."""
    text = """
        input y[j], p[i];
        let w[i, j] = exp(y[j] * sqrt(p[i])) where j < i;
        let out[i] = sum[j](w[i, j] * y[j]) / (1 + sum[j](w[i, j]));
    """
    forward = ix.compile(text)
    given = {"y": torch.linspace(1.0, 2.0, 4, dtype=torch.float64), "p": torch.tensor([0.0, 1.5, 1.0, 0.5]).double()}
    found = ix.grad(forward)(**given, d_out=torch.ones(4, dtype=torch.float64))
    leaves = {name: array.clone().requires_grad_() for name, array in given.items()}
    for ours, theirs in zip(found, torch.autograd.grad(forward(**leaves).sum(), list(leaves.values())), strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
