"""The search for a cause: usual explanations, the cheapest first, each held against all figures of the program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np

from ...ir import nodes as ir
from ...ir.needs import made_of, members, read_in
from ..claims import Claim
from ..evaluate import Evaluated
from .cause import Cause
from .comparison import NEAR, Candidate
from .decimals import CONTEXT
from .example import Example
from .given import WIDEST, rounded_figures, within_rounding
from .mistakes import Mistake, mistakes, rounded, rounded_inside
from .slips import Slips
from .steps import Steps, listed

# What must be left of the evidence, in bits, for a mistake in a definition to be named.
LEAST = 6
# The same for one that rounds on the way, of figures that are off by no more than rounding; and where they are.
LEAST_OF_ROUNDING, LEAST_OF_MORE = 0, 4


def explain(evaluated: Evaluated, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, with the cause of every figure that fails, where one is found."""
    if not any(claim.verdict == "fails" for claim in claims):
        return claims
    with localcontext(CONTEXT), np.errstate(all="ignore"):
        example = Example(evaluated, claims)
        base = example.trial()
        search = None if base is None else _Search(example, base)
        causes = {} if search is None else search.causes()
    complete = search is not None and search.complete
    return tuple(
        replace(
            claim,
            cells=tuple(replace(cell, cause=causes.get((number, at))) for at, cell in enumerate(claim.cells)),
            searched=complete,
        )
        for number, claim in enumerate(claims)
    )


