"""Many programs from a range of seeds: the laws that some break, by kind, each with a small program that shows it.

`print(report(hunt(range(1000))))` says what was found. `hunt` takes one law, or all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.laws.guarded import Guarded, guarded_case, recorded, replayed
from tests.laws.guarded_laws import WAYS, Broken, Checked
from tests.laws.guarded_tables import FEW, TILES

import indexical as ix

LAWS: dict[str, Callable[[Checked], None]] = {
    "values by numpy": lambda checked: checked.values(("numpy",)),
    "values by torch": lambda checked: checked.values(("torch",)),
    "layouts": Checked.layouts,
    "tiles": Checked.tiles,
    **{f"gradients, {way}": partial(Checked.gradients, wanted=(way,)) for way in WAYS},
}
# How many failures of one kind are made smaller, in search of more than one cause, and by how many tries each.
SHRUNK = 4
TRIES = 150


@dataclass
class Failure:
    """A kind of failure, the seeds that show it, and small programs that do."""

    kind: str
    law: str
    seeds: list[int] = field(default_factory=list)
    examples: list[Guarded] = field(default_factory=list)


def broken(case: Guarded, law: str) -> str | None:
    """How a case breaks a law; None where it holds, or where the case does not compile."""
    try:
        checked = Checked(case)
    except ix.CompileError:
        return None
    try:
        LAWS[law](checked)
    except Broken as found:
        return found.kind
    return checked.slow[0] if checked.slow else None


def hunt(seeds: Iterable[int], laws: Sequence[str] = tuple(LAWS), shrinking: int = SHRUNK) -> list[Failure]:
    """The failures of a range of seeds, the most frequent first."""
    found: dict[tuple[str, str], Failure] = {}
    for seed in seeds:
        for law in laws:
            kind = broken(guarded_case(seed, points(law)), law)
            if kind is not None:
                found.setdefault((law, kind), Failure(kind, law)).seeds.append(seed)
    for failure in found.values():
        failure.examples = examples(failure, shrinking)
    return sorted(found.values(), key=lambda failure: -len(failure.seeds))


def examples(failure: Failure, count: int) -> list[Guarded]:
    """The shortest programs that fail so, made smaller, and of each outline one."""

    def fails(case: Guarded) -> bool:
        return broken(case, failure.law) == failure.kind

    few = points(failure.law)
    short = sorted(failure.seeds, key=lambda seed: len(guarded_case(seed, few).text))[:count]
    small = [replayed(shrunk(recorded(seed, few), fails, few=few), few) for seed in short]
    return list({outline(case.text): case for case in small}.values())


def points(law: str) -> Sequence[int]:
    """How many points a law speaks of."""
    return TILES if law == "tiles" else FEW


def shrunk(
    choices: Sequence[int], fails: Callable[[Guarded], bool], tries: int = TRIES, few: Sequence[int] = FEW
) -> list[int]:
    """Simpler choices whose program still fails: fewer of them, and smaller ones."""
    best = list(choices)
    known: set[tuple[int, ...]] = {tuple(best)}

    def is_better(candidate: list[int]) -> bool:
        nonlocal best, tries
        if tries <= 0 or tuple(candidate) in known:
            return False
        known.add(tuple(candidate))
        tries -= 1
        if fails(replayed(candidate, few)):
            best = candidate
            return True
        return False

    before: list[int] = []
    while before != best and tries > 0:
        before = best
        for width in (16, 8, 4, 2, 1):
            start = 0
            while start < len(best):
                if not is_better(best[:start] + best[start + width :]):
                    zeros = [0] * len(best[start : start + width])
                    is_better(best[:start] + zeros + best[start + width :])
                start += width
        for place in range(len(best)):
            for less in {best[place] // 2, best[place] - 1} - {0, -1}:
                is_better([*best[:place], less, *best[place + 1 :]])
    return best


def outline(text: str) -> str:
    """A program without its figures and the numbers in its names: two of one outline likely have one cause."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("input"))
    return re.sub(r"\d+", "", body)


def report(found: Sequence[Failure]) -> str:
    """Every failure in words."""
    lines = []
    for failure in found:
        lines.append(f"## {failure.law}: {failure.kind} ({len(failure.seeds)})\n\nseeds {failure.seeds[:8]}\n")
        lines += [f"```\n{case.text}\n```\n{case.shapes}\n" for case in failure.examples]
    return "\n".join(lines)
