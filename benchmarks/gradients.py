"""Derivatives of attention as programs, beside autograd: forward and backward, times and memory.

    python benchmarks/gradients.py
    python benchmarks/gradients.py --quick --json gradients.json
    python benchmarks/gradients.py --sizes 1024,2048 --variants causal,window

B = 1, H = 8, D = 64, float32. `grad` is the program of `ix.grad` by query, key and value, which computes a forward pass
of its own; `autograd` is a forward pass and `torch.autograd.grad`: through scaled_dot_product_attention where that
knows the variant, else through the same program's own kernels; `eager` the same through matmul, softmax, matmul. All
run in turn in one process, and medians are compared. A ratio is ours ÷ theirs. Memory is by how much a process of its
own grows in one call.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from contest.timing import Patience, compete, once, progress

import indexical as ix

HEADS, WIDTH = 8, 64
DOT = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"
PLAINLY = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}


@dataclass(frozen=True)
class Variant:
    """A score and a guard as text, and what they are in PyTorch, where a mask is True for what is heard."""

    score: str
    guard: str
    mask: Callable[[int], torch.Tensor] | None = None
    more: str = ""
    scored: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None


def causal(size: int) -> torch.Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril()


def window(size: int) -> torch.Tensor:
    return causal(size) & ~torch.ones(size, size, dtype=torch.bool).tril(-256)


def sloped(scores: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    places = torch.arange(scores.shape[-1])
    return scores - slope[:, None, None] * (places[:, None] - places)


VARIANTS = {
    "full": Variant(DOT, ""),
    "causal": Variant(DOT, " where j <= i", causal),
    "window": Variant(DOT, " where j <= i, i - j < 256", window),
    "alibi": Variant(f"{DOT} - slope[h] * (i - j)", " where j <= i", causal, ", slope[h]", sloped),
    "softcap": Variant(
        f"30 * tanh({DOT} / 30)", " where j <= i", causal, scored=lambda scores, _: 30 * torch.tanh(scores / 30)
    ),
}


def text(variant: Variant) -> str:
    return (
        f"input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{variant.more};\n"
        f"let scores[b, h, i, j] = {variant.score};\n"
        f"let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]){variant.guard};\n"
        "let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);\n"
    )


def eager(variant: Variant, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores if variant.scored is None else variant.scored(scores, slope)
    if variant.mask is not None:
        scores = scores.masked_fill(~variant.mask(q.shape[-2]), -math.inf)
    return torch.softmax(scores, -1) @ v


def contestants(name: str, size: int, backend: str = "torch") -> dict[str, Callable[[], Any]]:
    """Everyone who computes the gradients by query, key and value."""
    variant = VARIANTS[name]
    generator = torch.Generator().manual_seed(0)
    q, k, v, arriving = (torch.randn(1, HEADS, size, WIDTH, generator=generator) for _ in range(4))
    slope = torch.rand(HEADS, generator=generator) / 4
    forward = ix.compile(text(variant))
    program = ix.grad(forward, of="out", by=("Q", "K", "V"))
    further = (slope,) if variant.more else ()
    arrays = [q, k, v, *further, arriving]
    if backend == "numpy":
        arrays = [array.numpy() for array in arrays]

    def through(call: Callable[..., torch.Tensor]) -> Callable[[], Any]:
        def run() -> Any:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            return torch.autograd.grad(call(*leaves), leaves, arriving)

        return run

    sdpa = torch.nn.functional.scaled_dot_product_attention
    own: Callable[..., torch.Tensor] = lambda *leaves: forward(*leaves, *further)  # noqa: E731
    if name in ("full", "causal"):
        own = lambda *leaves: sdpa(*leaves, is_causal=name == "causal")  # noqa: E731
    return {
        "grad": lambda: program(*arrays),
        "autograd": through(own),
        "eager": through(lambda *leaves: eager(variant, *leaves, slope)),
    }


def measure(name: str, size: int, patience: Patience) -> dict[str, Any]:
    """The times of all, and how far ours is from autograd's."""
    calls = contestants(name, size)
    first, found = {}, {}
    for who, call in calls.items():
        first[who], found[who] = once(call, "cpu")
    error = max(float((a - b).abs().max()) for a, b in zip(found["grad"], found["autograd"], strict=True))
    times = compete(calls, first, patience, "cpu")
    ratios = {who: times["grad"].median / times[who].median for who in calls if who != "grad"}
    return {
        "variant": name,
        "size": size,
        "times": {who: asdict(t) for who, t in times.items()},
        "ratios": ratios,
        "error": error,
    }


# ------------------------------------------------------------------------------- memory


def settle() -> int:
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(field: str) -> int:
    found = re.search(rf"^{field}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 0 if found is None else 1024 * int(found[1])


def grow(name: str, size: int, who: str) -> None:
    """Print by how many bytes this process grows in one call."""
    backend = "numpy" if who == "numpy" else "torch"
    for count in (64, size):
        call = contestants(name, count, backend)["grad" if who == "numpy" else who]
        call() if count == 64 else None
        before = settle()
        found = call()
        growth = status("VmHWM") - before
        del found
    print(growth)


def measure_memory(name: str, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {"variant": name, "size": size}
    for who in ("grad", "numpy", "autograd", "eager"):
        run = [sys.executable, __file__, "--grow", name, str(size), who]
        result = subprocess.run(run, env={**os.environ, **PLAINLY}, capture_output=True, encoding="utf-8", check=True)
        found[who] = int(result.stdout.strip())
    return found


def show(cells: list[dict[str, Any]], growths: list[dict[str, Any]]) -> None:
    print(f"{'variant':<10}{'size':>6}{'grad':>11}{'÷ autograd':>12}{'÷ eager':>9}{'error':>10}")
    for cell in cells:
        ours = cell["times"]["grad"]["median"] * 1e3
        ratios = cell["ratios"]
        line = (
            f"{cell['variant']:<10}{cell['size']:>6}{ours:>8.1f} ms{ratios['autograd']:>12.2f}{ratios['eager']:>9.2f}"
        )
        print(f"{line}{cell['error']:>10.0e}{'  noisy' if cell['times']['grad']['others'] > 0.05 else ''}")
    if growths:
        print(f"\n{'memory':<10}{'size':>6}{'grad':>10}{'in NumPy':>10}{'autograd':>10}{'eager':>10}   MiB")
    for growth in growths:
        parts = "".join(f"{growth[who] / 2**20:>10.0f}" for who in ("grad", "numpy", "autograd", "eager"))
        print(f"{growth['variant']:<10}{growth['size']:>6}{parts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="causal and window alone, no memory")
    parser.add_argument("--sizes", default="2048")
    parser.add_argument("--variants", default="")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--grow", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.grow:
        grow(given.grow[0], int(given.grow[1]), given.grow[2])
        return
    names = given.variants.split(",") if given.variants else ["causal", "window"] if given.quick else list(VARIANTS)
    sizes = [int(size) for size in given.sizes.split(",")]
    patience = Patience(3.0 if given.quick else 8.0, least=5, quiet=given.wait)
    cells, growths = [], []
    for size in sizes:
        for name in names:
            progress(f"  {name}, {size}")
            cells.append(measure(name, size, patience))
            if not (given.quick or given.no_memory):
                growths.append(measure_memory(name, size))
    show(cells, growths)
    if given.json is not None:
        about = {"python": platform.python_version(), "torch": torch.__version__, "threads": torch.get_num_threads()}
        given.json.write_text(json.dumps({"about": about, "cells": cells, "memory": growths}, indent=2) + "\n")


if __name__ == "__main__":
    main()
