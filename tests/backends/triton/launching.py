"""Kernels and operators in Triton's interpreter: `TRITON_INTERPRET=1 python launching.py` says which checks fail.

The interpreter is chosen when Triton is loaded, so this is a process of its own. Each function named `check_…` is one.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import traceback
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from tests.backends.triton.interpreter import patch_once
from torch.utils.flop_counter import FlopCounterMode
from triton.tools.tensor_descriptor import TensorDescriptor

import indexical as ix
from indexical.backends.kernels import triton_operands
from indexical.backends.kernels.torch_operator import OPERATORS, differentiable
from indexical.backends.kernels.triton_launch import launch
from indexical.backends.kernels.triton_tables import mask_kernel
from indexical.run.kernel import load
from indexical.run.store import Store
from indexical.run.tuning import Choices, candidates, tune_kernels


@triton.jit(do_not_specialize=["size"])
def cube_kernel(x, y, factor, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size)
    tl.store(y + at, factor * value * value * value, mask=at < size)


@triton.jit(do_not_specialize=["size"])
def cube_backward_kernel(x, given, y, factor, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value, flow = tl.load(x + at, mask=at < size), tl.load(given + at, mask=at < size)
    tl.store(y + at, 3.0 * factor * value * value * flow, mask=at < size)


@triton.jit
def masked_kernel(x, bias, y, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = at[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    value = tl.load(x + place, mask=(at < rows)[:, None], other=0.0)
    if bias is not None:
        value += tl.load(bias + tl.arange(0, WIDTH))[None, :]
    tl.store(y + place, value, mask=(at < rows)[:, None])


@triton.jit
def copy_kernel(x, y, ROWS: tl.constexpr):
    y.store([tl.program_id(0) * ROWS, 0], x.load([tl.program_id(0) * ROWS, 0]))


def cube(tensors: list[Any], wholes: list[int], reals: list[float]) -> tuple[Any, Any]:
    x = tensors[0].contiguous()
    found = torch.empty_like(x)
    launch(cube_kernel, (triton.cdiv(x.numel(), 32),), (x, found, reals[0], x.numel()), (32,))
    return found, found.new_full((wholes[0],), reals[0])


def cube_backward(gradients: Any, tensors: Any, found: Any, wholes: Any, reals: Any, needs: Any) -> list[Any]:
    x = tensors[0].contiguous()
    flow = torch.empty_like(x)
    arguments = (x, gradients[0].contiguous(), flow, reals[0], x.numel())
    launch(cube_backward_kernel, (triton.cdiv(x.numel(), 32),), arguments, (32,))
    return [flow] if needs[0] else []


def fake(tensors: Any, wholes: Any, reals: Any) -> tuple[Any, Any]:
    return tensors[0].new_empty(tensors[0].shape), tensors[0].new_empty((wholes[0],))


def fake_backward(gradients: Any, tensors: Any, *rest: Any) -> list[Any]:
    return [tensors[0].new_empty(tensors[0].shape)] if rest[-1][0] else []


CUBE = differentiable("cube", cube, cube_backward, fake, fake_backward)


def cubed(x: Any) -> Any:
    return CUBE([x], [3], [0.5])[0]


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float32)


def check_launch_with_numbers_and_a_tail() -> None:
    for size in (1, 31, 32, 33, 100):
        x = drawn(size)
        assert torch.allclose(cubed(x), 0.5 * x**3)


def check_no_programs_do_nothing() -> None:
    assert cubed(drawn(0)).shape == (0,)


def check_missing_tensor() -> None:
    x, bias, y = drawn(5, 16), drawn(16), torch.empty(5, 16)
    launch(masked_kernel, (3,), (x, None, y, 5), (16, 2))
    assert torch.equal(y, x)
    launch(masked_kernel, (3,), (x, bias, y, 5), (16, 2))
    assert torch.equal(y, x + bias)


def check_descriptors_made_by_the_host() -> None:
    x, y = drawn(5, 16), torch.zeros(5, 16)
    launch(copy_kernel, (2,), tuple(TensorDescriptor.from_tensor(t, [4, 16]) for t in (x, y)), (4,))
    assert torch.equal(y, x)


def check_gradient() -> None:
    x = drawn(7, 5).requires_grad_()
    (found,) = torch.autograd.grad(cubed(x).sum(), x)
    assert torch.allclose(found, 1.5 * x**2)
    x = drawn(4, 6).T.requires_grad_()
    (found,) = torch.autograd.grad((cubed(x) * torch.arange(24).view(6, 4)).sum(), x)
    assert torch.allclose(found, 1.5 * x**2 * torch.arange(24).view(6, 4))


def check_without_gradient_nothing_is_recorded() -> None:
    assert cubed(drawn(4).requires_grad_()).requires_grad
    assert not cubed(drawn(4)).requires_grad
    with torch.no_grad():
        assert not cubed(drawn(4).requires_grad_()).requires_grad


def check_second_derivative_is_refused_by_name() -> None:
    x = drawn(5).requires_grad_()
    (first,) = torch.autograd.grad(cubed(x).sum(), x, create_graph=True)
    for attempt in (first.sum().backward, lambda: torch.func.grad(lambda y: torch.func.grad(total)(y).sum())(x)):
        with pytest.raises(RuntimeError, match="cube has no second derivative"):
            attempt()


def total(x: Any) -> Any:
    return cubed(x).sum()


def check_forward_mode_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="cube has no forward mode"):
        torch.func.jvp(cubed, (drawn(3),), (drawn(3),))


def check_torch_func() -> None:
    x = drawn(3, 5)
    assert torch.allclose(torch.func.grad(total)(x), 1.5 * x**2)
    assert torch.allclose(torch.func.vmap(cubed, 1, 1)(x), 0.5 * x**3)
    assert torch.allclose(torch.func.vmap(torch.func.grad(total))(x), 1.5 * x**2)
    assert torch.allclose(torch.func.jacrev(cubed)(x[0]), torch.diag(1.5 * x[0] ** 2))
    (flow,) = torch.func.vjp(cubed, x)[1](2 * x)
    assert torch.allclose(flow, 3 * x**3)


def check_operator_keeps_its_contract() -> None:
    names = getattr(torch.ops, OPERATORS.ns)
    x = drawn(4, 3).requires_grad_()
    with FlopCounterMode(display=False):  # A mode sees operators, and so they are registered.
        assert torch.allclose(cubed(x), 0.5 * x**3)
    torch.library.opcheck(names.cube.default, ([x], [3], [0.5]))
    inputs = ([drawn(4, 3), None], [x.detach()], [drawn(4, 3), drawn(3)], [3], [0.5], [True])
    torch.library.opcheck(names.cube_backward.default, inputs, test_utils=("test_schema", "test_faketensor"))


def check_one_graph_for_all_sizes() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    layer = torch.compile(lambda x: cubed(2 * x) + 1, backend=counter, fullgraph=True, dynamic=True)
    for size in (5, 17, 40):
        x, same = drawn(size).requires_grad_(), drawn(size).requires_grad_()
        found, wanted = layer(x), cubed(2 * same) + 1
        assert torch.equal(found, wanted)
        found.sum().backward()
        wanted.sum().backward()
        assert torch.equal(x.grad, same.grad)
    assert counter.frame_count == 1


def check_operators_are_registered_when_they_are_needed() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    for name in ("late_backward", "late", "late"):
        late = differentiable(name, cube, cube_backward, fake, fake_backward)
        assert torch.equal(late([drawn(3)], [3], [1.0])[0], drawn(3) ** 3)
        graph = torch.compile(lambda x, late=late: late([x], [3], [2.0])[0], fullgraph=True, backend=counter)
        x = drawn(3).requires_grad_()
        graph(x).sum().backward()
        assert torch.allclose(x.grad, 6 * drawn(3) ** 2)
    assert counter.frame_count == 3
    assert {"late", "late_backward"} < set(dir(getattr(torch.ops, OPERATORS.ns)))


def check_graphs_are_recorded_as_operators() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(cubed)(drawn(5))
    assert any("cube" in str(node.target) for node in graph.graph.nodes)


def met(mask: Any, step: int, other_step: int) -> list[list[int]]:
    """For each tile of rows: the first tile that a mask keeps some of, the full ones if they adjoin, one beyond all."""
    found = []
    for rows in mask.split(step):
        tiles = [(bool(tile.any()), bool(tile.all())) for tile in rows.split(other_step, 1)]
        some, full = ([n for n, tile in enumerate(tiles) if tile[kind]] for kind in (0, 1))
        whole = [full[0], full[-1] + 1] if full and full[-1] - full[0] + 1 == len(full) else [0, 0]
        found.append([some[0], *whole, some[-1] + 1] if some else [0, 0, 0, 0])
    return found


def check_tiles_that_a_mask_keeps() -> None:
    torch.manual_seed(3)
    rows, keys, band = 45, 70, torch.arange(45)[:, None] - torch.arange(70)
    masks = [band >= 0, (band < 9) & (band > -30), torch.rand(45, 70) < 0.02, band > 99, (band % 40) < 25, band < 99]
    for step, other_step in ((16, 32), (32, 16)):
        for mask in masks:
            for way, own, other in ((mask, rows, keys), (mask.T, keys, rows)):
                table = torch.full((triton.cdiv(own, step), 4), -1, dtype=torch.int32)
                given = (way, table, 0, 0, *way.stride(), 1, own, other)
                launch(mask_kernel, (len(table),), given, (step, other_step))
                right = torch.tensor(met(way, step, other_step), dtype=torch.int32)
                kept = right[:, 1] < right[:, 2]
                assert torch.equal(table[:, ::3], right[:, ::3])
                assert torch.equal(table[:, 1:3][kept], right[:, 1:3][kept])
                assert bool((table[~kept][:, 1] >= table[~kept][:, 2]).all())


TUNED = """input Q[h, i, d], K[h, j, d], V[h, j, e], slope[h];
let weights[h, i, j] = softmax[j](sum[d](Q[h, i, d] * K[h, j, d]) - slope[h] * (i - j)) where j <= i;
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);
"""


def check_tiles_are_tuned() -> None:
    torch.manual_seed(4)
    program = ix.compile(TUNED)
    given = [torch.randn(2, 21, 5), torch.randn(2, 21, 5), torch.randn(2, 21, 3), torch.randn(2)]
    call = replace(program._engine.prepare(program.arguments(tuple(given), {}), "torch"), device="cuda")
    function = load(program._engine.emitted(call, ("out",), False)[1].linked(), ("out",), ()).function
    learned = [array.requires_grad_() for array in given]
    results: list[Any] = []

    def forward() -> list[Any]:
        results[:] = [function(*learned)]
        return [results[0].detach()]

    def backward() -> list[Any]:
        return list(torch.autograd.grad(results[0].sum(), learned, retain_graph=True))

    with tempfile.TemporaryDirectory() as folder:
        store, times = Store(folder), itertools.count(9, -1)
        triton_operands.choices = choices = Choices(store)
        usual = [*forward(), *backward()]
        tuned = tune_kernels(choices, forward, backward, lambda run: float(next(times)), lambda _: None)
        assert [one.kernel for one in tuned] == ["out_forward"] * 3
        # Each configuration was timed less than the one before it: none gave other numbers.
        assert [one.chosen for one in tuned] == [candidates(one.usual, n)[-1] for n, one in enumerate(tuned)]
        triton_operands.choices = kept = Choices(store)
        for one, other in zip([*forward(), *backward()], usual, strict=True):
            torch.testing.assert_close(one, other)
        assert list(kept.found.values()) == [tuple(one.chosen for one in tuned)]
        triton_operands.choices = None


if __name__ == "__main__":
    patch_once()
    found = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                found[name] = ""
            except BaseException:
                found[name] = traceback.format_exc()
    json.dump(found, sys.stdout)
