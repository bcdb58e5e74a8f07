"""What it costs to begin and to call: the first call after import, a call at N = 16, and one small contraction."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

import indexical as ix

from .peers import CONTESTANTS, OURS
from .programs import CONTRACTION
from .timing import Patience, Times, compete, progress
from .variants import BATCH, HEADS, VARIANTS, WIDTH, Setting, draw, short

FIRST_SIZE = 512
FIRST_VARIANTS = ("causal", "causal by hand", "window", "documents", "alibi", "softcap")


@dataclass(frozen=True, slots=True)
class First:
    """Seconds from the text to the first result, and how much of them went by before the call."""

    whole: float
    built: float


def first_calls(device: str, with_ours: bool, with_flex: bool, runs: int) -> dict[str, First]:
    """What it takes to begin in a fresh process, imports not counted: the median of some runs."""
    found = {}
    names = ["sdpa", *([OURS] if with_ours else [])]
    for variant in FIRST_VARIANTS:
        for name in names:
            if name == "sdpa" and VARIANTS[variant].direct is None:
                continue
            progress(f"  the first call: {name}, {variant}")
            tries = [_fresh(name, variant, device, {}) for _ in range(runs)]
            found[f"{name}, {variant}"] = sorted(tries, key=lambda one: one.whole)[runs // 2]
    if with_flex:
        with TemporaryDirectory() as cache:
            for label in ("nothing cached", "compiled before"):
                progress(f"  the first call: flex, {label}")
                found[f"flex, causal, {label}"] = _fresh("flex", "causal", device, {"TORCHINDUCTOR_CACHE_DIR": cache})
    return found


def _fresh(name: str, variant: str, device: str, environment: dict[str, str]) -> First:
    text = f"from contest.starting import begin; begin({name!r}, {variant!r}, {device!r})"
    folder = str(Path(__file__).resolve().parents[1])
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    result = subprocess.run([sys.executable, "-c", text], env=around, capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        said = result.stderr.strip().splitlines() or ["nothing"]
        progress(f"    it failed: {said[-1][:200]}")
        return First(nan, nan)
    return First(**json.loads(result.stdout.splitlines()[-1]))


def begin(name: str, variant: str, device: str) -> None:
    """In the fresh process: build the contestant and call it, timed together."""
    if name == "flex":
        importlib.import_module("torch.nn.attention.flex_attention")  # Like the other imports, it is not counted.
    torch.set_num_threads(2)
    setting = Setting(VARIANTS[variant], FIRST_SIZE, torch.float32, device)
    inputs = draw(setting)
    start = perf_counter()
    built = CONTESTANTS[name](setting, inputs)
    middle = perf_counter()
    assert not isinstance(built, str), built
    built()
    if device == "cuda":
        torch.cuda.synchronize()
    print(json.dumps({"whole": perf_counter() - start, "built": middle - start}))


def small_calls(device: str, with_ours: bool, dtypes: list[torch.dtype], patience: Patience) -> dict[str, Times]:
    """Full and causal attention at N = 16: what a call costs where there is next to nothing to compute."""
    found: dict[str, Times] = {}
    for dtype in dtypes:
        for variant in ("full", "causal"):
            setting = Setting(VARIANTS[variant], 16, dtype, device)
            progress(f"  calls: {setting}")
            inputs = draw(setting)
            calls: dict[str, Callable[[], object]] = {}
            for name in ("sdpa", *([OURS] if with_ours else [])):
                built = CONTESTANTS[name](setting, inputs)
                assert not isinstance(built, str), built
                calls[name] = built
            found |= _by_threads(calls, f"{variant}, {short(dtype)}", patience, device)
    return found


def contractions(device: str, with_ours: bool, dtypes: list[torch.dtype], patience: Patience) -> dict[str, Times]:
    """`sum[d](Q * K)` beside `torch.einsum` and `matmul`."""
    found: dict[str, Times] = {}
    for dtype in dtypes:
        for size in (16, 128):
            progress(f"  sum[d](Q * K), N = {size}, {short(dtype)}")
            calls = _contracting(size, dtype, device, with_ours)
            found |= _by_threads(calls, f"N = {size}, {short(dtype)}", patience, device)
    return found


def _by_threads(
    calls: Mapping[str, Callable[[], object]], case: str, patience: Patience, device: str
) -> dict[str, Times]:
    """With as many threads as asked for, and with one: where the machine is shared, only the second is calm."""
    threads = torch.get_num_threads()
    found = {}
    for count in dict.fromkeys((threads, 1)):
        torch.set_num_threads(count)
        for name, times in compete(calls, {}, patience, device).items():
            found[f"{name}, {case}{', one thread' if count == 1 else ''}"] = times
    torch.set_num_threads(threads)
    return found


def _contracting(size: int, dtype: torch.dtype, device: str, with_ours: bool) -> dict[str, Callable[[], object]]:
    source = torch.Generator().manual_seed(size)
    q, k = (torch.randn(BATCH, HEADS, size, WIDTH, generator=source).to(device, dtype) for _ in range(2))
    calls: dict[str, Callable[[], object]] = {
        "einsum": lambda: torch.einsum("bhid,bhjd->bhij", q, k),
        "matmul": lambda: q @ k.mT,
    }
    if with_ours:
        program = ix.compile(CONTRACTION)
        calls[OURS] = lambda: program(q, k)
    return calls
