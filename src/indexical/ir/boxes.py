"""Boxes of points, with known bounds: whether they cover a larger one, each point once."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Literal, TypeAlias

from ..records import dataclass

Box: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A point that no box has, or that two have. `boxes` are their numbers."""

    kind: Literal["gap", "overlap", "outside"]
    point: tuple[int, ...]
    boxes: tuple[int, ...]


def cover(boxes: list[Box], extents: tuple[int, ...]) -> Fault | None:
    """Return the fault that keeps the boxes from covering every point from 0 up to `extents` exactly once."""
    filled = [(number, box) for number, box in enumerate(boxes) if all(low < high for low, high in box)]
    for number, box in filled:
        if any(low < 0 or high > extent for (low, high), extent in zip(box, extents, strict=True)):
            corner = [low if low < 0 else high - 1 for low, high in box]
            return Fault("outside", tuple(corner), (number,))
    for index, (number, box) in enumerate(filled):
        for other_number, other in filled[:index]:
            if all(a < d and c < b for (a, b), (c, d) in zip(box, other, strict=True)):
                point = tuple(max(a, c) for (a, _), (c, _) in zip(box, other, strict=True))
                return Fault("overlap", point, (number, other_number))
    if sum(prod(high - low for low, high in box) for _, box in filled) == prod(extents):
        return None
    starts = [sorted({0, *(box[axis][1] for _, box in filled)} - {extent}) for axis, extent in enumerate(extents)]
    for point in product(*starts):
        if not any(all(a <= x < b for x, (a, b) in zip(point, box, strict=True)) for _, box in filled):
            return Fault("gap", point, ())
    return Fault("gap", tuple(0 for _ in extents), ())
