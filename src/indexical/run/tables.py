"""The parts of an evaluation: numbers, tables of them, and expressions that wait for a point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ..records import dataclass, field
from .wholes import Point

# An expression, looked at once: given a point, its value there. The point is only read, and not kept.
Stage: TypeAlias = Callable[[Point], Any]


class Numbers(Protocol):
    """A type of real numbers. They add, subtract, multiply and compare by Python's own operators."""

    @property
    def infinity(self) -> Any: ...
    @property
    def nan(self) -> Any: ...
    @property
    def pi(self) -> Any: ...
    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]: ...
    def number(self, value: Any) -> Any: ...
    def total(self, values: list[Any]) -> Any:
        """The sum of reals, in their order; 0 of none."""

    def divide(self, a: Any, b: Any) -> Any: ...
    def remainder(self, a: Any, b: Any) -> Any: ...
    def power(self, a: Any, b: Any) -> Any: ...
    def cast(self, value: Any, dtype: str) -> Any: ...
    def softmax(self, scores: list[Any]) -> list[Any]: ...
    def log_softmax(self, scores: list[Any]) -> list[Any]: ...


@dataclass(slots=True)
class Table:
    """The cells of a tensor, in row-major order. None is an absent point; `removed` are the places of
    values that are 0 because a guard removed what they are made of."""

    shape: tuple[int, ...]
    cells: list[Any]
    removed: set[int] = field(default_factory=set)

    def offset(self, place: tuple[int, ...]) -> int:
        result = 0
        for index, length in zip(place, self.shape, strict=True):
            result = result * length + index
        return result

    def place(self, offset: int) -> tuple[int, ...]:
        """The other way round."""
        result = []
        for length in reversed(self.shape):
            offset, index = divmod(offset, length)
            result.append(index)
        return tuple(reversed(result))


class Uncomputed:
    """The mark of a point that is still to be computed."""
