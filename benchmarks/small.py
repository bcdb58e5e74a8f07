"""Small calls: variants of attention at short lengths beside what one would write in PyTorch.

    python benchmarks/small.py
    python benchmarks/small.py --sizes 16,64 --variants window,alibi --json small.json

B = 2, H = 4, D = 64, float32, on the CPU. `masked` is scaled_dot_product_attention with a mask or a bias that is made
in the call, `ready` the same with one made beforehand, `plain` is matmul, mask, softmax, matmul, with the mask made in
the call. All run in turn in one process, and medians are compared: a ratio is ours ÷ the better of `masked` and
`plain`, the last column ours ÷ `ready`. `step` is a forward and a backward pass to all that is learned. Of `decode`, N
is the number of keys that one query hears; `axial` has 32 rows for each head, each attending within itself.

Ours are repeated calls of the same sizes: a mask that follows from sizes alone is made in the first of them and kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from contest.timing import Patience, compete
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

import indexical as ix

BATCH, HEADS, WIDTH, ROWS = 2, 4, 64, 32
WINDOW, CAP = 16, 30.0
DECODED = {16: 256, 64: 1024, 256: 4096}

HEAD = "space batch(b), head(h), position(i, j), feature(d, e);\n"
SCORES = "sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d))"


def attention(scores: str = SCORES, guard: str = "", further: str = "") -> str:
    where = f" where {guard}" if guard else ""
    return f"""{HEAD}input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e]{further};
let scores[b, h, i, j] = {scores};
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]){where};
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""


DOCUMENTS = f"""{HEAD}input Q[b, h, i, d], K[b, h, i, d], V[b, h, i, e], document[b, i] : i64;
let scores[b, h, i, j] = {SCORES};
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where document[b, i] == document[b, j];
let out[b, h, i, e] = sum[j](weights[b, h, i, j] * V[b, h, j, e]);
"""
DECODE = f"""{HEAD}input Q[b, h, d], K[b, h, j, d], V[b, h, j, e];
let weights[b, h, j] = softmax[j](sum[d](Q[b, h, d] * K[b, h, j, d]) / sqrt(size(d)));
let out[b, h, e] = sum[j](weights[b, h, j] * V[b, h, j, e]);
"""
AXIAL = """space batch(b), head(h), row(r), position(i, j), feature(d, e);
input Q[b, h, r, i, d], K[b, h, r, j, d], V[b, h, r, j, e];
let scores[b, h, r, i, j] = sum[d](Q[b, h, r, i, d] * K[b, h, r, j, d]) / sqrt(size(d));
let weights[b, h, r, i, j] = softmax[j](scores[b, h, r, i, j]) where abs(i - j) < 16;
let out[b, h, r, i, e] = sum[j](weights[b, h, r, i, j] * V[b, h, r, j, e]);
"""

# Places of queries and keys along two axes.
Places = tuple[Tensor, Tensor]
Making = Callable[[Tensor, Tensor, list[Tensor]], Tensor]


@dataclass(frozen=True)
class Variant:
    """A program; the same in PyTorch: which pairs are heard, what is added to a score or becomes of it; and further
    inputs, of which some are `learned`."""

    program: str
    heard: Making | None = None
    added: Making | None = None
    capped: bool = False
    further: Callable[[int], list[Tensor]] = lambda _: []
    learned: bool = False
    causal: bool = False
    rows: bool = False
    one_query: bool = False


def causal(i: Tensor, j: Tensor, _: list[Tensor]) -> Tensor:
    return j <= i


def window(i: Tensor, j: Tensor, _: list[Tensor]) -> Tensor:
    return (j <= i) & (i - j < WINDOW)


def near(i: Tensor, j: Tensor, _: list[Tensor]) -> Tensor:
    return (i - j).abs() < WINDOW


def same_document(i: Tensor, j: Tensor, further: list[Tensor]) -> Tensor:
    return (further[0][:, :, None] == further[0][:, None, :])[:, None]


