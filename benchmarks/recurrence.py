"""Recurrences beside hand-written PyTorch loops: times, and the ratio of their medians.

    python benchmarks/recurrence.py
    python benchmarks/recurrence.py --quick --only diagonal,dense
    python benchmarks/recurrence.py --json recurrence.json

Both run in turn in one process, on the same tensors, and medians are compared; with gradients, the way back is in the
time. The loops by hand are good ones: what no step changes is computed before the loop, the steps are unbound and not
indexed, each takes one call of `addmm` or `addmv` where it can, and all are stacked in the end. Of the table of two
coordinates there are two by hand: point by point, as the recurrence is read, and along its diagonals.
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
from torch import Tensor

import indexical as ix

DIAGONAL = """
input a[t, m], x[t, m];
let h[0, m] = x[0, m];
let h[t in 1..size(t), m] = a[t, m] * h[t - 1, m] + x[t, m];
"""
GATED = """
input g[b, t, m], x[b, t, m];
let gate[b, t, m] = sigmoid(g[b, t, m]);
let h[b, t, m] = gate[b, t, m] * x[b, t, m] + if t > 0 { (1 - gate[b, t, m]) * h[b, t - 1, m] } else { 0 };
"""
DENSE = """
input A[m, n], x[t, m];
let h[0, m] = x[0, m];
let h[t in 1..size(t), m] = tanh(sum[n](A[m, n] * h[t - 1, n]) + x[t, m]);
"""
LINEAR = DENSE.replace("tanh(", "(")
BACKWARD = """
input A[n, m], h[t, m], d_out[t, m];
let d_h[size(t) - 1, m] = d_out[size(t) - 1, m];
let d_h[t in 0..size(t) - 1, m] =
    d_out[t, m] + sum[n](A[n, m] * d_h[t + 1, n] * (1 - h[t + 1, n] * h[t + 1, n]));
