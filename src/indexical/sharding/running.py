"""A layout that runs: unit after unit, with what has to be sent between them, and the same backward.

All ranks go through the same steps in the same order, whatever of it concerns them: so nobody waits for a message that
is not sent. The way back is not left to the graph of PyTorch, whose order is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ..ir import nodes as ir
from ..ir.types import LIBRARY_NAMES, Dtype
from .learning import learned_by
from .moving import Block, Carrier, Transfer, Values
from .pieces import cut, part, passed, pulled, together
from .programs import Programs
from .rings import Round
from .states import hand_on
from .totals import add_up, merge
from .units import Layout, Rows, Unit


class Run:
    """One call: the values of every tensor on the blocks that are held here, and the steps of the way back."""

    def __init__(
        self, layout: Layout, programs: Programs, carrier: Carrier, dtypes: Mapping[str, Dtype], learned: Iterable[str]
    ) -> None:
        self.layout, self.programs, self.carrier, self.dtypes = layout, programs, carrier, dtypes
        self.mesh, self.owned = carrier.mesh, carrier.owned
        self.learned = _with_parts(layout, learned_by(layout, set(learned)))
        self.values: dict[str, Values] = {}
        self.fetched: dict[tuple[object, ...], Values] = {}
        self.back: list[Callable[[], None]] = []
        self.arriving: dict[str, dict[frozenset[str], Values]] = {}

    @property
    def device(self) -> Any:
        """The device of the arrays."""
        return next(iter(self.values.values()))[self.owned[0]].device

    # ------------------------------------------------------------------------ forward

    def forward(self, inputs: Mapping[str, Values]) -> None:
        """Compute every unit."""
        self.values.update(inputs)
        for unit in self.layout.units:
            if unit.ring is not None:
                Round(self, unit).forward()
            elif unit.handed is not None:
                hand_on(self, unit, unit.handed)
            else:
                self._unit(unit)

    def _unit(self, unit: Unit) -> None:
        """Compute a unit on every block of this process, and add up what is in parts; on the way back, the reverse."""
        held = self.held(unit)
        runs = {block: self._called(unit, block, held) for block in self.owned}
        names = self._names(unit)
        for number, name in enumerate(names):
            self.values[name] = {block: runs[block][1][number].detach() for block in self.owned}

        def back() -> None:
            given = {name: self.arrived(name) for name in names if name in self.learned}
            leaves = {
                block: pulled(*runs[block], [given[n][block] if n in given else None for n in names])
                for block in self.owned
            }
            self.return_cotangents(unit, held, leaves)

        if self.learned & set(names):
            self.back.append(back)
        if unit.merged is not None:
            merge(self, unit, names)
        else:
            add_up(self, unit)

    def _names(self, unit: Unit) -> tuple[str, ...]:
        """The names of what the program of a unit gives: parts of sums have other names until they are whole."""
        parts = tuple(part(name) if self._is_sum(unit, name) else name for name in unit.wanted)
        return parts if unit.merged is None else (*parts, f"{unit.wanted[0]} total")

    def _is_sum(self, unit: Unit, name: str) -> bool:
        return any(cut.way == "sum" for cut in unit.cuts[name].values())

    def _called(self, unit: Unit, block: Block, held: Mapping[str, Values]) -> tuple[dict[str, Any], list[Any]]:
        """The inputs of a block's program that have a gradient, and what it gives."""
        alive = self.programs.alive(unit, block)
        if alive == unit.wanted:
            program, names = self.programs.of_unit(unit, block)
            return self.run(program, names, {name: held[name][block] for name in names}, alive)
        leaves: dict[str, Any] = {}
        found: list[Any] = []
        if alive:
            program, names = self.programs.of_unit(unit, block)
            leaves, found = self.run(program, names, {name: held[name][block] for name in names}, alive)
        known = dict(zip(alive, found, strict=False))
        outs = [known[name] if name in known else self._nothing(unit, name, block) for name in unit.wanted]
        if unit.merged is not None:
            outs = [outs[0], self._no_total(unit, block, outs[0])]
        return leaves, outs

    def _no_total(self, unit: Unit, block: Block, like: Any) -> Any:
        """The logarithm of the weights of no keys."""
        beside = self.layout.shape_beside(unit.wanted[0], block)
        kept = [n for n, length in zip(beside, like.shape, strict=True) if n == length]
        return torch.full(beside, -torch.inf, dtype=like.dtype, device=like.device).reshape(kept)

    def _nothing(self, unit: Unit, name: str, block: Block) -> Any:
        """A definition without points, or the sum of none."""
        body = self.layout.program.definitions[name].clauses[0].body
        op = body.op if self._is_sum(unit, name) and isinstance(body, ir.Reduce) else "sum"
        value = {"max": -torch.inf, "min": torch.inf, "all": True}.get(op, 0)
        dtype = getattr(torch, LIBRARY_NAMES[self.dtypes[name]])
        shape = list(self.layout.shape(name, block))
        for dimension, way in unit.cuts[name].items():
            if way.scatter is not None:
                shape[self.axis(name, dimension)] = self.layout.rows(name, dimension)[-1][1]
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def run(
        self, program: Any, names: tuple[str, ...], given: Mapping[str, Any], wanted: tuple[str, ...]
    ) -> tuple[dict[str, Any], list[Any]]:
        """The inputs of a program that have a gradient, and what it gives: what is wanted, and what comes with it."""
        wants = bool(self.learned)
        arrays = {name: given[name].detach() for name in names}
        leaves = {name: x.requires_grad_() for name, x in arrays.items() if wants and self._is_learned(name)}
        # A block that only has literals to compute with has no dtype of its own.
        dtypes = [getattr(torch, LIBRARY_NAMES[self.dtypes[name]]) for name in wanted]
        with torch.enable_grad() if leaves else torch.no_grad():
            found = program(*arrays.values())
            several = list(found) if len(program.outputs) > 1 else [found]
            outs = [x if isinstance(x, torch.Tensor) else torch.tensor(x, device=self.device) for x in several]
            outs[: len(dtypes)] = [x.to(dtype) for x, dtype in zip(outs, dtypes, strict=False)]
        return leaves, outs

    def _is_learned(self, name: str) -> bool:
        return name in self.learned or name.removesuffix("_before") in self.learned or passed(name) in self.learned

    # ------------------------------------------------------------------------ what others hold

    def held(self, unit: Unit, names: Iterable[str] | None = None) -> dict[str, Values]:
        """The arrays that a unit reads, on every block: its own points, and those that are sent to it."""
        names = self.layout.read_by(unit) if names is None else names
        return {name: self.fetch(name, unit.needs.get(name, {})) for name in names}

    def fetch(self, name: str, needs: Mapping[str, Rows]) -> Values:
        """The points of a tensor that each block needs along each dimension that splits it."""
        known: tuple[object, ...] = (name,)
        values = self.values[name]
        for dimension, rows in needs.items():
            known = (*known, dimension, rows)
            if rows == self.layout.rows(name, dimension):
                continue
            if known not in self.fetched:
                self.fetched[known] = self.gathered(name, values, dimension, rows)
            values = self.fetched[known]
        return values

    def gathered(self, name: str, values: Values, dimension: str, rows: Rows) -> Values:
        """The points of a tensor that blocks need along a dimension, from those that hold it."""
        axis = self.axis(name, dimension)
        transfers, _ = self.pieces(values, dimension, self.layout.rows(name, dimension), rows, axis)
        found: dict[Block, list[Any]] = {block: [] for block in self.owned}
        for one, array in zip(transfers, self.moved(transfers, values, dimension), strict=True):
            if array is not None and one.target in found:
                found[one.target].append(array)
        return {block: together(arrays, values[block], axis) for block, arrays in found.items()}

    def pieces(
        self, values: Values, dimension: str, held: Rows, wanted: Rows, axis: int
    ) -> tuple[list[Transfer], list[int]]:
        """The pieces of what blocks hold that make up what is wanted of them along a dimension, target by target in
        their order; and the place in its target at which each begins."""
        transfers, places = [], []
        for target in self.all(dimension):
            first, last = wanted[self.mesh.place(target, dimension)]
            for source in self.mesh.line(target, dimension):
                start, end = held[self.mesh.place(source, dimension)]
                lower, upper = max(first, start), min(last, end)
                if lower < upper:
                    transfers.append(self.piece(values, dimension, source, target, axis, lower - start, upper - lower))
                    places.append(lower - first)
        return transfers, places

    def piece(
        self, values: Values, dimension: str, source: Block, target: Block, axis: int, start: int, length: int
    ) -> Transfer:
        """Some points of what a block holds, to be sent to another on the same line."""
        array = values.get(source)
        # Blocks of one line differ along its dimension alone.
        shape = list(next(values[block] for block in self.mesh.line(source, dimension) if block in values).shape)
        shape[axis] = length
        return Transfer(source, target, tuple(shape), None if array is None else array.narrow(axis, start, length))

    def moved(self, transfers: list[Transfer], values: Values, dimension: str) -> list[Any]:
        """The arrays that arrive here, None for others."""
        return self.carrier.move(transfers, values[self.owned[0]], dimension)()

    def all(self, dimension: str) -> list[Block]:
        """The blocks of all lines along a dimension on which some block is held here."""
        found: dict[Block, None] = {}
        for block in self.owned:
            found.update(dict.fromkeys(self.mesh.line(block, dimension)))
        return sorted(found)

    def axis(self, name: str, dimension: str) -> int:
        """The place of the split axis in the array, where `..r` may be several axes or none."""
        axis = self.layout.homes[name][dimension]
        axes = self.layout.program.tensors[name].axes
        if axes and axes[0].coordinate.rest:
            return axis - 1 + len(self.layout.rests.get(axes[0].coordinate.name, ()))
        return axis

    # ------------------------------------------------------------------------ backward

    def backward(self, cotangents: Mapping[str, Values], inputs: Iterable[str]) -> dict[str, Values]:
        """The cotangents of inputs, from those of outputs."""
        for name, values in cotangents.items():
            self.give(name, frozenset(), values)
        for step in reversed(self.back):
            step()
        return {name: self.arrived(name) for name in inputs}

    def give(self, name: str, partial: frozenset[str], values: Values) -> None:
        """Add to the cotangent of a tensor; along `partial` dimensions each block has only a part of it."""
        known = self.arriving.setdefault(name, {})
        before = known.get(partial)
        known[partial] = dict(values) if before is None else {b: before[b] + values[b] for b in self.owned}

    def arrived(self, name: str) -> Values:
        """The cotangent of a tensor, on every block in full."""
        result: Values | None = None
        for partial, values in sorted(self.arriving.pop(name, {}).items(), key=lambda pair: sorted(pair[0])):
            for dimension in sorted(partial):
                values = self.carrier.total(values, dimension, "sum")
            result = dict(values) if result is None else {b: result[b] + values[b] for b in self.owned}
        if result is None:
            held = self.values.get(name)
            assert held is not None, name
            return {block: torch.zeros_like(held[block]) for block in self.owned}
        return result

    def return_cotangents(
        self, unit: Unit, held: Mapping[str, Values], leaves: Mapping[Block, Mapping[str, Any]]
    ) -> None:
        """Hand the cotangents of what a unit read back to those who hold it."""
        for name in held:
            if name in self.learned:
                values = {}
                for block in self.owned:
                    found = leaves[block].get(name)
                    values[block] = torch.zeros_like(held[name][block]) if found is None else found
                self.give_back(unit, name, values, unit.needs.get(name, {}))

    def give_back(self, unit: Unit, name: str, values: Values, needs: Mapping[str, Rows]) -> None:
        """The transpose of `fetch`: points go back to the blocks that they came from, and are added there."""
        for dimension, rows in reversed([*needs.items()]):
            own = self.layout.rows(name, dimension)
            if rows == own:
                continue
            axis = self.axis(name, dimension)
            if dimension in unit.varying:
                values = self.spread_back(values, dimension, rows, own, axis)
            else:
                values = {b: cut(x, rows, own, self.mesh.place(b, dimension), axis) for b, x in values.items()}
        self.give(name, unit.varying.difference(self.layout.homes[name]), values)

    def spread_back(self, values: Values, dimension: str, rows: Rows, own: Rows, axis: int) -> Values:
        """The sum of what blocks have for the same points, on the blocks that these belong to."""
        result: Values = {}
        for block in self.owned:
            start, end = own[self.mesh.place(block, dimension)]
            shape = list(values[block].shape)
            shape[axis] = end - start
            result[block] = values[block].new_zeros(shape)
        self.add_back(result, values, dimension, rows, own, axis)
        return result

    def add_back(self, sums: Values, values: Values, dimension: str, rows: Rows, own: Rows, axis: int) -> None:
        """Add what blocks have for some points to the blocks that these belong to."""
        transfers, places = self.pieces(values, dimension, rows, own, axis)
        for one, array, at in zip(transfers, self.moved(transfers, values, dimension), places, strict=True):
            if array is not None and one.target in sums:
                sums[one.target].narrow(axis, at, array.shape[axis]).add_(array)


def _with_parts(layout: Layout, learned: set[str]) -> set[str]:
    """The tensors that a cotangent reaches, and the parts of those that are put together."""
    names = [name for unit in layout.units for name in unit.names if name in learned]
    return learned | {part(name) for name in names} | {f"{name} total" for name in names}
