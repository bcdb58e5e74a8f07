"""The bytes that each rank sends, step by step, forward and on the way back: from the layout alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..ir.types import Dtype
from ..plan.steps import WIDTH
from ..records import dataclass, field
from ..transform.local import Interval
from .learning import learned_by
from .mesh import Mesh
from .moving import Block, all_reduced
from .units import Layout, Rows, Unit

# A rank, by its place along every dimension.
Rank = tuple[int, ...]


@dataclass
class Sent:
    """One thing that is sent: how, along which dimension, and the bytes that each rank sends, forward and back."""

    unit: int
    tensor: str
    how: str
    dimension: str
    forward: dict[Rank, int] = field(default_factory=dict)
    back: dict[Rank, int] = field(default_factory=dict)

    def total(self, back: bool) -> int:
        """The bytes of all ranks."""
        return sum((self.back if back else self.forward).values())

    def most(self) -> int:
        """The bytes of the rank that sends most, both ways."""
        ranks = self.forward.keys() | self.back.keys()
        return max((self.forward.get(rank, 0) + self.back.get(rank, 0) for rank in ranks), default=0)


def traffic(layout: Layout, dtypes: Mapping[str, Dtype], inputs: Collection[str]) -> list[Sent]:
    """All that is sent, where gradients of these inputs are wanted."""
    return list(_Traffic(layout, dtypes, learned_by(layout, set(inputs))).steps())


class _Traffic:
    def __init__(self, layout: Layout, dtypes: Mapping[str, Dtype], learned: Collection[str]) -> None:
        self.layout, self.mesh, self.dtypes, self.learned = layout, layout.mesh, dtypes, learned
        self.fetched: set[tuple[object, ...]] = set()
        self.partial: dict[str, dict[frozenset[str], None]] = {}

    def steps(self) -> Iterator[Sent]:
        """Everything that is sent, unit by unit, and last the gradients of what all ranks share."""
        for unit in self.layout.units:
            ring = unit.ring
            for name in self.layout.read_by(unit):
                needs = dict(unit.needs.get(name, {}))
                if ring is not None and name in ring.passed:
                    around = {d: rows for d, rows in needs.items() if d != ring.dimension}
                    yield from self._fetch(unit, name, around)
                    if ring.dimension not in needs:
                        continue
                yield from self._fetch(unit, name, needs)
            if ring is not None:
                yield from self._ring(unit)
            elif unit.handed is not None:
                yield from self._handed(unit, unit.handed)
            else:
                yield from self._totals(unit)
        yield from self._gradients()

    def _fetch(self, unit: Unit, name: str, needs: Mapping[str, Rows]) -> Iterator[Sent]:
        """The traffic that gives each block the rows of a tensor that its unit needs."""
        known: tuple[object, ...] = (name,)
        before: dict[str, Rows] = {}
        back: list[Sent] = []
        for dimension, rows in needs.items():
            known = (*known, dimension, rows)
            own = self.layout.rows(name, dimension)
            if rows == own:
                continue
            how = "gather" if all(points == (0, own[-1][1]) for points in rows) else "rows of others"
            sent = Sent(unit.number, name, how, dimension)
            by_source, by_target = self._crossing(name, dimension, _shared(rows, own), before)
            if known not in self.fetched:
                _add_all(sent.forward, by_source)
            if name in self.learned and dimension in unit.varying:
                _add_all(sent.back, by_target)
            self.fetched.add(known)
            before[dimension] = rows
            back.append(sent)
        yield from back
        if name in self.learned:
            self.partial.setdefault(name, {})[unit.varying.difference(self.layout.homes[name])] = None

    def _crossing(
        self, name: str, dimension: str, counts: NDArray[np.int64], before: Mapping[str, Rows]
    ) -> tuple[dict[Rank, int], dict[Rank, int]]:
        """The bytes of a tensor that ranks send to others and that they receive, where a block receives so many points
        of each other one along a dimension."""
        ranks = np.array([self.mesh.rank_of(dimension, place) for place in range(len(counts))])
        counts = np.where(ranks[:, None] == ranks, 0, counts)
        by_source: dict[Rank, int] = {}
        by_target: dict[Rank, int] = {}
        for block in self.mesh.everything:
            if self.mesh.place(block, dimension) == 0:
                bytes = self._row(name, block, dimension, before)
                line = [self.rank(other) for other in self.mesh.line(block, dimension)]
                for sums, points in ((by_source, counts.sum(0)), (by_target, counts.sum(1))):
                    for rank, count in zip(line, points.tolist(), strict=True):
                        if count:
                            _add(sums, rank, count * bytes)
        return by_source, by_target

    def _row(self, name: str, block: Block, dimension: str, before: Mapping[str, Rows] | None = None) -> int:
        """The bytes of one point along a dimension of what a block has of a tensor."""
        counted = {**(before or {}), dimension: ((0, 1),) * self.mesh.blocks(dimension)}
        return prod(self.layout.shape(name, block, counted)) * WIDTH[self.dtypes[name]]

    def rank(self, block: Block) -> Rank:
        return tuple(self.mesh.rank_of(name, place) for name, place in zip(self.mesh.names, block, strict=True))

    def _ring(self, unit: Unit) -> Iterator[Sent]:
        """The traffic of keys that go round, in both directions."""
        ring = unit.ring
        assert ring is not None
        for name in ring.passed:
            sent = Sent(unit.number, name, "ring", ring.dimension)
            around = {d: rows for d, rows in unit.needs.get(name, {}).items() if d != ring.dimension}
            by_source, by_target = self._crossing(name, ring.dimension, ring.counts, around)
            _add_all(sent.forward, by_source)
            if unit.names[0] in self.learned:
                _add_all(sent.back, by_source)
                if name in self.learned:
                    _add_all(sent.back, by_target)
            yield sent

    def _handed(self, unit: Unit, dimension: str) -> Iterator[Sent]:
        """The traffic of a recurrence that hands its state on."""
        for name in unit.wanted:
            own = self.layout.rows(name, dimension)
            back = unit.reach[name]
            rows = tuple((max(a - back, 0), a) if a < b else (0, 0) for a, b in own)
            sent = Sent(unit.number, name, "state", dimension)
            sent.forward, by_target = self._crossing(name, dimension, _shared(rows, own), {})
            if name in self.learned:
                sent.back = by_target
            if back:
                yield sent

    def _totals(self, unit: Unit) -> Iterator[Sent]:
        """The traffic of parts of a reduction that are added up or merged."""
        for name in unit.wanted:
            for dimension, cut in unit.cuts[name].items():
                if cut.way != "sum":
                    continue
                if cut.scatter is not None:
                    yield self._scattered(unit, name, dimension)
                    continue
                sent = Sent(unit.number, name, "total" if unit.merged is None else "merge", dimension)
                op = getattr(self.layout.program.definitions[name].clauses[0].body, "op", "sum")
                for block in self.mesh.everything:
                    if self.mesh.place(block, dimension) != 0:
                        continue
                    shape, width = self.layout.shape(name, block), WIDTH[self.dtypes[name]]
                    arrays = [prod(shape) * width]
                    if unit.merged is not None:
                        arrays += [prod(self.layout.shape_beside(name, block)) * width] * 2
                    for rank in self._line(block, dimension):
                        for bytes in arrays:
                            _add(sent.forward, rank, all_reduced(bytes, self._ranks(dimension)))
                        if unit.merged is None and op in ("max", "min") and name in self.learned:
                            _add(sent.back, rank, all_reduced(arrays[0], self._ranks(dimension)))
                yield sent

    def _ranks(self, dimension: str) -> int:
        return self.mesh.ranks[self.mesh.names.index(dimension)]

    def _line(self, block: Block, dimension: str) -> list[Rank]:
        return list(dict.fromkeys(self.rank(other) for other in self.mesh.line(block, dimension)))

    def _scattered(self, unit: Unit, name: str, dimension: str) -> Sent:
        own = self.layout.rows(name, dimension)
        whole: tuple[Interval, ...] = ((0, own[-1][1]),) * len(own)
        by_source, by_target = self._crossing(name, dimension, _shared(whole, own), {})
        back = by_source if name in self.learned else {}
        return Sent(unit.number, name, "reduce and scatter", dimension, by_target, back)

    def _gradients(self) -> Iterator[Sent]:
        """The gradients of what is whole on every rank, though each used it for its own part: these are added up."""
        for name, found in self.partial.items():
            for partial in found:
                for dimension in sorted(partial):
                    sent = Sent(-1, name, "gradient", dimension)
                    for block in self.mesh.everything:
                        if self.mesh.place(block, dimension) == 0:
                            bytes = prod(self.layout.shape(name, block)) * WIDTH[self.dtypes[name]]
                            for rank in self._line(block, dimension):
                                _add(sent.back, rank, all_reduced(bytes, self._ranks(dimension)))
                    yield sent


def _add(sums: dict[Rank, int], rank: Rank, bytes: int) -> None:
    sums[rank] = sums.get(rank, 0) + bytes


def _add_all(sums: dict[Rank, int], more: Mapping[Rank, int]) -> None:
    for rank, bytes in more.items():
        _add(sums, rank, bytes)


def _shared(rows: Rows, own: Rows) -> NDArray[np.int64]:
    """How many of its rows each block has of every other one's own."""
    first, last = np.array(rows).T[..., None]
    start, end = np.array(own).T
    found: NDArray[np.int64] = np.maximum(np.minimum(last, end) - np.maximum(first, start), 0)
    return found


def held_bytes(layout: Layout, dtypes: Mapping[str, Dtype], mesh: Mesh) -> dict[Rank, int]:
    """The bytes of inputs, of what is sent and of what units give that each rank has at the end of the way forward."""
    found: dict[Rank, int] = {}
    counter = _Traffic(layout, dtypes, ())
    names = [*(t.name for t in layout.program.inputs), *(name for unit in layout.units for name in unit.wanted)]
    fetched: dict[object, tuple[str, Mapping[str, Rows]]] = {}
    for unit in layout.units:
        for name, needs in unit.needs.items():
            if name not in layout.free and any(rows != layout.rows(name, along) for along, rows in needs.items()):
                fetched[(name, *needs.items())] = name, needs
    for block in mesh.everything:
        rank = counter.rank(block)
        for name in names:
            if layout.program.tensors[name].axes or name in dtypes:
                _add(found, rank, prod(layout.shape(name, block)) * WIDTH[dtypes[name]])
        for name, needs in fetched.values():
            _add(found, rank, prod(layout.shape(name, block, needs)) * WIDTH[dtypes[name]])
    return found
