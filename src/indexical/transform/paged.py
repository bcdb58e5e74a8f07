"""A step that reads what is past through a table of pages.

Where `x_past[b, so_far, d]` has the rows of every sequence side by side, here a pool `x_past[page, slot, d]` has them
in pages of one size, and `table[b, nth]` names those of each sequence in their order: row `so_far` lies in page
`table[b, so_far / 16]` at slot `so_far % 16`. New rows are put at `slot_of[b, i]` of page `page_of[b, i]`.
"""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import changed, fresh, fresh_name, rebuild
from ..records import replace
from ..source import Span
from .incremental import Stepping, step_of
from .memory import Memory, Paging, arrays_of
from .past import Split
from .windows import windows_of


class Unpaged(Exception):
    """Rows that are kept cannot be held in pages."""


def paged_step_of(
    split: Split, outputs: tuple[str, ...], keep: str | None, capacity: int | None, sequences: ir.Expr | None, size: int
) -> Stepping:
    """The step program with what is kept in pages of so many rows. Each point along the extent `sequences` has its own,
    where there is such an axis and no position takes several points together; without, a row is whatever stands at one
    position. Raises `Unpaged` where nothing is kept that grows, or not as rows of positions."""
    room = 0 if capacity is None else capacity
    stepping = step_of(split, outputs, keep, room, sequences)
    growing = [memory for memory in stepping.memories if memory.rows is None]
    if not growing:
        raise Unpaged("nothing is kept of every position: there is nothing to hold in pages")
    for memory in growing:
        if memory.offset:
            raise Unpaged(f"`{memory.tensor}` has rows before the first position, which lie in no page")
        if any(axis.coordinate.rest for axis in split.program.tensors[memory.tensor].axes):
            raise Unpaged(f"`{memory.tensor}` has any number of leading coordinates, and pages have some")
    # All rows of a position lie in one page: it is let go of where none of them is read any more.
    windows = windows_of(split, outputs)
    if windows.kept >= {memory.tensor for memory in growing}:
        stepping = replace(stepping, reach=windows.reach)
    apart = sequences if stepping.shared is None else None
    assert apart is None or isinstance(apart, ir.Size)
    return _Paged(stepping, split.row, size, apart).result()


