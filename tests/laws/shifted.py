"""Sums of tables read at sums and differences of coordinates, along several axes at once: places inside and outside.

`shifted_case(seed)` draws one definition `out` of a table, of weights, and of what is beside them.
"""

from __future__ import annotations

from random import Random

import numpy as np
from tests.laws.draws import Draws
from tests.laws.guarded import Guarded

# Places along an axis that `b`, which is summed, moves along; and along another one.
SUMMED = ("b + c", "b - c", "c - b", "b + c - 1", "size(q) - 1 - b + c", "b + 2 * c", "2 * b + c", "b + c + 1")
BESIDE = ("t - u", "t + u", "t - 1", "u + 1", "size(p) - 1 - t - u", "t / 2 + u", "t", "2 * t - u", "at[t]")
LAST = "Z[c, size(b) - 1 - b]"
WEIGHTS = ("Z[c, b]", "Z[c / 2, b]", "Z[size(c) - 1 - c, b]", "Z[(c + 1) % size(c), b]", LAST, "v[b]")
MORE = ("", "", "", " * w[c]", " / (2 + w[c])", " * u", " * (if b > t { 1 } else { 2 })")
GUARDS = ("b % 2 == 0", "c <= b", "t > 0", "kept[c]", "b < size(b) - 1")


class Shifted(Draws):
    """Draws one definition `out`."""

    def case(self) -> Guarded:
        noise = np.random.default_rng(self.choose(1 << 16))
        n = {name: 1 + self.choose(6) for name in ("p", "q", "b", "c", "t", "u")}
        summed, beside, through = self.pick(SUMMED), self.pick(BESIDE), self.chance(50)
        table = f"A[{beside}, {'u, ' if through else ''}{summed}]"
        tests = [f"0 <= {summed} < size(q)", f"0 <= {beside} < size(p)"]
        if self.chance(20):
            tests.append(self.pick(GUARDS))
        first = self.pick(("b", "b in 1..size(b)", "b in 0..size(b) - 1"))
        factors = self.shuffled([table, self.pick(WEIGHTS)])
        total = f"sum[{first}]({' * '.join(factors)}{self.pick(MORE)} where {', '.join(self.shuffled(tests))})"
        body = self.pick(("{}", "{}", "tanh({})", "{} + w[c]")).format(total)
        shapes = {"A": ["p", *(["u"] if through else []), "q"], "Z": ["c", "b"], "v": ["b"], "w": ["c"]}
        arrays = {name: noise.normal(size=[n[axis] for axis in axes]) for name, axes in shapes.items()}
        declared = [f"{name}[{', '.join(axes)}]" for name, axes in shapes.items()]
        arrays["at"], arrays["kept"] = noise.integers(0, n["p"], n["t"]), noise.random(n["c"]) < 0.7
        arrays["of"] = noise.normal(size=n["u"])
        slots = ", ".join(self.shuffled(["c", "t", "u"]))
        given = f"input {', '.join(declared)}, at[t] : i64, kept[c] : bool, of[u];"
        return Guarded(f"{given}\nlet out[{slots}] = {body} + of[u];", arrays, "out", "shifted")


def shifted_case(seed: int) -> Guarded:
    """The program of a seed."""
    return Shifted(Random(seed).randrange).case()
