"""How a page feels in a browser: how large it is, how long it takes to build, to open, and to answer.

    python benchmarks/page.py
    python benchmarks/page.py --positions 512 --heads 8 --json page.json
    python benchmarks/page.py --watched --layers 2 --positions 4096 --heads 16

The second is a page of one program, the third that of a PyTorch model that was watched, with weights made again from
queries and keys. It needs playwright and Chromium. Times in the browser are medians of several runs, in milliseconds.
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


# Of a page of heads. `stall` is the longest time between two frames while the pointer moves.
HOVER = """async (runs) => {
  const canvas = document.querySelector(".matrix"), box = canvas.getBoundingClientRect();
  const [taken, drawn, frames, draw] = [[], [], [], Heads.prototype.drawRow];
  Heads.prototype.drawRow = function timed() {
    const start = performance.now();
    draw.call(this);
    drawn.push(performance.now() - start);
  };
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  let last = performance.now();
  for (let n = 0; n < runs; n += 1) {
    const start = performance.now();
    const [x, y] = [70 + (n * 37) % (box.width - 110), 60 + (n * 53) % (box.height - 70)];
    const at = { clientX: box.left + x, clientY: box.top + y };
    canvas.dispatchEvent(new PointerEvent("pointermove", at));
    await frame();
    const channel = new MessageChannel();
    const painted = new Promise((done) => { channel.port1.onmessage = done; });
    channel.port2.postMessage(0);
    await painted;
    taken.push(performance.now() - start);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return [taken, drawn, Math.max(...frames)];
}"""


def measure_watched(positions: int, heads: int, layers: int, runs: int, keep: Path | None) -> dict[str, Any]:
    """A page of a model: some layers of attention without training, on a text of a hundred words."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    width = 64 * heads
    model = nn.Sequential(nn.Embedding(100, width), *(_attention(width, heads) for _ in range(layers)))
    words = torch.randint(0, 100, (1, positions))
    with torch.no_grad(), ix.watch(model, tokens=[f"w{word}" for word in words[0].tolist()]) as seen:
        model(words)
    start = perf_counter()
    page = seen.page("Watched")
    found: dict[str, Any] = {"size, MiB": len(page.html) / 2**20, "build, s": perf_counter() - start}
    with tempfile.TemporaryDirectory() as folder:
        path = page.save(keep or Path(folder) / "page.html")
        return found | feel(path, runs)


def feel(path: Path, runs: int) -> dict[str, Any]:
    """How a page of heads opens and answers."""
    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        opened = []
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            start = perf_counter()
            tab.goto(path.resolve().as_uri())
            tab.wait_for_selector(".largest li")
            opened.append(perf_counter() - start)
        found["open, s"] = median(opened)
        data = "DATA.blocks[0]"
        found |= {"exact in a row": tab.evaluate(f"{data}.top"), "cells of a block": tab.evaluate(f"{data}.block ** 2")}
        errors = tab.evaluate(f"({data}.again?.heads ?? []).map((entry) => entry?.errors ?? null)")
        made = [error for error in errors if error is not None]
        found |= {
            "heads made again, %": 100 * len(made) / max(1, len(errors)),
            "off on the whole, %": 100 * max((error[0] for error in made), default=0.0),
            "off at most, %": 100 * max((error[1] for error in made), default=0.0),
        }
        frames, drawn, stall = tab.evaluate(HOVER, 20 * runs)
        found |= {"hover, to the next frame, ms": median(frames), "hover, its script, ms": median(drawn)}
        found["hover, longest between frames, ms"] = stall
        browser.close()
    return found


def _attention(width: int, heads: int) -> Any:
    """A layer of causal attention with a residual, as in a decoder."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrices = nn.Linear(width, 3 * width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            near = x + functional.pad(x, (0, 0, 1, 0))[:, :-1]
            parts = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.matrices(near).chunk(3, -1))
            heard = functional.scaled_dot_product_attention(*parts, is_causal=True)
            return x + heard.transpose(1, 2).flatten(-2)

    return Attention()


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
    parser.add_argument("--layers", type=int, default=1, help="of a model that is watched")
    parser.add_argument("--watched", action="store_true", help="the page of a model in place of a program's")
    parser.add_argument("--keep", type=Path, metavar="PATH", help="write the page of the model there")
    parser.add_argument("--again", type=Path, metavar="PATH", help="measure a page of a model that was kept")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", metavar="PATH", help="write the figures to a file as well")
    options = parser.parse_args()
    if options.again:
        found = feel(options.again, options.runs)
    elif options.watched:
        found = measure_watched(options.positions, options.heads, options.layers, options.runs, options.keep)
    else:
        found = measure(options.positions, options.heads, options.runs)
    for name, value in found.items():
        print(f"{value:10.2f}  {name}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
