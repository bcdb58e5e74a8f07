"""The step of a program along positions: the same relation for new positions, given what is kept of those before.

`size(row)` positions are new. What is kept of a tensor comes in an array that has room for them behind what is past; in
`x_all` the two are one. A recurrence reads a few rows back: of these it is given the last, and hands them on.
"""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import polynomial, tidied
from ..ir.needs import made_of
from ..ir.types import Coordinate
from ..ir.walk import fresh, fresh_name, rebuild, substitute, walk
from ..records import dataclass
from ..source import Span
from .past import COMPARISONS, Split, Unsplit, changed, sizes_in


@dataclass(frozen=True)
class Memory:
    """A tensor that is kept: the input of a step that has it, the definition that has the new rows too, and the axis,
    counted from the end.

    Of a recurrence only `rows` are kept, which are handed on as a whole.
    """

    tensor: str
    past: str
    after: str
    axis: int
    offset: int
    rows: int | None


@dataclass(frozen=True)
class Stepping:
    """The step of a program. `before` is the input that says how many positions are past, where no array does."""

    program: ir.Program
    memories: tuple[Memory, ...]
    before: str | None


def step_of(split: Split, outputs: tuple[str, ...]) -> Stepping:
    """The step program. `order` is left to the checker."""
    return _Step(split, outputs).result()


