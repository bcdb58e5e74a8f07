"""Programs with a pole exactly where a guard removes the point: no gradient may hear of it.

`pole_cases()` is a Hypothesis strategy; `pole_case(seed)` draws the same programs without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import strategies as st
from tests.laws.draws import Choose
from tests.laws.numerics import Array

# Guards, and the same for NumPy.
GUARDS = {
    "j < i": "j < i",
    "j <= i": "j <= i",
    "j > i + 1": "j > i + 1",
    "m[i]": "m[i]",
    "c[j]": "c[j]",
    "k[i, j]": "k[i, j]",
    "m[i], j < i": "m[i] & (j < i)",
    "n < i": "n < i",
    "n < j, k[i, j]": "(n < j) & k[i, j]",
}
# Functions with a pole at 0, of their slope or of themselves; an exponent that is negative where `j > i`.
STEEP = ("sqrt(@)", "log(@)", "1 / @", "rsqrt(@)", "@ ** 0.5", "@ ** -1", "@ ** 1.5 / @", "sqrt(@) / (1 + @)")
PLAIN = ("x[i]", "y[j]", "z[i, j]", "s", "2.0")
LEARNED = ("p[i]", "q[j]", "r[i, j]", "g")
POWERS = ("@ ** (i - j)", "@ ** (i - j + 1)", "(i - j) ** @", "sqrt(i - j) * @", "@ / (i - j)", "@ * log(i - j)")
SUMS = (
    "let out = sum[i, j](@ where {guard});",
    "let out[i] = sum[j](@ where {guard});",
    "let out[j] = sum[i](@ where {guard});",
    "let w[i, j] = @ where {guard}; let out[i] = sum[j](w[i, j] * y[j]);",
    "let w[i, j] = @; let out[i] = sum[j](w[i, j] where {guard});",
    "let w[i, j] = @; let out[i] = sum[j](w[i, j] * y[j] where {guard});",
    "let w[i, j] = @; let v[i, j] = w[i, j] * x[i]; let out[i, j] = v[i, j] where {guard};",
    "let out[i, j] = if {test} {{ @ }} else {{ 0 }};",
    "let out[i] = sum[j](if {test} {{ @ }} else {{ z[i, j] }});",
    "let out[i, j] = @ where {guard};",
    "let w[i, j] = softmax[j](@) where {guard}; let out[i] = sum[j](w[i, j] * y[j]);",
    "let t[i, j] = @; let w[i, j] = softmax[j](t[i, j]) where {guard}; let out[i] = sum[j](w[i, j] * y[j]);",
    "let t[i, j] = @; let w[i, j] = exp(t[i, j]) where {guard}; "
    "let out[i] = sum[j](w[i, j] * y[j]) / (1 + sum[j](w[i, j]));",
)


@dataclass(frozen=True)
class Pole:
    """A program and the arrays of one call, 0 at poles that nobody asks for. It shows itself as its text."""

    text: str
    arrays: Mapping[str, Array | np.generic]

    def __repr__(self) -> str:
        return "\n".join(["", self.text, *(f"{name} = {array.tolist()}" for name, array in self.arrays.items())])


class Draws:
    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    def pick(self, options: tuple[str, ...]) -> str:
        return options[self.choose(len(options))]

    def case(self) -> Pole:
        guard = self.pick(tuple(GUARDS))
        body = self.factor(guard)
        for _ in range(self.choose(4)):
            body = self.pick(("{} * {}", "{} * ({})", "({}) * {}", "{} + {}")).format(self.factor(guard), body)
        text = self.pick(SUMS).format(guard=guard, test=guard.replace(", ", " && ")).replace("@", f"({body})")
        noise = np.random.default_rng(self.choose(1 << 16))
        n = (4, 1, 3, 6)[self.choose(4)]
        arrays: dict[str, Array | np.generic] = {name: noise.uniform(0.4, 1.6, n) for name in "xypq"}
        arrays |= {name: noise.uniform(0.4, 1.6, (n, n)) for name in "zr"}
        arrays |= {name: np.float64(noise.uniform(0.4, 1.6)) for name in "sg"}
        share = (0.5, 0.0, 0.8)[self.choose(3)]
        arrays |= {"m": noise.random(n) < share, "c": noise.random(n) < share, "k": noise.random((n, n)) < share}
        arrays["n"] = np.int64(self.choose(3))
        kept = self.kept(guard, arrays, n)
        arrays["p"] = np.where(kept.any(1), arrays["p"], 0.0)
        arrays["q"] = np.where(kept.any(0), arrays["q"], 0.0)
        arrays["r"] = np.where(kept, arrays["r"], 0.0)
        if not kept.any():
            arrays["g"] = np.float64(0)
        inputs = "input x[i], y[j], z[i, j], p[i], q[j], r[i, j], s, g, m[i] : bool, c[j] : bool, k[i, j] : bool;"
        head = f"space place(i, j);\n{inputs}\ninput n : i64;"
        return Pole(f"{head}\n{text.replace('; let', ';' + chr(10) + 'let')}\noutput out;", arrays)

    def factor(self, guard: str) -> str:
        kind = self.choose(4)
        if kind == 0:
            return self.pick(PLAIN)
        if kind == 3 and guard in ("j < i", "m[i], j < i"):
            return f"({self.pick(POWERS).replace('@', self.pick(('s', 'x[i]', 'y[j]', 'g', 'p[i]', 'q[j]')))})"
        return f"({self.pick(STEEP).replace('@', self.pick(LEARNED))})"

    def kept(self, guard: str, arrays: Mapping[str, Array | np.generic], n: int) -> Array:
        i, j = np.indices((n, n))
        names = {"i": i, "j": j, "n": arrays["n"], "m": arrays["m"], "c": arrays["c"], "k": arrays["k"]}
        found = eval(GUARDS[guard], {}, names)
        return np.broadcast_to(found, (n, n))


@st.composite
def pole_cases(draw: st.DrawFn) -> Pole:
    return Draws(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0).case()


def pole_case(seed: int) -> Pole:
    return Draws(Random(seed).randrange).case()
