"""The figures of a worked example, held against what another way of computing them predicts.

A cause is named only where that it fits is no accident. A figure that is off by `n` units of its last digit is one of
about `2n` that are as near to the value, so that a wrong explanation fits it once in `2n` times, and several figures as
often as the product says; figures that are the same count once. All that was tried might have fitted as well: the
chance is that of the figures, times the number of different predictions that are as near to the values. A prediction
that is rarer among authors counts less, and has to explain more: that is its `prior`, in bits. Below one in twenty
(`MOST_CHANCE`) a cause is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal

from ...ir.needs import needed as needs
from ...records import dataclass, field
from ...run.pointwise import work_of
from .example import Changes, Example, Figure, Prediction, Trial
from .printing import in_units, rounded_down

# A figure this many units off, or less, is off by what authors do with digits, and by nothing else.
NEAR = 2.5
# About how many points are visited in search of causes; to look at a definition once more is like visiting some.
MOST_STEPS, FOR_EACH = 5_000_000, 300
# In bits: what a claim that holds, and would not, says against a cause; and what all of these say at most.
AGAINST, MOST_AGAINST = 3, 9
# Figures as they would be printed, by their numbers; None where there would be none.
Predicted = Mapping[int, Decimal | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible cause: the figures that fail and would hold, and those that hold and would fail. Candidates with one
    `key` are told as one."""

    key: str
    kind: str
    text: str
    prior: float
    explained: frozenset[int]
    predicted: Predicted = field(default_factory=dict)
    broken: frozenset[int] = frozenset()
    # What single figures say for it beyond their distance, in bits: those that hold might have failed.
    kept: Mapping[int, float] = field(default_factory=dict)
    # More than this share of the figures of a claim that fail must be explained: a wrong formula spares none.
    share: float = 0.0
    # What an author does with figures, claim by claim: another claim that shows no sign of it says nothing.
    slips: bool = False
    # It says how far off a figure may be, and not which: the digits that are right are what speaks for it.
    vague: bool = False
    # What was chosen to make it fit, in bits: a number among many.
    choices: float = 0.0
    # How many numbers it changes: the figures behind them say no more than as many of them.
    degrees: int | None = None
    # What speaks for it, in bits, where that is not how far off the figures are.
    evidence: float | None = None
    # What a claim that holds, and would not, says against it, in bits.
    elsewhere: float = AGAINST
    # What is changed in the program, and whether steps go on from printed figures.
    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of computing an example in another way, beside one without that change."""

    predicted: Predicted
    explained: frozenset[int]
    broken: frozenset[int]
    kept: Mapping[int, float]


class Comparison:
    """An example with its values, and what each figure says for or against a candidate."""

    def __init__(self, example: Example, base: Trial) -> None:
        self.example, self.base = example, base
        self.figures = example.figures
        self.values = self.predictions(base)
        self.failing: dict[int, frozenset[int]] = {}
        self.holding: dict[int, frozenset[int]] = {}
        for number in range(len(example.claims)):
            mine = [at for at, figure in enumerate(self.figures) if figure.claim == number and self._is_plain(at)]
            self.failing[number] = frozenset(at for at in mine if self.figures[at].fails)
            self.holding[number] = frozenset(mine) - self.failing[number]
        self.wrong = frozenset().union(*self.failing.values())
        self.plain = sorted(self.wrong.union(*self.holding.values()))
        self.grain = {number: self._grain(number) for number in self.failing}
        self.tried: list[Candidate] = []
        self.steps = MOST_STEPS
        # Whether all that is usual was tried.
        self.complete = True
        bound = example.evaluated.given.bound
        needed = needs(bound.program, example.wanted)
        self.work = {let.name: FOR_EACH + work_of(bound, let) for let in bound.program.lets if let.name in needed}

    def predictions(self, trial: Trial) -> list[Prediction | None]:
        return [trial.prediction(figure) for figure in self.figures]

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
                near = in_units(value.value, figure.unit)
                ends = [int(one.normalize().as_tuple().exponent) for one in (figure.wanted, near) if one]
                places = max(places, *(-end for end in ends), 0)
        return Decimal(1).scaleb(-places)

    def trial(self, changes: Changes, base: Trial | None = None) -> Trial | None:
        """The example with changes; None where it cannot be computed, or too much was computed already. What differs
        from `base`, which is the example as it is, is computed again."""
        reached = self.example.reached(base or self.base, changes)
        work = 1 + sum(self.work.get(name, 0) for name in reached)
        if self.steps < work:
            self.complete = False
            return None
        self.steps -= work
        return self.example.trial(base or self.base, changes)

    # ------------------------------------------------------------------- outcome

    def outcome(self, trial: Trial, without: list[Prediction | None] | None = None, cut: bool = False) -> Outcome:
        """The figures as a trial predicts them, beside those `without` the change that is tried. A figure is explained
        only if the change makes it hold, and broken only if the change makes it fail. With `cut`, results are cut off
        where they are printed."""
        predicted: dict[int, Decimal | None] = {}
        explained, broken, kept = set(), set(), {}
        for at in self.plain:
            figure, found = self.figures[at], trial.prediction(self.figures[at])
            before = (without or self.values)[at]
            held = before is not None and (before.fits(figure) or (cut and figure.fails and _is_cut(figure, before)))
            fits = found is not None and (_is_cut(figure, found) if cut else found.fits(figure))
            if figure.fails and found is not None and (found.removed or found.value.is_finite()):
                predicted[at] = _as_printed(figure, found, cut)
            if figure.fails and fits and not held:
                explained.add(at)
                kept[at] = -1.0 if _is_beside_half(figure, found) else 0.0
            elif not figure.fails and held and not fits:
                broken.add(at)
            elif not figure.fails and fits and found is not None and figure.wanted is not None:
                kept[at] = self._kept(at, found, cut)
        return Outcome(predicted, frozenset(explained), frozenset(broken), kept)

    def _kept(self, at: int, found: Prediction, cut: bool = False) -> float:
        """How surprising it is, in bits, that a figure still holds where its value moves as far as this."""
        value = self.values[at]
        if value is None or not value.value.is_finite():
            return 0.0
        moved = float(abs(found.value - value.value) / self.figures[at].unit)
        if cut and found.value != self.figures[at].wanted:
            return 1.0
        return -math.log2(1 - min(0.9, moved))

    # -------------------------------------------------------------------- chance

    def units(self, at: int, own: bool = False) -> float:
        """How far off a figure is, in units of its last digit, or of the last that is not 0 in its claim."""
        figure, value = self.figures[at], self.values[at]
        if figure.wanted is None or value is None:
            return 1.0
        off = abs(figure.wanted - value.value) if value.value.is_finite() else abs(figure.wanted)
        unit = figure.unit if own else max(figure.unit, self.grain[figure.claim])
        return float(min(off / unit, Decimal(10) ** 12))

    def evidence(self, indices: Iterable[int], vague: bool = False, degrees: int | None = None) -> float:
        """In bits: how unlikely it is that one prediction fits all these figures by accident. Of figures that hang on
        fewer numbers, the surest count."""
        seen = {self._key(at): self._right_digits(at) if vague else self.distance(at) for at in indices}
        return sum(sorted(seen.values(), reverse=True)[:degrees])

    def _key(self, at: int) -> tuple[Decimal | None, Decimal]:
        """The same for figures that are the same: they are looked at once."""
        figure, value = self.figures[at], self.values[at]
        if figure.wanted is None or value is None or not value.value.is_finite():
            return figure.wanted, Decimal(0)
        return figure.wanted, round(value.value, 12)

    def distance(self, at: int) -> float:
        """How unlikely it is, in bits, that one prediction fits a figure by accident."""
        return 1.0 if self.figures[at].wanted is None else math.log2(max(2.0, 2 * self.units(at)))

    def _right_digits(self, at: int) -> float:
        """How unusual it is, in bits, that only the last digits of a figure are wrong: the first wrong one may be
        any."""
        figure = self.figures[at]
        if not figure.wanted or not figure.digits:
            return 0.0
        digits = figure.wanted.adjusted() + 1 + figure.digits
        wrong = 1 + max(0.0, math.log10(max(1.0, self.units(at))))
        return math.log2(max(1.0, digits / wrong))

    def bits(self, candidate: Candidate, indices: frozenset[int]) -> float:
        """How sure it is, in bits, that a candidate is the cause of these figures: less the logarithm of the chance
        that it, or something else that was tried, fits figures as far off by accident."""
        kept = sum({self._key(at): candidate.kept[at] for at in self._with_kept(candidate, indices)}.values())
        evidence = candidate.evidence
        if evidence is None:
            evidence = self.evidence(indices, candidate.vague, candidate.degrees)
        prior = candidate.prior if candidate.slips else min(0.0, candidate.prior)
        most = evidence + kept - prior - candidate.choices - self.against(candidate, indices)
        alone = candidate.vague or candidate.evidence is not None
        rivals = 1.0 if alone or most <= 0 else self._rivals(candidate, sorted(indices))
        return most - math.log2(rivals)

    def against(self, candidate: Candidate, indices: Iterable[int]) -> float:
        """What other claims say against a candidate, in bits: those that hold, and would not."""
        numbers = {self.figures[at].claim for at in indices}
        spoilt = {self.figures[at].claim for at in candidate.broken} - numbers
        weight = candidate.elsewhere * len(spoilt)
        return 0.0 if candidate.slips else min(MOST_AGAINST, weight)

    def _with_kept(self, candidate: Candidate, indices: frozenset[int]) -> set[int]:
        """Figures with the other figures of their claims."""
        numbers = {self.figures[at].claim for at in indices}
        return {at for at in candidate.kept if self.figures[at].claim in numbers and at not in self.wrong - indices}

    def _rivals(self, candidate: Candidate, indices: list[int]) -> float:
        """The number of different predictions for some figures, of steps or of what is done with figures, that were
        tried, are no further from the values and spoil no figure of these claims, each weighed by how usual it is
        beside the candidate."""
        found: dict[tuple[Decimal | None, ...], float] = {}
        others = frozenset().union(*(self.holding[self.figures[at].claim] for at in indices))
        own = max(0.0, candidate.prior)
        for other in self.tried:
            alike = other.slips is candidate.slips
            if alike and not other.broken & others and all(self._is_as_near(other, at) for at in indices):
                row = tuple(other.predicted[at] for at in indices)
                weight = 2 ** (own - max(0.0, other.prior) - self.against(other, indices))
                found[row] = max(found.get(row, 0.0), weight)
        right = tuple(self._right(at) for at in indices)
        return max(1.0, sum(weight for row, weight in found.items() if row != right))

    def _is_as_near(self, other: Candidate, at: int) -> bool:
        """Whether a prediction is no further from the value than the figure that was printed."""
        figure, value = self.figures[at], self.values[at]
        if at not in other.predicted or value is None:
            return False
        found = other.predicted[at]
        if found is None or figure.wanted is None or not value.value.is_finite():
            return True
        return abs(found - value.value) <= abs(figure.wanted - value.value)

    def _right(self, at: int) -> Decimal | None:
        value = self.values[at]
        return None if value is None or value.removed else _as_printed(self.figures[at], value, False)


def _as_printed(figure: Figure, found: Prediction, cut: bool) -> Decimal | None:
    """A value in the digits of a figure."""
    if found.removed or not found.value.is_finite():
        return None
    if figure.digits is None:
        return round(found.value, 12)
    return rounded_down(found.value, figure.digits)[0] if cut else in_units(found.value, figure.unit)


def _is_beside_half(figure: Figure, found: Prediction | None) -> bool:
    """Whether a value could as well have been rounded to the next figure."""
    if found is None or figure.wanted is None or not figure.half:
        return False
    return abs(abs(found.value - figure.wanted) - figure.half) < Decimal("1e-30")


def _is_cut(figure: Figure, found: Prediction) -> bool:
    if figure.wanted is None or not found.value.is_finite() or figure.digits is None:
        return found.fits(figure)
    return figure.wanted in rounded_down(found.value, figure.digits)
