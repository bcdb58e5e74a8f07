"""The parts of a plan, as far as a call has to know them: they are kept with the emitted text, and the plan is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..ir import nodes as ir
from ..ir import whole
from ..records import dataclass
from ..source import Span
from .bind import Bound


@dataclass(frozen=True, slots=True)
class Array:
    """A definition, as large as its extents; `width` is how many bytes a point has."""

    name: str
    width: int
    extents: tuple[ir.Expr, ...]

    def points(self, bound: Bound) -> int:
        """The number of its points in a call."""
        return math.prod(map(bound.extent, self.extents))

    def size(self, bound: Bound) -> int:
        """The size of the array in bytes in a call; 0 where the sizes of coordinates do not determine it."""
        try:
            return self.width * self.points(bound)
        except whole.Unknown:
            return 0

    def to_json(self) -> list[Any]:
        return [self.name, self.width, *map(whole.to_json, self.extents)]

    @classmethod
    def from_json(cls, found: Any, span: Span) -> Array:
        name, width, *extents = found
        return cls(str(name), int(width), tuple(whole.from_json(extent, span) for extent in extents))


@dataclass(frozen=True, slots=True)
class Part:
    """One step of a plan: what it computes, and what its kernel computes on the way and never builds.

    It is an attention, or a derivative of one, where it `attends` or `derives`. `kept` says why it has all its scores
    in memory, `tiled` why the array library computes it tile by tile on a GPU; "" where that is not so. It is `wide`
    where the module that it is a part of computes with 64 bits, and `for_some` where that refuses calls that another
    one takes.
    """

    array: Array
    covers: tuple[Array, ...] = ()
    attends: bool = False
    derives: bool = False
    kept: str = ""
    tiled: str = ""
    wide: bool = False
    for_some: bool = False

    def to_json(self) -> dict[str, Any]:
        covers = [array.to_json() for array in self.covers]
        module = {"wide": self.wide, "for_some": self.for_some}
        words = {"kept": self.kept, "tiled": self.tiled, "attends": self.attends, "derives": self.derives}
        return {"array": self.array.to_json(), "covers": covers, **words, **module}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], span: Span) -> Part:
        covers = tuple(Array.from_json(array, span) for array in found["covers"])
        flags = bool(found["attends"]), bool(found["derives"]), str(found["kept"]), str(found["tiled"])
        return cls(Array.from_json(found["array"], span), covers, *flags, bool(found["wide"]), bool(found["for_some"]))
