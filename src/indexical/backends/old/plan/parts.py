"""Parts of a definition that are computed with a block of rows, as definitions of their own."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import build
from ....ir import nodes as ir
from ....ir.types import Coordinate
from ....ir.walk import fresh_name, rebuild, walk
from ....records import dataclass
from .ordering import definition


def row_of(expr: ir.Reduce, inner: Mapping[str, int]) -> Coordinate | None:
    """The coordinate of a sum that rows which are in are read at."""
    ranges = {r.coordinate for r in expr.ranges}
    for part in walk(expr):
        if isinstance(part, ir.Read) and part.tensor in inner:
            index = part.indices[inner[part.tensor]]
            if isinstance(index, ir.Coord) and index.coordinate in ranges:
                return index.coordinate
    return None


def sums_rows(expr: ir.Expr, inner: Mapping[str, int]) -> bool:
    """Whether an expression is a sum over rows which are in."""
    return isinstance(expr, ir.Reduce) and expr.op == "sum" and row_of(expr, inner) is not None


@dataclass
class Split:
    """Sums over rows, and sums at a row of its own where there are such beside, each as a definition: with the axis
    that has its rows, or None."""

    inner: Mapping[str, int]
    let: ir.Let
    taken: list[str]
    failed: bool = False

    def __post_init__(self) -> None:
        self.made: list[tuple[ir.Let, int | None]] = []

    def rewritten(self, expr: ir.Expr) -> ir.Expr:
        if sums_rows(expr, self.inner):
            return self.named(expr, None)
        if not any(isinstance(part, ir.Read) and part.tensor in self.inner for part in walk(expr)):
            return expr
        if isinstance(expr, ir.Reduce) and not any(sums_rows(part, self.inner) for part in walk(expr)):
            return self.named(expr, self.row(expr))
        self.failed = self.failed or isinstance(expr, ir.Read)
        return rebuild(expr, self.rewritten)

    def row(self, expr: ir.Expr) -> Coordinate | None:
        """The coordinate of the definition that rows which are in are read at."""
        reads = [part for part in walk(expr) if isinstance(part, ir.Read) and part.tensor in self.inner]
        indices = [read.indices[self.inner[read.tensor]] for read in reads]
        found = {index.coordinate if isinstance(index, ir.Coord) else None for index in indices}
        return found.pop() if len(found) == 1 else None

    def named(self, expr: ir.Expr, row: Coordinate | None) -> ir.Expr:
        """A sum as a definition with the coordinates it has of this one."""
        clause = self.let.clauses[0]
        own = {r.coordinate: r for r in clause.ranges}
        ranges = tuple(r for c, r in own.items() if c in expr.type.coordinates)
        places = [r.coordinate for r in ranges]
        if not expr.type.coordinates <= own.keys() or (row not in places and not sums_rows(expr, self.inner)):
            self.failed = True
            return expr
        name = fresh_name(f"{self.let.name}_{'sum' if row is None else 'part'}", self.taken)
        let = definition(name, ranges, expr, self.let.call)
        self.taken.append(let.name)
        self.made.append((let, None if row is None else places.index(row)))
        return build.read(let.name, let.clauses[0].slots, "real", expr.span)
