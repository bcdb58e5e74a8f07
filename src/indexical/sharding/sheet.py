"""A plan of many machines in words: who holds what, what is sent, and how much memory a rank needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..diagnostics import CallError, Diagnostic
from ..ir.types import Dtype
from ..records import dataclass
from ..views.fragment import Sheet
from ..views.source import spelled, unwritten
from .mesh import Mesh
from .moving import Block
from .programs import Programs
from .traffic import Rank, Sent, held_bytes, traffic
from .units import Layout, Unit

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass
class SpreadPlan(Sheet):
    """The plan of a call on many machines; `print` it. `sent` has all that is sent, `memory` the bytes that each rank
    holds besides what a unit needs while it runs."""

    layout: Layout
    dtypes: Mapping[str, Dtype]
    sent: tuple[Sent, ...]
    memory: Mapping[Rank, int]
    cheaper: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes that all ranks send, forward and on the way back."""
        return sum(one.total(False) + one.total(True) for one in self.sent)

    def bytes_of(self, rank: Rank) -> tuple[int, int]:
        """The bytes that a rank sends forward, and on the way back."""
        return sum(s.forward.get(rank, 0) for s in self.sent), sum(s.back.get(rank, 0) for s in self.sent)

    def relation(self, unit: int, block: Block | None = None) -> str:
        """The program that a block computes in a unit, as text; the first block where none is said."""
        blocks = self.layout.mesh.everything
        place = blocks[0] if block is None else block
        if unit not in range(1, len(self.layout.units) + 1) or place not in blocks:
            wrong = f"this plan has no unit {unit!r:.20}" if place in blocks else f"the mesh has no block {place!r:.40}"
            help = f"units are 1 to {len(self.layout.units)}, blocks {blocks[0]} to {blocks[-1]}"
            raise CallError([Diagnostic("IX515", wrong, help=help)])
        chosen = self.layout.units[unit - 1]
        programs = Programs(self.layout)
        if chosen.ring is None:
            return spelled(unwritten(programs.of_unit(chosen, place)[0]._program, "local"))
        queries = self.layout.mesh.place(place, chosen.ring.dimension)
        found = [chosen.ring.points(queries, int(block)) for block in chosen.ring.counts[queries].nonzero()[0][-1:]]
        if not found or found[0] is None:
            raise CallError([Diagnostic("IX515", f"the block {place} has no keys in unit {unit}")])
        return spelled(unwritten(programs.of_ring(chosen, place, found[0])[0]._program, "local"))

    def __str__(self) -> str:
        mesh = self.layout.mesh
        shape = " × ".join(f"{name} {ranks}" for name, ranks in zip(mesh.names, mesh.ranks, strict=True))
        balanced = f" (balanced: {', '.join(sorted(mesh.balanced))})" if mesh.balanced else ""
        lines = [f"{prod(mesh.ranks)} ranks: {shape}{balanced}", "", "who holds what"]
        lines += [f"  {line}" for line in self._homes()]
        for unit in self.layout.units:
            lines += ["", f"{unit.number + 1}. {', '.join(_shown(self.layout, unit))}"]
            lines += [f"  {line}" for line in (*self._ways(unit), *self._sending(unit.number))]
        gradients = list(self._sending(-1))
        if gradients:
            lines += ["", "added up on the way back", *(f"  {line}" for line in gradients)]
        lines += ["", *self._totals()]
        lines += [f"cheaper: {line}" for line in self.cheaper]
        return "\n".join(lines) + "\n"

    __repr__ = Sheet.__repr__

    def _homes(self) -> Iterator[str]:
        layout = self.layout
        wanted = [name for unit in layout.units for name in unit.wanted if name in layout.program.outputs]
        for name in (*(tensor.name for tensor in layout.program.inputs if tensor.axes), *wanted):
            axes = layout.program.tensors[name].axes
            shown = f"{name}[{', '.join(str(axis.coordinate) for axis in axes)}]" if axes else name
            split = [f"`{axes[axis].coordinate}` by {dimension}" for dimension, axis in layout.homes[name].items()]
            points = [
                f"{axes[axis].coordinate} {_blocks(layout.mesh, dimension, layout.rows(name, dimension))}"
                for dimension, axis in layout.homes[name].items()
            ]
            yield f"{shown:24} {', '.join(split) + ': ' + '; '.join(points) if split else 'whole on every rank'}"

    def _ways(self, unit: Unit) -> Iterator[str]:
        if unit.ring is not None:
            counts = unit.ring.counts
            empty = int((counts == 0).sum())
            yield f"keys go round `{unit.ring.dimension}`, merged by the logarithms of their totals"
            if empty:
                yield f"{empty} of {counts.size} pairs of blocks are empty by the guard, and skipped"
            most, least = _work(self.layout.mesh, unit)
            if most > 1.3 * least:
                name = unit.ring.dimension
                yield f'ranks have from {least} to {most} keys to hear: `balanced="{name}"` evens that out'
        if unit.handed is not None:
            yield f"each block begins with the state of the one before along `{unit.handed}`: ranks wait for each other"
        if unit.merged is not None:
            yield "each rank hears its own keys; the results are merged by the logarithms of their totals"
        for name in unit.names:
            for dimension, cut in unit.cuts[name].items():
                if cut.way == "whole" and cut.reason:
                    yield f"`{name}` is computed whole on every rank along `{dimension}`: {cut.reason}"

    def _sending(self, unit: int) -> Iterator[str]:
        found = [one for one in self.sent if one.unit == unit and (one.forward or one.back)]
        for one in found:
            yield (
                f"{one.how} of {one.tensor} along {one.dimension}: a rank sends at most {_size(one.most())} "
                f"(all: {_size(one.total(False))} forward, {_size(one.total(True))} back)"
            )
        if not found and unit >= 0:
            yield "nothing is sent"

    def _totals(self) -> Iterator[str]:
        ranks = sorted(self.memory)
        most = max(ranks, key=lambda rank: sum(self.bytes_of(rank)))
        forward, back = self.bytes_of(most)
        yield f"a rank sends at most {_size(forward)} forward and {_size(back)} on the way back"
        yield f"memory of a rank: {_size(max(self.memory.values()))}, besides what a step needs while it runs"