class _Search(Slips, Steps):
    """A search through all that authors usually do."""

    # --------------------------------------------------------------- the choice

    def causes(self) -> dict[tuple[int, int], Cause]:
        """The cause of every figure that has one, by claim and cell."""
        candidates: list[Candidate] = []
        waiting = {number for number, failing in self.failing.items() if failing}
        chosen: dict[int, Candidate] = {}
        for more in (self._of_figures, self._of_mistakes, self._of_mistakes_after_printing):
            candidates += more()
            chosen = self._chosen(candidates)
            if waiting <= chosen.keys():
                break
        found = {number: (candidate, self.failing[number]) for number, candidate in chosen.items()}
        for number in waiting - chosen.keys():
            part = self._best_part(candidates, number) or self._of_given(number)
            if part is not None:
                found[number] = part
        return self._told(found)

    def _of_given(self, number: int) -> tuple[Candidate, frozenset[int]] | None:
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
        return Candidate("given", "given", text, 0, 0, failing), failing

    def _full(self, candidate: Candidate) -> list[int]:
        """The claims of which it explains all that fails, and breaks nothing."""
        return [
            number
            for number, failing in self.failing.items()
            if failing and failing <= candidate.explained and not self.holding[number] & candidate.broken
        ]

    def _chosen(self, candidates: list[Candidate]) -> dict[int, Candidate]:
        """The best candidate for each claim that has one: that which explains most in all, then the surest."""
        accepted: list[tuple[Candidate, list[int], float]] = []
        covered: dict[str, set[int]] = {}
        for candidate in candidates:
            full = self._full(candidate)
            elsewhere = sum(1 for n in self.holding if n not in full and self.holding[n] & candidate.broken)
            score = self._evidence_for(candidate, full) - candidate.cost
            against = 2 * min(2, elsewhere)
            if full and score - (0 if candidate.slips else against) >= candidate.least:
                accepted.append((candidate, full, score - against))
                covered.setdefault(candidate.key, set()).update(full)
        accepted.sort(key=lambda one: (-sum(len(self.failing[n]) for n in covered[one[0].key]), -one[2]))
        chosen: dict[int, Candidate] = {}
        for candidate, full, _ in accepted:
            for number in full:
                chosen.setdefault(number, candidate)
        return chosen

    def _evidence_for(self, candidate: Candidate, claims: list[int]) -> float:
        """The evidence in the figures of some claims for a candidate that explains all of them."""
        kept = sum(candidate.kept.get(at, 0.0) for n in claims for at in self.holding[n] | self.failing[n])
        return kept + self.evidence(at for number in claims for at in self.failing[number])

    def _best_part(self, candidates: list[Candidate], number: int) -> tuple[Candidate, frozenset[int]] | None:
        """The candidate that explains most of a claim, where none explains all of it."""
        best: tuple[float, Candidate, frozenset[int]] | None = None
        failing = self.failing[number]
        for candidate in candidates:
            part = failing & candidate.explained
            if len(part) <= candidate.share * len(failing) or self.holding[number] & candidate.broken:
                continue
            choice = math.log2(math.comb(len(failing), len(part)))
            kept = sum(candidate.kept.get(at, 0.0) for at in self.holding[number])
            score = kept + self.evidence(part) - candidate.cost - choice
            if score >= candidate.least + 2 and (best is None or score > best[0]):
                best = (score, candidate, part)
        return None if best is None else (best[1], best[2])

    def _told(self, found: Mapping[int, tuple[Candidate, frozenset[int]]]) -> dict[tuple[int, int], Cause]:
        by_key: dict[str, set[int]] = {}
        for candidate, part in found.values():
            by_key.setdefault(candidate.key, set()).update(part)
        result = {}
        for candidate, part in found.values():
            together = by_key[candidate.key]
            numbers = {self.figures[at].claim for at in together}
            kept = sum(bits for at, bits in candidate.kept.items() if self.figures[at].claim in numbers)
            chance = min(1.0, 2 ** (candidate.cost - kept - self.evidence(together)))
            cause = Cause(candidate.kind, candidate.text, len(together), chance)
            result.update({(self.figures[at].claim, self.figures[at].cell): cause for at in part})
        return result

    def _of_figures(self) -> Iterator[Candidate]:
        """The mistakes that authors make with figures, all steps being right."""
        yield from self.of_printing()
        yield from self.of_printed_steps()

    # -------------------------------------------------------------------- mistakes

    def _of_mistakes(self) -> Iterator[Candidate]:
        return self._of_changes({}, 0)

    def _of_mistakes_after_printing(self) -> Iterator[Candidate]:
        """A mistake in one step, and all steps go on from printed figures."""
        return self._of_changes(self.printed, 2) if self.printed else iter(())

    def _of_changes(self, printed: Mapping[str, Mapping[int, Decimal]], cost: int) -> Iterator[Candidate]:
        for mistake in self._mistakes():
            trial = self.trial({mistake.let.name: mistake.let}, printed)
            if trial is None:
                continue
            explained: set[int] = set()
            broken: set[int] = set()
            kept: dict[int, float] = {}
            for number in range(len(self.example.claims)):
                fits, fails, rest = self.held(trial, number)
                explained |= fits
                broken |= fails
                kept |= rest
            if explained:
                near = mistake.rounds and all(self.units(at) <= NEAR for at in explained)
                yield Candidate(
                    mistake.words,
                    mistake.kind,
                    f"holds if{mistake.words}",
                    mistake.cost + cost,
                    LEAST_OF_ROUNDING if near else LEAST_OF_MORE if mistake.rounds else LEAST,
                    frozenset(explained),
                    frozenset(broken),
                    kept,
                    0.7,
                )

    def _mistakes(self) -> Iterator[Mistake]:
        """Mistakes in what the failing claims are made of, the nearest definitions first."""
        example = self.example
        lets = example.program.definitions
        bodies = [expect.body for number, expect in enumerate(example.program.expects) if self.failing[number]]
        names = [name for name in made_of(read_in(*bodies), lets) if name in lets]
        hidden = {name for name, let in lets.items() if let.hidden}
        shapes = {name: table.shape for name, table in self.base.tensors.items()}
        kinds = {name: tensor.kind for name, tensor in example.program.tensors.items()}
        for name in names:
            before = {n: shapes[n] for n in self._earlier(name) if n in shapes and n not in hidden}
            yield from mistakes(lets[name], before, kinds)
        digits = [self.figures[at].digits or 0 for failing in self.failing.values() for at in failing]
        places = sorted({p for d in digits for p in range(max(1, d - 2), d + 3)} | {2, 3})
        for name in names:
            for number in places if lets[name].kind == "real" else ():
                if not isinstance(lets[name].clauses[0].body, ir.Array):
                    for mistake in (rounded(lets[name], number), *rounded_inside(lets[name], number)):
                        # To fewer places than are printed in the end is less usual.
                        less = mistake.kind != "constant" and number < min(digits)
                        yield replace(mistake, cost=mistake.cost + less)

    def _earlier(self, name: str) -> list[str]:
        """The tensors that are known before a definition is computed."""
        found = [tensor.name for tensor in self.example.program.inputs]
        for order in self.example.program.order:
            if name in members(order):
                break
            found += sorted(members(order))
        return found
