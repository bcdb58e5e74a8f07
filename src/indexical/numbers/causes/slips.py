"""Candidates for right values that became wrong figures: printed badly, at other places, computed in floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import combinations

from ...run.floats import Floats
from ..claims import Claim
from .comparison import Candidate, Comparison
from .decimals import Singles
from .example import Figure
from .printing import SLIPS, arrangements


class Slips(Comparison):
    """Mistakes that are made after the right value is known."""

    def of_printing(self) -> Iterator[Candidate]:
        """A mistake that was made after the right value was known."""
        for slip in SLIPS:
            fitting = frozenset(at for at, value in enumerate(self.values) if value and self._fits(slip.fits, at))
            explained = frozenset(at for at in fitting if self.figures[at].fails)
            others = frozenset(at for at, figure in enumerate(self.figures) if not figure.fails) - fitting
            if explained:
                broken = others if slip.habit else frozenset[int]()
                yield Candidate(slip.kind, slip.kind, slip.words, slip.cost, slip.least, explained, broken, slips=True)
        yield from self._of_floats()
        for number, claim in enumerate(self.example.claims):
            if self.failing[number] and len(claim.cells) > 1:
                yield from self._of_arrangements(number, claim)

    def _fits(self, fits: Callable[[Figure, Decimal], bool], at: int) -> bool:
        figure, value = self.figures[at], self.values[at]
        assert value is not None
        return figure.wanted is not None and value.value.is_finite() and fits(figure, value.value)

    def _of_floats(self) -> Iterator[Candidate]:
        """The noise of a run in floats: a few times as far from the value as such a run is."""
        for numbers, name, last in ((Floats(), "float64", -53), (Singles(), "float32", -24)):
            trial = self.example.trial(numbers=numbers)
            if trial is None:
                continue
            explained = set()
            for at in frozenset().union(*self.failing.values()):
                figure, found, value = self.figures[at], trial.prediction(self.figures[at]), self.values[at]
                if found is None or value is None or figure.wanted is None or not found.value.is_finite():
                    continue
                noise = max(4 * abs(found.value - value.value), abs(value.value) * 16 * Decimal(2) ** last)
                if abs(figure.wanted - value.value) <= figure.half + noise:
                    explained.add(at)
            if explained:
                text = f"it was computed in {name}: it is no further off than its rounding"
                yield Candidate(name, name, text, 1, 0, frozenset(explained))

    def _of_arrangements(self, number: int, claim: Claim) -> Iterator[Candidate]:
        """Right values at wrong places."""
        mine = {self.figures[at].place: at for at in self.failing[number] | self.holding[number]}
        shape = tuple(max(axis) + 1 for axis in zip(*mine, strict=True))
        for way in arrangements(claim.coordinates, shape):
            explained, broken, silent = set(), set(), set()
            for place, at in mine.items():
                source = way.source(place)
                if source not in mine:
                    silent.add(at)
                    continue
                value = self.values[mine[source]]
                fits = value is not None and value.fits(self.figures[at])
                if fits and self.figures[at].fails:
                    explained.add(at)
                elif not fits:
                    broken.add(at)
            if explained and not broken:
                explained |= silent & self.failing[number]
                text = f"holds if {way.words}"
                yield Candidate(f"{number} {text}", way.kind, text, way.cost, 4, frozenset(explained))
        yield from self._of_exchanges(number, claim, mine)

    def _of_exchanges(self, number: int, claim: Claim, mine: dict[tuple[int, ...], int]) -> Iterator[Candidate]:
        """Two figures that changed places, or one that stands where another should."""
        choices = math.log2(max(2, len(mine)))
        failing = sorted(self.failing[number])
        for one, other in combinations(failing[:20], 2):
            if self._stands_at(one, other) and self._stands_at(other, one):
                text = f"holds if the figures at {self._where(claim, one)} and {self._where(claim, other)} are swapped"
                yield Candidate(f"{number} {text}", "swapped", text, 2 + choices, 1, frozenset((one, other)))
        for at in failing[:20]:
            for source in mine.values():
                if source != at and self._stands_at(source, at) and self.figures[at].wanted:
                    text = f"it is the figure of {self._where(claim, source)}"
                    yield Candidate(f"{number} {text} {at}", "copied", text, 1 + choices, 4, frozenset((at,)))

    def _stands_at(self, one: int, other: int) -> bool:
        """Whether one value stands in the place of another."""
        value = self.values[one]
        return value is not None and value.fits(self.figures[other])

    def _where(self, claim: Claim, at: int) -> str:
        place = ", ".join(map(str, self.figures[at].place))
        return f"`{claim.left}[{place}]`" if claim.left.isidentifier() else f"`[{place}]`"
