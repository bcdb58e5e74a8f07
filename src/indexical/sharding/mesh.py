"""A mesh: machines in rows and columns, each dimension with a name, and which block of an axis each of them holds."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from ..records import dataclass
from ..transform.local import Interval


@dataclass(frozen=True, slots=True)
class Mesh:
    """Dimensions by name, each of so many ranks. Along a `balanced` one, a rank of `n` holds two blocks of `2 n`: one
    counted from the front and one from the back, so that a causal program gives all of them as much to do."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    balanced: frozenset[str] = frozenset()

    def blocks(self, name: str) -> int:
        """The number of blocks that an axis is cut into along a dimension."""
        ranks = self.ranks[self.names.index(name)]
        return 2 * ranks if name in self.balanced and ranks > 1 else ranks

    def rank_of(self, name: str, block: int) -> int:
        """The rank along a dimension that holds a block."""
        count = self.blocks(name)
        return min(block, count - 1 - block) if count != self.ranks[self.names.index(name)] else block

    def held_by(self, name: str, rank: int) -> tuple[int, ...]:
        """The blocks that a rank holds along a dimension, in their order."""
        return tuple(block for block in range(self.blocks(name)) if self.rank_of(name, block) == rank)

    @property
    def everything(self) -> tuple[tuple[int, ...], ...]:
        """All blocks, each as its place along every dimension."""
        return tuple(product(*(range(self.blocks(name)) for name in self.names)))

    def line(self, block: tuple[int, ...], name: str) -> tuple[tuple[int, ...], ...]:
        """The blocks that differ from this one along one dimension alone, itself among them."""
        place = self.names.index(name)
        return tuple((*block[:place], other, *block[place + 1 :]) for other in range(self.blocks(name)))

    def place(self, block: tuple[int, ...], name: str) -> int:
        """The place of a block along a dimension."""
        return block[self.names.index(name)]

    def points(self, extent: int, name: str) -> tuple[Interval, ...]:
        """The points of an axis that each block along a dimension has: all alike but for the last, which may be shorter
        or empty."""
        return _points(extent, self.blocks(name))


@lru_cache
def _points(extent: int, count: int) -> tuple[Interval, ...]:
    length = -(-extent // count)
    return tuple((min(b * length, extent), min((b + 1) * length, extent)) for b in range(count))


def outside(need: Interval, own: Interval) -> int:
    """How many points of an interval are not in another."""
    if need[0] >= need[1]:
        return 0
    return need[1] - need[0] - max(0, min(need[1], own[1]) - max(need[0], own[0]))
