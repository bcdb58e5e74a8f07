"""Programs whose reads are in range only under a guard: relative, shifted, clipped, strided and gathered.

`guarded_cases()` is a Hypothesis strategy; `guarded_case(seed)` draws from the same programs without it, and
`replayed(choices)` makes the program of a list of choices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import strategies as st
from tests.laws.draws import Choose
from tests.laws.guarded_attention import Attentions
from tests.laws.guarded_grids import Array
from tests.laws.guarded_sums import Sums
from tests.laws.guarded_tables import FEW, TILES

BEYOND_ASCII = {"i": "ι", "j": "κλειδί", "d": "δ", "e": "é", "h": "голова", "b": "束", "t": "时", "k": "ñ"}
BEYOND_ASCII |= {"Q": "Ω", "K": "Κ", "V": "Ценность", "R1": "ρ", "x": "χ", "out": "выход", "w": "ω", "s": "σ"}


@dataclass(frozen=True)
class Guarded:
    """A program and the arrays of one call; reals are f64. It shows itself as its text."""

    text: str
    arrays: Mapping[str, Array]
    of: str
    family: str

    def __repr__(self) -> str:
        shown = [f"{name} = {array.dtype} {array.tolist()}" for name, array in self.arrays.items() if array.size < 60]
        return "\n".join(["", self.text, *shown])

    @property
    def reals(self) -> tuple[str, ...]:
        return tuple(name for name, array in self.arrays.items() if array.dtype.kind == "f")

    @property
    def shapes(self) -> str:
        return ", ".join(f"{name}{list(array.shape)}" for name, array in self.arrays.items())


class Families(Attentions, Sums):
    """Every family, with how often it is drawn."""

    def guarded(self, few: Sequence[int] = FEW) -> Guarded:
        self.few = few
        self.noise = np.random.default_rng(self.choose(1 << 16))
        families: list[tuple[int, Callable[[], str]]] = [
            (12, self.attention),
            (4, self.plain_sum),
            (3, self.convolution),
            (2, self.prefix),
            (4, self.recurrence),
            (4, self.inherited),
            (3, self.ranges),
            (2, self.extremes),
        ]
        if few is TILES:
            families = [(1, self.attention)]
        make = self.weighted(*families)
        self.loose = self.chance(4)
        text = make()
        self.finish()
        renaming = self.renaming()
        arrays = {renaming.get(name, name): self.arrays[name] for name in self.declared}
        return Guarded(substituted(self.whole(text), renaming), arrays, renaming.get("out", "out"), make.__name__)

    def renaming(self) -> dict[str, str]:
        return BEYOND_ASCII if self.chance(12) else {}


def substituted(text: str, renaming: Mapping[str, str]) -> str:
    return re.sub(r"\b[^\W\d]\w*\b", lambda found: renaming.get(found[0], found[0]), text)


@st.composite
def guarded_cases(draw: st.DrawFn, few: Sequence[int] = FEW) -> Guarded:
    return Families(lambda n: draw(st.integers(0, n - 1)) if n > 1 else 0).guarded(few)


def guarded_case(seed: int, few: Sequence[int] = FEW) -> Guarded:
    return Families(Random(seed).randrange).guarded(few)


def recorded(seed: int, few: Sequence[int] = FEW) -> list[int]:
    """The choices that make the program of a seed."""
    made: list[int] = []
    random = Random(seed)

    def choose(n: int) -> int:
        made.append(random.randrange(n))
        return made[-1]

    Families(choose).guarded(few)
    return made


def replayed(choices: Sequence[int], few: Sequence[int] = FEW) -> Guarded:
    """The program of some choices; where they are used up, the simplest is made."""
    left = iter(choices)
    choose: Choose = lambda n: min(next(left, 0), n - 1)  # noqa: E731
    return Families(choose).guarded(few)
