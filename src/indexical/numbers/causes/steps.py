"""Candidates for steps that go on from printed figures, which is what most authors do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from itertools import chain, combinations

from ...ir import build
from ...ir import nodes as ir
from ...ir.needs import made_of, read_in
from ...ir.walk import changed_let, parts_in, rebuild
from ...records import replace
from .comparison import Candidate, Comparison
from .example import Changes, Example, Prediction, Trial

# Of more definitions that are read as printed, or more figures, not every choice is tried.
MOST_CHOICES = 40
# In bits: going on from printed figures is behind six in seven figures that are near and wrong; cutting off as well is
# less usual.
PRINTED, AND_CUT = -math.log2(6), 4.0


class Steps(Comparison):
    """The results of reading figures as they are printed."""

    def __init__(self, example: Example, base: Trial) -> None:
        super().__init__(example, base)
        self.printed = self._printed()
        # All that is printed is read as printed, by those who do so.
        self.habit = Changes(self._as_claimed(), {}, self.printed)
        found = self.trial(self.habit) if self.printed or self.habit.lets else None
        if found is None:
            # A wrong whole number may be an index that does not exist.
            real = {name: cells for name, cells in self.printed.items() if example.program.tensors[name].kind == "real"}
            self.printed, self.habit = real, replace(self.habit, printed=real)
            found = self.trial(self.habit) if real or self.habit.lets else None
        self.after_printing: list[Prediction | None] | None = None if found is None else self.predictions(found)
        self.habit_trial = found
        # The figures that fail and follow from others as these are printed: what explains these explains them too.
        self.following = frozenset[int]() if found is None else self.outcome(found).explained

    def _printed(self) -> dict[str, dict[int, Decimal | int]]:
        """The printed figures that are not just what was computed."""
        found = {}
        for name, cells in self.example.printed().items():
            table = self.base.tensors[name]
            other = {offset: figure for offset, figure in cells.items() if table.cells[offset] != figure}
            if other:
                found[name] = other
        return found

    def _as_claimed(self) -> dict[str, ir.Let]:
        """The definitions that have a part for which a figure is claimed, with the figure in its place."""
        figures: dict[ir.Expr, ir.Const] = {}
        for figure in self.figures:
            body = figure.expect.body
            plain = not isinstance(body, ir.Read | ir.Const) and body.type.kind == "real" and not figure.expect.ranges
            if plain and figure.wanted is not None:
                figures.setdefault(body, build.real(Fraction(figure.wanted), body.span))

        def claimed(part: ir.Expr) -> ir.Expr:
            return figures[part] if part in figures else rebuild(part, claimed)

        lets = {let.name: changed_let(let, claimed) for let in self.example.program.lets if figures}
        return {name: let for name, let in lets.items() if let != self.example.program.definitions[name]}

    def of_printed_steps(self) -> Iterator[Candidate]:
        """Steps that go on from printed figures: all of them, or for a claim that this does not explain, the fewest."""
        if self.habit_trial is None:
            return
        for cut in (False, True):
            yield self._candidate(self.habit_trial, self.habit, "printed", AND_CUT if cut else 0.0, cut)
        for number, failing in self.failing.items():
            if failing and not failing <= self.following:
                yield from self._chosen_steps(number)

    def _candidate(self, trial: Trial, changes: Changes, key: str, choices: float, cut: bool) -> Candidate:
        found = self.outcome(trial, cut=cut)
        # A figure that comes out without rounding is printed in all its digits; one that is cut off is near anyway.
        itself = {at: 1.0 for at in found.explained if not cut and self._comes_out(trial, at)}
        itself |= {at: 1.0 - self.distance(at) for at in found.explained if cut}
        kind = "printed and cut" if cut else "printed"
        return Candidate(
            f"{key} {cut}" if cut else key,
            "printed",
            kind,
            PRINTED,
            found.explained,
            found.predicted,
            found.broken,
            {**found.kept, **itself},
            choices=choices,
            changes=changes,
        )

    def _comes_out(self, trial: Trial, at: int) -> bool:
        found = trial.prediction(self.figures[at])
        return found is not None and found.value == self.figures[at].wanted

    def _chosen_steps(self, number: int) -> Iterator[Candidate]:
        """A claim that is explained by some of the printed figures, and not by all."""
        names = self._before(number)
        sets = chain(*(combinations(names, count) for count in range(1, min(4, len(names)))))
        for tries, chosen in enumerate(sets, 1):
            if tries > MOST_CHOICES:
                return
            changes = Changes({}, {}, {name: self.printed[name] for name in chosen})
            trial = self.trial(changes)
            if trial is None:
                continue
            found = self._candidate(trial, changes, f"printed {number}", math.log2(1 + tries), False)
            yield found
            if self.failing[number] <= found.explained:
                return

    def _before(self, number: int) -> list[str]:
        """The definitions with printed figures that a claim is made of, the nearest first."""
        body = self.example.program.expects[number].body
        lets = self.example.program.definitions
        own = (
            {body.tensor} if isinstance(body, ir.Read) and body.tensor not in self.example.program.recurrent else set()
        )
        return [name for name in made_of(read_in(body), lets) if name in self.printed and name not in own]

    # -------------------------------------------------------------------- words

    def as_printed(self, candidate: Candidate, indices: frozenset[int]) -> str:
        """The words for what is read as printed: the fewest figures by which these hold; none where it takes none."""
        changes, cut = candidate.changes, candidate.text.endswith("cut")
        lets = dict(changes.lets)
        for name in changes.lets if self.printed else ():
            fewer = {other: let for other, let in lets.items() if other != name}
            if self._still(replace(changes, lets=fewer), indices, cut):
                lets = fewer
        changes = replace(changes, lets=lets)
        cells = self._fewest_cells(changes, indices, cut)
        names = dict.fromkeys(name for name, _ in cells)
        read = [self._as_read(name, [offset for n, offset in cells if n == name]) for name in names]
        shown = [self._shown(name, offset) for name, offset in cells]
        for let in lets:
            claimed = self._claimed_in(let)
            read += [f"`{text}`" for text, _, _ in claimed]
            shown += [f"{figure:f}, not {_in_short(value, figure)}" for _, figure, value in claimed]
        if not read:
            return ""
        more = f"; and {len(shown) - 3} more" if len(shown) > 3 else ""
        ends = ", and the result is cut off, not rounded" if cut else ""
        are = "is" if len(read) == 1 else "are"
        return f"{listed(read)} {are} taken as printed ({'; '.join(shown[:3])}{more}){ends}"

    def _claimed_in(self, name: str) -> list[tuple[str, Decimal, Decimal]]:
        """The parts of a definition for which figures are claimed: the text, the figure and the value."""
        found: dict[ir.Expr, tuple[str, Decimal, Decimal]] = {}
        parts = set(parts_in(self.example.program.definitions[name]))
        for at, figure in enumerate(self.figures):
            body, value = figure.expect.body, self.values[at]
            if body in parts and not isinstance(body, ir.Read) and figure.wanted is not None and value is not None:
                found.setdefault(body, (" ".join(body.span.text.split()), figure.wanted, value.value))
        return list(found.values())

    def _still(self, changes: Changes, indices: frozenset[int], cut: bool) -> bool:
        """Whether some figures hold with fewer changes, and the others of their claims still do."""
        trial = self.trial(changes)
        found = None if trial is None else self.outcome(trial, cut=cut)
        others = frozenset().union(*(self.holding[self.figures[at].claim] for at in indices))
        return found is not None and indices <= found.explained and not found.broken & others

    def _fewest_cells(self, changes: Changes, indices: frozenset[int], cut: bool) -> list[tuple[str, int]]:
        """The printed figures that it takes: whole definitions are left out first, then single figures, where the rest
        explain as much."""
        printed = {name: dict(cells) for name, cells in changes.printed.items()}
        for name in list(printed):
            fewer = {other: cells for other, cells in printed.items() if other != name}
            if self._still(replace(changes, printed=fewer), indices, cut):
                printed = fewer
        cells = [(name, offset) for name in printed for offset in printed[name]]
        # What is needed beside one figure need not be without it: the rest is looked at once more.
        for name, offset in [*cells, *cells] if len(cells) <= MOST_CHOICES else ():
            fewer = {other: dict(rest) for other, rest in printed.items()}
            fewer[name].pop(offset, None)
            if fewer != printed and self._still(replace(changes, printed=fewer), indices, cut):
                printed = fewer
        return [(name, offset) for name in printed for offset in printed[name]]

    def _as_read(self, name: str, offsets: list[int]) -> str:
        return f"`{self.example.element(name, offsets[0]) if len(offsets) == 1 else name}`"

    def _shown(self, name: str, offset: int) -> str:
        value, figure = Decimal(self.base.tensors[name].cells[offset]), Decimal(self.printed[name][offset])
        return f"{figure:f}, not {_in_short(value, figure)}"


def _in_short(value: Decimal, figure: Decimal) -> str:
    """A value to two places more than a figure has, with `…` where it goes on."""
    places = max(0, -int(figure.as_tuple().exponent)) + 2
    short = value.quantize(Decimal(1).scaleb(-places), ROUND_DOWN) if value.is_finite() else value
    return f"{short.normalize():f}" if short == value else f"{short:f}…"


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
