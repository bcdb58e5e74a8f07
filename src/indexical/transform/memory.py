"""The memory that a step has of past positions: the arrays that are kept, and the definitions that join them with new
rows.

Of what is read at a few rows back, the last rows are handed on; of what has a window, those of the window are given; of
all else, all rows.
"""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial, tidied
from ..ir.dtypes import definition_dtypes
from ..ir.types import Coordinate, Dtype, computed_in
from ..ir.walk import fresh, fresh_name, rebuild, walk
from ..records import dataclass, replace
from ..source import Span
from .past import Split
from .windows import NO_WINDOWS, taps_of, windows_of


@dataclass(frozen=True)
class Memory:
    """A tensor that is kept: the input of a step that has it, the definition that has the new rows too, and the axis,
    counted from the end.

    Of a recurrence only `rows` are kept, which are handed on as a whole; of one with a `window`, as many as its reach.
    """

    tensor: str
    past: str
    after: str
    axis: int
    offset: int
    rows: int | None
    window: bool = False
    keep: str | None = None
    scale: str | None = None


@dataclass(frozen=True)
class Paging:
    """The inputs of a step that tell where rows lie that are held in pages of so many: the pages of each sequence in
    their order, and the page and the slot of each new row. `sequences` is the axis of every array that is kept, counted
    from the end, along which each has its own; empty where all that is kept of a position is one row."""

    size: int
    table: str
    page: str
    slot: str
    sequences: dict[str, int]


def arrays_of(memory: Memory) -> tuple[Memory, ...]:
    """The arrays that a tensor is kept in: its numbers, and their factors where it has some."""
    if memory.scale is None:
        return (memory,)
    return memory, replace(memory, tensor=memory.scale, past=memory.scale, axis=memory.axis + 1)