def plan_of(layout: Layout, dtypes: Mapping[str, Dtype], train: bool) -> SpreadPlan:
    """The plan of a layout; with the way back, where it is for training."""
    real = [t.name for t in layout.program.inputs if t.kind == "real" and (t.axes or t.name in dtypes)] if train else []
    return SpreadPlan(layout, dtypes, tuple(traffic(layout, dtypes, real)), held_bytes(layout, dtypes, layout.mesh))


def _shown(layout: Layout, unit: Unit) -> Iterator[str]:
    for name in unit.wanted or unit.names:
        axes = layout.program.tensors[name].axes
        yield f"{name}[{', '.join(str(axis.coordinate) for axis in axes)}]" if axes else name


def _blocks(mesh: Mesh, dimension: str, rows: tuple[tuple[int, int], ...]) -> str:
    ranks = range(mesh.ranks[mesh.names.index(dimension)])
    shown = [
        " and ".join(f"{rows[block][0]}..{rows[block][1]}" for block in mesh.held_by(dimension, rank)) for rank in ranks
    ]
    return " | ".join(shown if len(shown) <= 4 else [*shown[:2], "…", shown[-1]])


def _work(mesh: Mesh, unit: Unit) -> tuple[int, int]:
    """The most and the fewest keys that ranks have to hear, a block of queries at a time."""
    assert unit.ring is not None
    found: dict[int, int] = {}
    for block, keys in enumerate(unit.ring.counts.sum(1).tolist()):
        rank = mesh.rank_of(unit.ring.dimension, block)
        found[rank] = found.get(rank, 0) + keys
    return max(found.values()), min(found.values())


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit + 1 < len(_UNITS):
        size, unit = size / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
