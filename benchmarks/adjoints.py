"""Derivatives of gathers and convolutions beside `torch.autograd`: times, and the ratio of their medians.

    python benchmarks/adjoints.py
    python benchmarks/adjoints.py --quick --only embedding,image
    python benchmarks/adjoints.py --json adjoints.json

Both run in turn in one process, on the same tensors, and medians are compared. Ours is `ix.grad(program)`, a program
that is handed the cotangent. Theirs is `torch.autograd.grad` of the same written by hand with PyTorch's own functions,
the forward pass included; beside it stands the way back alone, through a graph that is there already. These programs
are linear in each of their inputs, so that ours computes no forward pass.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import indexical as ix

EMBEDDING = "input E[n, m], p[b, i]; let y[b, i, m] = E[p[b, i], m];"
PICKED = "input x[i, n], p[i]; let y[i] = x[i, p[i]];"
PAIRS = "input x[n, k], p[i], q[i]; let y[i] = x[p[i], q[i]];"
GROUPED = "input K[b, g, j, d], w[b, h, j, d]; let y[b, h, j, d] = K[b, h / 4, j, d] * w[b, h, j, d];"
ROW = """
input x[b, c, n], w[o, c, k];
let y[b, o, i in 0..size(n) - size(k) + 1] = sum[c, k](x[b, c, i + k] * w[o, c, k]);
"""
CAUSAL = "input x[b, n, c], w[k, c]; let y[b, n, c] = sum[k](x[b, n - k, c] * w[k, c] where k <= n);"
DILATED = """
input x[b, c, n], w[o, c, k in 0..3];
let y[b, o, n] = sum[c, k](x[b, c, n + 4 * k - 4] * w[o, c, k] where 0 <= n + 4 * k - 4 < size(n));
"""
IMAGE = """
input x[b, c, u, v], w[o, c, k in 0..3, l in 0..3];
let y[b, o, u, v] = sum[c, k, l](x[b, c, u + k - 1, v + l - 1] * w[o, c, k, l]
    where 0 <= u + k - 1 < size(u), 0 <= v + l - 1 < size(v));
"""
STRIDED = """
input x[b, c, u, v], w[o, c, k in 0..3, l in 0..3];
let y[b, o, i in 0..size(u) / 2, j in 0..size(v) / 2] = sum[c, k, l](
    x[b, c, 2 * i + k - 1, 2 * j + l - 1] * w[o, c, k, l]
    where 0 <= 2 * i + k - 1 < size(u), 0 <= 2 * j + l - 1 < size(v));
