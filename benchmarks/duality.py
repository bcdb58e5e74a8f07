"""Linear attention, retention, SSD and gated linear attention, written as sums over all earlier positions and as a
recurrence, beside PyTorch by hand: the quadratic way, and chunks of matrix products.

    python benchmarks/duality.py
    python benchmarks/duality.py --quick --only retention,ssd
    python benchmarks/duality.py --json duality.json

All run in turn in one process, on the same tensors, and medians are compared; with gradients, the way back is in the
time. The chunks by hand are good ones: 64 positions each, all products of one kind in one call, their states carried in
a loop; autograd goes back through them.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

import indexical as ix

HEADS, WIDTH = 2, 64

SIDES = "input Q[h, i, d], K[h, j, d], V[h, j, e]"
PROGRAMS = {
    "linear": f"""{SIDES};
let w[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);""",
    "retention": f"""{SIDES}, a[h];
let w[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * exp(a[h] * (i - j)) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);""",
    "ssd": f"""{SIDES}, c[h, i];
let w[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * exp(c[h, i] - c[h, j]) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);""",
    "normalised": """input Q[h, i, d], K[h, j, d], V[h, j, e];
let q[h, i, d] = softplus(Q[h, i, d]);
let k[h, j, d] = softplus(K[h, j, d]);
let w[h, i, j] = sum[d](q[h, i, d] * k[h, j, d]) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]) / sum[j](w[h, i, j]);""",
    "gated": f"""{SIDES}, c[h, i, d];
let w[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d] * exp(c[h, i, d] - c[h, j, d])) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);""",
    "recurrence": """input Q[h, t, d], K[h, t, d], V[h, t, e], a[h, t];
