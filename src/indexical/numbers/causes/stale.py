"""Figures of an earlier version: what they were computed from has been changed since, in one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from ...ir import nodes as ir
from ...ir.needs import made_of, read_in
from ...ir.walk import rebuild
from ...records import dataclass
from ...source import Span
from .comparison import MOST_AGAINST, Candidate
from .example import Changes, Trial, as_decimal
from .mistakes import values_within
from .steps import Steps

# Of more numbers that a program is given, those behind the failing claims first, these are tried.
MOST_NUMBERS = 60
# How many steps the search for another value of a number takes.
MOST_GUESSES = 7
# It is looked for in so many claims.
MOST_TARGETS = 2
# A number is not looked for beyond this.
FARTHEST = Decimal(10) ** 9
# In bits: how unusual it is.
STALE = 2


@dataclass(frozen=True, slots=True)
class Given:
    """A number in the text of definitions (several where a function has it): a cell of an array, or a constant."""

    lets: tuple[ir.Let, ...]
    const: ir.Const
    text: str
    sign: str = ""

    @property
    def value(self) -> Decimal:
        return as_decimal(Fraction(self.const.value))

    @property
    def unit(self) -> Decimal:
        """The unit of its last digit."""
        written = self.const.span.text
        return Decimal(1).scaleb(-len(written.partition(".")[2]))

    def taken_as(self, value: Decimal) -> Changes:
        """The definitions with another number in its place."""
        whole = self.const.type.kind == "whole"
        new = replace(self.const, value=int(value) if whole else Fraction(value))

        def changed(part: ir.Expr) -> ir.Expr:
            if isinstance(part, ir.Const) and part.span == self.const.span:
                return new
            if isinstance(part, ir.Array):
                return replace(part, cells=tuple(new if one.span == new.span else one for one in part.cells))
            return rebuild(part, changed)

        return Changes({let.name: _with_bodies(let, changed) for let in self.lets})


class Stale(Steps):
    """The search for a number that was another one when the figures were computed."""

    # The claims that nothing explains so far.
    waiting: frozenset[int]

    def of_stale_numbers(self) -> Iterator[Candidate]:
        """One number that is another, by which claims would hold that nothing explains so far."""
        found = list(self._given())
        for given in found[:MOST_NUMBERS]:
            for value, unit in dict.fromkeys(self._solved(given)):
                changes = given.taken_as(value)
                trial = self.trial(changes)
                if trial is None:
                    return
                out = self.outcome(trial)
                # Every value on the way could have been found, of each of the numbers.
                tried = 2 * float(abs(value - given.value) / unit)
                now, then = given.sign + given.const.span.text, _in_short(-value if given.sign else value)
                text = f"holds if {given.text} is {then}, not {now}"
                yield Candidate(
                    text,
                    "stale",
                    text,
                    STALE,
                    out.explained,
                    out.predicted,
                    out.broken,
                    out.kept,
                    0.7,
                    choices=math.log2(max(2.0, tried)) + math.log2(len(found)),
                    elsewhere=MOST_AGAINST,
                    changes=changes,
                )

    def _given(self) -> Iterator[Given]:
        """The numbers behind the claims that fail, and are not explained; one that several definitions have by a
        function once."""
        lets = self.example.program.definitions
        bodies = [self.example.program.expects[number].body for number in sorted(self.waiting)]
        found: dict[Span, Given] = {}
        for name in made_of(read_in(*bodies), lets):
            for clause in lets[name].clauses if name in lets and lets[name].kind != "bool" else ():
                for const, text, sign in self._numbers(name, clause):
                    known = found.get(const.span)
                    mine = Given((lets[name],), const, text, sign)
                    if known is not None:
                        mine = Given((*known.lets, lets[name]), const, f"`{const.span.text}`")
                    found[const.span] = mine
        yield from found.values()

    def _numbers(self, name: str, clause: ir.Clause) -> Iterator[tuple[ir.Const, str, str]]:
        """The numbers in a definition, with the words for each, and a minus that stands before it."""
        let = self.example.program.definitions[name]
        for part in values_within(clause.body):
            if isinstance(part, ir.Array):
                cells = ((const, self._cell(name, part, cell)) for cell, const in enumerate(part.cells))
                yield from ((const, text, "") for const, text in cells if _is_plain(const))
            elif isinstance(part, ir.Const) and _is_plain(part):
                negative = isinstance(clause.body, ir.Map) and clause.body.op == "neg" and part in clause.body.arguments
                alone = (part is clause.body or negative) and len(let.clauses) == 1
                inside = "" if let.hidden else f" in `{name}`"
                text = f"`{name}`" if alone else f"`{part.span.text}`{inside}"
                yield part, text, "-" if alone and negative else ""

    def _cell(self, name: str, array: ir.Array, cell: int) -> str:
        """An element of an array by its name, where the array is a definition; else by its number."""
        own = name.removesuffix("_figures")
        lets = self.example.program.definitions
        body = lets[own].clauses[0].body if own in lets else None
        is_all = body is array or (isinstance(body, ir.Read) and body.tensor == name and len(lets[own].clauses) == 1)
        if is_all and self.base.tensors[own].shape == array.shape:
            return f"`{self.example.element(own, cell)}`"
        return f"number {cell + 1} of the array in `{own}`"

    def _solved(self, given: Given) -> Iterator[tuple[Decimal, Decimal]]:
        """The values by which a figure would hold that the number reaches, in the digits of the number or up to two
        more, with the unit of the last: of the claims that are farthest off."""
        step = max(given.unit, abs(given.value) / 10)
        trial = self.trial(given.taken_as(given.value + step))
        if trial is None:
            return
        reached = [at for at in self.wrong if self.figures[at].claim in self.waiting and self._moves(trial, at)]
        claims: set[int] = set()
        for at in sorted(reached, key=self.units, reverse=True):
            if len(claims) < MOST_TARGETS and self.figures[at].claim not in claims:
                claims.add(self.figures[at].claim)
                found = self._solved_for(given, at, given.value + step)
                for unit in (given.unit, given.unit / 10, given.unit / 100) if found is not None else ():
                    value = found.quantize(unit) if found is not None else given.value
                    if value != given.value and self._holds(given, value, at):
                        yield value, unit
                        break

    def _holds(self, given: Given, value: Decimal, at: int) -> bool:
        trial = self.trial(given.taken_as(value))
        found = None if trial is None else trial.prediction(self.figures[at])
        return found is not None and found.fits(self.figures[at])

    def _moves(self, trial: Trial, at: int) -> bool:
        found, value = trial.prediction(self.figures[at]), self.values[at]
        return found is not None and value is not None and found.value.is_finite() and found.value != value.value

    def _solved_for(self, given: Given, target: int, new: Decimal) -> Decimal | None:
        """The value by which a figure would hold, found by the secant method from the number and one beside it."""
        figure, right = self.figures[target], self.values[target]
        if figure.wanted is None or right is None or not right.value.is_finite():
            return None
        grain = given.unit if given.const.type.kind == "whole" else given.unit / 1000
        old, off = given.value, right.value - figure.wanted
        for _ in range(MOST_GUESSES):
            new = new.quantize(grain) if abs(new) < FARTHEST else old
            trial = self.trial(given.taken_as(new)) if new != old else None
            found = trial and trial.prediction(figure)
            if not found or not found.value.is_finite():
                return None
            now = found.value - figure.wanted
            if abs(now) <= figure.half:
                return new
            if now == off:
                return None
            old, new, off = new, new - now * (new - old) / (now - off), now
        return None


def _with_bodies(let: ir.Let, change: Callable[[ir.Expr], ir.Expr]) -> ir.Let:
    return replace(let, clauses=tuple(replace(clause, body=change(clause.body)) for clause in let.clauses))


def _is_plain(const: ir.Const) -> bool:
    """Whether a number is written in digits, and is not what a calculation comes to."""
    return const.span.text.lstrip("-").replace(".", "", 1).isdigit()


def _in_short(value: Decimal) -> str:
    """A number without zeros at its end."""
    return f"{value.normalize():f}"
