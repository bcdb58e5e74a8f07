"""Exact and certified evaluation, beside what people use for it: mpmath (many digits, none proven; and its intervals)
and sympy (equality by simplification).

    python benchmarks/exact.py
    python benchmarks/exact.py --quick --json exact.json

Each figure is the median of several runs in this process, in turn with its peer's. A ratio is ours ÷ the peer's.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import mpmath
import numpy as np
import sympy

import indexical as ix

ROOT = Path(__file__).resolve().parent.parent

PLAIN = """
input Q[i, d], K[j, d], V[j, e];
let scores[i, j]  = sum[d](Q[i, d] * K[j, d]) / sqrt(size(d));
let weights[i, j] = softmax[j](scores[i, j]);
let out[i, e]     = sum[j](weights[i, j] * V[j, e]);
"""

BLOCKED = """
input s[j], V[j];
let x[j]  = s[j] / sqrt(2);
let naive = sum[j](exp(x[j]) * V[j]) / sum[j](exp(x[j]));
let top[c in 0..size(j) / 4]    = max[k in 0..4](x[4 * c + k]);
let under[c in 0..size(j) / 4]  = sum[k in 0..4](exp(x[4 * c + k] - top[c]));
let over[c in 0..size(j) / 4]   = sum[k in 0..4](exp(x[4 * c + k] - top[c]) * V[4 * c + k]);
let most    = max[c](top[c]);
let blocked = sum[c](over[c] * exp(top[c] - most)) / sum[c](under[c] * exp(top[c] - most));
output naive, blocked;
"""


def fractions(generator: random.Random, *shape: int) -> Any:
    if not shape:
        return Fraction(generator.randint(-30, 30), generator.randint(1, 20))
    return [fractions(generator, *shape[1:]) for _ in range(shape[0])]


def attention_by_mpmath(context: Any, Q: Any, K: Any, V: Any) -> list[list[Any]]:
    """The same in loops of mpmath's numbers."""

    def number(value: Fraction) -> Any:
        return context.mpf(value.numerator) / value.denominator

    Q, K, V = ([[number(value) for value in row] for row in rows] for rows in (Q, K, V))
    scale = context.sqrt(len(Q[0]))
    result = []
    for query in Q:
        scores = [sum((a * b for a, b in zip(query, key, strict=True)), context.mpf(0)) / scale for key in K]
        raised = [context.exp(score) for score in scores]
        whole = sum(raised, context.mpf(0))
        result.append(
            [
                sum((part * row[e] for part, row in zip(raised, V, strict=True)), context.mpf(0)) / whole
                for e in range(len(V[0]))
            ]
        )
    return result


def equality_by_sympy(s: list[Fraction], V: list[Fraction]) -> bool:
    """Naive and blocked softmax, subtracted and simplified."""
    x = [sympy.Rational(a.numerator, a.denominator) / sympy.sqrt(2) for a in s]
    values = [sympy.Rational(a.numerator, a.denominator) for a in V]
    naive = sum(sympy.exp(a) * v for a, v in zip(x, values, strict=True)) / sum(sympy.exp(a) for a in x)
    tops = [max(x[c : c + 4]) for c in range(0, len(x), 4)]
    most = max(tops)
    over = sum(
        sympy.exp(top - most) * sum(sympy.exp(x[c + k] - top) * values[c + k] for k in range(4))
        for c, top in zip(range(0, len(x), 4), tops, strict=True)
    )
    under = sum(
        sympy.exp(top - most) * sum(sympy.exp(x[c + k] - top) for k in range(4))
        for c, top in zip(range(0, len(x), 4), tops, strict=True)
    )
    return bool(sympy.simplify(naive - over / under) == 0)


def in_turn(runs: int, *functions: Callable[[], object]) -> list[float]:
    """The median seconds of each, run in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(runs):
        for function, found in zip(functions, times, strict=True):
            start = perf_counter()
            function()
            found.append(perf_counter() - start)
    return [median(found) for found in times]


def measure(quick: bool) -> list[dict[str, object]]:
    generator = random.Random(0)
    runs = 1 if quick else 3
    size = 16 if quick else 64
    causal, plain, blocked = (
        ix.compile(ROOT / "examples" / "causal_attention.ix"),
        ix.compile(PLAIN),
        ix.compile(BLOCKED),
    )
    whole = np.random.default_rng(0).integers(-3, 4, (3, 1, 8, 16, 8))
    Q, K, V = (fractions(generator, size, size) for _ in range(3))
    s, v = fractions(generator, 16), fractions(generator, 16)

    def certified() -> list[str]:
        return [value.decimal(50) for value in ix.exact(plain, Q, K, V)["out"].values()]

    def decided() -> bool:
        found = ix.exact(blocked, s, v)
        return bool(found["naive"] == found["blocked"])

    mpmath.mp.dps = mpmath.iv.dps = 60
    assert decided()
    (heads,) = in_turn(runs, lambda: ix.exact(causal, *whole))
    ours, digits, bounds = in_turn(
        runs,
        certified,
        lambda: attention_by_mpmath(mpmath.mp, Q, K, V),
        lambda: attention_by_mpmath(mpmath.iv, Q, K, V),
    )
    few = (s[:8], v[:8])
    equality, simplified = in_turn(runs, decided, lambda: equality_by_sympy(*few))
    return [
        {"what": "causal attention, 8 heads, 16 positions, 8 features, exactly", "seconds": heads},
        {"what": f"attention {size} × {size} to 50 proven digits", "seconds": ours},
        {"what": "… ÷ mpmath, 60 digits, none proven", "seconds": digits, "ratio": ours / digits},
        {"what": "… ÷ mpmath's intervals, 60 digits", "seconds": bounds, "ratio": ours / bounds},
        {"what": "naive and blocked softmax equal, 16 keys, scale 1/√2", "seconds": equality},
        {"what": "… ÷ sympy's simplify, 8 keys", "seconds": simplified, "ratio": equality / simplified},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 × 16 and one run: a smoke test")
    parser.add_argument("--json", metavar="PATH", help="write the figures to a file as well")
    options = parser.parse_args()
    found = measure(options.quick)
    print(f"Python {platform.python_version()}, mpmath {mpmath.__version__}, sympy {sympy.__version__}\n")
    for entry in found:
        ratio = f"  ratio {entry['ratio']:.3g}" if "ratio" in entry else ""
        print(f"{entry['seconds']:9.3f} s{ratio:<16}  {entry['what']}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
