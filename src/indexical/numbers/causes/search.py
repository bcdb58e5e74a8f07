"""The search for a cause: usual explanations, each held against all figures of the program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import localcontext

import numpy as np

from ...ir import nodes as ir
from ...ir.needs import made_of, members, read_in
from ...records import dataclass, replace
from ..claims import Claim
from ..evaluate import Evaluated
from .cause import MOST_CHANCE, Cause
from .comparison import AGAINST, MOST_AGAINST, NEAR, Candidate, Outcome
from .decimals import CONTEXT
from .example import Changes, Example, Trial
from .given import WIDEST, rounded_figures, within_rounding
from .mistakes import Mistake, Site, merged, mistakes, rounded
from .slips import Slips
from .stale import Stale
from .steps import listed
from .variants import Place

# What must be left of the evidence, in bits, for a cause to be named.
LEAST = -math.log2(MOST_CHANCE)
# In bits: how unusual a mistake is whose results are printed, and read as printed.
AND_PRINTED = 2
# The same for figures that a program is given as they were printed.
GIVEN = -1
# A claim has at most so many causes.
MOST_PARTS = 3


def explain(evaluated: Evaluated, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, with the cause of every figure that fails, where one is found."""
    if not any(claim.verdict == "fails" for claim in claims):
        return claims
    with localcontext(CONTEXT), np.errstate(all="ignore"):
        example = Example(evaluated, claims)
        base = example.trial()
        search = None if base is None else _Search(example, base)
        causes = {} if search is None else search.causes()
        hints = {} if search is None else search.hints({number for number, _ in causes})
    return tuple(
        replace(
            claim,
            cells=tuple(replace(cell, cause=causes.get((number, at))) for at, cell in enumerate(claim.cells)),
            searched=search is not None and search.complete,
            near=search is not None and search.is_near(number),
            hint=hints.get(number),
        )
        for number, claim in enumerate(claims)
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A candidate with the claims of which it explains all that fails, and how sure that is, in bits."""

    candidate: Candidate
    claims: frozenset[int]
    bits: float


class _Search(Slips, Stale):
    """A search through all that authors usually do."""

    def __init__(self, example: Example, base: Trial) -> None:
        super().__init__(example, base)
        self.found: list[_Found] = []
        # The claims that nothing explains so far.
        self.waiting = frozenset(number for number, failing in self.failing.items() if failing)

    # --------------------------------------------------------------- the choice

    def causes(self) -> dict[tuple[int, int], Cause]:
        """The cause of every figure that has one, by claim and cell. Claims are explained in the order in which they
        are computed: a cause that explains an earlier one is preferred to another."""
        all_of_them = self.waiting
        for more in (self._of_figures, self._of_mistakes, self._of_mistakes_after_printing, self.of_stale_numbers):
            self.tried += more()
            self.found = self._found()
            self.waiting = all_of_them - {number for one in self.found for number in one.claims}
            if not self.waiting:
                break
        chosen: dict[int, _Found] = {}
        for number in sorted(all_of_them, key=self._order):
            mine = [one for one in self.found if number in one.claims]
            before = [one for one in mine if one in chosen.values()]
            if mine:
                chosen[number] = max(before or mine, key=lambda one: one.bits + len(one.claims))
        told = [(one.candidate, self.failing[number], one.bits) for number, one in chosen.items()]
        for number in sorted(all_of_them - chosen.keys(), key=self._order):
            told += self._parts(number)
        return self._told(told)

    def _order(self, number: int) -> tuple[int, int]:
        """When a claim can be computed, then where it stands."""
        program = self.example.program
        steps = {name: at for at, order in enumerate(program.order) for name in members(order)}
        return max((steps.get(name, -1) for name in read_in(program.expects[number].body)), default=-1), number

    def _found(self) -> list[_Found]:
        """The candidates that are sure enough to be named."""
        found = [self._judged(candidate) for candidate in self.tried if candidate.explained]
        return [one for one in found if one.claims and one.bits >= LEAST]

    def _judged(self, candidate: Candidate) -> _Found:
        claims = frozenset(
            number
            for number, failing in self.failing.items()
            if failing and failing <= candidate.explained and not self.holding[number] & candidate.broken
        )
        return _Found(candidate, claims, self._bits(candidate, claims, frozenset()) if claims else 0.0)

    def _bits(self, candidate: Candidate, claims: frozenset[int], more: frozenset[int]) -> float:
        """How sure it is that a candidate is the cause of what fails in some claims, and of some figures more. What
        follows from figures as these are printed says nothing of how those came about."""
        indices = more.union(*(self.failing[number] for number in claims))
        own = indices if candidate.kind == "printed" else indices - self.following
        return self.bits(candidate, own or indices)

    def _parts(self, number: int) -> Iterator[tuple[Candidate, frozenset[int], float]]:
        """The causes of parts of a claim, where none explains all of it."""
        left = self.failing[number]
        for _ in range(MOST_PARTS):
            best = max(self._of_part(number, left), key=lambda one: one[2], default=None)
            if best is None:
                break
            yield best
            left -= best[1]
        given = self._of_given(number) if left == self.failing[number] else None
        if given is not None and given[2] >= LEAST:
            yield given

    def _of_part(self, number: int, left: frozenset[int]) -> Iterator[tuple[Candidate, frozenset[int], float]]:
        failing = self.failing[number]
        for candidate in self.tried:
            part = left & candidate.explained
            if not part or len(part) <= candidate.share * len(failing) or self.holding[number] & candidate.broken:
                continue
            choice = math.log2(math.comb(len(failing), len(part)))
            bits = self._bits(candidate, self._judged(candidate).claims, part) - choice
            if bits >= LEAST:
                yield candidate, part, bits

    def _of_given(self, number: int) -> tuple[Candidate, frozenset[int], float] | None:
        """Figures that were given rounded, where nothing else explains a claim that is off by little."""
        failing = self.failing[number]
        figures = [self.figures[at] for at in failing]
        lets = self.example.program.definitions
        marked = rounded_figures(self.example.program, made_of(read_in(figures[0].expect.body), lets))
        if not marked or max(map(self.units, failing)) > WIDEST or not within_rounding(self.example, marked, figures):
            return None
        names = [let.name if not let.hidden else name.removesuffix("_figures") for name, let in marked.items()]
        words = listed([f"`{name}`" for name in dict.fromkeys(names)])
        text = f"could hold if the figures of {words} were rounded when they were printed: mark them with `~`"
        candidate = Candidate("given", "given", text, GIVEN, failing, vague=True)
        return candidate, failing, self.bits(candidate, failing)

    def _told(self, found: list[tuple[Candidate, frozenset[int], float]]) -> dict[tuple[int, int], Cause]:
        by_key: dict[str, set[int]] = {}
        for candidate, part, _ in found:
            by_key.setdefault(candidate.key, set()).update(part)
        result = {}
        for candidate, part, bits in found:
            cause = Cause(candidate.kind, self._words(candidate, part), len(by_key[candidate.key]), 2**-bits)
            result.update({(self.figures[at].claim, self.figures[at].cell): cause for at in part})
        return result

    def _words(self, candidate: Candidate, part: frozenset[int]) -> str:
        """What is said of a candidate where it explains some figures."""
        if candidate.kind == "printed":
            return f"holds if {self.as_printed(candidate, part)}"
        printed = self.as_printed(candidate, part) if candidate.changes.printed else ""
        if printed:
            return f"{candidate.text}, and {printed}"
        own = {n for n, e in enumerate(self.example.program.expects) if _is_of(e.body, candidate.changes.lets)}
        spoilt = {self.figures[at].claim for at in candidate.broken}
        readers = {self.figures[at].claim for at in part}
        later = ", where it is read later" if spoilt & own and not readers & own else ""
        return f"{candidate.text}{later}{self._or_else(candidate, readers)}"

    def _or_else(self, candidate: Candidate, claims: set[int]) -> str:
        """Another mistake by which the same claims hold, and that is about as likely."""
        mine = next((one for one in self.found if one.candidate is candidate), None)
        if mine is None or candidate.slips:
            return ""
        others = (one for one in self.found if claims <= one.claims and one.bits >= mine.bits - 1)
        plain = (one.candidate for one in others if not one.candidate.slips and not one.candidate.changes.printed)
        same = () if candidate.kind == "stale" else (candidate.kind,)
        other = next((one for one in plain if one is not candidate and one.kind not in ("printed", *same)), None)
        return f"; or {other.text.removeprefix('holds ')}" if other is not None else ""

    # -------------------------------------------------------------------- hints

    def is_near(self, number: int) -> bool:
        """Whether all figures of a claim that fail are off by what authors do with digits, and by nothing else."""
        failing = self.failing[number]
        rounded = all(self.figures[at].digits is not None for at in failing)
        return bool(failing) and rounded and all(self.units(at, own=True) <= NEAR for at in failing)

    def hints(self, explained: set[int]) -> dict[int, Cause]:
        """What would explain claims that are near and have no cause, where that may be an accident: the surest for
        each."""
        found: dict[int, tuple[Candidate, frozenset[int], float]] = {}
        for one in [self._judged(candidate) for candidate in self.tried if candidate.explained]:
            for number in one.claims if not one.candidate.slips and 0 < one.bits < LEAST else ():
                if self.is_near(number) and (number not in found or one.bits > found[number][2]):
                    found[number] = (one.candidate, self.failing[number], one.bits)
        found = {number: one for number, one in found.items() if number not in explained}
        for number in self.failing.keys() - explained:
            given = self._of_given(number) if self.is_near(number) and number not in found else None
            if given is not None and given[2] < LEAST:
                found[number] = given
        return {
            number: Cause(candidate.kind, self._words(candidate, part), len(part), min(1.0, 2**-bits))
            for number, (candidate, part, bits) in found.items()
        }

    # ------------------------------------------------------------------ mistakes

    def _of_figures(self) -> Iterator[Candidate]:
        """The mistakes that authors make with figures, all steps being right."""
        yield from self.of_printing()
        yield from self.of_printed_steps()

    def _of_mistakes(self) -> Iterator[Candidate]:
        """A mistake in one step, or one that is made in several alike."""
        for mistake in self._mistakes(self.waiting):
            trial = self.trial(mistake.changes)
            if trial is not None:
                yield self._with_mistake(mistake, mistake.changes, self.outcome(trial), mistake.prior)

    def _of_mistakes_after_printing(self) -> Iterator[Candidate]:
        """A mistake in one step, and all steps go on from printed figures, which do not explain it without."""
        for mistake in self._mistakes(self.waiting) if self.after_printing is not None else ():
            changes = merged((self.habit, mistake.changes))
            trial = self.trial(changes, self.habit_trial)
            if trial is not None:
                found = self.outcome(trial, self.after_printing)
                yield self._with_mistake(mistake, changes, found, mistake.prior + AND_PRINTED)

    def _with_mistake(self, mistake: Mistake, changes: Changes, found: Outcome, prior: float) -> Candidate:
        return Candidate(
            mistake.words,
            mistake.kind,
            f"holds if{mistake.words}",
            prior,
            found.explained,
            found.predicted,
            found.broken,
            found.kept,
            0.7,
            degrees=self._degrees(mistake),
            elsewhere=self._elsewhere(mistake, found.broken),
            changes=changes,
        )

    def _degrees(self, mistake: Mistake) -> int | None:
        """How many numbers a mistake changes, where it is in definitions alone."""
        if mistake.changes.bodies:
            return None
        return sum(len(self.base.tensors[name].cells) for name in mistake.changes.lets)

    def _elsewhere(self, mistake: Mistake, broken: frozenset[int]) -> float:
        """What a claim that holds, and would not, says against a mistake. One about the changed definition itself says
        all, but for a variance: that of a sample and that of a population are taken for each other in single places."""
        if mistake.kind == "reduction":
            return 1.0
        spoilt = {self.figures[at].claim for at in broken}
        own = any(_is_of(self.example.program.expects[number].body, mistake.changes.lets) for number in spoilt)
        return MOST_AGAINST if own else AGAINST

    def _mistakes(self, claims: frozenset[int]) -> Iterator[Mistake]:
        """Mistakes in what some claims are made of, the nearest definitions first."""
        sites = list(self._sites(claims))
        yield from mistakes(sites)
        digits = [self.figures[at].digits or 0 for number in claims for at in self.failing[number]]
        places = range(1, max(digits) + 3)
        lets = self.example.program.definitions
        for number in places:
            for mistake in rounded([s for s in sites if not s.name or lets[s.name].kind == "real"], number):
                # To fewer places than are printed in the end is less usual.
                less = mistake.kind != "constant" and number < min(digits)
                yield replace(mistake, prior=mistake.prior + less)

    def _sites(self, claims: frozenset[int]) -> Iterator[Site]:
        """The left sides of some claims, and the definitions that these are made of."""
        program = self.example.program
        lets = program.definitions
        failing = {n: expect for n, expect in enumerate(program.expects) if n in claims}
        shapes = {name: table.shape for name, table in self.base.tensors.items()}
        shapes = {name: shape for name, shape in shapes.items() if not (name in lets and lets[name].hidden)}
        kinds = {name: tensor.kind for name, tensor in program.tensors.items()}
        shifted = frozenset(
            axis.coordinate for let in program.lets for axis in let.axes if axis.origin is not None
        )
        for number, expect in failing.items():
            if not isinstance(expect.body, ir.Read):
                clause = ir.Clause((), expect.ranges, expect.body, None, expect.span)
                yield Site(
                    "", True, (clause,), Place((), shapes, kinds, shifted),
                    lambda clauses, number=number: Changes({}, {number: clauses[0].body}),  # type: ignore[misc]
                )  # fmt: skip
        for name in made_of(read_in(*(expect.body for expect in failing.values())), lets):
            if name in lets:
                known = self._earlier(name)
                before = {other: shape for other, shape in shapes.items() if other in known}
                yield Site(
                    name, lets[name].hidden, lets[name].clauses, Place((), before, kinds, shifted),
                    lambda clauses, name=name: Changes({name: replace(lets[name], clauses=clauses)}),  # type: ignore[misc]
                )  # fmt: skip

    def _earlier(self, name: str) -> set[str]:
        """The tensors that are known before a definition is computed."""
        found = {tensor.name for tensor in self.example.program.inputs}
        for order in self.example.program.order:
            if name in members(order):
                break
            found |= members(order)
        return found


def _is_of(body: ir.Expr, lets: Mapping[str, ir.Let]) -> bool:
    """Whether a claim is about a definition, and not about what is made of it."""
    return isinstance(body, ir.Read) and body.tensor in lets