let S[h, 0, d, e] = K[h, 0, d] * V[h, 0, e];
let S[h, t in 1..size(t), d, e] = exp(a[h, t]) * S[h, t - 1, d, e] + K[h, t, d] * V[h, t, e];
let out[h, t, e] = sum[d](Q[h, t, d] * S[h, t, d, e]);""",
}


# ------------------------------------------------------------------------- by hand


def quadratic(name: str, q: Tensor, k: Tensor, v: Tensor, *decay: Tensor) -> Tensor:
    """All weights in memory. Where every feature decays by itself, they are split between the sides."""
    count = q.shape[-2]
    if name == "normalised":
        q, k = torch.nn.functional.softplus(q), torch.nn.functional.softplus(k)
    if name == "gated":
        q, k = q * decay[0].exp(), k * (-decay[0]).exp()
    weights = q @ k.mT
    if name == "retention":
        steps = torch.arange(count)
        weights = weights * torch.exp(decay[0][:, None, None] * (steps[:, None] - steps).clamp(min=0))
    if name in ("ssd", "recurrence"):
        level = decay[0] if name == "ssd" else decay[0].cumsum(-1)
        weights = weights * (level[:, :, None] - level[:, None, :]).tril().exp()
    weights = weights.tril()
    out = weights @ v
    return out / weights.sum(-1, keepdim=True) if name == "normalised" else out


def chunked(name: str, q: Tensor, k: Tensor, v: Tensor, *decay: Tensor) -> Tensor:
    """Chunks of 64 positions, of which the count is a multiple."""
    heads, count, _ = q.shape
    if name == "normalised":
        q, k = torch.nn.functional.softplus(q), torch.nn.functional.softplus(k)
        v = torch.cat((v, v.new_ones(heads, count, 1)), -1)
    q, k, v = (part.unflatten(1, (-1, 64)) for part in (q, k, v))
    level = None
    if name == "retention":
        level = (decay[0][:, None] * torch.arange(1, 65))[:, None].expand(-1, count // 64, -1)[..., None]
    elif name == "recurrence":
        level = decay[0].unflatten(1, (-1, 64)).cumsum(-1)[..., None]
    elif decay:
        level = decay[0].reshape(heads, count // 64, 64, -1)
        level = level - torch.cat((level[:, :1, :1], level[:, :-1, -1:]), 1)
    if level is None:
        out, rising, added, ending = (q @ k.mT).tril() @ v, q, k.mT @ v, None
    elif level.shape[-1] == 1:
        last = level[:, :, -1:]
        out = ((q @ k.mT) * (level - level.mT).tril().exp()).tril() @ v
        rising, added, ending = q * level.exp(), (k * (last - level).exp()).mT @ v, last.exp()
    else:
        last, middle = level[:, :, -1:], level[:, :, 32:33]
        out = ((q * (level - middle).exp()) @ (k * (middle - level).exp()).mT).tril() @ v
        rising, added, ending = q * level.exp(), (k * (last - level).exp()).mT @ v, last.exp().mT
    state = torch.zeros_like(added[:, 0])
    states = []
    for n in range(added.shape[1]):
        states.append(state)
        state = added[:, n] + (state if ending is None else state * ending[:, n])
    out = (out + rising @ torch.stack(states, 1)).flatten(1, 2)
    return out[..., :-1] / out[..., -1:] if name == "normalised" else out


# ------------------------------------------------------------------------- measured


def inputs(name: str, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(HEADS, count, WIDTH, generator=generator) / WIDTH**0.25 for _ in range(3)]
    gates = torch.nn.functional.logsigmoid(torch.randn(HEADS, count, WIDTH, generator=generator) + 3)
    decays = {
        "retention": gates[:, 0, 0],
        "ssd": gates[..., 0].cumsum(-1),
        "gated": gates.cumsum(-2),
        "recurrence": gates[..., 0].contiguous(),
    }
    return [*sides, *([decays[name]] if name in decays else [])]


def taken(ways: Sequence[Callable[[], None]], repeats: int) -> list[float]:
    """The median times of some ways, which take turns."""
    times: list[list[float]] = [[] for _ in ways]
    for turn in range(repeats + 1):
        for number, (way, found) in enumerate(zip(ways, times, strict=True)):
            if number == 2 and turn > 2:  # The quadratic way takes so long that twice will do.
                continue
            start = time.perf_counter()
            way()
            if turn:
                found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def measure(name: str, count: int, gradient: bool, repeats: int) -> dict[str, object]:
    given = [part.requires_grad_(gradient) for part in inputs(name, count)]
    program = ix.compile(PROGRAMS[name])
    arriving = torch.randn(HEADS, count, WIDTH, generator=torch.Generator().manual_seed(1))

    def run(function: Callable[..., Tensor]) -> Callable[[], None]:
        def way() -> None:
            out = function(*given)
            if gradient:
                torch.autograd.grad(out, given, arriving)

        return way

    ways = [program, lambda *x: chunked(name, *x)]
    if name != "gated":  # The split between the sides overflows.
        ways.append(lambda *x: quadratic(name, *x))
    right = chunked(name, *given)
    torch.testing.assert_close(program(*given), right, rtol=1e-3, atol=1e-3 * float(right.detach().abs().max()))
    times = taken([run(way) for way in ways], repeats)
    row: dict[str, object] = {"program": name, "positions": count, "gradient": gradient, "ours": times[0]}
    row |= {"chunked": times[1], "over chunked": times[0] / times[1]}
    if len(times) > 2:
        row |= {"quadratic": times[2], "over quadratic": times[0] / times[2]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,048 positions, and few repeats")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="some of the programs, by name")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    rows = []
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    print(f"{'program':12} {'gradient':9} {'ours':>9} {'÷ chunked':>10} {'÷ quadratic':>12}")
    for name in options.only.split(","):
        for gradient in (False, True):
            row = measure(name, 2048 if options.quick else 8192, gradient, 3 if options.quick else 7)
            rows.append(row)
            over = f"{row['over quadratic']:12.3f}" if "over quadratic" in row else f"{'-':>12}"
            wanted = "yes" if gradient else "no"
            print(f"{name:12} {wanted:9} {1000 * row['ours']:7.1f}ms {row['over chunked']:10.2f} {over}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
