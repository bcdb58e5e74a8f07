"""Many programs from a range of seeds: the laws that some break, by kind, each with a small program that shows it.

`print(report(hunt(range(1000))))` says what was found. `hunt` takes one law, or all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.laws.guarded import Guarded, recorded, replayed
from tests.laws.guarded_laws import Broken, Checked

import indexical as ix

LAWS = ("values", "layouts", "gradients")
# How many failures of one kind are made smaller, in search of more than one cause.
SHRUNK = 6
# How many smaller programs are tried for each.
TRIES = 250


@dataclass
class Failure:
    """A kind of failure, how often it was met, and the smallest programs that show it, by their outlines."""

    kind: str
    law: str
    count: int = 0
    seeds: list[int] = field(default_factory=list)
    examples: dict[str, tuple[Guarded, int]] = field(default_factory=dict)


def broken(case: Guarded, law: str) -> str | None:
    """How a case breaks a law; None where it holds, or where the case does not compile."""
    try:
        checked = Checked(case)
    except ix.CompileError:
        return None
    try:
        getattr(checked, law)()
    except Broken as found:
        return found.kind
    return None


def hunt(seeds: Iterable[int], laws: Sequence[str] = LAWS) -> dict[tuple[str, str], Failure]:
    """The failures of a range of seeds."""
    found: dict[tuple[str, str], Failure] = {}
    for seed in seeds:
        choices = recorded(seed)
        for law in laws:
            kind = broken(replayed(choices), law)
            if kind is None:
                continue
            failure = found.setdefault((law, kind), Failure(kind, law))
            failure.count += 1
            failure.seeds.append(seed)
            if failure.count <= SHRUNK:
                small = replayed(shrunk(choices, lambda case, law=law, kind=kind: broken(case, law) == kind))
                shown = failure.examples.get(outline(small.text))
                failure.examples[outline(small.text)] = (small, 1 if shown is None else shown[1] + 1)
    return found


def shrunk(choices: Sequence[int], fails: Callable[[Guarded], bool], tries: int = TRIES) -> list[int]:
    """Simpler choices whose program still fails: fewer of them, and smaller ones."""
    best = list(choices)
    known: set[tuple[int, ...]] = {tuple(best)}

    def is_better(candidate: list[int]) -> bool:
        nonlocal best, tries
        if tries <= 0 or tuple(candidate) in known:
            return False
        known.add(tuple(candidate))
        tries -= 1
        if fails(replayed(candidate)):
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


def report(found: dict[tuple[str, str], Failure]) -> str:
    """Every failure in words, the most frequent first."""
    lines = []
    for failure in sorted(found.values(), key=lambda failure: -failure.count):
        lines.append(f"## {failure.law}: {failure.kind} ({failure.count})\n")
        lines.append(f"seeds {failure.seeds[:8]}\n")
        for case, count in failure.examples.values():
            lines.append(f"```\n{case.text}\n```\n{case.shapes}" + (f" (× {count})" if count > 1 else "") + "\n")
    return "\n".join(lines)