"""
LSTM = (Path(__file__).parent.parent / "examples" / "lstm.ix").read_text(encoding="utf-8")
ALIGNMENT = """
input first[a] : i64, second[c] : i64;
let score[c in 0..=size(c), 0] = 0.0;
let score[0, a in 1..=size(a)] = 0.0;
let score[c in 1..=size(c), a in 1..=size(a)] = max(
    0,
    score[c - 1, a - 1] + (if first[a - 1] == second[c - 1] { 3 } else { -3 }),
    score[c - 1, a] - 2,
    score[c, a - 1] - 2
);
"""


# ------------------------------------------------------------------------- by hand


def diagonal(a: Tensor, x: Tensor) -> Tensor:
    steps = x.unbind(0)
    h = steps[0]
    rows = [h]
    for factor, step in zip(a.unbind(0)[1:], steps[1:], strict=True):
        h = torch.addcmul(step, factor, h)
        rows.append(h)
    return torch.stack(rows)


def gated(g: Tensor, x: Tensor) -> Tensor:
    gate = torch.sigmoid(g)
    added = (gate * x).unbind(1)
    h = added[0]
    rows = [h]
    for factor, step in zip((1 - gate).unbind(1)[1:], added[1:], strict=True):
        h = torch.addcmul(step, factor, h)
        rows.append(h)
    return torch.stack(rows, 1)


def dense(matrix: Tensor, x: Tensor) -> Tensor:
    steps = x.unbind(0)
    h = steps[0]
    rows = [h]
    for step in steps[1:]:
        h = torch.tanh(torch.addmv(step, matrix, h))
        rows.append(h)
    return torch.stack(rows)


def linear(matrix: Tensor, x: Tensor) -> Tensor:
    steps = x.unbind(0)
    h = steps[0]
    rows = [h]
    for step in steps[1:]:
        h = torch.addmv(step, matrix, h)
        rows.append(h)
    return torch.stack(rows)


def backward(matrix: Tensor, h: Tensor, d_out: Tensor) -> Tensor:
    turned = matrix.mT
    slopes, arriving = (1 - h * h).unbind(0), d_out.unbind(0)
    d_h = arriving[-1]
    rows = [d_h]
    for slope, step in zip(reversed(slopes[1:]), reversed(arriving[:-1]), strict=True):
        d_h = torch.addmv(step, turned, slope * d_h)
        rows.append(d_h)
    return torch.stack(rows[::-1])


def lstm(x: Tensor, w: Tensor, u: Tensor, bias: Tensor) -> Tensor:
    size = w.shape[1]
    turned = u.flatten(0, 1).mT
    steps = (x @ w.flatten(0, 1).mT + bias.flatten()).unbind(1)
    cell = shown = x.new_zeros((x.shape[0], size))
    rows = [shown]
    for step in steps:
        write, keep, value, show = torch.addmm(step, shown, turned).chunk(4, 1)
        cell = torch.addcmul(torch.sigmoid(write) * torch.tanh(value), torch.sigmoid(keep), cell)
        shown = torch.sigmoid(show) * torch.tanh(cell)
        rows.append(shown)
    return torch.stack(rows, 1)


def alignment_by_points(first: Tensor, second: Tensor) -> Tensor:
    letters, others = first.tolist(), second.tolist()
    score = [[0.0] * (len(letters) + 1)]
    for other in others:
        above, row = score[-1], [0.0]
        for a, letter in enumerate(letters):
            row.append(max(0.0, above[a] + (3 if letter == other else -3), above[a + 1] - 2, row[a] - 2))
        score.append(row)
    return torch.tensor(score, dtype=torch.float64)


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """Along the diagonals, each a vector by rows: `d[c]` is the score of (c, step - c)."""
    n, m = len(second), len(first)
    score = torch.zeros((n + 1, m + 1), dtype=torch.float64)
    similar = torch.where(first == second[:, None], 3.0, -3.0).double()
    before = last = torch.zeros(n + 1, dtype=torch.float64)
    for step in range(2, n + m + 1):
        low, high = max(1, step - m), min(n, step - 1)
        rows = torch.arange(low, high + 1)
        here = torch.zeros(n + 1, dtype=torch.float64)
        best = torch.maximum(before[low - 1 : high] + similar[rows - 1, step - rows - 1], last[low - 1 : high] - 2)
        here[low : high + 1] = torch.maximum(best, last[low : high + 1] - 2).clamp(0)
        score[rows, step - rows] = here[low : high + 1]
        before, last = last, here
    return score


# ----------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Case:
    """A program, what it is beside, and tensors for both."""

    name: str
    text: str
    by_hand: Callable[..., Tensor]
    inputs: Callable[[int], tuple[Tensor, ...]]
    size: int
    learned: bool = True


def _table(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(shape) * scale


CASES = (
    Case("diagonal", DIAGONAL, diagonal, lambda n: (torch.rand(n, 64), _table(n, 64)), 10_000),
    Case("gated", GATED, gated, lambda n: (_table(4, n, 64), _table(4, n, 64)), 4_000),
    Case("dense", DENSE, dense, lambda n: (_table(64, 64, scale=0.1), _table(n, 64)), 4_000),
    Case("linear", LINEAR, linear, lambda n: (_table(64, 64, scale=0.1), _table(n, 64)), 4_000),
    Case(
        "backward",
        BACKWARD,
        backward,
        lambda n: (_table(64, 64, scale=0.1), torch.tanh(_table(n, 64)), _table(n, 64)),
        4_000,
    ),
    Case(
        "lstm",
        LSTM,
        lstm,
        lambda n: (_table(8, n, 64), _table(4, 64, 64, scale=0.1), _table(4, 64, 64, scale=0.1), _table(4, 64)),
        1_000,
    ),
    Case("alignment", ALIGNMENT, alignment, lambda n: (_letters(n), _letters(n)), 512, learned=False),
    Case("alignment, points", ALIGNMENT, alignment_by_points, lambda n: (_letters(n), _letters(n)), 512, learned=False),
)


def _letters(n: int) -> Tensor:
    return torch.randint(4, (n,))


def measure(case: Case, gradients: bool, quick: bool) -> dict[str, object]:
    """The medians of both, taken in turn, and how far apart their results are."""
    torch.manual_seed(0)
    inputs = case.inputs(case.size // 4 if quick else case.size)
    if gradients:
        inputs = tuple(tensor.requires_grad_() for tensor in inputs)
    runs: dict[str, Callable[..., Tensor]] = {"ours": ix.compile(case.text), "by hand": case.by_hand}
    found = {name: run(*inputs).detach() for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(5 if quick else 15):
        for name, run in runs.items():
            began = time.perf_counter()
            result = run(*inputs)
            if gradients:
                torch.autograd.grad(result.sum(), inputs)
            times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {
        "case": case.name,
        "gradients": gradients,
        "ours": medians["ours"],
        "by hand": medians["by hand"],
        "ratio": medians["ours"] / medians["by hand"],
        "difference": float((found["ours"] - found["by hand"]).abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps, a third of the turns")
    parser.add_argument("--only", help=f"of {', '.join(case.name for case in CASES)}; by default all")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; 1 by default")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    wanted = [name.strip() for name in given.only.split(",")] if given.only else None
    print(f"{'':18}  {'gradients':9}  {'ours':>10}  {'by hand':>10}  {'ratio':>6}  {'apart':>8}")
    rows = []
    for case in CASES:
        if wanted is not None and case.name not in wanted:
            continue
        for gradients in (False, True) if case.learned else (False,):
            row = measure(case, gradients, given.quick)
            rows.append(row)
            print(
                f"{case.name:18}  {'yes' if gradients else 'no':9}  {row['ours'] * 1e3:7.2f} ms"  # type: ignore[operator]
                f"  {row['by hand'] * 1e3:7.2f} ms  {row['ratio']:6.2f}  {row['difference']:8.1e}",  # type: ignore[operator]
                flush=True,
            )
    if given.json is not None:
        about = {"python": platform.python_version(), "torch": torch.__version__, "threads": given.threads}
        given.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
