"""Definitions for some rows after the other → a loop over blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial
from ..ir.context import Trail
from ..ir.types import Coordinate, Dtype
from ..ir.walk import walk
from ..plan.blocks import POINTS
from ..plan.steps import Block
from ..source import Span
from .clauses import zero_of
from .code import ALL, ONE, Name, Node, Slice, call, chain, fill
from .frames import Framed
from .proofs import Prover
from .scope import Place, Scope
from .state import Stored
from .tiles import WindowProver


class RowProver(WindowProver):
    """Proofs about the rows of a block, or about all rows. `facts` are at least 0."""

    facts: tuple[Polynomial, ...] = ()

    def entails(self, trail: Trail, goal: Polynomial, also: tuple[Polynomial, ...] = ()) -> bool:
        return super().entails(trail, goal, (*also, *self.facts))

    def is_inside(self, index: ir.Expr, extent: ir.Expr, scope: Scope, guarded: bool) -> bool:
        here = Prover.is_inside(self, index, extent, scope, guarded)
        return here or super().is_inside(index, extent, scope, guarded)


@dataclass
class Cutting(Framed):
    """Blocks of rows: what is as large as rows × keys is there for one block alone. `windows` are the names of the
    first row of a block, and of the one beyond its last."""

    windows: set[str] = field(default_factory=set)

    def largest_in(self, tensor: str) -> int:
        return 2**31 if tensor in self.windows else super().largest_in(tensor)

    def cut(self, block: Block, covers: tuple[str, ...]) -> None:
        """All definitions of a block, in a loop."""
        inner = dict(block.inner)
        names = [item.name for item in self.program.order if isinstance(item, ir.Once)]
        ordered = [self.lets[name] for name in names if name in inner or name in block.totals]
        shown = [let for let in ordered if not let.hidden or let.name in block.totals]
        self.begin(shown[-1], shown[:-1])
        wide = {name: self._wide(name) for name in block.totals}
        wholes = {name: self.text.fresh(name) for name in (*block.kept, *block.totals)}
        for name, variable in wholes.items():
            let = self.lets[name]
            dtype = wide.get(name) or self.dtypes[name]
            self.text.assign(variable, self.text.dialect.full(self.home(let, ()), zero_of(let), dtype))
        first, last, count = (self.text.fresh(name) for name in ("r0", "r1", "rows"))
        rows = self.number(block.rows)
        self.text.assign(count, call(self.helped("block_rows", BLOCK_ROWS), self._points(block)))
        # Once where there are no rows, too: what has none may want a gradient.
        self.text.add("for", call("range", 0, call("max", 1, rows), count), first)
        before = self._enter(first, last, block.rows.span)
        with self.block():
            self.text.assign(last, fill("min({first} + {count}, {rows})", first=first, count=count, rows=rows))
            for let in ordered:
                self._turn(let, block, inner.get(let.name), (first, last), wholes)
        self._leave(before)
        for name, variable in wholes.items():
            if name in wide and wide[name] != self.dtypes[name]:
                self.text.assign(variable, self.text.dialect.narrow(Name(variable), self.dtypes[name]))
            self.stored[name] = Stored(variable, self.dtypes[name])

    def _wide(self, name: str) -> Dtype:
        """The dtype in which sums over all rows are accumulated."""
        dtype = self.dtypes[name]
        return "f32" if dtype in ("f16", "bf16") else dtype

    def _points(self, block: Block) -> Node:
        """The number of points of a row of the largest definitions."""
        axes = [axis for n, axis in enumerate(self.lets[block.weights].axes) if n != dict(block.inner)[block.weights]]
        return chain("*", [self.extent(axis.extent) for axis in axes] or [ONE])

    def _enter(self, first: str, last: str, span: Span) -> tuple[object, ...]:
        before = self.lets, self.tensors, self.prover, dict(self.stored), dict(self.dtypes)
        for name in (first, last):
            self.windows.add(name)
            self.stored[name] = Stored(name, None, True)
            self.tensors = {**self.tensors, name: ir.Input(name, (), "whole", None, span)}
        return before

    def _leave(self, before: tuple[object, ...]) -> None:
        self.lets, self.tensors, self.prover, self.stored, self.dtypes = before  # type: ignore[assignment]

    def _turn(self, let: ir.Let, block: Block, axis: int | None, ends: tuple[str, str], wholes: dict[str, str]) -> None:
        """One definition, for the rows of a block."""
        start, stop = (build.read(name, (), "whole", let.span) for name in ends)
        clause = let.clauses[0]
        if axis is None:
            row, cut = self._total(let, block, start, stop)
        else:
            slot = clause.slots[axis]
            assert isinstance(slot, ir.Coord)
            row = slot.coordinate
            ranges = tuple(_within(r, start, stop) if r.coordinate == row else r for r in clause.ranges)
            axes = tuple(replace(a, extent=stop) if n == axis else a for n, a in enumerate(let.axes))
            cut = replace(let, axes=axes, clauses=(replace(clause, ranges=ranges),))
        self.lets = {**self.lets, let.name: cut}
        self.tensors = {**self.tensors, let.name: cut}
        whole = Place(build.whole(0, let.span), block.rows, True)
        prover = RowProver(self.lets, {row: whole})
        prover.agreed = self.prover.agreed
        prover.counted |= {*self.prover.counted, *ends}
        prover.facts = (prover.polynomial(stop) - prover.polynomial(start),)
        self.prover = prover
        self._fill(let, cut, axis, ends, wholes)

    def _fill(self, let: ir.Let, cut: ir.Let, axis: int | None, ends: tuple[str, str], wholes: dict[str, str]) -> None:
        clause = cut.clauses[0]
        self.speak_of(let)
        self.text.blank()
        if axis is None:
            self.dtypes[let.name] = self._wide(let.name)
            value = self.clause_value(cut, clause, {})
            self.text.increase(wholes[let.name], self.finished(cut, value, clause, {}).code)
            return
        variable = self.text.fresh(f"{let.name}_rows" if let.name in wholes else let.name)
        value = self.clause_value(cut, clause, {})
        self.text.assign(variable, self.finished(cut, value, clause, {}))
        starts = tuple(r.lower for r in clause.ranges)
        self.stored[let.name] = Stored(variable, self.dtypes[let.name], starts=starts)
        if let.name in wholes:
            slots = (*[ALL] * axis, Slice(Name(ends[0]), Name(ends[1])))
            self.text.store(wholes[let.name], slots, variable)

    def _total(self, let: ir.Let, block: Block, start: ir.Expr, stop: ir.Expr) -> tuple[Coordinate, ir.Let]:
        """A sum over the rows of a block."""
        clause = let.clauses[0]
        body = clause.body
        assert isinstance(body, ir.Reduce)
        inner = dict(block.inner)
        bound = {r.coordinate for r in body.ranges}
        reads = [part for part in walk(body) if isinstance(part, ir.Read) and part.tensor in inner]
        indices = [read.indices[inner[read.tensor]] for read in reads]
        row = next(i.coordinate for i in indices if isinstance(i, ir.Coord) and i.coordinate in bound)
        ranges = tuple(_within(r, start, stop) if r.coordinate == row else r for r in body.ranges)
        cut = build.reduce("sum", ranges, body.body, body.guard, body.type.kind, body.span)
        return row, replace(let, clauses=(replace(clause, body=cut),))


def _within(r: ir.Range, start: ir.Expr, stop: ir.Expr) -> ir.Range:
    return replace(r, lower=start, upper=stop, stated=True)


BLOCK_ROWS = f'''
def block_rows(points):
    """The number of rows of so many points that fit into a block of about a million."""
    return max(1, {POINTS} // max(1, points))
'''
