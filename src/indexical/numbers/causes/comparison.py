"""The figures of a worked example, held against what another way of computing them predicts.

A cause is named only where that it fits is no accident. A figure that is off by `n` units of its last digit is one of
about `2n` that are as near to the value, so that a wrong explanation fits it once in `2n` times: that is its evidence,
in bits, and figures that are the same count once. From this the cost of the cause is taken: the rarer it is, and the
more there are of its kind, the more it has to explain. What is left must reach the `least` of its kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from decimal import Decimal

from ...ir import nodes as ir
from ...ir.needs import needed as needs
from ...records import dataclass
from ...run.pointwise import work_of
from .example import Example, Figure, Prediction, Trial
from .printing import is_cut

# A figure this many units off, or less, is off by what authors do with digits, and by nothing else.
NEAR = 2.5
# About how many points are visited in search of causes.
MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible cause: the figures that fail and would hold, and those that hold and would fail. Candidates with one
    `key` are told as one."""

    key: str
    kind: str
    text: str
    cost: float
    least: float
    explained: frozenset[int]
    broken: frozenset[int] = frozenset()
    # What figures that hold, and still would, say for it, in bits: their values move, and they might have failed.
    kept: Mapping[int, float] = field(default_factory=dict)
    # More than this share of the figures of a claim that fail must be explained: a wrong formula spares none.
    share: float = 0.0
    # What an author does with digits, claim by claim: another claim that shows no sign of it says little.
    slips: bool = False


class Comparison:
    """An example with its values, and what each figure says for or against a candidate."""

    def __init__(self, example: Example, base: Trial) -> None:
        self.example, self.base = example, base
        self.figures = example.figures
        self.values = [base.prediction(figure) for figure in self.figures]
        self.failing: dict[int, frozenset[int]] = {}
        self.holding: dict[int, frozenset[int]] = {}
        for number in range(len(example.claims)):
            mine = [at for at, figure in enumerate(self.figures) if figure.claim == number and self._is_plain(at)]
            self.failing[number] = frozenset(at for at in mine if self.figures[at].fails)
            self.holding[number] = frozenset(mine) - self.failing[number]
        self.grain = {number: self._grain(number) for number in self.failing}
        self.steps = MOST_STEPS
        # Whether all that is usual was tried.
        self.complete = True
        bound = example.evaluated.given.bound
        needed = needs(bound.program, example.wanted)
        self.work = 1 + sum(work_of(bound, let) for let in bound.program.lets if let.name in needed)
        self.printed = self._printed()

    def _is_plain(self, at: int) -> bool:
        """Whether decimals agree with the verdict on a figure."""
        value = self.values[at]
        return value is not None and value.fits(self.figures[at]) is not self.figures[at].fails

    def _grain(self, number: int) -> Decimal:
        """The unit of the last digit that is not 0 in all figures and values of a claim: `2.8000` where 2.4 is right
        says no more than `2.8`."""
        places = 0
        for figure, value in zip(self.figures, self.values, strict=True):
            if figure.claim == number and figure.wanted is not None and value is not None and value.value.is_finite():
                near = value.value.quantize(figure.unit)
                ends = [int(one.normalize().as_tuple().exponent) for one in (figure.wanted, near) if one]
                places = max(places, *(-end for end in ends), 0)
        return Decimal(1).scaleb(-places)

    def _printed(self) -> dict[str, dict[int, Decimal]]:
        """The printed figures that are not just what was computed."""
        found = {}
        for name, cells in self.example.printed().items():
            table = self.base.tensors[name]
            other = {offset: figure for offset, figure in cells.items() if table.cells[offset] != figure}
            if other:
                found[name] = other
        return found

    def evidence(self, indices: Iterable[int]) -> float:
        """In bits: how unlikely it is that all these figures fit by accident."""
        seen: dict[tuple[Decimal | None, Decimal], float] = {}
        for at in indices:
            figure, value = self.figures[at], self.values[at]
            assert value is not None
            if figure.wanted is None:
                seen[None, Decimal(0)] = 1.0
                continue
            seen[figure.wanted, round(value.value, 12) if value.value.is_finite() else Decimal(0)] = self.units(at)
        return sum(math.log2(max(2.0, 2 * units)) for units in seen.values())

    def units(self, at: int) -> float:
        """How far off a figure is, in units of its last digit."""
        figure, value = self.figures[at], self.values[at]
        if figure.wanted is None or value is None:
            return 1.0
        off = abs(figure.wanted - value.value) if value.value.is_finite() else abs(figure.wanted)
        return float(min(off / max(figure.unit, self.grain[figure.claim]), Decimal(10) ** 12))

    def held(self, trial: Trial, number: int, cut: bool = False) -> tuple[set[int], set[int], dict[int, float]]:
        """The figures of a claim that would hold and fail, those that would fail and hold, and the evidence of the
        rest in bits."""
        explained, broken, kept = set(), set(), {}
        for at in self.failing[number] | self.holding[number]:
            figure = self.figures[at]
            found = trial.prediction(figure)
            fits = found is not None and (_is_cut(figure, found) if cut else found.fits(figure))
            if fits and figure.fails:
                explained.add(at)
                if found is not None and _is_beside_half(figure, found):
                    kept[at] = -1.0
            elif not fits and not figure.fails:
                broken.add(at)
            elif fits and found is not None and figure.wanted is not None:
                kept[at] = self._kept(at, found)
        return explained, broken, kept

    def _kept(self, at: int, found: Prediction) -> float:
        """How surprising it is, in bits, that a figure still holds where its value moves as far as this."""
        value = self.values[at]
        if value is None or not value.value.is_finite():
            return 0.0
        moved = float(abs(found.value - value.value) / self.figures[at].unit)
        return -math.log2(1 - min(0.9, moved))

    def trial(
        self, changed: Mapping[str, ir.Let] | None = None, printed: Mapping[str, Mapping[int, Decimal]] | None = None
    ) -> Trial | None:
        if self.steps < self.work:
            self.complete = False
            return None
        self.steps -= self.work
        return self.example.trial(self.base, changed, printed)


def _is_beside_half(figure: Figure, found: Prediction) -> bool:
    """Whether a value could as well have been rounded to the next figure."""
    if figure.wanted is None or not figure.half:
        return False
    return abs(abs(found.value - figure.wanted) - figure.half) < Decimal("1e-30")


def _is_cut(figure: Figure, found: Prediction) -> bool:
    if figure.wanted is None or not found.value.is_finite():
        return found.fits(figure)
    return is_cut(figure, found.value)
