"""Two checkouts beside each other: the same rows, old and new in turn, each side in a process of its own.

    python benchmarks/compare.py ../before . --json benchmarks/engine.json
    python benchmarks/compare.py ../before . --tables small,layers --rounds 3

A checkout is the root of a working tree; the programs are those of this file and the examples of the new one. A row is
the processor time of a call on one thread, the least of some runs, and the median of that over all rounds. Both sides
wait for each other, row by row, so that a machine whose speed varies is as fast for one as for the other; a row that
seems slower than it may be gets three times the rounds, and the median of all counts. `compile` is `ix.compile` and the
first call of every example, whole models among them, with all that is planned and printed in it. No table may be slower
by more than 3 % in its geometric mean and no row by more than 8 %; all examples together have to compile in half the
time, and a sum of two products under a softmax has to take at most 1.1 times the better of its two plain writings.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from time import process_time
from typing import IO, Any, TypeAlias

Call: TypeAlias = Callable[[], Any]
Times: TypeAlias = dict[str, dict[str, float]]

TABLES = ("attention", "small", "layers", "models", "decode", "memory", "examples", "numpy", "products", "compile")
TABLE_LIMIT, ROW_LIMIT, COMPILE_LIMIT, PRODUCT_LIMIT = 1.03, 1.08, 0.5, 1.1
LEAST, RUNS = 0.02, 5  # Seconds of one run at least, and how many runs there are.
LONGEST = 0.5  # A call that takes longer is a run by itself.

SCORE = "sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(size(d))"
BLOCK = "gain_1[m] bias_1[m] W_Q[h,m,d] W_K[h,m,d] W_V[h,m,e] W_O[h,e,m] gain_2[m] bias_2[m] W_in[m,f] b_in[f]"
BLOCK += " W_out[f,m] b_out[m]"


def attention(guard: str = "", score: str = SCORE, more: str = "") -> str:
    where = f" where {guard}" if guard else ""
    weights = f"let w[h, i, j] = softmax[j]({score}){where};"
    given = f"input Q[h, i, d], K[h, j, d], V[h, j, e]{more};"
    return f"{given} {weights} let out[h, i, e] = sum[j](w[h, i, j] * V[h, j, e]);"


ATTENTION = {
    "full": attention(),
    "causal": attention("j <= i"),
    "window": attention("j <= i, i - j < 32"),
    "documents": attention("j <= i, doc[i] == doc[j]", more=", doc[i] : i64"),
    "alibi": attention("j <= i", f"{SCORE} + slope[h] * (j - i)", ", slope[h]"),
    "soft cap": attention("j <= i", f"30 * tanh({SCORE} / 30)"),
    "relative": attention("j <= i", f"{SCORE} + sum[d](Q[h, i, d] * R[i - j, d])", ", R[i, d]"),
    "bias": attention("", f"{SCORE} + B[h, i, j]", ", B[h, i, j]"),
    "mask": attention("mask[i, j]", more=", mask[i, j] : bool"),
}
SMALL = {
    "layer norm": "use std::norms::{layer_norm}; input x[i, d], g[d], b[d]; let out = layer_norm(x, g, b, 1e-5);",
    "rms norm": "use std::norms::{rms_norm}; input x[i, d], g[d]; let out = rms_norm(x, g, 1e-5);",
    "cross entropy": "use std::losses::{cross_entropy}; input x[i, d], at[i] : i64; let out = cross_entropy(x, at);",
    "experts": "input W[h, e, d], x[i, d], at[i] : i64; let out[i, e] = sum[d](W[at[i], e, d] * x[i, d]);",
    "elementwise": "input x[i, d], y[i, d], z[d]; let out[i, d] = tanh(x[i, d] * y[i, d] + z[d]) * sigmoid(y[i, d]);",
    "sums": "input x[i, d], y[d, e]; let out[i, e] = sum[d](x[i, d] * y[d, e]) / size(d) + 1;",
    "cumulative": "input x[i, d]; let out[i, d] = sum[j](x[j, d] where j <= i);",
    "gru": "use std::recurrence::{gru}; input x[i, d], W[g in 0..3, n, d], U[g in 0..3, n, p], b[g in 0..3, n],"
    " c[g in 0..3, n], start[n]; let out = gru(x, W, U, b, c, start);",
    "convolution": "use std::convolution::{convolve_2d_same}; input x[h, i, d], w[o, h, v in 0..3, u in 0..3];"
    " let out = convolve_2d_same(x, w);",
}
JOINED = "sum[d](Q[h, i, d] * K[h, j, d] + P[i, d] * S[j, d])"
SPLIT = "sum[d](Q[h, i, d] * K[h, j, d]) + sum[d](P[i, d] * S[j, d])"


def stack(layers: int) -> str:
    inputs, lets = ["Y_0[i, m]"], []
    for n in range(layers):
        slots = [slot.replace("[", f"_{n}[") for slot in BLOCK.split()]
        inputs += slots
        names = ", ".join(slot.split("[")[0] for slot in slots)
        lets.append(f"let Y_{n + 1} = transformer_block(Y_{n}, {names}, 1e-5);")
    uses = "use std::layers::{transformer_block};"
    return "\n".join([uses, f"input {', '.join(inputs)};", *lets, f"output Y_{layers};"])


# ---------------------------------------------------------------------------- rows


def drawn(program: Any, sizes: dict[str, int], library: str = "torch") -> dict[str, Any]:
    """Small random numbers for all inputs; whole ones are places on any axis."""
    import numpy as np
    import torch

    from indexical.run.samples import random_arrays

    found = {}
    for name, array in random_arrays(program.ir, {}, sizes, 0)[0].arrays.items():
        given = np.asarray(array)
        if given.dtype.kind == "f":
            given = given * 0.3 if given.ndim else abs(given)
        is_torch = library == "torch"
        found[name] = torch.as_tensor(given.astype("f4") if given.dtype.kind == "f" else given) if is_torch else given
    return found


def both(name: str, text: str, sizes: dict[str, int], steps: bool = True) -> Iterator[tuple[str, Call]]:
    """A call without gradients, and one with those of all real inputs."""
    import torch

    import indexical as ix

    program = ix.compile(text)
    given = drawn(program, sizes)
    yield name, lambda: program(**given)
    tracked = {key: one.clone().requires_grad_() if one.is_floating_point() else one for key, one in given.items()}
    leaves = [one for one in tracked.values() if one.requires_grad]

    def step() -> Any:
        return torch.autograd.grad(program(**tracked).sum(), leaves, allow_unused=True)

    if steps:
        yield f"{name}, step", step


def rows(table: str, root: Path) -> Iterator[tuple[str, Call]]:
    """The calls of a table, by name."""
    import indexical as ix

    head = {"h": 4, "d": 64, "e": 64}
    match table:
        case "attention":
            for name, text in ATTENTION.items():
                yield from both(f"{name} 256", text, {**head, "i": 256, "j": 256})
                yield from both(f"{name} 1024", text, {**head, "i": 1024, "j": 1024}, steps=False)
        case "small":
            for name, text in {**ATTENTION, **SMALL}.items():
                yield from both(f"{name} 16", text, {**head, "d": 16, "i": 16, "j": 16, "n": 8, "p": 8, "o": 4})
        case "layers":
            for width in (64, 256):
                sizes = {"i": 64, "m": width, "d": width // 4, "e": width // 4, "f": 4 * width}
                yield from both(f"4 blocks of {width}", stack(4), {**head, **sizes})
        case "models":
            for name, _, program, given in model_arrays(root):
                yield name, partial(program, **given)
        case "decode":
            yield from decoded()
        case "memory":
            program = ix.compile(stack(4))
            given = drawn(program, {**head, "i": 64, "m": 64, "d": 16, "e": 16, "f": 256})
            for limit in ("64MB", "1MB"):
                yield limit, partial(program, **given, memory=limit)
        case "examples" | "numpy":
            yield from examples(root, "torch" if table == "examples" else table)
        case "products":
            for name, score in (("joined", JOINED), ("split", SPLIT)):
                text = attention("", score, ", P[i, d], S[j, d]")
                yield from both(name, text, {**head, "i": 1024, "j": 1024}, steps=False)


def decoded() -> Iterator[tuple[str, Call]]:
    """One step behind 256 positions, as it grows and with room."""
    import indexical as ix

    text = stack(4)
    sizes = {"h": 4, "i": 256, "m": 64, "d": 16, "e": 16, "f": 256}
    weights = drawn(ix.compile(text), sizes)
    x = weights.pop("Y_0")
    for name, room in (("growing", None), ("room for 512", 512)):
        decoder = ix.incremental(text, "i", capacity=room, **weights)
        state, _ = decoder.prefill(x)
        yield name, partial(decoder.step, x[:1], state)


def model_arrays(root: Path) -> Iterator[tuple[str, Path, Any, dict[str, Any]]]:
    import indexical as ix

    sizes = {"b": 1, "i": 32, "l": 4, "v": 128, "m": 64, "n": 64, "f": 256, "k": 8, "g": 2, "p": 32}
    for name in ("gpt2", "llama", "bert"):
        path = root / f"examples/models/{name}.ix"
        program = ix.compile(path)
        yield name, path, program, drawn(program, {**sizes, "h": 4, "d": 16, "e": 16})


def example_arrays(root: Path, library: str) -> Iterator[tuple[str, Path, Any, dict[str, Any]]]:
    import indexical as ix

    for path in sorted((root / "examples").rglob("*.ix")):
        if {"broken", "published", "models"} & {*path.parts}:
            continue
        program = ix.compile(path)
        for sizes in (dict.fromkeys("ijtnm", 32), {}):
            given = drawn(program, sizes, library)
            try:
                program(**given)
            except ix.Error:  # Some sizes have to agree.
                continue
            yield str(path.relative_to(root / "examples").with_suffix("")), path, program, given
            break


def examples(root: Path, library: str) -> Iterator[tuple[str, Call]]:
    for name, _, program, given in example_arrays(root, library):
        yield name, partial(program, **given)


def compiled(root: Path) -> Iterator[tuple[str, Call]]:
    """`ix.compile` and the first call of each example, after one of each."""
    import indexical as ix

    for name, path, _, given in (*example_arrays(root, "torch"), *model_arrays(root)):
        yield name, lambda path=path, given=given: ix.compile(path)(**given)


# ------------------------------------------------------------------------- measuring


def seconds(call: Call) -> float:
    """The least time of a call in some runs, after some that are not counted."""
    for _ in range(3):  # The third call has a function for its sizes.
        call()
    began = process_time()
    call()
    once = process_time() - began
    count = 1 if once > LONGEST else max(1, math.ceil(LEAST / max(once, 1e-6)))
    found = []
    for _ in range(RUNS):
        began = process_time()
        for _ in range(count):
            call()
        found.append((process_time() - began) / count)
    return min(found)


def once(call: Call) -> float:
    """The time of one call; what calls before it left behind is not its time."""
    gc.collect()
    began = process_time()
    call()
    return process_time() - began


def work(table: str, root: Path) -> None:
    """Answer with the names of a table's rows, and then with the seconds of each row that is asked for."""
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    with torch.no_grad() if table not in ("attention", "small", "layers") else torch.enable_grad():
        calls = dict(compiled(root) if table == "compile" else rows(table, root))
        gc.collect()
        gc.freeze()  # What stays is not looked through again at each collection.
        print(json.dumps([*calls]), flush=True)
        for line in sys.stdin:
            print((once if table == "compile" else seconds)(calls[json.loads(line)]), flush=True)