class _Paged:
    def __init__(self, stepping: Stepping, row: Coordinate, size: int, sequences: ir.Size | None) -> None:
        self.stepping, self.size, self.sequences = stepping, size, sequences
        self.program = stepping.program
        self.span = Span(self.program.source, 0, 0)
        self.growing = [part for memory in stepping.memories if memory.rows is None for part in arrays_of(memory)]
        self.axes = {memory.past: self._axes(memory) for memory in self.growing}
        taken = {*self.program.tensors}
        self.names: dict[str, str] = {}
        for name in ("table", "page_of", "slot_of"):
            self.names[name] = fresh_name(name, taken)
            taken.add(self.names[name])
        used = {axis.coordinate.name for tensor in self.program.tensors.values() for axis in tensor.axes}
        clauses = [clause for let in self.program.lets for clause in let.clauses]
        used |= {range.coordinate.name for clause in clauses for range in clause.ranges}
        self.row = row
        self.page, self.slot, self.nth = (fresh(Coordinate(name), used | taken) for name in ("page", "slot", "nth"))
        past = self.program.tensors[self.growing[0].past]
        extent = past.axes[self.axes[past.name][0]].extent
        assert isinstance(extent, ir.Size)
        self.room = extent.coordinate
        self.pages = {m.past: fresh_name(m.past.replace("_past", "_pages"), taken) for m in self.growing}

    def _axes(self, memory: Memory) -> tuple[int, int | None]:
        """The axes of positions and of sequences of what is past."""
        axes = self.program.tensors[memory.past].axes
        found = [number for number, axis in enumerate(axes) if axis.extent == self.sequences]
        return len(axes) + memory.axis, found[0] if found else None

    def result(self) -> Stepping:
        """The step with its past in pages: written to and read through the table."""
        by_after = {m.after: m for m in self.stepping.memories if m.rows is None and m.keep is None}
        lets: list[ir.Let] = []
        for let in self.program.lets:
            if let.name in by_after:
                lets += self._put(let, by_after[let.name])
            else:
                lets.append(self._moved(let))
        inputs = [self._pool(t) if t.name in self.axes else t for t in self.program.inputs]
        lead = () if self.sequences is None else (ir.Axis(self.sequences.coordinate, self.sequences),)
        tabled = ir.Axis(self.nth, build.size(self.nth, self.span))
        new = ir.Axis(self.row, build.size(self.row, self.span))
        inputs.append(ir.Input(self.names["table"], (*lead, tabled), "whole", "i64", self.span, owned=True))
        if by_after:
            inputs += [
                ir.Input(self.names[name], (*lead, new), "whole", "i64", self.span) for name in ("page_of", "slot_of")
            ]
        memories = tuple(
            replace(memory, after=self.pages[memory.past]) if memory.after in by_after else memory
            for memory in self.stepping.memories
        )
        program = replace(self.program, inputs=tuple(inputs), lets=tuple(lets), order=())
        along = {
            memory.tensor: axis - len(self.program.tensors[memory.past].axes)
            for memory in self.growing
            if (axis := self.axes[memory.past][1]) is not None
        }
        table, page, slot = (self.names[name] for name in ("table", "page_of", "slot_of"))
        return replace(
            self.stepping, program=program, memories=memories, paging=Paging(self.size, table, page, slot, along)
        )

    def _pool(self, tensor: ir.Input) -> ir.Input:
        """The pages in which rows lie that stood side by side."""
        return replace(tensor, axes=self._pool_axes(tensor))

    def _pool_axes(self, tensor: ir.Input | ir.Let) -> tuple[ir.Axis, ...]:
        page = ir.Axis(self.page, build.size(self.page, self.span))
        slot = ir.Axis(self.slot, build.whole(self.size, self.span))
        return page, slot, *(axis for n, axis in enumerate(tensor.axes) if n not in self.axes[tensor.name])

    def _moved(self, let: ir.Let) -> ir.Let:
        axes = tuple(replace(axis, extent=self._through(axis.extent)) for axis in let.axes)
        return replace(let, axes=axes, clauses=tuple(changed(clause, self._through) for clause in let.clauses))

    def _through(self, expr: ir.Expr) -> ir.Expr:
        """The expression in which what is past is read through the table, in which there are as many rows as pages
        have."""
        if isinstance(expr, ir.Size) and expr.coordinate == self.room:
            return build.apply("*", (build.size(self.nth, expr.span), self._rows()), "whole", expr.span)
        expr = rebuild(expr, self._through)
        if isinstance(expr, ir.Read) and expr.tensor in self.axes:
            return self._paged(expr.tensor, expr.tensor, expr)
        return expr

    def _rows(self) -> ir.Expr:
        return build.whole(self.size, self.span)

    def _paged(self, pool: str, past: str, read: ir.Read) -> ir.Read:
        """A read of what is past, of the pool that has it."""
        at, own = self.axes[past]
        row = read.indices[at]
        lead = () if own is None else (read.indices[own],)
        nth = build.apply("//", (row, self._rows()), "whole", read.span)
        page = build.read(self.names["table"], (*lead, nth), "whole", read.span)
        slot = build.apply("%", (row, self._rows()), "whole", read.span)
        others = (index for number, index in enumerate(read.indices) if number not in (at, own))
        return build.read(pool, (page, slot, *others), read.type.kind, read.span)

    def _put(self, let: ir.Let, memory: Memory) -> tuple[ir.Let, ir.Let]:
        """The pages with new rows in their places, and the rows of each sequence, read through the table."""
        past = self.program.tensors[memory.past]
        at, own = self.axes[past.name]
        axes = self._pool_axes(past)
        used = {axis.coordinate.name for axis in axes}
        sized = (self.sequences, build.size(self.row, self.span))
        over: list[ir.Range] = []
        for extent in sized if own is not None else sized[1:]:
            assert extent is not None
            over.append(self._range(ir.Axis(fresh(extent.coordinate, used), extent)))
            used.add(over[-1].coordinate.name)
        points = tuple(build.coord(range.coordinate, self.span) for range in over)
        slots = tuple(build.coord(axis.coordinate, self.span) for axis in axes)
        is_here = build.conjunction(
            build.apply("==", (build.read(self.names[name], points, "whole", self.span), slot), "bool", self.span)
            for name, slot in zip(("page_of", "slot_of"), slots[:2], strict=True)
        )
        assert is_here is not None
        others = iter(slots[2:])
        indices = tuple(
            points[-1] if number == at else points[0] if number == own else next(others)
            for number in range(len(past.axes))
        )
        new = build.read(memory.tensor, indices, let.kind, self.span)
        op = "any" if let.kind == "bool" else "sum"
        body = build.select(
            build.reduce("any", tuple(over), is_here, None, "bool", self.span),
            build.reduce(op, tuple(over), new, is_here, let.kind, self.span),
            build.read(past.name, slots, let.kind, self.span),
            self.span,
        )
        clause = ir.Clause(slots, tuple(map(self._range, axes)), body, None, self.span)
        pages = ir.Let(self.pages[past.name], axes, let.kind, (clause,), False, self.span)
        (joined,) = let.clauses
        assert isinstance(joined.body, ir.Select)
        assert isinstance(joined.body.otherwise, ir.Read)
        through = replace(joined, body=self._paged(pages.name, past.name, joined.body.otherwise))
        return pages, self._moved(replace(let, clauses=(through,)))

    def _range(self, axis: ir.Axis) -> ir.Range:
        return ir.Range(axis.coordinate, build.whole(0, self.span), axis.extent, True, self.span)
