"""Whole expressions as text beside their values: where a guard holds, and which numbers an index takes there.

A table is as long as its indices need under the guards that hold: one point further, and a read is out of bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Whole:
    """A whole expression, or with cells of bool a guard: its text, and its value at each point of a grid."""

    text: str
    cells: Array
    single: bool = True

    @property
    def tight(self) -> str:
        """The text as an operand of a product."""
        return self.text if self.single else f"({self.text})"

    def __add__(self, other: Whole | int) -> Whole:
        other = as_whole(other)
        return Whole(f"{self.text} + {other.text}", self.cells + other.cells, False)

    def __sub__(self, other: Whole | int) -> Whole:
        other = as_whole(other)
        return Whole(f"{self.text} - {other.tight}", self.cells - other.cells, False)

    def __mul__(self, other: Whole | int) -> Whole:
        other = as_whole(other)
        return Whole(f"{self.tight} * {other.tight}", self.cells * other.cells, False)

    def __floordiv__(self, by: int) -> Whole:
        """The language's quotient: towards zero."""
        cells = np.sign(self.cells) * (np.abs(self.cells) // by)
        return Whole(f"{self.tight} / {by}", cells, False)

    def __mod__(self, by: int) -> Whole:
        return Whole(f"{self.tight} % {by}", np.fmod(self.cells, by), False)

    def __neg__(self) -> Whole:
        return Whole(f"-{self.tight}", -self.cells, False)


def as_whole(value: Whole | int) -> Whole:
    return value if isinstance(value, Whole) else Whole(str(value), np.int64(value))  # type: ignore[arg-type]


def magnitude(a: Whole) -> Whole:
    return Whole(f"abs({a.text})", np.abs(a.cells))


def least(a: Whole, b: Whole | int) -> Whole:
    b = as_whole(b)
    return Whole(f"min({a.text}, {b.text})", np.minimum(a.cells, b.cells))


def greatest(a: Whole, b: Whole | int) -> Whole:
    b = as_whole(b)
    return Whole(f"max({a.text}, {b.text})", np.maximum(a.cells, b.cells))


def clamped(a: Whole, low: int, high: int) -> Whole:
    return Whole(f"clamp({a.text}, {low}, {high})", np.clip(a.cells, low, high))


_COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
_COMPARE |= {"==": np.equal, "!=": np.not_equal}


def compare(*parts: Whole | int | str) -> Whole:
    """A chain of comparisons: `compare(0, "<=", i, "<", n)`."""
    terms = [as_whole(part) for part in parts[::2]]  # type: ignore[arg-type]
    words = [terms[0].text]
    cells: Any = True
    for one, sign, other in zip(terms, parts[1::2], terms[1:], strict=False):
        words += [str(sign), other.text]
        cells = cells & _COMPARE[str(sign)](one.cells, other.cells)
    return Whole(" ".join(words), np.asarray(cells), False)


def either(a: Whole, b: Whole) -> Whole:
    return Whole(f"({a.text} || {b.text})", a.cells | b.cells)


class Grid:
    """The points of some coordinates, and those among them where the guards that were drawn so far hold.

    An `open` one takes further guards.
    """

    def __init__(self, sizes: Mapping[str, int], open: bool = True) -> None:
        self.open = open
        self.sizes = dict(sizes)
        mesh = np.ix_(*(np.arange(size, dtype=np.int64) for size in sizes.values()))
        self.at = {name: Whole(name, cells) for name, cells in zip(sizes, mesh, strict=True)}
        self.holds = np.ones(tuple(sizes.values()), bool)
        self.clauses: list[Whole] = []

    def size(self, name: str) -> Whole:
        return Whole(f"size({name})", np.int64(self.sizes[name]))  # type: ignore[arg-type]

    def require(self, clause: Whole) -> None:
        self.clauses.append(clause)
        self.holds = self.holds & clause.cells

    def reached(self, index: Whole) -> tuple[int, int] | None:
        """The least and the greatest number that an index takes where the guards hold; None where they never do."""
        cells = np.broadcast_to(index.cells, self.holds.shape)[self.holds]
        return (int(cells.min()), int(cells.max())) if cells.size else None

    def survives(self, *names: str) -> Array:
        """At which points of some of the coordinates the guards hold for some of the others, axes in their order."""
        order = list(self.sizes)
        others = tuple(n for n, name in enumerate(order) if name not in names)
        left = [name for name in order if name in names]
        return self.holds.any(axis=others).transpose([left.index(name) for name in names])

    def spread(self, cells: Array, *names: str) -> Array:
        """Cells over some of the coordinates, so that they broadcast over all."""
        order = list(self.sizes)
        left = [name for name in order if name in names]
        moved = cells.transpose([names.index(name) for name in left])
        return moved.reshape([self.sizes[name] if name in names else 1 for name in order])