"""
PATCHES = """
input x[b, c, u, v], w[o, c, k in 0..8, l in 0..8];
let y[b, o, i in 0..size(u) / 8, j in 0..size(v) / 8] = sum[c, k, l](x[b, c, 8 * i + k, 8 * j + l] * w[o, c, k, l]);
"""

EXPERTS = "input W[k, n, m], x[t, m], expert[t]; let y[t, n] = sum[m](W[expert[t], n, m] * x[t, m]);"


def experts(W: Tensor, x: Tensor, expert: Tensor) -> Tensor:
    order = torch.argsort(expert)
    parts = x[order].split(torch.bincount(expert, minlength=len(W)).tolist())
    found = torch.cat([part @ weights.T for part, weights in zip(parts, W, strict=True)])
    return torch.zeros_like(found).index_copy(0, order, found)


def causal(x: Tensor, w: Tensor) -> Tensor:
    padded = F.pad(x.mT, (w.shape[0] - 1, 0))
    return F.conv1d(padded, w.flip(0).mT[:, None], groups=w.shape[1]).mT


def grouped(k: Tensor, w: Tensor) -> Tensor:
    return k.repeat_interleave(4, 1) * w


@dataclass(frozen=True)
class Case:
    """A program, the same by hand, and tensors for both, of which the real ones are learned."""

    name: str
    text: str
    by_hand: Callable[..., Tensor]
    inputs: Callable[[int], tuple[Tensor, ...]]
    size: int


def _table(*shape: int) -> Tensor:
    return torch.randn(shape)


CASES = (
    Case(
        "embedding", EMBEDDING, lambda E, p: F.embedding(p, E), lambda n: (_table(8 * n, 64), _places(n, 4, n)), 2_000
    ),
    Case(
        "picked",
        PICKED,
        lambda x, p: x.gather(1, p[:, None])[:, 0],
        lambda n: (_table(n, 1000), _places(1000, n)),
        2_000,
    ),
    Case("pairs", PAIRS, lambda x, p, q: x[p, q], lambda n: (_table(n, 64), _places(n, n), _places(64, n)), 20_000),
    Case("grouped", GROUPED, grouped, lambda n: (_table(1, 4, n, 64), _table(1, 16, n, 64)), 1_024),
    Case(
        "experts",
        EXPERTS,
        experts,
        lambda n: (_table(8, 128, 128), _table(n, 128), _places(8, n)),
        512,
    ),
    Case("row", ROW, F.conv1d, lambda n: (_table(8, 32, n), _table(48, 32, 5)), 512),
    Case("causal", CAUSAL, causal, lambda n: (_table(4, n, 256), _table(4, 256)), 1_024),
    Case(
        "dilated",
        DILATED,
        lambda x, w: F.conv1d(x, w, padding=4, dilation=4),
        lambda n: (_table(8, 32, n), _table(48, 32, 3)),
        512,
    ),
    Case(
        "image",
        IMAGE,
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda n: (_table(8, 16, n, n), _table(32, 16, 3, 3)),
        48,
    ),
    Case(
        "strided",
        STRIDED,
        lambda x, w: F.conv2d(x, w, padding=1, stride=2),
        lambda n: (_table(8, 16, n, n), _table(32, 16, 3, 3)),
        64,
    ),
    Case(
        "patches",
        PATCHES,
        lambda x, w: F.conv2d(x, w, stride=8),
        lambda n: (_table(8, 3, n, n), _table(64, 3, 8, 8)),
        96,
    ),
)


def _places(count: int, *shape: int) -> Tensor:
    return torch.randint(count, shape)


def measure(case: Case, quick: bool) -> dict[str, object]:
    """The medians of both, taken in turn, and how far apart their results are."""
    torch.manual_seed(0)
    inputs = case.inputs(case.size // 4 if quick else case.size)
    learned = [tensor.requires_grad_() for tensor in inputs if tensor.is_floating_point()]
    program = ix.compile(case.text)
    backward = ix.grad(program)
    out = case.by_hand(*inputs)
    arriving = torch.randn_like(out)
    plain = [tensor.detach() for tensor in inputs]
    runs: dict[str, Callable[[], tuple[Tensor, ...]]] = {
        "ours": lambda: _several(backward(*plain, arriving)),
        "by hand": lambda: torch.autograd.grad(case.by_hand(*inputs), learned, arriving),
        "back alone": lambda: torch.autograd.grad(out, learned, arriving, retain_graph=True),
    }
    found = {name: run() for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(7 if quick else 21):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    apart = [(a - b).abs().max() / b.abs().max() for a, b in zip(found["ours"], found["by hand"], strict=True)]
    return {
        "case": case.name,
        **medians,
        "ratio": medians["ours"] / medians["by hand"],
        "ratio to back alone": medians["ours"] / medians["back alone"],
        "difference": float(max(apart)),
    }


def _several(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the size, a third of the turns")
    parser.add_argument("--only", help=f"of {', '.join(case.name for case in CASES)}; by default all")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; 1 by default")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    wanted = [name.strip() for name in given.only.split(",")] if given.only else None
    print(f"{'':10}  {'ours':>10}  {'by hand':>10}  {'back alone':>10}  {'ratio':>6}  {'alone':>6}  {'apart':>8}")
    rows = []
    for case in CASES:
        if wanted is not None and case.name not in wanted:
            continue
        row = measure(case, given.quick)
        rows.append(row)
        print(
            f"{case.name:10}  {row['ours'] * 1e3:7.2f} ms  {row['by hand'] * 1e3:7.2f} ms"  # type: ignore[operator]
            f"  {row['back alone'] * 1e3:7.2f} ms  {row['ratio']:6.2f}  {row['ratio to back alone']:6.2f}"  # type: ignore[operator]
            f"  {row['difference']:8.1e}",
            flush=True,
        )
    if given.json is not None:
        about = {"python": platform.python_version(), "torch": torch.__version__, "threads": given.threads}
        given.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
