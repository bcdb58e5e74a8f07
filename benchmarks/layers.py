"""A stack of transformer blocks of the standard library beside the same blocks in plain PyTorch.

    python benchmarks/layers.py
    python benchmarks/layers.py --layers 12 --widths 128,512 --json layers.json

One sequence of 128 positions, 4 heads, float32. A ratio is ours ÷ theirs, of medians that were taken in turn in one
process; `step` is a forward and a backward pass by autograd, and `module` the same by `indexical.nn.Module`, named
parameters and all, beside a module by hand. Seconds are those of `ix.compile`, of the first call, and of the gradient
as a program: `ix.grad` and its first call.
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
from indexical.nn import Module

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


class ByHand(torch.nn.Module):
    """The same blocks as a module."""

    def __init__(self, names: list[str], blocks: Callable[..., torch.Tensor], arrays: list[torch.Tensor]) -> None:
        super().__init__()
        self.blocks = blocks
        for name, array in zip(names[1:], arrays[1:], strict=True):
            self.register_parameter(name, torch.nn.Parameter(array.clone()))

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.blocks(y, *self.parameters())


def module_step(module: torch.nn.Module, y: torch.Tensor) -> Callable[[], Any]:
    def run() -> None:
        module.zero_grad()
        module(y).sum().backward()

    return run


def modules(program: ix.Program, blocks: Callable[..., torch.Tensor], arrays: list[torch.Tensor]) -> float:
    """A training step of the program as a module beside the module by hand."""
    names = list(program.inputs)
    given = {name: array.clone() for name, array in zip(names[1:], arrays[1:], strict=True)}
    ours = Module(program, given)
    plain = ByHand(names, blocks, arrays)
    return ratio({"ours": module_step(ours, arrays[0]), "plain": module_step(plain, arrays[0])})


def gradient_seconds(program: ix.Program, arrays: list[torch.Tensor]) -> tuple[float, float]:
    """How long it takes to derive the gradient of all inputs, and to call it for the first time."""
    started = time.perf_counter()
    gradient = ix.grad(program)
    derived = time.perf_counter()
    with torch.no_grad():
        gradient(*arrays, arrays[0])
    return derived - started, time.perf_counter() - derived


def ratio(calls: dict[str, Callable[[], Any]]) -> float:
    found = compete(calls, {}, Patience(4.0, least=9), "cpu")
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
    derived, derived_called = gradient_seconds(program, arrays)
    return {
        "layers": layers,
        "width": width,
        "compile_s": compiled - started,
        "first_call_s": called - ready,
        "gradient_s": derived,
        "gradient_first_call_s": derived_called,
        "forward": forward,
        "step": ratio({"ours": step(program, arrays), "plain": step(beside, arrays)}),
        "module": modules(program, beside, arrays),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--widths", default="128,512")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ.setdefault("IX_CACHE", "0")
    rows = [measure(options.layers, int(width)) for width in options.widths.split(",")]
    print("layers  width  compile  first call  gradient  first call  forward  step  module")
    for row in rows:
        times = f"{row['compile_s']:6.2f} s  {row['first_call_s']:8.2f} s"
        times += f"  {row['gradient_s']:6.2f} s  {row['gradient_first_call_s']:8.2f} s"
        ratios = f"{row['forward']:7.2f}  {row['step']:4.2f}  {row['module']:6.2f}"
        print(f"{row['layers']:6}  {row['width']:5}  {times}  {ratios}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
