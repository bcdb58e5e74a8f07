"""Reads of two axes as one: they are put side by side and reshaped, and nothing is gathered."""

from __future__ import annotations

from ..ir.affine import Polynomial, number, of_atom, polynomial
from ..ir.types import Coordinate
from ..records import dataclass
from .ops import Axis, Map, Read, Value, value


@dataclass(frozen=True, slots=True)
class Merge:
    """Two axes of a source that are read as one, `axis`, from the place `begin` on."""

    source: Value
    major: Coordinate
    minor: Coordinate
    axis: Axis
    begin: Polynomial

    @property
    def length(self) -> Polynomial:
        """The number of points of both."""
        return polynomial(self.source.extent(self.major)) * polynomial(self.source.extent(self.minor))

    @property
    def is_whole(self) -> bool:
        return self.begin == number(0) and polynomial(self.axis.extent) == self.length


def merge_of(op: Read) -> Merge | None:
    """`x[.., c / n, .., c % n, ..]` at all `c` from some number on: two axes as one."""
    for major, place in op.index:
        match place.op:
            case Map("//", (whole, by)) if len(whole.axes) == 1:
                for minor, other in op.index:
                    match other.op:
                        case Map("%", (same, unit)) if same is whole and unit is by:
                            found = _as_one(op, major, minor, whole, by)
                            if found is not None:
                                return found
    return None


def _as_one(op: Read, major: Coordinate, minor: Coordinate, whole: Value, by: Value) -> Merge | None:
    (axis,) = whole.axes
    begin = None if whole.known.whole is None else whole.known.whole - of_atom(axis.name)
    if begin is None or axis.name in begin.atoms or by.known.whole != polynomial(op.source.extent(minor)):
        return None
    others = [(name, at) for name, at in op.index if name not in (major, minor)]
    if {axis.name, major, minor} & frozenset[Coordinate]().union(*(at.names for _, at in others)):
        return None
    left = value(Read(op.source, tuple(others), op.outside, op.under)) if others else op.source
    merge = Merge(left, major, minor, axis, begin)
    is_apart = axis.name not in left.names - {major, minor}
    return merge if is_apart and (op.outside == "never" or merge.is_whole) else None
