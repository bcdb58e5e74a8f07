"""Steps that go on from printed figures: each is read in place of what was computed, which is kept aside."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ..ir import nodes as ir
from ..run.reference import Evaluation
from ..run.tables import Numbers, Table, Uncomputed
from ..run.wholes import Point

# Figures by definition and offset.
Printed = Mapping[str, Mapping[int, Any]]


class AsPrinted(Evaluation):
    """An evaluation in which later steps read the figures that are `printed`; `computed` has what stood there."""

    def __init__(self, program: ir.Program, tables: Mapping[str, Table], sizes: Any, numbers: Numbers) -> None:
        super().__init__(program, tables, sizes, numbers)
        self.printed: Printed = {}
        self.computed: dict[tuple[str, int], Any] = {}

    def fill(self, table: Table, let: ir.Let, clause: ir.Clause, pinned: Point) -> None:
        super().fill(table, let, clause, pinned)
        for offset, figure in self.printed.get(let.name, {}).items():
            if table.cells[offset] is not Uncomputed and (let.name, offset) not in self.computed:
                self.computed[let.name, offset] = table.cells[offset]
                table.cells[offset] = figure
                table.removed.discard(offset)

    def offset(self, read: ir.Read, point: Point) -> int:
        """The place of an element among the cells of its table."""
        return self.table(self.lets[read.tensor]).offset(tuple(self.value(index, point) for index in read.indices))

    def found(self, read: ir.Read, point: Point) -> tuple[int, Any]:
        """The offset of an element, and its value as it was computed; None where it is absent."""
        offset = self.offset(read, point)
        return offset, self.computed.get((read.tensor, offset), self.tensors[read.tensor].cells[offset])


def figures_as_printed(evaluation: AsPrinted, program: ir.Program) -> dict[str, dict[int, Any]]:
    """The figures of a program that are to be read as printed."""
    found: dict[str, dict[int, Any]] = {}
    for expect in program.expects:
        if expect.printed and isinstance(expect.body, ir.Read):
            for number, point in enumerate(evaluation.points(expect.ranges, {}, {})):
                figure = expect.figures[number if expect.shape else 0]
                if isinstance(figure, ir.Const):
                    is_real = evaluation.lets[expect.body.tensor].kind == "real"
                    value = evaluation.numbers.number(Fraction(figure.value)) if is_real else int(figure.value)
                    found.setdefault(expect.body.tensor, {})[evaluation.offset(expect.body, point)] = value
    return found