@contextmanager
def worker(checkout: Path, table: str, root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that measures the rows of a table by the source of a checkout."""
    paths = {"PYTHONPATH": os.pathsep.join((str(checkout / "src"), str(checkout)))}
    settings = {"IX_CACHE": "0", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, __file__, str(checkout), str(root), "--work", table]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={**os.environ, **paths, **settings}, stdin=pipe, stdout=pipe, text=True) as made:
        yield made
        answered(made.stdin).close()


def answered(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def answer(asked: subprocess.Popen[str]) -> Any:
    line = answered(asked.stdout).readline()
    if not line:
        raise SystemExit("a process that measures has ended; what it said stands above")
    return json.loads(line)


def ask(asked: subprocess.Popen[str], name: str) -> float:
    stream = answered(asked.stdin)
    stream.write(json.dumps(name) + "\n")
    stream.flush()
    return float(answer(asked))


def commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def compare(old: Path, new: Path, table: str, rounds: int) -> Times:
    """The median microseconds of each row of both sides, which are asked in turn, row by row."""
    with worker(old, table, new) as first, worker(new, table, new) as second:
        sides = {"old": first, "new": second}
        has = {side: answer(made) for side, made in sides.items()}
        found: Times = {}
        for name in (name for name in has["old"] if name in has["new"]):
            times: dict[str, list[float]] = {side: [] for side in sides}
            for n in range(3 * rounds):
                if n == rounds and slower(times) <= ROW_LIMIT:
                    break
                for side in sides if n % 2 == 0 else reversed(sides):
                    times[side].append(ask(sides[side], name))
            found[name] = {side: round(1e6 * median(all_of), 1) for side, all_of in times.items()}
    return found


def slower(times: dict[str, list[float]]) -> float:
    """By how much the new side takes longer."""
    return median(times["new"]) / median(times["old"])


def verdicts(table: str, times: Times) -> list[str]:
    """What is wrong with a table."""
    ratios = {name: row["new"] / row["old"] for name, row in times.items()}
    mean = geometric_mean(ratios.values())
    if table == "compile":
        whole = sum(row["new"] for row in times.values()) / sum(row["old"] for row in times.values())
        return [f"compile takes {whole:.2f} of what it took in all"] if whole > COMPILE_LIMIT else []
    found = [f"{table} takes {mean:.3f} of what it took"] if mean > TABLE_LIMIT else []
    found += [f"{table}, {name}: {ratio:.2f}" for name, ratio in ratios.items() if ratio > ROW_LIMIT]
    if table == "products" and times["joined"]["new"] > PRODUCT_LIMIT * times["split"]["new"]:
        found.append(f"a sum of products takes {times['joined']['new'] / times['split']['new']:.2f} of two sums")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    old, new = given.old.resolve(), given.new.resolve()
    if given.work:
        work(given.work, new)
        return 0
    report: dict[str, Any] = {"old": commit(old), "new": commit(new), "rounds": given.rounds, "microseconds": {}}
    wrong = []
    for table in given.tables.split(","):
        times = report["microseconds"][table] = compare(old, new, table, given.rounds)
        ratios = {name: row["new"] / row["old"] for name, row in times.items()}
        worst = sorted(ratios, key=lambda name: -ratios[name])[:5]
        shown = ", ".join(f"{name} {ratios[name]:.2f}" for name in worst)
        print(f"{table:10} {geometric_mean(ratios.values()):6.3f} of {len(times):3} rows; worst {shown}", flush=True)
        wrong += verdicts(table, times)
        if given.json:
            given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print("\n".join(wrong) or "nothing is too slow")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
