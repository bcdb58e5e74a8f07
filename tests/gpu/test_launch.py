"""Triton kernels launched through the driver of a GPU: beside Triton, in graphs, on streams and threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

import triton.language as tl  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from indexical.backends.kernels import triton_launch  # noqa: E402
from indexical.backends.kernels.torch_operator import differentiable  # noqa: E402
from indexical.backends.kernels.triton_launch import Form, launch  # noqa: E402


@triton.jit(do_not_specialize=["size"])
def scale_kernel(x, y, factor, size, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * step, mask=at < size)
    tl.store(y + at * step, (factor * value).to(y.dtype.element_ty), mask=at < size)


@triton.jit
def product_kernel(a, b, c, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    rows, columns = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros([TM, TN], tl.float32)
    for start in range(0, K, TK):
        inner = start + tl.arange(0, TK)
        left = tl.load(a + rows[:, None] * K + inner[None, :])
        right = tl.load(b + inner[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def described_kernel(x, y, rows, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, WIDTH], [WIDTH, 1], [ROWS, WIDTH])
    target = tl.make_tensor_descriptor(y, [rows, WIDTH], [WIDTH, 1], [ROWS, WIDTH])
    target.store([tl.program_id(0) * ROWS, 0], source.load([tl.program_id(0) * ROWS, 0]) * 2)


@triton.jit
def copy_kernel(x, factor, y, ROWS: tl.constexpr):
    y.store([tl.program_id(0) * ROWS, 0], x.load([tl.program_id(0) * ROWS, 0]) * factor)


def scaled(x: Any, factor: float = 1.5) -> Any:
    y = torch.empty_like(x)
    launch(scale_kernel, (triton.cdiv(x.numel(), 128),), (x, y, factor, x.numel(), 1), (128,))
    return y


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32], ids=str)
def test_numbers_and_tails(dtype: torch.dtype) -> None:
    for size in (1, 127, 128, 1000):
        x = torch.arange(size, device="cuda").to(dtype)
        assert torch.equal(scaled(x, 2.0), x * 2)
        assert torch.equal(scaled(x[1:], 2.0), x[1:] * 2)


def test_product_with_much_shared_memory() -> None:
    a, b = (torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    launch(product_kernel, (4, 4), (a, b, c, 512, 512, 512), (128, 128, 64), 8, 4)
    wanted = torch.empty_like(a)
    product_kernel[(4, 4)](a, b, wanted, 512, 512, 512, 128, 128, 64, num_warps=8, num_stages=4, enable_fp_fusion=True)
    assert torch.equal(c, wanted)
    assert torch.allclose(c.float(), a.float() @ b.float(), atol=0.5)
    with pytest.raises(RuntimeError, match=r"product_kernel needs .* bytes of shared memory, and the device has"):
        launch(product_kernel, (2, 2), (a, b, c, 512, 512, 512), (256, 256, 128), 8, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_descriptors(dtype: torch.dtype) -> None:
    x = torch.randn(100, 64, device="cuda", dtype=dtype)
    y = torch.zeros_like(x)
    launch(described_kernel, (4,), (x, y, 100), (32, 64))
    assert torch.equal(y, x * 2)
    wide = torch.randn(100, 3, 64, device="cuda", dtype=dtype)[:, 1]
    tiles = [TensorDescriptor(t, list(t.shape), list(t.stride()), [32, 64]) for t in (wide, y)]
    launch(copy_kernel, (4,), (tiles[0], 4.0, tiles[1]), (32,))
    assert torch.equal(y, wide * 4)


def test_graph_is_replayed() -> None:
    x = torch.ones(1000, device="cuda")
    scaled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = scaled(scaled(x))
    x.fill_(2.0)
    graph.replay()
    assert y.eq(4.5).all()


def test_current_stream_is_used() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.ones(1 << 24, device="cuda")
        for _ in range(20):
            x = scaled(x, 1.0)
    stream.synchronize()
    assert x.eq(1).all()


def test_threads_launch_side_by_side() -> None:
    scaled(torch.ones(10, device="cuda"))
    torch.cuda.synchronize()
    wrong = []

    def work(number: int) -> None:
        x = torch.full((1000,), float(number), device="cuda")
        for _ in range(200):
            if not torch.equal(scaled(x, 1.0), x):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_many_lengths_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = Form.compiled
    monkeypatch.setattr(triton_launch, "_families", {})
    monkeypatch.setattr(
        Form, "compiled", lambda form, *given, **named: compiled.append(form) or real(form, *given, **named)
    )
    for size in range(1, 65):
        scaled(torch.ones(37 * size, device="cuda"))
    assert len(compiled) == 1


def backward(gradients: Any, tensors: Any, found: Any, wholes: Any, reals: Any, needs: Any) -> list[Any]:
    return [scaled(gradients[0].contiguous(), reals[0])]


OPERATOR = differentiable(
    "scaled_on_gpu",
    lambda tensors, wholes, reals: (scaled(tensors[0], reals[0]), tensors[0].new_zeros(1)),
    backward,
    lambda tensors, wholes, reals: (torch.empty_like(tensors[0]), tensors[0].new_zeros(1)),
    lambda gradients, tensors, *_: [torch.empty_like(tensors[0])],
)


def test_gradient_on_the_thread_of_autograd() -> None:
    x = torch.ones(1000, device="cuda", requires_grad=True)
    OPERATOR([x], (), (2.5,))[0].sum().backward()
    assert x.grad.eq(2.5).all()
    with FlopCounterMode(display=False):  # A mode sees operators, and so they are registered.
        OPERATOR([x], (), (2.5,))
    torch.library.opcheck(torch.ops.indexical_backends_kernels_torch_operator.scaled_on_gpu.default, ([x], [], [2.5]))


def test_inside_a_compiled_graph() -> None:
    layer = torch.compile(lambda x: OPERATOR([x + 1], (), (2.0,))[0] * 2, fullgraph=True)
    x = torch.ones(1000, device="cuda", requires_grad=True)
    found = layer(x)
    found.sum().backward()
    assert found.eq(8).all()
    assert x.grad.eq(4).all()


FRESH = """
import json, sys, time
import torch, triton, triton.language as tl
import indexical
from indexical.backends.kernels.triton_launch import Form
from indexical.run.kernel import load
text = open(sys.argv[1]).read()
x = torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
compiled = []
real = Form.compiled
Form.compiled = lambda form, target, own: compiled.append(form) or real(form, target, own)
start = time.perf_counter()
program = load(text, (), ()).function
found = program(x)
torch.cuda.synchronize()
print(json.dumps([time.perf_counter() - start, len(compiled), bool(found.eq(3).all())]))
"""
TEXT = """
import torch
import triton
import triton.language as tl
from indexical.backends.kernels.triton_launch import launch


class Refused(ValueError):
    pass


@triton.jit
def tripled(x, y, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y + at, tl.load(x + at) * 3)


def program(x):
    y = torch.empty_like(x)
    launch(tripled, (1,), (x, y), (4096,))
    return y
"""


def test_fresh_process_finds_binaries(tmp_path: Path) -> None:
    (tmp_path / "text.py").write_text(TEXT)
    environment = {
        **os.environ,
        "IX_CACHE": str(tmp_path / "kept"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", FRESH, str(tmp_path / "text.py")]
    runs = [json.loads(subprocess.check_output(command, env=environment).decode()) for _ in range(2)]
    assert [run[1:] for run in runs] == [[1, True], [0, True]]
    assert runs[1][0] < 0.06
