"""Programs whose good lowering is not their plain reading, beside the good way in PyTorch written by hand.

    python benchmarks/lowerings.py
    python benchmarks/lowerings.py --quick --json lowerings.json
    python benchmarks/lowerings.py --sizes 128,1024 --variants documents,shaw

float32. `ours` is the program, `torch` the good way; `forward` is a call, `both` a call and `torch.autograd.grad` of it
by every real array. Both run in turn in one process, and medians are compared. A ratio is ours ÷ theirs.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from contest.timing import Patience, compete, once, progress
from torch.nn.functional import cross_entropy, embedding, pad, scaled_dot_product_attention

import indexical as ix

HEADS, WIDTH = 4, 64
PAGE, EXPERTS, CLIP, CLASSES = 16, 8, 16, 1000

Tensor = torch.Tensor
Arrays = dict[str, Tensor]


@dataclass(frozen=True)
class Variant:
    """A program, arrays for a size, and the same by hand."""

    text: str
    arrays: Callable[[int, torch.Generator], Arrays]
    torch: Callable[..., Tensor]


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator)


def causal(size: int) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril()


def attended(size: int, generator: torch.Generator, *names: str) -> Arrays:
    return {name: normal(generator, HEADS, size, WIDTH) for name in names}


def attend(scores: Tensor, mask: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ v


# ---------------------------------------------------------------------------- documents

DOT = "sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))"


def documents(dtype: str) -> Variant:
    return Variant(
        f"""
input Q[h, i, d], K[h, j, d], V[h, j, e], doc[p]{dtype};
let w[h, i, j] = softmax[j]({DOT}) where j <= i, doc[i] == doc[j];
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
""",
        lambda n, g: attended(n, g, "Q", "K", "V") | {"doc": torch.arange(n) * 4 // max(n, 1)},
        lambda Q, K, V, doc: scaled_dot_product_attention(
            Q[None], K[None], V[None], attn_mask=causal(len(doc)) & (doc[:, None] == doc)
        )[0],
    )


# ------------------------------------------------------------------------- differential


def difference(named: bool) -> Variant:
    weights = "softmax[j](sum[d](Q{0}[h, i, d] * K{0}[h, j, d]) / sqrt(size(d)))"
    split = """
let w1[h, i, j] = {};
let w2[h, i, j] = {};
""".format(*(f"{weights.format(n)} where j <= i" for n in (1, 2)))
    mixed = "let w[h, i, j] = w1[h, i, j] - lam * w2[h, i, j];\n" if named else ""
    read = "w[h, i, j]" if named else "(w1[h, i, j] - lam * w2[h, i, j])"

    def good(Q1: Tensor, K1: Tensor, Q2: Tensor, K2: Tensor, V: Tensor, lam: Tensor) -> Tensor:
        first, second = (
            scaled_dot_product_attention(q[None], k[None], V[None], is_causal=True) for q, k in ((Q1, K1), (Q2, K2))
        )
        return (first - lam * second)[0]

    return Variant(
        "input Q1[h, i, d], K1[h, j, d], Q2[h, i, d], K2[h, j, d], V[h, j, e], lam;"
        f"{split}{mixed}let out[h, i, e] = sum[j]({read} * V[h, j, e]);",
        lambda n, g: attended(n, g, "Q1", "K1", "Q2", "K2", "V") | {"lam": torch.tensor(0.4)},
        good,
    )


# --------------------------------------------------------------------- relative positions


def skewed(scores: Tensor) -> Tensor:
    """G[i, i - j] for `j <= i`, from scores at distances: flipped, they are Transformer-XL's shift."""
    size = scores.shape[-1]
    flipped = pad(scores.flip(-1), (1, 0))
    return flipped.reshape(*scores.shape[:-2], size + 1, size)[..., 1:, :]


