"""Attentions drawn at random beside the best that PyTorch has for each: nobody chose these rows.

    python benchmarks/anywhere.py --budget 900
    python benchmarks/anywhere.py --rows 3,17 --programs
    python benchmarks/anywhere.py --device cuda --seed 1 --json anywhere.json

A row is a score, a guard, a normaliser, sizes and an order of axes, each drawn for itself (`contest/drawn.py`). What
comes out, and its gradients, are compared with a plain evaluation in float64 first. Then all run in turn in one process
and medians are compared: a ratio is our time ÷ that of the fastest peer, forward and there and back.

Peers: `sdpa` is scaled_dot_product_attention, with a dense mask where the row has one; `flex` compiled FlexAttention,
on a GPU; `plain` products, the score, the mask and the normaliser written out, compiled on a GPU. Masks, and what is
added to scores and is no result of the call itself, are made beforehand. A peer that cannot state a row, that would
build too many pairs or that is imprecise is left out. The exit status is 1 where a result of ours is wrong, or there is
none.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from contest.drawn import Array, Given, Grid, Point, Row, compared, draw
from contest.timing import NOISY, Patience, compete, progress
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

import indexical as ix
from indexical.saving import write_file

Tensors = tuple[Tensor, ...]
Call = Callable[[], Tensors]
OURS, PEERS = "ours", ("sdpa", "flex", "plain")
PASSES = ("forward", "there and back")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# How far a result may be from the exact one, and below which size of its numbers this is not relative to them.
TOLERANCES = {"f32": (5e-4, 0.01), "bf16": (0.03, 0.3), "f16": (0.005, 0.3)}
# Pairs of a query and a key that a peer may build, and that one block of the exact evaluation has.
PAIRS, BLOCK = {"cpu": 1 << 26, "cuda": 1 << 31}, {"cpu": 1 << 22, "cuda": 1 << 26}
SLOWER = 1.3
# Whatever of these a contestant raises is a finding about it; the others go on.
FAILURES = (ix.Error, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass(slots=True)
class Measured:
    """One row: medians in seconds by pass and contestant, errors, and who was left out and why.

    `others` is the share of the machine that other processes used meanwhile.
    """

    number: int
    words: str
    shape: str
    program: str
    times: dict[str, dict[str, float]] = field(default_factory=lambda: {name: {} for name in PASSES})
    errors: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    slow: list[str] = field(default_factory=list)
    wrong: str = ""
    others: float = 0.0

    def best(self, which: str) -> str | None:
        times = {name: seconds for name, seconds in self.times[which].items() if name != OURS}
        return min(times, key=times.__getitem__, default=None)

    def ratio(self, which: str) -> float | None:
        """Our time ÷ that of the fastest peer."""
        best, ours = self.best(which), self.times[which].get(OURS)
        return None if best is None or ours is None else ours / self.times[which][best]

    @property
    def worst(self) -> float:
        return max((self.ratio(which) or 0.0 for which in PASSES), default=0.0)


class Inputs:
    """The arrays of a row as its program takes them, those that want a gradient, and what results are multiplied by."""

    def __init__(self, row: Row, seed: int, device: str, fresh: bool) -> None:
        torch.manual_seed(seed * 100_003 + row.number)
        self.row, self.fresh = row, fresh
        self.arrays = {array.name: self._filled(array, device) for array in row.arrays}
        wanted = [a for a in row.arrays if not a.dtype and (row.learned or self._is_wide(a))]
        self.leaves = {} if row.forward else {a.name: self.arrays[a.name].requires_grad_() for a in wanted}
        outputs = [row.orders["out"]] + ["bhi"] * (row.normaliser.core == "level")
        self.axes = {array.name: array.axes for array in row.arrays}
        self.outputs = outputs
        self.cotangents = tuple(torch.randn(row.lengths(axes)).to(device) for axes in outputs)

    @staticmethod
    def _is_wide(array: Array) -> bool:
        """Whether it has features, and so is made by what comes before."""
        return bool(set("dec") & set(array.axes))

    def _filled(self, array: Array, device: str) -> Tensor:
        found = array.fill(self.row, self.row.lengths(array.axes))
        narrow = self._is_wide(array) or not self.row.mixed
        return found.to(device, (DTYPES[self.row.dtype] if narrow else torch.float32) if not array.dtype else None)

    def given(self) -> Given:
        return {name: self.row.home(array, self.axes[name]) for name, array in self.arrays.items()}

    def at_home(self, found: Tensors) -> Tensors:
        return tuple(self.row.home(x, axes) for x, axes in zip(found, self.outputs, strict=True))


# ------------------------------------------------------------------------------------------ exactly


def exactly(inputs: Inputs, device: str) -> Tensors:
    """The results and the gradients in float64, in blocks of queries."""
    row, leaves = inputs.row, {}
    given = {name: x.detach().double() if x.is_floating_point() else x for name, x in inputs.given().items()}
    for name in inputs.leaves:
        leaves[name] = given[name] = given[name].requires_grad_()
    cotangents = [c.double() for c in inputs.at_home(inputs.cotangents)]
    totals = [torch.zeros_like(leaf) for leaf in leaves.values()]
    step = max(1, BLOCK[device] // (row.sizes["b"] * row.sizes["h"] * row.sizes["j"]))
    parts = []
    for n in range(ceil(row.sizes["i"] / step)):
        rows = slice(n * step, (n + 1) * step)
        found = written_out(row, dict(given), rows=rows)
        if leaves:
            shares = [c[:, :, rows] for c in cotangents]
            gradients = torch.autograd.grad(found, list(leaves.values()), shares, materialize_grads=True)
            totals = [total + part for total, part in zip(totals, gradients, strict=True)]
        parts.append([x.detach() for x in found])
    return (*(torch.cat(blocks, 2) for blocks in zip(*parts, strict=True)), *totals)


def written_out(
    row: Row, given: Given, banned: Tensor | None = None, bias: Tensor | None = None, rows: slice | None = None
) -> Tensors:
    """Products, the score, the mask and the normaliser; with `rows` of some queries, whose mask is made here."""
    q, k, scale = row.score.prepare(row, given)
    at = Grid(row, given, banned, rows or slice(None))
    if rows is not None:
        at.banned = None if row.guard.allows is None else ~row.guard.allows(at)
        q = q[:, :, rows]
    scores = compared(q * scale, k)
    if bias is not None:
        scores = scores + bias
    elif row.score.change is not None:
        scores = row.score.change(scores, at)
    return row.normaliser.finish(scores, at, given["V"])


def apart(found: Tensors, exact: Tensors, floor: float) -> float:
    """The largest of ‖found − exact‖ ÷ ‖exact‖ over results and gradients."""
    errors = [
        float((x.detach().double() - e).norm() / e.norm().clamp(min=floor * e.numel() ** 0.5))
        for x, e in zip(found, exact, strict=True)
    ]
    return max(error if error == error else torch.inf for error in errors)


# -------------------------------------------------------------------------------------- contestants


def ours(inputs: Inputs) -> Call:
    program = ix.compile(inputs.row.program)
    arrays = [x if x.dim() or x.is_floating_point() else x.item() for x in inputs.arrays.values()]
    alone = len(inputs.outputs) == 1
    return lambda: (program(*arrays),) if alone else program(*arrays)


def made_before(inputs: Inputs, learns: bool) -> tuple[Tensor | None, Tensor | None]:
    """The pairs that the guard removes; and what is added to scores, where the call does not make it."""
    row, given = inputs.row, inputs.given()
    at = Grid(row, given)
    banned = None if row.guard.allows is None else ~row.guard.allows(at)
    made = row.score.fresh or (learns and row.learned and bool(row.score.arrays))
    if made or row.score.change is None or not row.score.added:
        return banned, None
    return banned, row.score.change(0, at).detach()


def plain(inputs: Inputs, learns: bool, device: str) -> Call:
    row = inputs.row
    if inputs.fresh:
        return lambda: written_out(row, inputs.given(), rows=slice(None))
    banned, bias = made_before(inputs, learns)
    folds = row.normaliser.core not in ("", "differential") and not row.guard.empties
    if folds and bias is not None and banned is not None:
        bias, banned = bias.masked_fill(banned, -torch.inf), None
    return lambda: written_out(row, inputs.given(), banned, bias)


def around(row: Row, given: Given, attend: Any, other: Any) -> Tensors:
    """What is made of kernels that attend by softmax: `attend` takes values alone, `other` a pair and the values."""
    v = given["V"]
    match row.normaliser.core:
        case "softmax":
            return (attend(v),)
        case "laser":
            return (attend(v.exp()).log(),)
        case "differential":
            found = other(given["A"], given["B"], v, scale=row.sizes["c"] ** -0.5)
            return (attend(v) - (given["part"][:, None, None] * found).to(v.dtype),)
        case "level":
            return attend(v, return_lse=True)  # type: ignore[no-any-return]
    out, level = attend(v, return_lse=True)
    beside = given["sink"][:, None] if row.normaliser.core == "sink" else 0
    return ((out * torch.sigmoid(level - beside)[..., None]).to(out.dtype),)


def direct(inputs: Inputs, learns: bool, device: str) -> Call | None:
    """None where PyTorch's own attention cannot say it: a score that is no product with something added, say."""
    row, score = inputs.row, inputs.row.score
    if not row.normaliser.shifted or not score.added:
        return None
    is_causal = row.guard.words == "causal" and row.sizes["i"] == row.sizes["j"] and score.change is None
    options: dict[str, Any] = {"enable_gqa": row.sizes["h"] != row.sizes["g"], "is_causal": is_causal}

    def merged(bias: Tensor, banned: Tensor | None) -> Tensor:
        bias = bias if banned is None else bias.masked_fill(banned, -torch.inf)
        return spread(row, bias.to(DTYPES[row.dtype]))

    def masks() -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        banned, bias = made_before(inputs, learns)
        kept = None if banned is None or is_causal else spread(row, ~banned)
        return banned, kept, None if bias is None else merged(bias, banned)

    before = None if inputs.fresh else masks()

    def call() -> Tensors:
        given = inputs.given()
        q, k, scale = score.prepare(row, given)
        banned, kept, mask = before or masks()
        if mask is None:
            mask = kept if score.change is None else merged(score.change(0, Grid(row, given)), banned)
        attend = partial(sdpa, q, k, attn_mask=mask, scale=scale, **options)
        return around(row, given, attend, partial(sdpa, attn_mask=kept, **options))

    return call


