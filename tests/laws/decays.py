"""Sums of what came before, each step back counting less: strict, shifted, backward, with rates and axes in any order.

`decay_cases()` is a Hypothesis strategy; `decay_case(seed)` draws from the same programs without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import strategies as st
from tests.laws.draws import Draws
from tests.laws.guarded import Guarded
from tests.laws.guarded_grids import Array

# Sizes no two of which are equal, so that axes in a wrong order are seen; and steps beyond those taken one by one.
SIZES = {"b": 2, "c": 3, "e": 4}
STEPS, MANY_STEPS = (5, 6, 1, 7), 40
# Which keys `s` a query `t` hears: forward, then backward; the guards of shifted bounds among them.
FORWARD = ("s < t", "s <= t", "t > s", "s <= t - 2", "s < t - 1", "s + 1 <= t", "s < t + 1", "t - s >= 1", "s <= t + 1")
BACKWARD = ("s > t", "s >= t", "t < s", "s >= t + 2", "s > t + 1", "s >= t + 1", "s - t > 0", "s > t - 1", "s + 1 > t")


class Decays(Draws):
    """Draws one definition `out`, of a position and up to three other axes."""

    def case(self) -> Guarded:
        self.noise = np.random.default_rng(self.choose(1 << 16))
        self.arrays: dict[str, Array] = {}
        self.declared: list[str] = []
        self.long = self.chance(12)
        self.others = ["c"] if self.long else [name for name in SIZES if self.chance(75)]
        self.sizes = {**SIZES, "t": MANY_STEPS if self.long else self.pick(STEPS)}
        self.forward = self.chance(65)
        over, where = self.keys()
        parts = self.shuffled([self.decay(), *([self.beside()] if self.chance(30) else []), self.values()])
        total = f"{self.weighted((8, 'sum'), (1, 'mean'))}[{over}]({' * '.join(parts)}{where})"
        if total.startswith("mean") and not (self.forward and where == " where s <= t"):
            total = f"sum{total.removeprefix('mean')}"
        around = self.weighted((6, "{}"), (1, "tanh({})"), (1, "1 - {}"), (1, "{} * {}"))
        body = around.format(total, self.input("y", ("t", *self.some()))("t") if around == "{} * {}" else "")
        slots = ", ".join(self.shuffled(["t", *self.others]))
        text = f"input {', '.join(self.declared)};\nlet out[{slots}] = {body};"
        return Guarded(text, self.arrays, "out", "decay")

    def keys(self) -> tuple[str, str]:
        """The range of the keys, and their guard."""
        if self.chance(12):
            return self.pick(("s in 0..t", "s in 0..=t") if self.forward else ("s in t..size(t)",)), ""
        where = f" where {self.pick(FORWARD if self.forward else BACKWARD)}"
        if self.chance(15):
            where += self.pick((" && s % 2 == 0", " && t >= 1", " && s >= 1", " && kept[s]"))
            if "kept" in where:
                self.arrays["kept"] = self.noise.random(self.sizes["t"]) < 0.7
                self.declared.append("kept[t] : bool")
        return self.pick(("s in 0..size(t)", "s")), where

    def input(self, name: str, axes: tuple[str, ...], low: float = -1.0, high: float = 1.0) -> Callable[[str], str]:
        """A new input of these axes in some order: how it is read at a point."""
        order = self.shuffled(list(axes))
        self.arrays[name] = self.noise.uniform(low, high, [self.sizes[axis] for axis in order])
        self.declared.append(f"{name}[{', '.join(order)}]" if order else name)
        return lambda point: f"{name}[{', '.join(point if a == 't' else a for a in order)}]" if order else name

    def some(self) -> tuple[str, ...]:
        return tuple(name for name in self.others if self.chance(60))

    def decay(self) -> str:
        """A factor for each step between the two; a rate may vary with other axes."""
        ago = self.pick(("(t - s)", "(t - s - 1)", "(t - s + 2)")) if self.chance(20) else "(t - s)"
        ago = ago if self.forward else ago.replace("t - s", "s - t")
        back = ago.replace("t - s", "@").replace("s - t", "t - s").replace("@", "s - t")
        back = back.replace("+ 2", "- 2") if "2" in back else back.replace("- 1", "+ 1")
        if self.chance(15) and not self.long:
            step = self.input("g", ("t", *self.some()), 0.3, 0.95)("m")
            first, last = ("s", "t") if self.forward else ("t", "s")
            return f"prod[m]({step} where {first} < m && m <= {last})"
        if self.chance(25):
            return self.pick((f"0.5 ** {ago}", f"exp(-0.3 * {ago})", f"exp2(-{ago})"))
        rate = self.input("a", self.some(), 0.1, 0.9)("t")
        return self.pick((
            f"{rate} ** {ago}", f"exp(-{ago} * {rate})", f"exp({back} * {rate})", f"exp(-({rate} * {ago}))",
            f"exp({rate} * {back})", f"0.9 ** ({ago} * {rate})",
        ))  # fmt: skip

    def values(self) -> str:
        """What is summed: it has all axes that nothing else has."""
        read = ", ".join(self.declared)
        axes = [name for name in self.others if self.chance(60) or not re.search(rf"\b{name}\b", read)]
        read = self.input("x", ("t", *axes))("s")
        return self.weighted((4, read), (1, f"tanh({read})"), (1, f"({read} + 1)"))

    def beside(self) -> str:
        """A factor of the query alone, or of neither."""
        return self.input("q", ("t", *self.some()))("t") if self.chance(60) else self.input("u", self.some())("t")


@st.composite
def decay_cases(draw: st.DrawFn) -> Guarded:
    return Decays(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0).case()


def decay_case(seed: int) -> Guarded:
    return Decays(Random(seed).randrange).case()
