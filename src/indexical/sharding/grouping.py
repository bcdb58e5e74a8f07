"""Definitions that are computed at once: as long as nothing has to be sent between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..ir import nodes as ir
from ..ir.walk import reads_of
from ..transform.local import hull
from .mesh import outside
from .units import Rows, Unit

if TYPE_CHECKING:
    from .planning import Planner


class Grouping:
    """The definitions of a plan, put together as long as nothing has to be sent between them."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.level: dict[str, int] = {}
        self.key: dict[str, tuple[object, ...]] = {}

    def all(self) -> Iterator[Unit]:
        """The units, in an order in which each comes after what it reads."""
        planner = self.planner
        groups: dict[tuple[object, ...], list[str]] = {}
        for item in planner.program.order:
            names = [item.name] if isinstance(item, ir.Once) else [name for name, _ in item.axes]
            if names[0] in planner.free and names[0] not in planner.cuts:
                continue
            level = max((self._after(name, names) for name in names), default=0)
            apart = names[0] if names[0] in planner.apart else ""
            key = (level, apart, *sorted(self.varying(names[0])))
            for name in names:
                self.level[name], self.key[name] = level, key
            groups.setdefault(key, []).extend(names)
        ordered = sorted(groups.items(), key=lambda pair: pair[0][0])  # type: ignore[arg-type,return-value]
        for number, (_, names) in enumerate(ordered):
            yield self._unit(number, names)

    def varying(self, name: str) -> frozenset[str]:
        """The dimensions along which blocks compute different parts of a definition."""
        return frozenset(d for d, cut in self.planner.cuts[name].items() if cut.way != "whole")

    def _after(self, name: str, group: Sequence[str]) -> int:
        """The first level on which all is there that a definition reads."""
        planner = self.planner
        level = 0
        for read in reads_of(planner.lets[name]):
            other = read.tensor
            if other in group or other not in self.level or other in planner.free:
                continue
            apart = {name, other} & planner.apart
            sums = any(cut.way == "sum" for cut in planner.cuts[other].values())
            sent = any(
                outside(need, own)
                for dimension, needs in planner.needs[name].items()
                for need, own in zip(needs.get(other, ()), self._held(other, dimension), strict=False)
            )
            differs = self.varying(name) != self.varying(other)
            level = max(level, self.level[other] + (1 if apart or sums or sent or differs else 0))
        return level

    def _held(self, name: str, dimension: str) -> Rows:
        axis = self.planner.homes[name].get(dimension)
        return () if axis is None else self.planner.mesh.points(self.planner.extents[name][axis] or 0, dimension)

    def _unit(self, number: int, names: list[str]) -> Unit:
        """The unit of these definitions, with the rows that it needs of others."""
        planner = self.planner
        inside = set(names)
        needs: dict[str, dict[str, Rows]] = {}
        for name in names:
            for dimension, found in planner.needs[name].items():
                for tensor, rows in found.items():
                    if tensor not in inside:
                        known = needs.setdefault(tensor, {}).get(dimension)
                        merged = rows if known is None else tuple(hull(a, b) for a, b in zip(known, rows, strict=True))
                        needs[tensor][dimension] = merged
        handed = planner.handed.get(names[0])
        return Unit(
            number,
            tuple(names),
            tuple(name for name in names if self._is_wanted(name, inside) or (handed and planner.reach[name])),
            self.varying(names[0]),
            {name: dict(planner.cuts[name]) for name in names},
            needs,
            planner.rings.get(names[0]),
            {name: planner.reach[name] for name in names} if handed else {},
            handed,
            planner.merged.get(names[0]),
        )

    def _is_wanted(self, name: str, inside: set[str]) -> bool:
        """Whether a definition is an output, or read outside its unit."""
        planner = self.planner
        readers = (let for let in planner.program.lets if let.name not in inside)
        sums = any(cut.way == "sum" for cut in planner.cuts[name].values())
        return (
            sums or name in planner.program.outputs or any(r.tensor == name for let in readers for r in reads_of(let))
        )
