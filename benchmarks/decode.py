"""A decoding step of a model of 12 blocks, as `ix.incremental` derives it, beside the same by hand in PyTorch.

    python benchmarks/decode.py
    python benchmarks/decode.py --blocks 12 --widths 64,256,768 --layouts in,out --json decode.json
    python benchmarks/decode.py --device cuda --widths 768 --heads 12 --prefix 512 --room 4096

One sequence, float32; each block has norms, heads that turn by rotary positions, and a gated net of four times the
width. By hand, keys and values lie in arrays with room for all positions, new ones are written in place, and weights
lie as `torch.nn.Linear` has them. Ours lie so (`out`: `W_Q[h, d, m]`), or as the standard library has them (`in`:
`W_Q[h, m, d]`). A ratio is ours ÷ theirs, of medians that were taken in turn in one process, on one thread unless
`--threads` says more; `step` is one position after the prefix, `prefill` the prefix, both with the writing of what is
kept. Before anything is timed, steps must equal the full pass and the model by hand.

On a GPU there is room for `--room` positions (`capacity=`), and a step is captured in a CUDA graph: ours, and that by
hand, which writes by `index_copy_` at a place on the device and masks what is not there. `eager` are both without one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from contest.timing import Patience, compete

import indexical as ix

BASE, SMALL = 10000.0, 1e-5
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}

# Each weight: its axes with those that are summed last, and first.
WEIGHTS = {
    "W_Q": ("h, d, m", "h, m, d"),
    "W_K": ("h, d, m", "h, m, d"),
    "W_V": ("h, e, m", "h, m, e"),
    "W_O": ("m, h, e", "h, e, m"),
    "W_gate": ("f, m", "m, f"),
    "W_up": ("f, m", "m, f"),
    "W_down": ("m, f", "f, m"),
}

BLOCK = """
let a_N[i, m] = rms_norm(x_N, norm_1_N, small)[i, m];
let Q_N[h, i, d] = sum[m](a_N[i, m] * W_Q_N[W_Q]);
let K_N[h, i, d] = sum[m](a_N[i, m] * W_K_N[W_K]);
let V_N[h, i, e] = sum[m](a_N[i, m] * W_V_N[W_V]);
let A_N = causal_attention(rotary_halves(Q_N, base), rotary_halves(K_N, base), V_N);
let y_N[i, m] = x_N[i, m] + sum[h, e](A_N[h, i, e] * W_O_N[W_O]);
let c_N[i, m] = rms_norm(y_N, norm_2_N, small)[i, m];
let gate_N[i, f] = silu(sum[m](c_N[i, m] * W_gate_N[W_gate]));
let up_N[i, f] = sum[m](c_N[i, m] * W_up_N[W_up]);
let x_AFTER[i, m] = y_N[i, m] + sum[f](gate_N[i, f] * up_N[i, f] * W_down_N[W_down]);
"""


def model(blocks: int, layout: str) -> str:
    """A program of so many blocks, each with weights of its own."""
    axes = {name: both[layout == "in"] for name, both in WEIGHTS.items()}
    inputs, lets = ["x_0[i, m]", "base", "small"], []
    for n in range(blocks):
        inputs += [f"norm_1_{n}[m]", f"norm_2_{n}[m]", *(f"{name}_{n}[{own}]" for name, own in axes.items())]
        block = BLOCK.replace("AFTER", str(n + 1)).replace("_N", f"_{n}")
        for name, own in axes.items():
            block = block.replace(f"[{name}]", f"[{own}]")
        lets.append(block)
    uses = (
        "use std::attention::{causal_attention};\nuse std::norms::{rms_norm};\nuse std::positions::{rotary_halves};\n"
    )
    return f"{uses}input {', '.join(inputs)};\n{''.join(lets)}\noutput x_{blocks};\n"


def drawn(blocks: int, width: int, heads: int) -> dict[str, torch.Tensor]:
    """Weights as `torch.nn.Linear` has them: with axes for heads, and what is summed last."""
    sizes = {"m": width, "h": heads, "d": width // heads, "e": width // heads, "f": 4 * width}
    found = {}
    for n in range(blocks):
        for name in ("norm_1", "norm_2"):
            found[f"{name}_{n}"] = 1 + torch.randn(width) * 0.1
        for name, (axes, _) in WEIGHTS.items():
            shape = [sizes[axis] for axis in axes.split(", ")]
            summed = 4 * width if name == "W_down" else width
            found[f"{name}_{n}"] = torch.randn(shape) / math.sqrt(summed)
    return found


def laid_out(weights: dict[str, torch.Tensor], layout: str) -> dict[str, torch.Tensor]:
    if layout == "out":
        return weights
    found = {}
    for name, value in weights.items():
        out, into = (axes.split(", ") for axes in WEIGHTS.get(name.rpartition("_")[0], ("m", "m")))
        found[name] = value.permute([out.index(axis) for axis in into]).contiguous()
    return found


class ByHand:
    """The same model, as one would write it: keys and values in arrays with room for all positions."""

    def __init__(self, weights: dict[str, torch.Tensor], blocks: int, width: int, heads: int, room: int) -> None:
        self.blocks, self.heads, self.head = blocks, heads, width // heads
        self.weights = [
            {
                name.removesuffix(f"_{n}"): (
                    value
                    if value.ndim == 1
                    else value.reshape(width, -1)
                    if "_O_" in name
                    else value.reshape(-1, value.shape[-1])
                )
                for name, value in weights.items()
                if name.endswith(f"_{n}") and name.removesuffix(f"_{n}") in ("norm_1", "norm_2", *WEIGHTS)
            }
            for n in range(blocks)
        ]
        self.keys = [torch.zeros(heads, room, self.head) for _ in range(blocks)]
        self.values = [torch.zeros(heads, room, self.head) for _ in range(blocks)]
        angles = torch.outer(torch.arange(room), BASE ** (-torch.arange(0, self.head, 2) / self.head))
        self.cos, self.sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def __call__(self, x: torch.Tensor, before: int) -> torch.Tensor:
        """The new positions, of which so many are past."""
        count, width = x.shape
        after = before + count
        cos, sin = self.cos[before:after], self.sin[before:after]
        for w, keys, values in zip(self.weights, self.keys, self.values, strict=True):
            a = F.rms_norm(x, (width,), w["norm_1"], SMALL)
            q, k, v = (
                F.linear(a, w[name]).view(count, self.heads, -1).transpose(0, 1) for name in ("W_Q", "W_K", "W_V")
            )
            keys[:, before:after] = turned(k, cos, sin)
            values[:, before:after] = v
            heard = F.scaled_dot_product_attention(
                turned(q, cos, sin)[None], keys[None, :, :after], values[None, :, :after], is_causal=count > 1
            )[0]
            x = x + F.linear(heard.transpose(0, 1).reshape(count, width), w["W_O"])
            c = F.rms_norm(x, (width,), w["norm_2"], SMALL)
            x = x + F.linear(F.silu(F.linear(c, w["W_gate"])) * F.linear(c, w["W_up"]), w["W_down"])
        return x


class InRoom(ByHand):
    """The same with shapes that never change: the place is a number on the device, and all keys are given to the
    library, with a mask of those that are there."""

    def __init__(self, weights: dict[str, torch.Tensor], blocks: int, width: int, heads: int, room: int) -> None:
        super().__init__(weights, blocks, width, heads, room)
        given = next(iter(weights.values()))
        self.place = torch.zeros(1, dtype=torch.int64, device=given.device)
        self.places = torch.arange(room, device=given.device)
        self.keys = [torch.zeros(heads, room, self.head, device=given.device, dtype=given.dtype) for _ in range(blocks)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.cos, self.sin = (one.to(given) for one in (self.cos, self.sin))
        self.new = torch.zeros(1, width, device=given.device, dtype=given.dtype)
        self.graph: torch.cuda.CUDAGraph | None = None

    def step(self) -> torch.Tensor:
        """The position at the place, of which the input is `new`; the place moves on."""
        x, width = self.new, self.new.shape[1]
        cos, sin = self.cos[self.place], self.sin[self.place]
        mask = self.places <= self.place
        for w, keys, values in zip(self.weights, self.keys, self.values, strict=True):
            a = F.rms_norm(x, (width,), w["norm_1"], SMALL)
            q, k, v = (F.linear(a, w[name]).view(1, self.heads, -1).transpose(0, 1) for name in ("W_Q", "W_K", "W_V"))
            keys.index_copy_(1, self.place, turned(k, cos, sin))
            values.index_copy_(1, self.place, v)
            heard = F.scaled_dot_product_attention(
                turned(q, cos, sin)[None], keys[None], values[None], attn_mask=mask[None, None, None]
            )[0]
            x = x + F.linear(heard.transpose(0, 1).reshape(1, width), w["W_O"])
            c = F.rms_norm(x, (width,), w["norm_2"], SMALL)
            x = x + F.linear(F.silu(F.linear(c, w["W_gate"])) * F.linear(c, w["W_up"]), w["W_down"])
        self.place += 1
        return x

    def capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = self.step()

    def replay(self, x: torch.Tensor) -> torch.Tensor:
        assert self.graph is not None
        self.new.copy_(x)
        self.graph.replay()
        return self.out.clone()

    def eager(self, x: torch.Tensor) -> torch.Tensor:
        self.new.copy_(x)
        return self.step()


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def ratio(calls: dict[str, Callable[[], Any]], seconds: float) -> tuple[float, float]:
    found = compete(calls, {}, Patience(seconds, least=15), "cpu")
    return found["ours"].median / found["plain"].median, found["plain"].median


def measure(blocks: int, width: int, heads: int, layout: str, prefix: int, seconds: float) -> dict[str, Any]:
    torch.manual_seed(0)
    weights = drawn(blocks, width, heads)
    room = prefix + 256
    program = ix.compile(model(blocks, layout))
    decode = ix.incremental(program, along="i", base=BASE, small=SMALL, **laid_out(weights, layout))
    plain = ByHand(weights, blocks, width, heads, room)
    x = torch.randn(prefix + 8, width)
    whole = program(x_0=x, base=BASE, small=SMALL, **laid_out(weights, layout))
    state, first = decode.prefill(x[:prefix], capacity=room)
    torch.testing.assert_close(first, whole[:prefix], **TOLERANCE)
    torch.testing.assert_close(plain(x[:prefix], 0), whole[:prefix], **TOLERANCE)
    for n in range(prefix, prefix + 8):
        state, y = decode.step(x[n : n + 1], state)
        torch.testing.assert_close(y, whole[n : n + 1], **TOLERANCE)
        torch.testing.assert_close(plain(x[n : n + 1], n), whole[n : n + 1], **TOLERANCE)

    states, rows = {"ours": state}, {"plain": state.length}
    new = x[:1]

    def step() -> None:
        # Every step is at a length of its own, as in generation; at the end of the room it begins again.
        if states["ours"].length == room:
            states["ours"] = states["ours"].back_to(prefix)
        states["ours"], _ = decode.step(new, states["ours"])

    def step_by_hand() -> None:
        rows["plain"] = prefix if rows["plain"] == room else rows["plain"]
        plain(new, rows["plain"])
        rows["plain"] += 1

    found, seconds_by_hand = ratio({"ours": step, "plain": step_by_hand}, seconds)
    filled, prefill_by_hand = ratio(
        {"ours": lambda: decode.prefill(x[:prefix], capacity=room), "plain": lambda: plain(x[:prefix], 0)}, seconds
    )
    return {
        "width": width,
        "layout": layout,
        "step": found,
        "step_by_hand_ms": seconds_by_hand * 1e3,
        "prefill": filled,
        "prefill_by_hand_ms": prefill_by_hand * 1e3,
    }


def measure_on_gpu(
    blocks: int, width: int, heads: int, prefix: int, room: int, dtype: str, seconds: float
) -> dict[str, Any]:
    """The times of a step on a GPU, as graphs and without: ours ÷ by hand."""
    torch.manual_seed(0)
    of = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    exact = drawn(blocks, width, heads)
    weights = {name: value.to("cuda", of) for name, value in exact.items()}
    program = ix.compile(model(blocks, "out"))
    given = {"base": BASE, "small": SMALL, **weights}
    decoders = {
        name: ix.incremental(program, along="i", capacity=room, graph=graph, **given)
        for name, graph in (("ours", True), ("ours, eager", False))
    }
    plain = InRoom(weights, blocks, width, heads, room)
    x = torch.randn(prefix + 8, width)
    whole = program(x_0=x, base=BASE, small=SMALL, **exact)
    x = x.to("cuda", of)
    states = {name: decode.prefill(x[:prefix])[0] for name, decode in decoders.items()}
    kept = states["ours"]._store
    for memory, array in zip(kept.memories, kept.arrays, strict=True):
        into = plain.values if memory.tensor.startswith("V_") else plain.keys
        into[int(memory.tensor.split("_")[1])].copy_(array)
    plain.place.fill_(prefix)
    plain.capture()
    plain.place.fill_(prefix)
    far = {"f32": 1e-4, "bf16": 5e-2}[dtype]
    for n in range(prefix, prefix + 8):
        found = {"plain": plain.replay(x[n : n + 1])}
        for name, decode in decoders.items():
            states[name], found[name] = decode.step(x[n : n + 1], states[name])
        for one in found.values():
            assert (one.float().cpu() - whole[n : n + 1]).norm() <= far * whole[n : n + 1].norm()
    captured = [type(graph).__name__ for graph in states["ours"]._store.captures.graphs.values()]
    assert captured == ["Captured"], decoders["ours"].uncaptured

    def stepping(name: str) -> Callable[[], Any]:
        def step() -> Any:
            if states[name].length == room:
                states[name] = states[name].back_to(prefix)
            states[name], found = decoders[name].step(x[:1], states[name])
            return found

        return step

    def by_hand(call: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
        left = [room - prefix - 8]

        def step() -> Any:
            if not left[0]:
                plain.place.fill_(prefix)
                left[0] = room - prefix
            left[0] -= 1
            return call(x[:1])

        return step

    calls = {name: stepping(name) for name in decoders}
    calls |= {"by hand": by_hand(plain.replay)}
    found = compete(calls, {}, Patience(seconds, least=15), "cuda")
    plain.place.fill_(prefix)
    found |= compete({"by hand, eager": by_hand(plain.eager)}, {}, Patience(seconds, least=15), "cuda")
    times = {name: round(one.median * 1e3, 4) for name, one in found.items()}
    about = {"width": width, "prefix": prefix, "room": room, "dtype": dtype}
    return {**about, "step": times["ours"] / times["by hand"], **times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--widths", default="64,256,768")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layouts", default="out,in")
    parser.add_argument("--prefix", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--room", type=int, default=4096)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ.setdefault("IX_CACHE", "0")
    torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    if options.device == "cuda":
        with torch.no_grad():
            for width in map(int, options.widths.split(",")):
                for dtype in ("bf16", "f32"):
                    sizes = options.blocks, width, options.heads, options.prefix, options.room
                    rows.append(measure_on_gpu(*sizes, dtype, options.seconds))
                    print(rows[-1])
    else:
        print("width  layout   step  by hand   prefill  by hand")
    with torch.no_grad():
        for width in map(int, options.widths.split(",")) if options.device == "cpu" else ():
            for layout in options.layouts.split(","):
                row = measure(options.blocks, width, options.heads, layout, options.prefix, options.seconds)
                rows.append(row)
                step = f"{row['step']:6.2f}  {row['step_by_hand_ms']:4.1f} ms"
                print(f"{width:5}  {layout:6} {step}  {row['prefill']:6.2f}  {row['prefill_by_hand_ms']:6.1f} ms")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
