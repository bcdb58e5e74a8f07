"""Recurrences that only multiply and add, drawn at random: in every spelling that a scan is to be found in."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FACTORS = (
    "0.5",
    "a[m]",
    "a[t, m]",
    "-g[t]",
    "(1 - g[t])",
    "exp(-a[t, m] ** 2)",
    "(if k[t] { a[t, m] } else { 0 })",
    "sum[n](w[n] * a[t, m]) / size(n)",
    "a[t, m] / 2",
)
TERMS = (
    "x[t, m]",
    "g[t] * x[t, m]",
    "sum[n](w[n] * x[t, m])",
    "0.25",
    "tanh(x[t, m])",
    "(if k[t] { x[t, m] } else { 1 })",
)
HOMES = ("t, m", "m, t", "b, t, m", "b, m, t")


@dataclass(frozen=True)
class Drawn:
    """A program, and arrays for it."""

    text: str
    arrays: dict[str, Array]


def draw(seed: int, steps: int | None = None) -> Drawn:
    """A linear recurrence: forward or backward, by base cases or by a question, along any axis."""
    choices = random.Random(seed)
    count = steps or choices.choice((1, 2, 3, 5, 31, 33, 34, 47, 66, 100))
    offset = choices.choice((1, 1, 1, 2, 3))
    forward = choices.random() < 0.6
    home = choices.choice(HOMES)
    factor, term, start = (
        choices.choice(FACTORS),
        choices.choice(TERMS),
        choices.choice(("x[t, m]", "2 * x[t, m]", "0")),
    )
    sign = "-" if forward else "+"
    before = f"h[{home.replace('t', f't {sign} {offset}')}]"
    rule = choices.choice(
        (
            f"{factor} * {before} + {term}",
            f"{term} + {before} * ({factor})",
            f"{term} - {before} * ({factor}) + {before}",
            f"({before} - {term}) * ({factor})",
            f"-({term} - {factor} * {before})",
            f"{{ let q = {factor}; q * {before} + {term} }}",
        )
    )
    guard = choices.choice(("", "", " where k[t]"))
    slots = home.replace("b", "b in 0..2")
    if count <= offset or choices.random() < 0.5:
        inside = f"t >= {offset}" if forward else f"t + {offset} < size(t)"
        clauses = [f"let h[{slots}] = (if {inside} {{ {rule} }} else {{ {start} }}){guard};"]
    else:
        first = [str(n) if forward else f"size(t) - {n + 1}" for n in range(offset)]
        clauses = [
            f"let h[{slots.replace('t', place, 1)}] = {_at(start, place)};" for place in choices.sample(first, offset)
        ]
        span = f"t in {offset}..size(t)" if forward else f"t in 0..size(t) - {offset}"
        clauses.append(f"let h[{slots.replace('t', span, 1)}] = ({rule}){guard};")
    inputs = "input a_m[m], a[t, m], x[t, m], g[t], w[n], k[t] : bool;"
    text = "\n".join([inputs, *(clause.replace("a[m]", "a_m[m]") for clause in clauses)])
    numbers = np.random.default_rng(seed)
    arrays: dict[str, Array] = {
        "a_m": numbers.uniform(-0.95, 0.95, 3),
        "a": numbers.uniform(-0.95, 0.95, (count, 3)),
        "x": numbers.uniform(-1, 1, (count, 3)),
        "g": numbers.uniform(0, 1, count),
        "w": numbers.uniform(0, 1, 2),
        "k": numbers.random(count) < 0.8,
    }
    return Drawn(text, arrays)


def _at(text: str, place: str) -> str:
    return text.replace("[t,", f"[{place},")
