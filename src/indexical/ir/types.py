"""What an expression is, and what it varies over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["bool", "whole", "real"]
Dtype = Literal["bool", "i32", "i64", "f16", "bf16", "f32", "f64"]

KIND_OF: dict[str, Kind] = {
    "bool": "bool",
    "i32": "whole",
    "i64": "whole",
    "f16": "real",
    "bf16": "real",
    "f32": "real",
    "f64": "real",
}


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A named integer index, living in one statement.

    `rest` stands for `..r` at the head of an input's bracket: all leading axes as one, however many
    arrive. `space` is the declared kind of the coordinate, and takes no part in its identity.
    """

    name: str
    rest: bool = False
    space: str | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return f"..{self.name}" if self.rest else self.name


@dataclass(frozen=True, slots=True)
class Type:
    """The kind of an element, and the set of coordinates it varies over."""

    kind: Kind
    coordinates: frozenset[Coordinate]


NOWHERE: frozenset[Coordinate] = frozenset()


def join(kinds: Iterable[Kind]) -> Kind:
    """The kind that holds values of all these: a whole number meeting a real becomes real."""
    found = set(kinds)
    if len(found) == 1:
        return found.pop()
    return "real" if "real" in found else "whole"
