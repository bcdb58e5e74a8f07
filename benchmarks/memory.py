"""Budgets of memory for a stack of transformer blocks, beside `torch.utils.checkpoint` around each block.

    python benchmarks/memory.py
    python benchmarks/memory.py --layers 12 --positions 512 --width 256 --json memory.json

A training step, forward and backward, in float32. `peak` is the most that the allocator held at once beside inputs and
weights, `planned` what the plan says, and `ratio` the time of a step ÷ that of the same blocks in plain PyTorch with
nothing computed again, medians taken in turn in one process. Budgets lie between the least and none.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from layers import stack
from torch.utils.checkpoint import checkpoint

import indexical as ix

HEADS = 4
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)


def block(y: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """One block, as one would write it."""
    gain_1, bias_1, W_Q, W_K, W_V, W_O, gain_2, bias_2, W_in, b_in, W_out, b_out = weights
    positions, width = y.shape
    x = F.layer_norm(y, (width,), gain_1, bias_1, 1e-5)
    q, k, v = ((x @ weight)[None] for weight in (W_Q, W_K, W_V))
    heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
    y = y + heard.transpose(0, 1).reshape(positions, width) @ W_O.reshape(width, width)
    x = F.layer_norm(y, (width,), gain_2, bias_2, 1e-5)
    return y + torch.addmm(b_out, F.gelu(torch.addmm(b_in, x, W_in)), W_out)


def plainly(arrays: list[torch.Tensor], again: bool) -> torch.Tensor:
    y, count = arrays[0], 12
    for n in range(1, len(arrays), count):
        weights = arrays[n : n + count]
        y = checkpoint(block, y, *weights, use_reentrant=False) if again else block(y, *weights)
    return y


def peak(call: Callable[[], Any]) -> int:
    """The most bytes that there were at once of all that was allocated since the call began."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


def compared(steps: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of each step, taken in turn."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


def least(program: ix.Program, arrays: list[torch.Tensor]) -> int:
    try:
        program.plan(*arrays, memory=1)
    except ix.CallError as refusal:
        found = re.search(r"memory=(\d+)", str(refusal))
        assert found is not None
        return int(found[1])
    return 1


def measure(layers: int, positions: int, width: int, repeats: int) -> list[dict[str, Any]]:
    program = ix.compile(stack(layers))
    sizes = {"i": positions, "m": width, "h": HEADS, "d": width // HEADS, "e": width // HEADS, "f": 4 * width}
    shapes = [[sizes[axis.coordinate.name] for axis in tensor.axes] for tensor in program.ir.inputs]
    arrays = [(torch.randn(shape) * 0.05).requires_grad_() for shape in shapes]
    low, plan = least(program, arrays), program.plan(*arrays, memory="1TB")
    assert plan.budget is not None
    limits = {share: int(low + share * (plan.budget.peak - low)) for share in SHARES}

    def step(call: Callable[[], torch.Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(call().sum(), arrays)

    steps = {"plain": step(lambda: plainly(arrays, False)), "checkpoint": step(lambda: plainly(arrays, True))}
    steps |= {f"budget {n:.2f}": step(lambda m=m: program(*arrays, memory=m)) for n, m in limits.items()}
    peaks = {}
    for name, run in steps.items():
        run()
        peaks[name] = peak(run)
    seconds = compared(steps, repeats)
    rows: list[dict[str, Any]] = []
    for name in steps:
        row: dict[str, Any] = {"step": name, "peak": peaks[name], "ratio": seconds[name] / seconds["plain"]}
        if name.startswith("budget"):
            budget = program.plan(*arrays, memory=limits[float(name.split()[1])]).budget
            assert budget is not None
            row |= {"limit": budget.limit, "planned": budget.peak, "again": sum(part.share for part in budget.again)}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Budgets of memory beside checkpoints around each block.")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--positions", type=int, default=512)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", metavar="PATH")
    options = parser.parse_args()
    rows = measure(options.layers, options.positions, options.width, options.repeats)
    print(f"{'step':12} {'limit':>10} {'planned':>10} {'peak':>10} {'again':>6} {'ratio':>6}")
    for row in rows:
        limit, planned = (f"{row[key] / 2**20:.1f} MiB" if key in row else "" for key in ("limit", "planned"))
        again = f"{row['again']:.0%}" if "again" in row else ""
        found = f"{row['peak'] / 2**20:.1f} MiB"
        print(f"{row['step']:12} {limit:>10} {planned:>10} {found:>10} {again:>6} {row['ratio']:>6.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
