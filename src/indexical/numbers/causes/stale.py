"""Figures of an earlier version: what they were computed from has been changed since, in one number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from ...ir import nodes as ir
from ...ir.needs import made_of, read_in
from ...ir.walk import changed_let, parts_in, rebuild
from ...records import dataclass
from .comparison import Candidate
from .example import Changes, as_decimal
from .steps import Steps

# Of more numbers that a program is given, those behind the failing claims first, these are tried.
MOST_NUMBERS = 60
# How many steps the search for another value of a number takes.
MOST_GUESSES = 7
# A number is not looked for beyond this.
FARTHEST = Decimal(10) ** 9
# In bits: how unusual it is.
STALE = 2


@dataclass(frozen=True, slots=True)
class Given:
    """A number in the text of a definition: a cell of an array, by its place, or a constant."""

    let: ir.Let
    const: ir.Const
    cell: int | None
    text: str

    @property
    def value(self) -> Decimal:
        return as_decimal(Fraction(self.const.value))

    @property
    def unit(self) -> Decimal:
        """The unit of its last digit."""
        written = self.const.span.text
        digits = len(written.partition(".")[2]) if written.replace(".", "", 1).isdigit() else 0
        return Decimal(1).scaleb(-digits)

    def taken_as(self, value: Decimal) -> ir.Let:
        """The definition with another number in its place."""
        whole = self.const.type.kind == "whole"
        new = replace(self.const, value=int(value) if whole else Fraction(value))

        def changed(part: ir.Expr) -> ir.Expr:
            if part is self.const:
                return new
            if isinstance(part, ir.Array) and self.cell is not None and part.cells[self.cell : self.cell + 1] == (
                self.const,
            ):
                return replace(part, cells=(*part.cells[: self.cell], new, *part.cells[self.cell + 1 :]))
            return rebuild(part, changed)

        return changed_let(self.let, changed)


class Stale(Steps):
    """The search for a number that was another one when the figures were computed."""

    def of_stale_numbers(self) -> Iterator[Candidate]:
        found = list(self._given())
        # The number of values that are tried of each is the more the farther it is from what is written.
        for given in found[:MOST_NUMBERS]:
            value = self._solved(given)
            if value is None or value == given.value:
                continue
            changes = Changes({given.let.name: given.taken_as(value)})
            trial = self.trial(changes)
            if trial is None:
                return
            out = self.outcome(trial)
            tried = 2 * float(abs(value - given.value) / given.unit)
            prior = STALE + math.log2(max(2.0, tried)) + math.log2(len(found))
            text = f"holds if {given.text} is {_in_short(value)}, not {given.const.span.text}"
            yield Candidate(
                text, "stale", text, prior, out.explained, out.predicted, out.broken, out.kept, 0.7, changes=changes
            )

    def _given(self) -> Iterator[Given]:
        """The numbers behind the claims that fail."""
        lets = self.example.program.definitions
        bodies = [expect.body for number, expect in enumerate(self.example.program.expects) if self.failing[number]]
        for name in made_of(read_in(*bodies), lets):
            for part in parts_in(lets[name]) if name in lets and lets[name].kind != "bool" else ():
                if isinstance(part, ir.Array):
                    for cell, const in enumerate(part.cells):
                        yield Given(lets[name], const, cell, self._cell(name, part, cell))
                elif isinstance(part, ir.Const) and part.type.kind != "bool" and part.span.text[:1].isdigit():
                    alone = part is lets[name].clauses[0].body
                    yield Given(lets[name], part, None, f"`{name}`" if alone else f"`{part.span.text}` in `{name}`")

    def _cell(self, name: str, array: ir.Array, cell: int) -> str:
        """An element of an array by its name, where the array is the definition; else the array's own words."""
        let = self.example.program.definitions[name]
        if array is let.clauses[0].body and not let.hidden:
            return f"`{self.example.element(name, cell)}`"
        return f"number {cell + 1} of the array in `{name.removesuffix('_figures')}`"

    def _solved(self, given: Given) -> Decimal | None:
        """The value by which the figure that is farthest off would hold, in the digits of the number."""
        target = max(self.wrong, key=self.units)
        figure, right = self.figures[target], self.values[target]
        if figure.wanted is None or right is None or not right.value.is_finite():
            return None
        grain = given.unit if given.const.type.kind == "whole" else given.unit / 1000
        old, off = given.value, right.value - figure.wanted
        new = old + max(given.unit, abs(given.value) / 10)
        for _ in range(MOST_GUESSES):
            new = new.quantize(grain) if abs(new) < FARTHEST else old
            trial = self.trial(Changes({given.let.name: given.taken_as(new)})) if new != old else None
            found = trial and trial.prediction(figure)
            if not found or not found.value.is_finite():
                return None
            now = found.value - figure.wanted
            if abs(now) <= figure.half:
                return new.quantize(given.unit)
            if now == off:
                return None
            old, new, off = new, new - now * (new - old) / (now - off), now
        return None


def _in_short(value: Decimal) -> str:
    """A number without zeros at its end."""
    return f"{value.normalize():f}"
