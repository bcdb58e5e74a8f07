"""The search for a cause: usual explanations, the cheapest first, each held against all figures of the program.

A cause is named only where that it fits is no accident. A figure that is off by `n` units of its last digit is one of
about `2n` that are as near to the value, so that a wrong explanation fits it once in `2n` times: that is its evidence,
in bits, and figures that are the same count once. From this the cost of the cause is taken: the rarer it is, and the
more there are of its kind, the more it has to explain. What is left must reach the `least` of its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from decimal import ROUND_DOWN, Decimal, localcontext
from itertools import combinations

import numpy as np

from ...ir import nodes as ir
from ...ir.needs import made_of, members, read_in
from ...records import dataclass
from ...run.floats import Floats
from ..claims import Claim
from ..evaluate import Evaluated
from .cause import Cause
from .decimals import CONTEXT, Singles
from .example import Example, Figure, Prediction, Trial
from .mistakes import Mistake, mistakes, rounded, rounded_inside
from .printing import SLIPS, arrangements, is_cut

# What must be left of the evidence, in bits, for a mistake in a definition to be named.
LEAST = 7
# The same for one that rounds on the way, of figures that are off by no more than rounding.
LEAST_OF_ROUNDING = 1
# A figure this many units off, or less, is off by what authors do with digits, and by nothing else.
NEAR = 1.5
# About how many points are visited in search of causes.
MOST_STEPS = 4_000_000
# Of more definitions that are read as printed, or more figures, not every choice is tried.
MOST_CHOICES = 40


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


def explain(evaluated: Evaluated, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """The claims, with the cause of every figure that fails, where one is found."""
    if not any(claim.verdict == "fails" for claim in claims):
        return claims
    with localcontext(CONTEXT), np.errstate(all="ignore"):
        example = Example(evaluated, claims)
        base = example.trial()
        causes = {} if base is None else _Search(example, base).causes()
    return tuple(
        replace(claim, cells=tuple(replace(c, cause=causes.get((number, at))) for at, c in enumerate(claim.cells)))
        for number, claim in enumerate(claims)
    )


class _Search:
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
        self.work = max(1, sum(len(table.cells) for table in base.tensors.values()) * 8)
        self.printed = self._printed()

    def _is_plain(self, at: int) -> bool:
        """Whether decimals agree with the verdict on a figure."""
        value = self.values[at]
        return value is not None and value.fits(self.figures[at]) is not self.figures[at].fails

    def _grain(self, number: int) -> Decimal:
        """The unit of the last digit of a claim that is not 0 throughout: `2.8000` beside `2.4000` says no more than
        `2.8` beside `2.4`."""
        wanted = [figure.wanted for figure in self.figures if figure.claim == number and figure.wanted]
        places = max((max(0, -int(w.normalize().as_tuple().exponent)) for w in wanted), default=0)
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
            part = self._best_part(candidates, number)
            if part is not None:
                found[number] = part
        return self._told(found)

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
            score = self._evidence_for(candidate, full) - candidate.cost - 2 * min(2, elsewhere)
            if full and score >= candidate.least:
                accepted.append((candidate, full, score))
                covered.setdefault(candidate.key, set()).update(full)
        accepted.sort(key=lambda one: (-sum(len(self.failing[n]) for n in covered[one[0].key]), -one[2]))
        chosen: dict[int, Candidate] = {}
        for candidate, full, _ in accepted:
            for number in full:
                chosen.setdefault(number, candidate)
        return chosen

    def _evidence_for(self, candidate: Candidate, claims: list[int]) -> float:
        """What the figures of some claims say for a candidate that explains all of them."""
        kept = sum(candidate.kept.get(at, 0.0) for n in claims for at in self.holding[n] | self.failing[n])
        return kept + self._evidence(at for number in claims for at in self.failing[number])

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
            score = kept + self._evidence(part) - candidate.cost - choice
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
            chance = min(1.0, 2 ** (candidate.cost - kept - self._evidence(together)))
            cause = Cause(candidate.kind, candidate.text, len(together), chance)
            result.update({(self.figures[at].claim, self.figures[at].cell): cause for at in part})
        return result

    def _evidence(self, indices: Iterable[int]) -> float:
        """In bits: how unlikely it is that all these figures fit by accident."""
        seen: dict[tuple[Decimal | None, Decimal], float] = {}
        for at in indices:
            figure, value = self.figures[at], self.values[at]
            assert value is not None
            seen[figure.wanted, round(value.value, 12) if value.value.is_finite() else Decimal(0)] = self._units(at)
        return sum(math.log2(max(2.0, 2 * units)) for units in seen.values())

    def _units(self, at: int) -> float:
        """How far off a figure is, in units of its last digit."""
        figure, value = self.figures[at], self.values[at]
        if figure.wanted is None or value is None:
            return 1.0
        off = abs(figure.wanted - value.value) if value.value.is_finite() else abs(figure.wanted)
        return float(min(off / max(figure.unit, self.grain[figure.claim]), Decimal(10) ** 12))

    # ------------------------------------------------------- slips and arrangements

    def _of_figures(self) -> Iterator[Candidate]:
        """What authors do with figures, all steps being right."""
        yield from self._of_printing()
        yield from self._of_printed_steps()

    def _of_printing(self) -> Iterator[Candidate]:
        """What went wrong after the right value was known."""
        for slip in SLIPS:
            fitting = frozenset(at for at, value in enumerate(self.values) if value and self._fits(slip.fits, at))
            explained = frozenset(at for at in fitting if self.figures[at].fails)
            others = frozenset(at for at, figure in enumerate(self.figures) if not figure.fails) - fitting
            if explained:
                broken = others if slip.habit else frozenset[int]()
                yield Candidate(slip.kind, slip.kind, slip.words, slip.cost, slip.least, explained, broken)
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

    # --------------------------------------------------------------- printed steps

    def _of_printed_steps(self) -> Iterator[Candidate]:
        """Steps that go on from printed figures: for each claim, the fewest that explain it."""
        for number, failing in self.failing.items():
            if not failing:
                continue
            names = self._before(number)
            for cut in (False, True):
                found = self._fewest(number, names, cut)
                if found is not None:
                    yield found
                    break

    def _before(self, number: int) -> list[str]:
        """The definitions with printed figures that a claim is made of, the nearest first."""
        body = self.example.program.expects[number].body
        lets = self.example.program.definitions
        own = (
            {body.tensor} if isinstance(body, ir.Read) and body.tensor not in self.example.program.recurrent else set()
        )
        return [name for name in made_of(read_in(body), lets) if name in self.printed and name not in own]

    def _fewest(self, number: int, names: list[str], cut: bool) -> Candidate | None:
        """The fewest definitions that explain a claim where they are read as printed, or most of it."""
        sets: list[tuple[str, ...]] = [(name,) for name in names]
        sets += list(combinations(names, 2))[:MOST_CHOICES]
        sets += [tuple(names)] if len(names) > 2 else []
        best: Candidate | None = None
        for chosen in sets:
            found = self._as_printed(number, chosen, cut)
            if found is None or not found.explained or found.broken:
                continue
            if best is None or len(found.explained) > len(best.explained):
                best = found
            if found.explained == self.failing[number]:
                break
        return None if best is None else self._with_figures(best, number, cut)

    def _held(self, trial: Trial, number: int, cut: bool = False) -> tuple[set[int], set[int], dict[int, float]]:
        """What of a claim would hold and fails, what would fail and holds, and what the rest says, in bits."""
        explained, broken, kept = set(), set(), {}
        for at in self.failing[number] | self.holding[number]:
            figure = self.figures[at]
            found = trial.prediction(figure)
            fits = found is not None and (_is_cut(figure, found) if cut else found.fits(figure))
            if fits and figure.fails:
                explained.add(at)
                if found is not None and figure.wanted is not None and abs(found.value - figure.wanted) == figure.half:
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

    def _trial(
        self, changed: Mapping[str, ir.Let] | None = None, printed: Mapping[str, Mapping[int, Decimal]] | None = None
    ) -> Trial | None:
        if self.steps < self.work:
            return None
        self.steps -= self.work
        return self.example.trial(self.base, changed, printed)

    def _as_printed(self, number: int, names: tuple[str, ...], cut: bool) -> Candidate | None:
        cells = {name: self.printed[name] for name in names}
        trial = self._trial(printed=cells)
        if trial is None:
            return None
        explained, broken, kept = self._held(trial, number, cut)
        near = all(self._units(at) <= NEAR for at in explained)
        cost = len(names) + (1 if cut else 0)
        key = ", ".join(names)
        return Candidate(key, "printed", "", cost, -1 if near else 2, frozenset(explained), frozenset(broken), kept)

    def _with_figures(self, found: Candidate, number: int, cut: bool) -> Candidate:
        """With the words for it: those printed figures that it takes."""
        names = found.key.split(", ")
        cells = self._fewest_cells(number, names, cut, found.explained)
        names = [name for name in names if any(name == other for other, _ in cells)]
        words = _listed([self._as_read(name, [offset for n, offset in cells if n == name]) for name in names])
        text = f"holds if {words} {'is' if len(names) == 1 else 'are'} taken as printed ({self._shown(cells)})"
        return replace(found, key="printed", text=f"{text}, and the result is cut off, not rounded" if cut else text)

    def _fewest_cells(
        self, number: int, names: list[str], cut: bool, explained: frozenset[int]
    ) -> list[tuple[str, int]]:
        """The printed figures that it takes, one after the other left out where the rest explain as much."""
        cells = [(name, offset) for name in names for offset in self.printed[name]]
        if len(cells) > MOST_CHOICES:
            return cells
        for cell in list(cells):
            rest = [other for other in cells if other != cell]
            printed: dict[str, dict[int, Decimal]] = {}
            for name, offset in rest:
                printed.setdefault(name, {})[offset] = self.printed[name][offset]
            trial = self._trial(printed=printed) if rest else None
            held = None if trial is None else self._held(trial, number, cut)
            if held is not None and explained <= held[0] and not held[1]:
                cells = rest
        return cells

    def _as_read(self, name: str, offsets: list[int]) -> str:
        table = self.base.tensors[name]
        if len(offsets) == 1 and table.shape:
            return f"`{name}[{', '.join(map(str, table.place(offsets[0])))}]`"
        return f"`{name}`"

    def _shown(self, cells: list[tuple[str, int]]) -> str:
        shown = []
        for name, offset in cells[:2]:
            value, figure = self.base.tensors[name].cells[offset], self.printed[name][offset]
            shown.append(f"{figure:f}, not {_in_short(value, figure)}")
        more = f"; and {len(cells) - 2} more" if len(cells) > 2 else ""
        return "; ".join(shown) + more

    # -------------------------------------------------------------------- mistakes

    def _of_mistakes(self) -> Iterator[Candidate]:
        return self._of_changes({}, 0)

    def _of_mistakes_after_printing(self) -> Iterator[Candidate]:
        """A mistake in one step, and all steps go on from printed figures."""
        return self._of_changes(self.printed, 2) if self.printed else iter(())

    def _of_changes(self, printed: Mapping[str, Mapping[int, Decimal]], cost: int) -> Iterator[Candidate]:
        for mistake in self._mistakes():
            trial = self._trial({mistake.let.name: mistake.let}, printed)
            if trial is None:
                continue
            explained: set[int] = set()
            broken: set[int] = set()
            kept: dict[int, float] = {}
            for number in range(len(self.example.claims)):
                fits, fails, rest = self._held(trial, number)
                explained |= fits
                broken |= fails
                kept |= rest
            if explained:
                near = mistake.rounds and all(self._units(at) <= NEAR for at in explained)
                yield Candidate(
                    mistake.words,
                    mistake.kind,
                    f"holds if{mistake.words}",
                    mistake.cost + cost,
                    LEAST_OF_ROUNDING if near else LEAST,
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
        digits = {self.figures[at].digits for failing in self.failing.values() for at in failing} - {None}
        places = sorted({p for d in digits if d is not None for p in range(max(0, d - 1), d + 3)} | {2, 3})
        for name in names:
            for number in places if lets[name].kind == "real" else ():
                if not isinstance(lets[name].clauses[0].body, ir.Array):
                    yield rounded(lets[name], number)
                    yield from rounded_inside(lets[name], number)

    def _earlier(self, name: str) -> list[str]:
        """The tensors that are known before a definition is computed."""
        found = [tensor.name for tensor in self.example.program.inputs]
        for order in self.example.program.order:
            if name in members(order):
                break
            found += sorted(members(order))
        return found


def _is_cut(figure: Figure, found: Prediction) -> bool:
    if figure.wanted is None or not found.value.is_finite():
        return found.fits(figure)
    return is_cut(figure, found.value)


def _in_short(value: Decimal, figure: Decimal) -> str:
    """A value to two places more than a figure has, with `…` where it goes on."""
    places = max(0, -int(figure.as_tuple().exponent)) + 2
    short = value.quantize(Decimal(1).scaleb(-places), ROUND_DOWN) if value.is_finite() else value
    return f"{short.normalize():f}" if short == value else f"{short:f}…"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
