"""Memory: nothing as large as queries × keys is there at any moment, on the way there or back.

A process of its own measures, since the highest so far belongs to a process.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import indexical as ix

ROOT = Path(__file__).resolve().parents[2]
POSITIONS, HEADS, WIDTH = 2048, 4, 64
OUTPUT = HEADS * POSITIONS * WIDTH * 4
SQUARE = HEADS * POSITIONS * POSITIONS * 4
# One thread, and what is freed is given back at once: else the holes that others left are measured too.
PLAINLY = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MIMALLOC_PURGE_DELAY": "0",  # PyTorch's own allocator.
}
IN_NUMPY = ["window", "soft cap"]
NAMES = ["mask", "soft cap"]
OTHERS = ["window", "documents, sorted", "causal", "prefix", "ALiBi"]
TOTAL = """input Q[i, d], K[j, d], V[j, e];
let s[i, j] = sum[d](Q[i, d] * K[j, d]) / 8.0;
let out[i, e] = sum[j](softmax[j](s[i, j] where j <= i) * V[j, e]);
let lse[i] = log(sum[j](exp(s[i, j]) where j <= i));
"""


def grow(name: str) -> dict[str, int]:
    """By how many bytes the process grows in a call, and in a call and the way back."""
    import torch
    from tests.backends.drawing import compiled, draw, learning

    program = compiled(name)
    found = {}
    for step in ("numpy", "forward", "backward"):
        if step == "numpy" and name not in IN_NUMPY:
            continue
        for size in (64, POSITIONS):  # The first call loads and compiles.
            arrays = draw(name, torch.float32, b=1, h=HEADS, i=size, j=size, d=WIDTH, e=WIDTH)
            given = arrays if step != "numpy" else {key: array.numpy() for key, array in arrays.items()}
            learned = learning(arrays) if step == "backward" else []
            before = settle()
            out = program(**given)
            if step == "backward":
                torch.autograd.grad(out.sum(), learned)
            found[step] = status("VmHWM") - before
            del out
    return found


def grow_total(outputs: list[str]) -> int:
    """By how many bytes the process grows in a call that gives totals, beside their result or alone, and back."""
    import torch

    program = ix.compile(TOTAL)
    for size in (64, 2 * POSITIONS):
        given = [torch.randn(size, WIDTH, requires_grad=True) for _ in range(3)]
        before = settle()
        results = program(*given, outputs=outputs)
        torch.autograd.grad(sum(result.sum() for result in results), given[: 2 if len(outputs) == 1 else 3])
        found = status("VmHWM") - before
    return found


def settle() -> int:
    """Give back what is free, forget the highest so far, and say how much is held."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(field: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


@pytest.mark.parametrize("names", [NAMES, pytest.param(OTHERS, marks=pytest.mark.sampled(0))], ids=["few", "others"])
def test_memory_is_linear(names: list[str]) -> None:
    """A call takes four outputs and a little, a call and the way back a few more: in one process for all variants."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the highest use of memory so far cannot be forgotten here")
    run = [sys.executable, "-W", "error", "-m", "tests.backends.test_memory", *names]
    result = subprocess.run(run, cwd=ROOT, env={**os.environ, **PLAINLY}, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    growth = json.loads(result.stdout)
    totals = growth.pop("total")
    assert 4 * (2 * POSITIONS) ** 2 == SQUARE
    assert max(totals) < SQUARE // 2, totals
    most = {step: outputs * OUTPUT + (32 << 20) for step, outputs in (("forward", 4), ("backward", 12), ("numpy", 4))}
    assert max(most.values()) < SQUARE
    for step, limit in most.items():
        found = {name: grown[step] for name, grown in growth.items() if step in grown}
        assert list(found) == [name for name in names if step != "numpy" or name in IN_NUMPY]
        assert not {name: grown for name, grown in found.items() if grown > limit}, step
        # A result may lie in memory that was held and free: of one variant, not of all.
        assert max(found.values(), default=OUTPUT) >= OUTPUT


def test_keys_are_not_copied_for_each_query() -> None:
    """Values that vary with the query leave the keys what they are."""
    program = ix.compile(
        """input Q[i, d], K[j, d], V[j, e], R[r, e];
let weights[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d])) where j <= i;
let out[i, e] = sum[j](weights[i, j] * (V[j, e] + R[i - j + size(j) - 1, e]));
"""
    )
    arrays = [np.zeros(shape) for shape in ((5, 2), (5, 2), (5, 3), (9, 3))]
    assert "n_i, n_j, n_d" not in program.source(*arrays, backend="torch")


if __name__ == "__main__":
    totals = [grow_total(outputs) for outputs in (["out", "lse"], ["lse"])]
    print(json.dumps({**{name: grow(name) for name in sys.argv[1:]}, "total": totals}))
