"""What it costs to start: parse and check of one program, and `import indexical` beyond `import numpy`.

    python benchmarks/check.py
    python benchmarks/check.py --json check.json

The program is the one at the top of the language's page. Each number is the median of many runs; an import is timed in
fresh interpreters, the two in turn.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import numpy as np

import indexical as ix
from indexical.checker.program import check
from indexical.diagnostics import Sink
from indexical.source import Source
from indexical.syntax.parse import parse

PROGRAM = """\
space batch(b), head(h), position(i, j), feature(d, e);

input Q[b, h, i, d], K[b, h, j, d], V[b, h, j, e];

let scores[b, h, i, j]  = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(size(d));
let weights[b, h, i, j] = softmax[j](scores[b, h, i, j]) where j <= i;
let out[b, h, i, e]     = sum[j](weights[b, h, i, j] * V[b, h, j, e]);

attention out(query i, key j, compare d, carry e, head h, batch b, causal);
"""
# In milliseconds; what has no target is only shown.
TARGETS = {"parse and check": 5.0}


def milliseconds(step: Callable[[], object], runs: int) -> list[float]:
    """How long a step takes, warm."""
    for _ in range(max(3, runs // 10)):
        step()
    found = []
    for _ in range(runs):
        start = perf_counter()
        step()
        found.append(1000 * (perf_counter() - start))
    return found


def parse_alone() -> object:
    return parse(Source("program", PROGRAM), Sink())


def parse_and_check() -> object:
    sink = Sink()
    program = check(parse(Source("program", PROGRAM), sink), sink)
    assert program is not None
    return program


def import_seconds(statement: str) -> float:
    """The time that a statement takes in a fresh interpreter, measured there."""
    text = f"from time import perf_counter as now; start = now(); {statement}; print(now() - start)"
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, encoding="utf-8")
    return float(result.stdout)


def import_milliseconds(runs: int) -> tuple[list[float], list[float]]:
    """`import numpy`, and what `import indexical` adds to it."""
    numpy, beyond = [], []
    for _ in range(runs):
        numpy.append(1000 * import_seconds("import numpy"))
        beyond.append(1000 * import_seconds("import numpy; start = now(); import indexical"))
    return numpy, beyond


def measure(runs: int, imports: int) -> dict[str, list[float]]:
    numpy, beyond = import_milliseconds(imports)
    return {
        "parse": milliseconds(parse_alone, runs),
        "parse and check": milliseconds(parse_and_check, runs),
        "ix.compile": milliseconds(lambda: ix.compile(PROGRAM), runs),
        "import numpy": numpy,
        "import indexical, beyond numpy": beyond,
    }


def summary(times: list[float]) -> dict[str, float]:
    nine = quantiles(times, n=10)[-1] if len(times) > 1 else times[0]
    return {"median": median(times), "best": min(times), "nine_in_ten_below": nine, "runs": len(times)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--imports", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    given = parser.parse_args()
    found = {name: summary(times) for name, times in measure(given.runs, given.imports).items()}
    print(f"{'':<32}{'median':>10}{'best':>10}{'9 of 10':>10}   ms, target")
    for name, numbers in found.items():
        target = f"≤ {TARGETS[name]:g}" if name in TARGETS else ""
        columns = "".join(f"{numbers[key]:>10.2f}" for key in ("median", "best", "nine_in_ten_below"))
        print(f"{name:<32}{columns}   {target}")
    if given.json is not None:
        about = {"python": platform.python_version(), "numpy": np.__version__, "indexical": ix.__version__}
        about["machine"] = platform.machine()
        report = {"unit": "ms", "targets": TARGETS, "about": about, "measured": found}
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
