"""Attention on a GPU beside its peers, row by row of what was promised.

    python benchmarks/gpu.py --quick
    python benchmarks/gpu.py --json gpu.json
    python benchmarks/gpu.py --rows window,alibi --sizes 4096,32768 --budget 120

First it is shown that results are right: each contestant against float64, output and gradients, by ‖error‖ ÷ ‖exact‖,
ours beside the peers'. Then all run in turn in one process, and medians are compared; backward passes are timed alone.
A figure behind a peer's time is that time ÷ ours: above 1 we are faster. `host` is the time that a call of ours keeps
the processor busy where there is next to nothing to compute, `first` the first call with all that is compiled in it.

Peers: `sdpa` is the plain scaled_dot_product_attention, `flex` compiled FlexAttention, whose block mask is made before
and timed apart, `eager` compiled matmul, softmax, matmul. Who cannot state a row, or would not fit, is left out.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import torch
from contest.gpu_peers import Inputs, direct, draw, eager, error, exactly, flex, mask_seconds, ours, warm_up
from contest.gpu_rows import ROWS, Row, Shape, Target, square
from contest.report import table
from contest.timing import Patience, Times, compete, once, progress

import indexical as ix

QUICK = "causal,window,documents,alibi,softcap,relative,decode,decode 4,decode window,decode alibi"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
PASSES = ("forward", "backward")
OURS, PEERS = "ours", ("sdpa", "flex", "eager")


class TooSlow(Exception):
    """A contestant that took longer than a row may take."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: to measure each contestant, for one slow call, for a row, and for everything."""

    patience: float
    call: float
    row: float
    budget: float


@dataclass(slots=True)
class Measured:
    """One row at one shape: times and errors by pass and contestant, and who was left out and why."""

    row: str
    shape: str
    keys: int
    times: dict[str, dict[str, Times]] = field(default_factory=lambda: {name: {} for name in PASSES})
    errors: dict[str, list[float]] = field(default_factory=dict)
    mask: float | None = None
    host: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def ratio(self, peer: str, which: str, mask: bool = False) -> float | None:
        """The peer's time ÷ ours."""
        found = self.times[which]
        if OURS not in found or peer not in found:
            return None
        return (found[peer].median + (self.mask or 0.0) * mask) / found[OURS].median


@dataclass(slots=True)
class Verdict:
    """What was promised of a row, and what was found."""

    row: str
    shape: str
    which: str
    said: str
    found: float | None
    met: bool


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Python code that takes longer is interrupted; a kernel that runs already is not."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"it took more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --------------------------------------------------------------------------------------- contestants


def contestants(
    row: Row, shape: Shape, inputs: Inputs, measured: Measured, peers: tuple[str, ...], device: str, everyone: bool
) -> Iterator[tuple[str, Inputs, Callable[[], Any]]]:
    """Those who can state the row, built one after the other, with what they are given: ours first."""
    yield OURS, inputs, ours(row, shape, inputs)
    if "sdpa" in peers and (found := direct(row, shape, inputs)) is not None:
        yield "sdpa", inputs, found
    if "flex" in peers and row.flex:
        measured.mask, mask = mask_seconds(row, shape, inputs, device)
        if (found := flex(row, shape, inputs, mask)) is not None:
            yield "flex", inputs, found
    if "eager" in peers and (everyone or not row.flex) and (found := eager(row, shape, inputs)) is not None:
        yield "eager", inputs, found


def measure(row: Row, shape: Shape, options: argparse.Namespace, limits: Limits) -> Measured:
    """Errors of all contestants, then their times."""
    device, dtype = options.device, DTYPES[options.dtype]
    backward = not row.decodes and not options.forward
    measured = Measured(row.name, str(shape), shape.keys)
    inputs = draw(row, shape, dtype, device, backward)
    exact = exactly(row, shape, inputs, backward)
    calls: dict[str, dict[str, Callable[[], Any]]] = {name: {} for name in PASSES}
    firsts: dict[str, dict[str, float]] = {name: {} for name in PASSES}
    building = contestants(row, shape, inputs, measured, options.peers.split(","), device, options.every_peer)
    end = perf_counter() + limits.row
    while True:
        name = "a peer"
        try:
            with at_most(max(1.0, end - perf_counter())):
                name, given, call = next(building)
                tried = try_out(call, given.leaves(row), given, backward, device)
        except StopIteration:
            break
        except Exception as problem:  # Whatever a contestant raises is a finding about it; the others go on.
            measured.refused[name] = f"{type(problem).__name__}: {(str(problem).strip().splitlines() or [''])[0][:200]}"
            continue
        measured.errors[name] = error(tried.found, exact, row, shape)
        for which, (first, second, function) in tried.passes.items():
            if second > limits.call:
                measured.times[which][name] = Times(first, second, second, second, 1, 0.0)
            else:
                firsts[which][name], calls[which][name] = first, function
    del exact
    for which in PASSES:
        with torch.set_grad_enabled(which == "backward"):
            measured.times[which] |= compete(calls[which], firsts[which], Patience(limits.patience), device)
    if OURS in measured.times["forward"] and measured.times["forward"][OURS].median < limits.call:
        measured.host = host_times(row, shape, dtype, device, backward)
    return measured