def spread(row: Row, mask: Tensor) -> Tensor:
    """With all queries and all keys; heads and examples only where they matter."""
    mask = mask[(None,) * (4 - mask.dim())]
    return mask.expand(*mask.shape[:2], row.sizes["i"], row.sizes["j"])


def flex(inputs: Inputs, learns: bool, device: str) -> Call | None:
    """Compiled FlexAttention with its blocks found beforehand; None where it cannot say it."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    row, score, guard = inputs.row, inputs.row.score, inputs.row.guard
    if device != "cuda" or not row.normaliser.core:
        return None
    before = {name: x.detach() for name, x in inputs.given().items()}
    options: dict[str, Any] = {"enable_gqa": row.sizes["h"] != row.sizes["g"]}
    if guard.allows is not None:

        def keeps(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return guard.allows(Point(row, before, b, h, i, j))  # type: ignore[misc]

        batch = row.sizes["b"] if any("b" in array.axes for array in guard.arrays) else None
        sizes = row.sizes["i"], row.sizes["j"]
        options["block_mask"] = create_block_mask(keeps, batch, None, *sizes, device=device)

    def call() -> Tensors:
        given = inputs.given()
        q, k, scale = score.prepare(row, given)

        def changed(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return score.change(s, Point(row, given, b, h, i, j))  # type: ignore[misc]

        def attend(v: Tensor, **more: Any) -> Any:
            mod = None if score.change is None else changed
            return flex_attention(q, k, v, score_mod=mod, scale=scale, **options, **more)

        return around(row, given, attend, partial(flex_attention, **options))

    return call


BUILDERS = {"sdpa": direct, "flex": flex, "plain": plain}


def builds_pairs(row: Row, name: str) -> int:
    """How many pairs a peer has in memory."""
    dense = name == "plain" or (
        name == "sdpa" and (row.score.change is not None or row.guard.words not in ("", "causal"))
    )
    return dense * row.sizes["b"] * row.sizes["h"] * row.sizes["i"] * row.sizes["j"]


def step_of(call: Call, leaves: list[Tensor], cotangents: Tensors) -> Callable[[], Tensors]:
    """What is timed there and back: the call, and the gradients of its results times random numbers."""

    def step() -> Tensors:
        found = call()
        given = [c.to(x.dtype) for x, c in zip(found, cotangents, strict=True)]
        return found + torch.autograd.grad(found, leaves, given, materialize_grads=True)

    return step


# ---------------------------------------------------------------------------------------- measuring


class Contest:
    """The calls of one row that are right, by pass and contestant."""

    def __init__(self, row: Row, options: argparse.Namespace) -> None:
        self.row, self.device = row, options.device
        self.inputs = Inputs(row, options.seed, options.device, options.fresh)
        self.measured = Measured(row.number, row.words, row.shape, row.program)
        self.calls: dict[str, dict[str, Callable[[], Tensors]]] = {which: {} for which in PASSES}
        self.exact = exactly(self.inputs, self.device)
        self._enter_ours()
        if self.calls[PASSES[0]]:
            for name in options.peers:
                if builds_pairs(row, name) > PAIRS[self.device]:
                    self.measured.refused[name] = "too many pairs"
                else:
                    self._enter(name)
        self._judge()

    def _enter_ours(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self._enter_call(OURS, ours(self.inputs), self.inputs.cotangents)
            except FAILURES as problem:
                self.measured.refused[OURS] = f"{type(problem).__name__}: {problem}"
        self.measured.slow = sorted({str(found.message) for found in caught if found.category is ix.SlowPath})

    def _enter(self, name: str) -> None:
        """On a GPU compiled, and written out as it stands where it cannot be."""
        compiles = self.device == "cuda" and name != "sdpa"
        for compiled in (True, False) if compiles and name == "plain" else (compiles,):
            try:
                return self._build(name, compiled)
            except FAILURES as problem:
                for calls in self.calls.values():
                    calls.pop(name, None)
                said = str(problem).strip().splitlines() or [""]
                self.measured.refused[name] = f"{type(problem).__name__}: {said[0][:200]}"

    def _build(self, name: str, compiled: bool) -> None:
        """A peer is built for each pass: what is learned may be made beforehand where nobody learns."""
        cotangents = self.inputs.at_home(self.inputs.cotangents)
        torch._dynamo.reset()
        for learns in (False, True)[: 1 + bool(self.inputs.leaves)]:
            call = BUILDERS[name](self.inputs, learns, self.device)
            if call is not None:
                call = torch.compile(call, dynamic=False) if compiled else call
                self._enter_call(name, call, cotangents, PASSES[learns : learns + 1])

    def _enter_call(self, name: str, call: Call, cotangents: Tensors, passes: tuple[str, ...] = PASSES) -> None:
        """Run once, and compare with what is exact."""
        floor = TOLERANCES[self.row.dtype][1]
        if PASSES[0] in passes:
            with torch.no_grad():
                self._note(name, apart(self._homes(name, call()), self.exact[: len(cotangents)], floor))
            self.calls[PASSES[0]][name] = call
        if PASSES[1] in passes and self.inputs.leaves:
            step = step_of(call, list(self.inputs.leaves.values()), cotangents)
            self._note(name, apart(self._homes(name, step()), self.exact, floor))
            self.calls[PASSES[1]][name] = step

    def _homes(self, name: str, found: Tensors) -> Tensors:
        count = len(self.inputs.outputs)
        results = self.inputs.at_home(found[:count]) if name == OURS else found[:count]
        axes = [self.inputs.axes[leaf] for leaf in self.inputs.leaves]
        return (*results, *(self.row.home(x, letters) for x, letters in zip(found[count:], axes, strict=False)))

    def _note(self, name: str, error: float) -> None:
        self.measured.errors[name] = max(error, self.measured.errors.get(name, 0.0))

    def _judge(self) -> None:
        """Wrong is what is further off than it may be, and than four times the best of the others."""
        errors, tolerance = self.measured.errors, TOLERANCES[self.row.dtype][0]
        for name, error in errors.items():
            others = min((other for key, other in errors.items() if key != name), default=0.0)
            if error <= tolerance or error <= 4 * others < torch.inf:
                continue
            if name == OURS:
                self.measured.wrong = f"off by {error:.1e}, the best peer by {others:.1e}"
            else:
                self.measured.refused[name] = f"off by {error:.1e}"
                for calls in self.calls.values():
                    calls.pop(name, None)

    def run(self, patience: Patience) -> Measured:
        del self.exact
        for which in PASSES:
            with torch.set_grad_enabled(which != PASSES[0]):
                if OURS in self.calls[which] and not self.measured.wrong:
                    for call in self.calls[which].values():
                        warm_up(call)
                    times = compete(self.calls[which], {}, patience, self.device)
                    self.measured.times[which] = {name: found.median for name, found in times.items()}
                    self.measured.others = max(self.measured.others, times[OURS].others)
        return self.measured


def warm_up(call: Callable[[], object]) -> None:
    """A few calls, of short ones: what comes again and again may be kept from then on."""
    start = perf_counter()
    for _ in range(10):
        if perf_counter() - start < 0.05:
            call()


# ------------------------------------------------------------------------------------------- report


def cells(found: Measured, which: str) -> list[str]:
    best, ratio = found.best(which), found.ratio(which)
    mine = found.times[which].get(OURS)
    return [
        "–" if mine is None else f"{1e3 * mine:.3f}",
        "–" if best is None else f"{1e3 * found.times[which][best]:.3f} {best}",
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def table(results: list[Measured]) -> str:
    """In Markdown, milliseconds; with a star where others used the machine meanwhile."""
    heads = [
        "",
        "attention",
        "shape",
        *(f"{which}{end}" for which in PASSES for end in (", ours", ", best", ", ratio")),
    ]
    lines = [heads, ["---"] * len(heads)]
    for found in results:
        words = found.words + (" (SlowPath)" if found.slow else "") + (" *" if found.others > NOISY else "")
        lines.append(
            [str(found.number), words, found.shape, *(cell for which in PASSES for cell in cells(found, which))]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(results: list[Measured]) -> Iterator[str]:
    for which in PASSES:
        ratios = [ratio for found in results if (ratio := found.ratio(which)) is not None]
        if ratios:
            slower = sum(ratio > SLOWER for ratio in ratios)
            yield f"{which}: {len(ratios)} rows, median ratio {median(ratios):.2f}, {slower} slower than {SLOWER}"
    for what, those in (
        ("SlowPath", [found for found in results if found.slow]),
        ("refused", [found for found in results if OURS in found.refused]),
        ("WRONG", [found for found in results if found.wrong]),
    ):
        yield f"{what}: {len(those)}{' (rows ' + ', '.join(str(f.number) for f in those) + ')' if those else ''}"


def troubles(found: Measured) -> Iterator[str]:
    if found.wrong:
        yield f"WRONG: {found.wrong}"
    if OURS in found.refused:
        yield f"refused: {found.refused[OURS]}"
    yield from found.slow


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200, help="how many rows are drawn")
    parser.add_argument("--rows", type=numbers, help="numbers of rows, as in 3,17; by default all")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="of all rows; by default drawn, on a CPU f32")
    parser.add_argument("--peers", type=names, default=PEERS, help=f"who takes part beside us: {','.join(PEERS)}")
    parser.add_argument("--fresh", action="store_true", help="peers make dense masks in each call, as ours does")
    parser.add_argument("--patience", type=float, default=0.2, help="seconds for each contestant and pass")
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait before a row for a quiet machine")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no row is begun")
    parser.add_argument("--worst", type=int, default=20, help="how many rows the table has")
    parser.add_argument("--programs", action="store_true", help="print the program of every row")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch; 2 by default")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here")
    return given


def numbers(text: str) -> list[int]:
    """Numbers of rows."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 0:
        raise ValueError(text)
    return found


