"""Attentions whose keys go round, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..ir.types import LIBRARY_NAMES
from ..transform.local import Interval
from .moving import Block, Transfer, Values
from .pieces import heard, passed, pulled, renamed, summed, weight
from .units import Rows, Unit

if TYPE_CHECKING:
    from .running import Run


class Round:
    """An attention whose keys go round, block by block; on the way back they go round again, with their cotangents."""

    def __init__(self, run: Run, unit: Unit) -> None:
        assert unit.ring is not None
        self.run, self.unit, self.ring = run, unit, unit.ring
        self.mesh, self.owned = run.mesh, run.owned
        self.dimension = self.ring.dimension
        (self.name,) = unit.names
        needs = unit.needs
        around = {n: {d: r for d, r in needs.get(n, {}).items() if d != self.dimension} for n in self.ring.passed}
        self.around = around
        self.passed = {name: run.fetch(name, around[name]) for name in self.ring.passed}
        still = [name for name in run.layout.read_by(unit) if name not in self.ring.passed or self._is_still(name)]
        self.held = run.held(unit, still)

    def _is_still(self, name: str) -> bool:
        return self.dimension in self.unit.needs.get(name, {})

    def rounds(self) -> list[dict[int, int]]:
        """The keys' block that each block of queries has in every round, where it has anything to do with it."""
        count = self.mesh.blocks(self.dimension)
        rounds = [{b: (b - step) % count for b in range(count)} for step in range(count)]
        some = (self.ring.counts > 0).tolist()
        return [{b: k for b, k in one.items() if some[b][k]} for one in rounds]

    def start(self, one: Mapping[int, int]) -> Callable[[], dict[str, Values]]:
        """Send the keys of a round; the function that is returned waits for those that arrive here."""
        waits = []
        for name in self.ring.passed:
            values = self.passed[name]
            place = self.run.axis(name, self.dimension)
            transfers = self.transfers(one, values, self.run.layout.rows(name, self.dimension), place)
            waits.append((name, transfers, self.run.carrier.move(transfers, values[self.owned[0]], self.dimension)))

        def finish() -> dict[str, Values]:
            found: dict[str, Values] = {}
            for name, transfers, wait in waits:
                arrays = zip(transfers, wait(), strict=True)
                found[name] = {t.target: a for t, a in arrays if a is not None and t.target in self.owned}
            return found

        return finish

    def transfers(self, one: Mapping[int, int], values: Values, own: Rows, axis: int) -> list[Transfer]:
        result = []
        for target in self.run.all(self.dimension):
            b = self.mesh.place(target, self.dimension)
            if b in one:
                source = self.mesh.line(target, self.dimension)[one[b]]
                first, last = self._keys(b, one[b])
                start, length = first - own[one[b]][0], last - first
                result.append(self.run.piece(values, self.dimension, source, target, axis, start, length))
        return result

    def heard_by(self, one: Mapping[int, int]) -> list[tuple[Block, int]]:
        """The blocks of queries here that have points, each with the block of keys that it has in a round."""
        places = [(block, one.get(self.mesh.place(block, self.dimension))) for block in self.owned]
        shape = self.run.layout.shape
        return [(block, k) for block, k in places if k is not None and 0 not in shape(self.name, block)]

    def _keys(self, b: int, k: int) -> Interval:
        found = self.ring.points(b, k)
        assert found is not None
        return found

    def call(self, block: Block, k: int, arrived: Mapping[str, Values]) -> tuple[dict[str, Any], list[Any]]:
        """The attention of a block's queries to some keys, and the logarithm of its weights' total."""
        keys = self._keys(self.mesh.place(block, self.dimension), k)
        program, names = self.run.programs.of_ring(self.unit, block, keys)
        given = {n: self.held[n][block] if n in self.held else arrived[passed(n)][block] for n in names}
        return self.run.run(program, names, given, (self.name,))

    def forward(self) -> None:
        """Compute the attention in rounds: while a block of keys is heard, the next one is under way."""
        run = self.run
        outs: Values = {}
        totals: Values = {}
        rounds = self.rounds()
        coming = self.start(rounds[0])
        for number, one in enumerate(rounds):
            arrived = coming()
            if number + 1 < len(rounds):
                coming = self.start(rounds[number + 1])
            for block, k in self.heard_by(one):
                _, (out, total) = self.call(block, k, arrived)
                self._join(block, out.detach(), total.detach(), outs, totals)
        like = next(iter(self.passed.values()))[self.owned[0]]
        dtype = getattr(torch, LIBRARY_NAMES[run.dtypes[self.name]])
        for block in self.owned:
            if block not in outs:
                outs[block] = torch.zeros(run.layout.shape(self.name, block), dtype=dtype, device=like.device)
        run.values[self.name] = outs
        if self.name in run.learned:
            run.back.append(lambda: self.backward(outs, totals, rounds))

    def _join(self, block: Block, out: Any, total: Any, outs: Values, totals: Values) -> None:
        """Put what some keys gave beside what others gave, by the totals of their weights."""
        shape = self.run.layout.shape_beside(self.name, block)
        if block not in outs:
            outs[block], totals[block] = heard(out, total, shape), total
            return
        both = torch.logaddexp(totals[block], total)
        old, new = (weight(x, both).reshape(shape) for x in (totals[block], total))
        outs[block] = outs[block] * old + heard(out, total, shape) * new
        totals[block] = both

    def backward(self, outs: Values, totals: Values, rounds: list[dict[int, int]]) -> None:
        """Let the keys go round once more, and return to each the gradient that its blocks of queries owe it."""
        run = self.run
        given = run.arrived(self.name)
        still = {n: {b: torch.zeros_like(x) for b, x in self.held[n].items()} for n in self.held if n in run.learned}
        sent = {n: {b: torch.zeros_like(x) for b, x in v.items()} for n, v in self.passed.items() if n in run.learned}
        coming = self.start(rounds[0])
        for number, one in enumerate(rounds):
            arrived = coming()
            if number + 1 < len(rounds):
                coming = self.start(rounds[number + 1])
            returned: dict[str, Values] = {name: {} for name in sent}
            for block, k in self.heard_by(one):
                found = self._pulled(block, k, arrived, outs[block], totals[block], given[block])
                for name in still:
                    if found.get(name) is not None:
                        still[name][block] += found[name]
                for name in sent:
                    returned[name][block] = found.get(f"{name}_passed")
            self._return(one, returned, sent)
        for name, values in still.items():
            run.give_back(self.unit, name, values, self.unit.needs.get(name, {}))
        for name, values in sent.items():
            run.give_back(self.unit, name, values, self.around[name])

    def _pulled(
        self, block: Block, k: int, arrived: Mapping[str, Values], out: Any, total: Any, given: Any
    ) -> dict[str, Any]:
        leaves, (part, share) = self.call(block, k, arrived)
        shape = self.run.layout.shape_beside(self.name, block)
        weighted = weight(share.detach(), total).reshape(shape)
        gone = weighted * (heard(part.detach(), share.detach(), shape) - out) * given
        found = pulled(leaves, [part, share], [weighted * given, summed(gone, shape, share.shape)])
        return {renamed(name): array for name, array in found.items()}

    def _return(self, one: Mapping[int, int], returned: Mapping[str, Values], sent: Mapping[str, Values]) -> None:
        """Send the cotangents of keys back to the blocks that these came from, and add them there."""
        for name, sums in sent.items():
            axis = self.run.axis(name, self.dimension)
            own = self.run.layout.rows(name, self.dimension)
            transfers, places = [], []
            like = self.passed[name][self.owned[0]]
            for there in self.transfers(one, self.passed[name], own, axis):
                array = None
                if there.target in self.owned:
                    found = returned[name].get(there.target)
                    array = like.new_zeros(there.shape) if found is None else found
                transfers.append(Transfer(there.target, there.source, there.shape, array))
                b, k = (self.mesh.place(block, self.dimension) for block in (there.target, there.source))
                places.append(self._keys(b, k)[0] - own[k][0])
            arrays = self.run.moved(transfers, self.passed[name], self.dimension)
            for back, array, at in zip(transfers, arrays, places, strict=True):
                if array is not None and back.target in sums:
                    sums[back.target].narrow(axis, at, array.shape[axis]).add_(array)
