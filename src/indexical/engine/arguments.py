"""The inputs of an emitted function, and the calls that it is for."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.types import Coordinate, Dtype
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """An input as it arrives: its number of axes, and its dtype; None is a plain Python number. One that is `converted`
    is an array of another dtype; a scalar that is `loose` may be a number or an array, and becomes what is said here.
    A `weak` scalar takes the dtype of whatever it meets, as a number does."""

    axes: int
    dtype: Dtype | None
    converted: bool = False
    loose: bool = False
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Calls that a text is printed for: their sizes, as far as all have the same, and whether one may want a gradient.
    What such calls never come to is not printed: there the text refuses, and one for any call takes its place."""

    sizes: Mapping[Coordinate, int]
    learns: bool


# The code of that refusal.
ELSEWHERE = "elsewhere"