def transformer_xl(Q: Tensor, K: Tensor, V: Tensor, R: Tensor, u: Tensor, v: Tensor) -> Tensor:
    content = (Q + u[:, None]) @ K.mT
    places = skewed((Q + v[:, None]) @ R.mT)
    return attend((content + places) / math.sqrt(WIDTH), causal(Q.shape[-2]), V)


XL = Variant(
    """
input Q[h, i, d], K[h, j, d], V[h, j, e], R[h, p, d], u[h, d], v[h, d];
let content[h, i, j] = sum[d]((Q[h, i, d] + u[h, d]) * K[h, j, d]);
let places[h, i, j] = sum[d]((Q[h, i, d] + v[h, d]) * R[h, i - j, d]) where j <= i;
let w[h, i, j] = softmax[j]((content[h, i, j] + places[h, i, j]) / sqrt(size(d))) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
""",
    lambda n, g: attended(n, g, "Q", "K", "V", "R") | {"u": normal(g, HEADS, WIDTH), "v": normal(g, HEADS, WIDTH)},
    transformer_xl,
)

INLINED = Variant(
    """
input Q[h, i, d], K[h, j, d], V[h, j, e], R[h, p, d], u[h, d], v[h, d];
let w[h, i, j] = softmax[j]((sum[d](Q[h, i, d] * K[h, j, d]) + sum[d](u[h, d] * K[h, j, d])
    + sum[d](Q[h, i, d] * R[h, i - j, d]) + sum[d](v[h, d] * R[h, i - j, d])) / sqrt(size(d))) where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
""",
    XL.arrays,
    transformer_xl,
)


def shaw(Q: Tensor, K: Tensor, V: Tensor, R: Tensor, RV: Tensor) -> Tensor:
    """Keys and values at distances: weights by distance are the skew's transpose."""
    size = Q.shape[-2]
    scores = (Q @ K.mT + skewed(Q @ R.mT)) / math.sqrt(WIDTH)
    weights = torch.softmax(scores.masked_fill(~causal(size), -math.inf), -1)
    apart = (torch.arange(size)[:, None] - torch.arange(size)).clamp(min=0)
    return weights @ V + torch.zeros_like(weights).scatter_add(-1, apart.expand_as(weights), weights) @ RV


SHAW = Variant(
    """
input Q[h, i, d], K[h, j, d], V[h, j, e], R[p, d], RV[p, e];
let w[h, i, j] = softmax[j]((sum[d](Q[h, i, d] * K[h, j, d]) + sum[d](Q[h, i, d] * R[i - j, d])) / sqrt(size(d)))
    where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]) + sum[j](w[h, i, j] * RV[i - j, e] where j <= i);
""",
    lambda n, g: attended(n, g, "Q", "K", "V") | {"R": normal(g, n, WIDTH), "RV": normal(g, n, WIDTH)},
    shaw,
)


def clipped(Q: Tensor, K: Tensor, V: Tensor, R: Tensor) -> Tensor:
    size = Q.shape[-2]
    apart = (torch.arange(size)[:, None] - torch.arange(size)).clamp(-CLIP, CLIP) + CLIP
    by_distance = torch.gather(Q @ R.mT, -1, apart.expand(HEADS, size, size))
    return torch.softmax((Q @ K.mT + by_distance) / math.sqrt(WIDTH), -1) @ V


CLIPPED = Variant(
    f"""
input Q[h, i, d], K[h, j, d], V[h, j, e], R[p, d];
let w[h, i, j] = softmax[j]((sum[d](Q[h, i, d] * K[h, j, d])
    + sum[d](Q[h, i, d] * R[clamp(i - j, -{CLIP}, {CLIP}) + {CLIP}, d])) / sqrt(size(d)));
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
""",
    lambda n, g: attended(n, g, "Q", "K", "V") | {"R": normal(g, 2 * CLIP + 1, WIDTH)},
    clipped,
)


# ------------------------------------------------------------------------------ experts


