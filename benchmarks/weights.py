"""Attention with other weights than a softmax has, and with what was selected, beside PyTorch by hand.

    python benchmarks/weights.py
    python benchmarks/weights.py --quick --only softpick,sigmoid
    python benchmarks/weights.py --json weights.json

All run in turn in one process, on the same tensors, and medians are compared; with gradients, the way back is in the
time. By hand is the way a careful person writes it: one mask that is made beforehand, numbers that do not overflow,
nothing computed twice.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

import indexical as ix

HEADS, WIDTH = 8, 64

SIDES = """space head(f, g, h), position(i, j, k), feature(d, e);
input Q[h, i, d], K[h, j, d], V[h, j, e]"""
SCORES = "let s[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));"
SELECTING = f"""{SIDES};
{SCORES}
let mean_key[h, c in 0..size(j) / 64, d] = mean[t in 0..64](K[h, 64 * c + t, d]);
let match[h, i, c] = sum[d](Q[h, i, d] * mean_key[h, c, d]);"""
PROGRAMS = {
    "softpick": f"""{SIDES};
{SCORES}
let top[h, i] = max(0.0, max[j](s[h, i, j] where j <= i));
let share[h, i, j] = exp(s[h, i, j] - top[h, i]) - exp(-top[h, i]) where j <= i;
let total[h, i] = sum[j](abs(share[h, i, j])) + 1e-8;
let out[h, i, e] = sum[j](relu(share[h, i, j]) * V[h, j, e]) / total[h, i];""",
    "softpick, all": f"""{SIDES};
{SCORES}
let share[h, i, j] = exp(s[h, i, j]) - 1;
let total[h, i] = sum[j](abs(share[h, i, j])) + 1e-8;
let out[h, i, e] = sum[j](relu(share[h, i, j]) * V[h, j, e]) / total[h, i];""",
    "sigmoid": f"""{SIDES};
{SCORES}
let out[h, i, e] = sum[j](sigmoid(s[h, i, j] - log(size(j))) * V[h, j, e] where j <= i);""",
    "sigmoid, all": f"""{SIDES};
{SCORES}
let out[h, i, e] = sum[j](sigmoid(s[h, i, j] - log(size(j))) * V[h, j, e]);""",
    "softmax1": f"""{SIDES};
{SCORES}
let share[h, i, j] = exp(s[h, i, j]) where j <= i;
let out[h, i, e] = sum[j](share[h, i, j] * V[h, j, e]) / (1 + sum[j](share[h, i, j]));""",
    "talking heads": """space head(f, g, h), position(i, j), feature(d, e);
input Q[h, i, d], K[h, j, d], V[f, j, e], before[h, g], after[g, f];
let match[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d));
let s[g, i, j] = sum[h](match[h, i, j] * before[h, g]);
let weights[g, i, j] = softmax[j](s[g, i, j]) where j <= i;
let mixed[f, i, j] = sum[g](weights[g, i, j] * after[g, f]);
let out[f, i, e] = sum[j](mixed[f, i, j] * V[f, j, e] where j <= i);""",
    "stick-breaking": f"""{SIDES};
{SCORES}
let pass[h, i, j] = log_sigmoid(-s[h, i, j]) where j < i;
let left[h, i, j] = sum[k](pass[h, i, k] where j < k < i);
let weights[h, i, j] = exp(log_sigmoid(s[h, i, j]) + left[h, i, j]) where j < i;
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);""",
    "top-k": f"""{SIDES};
{SCORES}
let weights[h, i, j] = softmax[j](s[h, i, j] where rank[j](s[h, i, j]) < 64);
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);""",
    "blocks": f"""{SELECTING}
let chosen[h, i, c] = rank[c](match[h, i, c] where 64 * c <= i) < 4 && 64 * c <= i;
let weights[h, i, j] = softmax[j](s[h, i, j]) where chosen[h, i, j / 64], j <= i;
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);""",
    "blocks, all": f"""{SELECTING}
