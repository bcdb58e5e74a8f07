"""Clocks: the contestants of a cell run in turn in one process, and the median of each is kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter, perf_counter_ns, sleep
from typing import TypeVar

import torch

Result = TypeVar("Result")
# Where others use more of the machine than this, a figure is marked.
NOISY = 0.05


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: the first call, with all that is compiled in it, and the middle of the later ones.

    `others` is the share of the machine that other processes used meanwhile.
    """

    first: float
    median: float
    low: float
    high: float
    runs: int
    others: float


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each contestant may run, at least and at most how often, and how long to wait for a quiet machine."""

    seconds: float
    least: int = 3
    most: int = 200
    quiet: float = 0.0


class Watch:
    """How much of the machine others use: what was busy since the watch was made, less this process."""

    def __init__(self) -> None:
        self._start = self._read()

    def others(self) -> float:
        """As a share of the whole machine; 0 where it cannot be told."""
        whole, busy, own = (now - then for now, then in zip(self._read(), self._start, strict=True))
        return max(0.0, busy - own) / whole if whole > 0 else 0.0

    @staticmethod
    def _read() -> tuple[float, float, float]:
        stat = Path("/proc/stat")
        if not stat.exists():
            return 0.0, 0.0, 0.0
        ticks = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
        idle = ticks[3] + ticks[4]
        own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        return sum(ticks), sum(ticks) - idle, own


def await_quiet(seconds: float) -> None:
    """Wait until nobody else uses the machine, but not for longer."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        watch = Watch()
        sleep(0.3)
        if watch.others() < NOISY:
            return


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def once(call: Callable[[], Result], device: str) -> tuple[float, Result]:
    """Seconds for one call, until its result is there; and the result."""
    start = perf_counter()
    found = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - start, found


def compete(
    calls: Mapping[str, Callable[[], object]], first: Mapping[str, float], patience: Patience, device: str
) -> dict[str, Times]:
    """Every call as often as patience allows, all spread evenly over the same stretch of time.

    If others disturbed it, and patience has it, it is done once more; the less disturbed of the two is kept.
    """
    found = _compete(calls, first, patience, device)
    if patience.quiet and any(times.others > NOISY for times in found.values()):
        again = _compete(calls, first, patience, device)
        found = min(found, again, key=lambda times: max((t.others for t in times.values()), default=0.0))
    return found


def _compete(
    calls: Mapping[str, Callable[[], object]], first: Mapping[str, float], patience: Patience, device: str
) -> dict[str, Times]:
    await_quiet(patience.quiet)
    watch = Watch()
    guess = {name: _guess(call, device) for name, call in calls.items()}
    counts = {name: _count(seconds, patience) for name, seconds in guess.items()}
    batch = {name: _batch(seconds, device) for name, seconds in guess.items()}
    random = Random(0)
    turns = sorted(((k + random.random()) / count, name) for name, count in counts.items() for k in range(count))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _, name in turns:
        found[name].append(_run(calls[name], batch[name], device))
    others = watch.others()
    return {name: _times(first.get(name, guess[name]), runs, others) for name, runs in found.items()}


def _guess(call: Callable[[], object], device: str) -> float:
    """About how long a call takes: where it is short, the shortest of some."""
    seconds, _ = once(call, device)
    return min(once(call, device)[0] for _ in range(5)) if seconds < 0.02 else seconds


def _count(seconds: float, patience: Patience) -> int:
    """How often to run: where a single call outlasts patience many times over, once."""
    least = patience.least if seconds < 4 * patience.seconds else 1
    return max(least, min(patience.most, int(patience.seconds / max(seconds, 1e-9))))


def _batch(seconds: float, device: str) -> int:
    """How many calls one reading covers: on the GPU, so many that the start of a single one is not what is read, which
    is a fifth of a millisecond or more where gradients are asked for."""
    return max(1, min(50, int(2e-2 / max(seconds, 1e-9)))) if device == "cuda" else 1


def _run(call: Callable[[], object], batch: int, device: str) -> float:
    """Seconds per call."""
    if device != "cuda":
        start = perf_counter_ns()
        call()
        return (perf_counter_ns() - start) / 1e9
    start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start_event.record()
    for _ in range(batch):
        call()
    end_event.record()
    torch.cuda.synchronize()
    return float(start_event.elapsed_time(end_event)) / 1e3 / batch


def _times(first: float, runs: list[float], others: float) -> Times:
    low, _, high = quantiles(runs, n=4) if len(runs) > 1 else (runs[0],) * 3
    return Times(first, median(runs), low, high, len(runs), others)
