"""True values at the points that are asked for, and at no others: each is computed when it is first read."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from ..ir import nodes as ir
from ..ir.needs import members
from ..ir.needs import needed as needs
from ..run.bind import Bound
from ..run.pointwise import work_of
from ..run.reference import Table
from ..run.tables import Uncomputed
from ..run.trace import clause_at
from .ranges import Enclosed, Ranges
from .tower import INFINITY


class Spent(Exception):
    """The steps that were allowed are taken."""


class Pointwise(Enclosed):
    """An evaluation by intervals in which a point of a definition is computed when it is read. A recurrence is computed
    whole. `left` counts down the steps that may still be taken."""

    def __init__(self, program: ir.Program, bound: Bound, bits: int, wanted: tuple[str, ...], steps: int) -> None:
        numbers = Ranges(bits)
        tables = dict(bound.tables)
        tables.update({one.name: _given(tables[one.name], numbers) for one in program.inputs if one.kind == "real"})
        super().__init__(program, tables, bound.sizes, numbers)
        self.bound, self.left = bound, steps
        self.cost: dict[str, int] = {}
        needed = needs(program, wanted)
        for order in program.order:
            for name in members(order) & needed:
                let = self.lets[name]
                self.cost[name] = work_of(self.bound, let) // max(1, len(self.table(let).cells))
                if isinstance(order, ir.Once):
                    table = self.table(let)
                    table.cells = _Cells(self, let, len(table.cells))
            if not isinstance(order, ir.Once) and needed & members(order):
                self.run(order, {})

    def cell(self, let: ir.Let, offset: int) -> Any:
        """One point of a definition."""
        self.left -= self.cost[let.name]
        if self.left < 0:
            raise Spent
        table, ranges = self.tensors[let.name], dict(self.ranges)
        clause, point = clause_at(self, let, table.place(offset))
        value = None
        if clause.guard is None or self.value(clause.guard, point):
            value = self.value(clause.body, point)
            if let.kind == "real" and clause.body.type.kind == "whole":
                value = self.numbers.number(value)
            if self.removal(clause.body)(point):
                table.removed.add(offset)
        self.ranges = ranges
        return value


def _given(table: Table, numbers: Ranges) -> Table:
    return Table(table.shape, _Given(table.cells, numbers))


class _Given(list[Any]):
    """The floats of an input, taken bit for bit when they are read."""

    def __init__(self, cells: list[Any], numbers: Ranges) -> None:
        super().__init__(cells)
        self.numbers = numbers

    def __getitem__(self, offset: Any) -> Any:
        found = super().__getitem__(offset)
        if isinstance(found, float):
            if math.isinf(found):
                self[offset] = INFINITY if found > 0 else -INFINITY
            else:
                self[offset] = self.numbers.number(Fraction(found))
        return super().__getitem__(offset)


class _Cells(list[Any]):
    """The cells of a definition, computed when they are read."""

    def __init__(self, evaluation: Pointwise, let: ir.Let, count: int) -> None:
        super().__init__([Uncomputed] * count)
        self.evaluation, self.let = evaluation, let

    def __getitem__(self, offset: Any) -> Any:
        found = super().__getitem__(offset)
        if found is Uncomputed:
            found = self[offset] = self.evaluation.cell(self.let, offset)
        return found
