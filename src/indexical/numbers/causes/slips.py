"""Candidates for right values that became wrong figures: printed badly, at other places, computed in floats."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import combinations

import numpy as np

from ...run.floats import Floats
from ..claims import Claim
from .comparison import Candidate, Comparison
from .decimals import Singles
from .printing import SLIPS, Slip, arrangements

# Of figures that fail in one claim, so many are looked for in other cells.
MOST_MOVED = 20
# In bits: how usual a run in floats is behind a figure of so many digits that nobody computes by hand.
FLOATS = -1.5
Place = tuple[int, ...]


class Slips(Comparison):
    """Mistakes that are made after the right value is known."""

    def of_printing(self) -> Iterator[Candidate]:
        """A mistake that was made after the right value was known."""
        for slip in SLIPS:
            yield from self._of_slip(slip)
        yield from self._of_floats()
        for number, claim in enumerate(self.example.claims):
            if self.failing[number] and len(claim.cells) > 1:
                yield from self._of_arrangements(number, claim)

    def _of_slip(self, slip: Slip) -> Iterator[Candidate]:
        """A way to print, with the figures that it explains; beside it, what it could have printed as well."""
        ways: list[dict[int, Decimal | None]] = []
        fitting = set()
        for at in self.plain:
            figure, value = self.figures[at], self.values[at]
            assert value is not None
            if figure.wanted is None or not value.value.is_finite():
                continue
            for number, found in enumerate(slip.figures(figure, value.value)):
                if number == len(ways):
                    ways.append({})
                fits = abs(found - figure.wanted) <= figure.half
                fitting |= {at} if fits else set()
                if figure.fails:
                    ways[number][at] = figure.wanted if fits else found
        others = frozenset(self.plain) - self.wrong
        broken = others - fitting if slip.habit else frozenset[int]()
        kept = {at: 1.0 for at in others & fitting if not self._is_itself(at)} if slip.habit else {}
        for way in ways:
            explained = frozenset(at for at, found in way.items() if found == self.figures[at].wanted)
            yield Candidate(
                slip.kind, slip.kind, slip.words, slip.prior, explained, way, frozenset(broken), kept, slips=True
            )

    def _is_itself(self, at: int) -> bool:
        """Whether a figure is the value itself, and nothing was rounded."""
        value = self.values[at]
        return value is not None and value.value == self.figures[at].wanted

    def _of_floats(self) -> Iterator[Candidate]:
        """The noise of a run in floats: figures that are floats, and a few times as far from the value as such a run
        is. Figures that are no floats of this size speak against it."""
        for numbers, kind, last in ((Floats(), np.float64, -53), (Singles(), np.float32, -24)):
            trial = self.example.trial(numbers=numbers)
            if trial is None:
                continue
            explained, broken = set(), set()
            for at in self.plain:
                figure, found, value = self.figures[at], trial.prediction(self.figures[at]), self.values[at]
                if found is None or value is None or figure.wanted is None or not found.value.is_finite():
                    continue
                noise = max(4 * abs(found.value - value.value), abs(value.value) * 16 * Decimal(2) ** last)
                if noise < figure.unit / 4:
                    continue
                is_float = abs(Decimal(float(kind(figure.wanted))) - figure.wanted) <= figure.half
                if figure.fails and is_float and abs(figure.wanted - value.value) <= figure.half + noise:
                    explained.add(at)
                elif not figure.fails and not is_float:
                    broken.add(at)
            if explained:
                name = kind.__name__
                text = f"it was computed in {name}: it is no further off than its rounding"
                yield Candidate(
                    name, name, text, FLOATS, frozenset(explained), broken=frozenset(broken), vague=True
                )

    def _of_arrangements(self, number: int, claim: Claim) -> Iterator[Candidate]:
        """Right values at wrong places."""
        own = {self.figures[at].place: at for at in self.failing[number] | self.holding[number]}
        first = tuple(min(axis) for axis in zip(*own, strict=True))
        mine = {tuple(at - low for at, low in zip(place, first, strict=True)): at for place, at in own.items()}
        shape = tuple(max(axis) + 1 for axis in zip(*mine, strict=True))
        for way in arrangements(claim.coordinates, shape, first):
            explained, broken = set(), set()
            predicted: dict[int, Decimal | None] = {}
            for place, at in mine.items():
                source = way.source(place)
                if source not in mine:
                    continue
                value = self.values[mine[source]]
                fits = value is not None and value.fits(self.figures[at])
                if self.figures[at].fails and value is not None:
                    predicted[at] = self.figures[at].wanted if fits else value.value
                if fits and self.figures[at].fails:
                    explained.add(at)
                elif not fits:
                    broken.add(at)
            text = f"holds if {way.words}"
            # What no place of the table has a value for says nothing against it.
            silent = self.failing[number] - predicted.keys()
            all_of_it = explained | silent if explained and not broken else frozenset[int]()
            key = f"{number} {text}"
            yield Candidate(key, way.kind, text, way.prior, frozenset(all_of_it), predicted, slips=True)
        yield from self._of_exchanges(number, claim, mine)

    def _of_exchanges(self, number: int, claim: Claim, mine: dict[Place, int]) -> Iterator[Candidate]:
        """Two figures that changed places, or one that stands where another should."""
        failing = sorted(self.failing[number])[:MOST_MOVED]
        for one, other in combinations(failing, 2):
            text = f"holds if the figures at {self._where(claim, one)} and {self._where(claim, other)} are swapped"
            yield self._moved(f"{number} {text}", "swapped", text, 1, {one: other, other: one})
        for at in failing:
            for source in mine.values():
                if source != at and self.figures[at].wanted:
                    text = f"it is the figure of {self._where(claim, source)}"
                    yield self._moved(f"{number} {text} {at}", "copied", text, 0, {at: source})

    def _moved(self, key: str, kind: str, text: str, prior: float, sources: dict[int, int]) -> Candidate:
        """A candidate by which values stand in the places of others."""
        predicted: dict[int, Decimal | None] = {}
        for at, source in sources.items():
            figure, value = self.figures[at], self.values[source]
            if value is not None and (value.removed or value.value.is_finite()):
                predicted[at] = figure.wanted if value.fits(figure) else value.value
        fits = predicted.keys() == sources.keys() and all(self.figures[at].wanted == v for at, v in predicted.items())
        return Candidate(key, kind, text, prior, frozenset(sources if fits else ()), predicted, slips=True)

    def _where(self, claim: Claim, at: int) -> str:
        place = ", ".join(map(str, self.figures[at].place))
        return f"`{claim.left}[{place}]`" if claim.left.isidentifier() else f"`[{place}]`"
