"""How a page feels in a browser: how large it is, how long it takes to build, to open, and to answer.

    python benchmarks/page.py
    python benchmarks/page.py --positions 512 --heads 8 --json page.json

It needs playwright and Chromium. Times in the browser are medians of several runs, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

import indexical as ix

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]

ACTIONS = {
    "another head": "PAGES[0].turn({ h: n % 2 })",
    "a cell and all that it scanned": "PAGES[0].select('weights', [0, 0, last, n], true)",
    "the next term": "PAGES[0].goTerm(n)",
    "pointing at a cell": "PAGES[0].point({ i: last - n, j: n })",
    "all of it again": "PAGES[0].redraw()",
}


def measure(positions: int, heads: int, runs: int) -> dict[str, Any]:
    arrays = np.random.default_rng(0).standard_normal((3, 1, heads, positions, 8)).astype(np.float32)
    start = perf_counter()
    page = ix.show(ROOT / "examples" / "causal_attention.ix", *arrays)
    found: dict[str, Any] = {"size, MB": len(page.html) / 1e6, "build, s": perf_counter() - start}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = page.save(Path(folder) / "page.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        tab = browser.new_page(viewport={"width": 1500, "height": 1000})
        start = perf_counter()
        tab.goto(path.as_uri())
        found["open, s"] = perf_counter() - start
        for name, script in ACTIONS.items():
            before = f"const last = {positions - 1}; const start = performance.now();"
            timed = f"n => {{ {before} {script}; return performance.now() - start; }}"
            found[f"{name}, ms"] = median(tab.evaluate(timed, n) for n in range(runs))
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", metavar="PATH", help="write the figures to a file as well")
    options = parser.parse_args()
    found = measure(options.positions, options.heads, options.runs)
    for name, value in found.items():
        print(f"{value:10.2f}  {name}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
