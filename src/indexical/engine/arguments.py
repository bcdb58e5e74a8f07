"""The inputs of an emitted function."""

from __future__ import annotations

from ..ir.types import Dtype
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