def names(text: str) -> tuple[str, ...]:
    """Peers that there are."""
    found = tuple(part.strip() for part in text.split(","))
    if unknown := [name for name in found if name not in PEERS]:
        raise argparse.ArgumentTypeError(f"nobody is called `{unknown[0]}`; there are {', '.join(PEERS)}")
    return found


def main() -> int:
    given = read_arguments()
    torch.set_num_threads(given.threads)
    warnings.filterwarnings("ignore", module="torch")
    wanted = given.rows or range(given.count)
    end = perf_counter() + given.budget
    results: list[Measured] = []
    for number in wanted:
        if perf_counter() > end:
            progress(f"the budget is spent: {len(results)} rows of {len(wanted)}")
            break
        row = draw(given.seed, number, given.device, given.dtype)
        found = Contest(row, given).run(Patience(given.patience, quiet=given.wait))
        results.append(found)
        ratios = ", ".join("–" if (ratio := found.ratio(which)) is None else f"{ratio:.2f}" for which in PASSES)
        progress(f"{number}: {found.words} | {found.shape} | {ratios}")
        said = list(troubles(found))
        if said or given.programs:
            print("\n".join((f"row {number} | {found.shape}", *said, found.program)), flush=True)
        if given.json is not None:
            about = {
                "torch": torch.__version__,
                "indexical": ix.__version__,
                "device": given.device,
                "seed": given.seed,
            }
            write_file(given.json, json.dumps({"about": about, "rows": [asdict(r) for r in results]}, indent=2) + "\n")
    print(table(sorted(results, key=lambda found: -found.worst)[: given.worst]))
    print("\n".join(("", *summary(results))))
    return 1 if any(found.wrong or OURS in found.refused for found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