@dataclass(slots=True)
class Tried:
    """The output and the gradients of a contestant; of each pass its first and its second time, and a call."""

    found: tuple[torch.Tensor, ...]
    passes: dict[str, tuple[float, float, Callable[[], Any]]]


def try_out(
    call: Callable[[], Any], leaves: tuple[torch.Tensor, ...], inputs: Inputs, backward: bool, device: str
) -> Tried:
    with torch.no_grad():
        first, out = once(call, device)
        second, _ = once(call, device)
    passes: dict[str, tuple[float, float, Callable[[], Any]]] = {"forward": (first, second, call)}
    if not backward:
        return Tried((out,), passes)
    out = call()

    def back() -> Any:
        return torch.autograd.grad(out, leaves, inputs.cotangent.to(out.dtype), retain_graph=True)

    first, gradients = once(back, device)
    second, _ = once(back, device)
    passes["backward"] = (first, second, back)
    return Tried((out, *gradients), passes)


def host_times(row: Row, shape: Shape, dtype: torch.dtype, device: str, backward: bool) -> dict[str, float]:
    """Seconds of the processor for a call of ours over few points, without gradients and with."""
    heads = min(shape.heads, 2 * shape.heads // shape.groups)
    groups = max(1, heads * shape.groups // shape.heads)
    queries, keys = min(shape.queries, 128), min(shape.keys, 4096 if row.decodes else 128)
    small = Shape(1, heads, groups, queries, keys, shape.width)
    found = {}
    for which, tracked in (("plain", False), ("tracked", True))[: 1 + backward]:
        call = ours(row, small, draw(row, small, dtype, device, tracked))
        with torch.set_grad_enabled(tracked):
            once(call, device)
            runs = []
            for _ in range(5):
                start = perf_counter()
                for _ in range(20):
                    call()
                runs.append((perf_counter() - start) / 20)
                once(call, device)
        found[which] = sorted(runs)[2]
    return found


# -------------------------------------------------------------------------------------------- report


def judge(results: list[Measured]) -> Iterator[Verdict]:
    """Each promise for which both sides were measured."""
    forward = {found.row: found.times["forward"].get(OURS) for found in results}
    for found in results:
        row = ROWS[found.row]
        for target in row.targets:
            if not target.sizes or found.keys in target.sizes:
                yield from _judged(found, target)
        if row.beside is not None:
            name, most = row.beside
            own, other = found.times["forward"].get(OURS), forward.get(name)
            if own is not None and other is not None:
                ratio = own.median / other.median
                yield Verdict(row.name, found.shape, "forward", f"≤ {most:g} × ours, {name}", ratio, ratio <= most)


def _judged(found: Measured, target: Target) -> Iterator[Verdict]:
    for which, least in (("forward", target.forward), ("backward", target.backward)):
        if least is None or target.peer not in found.times[which]:
            continue
        ratio = found.ratio(target.peer, which, target.mask)
        said = f"≥ {least:g} × {target.peer}{' with its mask' if target.mask else ''}"
        yield Verdict(found.row, found.shape, which, said, ratio, ratio is not None and ratio >= least)


def show(results: list[Measured], names: list[str]) -> str:
    """All tables, the verdicts last."""
    blocks = []
    errors = [[f"{found.row} {found.shape}", *(_errors(found.errors.get(name)) for name in names)] for found in results]
    blocks.append(table("Error against float64: output, then the gradients", ["", *names], errors))
    for which in PASSES:
        rows = [_times(found, which, names) for found in results if found.times[which]]
        if rows:
            blocks.append(table(f"{which}: ms (÷ ours)", ["", *names, "mask", "first", "host µs"], rows))
    reasons = [f"  {r.row} {r.shape}: {name}: {reason}" for r in results for name, reason in r.refused.items()]
    if reasons:
        blocks.append("\n".join(("Left out", *reasons)))
    verdicts = list(judge(results))
    if verdicts:
        rows = [
            [
                f"{v.row} {v.shape} {v.which}",
                "–" if v.found is None else f"{v.found:.2f}",
                v.said,
                "" if v.met else "MISSED",
            ]
            for v in verdicts
        ]
        blocks.append(table("Targets", ["", "found", "", ""], rows))
        blocks.append(f"{sum(v.met for v in verdicts)} of {len(verdicts)} met")
    return "\n\n".join(blocks)


def _errors(found: list[float] | None) -> str:
    return "" if found is None else " ".join(f"{value:.1e}" for value in found)


def _times(found: Measured, which: str, names: list[str]) -> list[str]:
    cells = [f"{found.row} {found.shape}"]
    for name in names:
        times = found.times[which].get(name)
        ratio = found.ratio(name, which)
        shown = "" if times is None else f"{1e3 * times.median:.3f}"
        cells.append(shown if name == OURS or ratio is None else f"{shown} ({ratio:.2f})")
    first = found.times[which].get(OURS)
    host = found.host.get("plain" if which == "forward" else "tracked")
    mask = f"{1e3 * found.mask:.1f}" if found.mask is not None and which == "forward" else ""
    started = "" if first is None else f"{first.first:.2f} s"
    return [*cells, mask, started, "" if host is None else f"{1e6 * host:.0f}"]


def describe(device: str) -> dict[str, object]:
    about: dict[str, object] = {"torch": torch.__version__, "indexical": ix.__version__, "device": device}
    if device == "cuda":
        import triton

        about |= {"triton": triton.__version__, "gpu": torch.cuda.get_device_name()}
    return about


def save(path: Path, about: dict[str, object], results: list[Measured]) -> None:
    report = {
        "about": about,
        "rows": [asdict(found) for found in results],
        "verdicts": [asdict(verdict) for verdict in judge(results)],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first size, some rows: about 90 s on an H200")
    parser.add_argument("--rows", help=f"of {', '.join(ROWS)}; by default all")
    parser.add_argument("--sizes", help="numbers of keys; those not among a row's own sizes are taken with 4 heads")
    parser.add_argument("--peers", default=",".join(PEERS), help="who takes part beside us")
    parser.add_argument("--every-peer", action="store_true", help="compiled eager code in every row where it fits")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--call-limit", type=float, default=1.0, help="a call that takes longer is timed once")
    parser.add_argument("--row-limit", type=float, default=40.0, help="seconds to build and try all of a row")
    parser.add_argument("--budget", type=float, help="seconds after which no row is begun; 90 for --quick")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    given = parser.parse_args()
    for name in (given.rows or "").split(","):
        if name.strip() not in (*ROWS, ""):
            parser.error(f"no row is called `{name.strip()}`; there are {', '.join(ROWS)}")
    return given


def cells(given: argparse.Namespace) -> list[tuple[Row, Shape]]:
    """Rows and shapes, the first size of all rows first."""
    names = given.rows or (QUICK if given.quick else ",".join(ROWS))
    rows = [ROWS[name.strip()] for name in names.split(",")]
    sizes = {int(size) for size in given.sizes.split(",")} if given.sizes else None
    found: list[tuple[int, Row, Shape]] = []
    for row in rows:
        shapes = [shape for shape in row.sizes if sizes is None or shape.keys in sizes]
        others = sorted((sizes or set()) - {shape.keys for shape in row.sizes})
        if row.decodes:
            queries = row.sizes[0].queries
            shapes += [Shape(2, 8, 2, queries, size, 64) for size in others]
        else:
            shapes += [square(1, 4, size, 64) for size in others]
        found += [(n, row, shape) for n, shape in enumerate(shapes[:1] if given.quick else shapes)]
    return [(row, shape) for _, row, shape in sorted(found, key=lambda cell: cell[0])]


def main() -> int:
    given = read_arguments()
    warnings.filterwarnings("ignore", module="torch")
    warnings.filterwarnings("ignore", category=ix.SlowPath)
    about = describe(given.device)
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    budget = given.budget or (90.0 if given.quick else 3600.0)
    limits = Limits(0.05 if given.quick else 0.2, given.call_limit, given.row_limit, budget)
    if set(given.peers.split(",")) & {"flex", "eager"}:
        warm_up(given.device)
    end = perf_counter() + budget
    results: list[Measured] = []
    skipped = []
    for row, shape in cells(given):
        if perf_counter() > end:
            skipped.append(f"{row.name} {shape}")
            continue
        start = perf_counter()
        found = measure(row, shape, given, limits)
        results.append(found)
        shown = ", ".join(
            f"{name} {1e3 * times.median:.3f}" for which in PASSES for name, times in found.times[which].items()
        )
        progress(f"  {row.name} {shape}: {shown} ms; {perf_counter() - start:.1f} s")
        if given.json is not None:
            save(given.json, about, results)
        if given.device == "cuda":
            torch.cuda.empty_cache()
    taking = [name for name in (OURS, *PEERS) if any(name in found.errors for found in results)]
    print(show(results, taking))
    if skipped:
        print(f"\nNot measured, the budget was spent: {', '.join(skipped)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
