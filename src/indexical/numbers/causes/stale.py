"""Figures of an earlier version: what they were computed from has been changed since, in one number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from ...ir import nodes as ir
from ...ir.needs import made_of, read_in
from ...ir.walk import reads_of, rebuild
from ...records import dataclass, replace
from ...source import Span
from .comparison import MOST_AGAINST, Candidate
from .example import Changes, Trial, as_decimal
from .mistakes import values_within
from .steps import Steps

# Of more numbers that a program is given, those behind the failing claims first, these are tried.
MOST_NUMBERS = 60
# How many steps the search for another value of a number takes.
MOST_GUESSES = 7
# Shorter numbers that are written in several places need not be one.
SHORTEST = 4
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
    spans: frozenset[Span] = frozenset()

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
            if isinstance(part, ir.Const) and part.span in self.spans:
                return new
            if isinstance(part, ir.Array):
                return replace(part, cells=tuple(new if one.span in self.spans else one for one in part.cells))
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
                    continue
                out = self.outcome(trial)
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
                    choices=STALE + math.log2(len(found)),
                    evidence=self._evidence(given, value, unit, out.explained - self.following, trial),
                    elsewhere=MOST_AGAINST,
                    changes=changes,
                )

    def _evidence(
        self, given: Given, value: Decimal, unit: Decimal, explained: frozenset[int], trial: Trial
    ) -> float:
        """What speaks for another value of a number, in bits. Some value fits one figure nearly always: that one fits
        which has so few digits is the less likely by accident, the more sharply the figure says what it is. Others
        count as figures do, as far as they do not hang on the same step."""
        beside = self.trial(given.taken_as(value + unit))
        sharp = {at: self._sharpness(trial, beside, at) for at in explained if beside is not None}
        if not sharp:
            return 0.0
        sharpest = max(sharp, key=lambda at: sharp[at])
        steps = self._first_steps(given, trial)
        return math.log2(max(1.0, sharp[sharpest])) + self.evidence(explained - {sharpest}, degrees=max(0, steps - 1))

    def _sharpness(self, trial: Trial, beside: Trial | None, at: int) -> float:
        """How far a figure moves with the last digit of a number, in what it may be off."""
        figure, one = self.figures[at], trial.prediction(self.figures[at])
        other = None if beside is None else beside.prediction(figure)
        if one is None or other is None or not (one.value.is_finite() and other.value.is_finite()):
            return 0.0
        return float(abs(other.value - one.value) / max(2 * figure.half, figure.unit))

    def _first_steps(self, given: Given, trial: Trial) -> int:
        """How many definitions read a given number, as the first ones that are more than a name for it."""
        names: set[str] = set()
        steps: set[str] = set()
        for let in self.example.program.lets:
            if let in given.lets or any(read.tensor in names for read in reads_of(let)):
                kind = names if all(_is_given(clause.body) for clause in let.clauses) else steps
                kind.add(let.name)
        tables = ((self.base.tensors[name], trial.tensors[name]) for name in steps if name in trial.tensors)
        return sum(mine.cells != theirs.cells for mine, theirs in tables)

    def _given(self) -> Iterator[Given]:
        """The numbers behind the claims that fail, and are not explained; one that several definitions have, by a
        function or in the same digits, once."""
        lets = self.example.program.definitions
        bodies = [self.example.program.expects[number].body for number in sorted(self.waiting)]
        found: dict[Span, Given] = {}
        for name in made_of(read_in(*bodies), lets):
            for clause in lets[name].clauses if name in lets and lets[name].kind != "bool" else ():
                for const, text, sign in self._numbers(name, clause):
                    known = found.get(const.span)
                    mine = Given((lets[name],), const, text, sign, frozenset((const.span,)))
                    found[const.span] = mine if known is None else _together((known, mine))
        yield from found.values()
        alike: dict[str, list[Given]] = {}
        for given in found.values():
            if len(given.const.span.text) >= SHORTEST:
                alike.setdefault(given.const.span.text, []).append(given)
        yield from (_together(several) for several in alike.values() if len(several) > 1)

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
                        yield value, min(Decimal(1), max(unit, Decimal(1).scaleb(_last_place(value))))
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


def _is_given(body: ir.Expr) -> bool:
    """Whether a definition is a number, an array of them, or another name for one."""
    match body:
        case ir.Map("neg", (inside,)):
            return _is_given(inside)
        case _:
            return isinstance(body, ir.Const | ir.Array | ir.Read)


def _together(several: Sequence[Given]) -> Given:
    """A number that stands in several places."""
    first = several[0]
    lets = {let.name: let for given in several for let in given.lets}
    spans = frozenset(span for given in several for span in given.spans)
    return Given(tuple(lets.values()), first.const, f"`{first.const.span.text}`", "", spans)


def _with_bodies(let: ir.Let, change: Callable[[ir.Expr], ir.Expr]) -> ir.Let:
    return replace(let, clauses=tuple(replace(clause, body=change(clause.body)) for clause in let.clauses))


def _is_plain(const: ir.Const) -> bool:
    """Whether a number is written in digits, and is not what a calculation comes to."""
    return const.span.text.lstrip("-").replace(".", "", 1).isdigit()


def _last_place(value: Decimal) -> int:
    """The place of the last digit that is not 0."""
    return int(value.normalize().as_tuple().exponent)


def _in_short(value: Decimal) -> str:
    """A number without zeros at its end."""
    return f"{value.normalize():f}"
