"""Keys that the rows of a block hear: where none hears a key behind itself, there are none behind the last row."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import nodes as ir
from ....ir.affine import no_constants
from ....ir.conditions import conjuncts_of
from ....ir.prefixes import order_of
from ....ir.types import Coordinate
from ....ir.walk import parts_of, reads_of, walk
from ....records import dataclass, field

# Functions that are 0 at 0.
_KEEP_ZERO = ("neg", "relu", "abs")


def early_keys(
    lets: Mapping[str, ir.Let], inner: Mapping[str, int], totals: set[str], weights: str, key: int
) -> dict[str, frozenset[Coordinate]] | None:
    """The coordinates of keys in each of the definitions of a block, which may all end with its last row; None where
    some row needs a later key. `inner` are computed row by row, along these axes; `weights` have the keys along
    another, and `totals` are sums over all rows."""
    search = _Search(lets, inner, totals, {weights: key}, lets[weights].axes[key].extent)
    return search.coordinates if search.spread() and all(map(search.is_early, search.coordinates)) else None


@dataclass
class _Search:
    lets: Mapping[str, ir.Let]
    inner: Mapping[str, int]
    totals: set[str]
    axes: dict[str, int]
    extent: ir.Expr
    coordinates: dict[str, frozenset[Coordinate]] = field(default_factory=dict)

    def spread(self) -> bool:
        """Find the axes and coordinates that run over keys; False where they are read at something else."""
        changed = True
        while changed:
            before = dict(self.axes), dict(self.coordinates)
            for name in (*self.inner, *self.totals):
                if not self._spread(name):
                    return False
            changed = before != (self.axes, self.coordinates)
        return True

    def _spread(self, name: str) -> bool:
        """Find the axis of keys in one definition and in what it reads; False where there are several, or it is that
        of the rows."""
        let = self.lets[name]
        slots = [slot.coordinate for slot in let.clauses[0].slots if isinstance(slot, ir.Coord)]
        found = {slots[self.axes[name]]} if name in self.axes else set()
        reads = [read for read in reads_of(let) if read.tensor in self.inner]
        for read in reads:
            if read.tensor in self.axes:
                index = read.indices[self.axes[read.tensor]]
                if not isinstance(index, ir.Coord):
                    return False
                found.add(index.coordinate)
        own = [n for n, slot in enumerate(slots) if slot in found]
        if len(own) > 1 or (own and (name not in self.inner or own[0] == self.inner[name])):
            return False
        if own:
            self.axes[name] = own[0]
        for read in reads:
            there = [n for n, i in enumerate(read.indices) if isinstance(i, ir.Coord) and i.coordinate in found]
            if read.tensor not in self.axes and there:
                if len(there) > 1 or there[0] == self.inner[read.tensor]:
                    return False
                self.axes[read.tensor] = there[0]
        self.coordinates[name] = frozenset(found)
        return True

    def is_early(self, name: str) -> bool:
        """Whether a definition needs no key behind the row, wherever it sums over keys or normalises."""
        let = self.lets[name]
        keys = self.coordinates[name]
        if not all(self._is_whole(range) for range in let.clauses[0].ranges if range.coordinate in keys):
            return False
        for part in (part for expr in parts_of(let) for part in walk(expr)):
            if isinstance(part, ir.Normalize) and part.coordinate in keys and not self._ends(part, let):
                return False
            if isinstance(part, ir.Reduce):
                if not all(self._is_whole(range) for range in part.ranges if range.coordinate in keys):
                    return False
                for key in part.coordinates & keys:
                    rows = self._rows(part, key)
                    # A key that is not behind another is early where that is.
                    bounded = any(_is_bounded(part.guard, key, row) for row in rows | (keys - part.coordinates))
                    if not bounded and not self._vanishes(part, key, rows):
                        return False
        return True

    def _is_whole(self, range: ir.Range) -> bool:
        """Whether a coordinate of keys runs over all of them: a part of the keys cannot end with the last row."""
        return not range.stated or (range.from_zero and range.upper == self.extent)

    def _rows(self, part: ir.Expr, key: Coordinate) -> set[Coordinate]:
        """The coordinate of the rows of what an expression reads at a key."""
        reads = [read for read in walk(part) if isinstance(read, ir.Read) and read.tensor in self.axes]
        there = [read for read in reads if read.indices[self.axes[read.tensor]].type.coordinates == {key}]
        indices = [read.indices[self.inner[read.tensor]] for read in there]
        return {index.coordinate for index in indices if isinstance(index, ir.Coord)}

    def _ends(self, part: ir.Normalize, let: ir.Let) -> bool:
        """Whether a normaliser over keys reads none behind the row."""
        if part.op == "cumsum":
            return True
        slot = let.clauses[0].slots[self.inner[let.name]] if let.name in self.inner else None
        return isinstance(slot, ir.Coord) and _is_bounded(part.guard, part.coordinate, slot.coordinate)

    def _vanishes(self, part: ir.Reduce, key: Coordinate, rows: set[Coordinate]) -> bool:
        """Whether what is summed is 0 behind the row."""
        return part.op == "sum" and len(rows) == 1 and self._is_zero(part.body, key, next(iter(rows)))

    def _is_zero(self, expr: ir.Expr, key: Coordinate, row: Coordinate) -> bool:
        """Whether an expression is 0 where the key is behind the row."""
        match expr:
            case ir.Map("*", arguments):
                return any(self._is_zero(part, key, row) for part in arguments)
            case ir.Map("/", (above, _)):
                return self._is_zero(above, key, row)
            case ir.Map("+" | "-", arguments):
                return all(self._is_zero(part, key, row) for part in arguments)
            case ir.Map(op, (inner,)) if op in _KEEP_ZERO:
                return self._is_zero(inner, key, row)
            case ir.Normalize("softmax", coordinate, _, guard):
                return coordinate == key and _is_bounded(guard, key, row)
            case ir.Reduce("sum"):
                return key not in expr.coordinates and self._is_zero(expr.body, key, row)
            case ir.Read(tensor, indices) if tensor in self.axes and tensor in self.inner:
                at = indices[self.axes[tensor]], indices[self.inner[tensor]]
                if not all(isinstance(index, ir.Coord) for index in at) or at[0].type.coordinates != {key}:
                    return False
                clause = self.lets[tensor].clauses[0]
                there = clause.slots[self.axes[tensor]], clause.slots[self.inner[tensor]]
                if at[1].type.coordinates != {row} or not all(isinstance(slot, ir.Coord) for slot in there):
                    return False
                (inner_key,), (inner_row,) = there[0].type.coordinates, there[1].type.coordinates
                bounded = _is_bounded(clause.guard, inner_key, inner_row)
                return bounded or self._is_zero(clause.body, inner_key, inner_row)
        return False


def _is_bounded(guard: ir.Expr | None, key: Coordinate, row: Coordinate) -> bool:
    """Whether a guard keeps no key behind the row."""
    for fact in conjuncts_of(guard):
        order = order_of(fact, key, frozenset((row,)), no_constants)
        shift = None if order is None or not order.forward else order.shift.constant
        if shift is not None and shift <= 0:
            return True
    return False
