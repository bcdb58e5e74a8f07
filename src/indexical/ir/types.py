"""What an expression is, and what it varies over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


class Coordinate(str):
    """A named integer index, living in one statement. It is its name, and compares as its name.

    `rest` stands for `..r` at the head of an input's bracket: all leading axes as one, however many
    arrive. `space` is the declared kind of the coordinate, and takes no part in its identity.
    """

    __slots__ = ("name", "rest", "space")

    name: str
    rest: bool
    space: str | None

    def __new__(cls, name: str, rest: bool = False, space: str | None = None) -> Coordinate:
        self = str.__new__(cls, f"..{name}" if rest else name)
        self.name, self.rest, self.space = name, rest, space
        return self

    def __repr__(self) -> str:
        return f"Coordinate({str(self)!r})"

    def __reduce__(self) -> tuple[type, tuple[str, bool, str | None]]:
        return Coordinate, (self.name, self.rest, self.space)


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