let chosen[h, i, c] = rank[c](match[h, i, c]) < 4;
let weights[h, i, j] = softmax[j](s[h, i, j]) where chosen[h, i, j / 64];
let out[h, i, e] = sum[j](weights[h, i, j] * V[h, j, e]);""",
}


# ------------------------------------------------------------------------- by hand


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return (q / math.sqrt(q.shape[-1])) @ k.mT


def softpick(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = scores_of(q, k)
    scores = scores.masked_fill(~mask, -math.inf) if causal else scores
    top = scores.detach().amax(-1, keepdim=True).clamp(min=0)
    share = torch.exp(scores - top) - torch.exp(-top)
    share = share.masked_fill(~mask, 0.0) if causal else share
    return torch.relu(share) @ v / (share.abs().sum(-1, keepdim=True) + 1e-8)


def sigmoid(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = scores_of(q, k) - math.log(k.shape[-2])
    return torch.sigmoid(scores.masked_fill(~mask, -math.inf) if causal else scores) @ v


def softmax_one(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = scores_of(q, k).masked_fill(~mask, -math.inf)
    return torch.softmax(torch.nn.functional.pad(scores, (1, 0)), -1)[..., 1:] @ v


def talking_heads(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor, before: Tensor, after: Tensor) -> Tensor:
    scores = torch.einsum("hij,hg->gij", scores_of(q, k), before).masked_fill(~mask, -math.inf)
    return torch.einsum("gij,gf->fij", torch.softmax(scores, -1), after) @ v


def stick_breaking(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    strict = mask.tril(-1)
    scores = scores_of(q, k)
    kept = torch.nn.functional.logsigmoid(-scores).masked_fill(~strict, 0.0)
    left = kept.flip(-1).cumsum(-1).flip(-1) - kept
    taken = torch.nn.functional.logsigmoid(scores) + left
    return torch.exp(taken.masked_fill(~strict, -math.inf)) @ v


def top_k(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    best, places = scores_of(q, k).topk(64, -1)
    heads = torch.arange(len(v))[:, None, None]
    return (torch.softmax(best, -1).unsqueeze(-2) @ v[heads, places]).squeeze(-2)


def blocks(mask: Tensor, causal: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads, count, width = k.shape
    keys, values = (x.view(heads, -1, 64, width) for x in (k, v))
    match, rows = q @ keys.mean(2).mT, torch.arange(count)[:, None]
    match = match.masked_fill(~mask[:, ::64], -math.inf) if causal else match
    places = match.topk(4, -1).indices
    head = torch.arange(heads)[:, None, None]
    scores = (keys[head, places].flatten(2, 3) @ q.unsqueeze(-1)).squeeze(-1) / math.sqrt(width)
    if causal:
        scores = scores.masked_fill((64 * places[..., None] + torch.arange(64)).flatten(2) > rows, -math.inf)
    return (torch.softmax(scores, -1).unsqueeze(-2) @ values[head, places].flatten(2, 3)).squeeze(-2)


BY_HAND: dict[str, Callable[..., Tensor]] = {
    "softpick": softpick,
    "sigmoid": sigmoid,
    "softmax1": softmax_one,
    "talking heads": talking_heads,
    "stick-breaking": stick_breaking,
    "top-k": top_k,
    "blocks": blocks,
}
SELECTS = ("top-k", "blocks", "blocks, all")


# ------------------------------------------------------------------------ measuring


def taken(ways: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """The median time of each way, all of them in turn."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats):
        for way, found in zip(ways, times, strict=True):
            start = time.perf_counter()
            way()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in times]


def measure(name: str, count: int, gradient: bool, repeats: int) -> dict[str, object]:
    torch.manual_seed(0)
    heads = 1 if name in SELECTS else HEADS
    shapes = [(heads, count, WIDTH)] * 3 + [(HEADS, HEADS)] * 2 * (name == "talking heads")
    given = [torch.randn(shape, requires_grad=gradient) for shape in shapes]
    arriving = torch.randn(given[2].shape)
    program = ix.compile(PROGRAMS[name])
    mask = torch.ones(count, count, dtype=torch.bool).tril()
    by_hand = BY_HAND[name.removesuffix(", all")]

    def run(way: Callable[..., Tensor]) -> Callable[[], object]:
        def once() -> None:
            out = way(*given)
            if gradient:
                torch.autograd.grad(out, given, arriving)

        return once

    def peer(*inputs: Tensor) -> Tensor:
        return by_hand(mask, not name.endswith(", all"), *inputs)

    right = peer(*given).detach()
    torch.testing.assert_close(program(*given).detach(), right, rtol=1e-3, atol=1e-4)
    ours, theirs = taken([run(program), run(peer)], repeats)
    return {"program": name, "positions": count, "gradient": gradient, "ours": ours, "ratio": ours / theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--only", default=",".join(BY_HAND), help="some of the programs, by the first of their names")
    parser.add_argument("--positions", type=int, help="1,024 if nothing is said, 4,096 where some are selected")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    rows = []
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    print(f"{'program':16} {'positions':>9} {'gradient':9} {'ours':>9} {'÷ by hand':>10}")
    for name in [one for one in PROGRAMS if one.removesuffix(", all") in options.only.split(",")]:
        count = options.positions or (4096 if name in SELECTS else 1024)
        for gradient in (False, True):
            row = measure(name, count, gradient, 5 if options.quick else 11)
            rows.append(row)
            wanted = "yes" if gradient else "no"
            print(f"{name:16} {count:9} {wanted:9} {1000 * row['ours']:7.1f}ms {row['ratio']:10.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
