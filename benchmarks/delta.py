"""The delta rule, with and without a gate, written as a recurrence, beside PyTorch by hand: step by step, and in chunks
of matrix products with a triangular system for each.

    python benchmarks/delta.py
    python benchmarks/delta.py --count 2048 --only gated

All run in turn in one process, on the same tensors, and medians are compared; with gradients, the way back is in the
time. The chunks by hand are good ones: 64 positions each, all products of one kind in one call; autograd goes back
through them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

import indexical as ix

HEADS, WIDTH, CHUNK = 4, 64, 64

PROGRAMS = {
    "plain": """input Q[h, t, d], K[h, t, d], V[h, t, e], rate[h, t];
let S[h, 0, d, e] = rate[h, 0] * K[h, 0, d] * V[h, 0, e];
let S[h, t in 1..size(t), d, e] = {
    let stood = sum[c](K[h, t, c] * S[h, t - 1, c, e]);
    S[h, t - 1, d, e] + rate[h, t] * K[h, t, d] * (V[h, t, e] - stood)
};
let out[h, t, e] = sum[d](Q[h, t, d] * S[h, t, d, e]);""",
    "gated": """input Q[h, t, d], K[h, t, d], V[h, t, e], rate[h, t], keep[h, t];
let S[h, 0, d, e] = rate[h, 0] * K[h, 0, d] * V[h, 0, e];
let S[h, t in 1..size(t), d, e] = {
    let stood = keep[h, t] * sum[c](K[h, t, c] * S[h, t - 1, c, e]);
    keep[h, t] * S[h, t - 1, d, e] + rate[h, t] * K[h, t, d] * (V[h, t, e] - stood)
};
let out[h, t, e] = sum[d](Q[h, t, d] * S[h, t, d, e]);""",
}


def stepped(q: Tensor, k: Tensor, v: Tensor, rate: Tensor, keep: Tensor | None = None) -> Tensor:
    """One step after the other."""
    state = q.new_zeros(len(q), q.shape[-1], v.shape[-1])
    kept = None if keep is None else keep.unbind(1)
    rows = []
    for n, (query, key, value, part) in enumerate(zip(*(x.unbind(1) for x in (q, k, v, rate)), strict=True)):
        if kept is not None:
            state = state * kept[n][:, None, None]
        missing = part[:, None, None] * (value[:, None] - key[:, None] @ state)
        state = torch.baddbmm(state, key[:, :, None], missing)
        rows.append(query[:, None] @ state)
    return torch.cat(rows, 1)


def chunked(q: Tensor, k: Tensor, v: Tensor, rate: Tensor, keep: Tensor | None = None) -> Tensor:
    """Chunks of positions, of which the count is a multiple."""
    heads, count, width = v.shape
    q, k, v, rate = (x.reshape(heads, count // CHUNK, CHUNK, -1) for x in (q, k, v, rate))
    asked, turned, ending = k * rate, k.mT.contiguous(), None
    scores, system = q @ turned, asked @ turned
    if keep is not None:
        level = keep.log().reshape(heads, -1, CHUNK, 1).cumsum(-2)
        last = level[..., -1:, :]
        decay = (level - level.mT).tril().exp()
        scores, system = scores * decay, system * decay
        q, asked, ending = q * level.exp(), asked * level.exp(), last.exp().unbind(1)
        turned = turned * (last - level).exp().mT
    given = torch.cat((v * rate, asked), -1)
    solved = torch.linalg.solve_triangular(system.tril(-1), given, upper=False, unitriangular=True)
    written, answers, keys = solved[..., :width].unbind(1), solved[..., width:].unbind(1), turned.unbind(1)
    state = torch.zeros_like(keys[0] @ written[0])
    states, writes = [], []
    for n in range(len(keys)):
        states.append(state)
        writes.append(torch.baddbmm(written[n], answers[n], state, alpha=-1))
        state = torch.baddbmm(state if ending is None else state * ending[n], keys[n], writes[n])
    return (q @ torch.stack(states, 1) + scores.tril() @ torch.stack(writes, 1)).reshape(heads, count, width)


def inputs(name: str, count: int, grad: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(HEADS, count, WIDTH, generator=generator) for _ in range(3))
    gates = [torch.rand(HEADS, count, generator=generator) for _ in range(2 if name == "gated" else 1)]
    gates[1:] = [0.8 + 0.2 * gate for gate in gates[1:]]
    return [part.requires_grad_(grad) for part in (q, torch.nn.functional.normalize(k, dim=-1), v, *gates)]


def taken(way: Callable[..., Tensor], given: list[Tensor], grad: bool) -> float:
    start = time.perf_counter()
    out = way(*given)
    if grad:
        torch.autograd.grad(out.sum(), given)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8192, help="positions, a multiple of 64")
    parser.add_argument("--only", choices=PROGRAMS, help="one of the programs")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else PROGRAMS:
        program = ix.compile(PROGRAMS[name])
        for grad in (False, True):
            given = inputs(name, arguments.count, grad)
            torch.testing.assert_close(program(*given), chunked(*given), rtol=1e-3, atol=1e-3)
            ways = {"ours": program, "chunks by hand": chunked, "steps by hand": stepped}
            times: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(arguments.repeats):
                for way, function in ways.items():
                    if way != "steps by hand" or not turn:  # It takes so long that once will do.
                        times[way].append(taken(function, given, grad))
            found = {way: statistics.median(each) for way, each in times.items()}
            ratios = [f"{found['ours'] / found[way]:.2f} x {way}" for way in list(ways)[1:]]
            what = "with gradient" if grad else "forward"
            print(f"{name}, {arguments.count} positions, {what}: {found['ours'] * 1e3:.0f} ms, {', '.join(ratios)}")


if __name__ == "__main__":
    main()
