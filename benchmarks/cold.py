"""What it costs to start, beside `import numpy`: commands, the first compilation, the first call.

    python benchmarks/cold.py
    python benchmarks/cold.py --runs 20 --json cold.json

Each is timed in fresh interpreters, all in turn, with bytecode that is cached. A machine that does something else only
adds to a time, so the best of the runs is shown. A ratio is to an interpreter that imports NumPy and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

PROGRAM = """\
space position(i, j), feature(d, e);

input Q[i, d], K[j, d], V[j, e];

let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]) where j <= i;
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);

attention out(query i, key j, compare d, carry e, causal);
"""
COMMAND = "from indexical.cli import main; main({})"
COMPILE = "import indexical as ix; program = ix.compile('attention.ix')"
CALL = f"import numpy; {COMPILE}; program(*numpy.ones((3, 4, 2)))"
NUMPY = "import numpy"
# What is timed; the ratio that it may have, where there is a target; and whether emitted source is kept.
TASKS: dict[str, tuple[str, float | None, bool]] = {
    NUMPY: (NUMPY, None, False),
    "import indexical": ("import indexical", None, False),
    "ix --version": (COMMAND.format(["--version"]), 1.2, False),
    "ix --help": (COMMAND.format(["--help"]), 1.2, False),
    "ix fmt --check": (COMMAND.format(["fmt", "--check", "attention.ix"]), None, False),
    "ix check": (COMMAND.format(["check", "attention.ix"]), None, False),
    "ix.compile": (COMPILE, None, False),
    "the first call, planned": (CALL, None, False),
    "the first call, kept": (CALL, None, True),
}
# Inside one process: milliseconds from `import indexical` to a compiled program.
INSIDE = f"import indexical, time; start = time.perf_counter(); {COMPILE}; print(1000 * (time.perf_counter() - start))"
MOST_INSIDE = 150.0


def run(statement: str, folder: str, keep: bool) -> tuple[float, str]:
    """How many milliseconds a fresh interpreter takes, and what it prints."""
    environment = {**os.environ, "IX_CACHE": f"{folder}/kept" if keep else "0", "PYTHONPYCACHEPREFIX": f"{folder}/code"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = perf_counter()
    command = [sys.executable, "-c", statement]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=True)
    return 1000 * (perf_counter() - start), result.stdout


def measure(runs: int) -> dict[str, float]:
    """The best time of each task, in milliseconds."""
    best: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        Path(folder, "attention.ix").write_text(PROGRAM, encoding="utf-8")
        for turn in range(runs + 1):
            found = {name: run(statement, folder, keep)[0] for name, (statement, _, keep) in TASKS.items()}
            found["ix.compile, inside"] = float(run(INSIDE, folder, False)[1])
            if turn:  # the first one writes the bytecode
                best = {name: min(time, best.get(name, time)) for name, time in found.items()}
    return best


def report(best: dict[str, float]) -> bool:
    """Print the table; whether all targets are met."""
    met = True
    for name, time in best.items():
        target = TASKS[name][1] if name in TASKS else None
        ratio = time / best[NUMPY]
        met &= target is None or ratio <= target
        print(f"{name:24} {time:8.0f} ms {ratio:8.2f} ×" + ("" if target is None else f"   at most {target} ×"))
    inside = best["ix.compile, inside"]
    print(f"\nthe first `ix.compile` after `import indexical`: {inside:.0f} ms, at most {MOST_INSIDE:.0f} ms")
    return met and inside <= MOST_INSIDE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="of each task (default: 7)")
    parser.add_argument("--json", metavar="PATH", help="write the milliseconds there")
    options = parser.parse_args()
    best = measure(options.runs)
    if options.json:
        Path(options.json).write_text(json.dumps(best, indent=2) + "\n", encoding="utf-8")
    return 0 if report(best) else 1


if __name__ == "__main__":
    sys.exit(main())
