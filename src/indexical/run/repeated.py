"""Calls that come again but for some sizes: steps of decoding, whose weights stay and whose past grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from ..records import dataclass
from . import tensors
from .known import Values, alike, unlike
from .sized import for_sizes


@dataclass(frozen=True)
class Repeated:
    """The inputs of such calls, by their places: `held` are the same arrays in all calls, unless they are replaced; of
    `growing` each has some size along an axis, which is counted from the end. `own` are those of `held` that nobody
    replaces by others of the same sizes."""

    held: tuple[int, ...]
    growing: Mapping[int, int]
    own: frozenset[int] = frozenset()

    def known(
        self, function: Callable[..., Any], values: Values
    ) -> tuple[Callable[..., bool], Callable[..., Any]] | None:
        """A test for calls like this one, and the function for them; None where there is none."""
        if not all(tensors.is_tensor(value) or type(value) is int for value in values):
            return None
        arrays = [place for place, value in enumerate(values) if tensors.is_tensor(value)]
        held = [place for place in self.held if place in set(arrays)]
        foreign = [place for place in held if place not in self.own]
        growing = {arrays.index(place): axis for place, axis in self.growing.items()}
        guard = alike(tuple(values[place] for place in arrays), True, growing)
        if guard is unlike:
            return None
        made = for_sizes(function, values, self.growing, held)
        return None if made is None else (_Same(values, guard, arrays, foreign), made)


class _Same:
    """A test whether arrays have the sizes and all else of those before, and the held ones lie where they did: a view
    that was made then has their numbers now. It keeps their memory, where no other array can come to lie."""

    def __init__(self, values: Values, guard: Callable[..., bool], arrays: list[int], held: list[int]) -> None:
        self._guard, self._point = guard, tensors.load_torch().Tensor.data_ptr
        self._arrays = None if len(arrays) == len(values) else arrays
        self._numbers = [place for place in range(len(values)) if place not in set(arrays)]
        self._held = itemgetter(*held, *held[:1]) if held else _none
        self._pointers = list(map(self._point, self._held(values)))
        self._same = [values[place].detach() for place in held]
        self.ended = False

    def __call__(self, *values: Any) -> bool:
        arrays = values
        if self._arrays is not None:
            arrays = tuple([values[place] for place in self._arrays])
            if any(type(values[place]) is not int for place in self._numbers):
                return False
        if not self._guard(*arrays):
            return False
        self.ended = list(map(self._point, self._held(values))) != self._pointers
        return not self.ended


def _none(values: Values) -> Values:
    return ()
