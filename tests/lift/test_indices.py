"""Index arithmetic against brute force: what a view reads, point by point."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from indexical.ir.affine import Polynomial, number
from indexical.lift.indices import Axis, Extent, Quotient, Remainder, atom, bounds, measured, reshaped, split


def value(index: Polynomial, at: dict[Any, int]) -> int:
    """The number that an index is at a point; a size is that of the first run."""
    total = 0
    for monomial, factor in index.terms.items():
        for part, power in monomial:
            found: Any = part
            match found:
                case Extent(sizes):
                    one = sizes[0]
                case Quotient(of, by):
                    one = value(of, at) // value(by, at)
                case Remainder(of, by):
                    one = value(of, at) % value(by, at)
                case _:
                    one = at[found]
            factor *= one**power
        total += factor
    return total


def shapes(seed: int) -> tuple[list[Polynomial], list[Polynomial]]:
    """Two shapes of the same number of points, of sizes that are known and of sizes that are not."""
    choose = random.Random(seed)
    known = [number(choose.choice((2, 3, 4))), atom(Extent((3, 5))), atom(Extent((2, 7))), number(2)]
    choose.shuffle(known)

    def merged() -> list[Polynomial]:
        found: list[Polynomial] = []
        for extent in known:
            if found and choose.random() < 0.5:
                found[-1] = found[-1] * extent
            else:
                found.append(extent)
        return [*found, number(1)] if choose.random() < 0.3 else found

    return merged(), merged()


@pytest.mark.parametrize("seed", range(12))
def test_a_view_reads_what_the_array_library_reads(seed: int) -> None:
    source, shape = shapes(seed)
    sizes, old = ([measured(extent)[0] for extent in given] for given in (shape, source))
    array = np.arange(int(np.prod(old))).reshape(old)
    axes = [Axis(extent) for extent in shape]
    indices = reshaped([atom(axis) for axis in axes], shape, source)
    viewed = array.reshape(sizes)
    for point in itertools.product(*map(range, sizes)):
        at: dict[Any, int] = dict(zip(axes, point, strict=True))
        assert array[tuple(value(index, at) for index in indices)] == viewed[point]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_put_together_is_taken_apart(seed: int) -> None:
    source, _ = shapes(seed)
    axes = [Axis(extent) for extent in source if extent.constant != 1]
    flat = number(0)
    for axis in axes:
        flat = flat * axis.extent + atom(axis)
    for axis in reversed(axes[1:]):
        flat, part = split(flat, axis.extent)
        assert part == atom(axis)
    assert flat == atom(axes[0])


def test_bounds_are_those_of_all_points() -> None:
    i, j = Axis(number(4)), Axis(atom(Extent((5, 3))))
    low_high = bounds(atom(i) * number(3) - atom(j))
    assert low_high is not None
    points = [3 * a - b for a in range(4) for b in range(5)]
    assert [value(end, {}) for end in low_high] == [min(points), max(points)]