def prefix(i: Tensor, j: Tensor, _: list[Tensor]) -> Tensor:
    return (j < j.shape[-1] // 4) | (j <= i)


def given(i: Tensor, j: Tensor, further: list[Tensor]) -> Tensor:
    return further[0]


def distance(i: Tensor, j: Tensor, further: list[Tensor]) -> Tensor:
    return further[0][:, None, None] * (j - i)


VARIANTS = {
    "causal": Variant(attention(guard="j <= i"), causal, causal=True),
    "window": Variant(attention(guard=f"i - {WINDOW} < j <= i"), window),
    "documents": Variant(DOCUMENTS, same_document, further=lambda n: [(torch.arange(n) * 5 // n).expand(BATCH, n)]),
    "alibi": Variant(
        attention(f"{SCORES} + slope[h] * (j - i)", "j <= i", ", slope[h]"),
        causal,
        distance,
        further=lambda _: [2.0 ** -(torch.arange(HEADS) + 1.0)],
    ),
    "softcap": Variant(attention(f"{CAP} * tanh({SCORES} / {CAP})", "j <= i"), causal, capped=True),
    "prefix": Variant(attention(guard="j < size(j) / 4 || j <= i"), prefix),
    "mask": Variant(
        attention(guard="allowed[i, j]", further=", allowed[i, j] : bool"),
        given,
        further=lambda n: [(torch.rand(n, n) < 0.5) | torch.eye(n, dtype=torch.bool)],
    ),
    "bias": Variant(
        attention(f"{SCORES} + bias[h, i, j]", further=", bias[h, i, j]"),
        added=given,
        further=lambda n: [torch.randn(HEADS, n, n)],
        learned=True,
    ),
    "decode": Variant(DECODE, one_query=True),
    "axial": Variant(AXIAL, near, rows=True),
}


def draw(variant: Variant, size: int) -> list[Tensor]:
    torch.manual_seed(size)
    lead = (BATCH, HEADS, ROWS) if variant.rows else (BATCH, HEADS)
    keys = DECODED.get(size, 16 * size) if variant.one_query else size
    query = torch.randn(*lead, WIDTH) if variant.one_query else torch.randn(*lead, size, WIDTH)
    return [query, torch.randn(*lead, keys, WIDTH), torch.randn(*lead, keys, WIDTH), *variant.further(size)]


def places(keys: int) -> Places:
    return torch.arange(keys)[:, None], torch.arange(keys)


def make_mask(variant: Variant, keys: int, further: list[Tensor]) -> Tensor | None:
    """A Boolean mask, or a bias that is -inf where nothing is heard."""
    heard = None if variant.heard is None else variant.heard(*places(keys), further)
    if variant.added is None:
        return heard
    bias = variant.added(*places(keys), further)
    return bias if heard is None else bias.masked_fill(~heard, -math.inf)


def masked(variant: Variant, ready: Tensor | None, *arrays: Tensor) -> Tensor:
    q, k, v, *further = arrays
    if variant.one_query:
        return sdpa(q[:, :, None], k, v)[:, :, 0]
    if variant.causal:
        return sdpa(q, k, v, is_causal=True)
    mask = make_mask(variant, k.shape[-2], further) if ready is None else ready
    if variant.rows:
        return sdpa(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), attn_mask=mask).unflatten(0, q.shape[:2])
    return sdpa(q, k, v, attn_mask=mask)


def plain(variant: Variant, *arrays: Tensor) -> Tensor:
    q, k, v, *further = arrays
    if variant.one_query:
        return (torch.softmax(q[:, :, None] @ k.mT * WIDTH**-0.5, -1) @ v)[:, :, 0]
    scores = q @ k.mT * WIDTH**-0.5
    if variant.capped:
        scores = CAP * torch.tanh(scores / CAP)
    if variant.added is not None:
        scores = scores + variant.added(*places(k.shape[-2]), further)
    if variant.heard is not None:
        scores = scores.masked_fill(~variant.heard(*places(k.shape[-2]), further), -math.inf)
    return scores.softmax(-1) @ v


def step(function: Callable[..., Tensor], leaves: list[Tensor]) -> Callable[[], Any]:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]

    def run() -> Any:
        out = function(*leaves)
        return torch.autograd.grad(out, wanted, torch.ones_like(out))

    return run


def contestants(variant: Variant, arrays: list[Tensor]) -> dict[str, Callable[..., Tensor]]:
    found: dict[str, Callable[..., Tensor]] = {"ours": ix.compile(variant.program), "plain": partial(plain, variant)}
    if not variant.capped:
        found["masked"] = partial(masked, variant, None)
        ready = None if variant.one_query or variant.causal else make_mask(variant, arrays[1].shape[-2], arrays[3:])
        if ready is not None and not variant.learned:
            found["ready"] = partial(masked, variant, ready)
    return found


def measure(name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    variant = VARIANTS[name]
    arrays = draw(variant, size)
    functions = contestants(variant, arrays)
    torch.testing.assert_close(functions["ours"](*arrays), functions["plain"](*arrays), rtol=1e-4, atol=1e-5)
    learned = len(arrays) if variant.learned else 3
    leaves = [x.clone().requires_grad_() if n < learned else x for n, x in enumerate(arrays)]
    passes: dict[str, dict[str, Callable[[], Any]]] = {
        "forward": {name: partial(function, *arrays) for name, function in functions.items()},
        "step": {name: step(function, leaves) for name, function in functions.items()},
    }
    rows = []
    for which, calls in passes.items():
        found = compete(calls, {}, Patience(seconds, most=3000), "cpu")
        times = {name: found[name].median * 1e6 for name in calls}
        best = min(times[name] for name in ("masked", "plain") if name in times)
        row = {"variant": name, "size": size, "pass": which, **times, "ratio": times["ours"] / best}
        rows.append(row | ({"to ready": times["ours"] / times["ready"]} if "ready" in times else {}))
    return rows


def show(row: dict[str, Any]) -> str:
    times = "".join(f"{row[name]:10.0f}" if name in row else " " * 10 for name in ("ours", "masked", "plain", "ready"))
    beyond = f"{row['to ready']:9.2f}" if "to ready" in row else ""
    return f"{row['variant']:10}{row['size']:5}  {row['pass']:8}{times}{row['ratio']:8.2f}{beyond}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="16,64,256")
    parser.add_argument("--variants", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)}; by default all")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each contestant of a row")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; 1 by default")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    os.environ.setdefault("IX_CACHE", "0")
    torch.set_num_threads(options.threads)
    print(f"{'variant':10}{'N':>5}  {'µs':8}{'ours':>10}{'masked':>10}{'plain':>10}{'ready':>10}   ratio to ready")
    rows = []
    for name in options.variants.split(","):
        for size in map(int, options.sizes.split(",")):
            for row in measure(name, size, options.seconds):
                rows.append(row)
                print(show(row), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
