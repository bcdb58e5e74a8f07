"""The scans of a definition, in words: `V[b, h, j, e] for j <= i`."""

from __future__ import annotations

import re

from ..checker.sizes import show
from ..ir import build
from ..ir import nodes as ir
from ..ir.context import look_through
from ..ir.prove import Assumptions, conjuncts
from ..ir.types import Coordinate
from ..ir.walk import substitute
from ..records import dataclass
from .dependence import Scan
from .distributions import always_some
from .view import View
from .wording import all_of


@dataclass(frozen=True, slots=True)
class Reading:
    """An input, where it is read, and for which points. A `:` is a whole axis."""

    tensor: str
    at: tuple[str, ...]
    condition: str | None
    exact: bool

    def __str__(self) -> str:
        read = f"{self.tensor}[{', '.join(self.at)}]" if self.at else self.tensor
        return read if self.condition is None else f"{read} for {self.condition}"


def readings(view: View, let: ir.Let) -> tuple[Reading, ...]:
    """The scans of a definition, each said once; what a wider one says already is left out."""
    found = dict.fromkeys(_reading(view, let, scan) for scan in view.dependence.of(let.name))
    return tuple(reading for reading in found if not any(_covers(other, reading) for other in found))


def _covers(other: Reading, reading: Reading) -> bool:
    if other == reading or other.tensor != reading.tensor or other.condition is not None:
        return False
    return all(a in (b, ":") for a, b in zip(other.at, reading.at, strict=True))


def _reading(view: View, let: ir.Let, scan: Scan) -> Reading:
    known = Assumptions()
    for axis in let.axes:
        known = known.within(ir.Range(axis.coordinate, build.whole(0, let.span), axis.extent, False, let.span))
    meaning = look_through(view.lets)
    facts = [fact for condition in scan.conditions for fact in conjuncts(condition, True, meaning)]
    facts = _without_unread(scan, list(dict.fromkeys(facts)), known)
    for range in scan.ranges:
        known = known.within(range)
    needed: list[ir.Expr] = []
    for fact in facts:
        if not known.proves(fact):
            needed.append(fact)
            known = known.assuming(fact)
    mentioned = {c for fact in needed for c in fact.type.coordinates}
    at = tuple(_place(index, scan, mentioned) for index in scan.indices)
    condition = all_of(fact for fact in needed if fact.type.coordinates) or None
    return _plainly(Reading(scan.tensor, at, condition, scan.exact), let)


def _without_unread(scan: Scan, facts: list[ir.Expr], known: Assumptions) -> list[ir.Expr]:
    """Some scanned coordinates only lead to what is read. Where one always has a point to lead through, what
    holds of it says nothing of what is read."""
    read = {c for index in scan.indices for c in index.type.coordinates}
    for range in scan.ranges:
        held = [fact for fact in facts if range.coordinate in fact.type.coordinates]
        guard = build.conjunction(held)
        if range.coordinate in read or guard is None:
            continue
        others = known
        for other in scan.ranges:
            if range.coordinate not in {other.coordinate} | build.varying((other.lower, other.upper)):
                others = others.within(other)
        for fact in facts:
            others = others if fact in held else others.assuming(fact)
        if _has_witness(range, held, scan, facts) or always_some(range, guard, others):
            facts = [fact for fact in facts if fact not in held]
    return facts


def _has_witness(range: ir.Range, held: list[ir.Expr], scan: Scan, facts: list[ir.Expr]) -> bool:
    """Whether another scanned coordinate could stand in its place: all that must hold is known of that one."""
    for other in scan.ranges:
        if other.coordinate != range.coordinate and other.upper == range.upper and other.lower == range.lower:
            instead = {range.coordinate: build.coord(other.coordinate, range.span)}
            if all(substitute(fact, instead) in facts for fact in held):
                return True
    return False


def _plainly(reading: Reading, let: ir.Let) -> Reading:
    """`j_1` is `j` again, where no other `j` is in sight."""
    texts = [*reading.at, reading.condition or ""]
    words = {word for text in texts for word in re.findall(r"\w+", text)} | {a.coordinate.name for a in let.axes}
    for word in sorted(words):
        plain = re.sub(r"_\d+$", "", word)
        if plain != word and plain not in words and word not in {a.coordinate.name for a in let.axes}:
            texts = [re.sub(rf"\b{word}\b", plain, text) for text in texts]
            words.add(plain)
    return Reading(reading.tensor, tuple(texts[:-1]), texts[-1] or None, reading.exact)


def _place(index: ir.Expr, scan: Scan, mentioned: set[Coordinate]) -> str:
    if isinstance(index, ir.Coord):
        bound = any(range.coordinate == index.coordinate for range in scan.ranges)
        alone = sum(index.coordinate in other.type.coordinates for other in scan.indices) == 1
        if bound and alone and index.coordinate not in mentioned:
            return ":"
        return str(index.coordinate)
    return show(index)
