"""Weights that are normalised by hand, beside an epsilon or a sink, for rows of which some hear nobody.

`normalised_cases()` is a Hypothesis strategy; `normalised_case(seed)` draws from the same programs without it.
"""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import strategies as st
from tests.laws.draws import Draws
from tests.laws.guarded import Guarded
from tests.laws.guarded_grids import Array

# Guards by which some rows keep no key, or none at all does; `kept`, `open`, `few` and the groups are data.
GUARDS = (
    "j < i", "j + 1 < i", "i - 3 < j && j < i", "kept[i, j]", "open[j]", "open[j] && j < i", "j < few", "j > i",
    "group[i] == own[j]", "kept[i, j] && j <= i", "j <= i",
)  # fmt: skip
LARGE = "1e9"


class Normalised(Draws):
    """Draws an attention `out`, often with the logarithm of a total beside it."""

    def case(self) -> Guarded:
        self.noise = np.random.default_rng(self.choose(1 << 16))
        self.arrays: dict[str, Array] = {}
        self.declared: list[str] = []
        self.lead = self.pick(((), ("h",), ("b", "h")))
        self.sizes = {"b": 2, "h": 2, "i": self.pick((4, 1, 6)), "d": 2, "e": 3}
        self.sizes["j"] = self.weighted((8, self.sizes["i"]), (1, 3), (1, 0))
        self.guard = self.pick((*GUARDS, "")) if self.chance(80) else "j < i"
        self.where = f" where {self.guard}" if self.guard else ""
        self.rows, self.pairs = ", ".join((*self.lead, "i")), ", ".join((*self.lead, "i", "j"))
        score = self.score()
        named = self.chance(70)
        self.s = f"s[{self.pairs}]" if named else f"({score})"
        lines = [f"let s[{self.pairs}] = {score};"] if named else []
        lines += self.by_word() if self.chance(15) else [*self.weights(), *self.normaliser()]
        for name in ("kept", "open", "few", "group", "own"):
            if name in self.guard:
                self.data(name)
        text = "\n".join((f"input {', '.join(self.declared)};", *lines))
        return Guarded(text, self.arrays, "out", "normalised")

    def input(self, name: str, axes: tuple[str, ...], low: float = -1.0, high: float = 1.0) -> str:
        """A new input, and how it is read."""
        self.arrays[name] = self.noise.uniform(low, high, [self.sizes[axis] for axis in axes])
        self.declared.append(f"{name}[{', '.join(axes)}]" if axes else name)
        return self.declared[-1]

    def data(self, name: str) -> None:
        """An input that a guard asks."""
        i, j = self.sizes["i"], self.sizes["j"]
        kept = self.noise.random((i, j)) < 0.5
        kept[: i // 2 + 1] &= self.chance(50)
        made: dict[str, tuple[str, Array]] = {
            "kept": ("kept[i, j] : bool", kept),
            "open": ("open[j] : bool", (self.noise.random(j) < 0.5) & self.chance(60)),
            "few": ("few : i64", np.array(self.pick((0, 2)))),
            "group": ("group[i] : i64", self.noise.integers(0, 3, i)),
            "own": ("own[j] : i64", self.noise.integers(0, 2, j)),
        }
        text, self.arrays[name] = made[name]
        self.declared.append(text)

    def score(self) -> str:
        lead = self.lead if self.chance(70) else ()
        text = f"sum[d]({self.input('Q', (*self.lead, 'i', 'd'))} * {self.input('K', (*lead, 'j', 'd'))})"
        bias = self.weighted((5, ""), (1, "ij"), (1, "j"), (1, "slope"), (1, "h"))
        if bias == "ij":
            text += f" + {self.input('B', ('i', 'j'))}"
        elif bias == "j":
            text += f" + {self.input('B', ('j',))}"
        elif bias == "slope":
            text += f" - {self.input('slope', self.lead[-1:], 0.1, 0.5)} * (i - j)"
        elif bias == "h":
            text += f" + {self.input('B', (*self.lead[-1:], 'j'))}"
        return f"({text}) / sqrt(size(d))" if self.chance(30) else text

    # ------------------------------------------------------------------------------------------- weights

    def weights(self) -> list[str]:
        """The largest score of each row, and what the weights are before they are normalised."""
        self.top = f"top[{self.rows}]"
        largest = f"max[j]({self.s}{self.where})"
        spelled = self.weighted((6, largest), (1, ""), (1, f"max({largest}, -9.0)"), (1, f"max[j]({self.s})"))
        self.shifted = bool(spelled)
        self.large = spelled == largest and self.chance(15)
        if self.large:  # Without the largest score taken off, nothing would be left but infinities.
            self.arrays["Q"] *= 900
        lines = [f"let {self.top} = {spelled};"] if spelled else []
        score = f"{self.s} - {self.top}" if spelled else self.s
        power = self.weighted((6, f"exp({score})"), (1, f"exp2({score})"), (1, f"2.0 ** ({score})"))
        if self.guard and self.chance(25):
            return [*lines, f"let x[{self.pairs}] = if {self.guard} {{ {power} }} else {{ 0.0 }};"]
        return [*lines, f"let x[{self.pairs}] = {power}{self.where};"]

    def by_word(self) -> list[str]:
        """Weights by `softmax`, and the logarithm of their total."""
        V = self.input("V", ("j", "e"))
        lines = [f"let w[{self.pairs}] = softmax[j]({self.s}){self.where};"]
        lines += [f"let out[{self.rows}, e] = sum[j](w[{self.pairs}] * {V});"]
        total = self.pick(("{}", "0.5 + {}", "exp({}) + {}"))
        given = (self.input("beta", ()),) if total.startswith("exp") else ()
        total = total.format(*given, f"sum[j](exp({self.s}){self.where})")
        return [*lines, f"let l[{self.rows}] = log({total});", "output out, l;"]

    def epsilon(self) -> str:
        if self.chance(60):
            return self.pick(("1e-6", "0.5", "1.0", "1.0 / size(d)"))
        way = self.pick(("number", "learned", "head", *["unshifted"] * (self.shifted and not self.large)))
        if way == "unshifted":
            return f"exp(-{self.top})"
        if way == "number":
            return self.input("eps", (), 0.1, 0.5)
        read = self.input("beta", self.lead[-1:] if way == "head" else (), -1.0, 1.0)
        return f"exp({read})"

    def normaliser(self) -> list[str]:
        x, rows = f"x[{self.pairs}]", self.rows
        eps, total, lines = self.epsilon(), f"sum[j]({x})", []
        if self.chance(40):
            lines, total = [f"let total[{rows}] = {total};"], f"total[{rows}]"
        floors = (f"max({total}, {eps})", f"max({eps}, {total})", f"clamp({total}, {eps}, {LARGE})")
        sums = (f"({eps} + {total})", f"({total} + {eps})")
        below = self.weighted((4, sums[0]), (4, sums[1]), *((1, one) for one in floors))
        if self.chance(25):
            lines, below = [*lines, f"let below[{rows}] = {below};"], f"below[{rows}]"
        V = self.input("V", (*(self.lead if self.chance(70) else ()), "j", "e"))
        out = f"let out[{rows}, e] ="
        way = self.choose(4)
        if way == 0:
            lines += [f"{out} sum[j]({x} * {V}) / {below};"]
        elif way == 1:
            lines += [f"{out} sum[j]({x} / {below} * {V});"]
        elif way == 2:
            weights = f"w[{self.pairs}]"
            lines += [f"let {weights} = {x} / {below};", f"{out} sum[j]({weights} * {V});"]
        else:
            lines += [f"let r[{rows}] = 1 / {below};", f"{out} sum[j]({x} * {V}) * r[{rows}];"]
        beside = self.weighted((5, ""), (2, "log"), (1, "shifted"), (1, "bare"), (1, "two"))
        outputs = ["out"]
        if beside == "two":
            lines += [f"let two[{rows}, e] = sum[j]({x} * {V}) / (0.5 + {total});"]
        elif beside:
            # Where the largest score is -inf, `exp(-top)` is inf, and their sum has no value.
            level = f" + {self.top}" if beside == "shifted" and self.shifted and "exp(-" not in "".join(lines) else ""
            inner = total if beside == "bare" else below
            lines += [f"let l[{rows}] = log({inner}){level};"]
        outputs += {"two": ["two"], "": []}.get(beside, ["l"])
        return [*lines, f"output {', '.join(outputs)};"]


@st.composite
def normalised_cases(draw: st.DrawFn) -> Guarded:
    return Normalised(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0).case()


def normalised_case(seed: int) -> Guarded:
    return Normalised(Random(seed).randrange).case()