class Remembered:
    """The names, inputs and definitions of a step for what is kept."""

    def __init__(
        self, split: Split, outputs: tuple[str, ...], keep: str | None = None, capacity: int | None = None
    ) -> None:
        self.split, self.outputs, self.keep, self.capacity = split, outputs, keep, capacity
        self.source = split.program
        self.span = Span(self.source.source, 0, 0)
        self.dtypes = _dtypes(split.plain or split.program)
        self.taken = {*self.source.tensors}
        # The axes of fixed inputs that have as many points as there are positions: in a step, more than so far.
        length = build.size(split.row, self.span)
        self.tables = {
            tensor.name: [number for number, axis in enumerate(tensor.axes) if axis.extent == length]
            for tensor in self.source.inputs
            if not split.along[tensor.name]
        }
        self.names = {name: self._name(f"{name}_all") for name in (*split.kept, *split.again)}
        self.past = {name: self._name(f"{name}_past") for name in split.kept}
        self.windows = windows_of(split, outputs) if capacity is None else NO_WINDOWS
        # An input cannot be handed out: a definition that is the same can.
        inputs = [name for name in split.kept if keep and isinstance(self.source.tensors[name], ir.Input)]
        self.held = {name: self._name(f"{name}_held") for name in split.kept if keep == "i8"}
        self.news = {name: self._name(f"{name}_new") for name in inputs}
        self.tails = {name: rows for name in split.kept if (rows := self._tail(name)) is not None}
        others = [name for name in split.kept if name not in self.tails and name not in self.windows.kept]
        self.taps = {name: rows for name in others if (rows := taps_of(split, name)) is not None}
        self.tails |= self.taps
        self.tapped = {name: self._name(f"{name}_recent") for name in self.taps}
        self.new = build.size(split.row, self.span)
        used = {axis.coordinate.name for tensor in self.source.tensors.values() for axis in tensor.axes}
        used |= {c.name for let in self.source.lets for clause in let.clauses for c in _bound(clause)}
        self.every = fresh(Coordinate("so_far", False, split.row.space), used | self.taken)
        self.recent = fresh(Coordinate("recent", False, split.row.space), used | self.taken)
        grows = any(name not in self.tails and name not in self.windows.kept for name in split.kept)
        self.before = None if grows and capacity is None else self._name("before")
        count = build.size(self.every, self.span)
        if self.before is None:
            self.gone: ir.Expr = build.apply("-", (count, self.new), "whole", self.span)
            self.length: ir.Expr = count
        else:
            self.gone = build.read(self.before, (), "whole", self.span)
            self.length = build.apply("+", (self.gone, self.new), "whole", self.span)
        if capacity is not None:
            self.length = count if grows else build.whole(capacity, self.span)
        self.width = build.size(self.recent, self.span)
        self.first = tidied(build.apply("-", (self.length, self.width), "whole", self.span))

    def _name(self, name: str) -> str:
        found = fresh_name(name, self.taken)
        self.taken.add(found)
        return found

    def _tail(self, name: str) -> int | None:
        """The number of rows that are kept of a tensor that is read at fixed distances alone."""
        if name in self.windows.kept:
            return None
        furthest = 0
        for let in (self.source.definitions[other] for other in self.split.rows):
            for clause in let.clauses:
                slot = clause.slots[self.split.axis[let.name]]
                for read in _reads(clause):
                    if read.tensor == name:
                        index = read.indices[self.split.axis[name]]
                        shift = self.split.offset[name] - self.split.offset[let.name]
                        back = (polynomial(slot) - polynomial(index)).constant
                        if back is None or not isinstance(slot, ir.Coord):
                            if self.split.is_local(read, let, slot):
                                continue
                            return None
                        furthest = max(furthest, back + shift)
        return furthest

    def _memory(self, name: str, rows: int | None) -> Memory:
        axis = self.split.axis[name] - len(self.source.tensors[name].axes)
        window = name in self.windows.kept
        keep = self.keep if rows is None and self.is_rounded(name) else None
        after = self.names[name] if keep is None else self.news.get(name, name)
        scale = f"{self.past[name]}_scale" if keep == "i8" else None
        return Memory(name, self.past[name], after, axis, self.split.offset[name], rows, window, keep, scale)

    def is_rounded(self, name: str) -> bool:
        """Whether what is kept of a tensor may be held in fewer bits: real numbers, of which a row has several."""
        tensor = self.source.tensors[name]
        is_row = self.split.axis[name] == len(tensor.axes) - 1
        return tensor.kind == "real" and not is_row and not self.split.steps(name)

    def _scale(self, tensor: ir.Input | ir.Let, memory: Memory) -> ir.Input:
        """A factor for every row of a tensor, whatever its last coordinate."""
        assert memory.scale is not None
        past = self._past(tensor, memory)
        return ir.Input(memory.scale, past.axes[:-1], "real", None, tensor.span)

    # --------------------------------------------------------------------------------- inputs

    def _input(self, tensor: ir.Input) -> ir.Input:
        """A fixed input has a size of its own where the program gives it that of all positions."""
        if self.split.along[tensor.name]:
            return tensor
        axes = []
        for number, axis in enumerate(tensor.axes):
            if number in self.tables[tensor.name]:
                own = self._coordinate(f"{axis.coordinate.name}_of_{tensor.name}")
                axis = ir.Axis(own, build.size(own, tensor.span))
            axes.append(axis)
        return replace(tensor, axes=tuple(axes))

    def _coordinate(self, name: str) -> Coordinate:
        return Coordinate(self._name(name), False, self.split.row.space)

    def _past(self, tensor: ir.Input | ir.Let, memory: Memory) -> ir.Input:
        axes: list[ir.Axis] = []
        for number, axis in enumerate(tensor.axes):
            if number == self.split.axis[memory.tensor]:
                extent = self._room(memory)
                own = self.recent if memory.window else self.every
                if memory.rows is not None or memory.offset:
                    own = self._coordinate(f"row_of_{memory.tensor}")
                axes.append(ir.Axis(own, extent))
                continue
            extent = self._whole(axis.extent)
            named = extent.coordinate if isinstance(extent, ir.Size) else axis.coordinate
            used = {other.coordinate.name for other in axes} | {self.every.name, self.recent.name}
            axes.append(ir.Axis(fresh(named, used), extent))
        if memory.scale is not None:
            return ir.Input(memory.past, tuple(axes), "whole", "i8", tensor.span)
        owned = memory.rows is None and memory.keep is None
        dtype = self.dtypes.get(tensor.name) if tensor.kind != "real" else None
        return ir.Input(memory.past, tuple(axes), tensor.kind, dtype, tensor.span, owned=owned)

    def _room(self, memory: Memory) -> ir.Expr:
        """The number of rows of the array that has what is past."""
        if memory.rows is not None:
            return build.whole(memory.rows, self.span)
        return self.width if memory.window else plus(self.length, memory.offset)

    def _whole(self, expr: ir.Expr) -> ir.Expr:
        """An expression that stands at no position: the number of positions is that of all so far."""
        if isinstance(expr, ir.Size) and expr.coordinate == self.split.row:
            return self.length
        expr = rebuild(expr, self._whole)
        if isinstance(expr, ir.Read) and expr.tensor in self.names:
            return replace(expr, tensor=self.names[expr.tensor])
        return expr

    # ---------------------------------------------------------------------------------- memory

    def _scaled(self, tensor: ir.Input | ir.Let, memory: Memory) -> ir.Let:
        """The past rows of a tensor: its small numbers, times their factors."""
        assert memory.scale is not None
        axes = self._past(tensor, memory).axes
        slots = tuple(build.coord(axis.coordinate, self.span) for axis in axes)
        zero = build.whole(0, self.span)
        ranges = tuple(ir.Range(axis.coordinate, zero, axis.extent, True, self.span) for axis in axes)
        code = build.read(memory.past, slots, "whole", self.span)
        factor = build.read(memory.scale, slots[:-1], "real", self.span)
        clause = ir.Clause(slots, ranges, build.apply("*", (code, factor), "real", self.span), None, self.span)
        return ir.Let(self.held[tensor.name], axes, "real", (clause,), False, self.span)

    def _same(self, tensor: ir.Input) -> ir.Let:
        """A definition that is an input."""
        slots = tuple(build.coord(axis.coordinate, self.span) for axis in tensor.axes)
        zero = build.whole(0, self.span)
        ranges = tuple(ir.Range(a.coordinate, zero, a.extent, True, self.span) for a in tensor.axes)
        body = build.read(tensor.name, slots, tensor.kind, self.span)
        clause = ir.Clause(slots, ranges, body, None, self.span)
        return ir.Let(self.news[tensor.name], tensor.axes, tensor.kind, (clause,), False, self.span)

    def _joined(self, tensor: ir.Input | ir.Let) -> ir.Let:
        """The rows that are past, and the new ones behind them."""
        memory = self._memory(tensor.name, None)
        axis = self.split.axis[tensor.name]
        own = self.recent if memory.window else self.every
        here = build.coord(own, self.span)
        first = plus(self.gone, memory.offset)
        if memory.window:
            first = build.apply("-", (self.width, self.new), "whole", self.span)
        is_new = build.apply(">=", (here, first), "bool", self.span)
        if self.capacity is not None:
            beyond = tidied(build.apply("+", (first, self.new), "whole", self.span))
            is_new = build.apply("&&", (is_new, build.apply("<", (here, beyond), "bool", self.span)), "bool", self.span)
        new = tidied(build.apply("-", (here, first), "whole", self.span))
        past = self.held[tensor.name] if memory.scale else memory.past
        return self._over(tensor, self.names[tensor.name], own, self._room(memory), axis, is_new, new, here, past)

    def _handed_on(self, tensor: ir.Input | ir.Let, rows: int) -> ir.Let:
        """The last rows after a step, of the new ones and of those that were past."""
        memory = self._memory(tensor.name, rows)
        own = self._coordinate(f"last_of_{tensor.name}")
        here = build.coord(own, self.span)
        behind = build.apply("+", (here, self.new), "whole", self.span)
        room = build.whole(rows, self.span)
        is_new = build.apply(">=", (behind, room), "bool", self.span)
        new = build.apply("-", (behind, room), "whole", self.span)
        axis = self.split.axis[tensor.name]
        return self._over(tensor, memory.after, own, room, axis, is_new, new, behind, memory.past)

    def _with_taps(self, tensor: ir.Input | ir.Let, rows: int) -> ir.Let:
        """The last rows that are past, and the new ones behind them."""
        name, axis = tensor.name, self.split.axis[tensor.name]
        own = self._coordinate(f"tap_of_{name}")
        here, first = build.coord(own, self.span), build.whole(rows, self.span)
        is_new = build.apply(">=", (here, first), "bool", self.span)
        room = plus(self.new, rows)
        return self._over(tensor, self.tapped[name], own, room, axis, is_new, plus(here, -rows), here, self.past[name])

    def _over(
        self,
        tensor: ir.Input | ir.Let,
        name: str,
        own: Coordinate,
        extent: ir.Expr,
        axis: int,
        is_new: ir.Expr,
        new: ir.Expr,
        old: ir.Expr,
        past: str,
    ) -> ir.Let:
        """A definition with the axes of a tensor, of its new rows or of those that are past."""
        coordinates: list[Coordinate] = []
        for number, one in enumerate(tensor.axes):
            used = {c.name for c in coordinates} | {own.name}
            coordinates.append(own if number == axis else fresh(one.coordinate, used))
        extents = [extent if n == axis else self._whole(one.extent) for n, one in enumerate(tensor.axes)]
        slots = tuple(build.coord(c, self.span) for c in coordinates)
        zero = build.whole(0, self.span)
        ranges = tuple(ir.Range(c, zero, e, True, self.span) for c, e in zip(coordinates, extents, strict=True))

        def at(source: str, index: ir.Expr) -> ir.Read:
            return build.read(source, (*slots[:axis], index, *slots[axis + 1 :]), tensor.kind, self.span)

        body = build.select(is_new, at(tensor.name, new), at(past, old), self.span)
        axes = tuple(map(ir.Axis, coordinates, extents))
        return ir.Let(name, axes, tensor.kind, (ir.Clause(slots, ranges, body, None, self.span),), False, self.span)


def plus(expr: ir.Expr, number: int) -> ir.Expr:
    return tidied(build.apply("+", (expr, build.whole(number, expr.span)), "whole", expr.span)) if number else expr


def _dtypes(program: ir.Program) -> dict[str, Dtype]:
    """The dtypes of what is whole or true or false, as far as they are declared: they are those of what is kept."""
    declared = {tensor.name: computed_in(tensor.dtype) for tensor in program.inputs if tensor.dtype is not None}
    if any(tensor.kind == "whole" and tensor.dtype is None for tensor in program.inputs):
        return declared
    return declared | definition_dtypes(program, declared)[0]


def _bound(clause: ir.Clause) -> set[Coordinate]:
    exprs = [expr for expr in (clause.body, clause.guard) if expr is not None]
    inner = [part.coordinates for expr in exprs for part in walk(expr) if isinstance(part, ir.Reduce)]
    return {range.coordinate for range in clause.ranges}.union(*inner)


def _reads(clause: ir.Clause) -> list[ir.Read]:
    exprs = [expr for expr in (clause.body, clause.guard) if expr is not None]
    return [part for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)]
