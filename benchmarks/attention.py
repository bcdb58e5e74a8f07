"""Attention in named coordinates beside its peers: times, errors, memory, and what it costs to begin.

    python benchmarks/attention.py --quick
    python benchmarks/attention.py --json attention.json
    python benchmarks/attention.py --forward --sizes 4096 --dtypes f32 --variants window,documents
    python benchmarks/attention.py --device cuda --sizes 4096,16384 --dtypes bf16

B = 1, H = 8, D = 64. All that can state a variant run in turn in one process, and medians are compared; masks, biases
and block masks are made beforehand. Errors are against attention in float64 on the same inputs. Memory is measured in
a process of its own for each figure. Without --forward, --backward, --memory or --starting all four are measured.

Peers: `sdpa` is the plain scaled_dot_product_attention, `sdpa mask` and `sdpa bias` the same with a 4-D Boolean mask or
float bias, `flex` compiled FlexAttention (at the largest size, and for windows also at 2048: it is compiled anew for
each cell), `eager` matmul, softmax, matmul, and einops and einx the same in their words; those three run in long rows
only where they tell something new. --every-peer runs everyone everywhere, and takes hours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from contest.cells import measure
from contest.memory import grow
from contest.peers import OURS
from contest.report import show
from contest.roster import Roster
from contest.starting import contractions, first_calls, small_calls
from contest.targets import Results, judge
from contest.timing import Patience, progress
from contest.variants import VARIANTS, Setting, draw

import indexical as ix

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
SECTIONS = ("starting", "forward", "backward", "memory")
QUICK_VARIANTS = "causal,causal by hand,window,documents,alibi,softcap"


class Plan:
    """What is to be measured: the command line, with what was left out filled in."""

    def __init__(self, given: argparse.Namespace) -> None:
        quick = given.quick
        on_gpu = given.device == "cuda"
        sizes = "16,2048" if quick else "16,512,2048,4096" + (",16384" if on_gpu else "")
        self.quick: bool = quick
        self.device: str = given.device
        self.sizes = sorted(int(size) for size in (given.sizes or sizes).split(","))
        self.dtypes = [DTYPES[name] for name in (given.dtypes or ("f32" if quick else "f32,bf16")).split(",")]
        names = given.variants or (QUICK_VARIANTS if quick else ",".join(VARIANTS))
        self.variants = [VARIANTS[name.strip()] for name in names.split(",")]
        asked = [section for section in SECTIONS if getattr(given, section)]
        self.sections = asked or list(SECTIONS)
        self.wait: float = given.wait
        self.patience = Patience(0.4 if quick else 1.5, quiet=self.wait)
        missing = tuple(name for name in ("einops", "einx") if importlib.util.find_spec(name) is None)
        for name in missing:
            progress(f"{name} is not installed: left out")
        self.failure = "" if given.without_ours else self._failure()
        self.with_ours: bool = not (given.without_ours or self.failure)
        self.roster = Roster(self.with_ours, missing, self.sizes[-1], quick, given.every_peer)

    def _failure(self) -> str:
        """Why a program does not take PyTorch's tensors and give them back; nothing where it does."""
        setting = Setting(VARIANTS["causal"], 8, torch.float32, self.device)
        inputs = draw(setting)
        try:
            found = ix.compile(setting.variant.program)(inputs.q, inputs.k, inputs.v)
        except Exception as problem:  # The peers are measured all the same.
            return f"{type(problem).__name__}: {problem}"
        return "" if isinstance(found, torch.Tensor) else f"it gives back {type(found).__name__}"


def measure_cells(plan: Plan, backward: bool, results: Results) -> None:
    for dtype in plan.dtypes:
        for size in plan.sizes:
            if backward and not plan.roster.everyone and size not in (512, plan.sizes[-1]):
                continue
            for variant in plan.variants:
                setting = Setting(variant, size, dtype, plan.device)
                names = plan.roster.names(setting, backward)
                results.cells.append(measure(setting, backward, names, plan.patience))