def experts(W: Tensor, x: Tensor, expert: Tensor) -> Tensor:
    order = torch.argsort(expert)
    parts = x[order].split(torch.bincount(expert, minlength=len(W)).tolist())
    found = torch.cat([part @ weights.T for part, weights in zip(parts, W, strict=True)])
    return torch.zeros_like(found).index_copy(0, order, found)


MIXTURE = Variant(
    """
input W[k, n, m], x[t, m], expert[t];
let out[t, n] = sum[m](W[expert[t], n, m] * x[t, m]);
""",
    lambda n, g: {
        "W": normal(g, EXPERTS, 128, 128),
        "x": normal(g, n, 128),
        "expert": torch.randint(EXPERTS, (n,), generator=g),
    },
    experts,
)


# -------------------------------------------------------------------------------- pages


def paged(Q: Tensor, KP: Tensor, VP: Tensor, table: Tensor) -> Tensor:
    keys, values = (pages[table].flatten(0, 1).transpose(0, 1) for pages in (KP, VP))
    return scaled_dot_product_attention(Q[None], keys[None], values[None], is_causal=True)[0]


PAGES = Variant(
    f"""
input Q[h, i, d], KP[g, r, h, d], VP[g, r, h, e], table[k];
let w[h, i, j in 0..size(i)] = softmax[j](sum[d](Q[h, i, d] * KP[table[j / {PAGE}], j % {PAGE}, h, d]) / sqrt(size(d)))
    where j <= i;
let out[h, i, e] = sum[j](w[h, i, j] * VP[table[j / {PAGE}], j % {PAGE}, h, e]);
""",
    lambda n, g: {
        "Q": normal(g, HEADS, n, WIDTH),
        "KP": normal(g, n // PAGE + 8, PAGE, HEADS, WIDTH),
        "VP": normal(g, n // PAGE + 8, PAGE, HEADS, WIDTH),
        "table": torch.randperm(n // PAGE + 8, generator=g)[: n // PAGE],
    },
    paged,
)


# -------------------------------------------------------------------------------- places

PLACES = Variant(
    """
input y[i, m], p[i] : i64, at[n];
let out[n, m] = sum[i](y[i, m] where p[i] == n) * at[n];
""",
    lambda n, g: {"y": normal(g, n, 128), "p": torch.randint(n, (n,), generator=g), "at": normal(g, n)},
    lambda y, p, at: torch.zeros_like(y).index_add(0, p, y) * at[:, None],
)


# ---------------------------------------------------------------------- one point of many

TABLE = "input E[n, m], p[i] : i64;"


def embedded(text: str) -> Variant:
    return Variant(
        f"{TABLE} {text}",
        lambda n, g: {"E": normal(g, 8 * n, 128), "p": torch.randint(8 * n, (n,), generator=g)},
        lambda E, p: embedding(p, E),
    )


def classified(text: str) -> Variant:
    return Variant(
        f"input x[i, c], t[i] : i64; {text}",
        lambda n, g: {"x": normal(g, n, CLASSES), "t": torch.randint(CLASSES, (n,), generator=g)},
        lambda x, t: cross_entropy(x, t),
    )


NAMED = "let p[i, c] = log_softmax[c](x[i, c]); let out ="
BY_HAND = """
let top[i] = max[c](x[i, c]);
let total[i] = top[i] + log(sum[c](exp(x[i, c] - top[i])));
let out = mean[i](total[i] - x[i, t[i]]);
"""


VARIANTS = {
    "documents": documents(""),
    "documents_i64": documents(" : i64"),
    "differential": difference(False),
    "differential_named": difference(True),
    "transformer_xl": XL,
    "transformer_xl_inlined": INLINED,
    "shaw": SHAW,
    "clipped": CLIPPED,
    "experts": MIXTURE,
    "pages": PAGES,
    "places": PLACES,
    "embedding": embedded("let out[i, m] = E[p[i], m];"),
    "embedding_one_hot": embedded("let out[i, m] = sum[n](E[n, m] where n == p[i]);"),
    "loss": classified(f"{NAMED} -mean[i](p[i, t[i]]);"),
    "loss_one_hot": classified(f"{NAMED} -sum[i, c](p[i, c] where c == t[i]) / size(i);"),
    "loss_by_hand": classified(BY_HAND),
    "bias": Variant(
        f"""
input Q[h, i, d], K[h, j, d], V[h, j, e], bias[h, i, j];
let w[h, i, j] = softmax[j]({DOT} + bias[h, i, j]);
let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);
""",
        lambda n, g: attended(n, g, "Q", "K", "V") | {"bias": normal(g, HEADS, n, n)},
        lambda Q, K, V, bias: torch.softmax(Q @ K.mT / math.sqrt(WIDTH) + bias, -1) @ V,
    ),
}


def measure(name: str, size: int, patience: Patience) -> dict[str, Any]:
    """The times of both, forward and with the way back, and how far their results are apart."""
    variant = VARIANTS[name]
    generator = torch.Generator().manual_seed(0)
    arrays = variant.arrays(size, generator)
    program = ix.compile(variant.text)
    real = [key for key, array in arrays.items() if array.is_floating_point()]
    arriving = torch.randn(program(**arrays).shape, generator=generator)

    def back(call: Callable[..., Tensor]) -> Callable[[], Any]:
        def run() -> Any:
            leaves = {key: arrays[key].detach().requires_grad_() for key in real}
            return torch.autograd.grad(call(**{**arrays, **leaves}), list(leaves.values()), arriving)

        return run

    cell: dict[str, Any] = {"variant": name, "size": size}
    for kind in ("forward", "both"):
        ours, theirs = program, variant.torch
        calls: dict[str, Callable[[], Any]] = {"ours": back(ours), "torch": back(theirs)}
        if kind == "forward":
            calls = {"ours": lambda: (program(**arrays),), "torch": lambda: (variant.torch(**arrays),)}
        first, found = {}, {}
        for who, call in calls.items():
            first[who], found[who] = once(call, "cpu")
        error = max(float((a - b).abs().max()) for a, b in zip(found["ours"], found["torch"], strict=True))
        times = compete(calls, first, patience, "cpu")
        ratio = times["ours"].median / times["torch"].median
        cell[kind] = {"times": {who: asdict(t) for who, t in times.items()}, "ratio": ratio, "error": error}
    return cell


def show(cells: list[dict[str, Any]]) -> None:
    print(f"{'variant':<24}{'size':>6}{'forward':>11}{'÷ torch':>9}{'both':>11}{'÷ torch':>9}{'error':>9}")
    for cell in cells:
        parts = "".join(
            f"{cell[kind]['times']['ours']['median'] * 1e3:>8.2f} ms{cell[kind]['ratio']:>9.2f}"
            for kind in ("forward", "both")
        )
        error = max(cell[kind]["error"] for kind in ("forward", "both"))
        noisy = any(cell[kind]["times"]["ours"]["others"] > 0.05 for kind in ("forward", "both"))
        print(f"{cell['variant']:<24}{cell['size']:>6}{parts}{error:>9.0e}{'  noisy' if noisy else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one size, little patience")
    parser.add_argument("--sizes", default="")
    parser.add_argument("--variants", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a quiet machine")
    given = parser.parse_args()
    names = given.variants.split(",") if given.variants else list(VARIANTS)
    sizes = [int(n) for n in (given.sizes or ("256" if given.quick else "128,512,1024")).split(",")]
    patience = Patience(0.5 if given.quick else 2.0, quiet=given.wait)
    cells = []
    for name in names:
        for size in sizes:
            progress(f"{name} {size}")
            cells.append(measure(name, size, patience))
    show(cells)
    if given.json:
        about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.machine()}
        given.json.write_text(json.dumps({"about": about, "cells": cells}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
