"""Recurrences: as a scan, or step by step; the number of steps that takes, and how many are kept."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..records import dataclass
from .linear import Linear

# A scan of so few steps takes them one by one.
FEW = 32


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence along one axis that reads back so many steps (`offset`), and there its own point of all other axes.

    `clauses` are the points of each of `parts`: those of the definition; or, where one clause tests its step by `if`,
    this one `divided` into the first steps and all others.
    """

    axis: int
    offset: int
    forward: bool
    clauses: tuple[ir.Clause, ...]
    parts: tuple[Linear, ...]
    divided: bool = False

    @property
    def is_sum(self) -> bool:
        """Whether it only adds, after its first step: a running sum."""
        if self.offset != 1 or len(self.parts) != 2:
            return False
        rule = 0 if self.parts[1].times is None else 1
        base = self.clauses[1 - rule].slots[self.axis]
        alone = self.parts[1 - rule].times is None and (self.divided or not isinstance(base, ir.Coord))
        return alone and build.is_number(self.parts[rule].times, 1) and self.parts[rule].read_where is None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A definition that reads itself: the axes along which it is stepped, outermost first, and as a scan where it is
    one. Where only its last step is read, `kept` says how many steps are there at a time."""

    axes: tuple[int, ...]
    scan: Scan | None = None
    kept: int | None = None


def steps_of(count: int, scan: Scan) -> int:
    """The number of sequential steps in a scan of so many points."""
    points = -(-max(0, count - scan.offset) // scan.offset)
    if scan.is_sum:
        return 1
    if points < FEW:
        return points
    length = 1
    while 4 * length * length <= points:
        length *= 2
    return 2 * length + points // length + points % length