def measure_memory(plan: Plan, results: Results) -> None:
    """Ours at two sizes, with gradients and without; the peers at the larger, without."""
    largest = min(plan.sizes[-1], 4096) if plan.device == "cpu" else plan.sizes[-1]
    for variant in plan.variants:
        orders = [
            (size, backward, OURS)
            for size in (largest // 2, largest)
            for backward in (False, True)
            if plan.with_ours and not (plan.quick and backward)
        ]
        if not variant.name.endswith("by hand") and not plan.quick:
            here = plan.roster.names(Setting(variant, largest, plan.dtypes[0], plan.device), False)
            orders += [(largest, False, name) for name in here if name not in (OURS, "einops", "einx")]
        for size, backward, name in orders:
            setting = Setting(variant, size, plan.dtypes[0], plan.device)
            progress(f"  memory: {name}, {setting}{', with gradients' if backward else ''}")
            results.growths.append(grow(setting, backward, name))


def measure_starting(plan: Plan, results: Results) -> None:
    patience = Patience(0.3 if plan.quick else 1.0, most=5000, quiet=plan.wait)
    results.calls = small_calls(plan.device, plan.with_ours, plan.dtypes, patience)
    results.contractions = contractions(plan.device, plan.with_ours, plan.dtypes, patience)
    runs = 1 if plan.quick else 3
    results.first = first_calls(plan.device, plan.with_ours, not plan.quick, runs)


MEASURES: dict[str, Callable[[Plan, Results], None]] = {
    "starting": measure_starting,
    "forward": lambda plan, results: measure_cells(plan, False, results),
    "backward": lambda plan, results: measure_cells(plan, True, results),
    "memory": measure_memory,
}


def describe() -> dict[str, object]:
    """The machine and the versions."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "indexical": ix.__version__,
        "einops": _version("einops"),
        "einx": _version("einx"),
        "threads": torch.get_num_threads(),
        "processor": _processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load": os.getloadavg()[0],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{named[0]}, {len(named)} cores" if named else platform.processor()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few variants, two sizes, f32: two minutes at most")
    parser.add_argument("--sizes", help="numbers of positions; by default 16,512,2048,4096, on cuda 16384 too")
    parser.add_argument("--dtypes", help=f"of {', '.join(DTYPES)}; by default f32,bf16")
    parser.add_argument("--variants", help=f"of {', '.join(VARIANTS)}; by default all")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    for section in SECTIONS:
        parser.add_argument(f"--{section}", action="store_true", help=f"measure this: {section}")
    parser.add_argument("--every-peer", action="store_true", help="every peer in every cell")
    parser.add_argument("--without-ours", action="store_true", help="the peers alone")
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait before a cell for a quiet machine")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch; 2 by default")
    parser.add_argument("--json", type=Path, help="write everything there, too")
    given = parser.parse_args()
    for name in (given.variants or "").split(","):
        if name.strip() not in (*VARIANTS, ""):
            parser.error(f"no variant is called `{name.strip()}`; there are {', '.join(VARIANTS)}")
    for name in (given.dtypes or "").split(","):
        if name not in (*DTYPES, ""):
            parser.error(f"no dtype is called `{name}`; there are {', '.join(DTYPES)}")
    return given


def save(path: Path, about: dict[str, object], results: Results) -> None:
    report = {
        "about": {**about, "load at the end": os.getloadavg()[0]},
        "cells": [cell.to_json() for cell in results.cells],
        "memory": [growth.to_json() for growth in results.growths],
        "first call": {name: {"whole": f.whole, "built": f.built} for name, f in results.first.items()},
        "calls": {name: times.median for name, times in results.calls.items()},
        "contractions": {name: times.median for name, times in results.contractions.items()},
        "verdicts": [verdict.to_json() for verdict in judge(results)],
    }
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    given = read_arguments()
    torch.set_num_threads(given.threads)
    warnings.filterwarnings("ignore", module="torch")
    about = describe()
    print(", ".join(f"{name} {value}" for name, value in about.items() if value is not None), flush=True)
    plan = Plan(given)
    results = Results(plan.with_ours)
    for section in plan.sections:
        MEASURES[section](plan, results)
        if given.json is not None:
            save(given.json, about, results)
    print(show(results))
    if plan.failure:
        print(f"\nOurs did not run: {plan.failure}")
    return 1 if plan.failure else 0


if __name__ == "__main__":
    sys.exit(main())
