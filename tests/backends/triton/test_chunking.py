"""Causal products by Triton kernels without a GPU: in Triton's interpreter, and compiled for a card."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests.backends.triton.chunking import CASES  # noqa: E402

ROUGH = {torch.float32: 1e-5, torch.float16: 1e-3}
FEW = ["levels", "rate and levels", "one chunk"]
OTHERS = [name for name in CASES if name not in FEW]


@pytest.mark.parametrize("names", [FEW, pytest.param(OTHERS, marks=pytest.mark.sampled(0))], ids=["few", "others"])
def test_interpreted_kernels_compute_the_products(names: list[str]) -> None:
    """The interpreter is chosen when Triton is loaded, so it has a process of its own, one for all cases."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.backends.triton.chunking", *names]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    *results, (_, reached) = map(json.loads, run.stdout.splitlines())
    assert [name for name, _ in results] == names
    for name, errors in results:
        assert len(errors) == 4 + len(CASES[name].decays)
        assert max(errors) < ROUGH[CASES[name].dtype], (name, errors)
    assert reached == list(range(70, 150)), "a NaN reaches a row that does not hear it"


@pytest.mark.sampled(0)
@pytest.mark.parametrize("width", [64, 128, 256])
def test_compiled_kernels_fit_the_card(width: int) -> None:
    """They lie in shared memory, keep registers out of memory, and use the matrix units."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.backends.triton.compiling", str(width), "chunks"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    kernels = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    names = [kernel["kernel"] for kernel in kernels]
    both = ["chunk_states_kernel", "chunk_rows_kernel"]
    assert names == [*both, *both, *both, "chunk_rows_kernel"]
    for kernel in kernels:
        assert kernel["shared"] <= 227 << 10
        assert kernel["spilled"] == 0
        assert kernel["matrix"] > 0
