"""The bytes that a call holds where gradients are asked for: what is kept for the way back, and what is there on it.

Autograd keeps arrays of an operation until the gradient of its result has arrived and those of its operands are made,
the last operation first. Definitions that are computed again keep what they read; on the way back they run once more,
and then their operations go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cached_property
from math import prod

from ..records import dataclass
from .kept import Keeping, rows_of
from .ledger import Ledger
from .ops import Carried, Opaque, Read, Result, Value
from .order import roots_of
from .show import Again


@dataclass(frozen=True, slots=True)
class Node:
    """An operation that a gradient goes through: what it makes, and the arrays that are kept for it. Of definitions
    that are computed again, also their statements and what they read."""

    values: tuple[Value, ...]
    kept: tuple[int, ...]
    span: tuple[int, int] | None = None
    takes: tuple[Value, ...] = ()


class Call(Keeping):
    """A call that is differentiated."""

    def begin(self) -> None:
        super().begin()
        self.nodes: list[Node] = []
        self.turns: dict[int, int] = {}  # For an array of a turn, those of all others that are kept.
        self.nested = False

    def whole(self, again: Again) -> Ledger:
        """The ledger of the call, there and back."""
        self.begin()
        at = 0
        for start, stop in self.spans(again):
            self.run(at, start)
            self._apart(start, stop)
            at = stop
        self.run(at, len(self.text.values))
        results = super().ledger().results
        self._return()
        kept, keepers = self._all_kept()
        self._back(self.nodes, self._arriving())
        return Ledger(tuple(self.rows), results, kept, keepers)

    def _all_kept(self) -> tuple[dict[Value, int], dict[Value, int]]:
        """The bytes that are kept, by what made them, and by the first operation that keeps them."""
        made: Counter[Value] = Counter()
        keepers: Counter[Value] = Counter()
        seen: set[int] = set()
        for node in self.nodes:
            for array in node.kept:
                if array not in seen and array in self.own:
                    made[self.own[array]] += self.pool.sizes[array]
                    keepers[node.values[0]] += self.pool.sizes[array]
                seen.add(array)
        return {one: size for one, size in made.items() if size}, dict(keepers)

    def spans(self, again: Again) -> list[tuple[int, int]]:
        """The statements of groups of definitions."""
        names = list(self.text.ends)
        firsts = [names.index(part[0]) for part in again]
        starts = [self.text.ends[names[first - 1]] if first else 0 for first in firsts]
        found = [(start, self.text.ends[part[-1]]) for start, part in zip(starts, again, strict=True)]
        return [(start, stop) for start, stop in found if start < stop]

    def _return(self) -> None:
        """Let go of all names but those of results."""
        results = set(roots_of(self.plan))
        for one in [one for one in self.storage if one not in results]:
            self.free(one)
        for array in self.stacked:
            self.pool.drop(array)

    def rows_beside(self, one: Value) -> int:
        """None where all of them are kept anyway."""
        assert isinstance(one.op, Result)
        rows = {self.storage.get(row) for row in rows_of(one.op.loop)}
        read = {array for array in self.turns if _source(self.own[array]) == one.op.of}
        return 0 if rows & self.turns.keys() or read else super().rows_beside(one)

    def _arriving(self) -> dict[Value, int]:
        """Gradients of all results, which whoever asks for them has as long as the way back takes."""
        found: dict[Value, int] = {}
        for name in self.plan.wanted:
            one = self.plan.definitions[name].value
            if self.is_learned(one) and one not in found:
                found[one] = self.pool.hold(self.pool.new(self.counted.bytes(one)))
        return found

    # ---------------------------------------------------------------------- there

    def let_go(self, one: Value, before: Collection[Value]) -> None:
        """A name is gone, unless it is of before: then whoever called has it, too."""
        if one not in before or not self.nested:
            self.free(one)

    def keep(self, one: Value) -> int:
        """Keep what the way back reads of an operation."""
        if not self.is_learned(one):
            return 0
        before = self.pool.live
        arrays = [self.pool.hold(self.storage[part]) for part in self.once(self.keeps, one) if part in self.storage]
        own = self.once(self.kept_beside, one)
        if own:
            arrays.append(self.pool.new(own))
            self.own[arrays[-1]] = one
        arrays += [more for array in arrays for more in self._of_all_turns(array)]
        values = tuple(self.made_with(one)) if isinstance(one.op, Opaque) else (one,)
        self.nodes.append(Node(values, tuple(arrays)))
        return self.pool.live - before

    def _of_all_turns(self, array: int) -> list[int]:
        """For an array that is made in each turn of a loop, those of all others."""
        one = self.own.get(array)
        if one is None or not one.symbols or array in self.turns:
            return []
        turns = prod(self.counted.turns[symbol] for symbol in one.symbols)
        self.turns[array] = self.pool.new((turns - 1) * self.pool.sizes[array])
        self.own[self.turns[array]] = one
        return [self.turns[array]]

    # --------------------------------------------------------------- computed again

    def _apart(self, start: int, stop: int) -> None:
        """Statements whose arrays are not kept, but for what they read and what is read after them."""
        nodes, self.nodes = self.nodes, []
        before = set(self.storage)
        self.nested = True
        self.run(start, stop)
        self.nested = False
        inside, self.nodes = self.nodes, nodes
        for node in inside:
            self._drop(node)
        takes, gives = self._border(start, stop, before)
        for one in [one for one in self.storage if one not in before and one not in gives]:
            self.free(one)
        learned = tuple(one for one in gives if self.is_learned(one))
        kept = tuple(self.pool.hold(self.storage[one]) for one in takes)
        if learned:
            self.nodes.append(Node(learned, kept, (start, stop), takes))
        for _, gone in self.text.values[start:stop]:
            for one in gone:
                if one in before:
                    self.free(one)

    def _border(self, start: int, stop: int, before: Collection[Value]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """What statements read that is there before them, and what is read after them."""
        whole = (self.once(self.expression, one) for one, _ in self.text.values[start:stop])
        read = dict.fromkeys(part for some in whole for one in some for part in self.once(self.parts, one))
        takes = tuple(one for one in read if one in before and not one.is_host)
        gives = tuple(one for one in self.storage if one not in before and self.last.get(one, -1) >= stop)
        return takes, gives

    @cached_property
    def last(self) -> dict[Value, int]:
        """The last statement that reads a value; results are read after all of them."""
        found: dict[Value, int] = {}
        for n, (one, _) in enumerate(self.text.values):
            for each in self.once(self.expression, one):
                found |= dict.fromkeys(self.once(self.parts, each), n)
        return found | dict.fromkeys(roots_of(self.plan), len(self.text.values))

    def _drop(self, node: Node) -> None:
        for array in node.kept:
            self.pool.drop(array)

    # ------------------------------------------------------------------------- back

    def _back(self, nodes: list[Node], gradients: dict[Value, int]) -> None:
        """The way back through these operations. What is left of the gradients are those of what was there before."""
        for node in reversed(nodes):
            arrived = [gradients.pop(one) for one in node.values if one in gradients]
            if arrived:
                made = self._again(node, arrived) if node.span is not None else self._derived(node.values[0], arrived)
            else:
                made = []
            self._drop(node)
            for array in arrived:
                self.pool.drop(array)
            for one, array in made:
                self._add(gradients, one, array)

    def _derived(self, one: Value, arrived: list[int]) -> list[tuple[Value, int]]:
        """The gradients to the operands of an operation."""
        made = []
        for part in self.once(self.reached, one):
            alike = isinstance(part.op, Carried) or self.passes(one, part)
            made.append((part, self.pool.hold(arrived[0]) if alike else self.pool.new(self.counted.bytes(part))))
        self.look(one, 0, self.once(self.workspace_back, one))
        return made

    def _again(self, node: Node, arrived: list[int]) -> list[tuple[Value, int]]:
        """Definitions are computed again, and go back."""
        assert node.span is not None
        outer = self.storage, self.nodes, self.turns
        leaves = {one: self.storage[one] for one in self.leaves}
        self.storage, self.nodes, self.turns = {**leaves, **dict(zip(node.takes, node.kept, strict=True))}, [], {}
        before = set(self.storage)
        self.nested = True
        self.run(*node.span)
        self.nested = False
        for one in [one for one in self.storage if one not in before]:
            self.free(one)
        inner, self.nodes = self.nodes, outer[1]
        # A gradient that did not arrive is left out: which it was does not matter for the bytes.
        gradients = {one: self.pool.hold(array) for one, array in zip(node.values, arrived, strict=False)}
        self._back(inner, gradients)
        self.storage, _, self.turns = outer
        taken = set(node.takes) | leaves.keys()
        for one in [one for one in gradients if one not in taken]:
            self.pool.drop(gradients.pop(one))
        return list(gradients.items())

    def _add(self, gradients: dict[Value, int], one: Value, array: int) -> None:
        """Add a gradient to what has arrived: in place, where nobody else has that."""
        old = gradients.get(one)
        if old is None:
            gradients[one] = array
            return
        if self.pool.users[old] > 1:
            gradients[one] = self.pool.new(self.pool.sizes[array])
            self.look(one, 0, 0)
            self.pool.drop(old)
        self.pool.drop(array)


def _source(one: Value) -> object:
    """What a value is read from."""
    return one.op.source.op if isinstance(one.op, Read) else None


