"""The facts of a program, as a user holds them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ..checker.names import by_name, suggest
from ..diagnostics import CallError, Diagnostic
from ..faults import deep
from ..ir import nodes as ir
from ..ir import whole
from ..ir.affine import polynomial
from ..records import dataclass
from ..source import Span
from .coordinates import Story, is_figures, story
from .cost import Work, count, work
from .positions import Positions
from .roles import Roles, all_roles, roles
from .view import View
from .wording import size_words


@dataclass(frozen=True, slots=True)
class Figure:
    """The cost of one definition: as a polynomial in the sizes, and as a number where these are known."""

    name: str
    stage: str
    shape: tuple[str, ...]
    multiply_adds: str
    elements: str
    count: int | None
    moved: int | None


@dataclass(frozen=True)
class Cost:
    """The cost of a program, definition by definition."""

    figures: tuple[Figure, ...]

    @property
    def total(self) -> int | None:
        """All multiply-adds, where every size is known."""
        counts = [figure.count for figure in self.figures]
        return None if None in counts else sum(count for count in counts if count is not None)

    def share(self, stage: str) -> float | None:
        """The part of all multiply-adds that one stage takes: `projection`, `scores`, `gather`, …"""
        if not self.total:
            return None
        return sum(figure.count or 0 for figure in self.figures if figure.stage == stage) / self.total

    def __getitem__(self, name: str) -> Figure:
        return by_name(self.figures, name)


class Facts:
    """Everything that is known of a program without running it."""

    def __init__(self, program: ir.Program) -> None:
        self._view = View(program)

    @cached_property
    @deep
    def definitions(self) -> tuple[Story, ...]:
        """The story of every definition, in the order in which they can be computed."""
        positions = Positions(self._view)
        return tuple(story(self._view, let, positions) for let in self._view.program.lets if not is_figures(let))

    def __getitem__(self, name: str) -> Story:
        return by_name(self.definitions, name)

    @cached_property
    @deep
    def roles(self) -> tuple[Roles, ...]:
        """The roles in every gather, in every transpose of one, and in weights that nothing is gathered with."""
        return all_roles(self._view.joined)

    @cached_property
    @deep
    def _work(self) -> tuple[Work, ...]:
        return tuple(work(self._view, let) for let in self._view.program.lets if not is_figures(let))

    @deep
    def cost(self, sizes: Mapping[str, int]) -> Cost:
        """Multiply-adds and elements moved; with figures where all sizes of a definition are given."""
        known = {axis.coordinate.name for tensor in self._view.program.inputs for axis in tensor.axes}
        given: Mapping[str, Any] = sizes  # Whatever was passed, not only what may be.
        for name, size in given.items():
            if name not in known or not isinstance(size, int) or size < 0:
                words = f"`{name}={size}`: sizes are whole numbers, for {', '.join(sorted(known)) or 'no coordinate'}"
                help, _ = suggest(name, known, Span(self._view.program.source, 0, 0))
                raise CallError([Diagnostic("IX501", words, help=help)])
        return Cost(tuple(self._figure(entry, sizes) for entry in self._work))

    def _figure(self, entry: Work, sizes: Mapping[str, int]) -> Figure:
        def lookup(leaf: ir.Size | ir.Read) -> int:
            if isinstance(leaf, ir.Size) and leaf.coordinate.name in sizes:
                return sizes[leaf.coordinate.name]
            if isinstance(leaf, ir.Read) and leaf.tensor in self._view.lets:
                return whole.value(self._view.lets[leaf.tensor].clauses[0].body, lookup)
            raise whole.Unknown

        total: int | None
        moved: int | None
        try:
            total = sum(count(trail, lookup, self._view.lets) for trail in entry.trails)
            moved = sum(_value(m, f, lookup) for m, f in entry.elements.terms.items())
        except whole.Unknown:
            total = moved = None
        shape = tuple(size_words(polynomial(axis.extent)) for axis in self._view.lets[entry.name].axes)
        words = size_words(entry.dense), size_words(entry.elements)
        return Figure(entry.name, entry.stage, shape, *words, total, moved)

    @cached_property
    def mixing(self) -> tuple[tuple[str, str], ...]:
        """For every definition that takes the heads of an attention: whether it mixes or only repacks them."""
        return tuple(_mixing(self._view))


def _value(monomial: Any, factor: int, lookup: whole.Lookup) -> int:
    for atom, power in monomial:
        if not isinstance(atom, ir.Size | ir.Read):
            raise whole.Unknown
        factor *= lookup(atom) ** power
    return factor


def _mixing(view: View) -> list[tuple[str, str]]:
    """A definition that reads a gather's heads: summed over, they are mixed; divided out, only repacked."""
    found: list[tuple[str, str]] = []
    for gather in view.gathers:
        heads = set(roles(view, gather).head)
        home = [str(axis.coordinate) for axis in gather.site.let.axes]
        places = [number for number, name in enumerate(home) if name in heads]
        if any(step.coordinate.name in heads for step in gather.site.product.summed):
            found.append((gather.name, "mixes heads"))
        for let in view.program.lets:
            for read in view.reads(let.name):
                if read.tensor != gather.name:
                    continue
                for number in places:
                    index = read.indices[number]
                    own = {slot.coordinate for c in let.clauses for slot in c.slots if isinstance(slot, ir.Coord)}
                    if isinstance(index, ir.Coord) and index.coordinate not in own:
                        found.append((let.name, "mixes heads"))
                    elif not isinstance(index, ir.Coord) and index.type.coordinates:
                        found.append((let.name, "only repacks heads"))
    return list(dict.fromkeys(found))
