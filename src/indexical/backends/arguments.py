"""The inputs of an emitted function."""

from __future__ import annotations

from ..ir.types import Dtype
from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """An input as it arrives: its number of axes, and its dtype; None is a plain Python number."""

    axes: int
    dtype: Dtype | None
    converted: bool = False