class _Step:
    def __init__(self, split: Split, outputs: tuple[str, ...]) -> None:
        self.split, self.outputs = split, outputs
        self.source = split.program
        self.span = Span(self.source.source, 0, 0)
        self.taken = {*self.source.tensors}
        self.names = {name: self._name(f"{name}_all") for name in (*split.kept, *split.again)}
        self.past = {name: self._name(f"{name}_past") for name in split.kept}
        self.tails = {name: rows for name in split.kept if (rows := self._tail(name)) is not None}
        self.new = build.size(split.row, self.span)
        used = {axis.coordinate.name for tensor in self.source.tensors.values() for axis in tensor.axes}
        used |= {c.name for let in self.source.lets for clause in let.clauses for c in _bound(clause)}
        self.every = fresh(Coordinate("so_far", False, split.row.space), used | self.taken)
        grows = any(name not in self.tails for name in split.kept)
        self.before = None if grows else self._name("before")
        count = build.size(self.every, self.span)
        if self.before is None:
            self.gone: ir.Expr = build.apply("-", (count, self.new), "whole", self.span)
            self.length: ir.Expr = count
        else:
            self.gone = build.read(self.before, (), "whole", self.span)
            self.length = build.apply("+", (self.gone, self.new), "whole", self.span)

    def _name(self, name: str) -> str:
        found = fresh_name(name, self.taken)
        self.taken.add(found)
        return found

    def _tail(self, name: str) -> int | None:
        """The number of rows that are kept of a tensor that is read at fixed distances alone."""
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

    def result(self) -> Stepping:
        split = self.split
        lets: list[ir.Let] = []
        memories = []
        for tensor in self.source.tensors.values():
            name = tensor.name
            if isinstance(tensor, ir.Let):
                if name in split.axis:
                    lets.append(self._rows(tensor))
                elif not split.along[name]:
                    lets.append(replace(tensor, clauses=tuple(changed(c, self._whole) for c in tensor.clauses)))
            if name in self.tails:
                rows = self.tails[name]
                lets.append(self._handed_on(tensor, rows))
                memories.append(self._memory(name, rows))
            elif name in split.kept:
                lets.append(self._joined(tensor))
                memories.append(self._memory(name, None))
            elif name in split.again:
                assert isinstance(tensor, ir.Let)
                lets.append(self._in_full(tensor))
        inputs = [self._input(tensor) for tensor in self.source.inputs]
        inputs += [self._past(self.source.tensors[memory.tensor], memory) for memory in memories]
        if self.before is not None:
            inputs.append(ir.Input(self.before, (), "whole", "i64", self.span))
        needed = made_of((*self.outputs, *(memory.after for memory in memories)), {let.name: let for let in lets})
        program = replace(
            self.source,
            inputs=tuple(tensor for tensor in inputs if tensor.name in needed or self._has_sizes(tensor)),
            lets=tuple(let for let in lets if let.name in needed),
            outputs=self.outputs,
            order=(),
            contracts=(),
            asserts=(),
            expects=(),
        )
        return Stepping(program, tuple(memories), self.before)

    def _has_sizes(self, tensor: ir.Input) -> bool:
        """Whether an input can be given that nothing reads: its sizes do not count positions in some other way."""
        extents = [axis.extent for axis in tensor.axes if not isinstance(axis.extent, ir.Size)]
        return not any(self.split.row in sizes_in(extent) for extent in extents)

    def _memory(self, name: str, rows: int | None) -> Memory:
        axis = self.split.axis[name] - len(self.source.tensors[name].axes)
        return Memory(name, self.past[name], self.names[name], axis, self.split.offset[name], rows)

    # --------------------------------------------------------------------------------- inputs

    def _input(self, tensor: ir.Input) -> ir.Input:
        """A fixed input has a size of its own where the program gives it that of all positions."""
        if self.split.along[tensor.name]:
            return tensor
        axes = []
        for axis in tensor.axes:
            if isinstance(axis.extent, ir.Size) and axis.extent.coordinate == self.split.row:
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
                own = self.every
                if memory.rows is not None or memory.offset:
                    own = self._coordinate(f"row_of_{memory.tensor}")
                axes.append(ir.Axis(own, extent))
                continue
            extent = self._whole(axis.extent)
            named = extent.coordinate if isinstance(extent, ir.Size) else axis.coordinate
            used = {other.coordinate.name for other in axes} | {self.every.name}
            axes.append(ir.Axis(fresh(named, used), extent))
        return ir.Input(memory.past, tuple(axes), tensor.kind, None, tensor.span, owned=memory.rows is None)

    def _room(self, memory: Memory) -> ir.Expr:
        """The number of rows of the array that has what is past."""
        if memory.rows is not None:
            return build.whole(memory.rows, self.span)
        return _plus(self.length, memory.offset)

    # ------------------------------------------------------------------------------ definitions

    def _whole(self, expr: ir.Expr) -> ir.Expr:
        """An expression that stands at no position: the number of positions is that of all so far."""
        if isinstance(expr, ir.Size) and expr.coordinate == self.split.row:
            return self.length
        expr = rebuild(expr, self._whole)
        if isinstance(expr, ir.Read) and expr.tensor in self.names:
            return replace(expr, tensor=self.names[expr.tensor])
        return expr

    def _in_full(self, let: ir.Let) -> ir.Let:
        """A definition that is made of no data, for all positions so far."""
        axes = tuple(replace(axis, extent=self._whole(axis.extent)) for axis in let.axes)
        clauses = tuple(changed(clause, self._whole) for clause in let.clauses)
        return replace(let, name=self.names[let.name], axes=axes, clauses=clauses)

    def _rows(self, let: ir.Let) -> ir.Let:
        """A definition for the new positions."""
        axis = self.split.axis[let.name]
        axes = tuple(
            ir.Axis(one.coordinate, self.new if number == axis else self._whole(one.extent))
            for number, one in enumerate(let.axes)
        )
        if all(self._is_everywhere(clause, let) for clause in let.clauses):
            return replace(let, axes=axes, clauses=tuple(self._each(clause, let) for clause in let.clauses))
        base = next((clause for clause in let.clauses if isinstance(clause.slots[axis], ir.Coord)), None)
        if base is None:
            raise Unsplit(f"`{let.name}` has no rule for a position", Label(let.span))
        slot = base.slots[axis]
        assert isinstance(slot, ir.Coord)
        own = slot.coordinate
        cases = []
        for clause in let.clauses:
            body, guard = self._at_new(clause, let, base, own)
            cases.append((self._applies(clause, let, axis, own), body, guard))
        cases.sort(key=lambda case: case[0] is None)
        if len(cases) > 1 and any(guard is not None for _, _, guard in cases):
            raise Unsplit(f"`{let.name}` has several cases under guards", Label(let.span))
        *first, (_, body, guard) = cases
        for condition, other, _ in reversed(first):
            assert condition is not None
            body = build.select(condition, other, body, let.span)
        clause = ir.Clause(base.slots, self._ranges(base, own), body, guard, let.span)
        return replace(let, axes=axes, clauses=(clause,))

    def _ranges(self, clause: ir.Clause, own: Coordinate) -> tuple[ir.Range, ...]:
        """The ranges of a clause, of which one has the new positions."""
        return tuple(
            ir.Range(own, build.whole(0, r.span), self.new, True, r.span)
            if r.coordinate == own
            else replace(r, lower=self._whole(r.lower), upper=self._whole(r.upper))
            for r in clause.ranges
        )

    def _is_everywhere(self, clause: ir.Clause, let: ir.Let) -> bool:
        """Whether a clause has every position."""
        axis = self.split.axis[let.name]
        slot = clause.slots[axis]
        if not isinstance(slot, ir.Coord):
            return False
        range = next(r for r in clause.ranges if r.coordinate == slot.coordinate)
        return range.from_zero and polynomial(range.upper) == polynomial(let.axes[axis].extent)

    def _each(self, clause: ir.Clause, let: ir.Let) -> ir.Clause:
        """A clause that has every position, at the new ones."""
        slot = clause.slots[self.split.axis[let.name]]
        assert isinstance(slot, ir.Coord)
        body, guard = self._at_new(clause, let, clause, slot.coordinate)
        slots = tuple(one if isinstance(one, ir.Coord) else self._whole(one) for one in clause.slots)
        return ir.Clause(slots, self._ranges(clause, slot.coordinate), body, guard, clause.span)

    def _place(self, own: Coordinate, offset: int) -> ir.Expr:
        """The row of a new position among all."""
        here = build.coord(own, self.span)
        return _plus(build.apply("+", (here, self.gone), "whole", self.span), offset)

    def _applies(self, clause: ir.Clause, let: ir.Let, axis: int, own: Coordinate) -> ir.Expr | None:
        """The condition that a clause has the row of a new position; None where no other clause does."""
        here = self._place(own, self.split.offset[let.name])
        slot = clause.slots[axis]
        if not isinstance(slot, ir.Coord):
            return build.apply("==", (here, self._whole(slot)), "bool", clause.span)
        range = next(r for r in clause.ranges if r.coordinate == slot.coordinate)
        if len(let.clauses) == 1 or range.upper == let.axes[axis].extent:
            return None
        return build.apply("<", (here, self._whole(range.upper)), "bool", clause.span)

    def _at_new(
        self, clause: ir.Clause, let: ir.Let, base: ir.Clause, own: Coordinate
    ) -> tuple[ir.Expr, ir.Expr | None]:
        """The body and guard of a clause at a new position, in the coordinates of the first clause."""
        axis = self.split.axis[let.name]
        here = self._place(own, self.split.offset[let.name])
        local = Coordinate(f"{own.name}@", False, own.space)
        values: dict[Coordinate, ir.Expr] = {local: build.coord(own, self.span)}
        for number, (slot, target) in enumerate(zip(clause.slots, base.slots, strict=True)):
            if number == axis:
                if isinstance(slot, ir.Coord):
                    values[slot.coordinate] = here
            elif clause is base:
                continue
            elif not isinstance(slot, ir.Coord) or not isinstance(target, ir.Coord):
                raise Unsplit(f"`{let.name}` has cases in several coordinates", Label(clause.span))
            elif slot.coordinate != target.coordinate:
                values[slot.coordinate] = target

        def moved(expr: ir.Expr) -> ir.Expr:
            marked = self._marked(expr, let, clause.slots[axis], local)
            return self._tidy(substitute(marked, values))

        return moved(clause.body), None if clause.guard is None else moved(clause.guard)

    def _marked(self, expr: ir.Expr, let: ir.Let, slot: ir.Expr, local: Coordinate) -> ir.Expr:
        """The expression in which reads of the own position are at `local`, and all others of what is kept."""
        if isinstance(expr, ir.Size) and expr.coordinate == self.split.row:
            return self.length
        if isinstance(expr, ir.Normalize) and slot.type.coordinates == {expr.coordinate}:
            raise Unsplit(
                f"`{let.name}` is normalised over all positions",
                Label(expr.span, "what a position gets depends on those after it"),
            )
        inner = slot
        if isinstance(expr, ir.Reduce) and not expr.coordinates.isdisjoint(slot.type.coordinates):
            inner = build.truth(False, slot.span)  # Another coordinate has the name of this one inside.
        result = rebuild(expr, lambda child: self._marked(child, let, inner, local))
        if not isinstance(result, ir.Read) or not isinstance(expr, ir.Read) or not self.split.along[expr.tensor]:
            return result
        if self.split.is_local(expr, let, slot):
            place = self.split.axis[expr.tensor]
            indices = list(result.indices)
            indices[place] = build.coord(local, expr.span)
            return build.read(expr.tensor, tuple(indices), expr.type.kind, expr.span)
        if expr.tensor in self.tails:
            return self._tail_read(result, let, slot, local)
        if expr.tensor in self.split.kept and self.split.steps(expr.tensor) and self.split.steps(let.name):
            return self._joined_read(result)
        return replace(result, tensor=self.names[expr.tensor])

    def _tail_read(self, read: ir.Read, let: ir.Let, slot: ir.Expr, local: Coordinate) -> ir.Expr:
        """A read some rows back: of the new rows where there are as many, else of the last that are past."""
        axis, rows = self.split.axis[read.tensor], self.tails[read.tensor]
        shift = self.split.offset[read.tensor] - self.split.offset[let.name]
        back = (polynomial(slot) - polynomial(read.indices[axis])).constant
        assert back is not None
        back += shift
        here = build.coord(local, read.span)

        def at(tensor: str, index: ir.Expr) -> ir.Read:
            indices = (*read.indices[:axis], index, *read.indices[axis + 1 :])
            return build.read(tensor, indices, read.type.kind, read.span)

        is_new = build.apply(">=", (here, build.whole(back, read.span)), "bool", read.span)
        return build.select(
            is_new, at(read.tensor, _plus(here, -back)), at(self.past[read.tensor], _plus(here, rows - back)), read.span
        )

    def _joined_read(self, read: ir.Read) -> ir.Expr:
        """A read of any row of a recurrence, of the new ones where it is one of those."""
        axis = self.split.axis[read.tensor]
        index = read.indices[axis]
        first = _plus(self.gone, self.split.offset[read.tensor])

        def at(tensor: str, index: ir.Expr) -> ir.Read:
            indices = (*read.indices[:axis], index, *read.indices[axis + 1 :])
            return build.read(tensor, indices, read.type.kind, read.span)

        new = build.apply("-", (index, first), "whole", read.span)
        is_new = build.apply(">=", (index, first), "bool", read.span)
        return build.select(is_new, at(read.tensor, new), at(self.past[read.tensor], index), read.span)

    def _tidy(self, expr: ir.Expr) -> ir.Expr:
        """The expression with the indices of reads, and what is compared, collected."""
        expr = rebuild(expr, self._tidy)
        if isinstance(expr, ir.Read):
            return build.read(expr.tensor, tuple(map(tidied, expr.indices)), expr.type.kind, expr.span)
        if isinstance(expr, ir.Map) and expr.op in COMPARISONS:
            return build.apply(expr.op, tuple(map(tidied, expr.arguments)), "bool", expr.span)
        return expr

    # ---------------------------------------------------------------------------------- memory

    def _joined(self, tensor: ir.Input | ir.Let) -> ir.Let:
        """The rows that are past, and the new ones behind them."""
        memory = self._memory(tensor.name, None)
        axis = self.split.axis[tensor.name]
        own = self.every
        here = build.coord(own, self.span)
        first = _plus(self.gone, memory.offset)
        is_new = build.apply(">=", (here, first), "bool", self.span)
        new = tidied(build.apply("-", (here, first), "whole", self.span))
        return self._over(tensor, memory.after, own, self._room(memory), axis, is_new, new, here, memory.past)

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


def _plus(expr: ir.Expr, number: int) -> ir.Expr:
    return tidied(build.apply("+", (expr, build.whole(number, expr.span)), "whole", expr.span)) if number else expr


def _bound(clause: ir.Clause) -> set[Coordinate]:
    exprs = [expr for expr in (clause.body, clause.guard) if expr is not None]
    inner = [part.coordinates for expr in exprs for part in walk(expr) if isinstance(part, ir.Reduce)]
    return {range.coordinate for range in clause.ranges}.union(*inner)


def _reads(clause: ir.Clause) -> list[ir.Read]:
    exprs = [expr for expr in (clause.body, clause.guard) if expr is not None]
    return [part for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)]
