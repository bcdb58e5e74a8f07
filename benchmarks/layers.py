"""A stack of transformer blocks of the standard library beside the same blocks in plain PyTorch.

    python benchmarks/layers.py
    python benchmarks/layers.py --layers 12 --widths 128,512 --json layers.json

One sequence of 128 positions, 4 heads, float32. A ratio is ours ÷ theirs, of medians that were taken in turn in one
process; `step` is a forward and a backward pass. Seconds are those of `ix.compile` and of the first call.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from contest.timing import Patience, compete

import indexical as ix

HEADS, POSITIONS = 4, 128
WEIGHTS = """
gain_1[m] bias_1[m] W_Q[h,m,d] W_K[h,m,d] W_V[h,m,e] W_O[h,e,m] gain_2[m] bias_2[m] W_in[m,f] b_in[f] W_out[f,m]
b_out[m]"""


def stack(layers: int) -> str:
    """A program of so many blocks, each with weights of its own."""
    inputs, lets = ["Y_0[i, m]"], []
    for n in range(layers):
        slots = [slot.replace("[", f"_{n}[") for slot in WEIGHTS.split()]
        inputs += slots
        names = ", ".join(slot.split("[")[0] for slot in slots)
        lets.append(f"let Y_{n + 1} = transformer_block(Y_{n}, {names}, 1e-5);")
    return "\n".join(
        ["use std::layers::{transformer_block};", f"input {', '.join(inputs)};", *lets, f"output Y_{layers};"]
    )


def plainly(names: list[str], layers: int, width: int) -> Callable[..., torch.Tensor]:
    """The same blocks, as one would write them."""

    def blocks(*arrays: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, arrays, strict=True))
        y = given["Y_0"]
        for n in range(layers):
            w = {key.removesuffix(f"_{n}"): value for key, value in given.items() if key.endswith(f"_{n}")}
            x = F.layer_norm(y, (width,), w["gain_1"], w["bias_1"], 1e-5)
            q, k, v = ((x @ w[name])[None] for name in ("W_Q", "W_K", "W_V"))
            heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
            y = y + heard.transpose(0, 1).reshape(POSITIONS, width) @ w["W_O"].reshape(width, width)
            x = F.layer_norm(y, (width,), w["gain_2"], w["bias_2"], 1e-5)
            y = y + torch.addmm(w["b_out"], F.gelu(torch.addmm(w["b_in"], x, w["W_in"])), w["W_out"])
        return y

    return blocks


def step(function: Callable[..., torch.Tensor], arrays: list[torch.Tensor]) -> Callable[[], Any]:
    leaves = [array.clone().requires_grad_() for array in arrays]

    def run() -> Any:
        return torch.autograd.grad(function(*leaves).sum(), leaves)

    return run


def ratio(calls: dict[str, Callable[[], Any]]) -> float:
    found = compete(calls, {}, Patience(4.0), "cpu")
    return found["ours"].median / found["plain"].median


def measure(layers: int, width: int) -> dict[str, float]:
    torch.manual_seed(0)
    started = time.perf_counter()
    program = ix.compile(stack(layers))
    compiled = time.perf_counter()
    sizes = {"i": POSITIONS, "m": width, "h": HEADS, "d": width // HEADS, "e": width // HEADS, "f": 4 * width}
    arrays = [torch.randn([sizes[a.coordinate] for a in t.axes]) * 0.05 for t in program.ir.inputs]
    beside = plainly(list(program.inputs), layers, width)
    ready = time.perf_counter()
    with torch.no_grad():
        ours = program(*arrays)
        called = time.perf_counter()
        torch.testing.assert_close(ours, beside(*arrays), rtol=1e-4, atol=1e-5)
        forward = ratio({"ours": lambda: program(*arrays), "plain": lambda: beside(*arrays)})
    return {
        "layers": layers,
        "width": width,
        "compile_s": compiled - started,
        "first_call_s": called - ready,
        "forward": forward,
        "step": ratio({"ours": step(program, arrays), "plain": step(beside, arrays)}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--widths", default="128,512")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ.setdefault("IX_CACHE", "0")
    rows = [measure(options.layers, int(width)) for width in options.widths.split(",")]
    print("layers  width  compile  first call  forward  step")
    for row in rows:
        times = f"{row['compile_s']:6.2f} s  {row['first_call_s']:8.2f} s"
        print(f"{row['layers']:6}  {row['width']:5}  {times}  {row['forward']:7.2f}  {row['step']:4.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
