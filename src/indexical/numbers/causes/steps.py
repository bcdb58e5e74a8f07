"""Candidates for steps that go on from printed figures: the fewest that explain a claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_DOWN, Decimal
from itertools import combinations

from ...ir import nodes as ir
from ...ir.needs import made_of, read_in
from .comparison import NEAR, Candidate, Comparison

# Of more definitions that are read as printed, or more figures, not every choice is tried.
MOST_CHOICES = 40


class Steps(Comparison):
    """The results of reading figures as they are printed."""

    def of_printed_steps(self) -> Iterator[Candidate]:
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

    def _as_printed(self, number: int, names: tuple[str, ...], cut: bool) -> Candidate | None:
        cells = {name: self.printed[name] for name in names}
        trial = self.trial(printed=cells)
        if trial is None:
            return None
        explained, broken, kept = self.held(trial, number, cut)
        near = all(self.units(at) <= NEAR for at in explained)
        cost = len(names) + (1 if cut else 0)
        key = ", ".join(names)
        return Candidate(key, "printed", "", cost, -1 if near else 2, frozenset(explained), frozenset(broken), kept)

    def _with_figures(self, found: Candidate, number: int, cut: bool) -> Candidate:
        """With the words for it: those printed figures that it takes."""
        names = found.key.split(", ")
        cells = self._fewest_cells(number, names, cut, found.explained)
        names = [name for name in names if any(name == other for other, _ in cells)]
        words = listed([self._as_read(name, [offset for n, offset in cells if n == name]) for name in names])
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
            trial = self.trial(printed=printed) if rest else None
            held = None if trial is None else self.held(trial, number, cut)
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


def _in_short(value: Decimal, figure: Decimal) -> str:
    """A value to two places more than a figure has, with `…` where it goes on."""
    places = max(0, -int(figure.as_tuple().exponent)) + 2
    short = value.quantize(Decimal(1).scaleb(-places), ROUND_DOWN) if value.is_finite() else value
    return f"{short.normalize():f}" if short == value else f"{short:f}…"


def listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
