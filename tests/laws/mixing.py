"""Programs in which points of a coordinate are mixed (by a normaliser, a scan, a sum, a recurrence) and the result is
read under a guard or in a branch: what a reader asks for must not change what is mixed.

`mixing_cases()` is a Hypothesis strategy; `mixing_case(seed)` draws the same programs without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import strategies as st
from tests.laws.draws import Choose
from tests.laws.numerics import Array

# Bodies at a point `@`: most of them are not defined for some real numbers, and some not at some places.
BODIES = (
    "x[@]",
    "log(x[@])",
    "sqrt(x[@])",
    "1 / x[@]",
    "rsqrt(x[@])",
    "x[@] ** 0.5",
    "x[@] ** a",
    "a * log(x[@])",
    "a / x[@]",
    "exp(x[@])",
    "x[@] / (@ + 1)",
    "x[@] * log(@ + 1)",
    "x[@] / (@ - 2.5)",
    "log(x[@]) - sqrt(y[@])",
    "y[@] / x[@]",
    "x[@] * sqrt(a) * log(y[@])",
    "log(x[@] * y[@]) / a",
    "(if @ > 0 { log(x[@]) } else { sqrt(x[@]) })",
)
ROWS = (
    "softmax[i](@)",
    "log_softmax[i](@)",
    "cumsum[i](@)",
    "cumprod[i](@)",
    "cummax[i](@)",
    "(rank[i](@) as f64)",
)
OVER = ("sum", "mean", "prod", "max", "min")
BOUNDS = ("k <= i", "k >= i", "k < i + 1", "i - 2 < k, k <= i", "k <= i + 1")
STRICT = ("k < i", "k > i", "k <= i - 2", "k > i + 1", "i - 3 < k, k < i")
OWN = ("i != 1", "m[i]", "i > 0", "i + 1 < size(i)")
ASKED = ("i > 0", "i > 1", "i + 1 < size(i)", "m[i]", "i % 2 == 1", "n < i", "0 < i, m[i]", "x[i] > 0.7")
READERS = (
    "let out[i] = @ where {guard};",
    "let out[i] = if {test} {{ @ }} else {{ 0 }};",
    "let out[i] = if {test} {{ @ }} else {{ x[i] }};",
    "let out[i] = if {test} {{ x[i] * @ }} else {{ y[i] / 2 }};",
    "let out = sum[i](@ where {guard});",
    "let out = sum[i](x[i] * @ where {guard});",
    "let out = max[i](if {test} {{ @ }} else {{ y[i] }});",
    "let out[i] = sum[k in 0..1](y[i + k] * @ where {guard});",
)


@dataclass(frozen=True)
class Mixing:
    """A program and the arrays of one call. It shows itself as its text."""

    text: str
    arrays: Mapping[str, Array | np.generic]

    def __repr__(self) -> str:
        return "\n".join(["", self.text, *(f"{name} = {array.tolist()}" for name, array in self.arrays.items())])


class Draws:
    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    def pick(self, options: tuple[str, ...]) -> str:
        return options[self.choose(len(options))]

    def case(self) -> Mixing:
        lets: list[str] = []
        mixed = self.mixed(self.pick(BODIES), lets)
        if self.choose(4) == 3:
            lets.append(f"let u[i] = {mixed};")
            mixed = self.mixed(self.pick(("u[@]", "u[@] * x[@]", "sqrt(u[@] * u[@] + y[@])", "u[@] / x[@]")), lets)
        if self.choose(3):
            lets.append(f"let c[i] = {mixed};")
            mixed = "c[i]"
        guard = self.pick(ASKED)
        reader = self.pick(READERS).format(guard=guard, test=guard.replace(", ", " && ")).replace("@", mixed)
        text = "\n".join(["input x[i], y[i], a, m[i] : bool, n : i64;", *lets, reader, "output out;"])
        noise = np.random.default_rng(self.choose(1 << 16))
        size = (4, 1, 2, 5, 7)[self.choose(5)]
        return Mixing(
            text,
            {
                "x": noise.uniform(0.3, 2, size),
                "y": noise.uniform(0.3, 2, size),
                "a": np.float64(noise.uniform(0.5, 1.5)),
                "m": noise.random(size) < 0.6,
                "n": np.int64(self.choose(3)),
            },
        )

    def mixed(self, body: str, lets: list[str]) -> str:
        """An expression at `i` that mixes points of the body."""
        if self.choose(3) == 2:
            lets.append(f"let f{len(lets)}[i] = {body.replace('@', 'i')};")
            body = f"f{len(lets) - 1}[@]"
        kind = self.choose(4)
        if kind == 0:
            own = f" where {self.pick(OWN)}" if self.choose(3) == 2 else ""
            return self.pick(ROWS).replace("@", body.replace("@", "i") + own)
        there = body.replace("@", "k")
        if kind == 1:
            over = self.pick(OVER)
            bound = self.pick(BOUNDS + STRICT) if over in ("sum", "prod") else self.pick(BOUNDS)
            return self.pick((f"{over}[k in 0..size(i)]({there} where {bound})", f"{over}[k in 0..=i]({there})"))
        if kind == 2:
            over = self.pick(OVER)
            return f"({over}[k in 0..size(i)]({there}) * y[i])"
        inside = body.replace("@", "i")
        if self.choose(2):
            inside = self.pick(ROWS).replace("@", inside)
        first, back = self.pick(("i == 0|i - 1", "i + 1 == size(i)|i + 1", "i < 1|i - 1")).split("|")
        start = self.pick(("0.0", "x[i]", inside))
        step = self.pick(("0.5 * h[{}] + @", "h[{}] + @", "tanh(h[{}]) + @", "y[i] * h[{}] + @")).format(back)
        name = f"h{len(lets)}"
        rule = f"if {first} {{ {start} }} else {{ {step} }}".replace("h[", f"{name}[").replace("@", inside)
        lets.append(f"let {name}[i] = {rule};")
        return f"{name}[i]"


@st.composite
def mixing_cases(draw: st.DrawFn) -> Mixing:
    return Draws(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0).case()


def mixing_case(seed: int) -> Mixing:
    return Draws(Random(seed).randrange).case()
