"""The step of a program along positions: the same relation for new positions, given what is kept of those before.

`size(row)` positions are new. What is kept of a tensor comes in an array that has room for them behind what is past; in
`x_all` the two are one. A recurrence reads a few rows back: of these it is given the last, and hands them on.
"""

from __future__ import annotations

from ..diagnostics import Label
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Polynomial, expression, polynomial, tidied
from ..ir.needs import made_of
from ..ir.types import Coordinate
from ..ir.walk import changed, rebuild, substitute, walk
from ..records import dataclass, replace
from .batch import Unbatchable, varying_along, with_one
from .memory import Memory, Paging, Remembered, plus
from .past import Split
from .positions import COMPARISONS, Unsplit, exprs_of, sizes_in
from .ranges import without_ranges_along
from .windows import positions_in

# The position of the first row of what has a window, until that is put in its place.
_FIRST = Coordinate("first@")


@dataclass(frozen=True)
class Stepping:
    """The step of a program. `before` is the input that says how many positions are past, where no array does. Of
    what has a window, it is given the last rows: as many as the largest of `reach`.

    Where there is room for a fixed number of positions, `before` is an array: with a number for each sequence, or with
    one for all. `shared` says why not for each. Where what is kept lies in pages, `paging` says how it is found."""

    program: ir.Program
    memories: tuple[Memory, ...]
    before: str | None
    reach: tuple[ir.Expr, ...] = ()
    shared: str | None = None
    paging: Paging | None = None


def step_of(
    split: Split,
    outputs: tuple[str, ...],
    keep: str | None = None,
    capacity: int | None = None,
    sequences: ir.Expr | None = None,
) -> Stepping:
    """The step program, whose arrays of what is past are as `keep` says. `order` is left to the checker.

    With a `capacity`, these arrays have room for so many positions, whatever of them is there, and the number of those
    that are past is data. `sequences` is the extent of the axis along which it may vary; None where there is none."""
    found = _Step(split, outputs, keep, capacity).result()
    if capacity is None:
        return found
    given = [tensor.name for tensor in split.program.inputs if split.along[tensor.name]]
    given += [*outputs, *(memory.after for memory in found.memories)]
    try:
        if sequences is None:
            raise Unbatchable("no coordinate before the positions tells them apart")
        return replace(found, program=varying_along(found.program, found.before, sequences, given))
    except Unbatchable as problem:
        program = found.program if found.before is None else with_one(found.program, found.before)
        return replace(found, program=program, shared=str(problem))


class _Step(Remembered):
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
                if name in self.taps:
                    lets.append(self._with_taps(tensor, rows))
                lets.append(self._handed_on(tensor, rows))
                memories.append(self._memory(name, rows))
            elif name in split.kept:
                lets.append(self._joined(tensor))
                memories.append(self._memory(name, None))
                if memories[-1].scale:
                    lets.append(self._scaled(tensor, memories[-1]))
                if isinstance(tensor, ir.Input) and name in self.news:
                    lets.append(self._same(tensor))
            elif name in split.again:
                assert isinstance(tensor, ir.Let)
                lets.append(self._in_full(tensor))
        inputs = [self._input(tensor) for tensor in self.source.inputs]
        inputs += [self._past(self.source.tensors[memory.tensor], memory) for memory in memories]
        inputs += [self._scale(self.source.tensors[memory.tensor], memory) for memory in memories if memory.scale]
        before = self.before
        if before is not None and not any(map(self._counts, lets)):
            before = None
        if before is not None:
            inputs.append(ir.Input(before, (), "whole", "i64", self.span, counts=self.capacity is not None))
        needed = made_of((*self.outputs, *(memory.after for memory in memories)), {let.name: let for let in lets})
        program = replace(
            self.source,
            inputs=tuple(tensor for tensor in inputs if tensor.name in needed or self._has_sizes(tensor)),
            lets=tuple(self._beside_tables(let) for let in lets if let.name in needed),
            outputs=self.outputs,
            order=(),
            contracts=(),
            asserts=(),
            expects=(),
        )
        return Stepping(program, tuple(memories), before, self.windows.reach)

    def _counts(self, let: ir.Let) -> bool:
        """Whether a definition asks how many positions are past."""
        exprs = [axis.extent for axis in let.axes] + [expr for clause in let.clauses for expr in exprs_of(clause)]
        return any(isinstance(part, ir.Read) and part.tensor == self.before for e in exprs for part in walk(e))

    def _has_sizes(self, tensor: ir.Input) -> bool:
        """Whether an input can be given that nothing reads: its sizes do not count positions in some other way."""
        extents = [axis.extent for axis in tensor.axes if not isinstance(axis.extent, ir.Size)]
        return not any(self.split.row in sizes_in(extent) for extent in extents)

    def _beside_tables(self, let: ir.Let) -> ir.Let:
        """The definition in which what indexes a table that is longer than the positions so far says where it ends."""
        parts = [part for clause in let.clauses for expr in exprs_of(clause) for part in walk(expr)]
        indices = [
            part.indices[number]
            for part in parts
            if isinstance(part, ir.Read) and part.tensor in self.tables
            for number in self.tables[part.tensor]
        ]
        bare = {index.coordinate for index in indices if isinstance(index, ir.Coord)}

        def stated(ranges: tuple[ir.Range, ...]) -> tuple[ir.Range, ...]:
            return tuple(replace(r, stated=r.stated or r.coordinate in bare) for r in ranges)

        def change(expr: ir.Expr) -> ir.Expr:
            expr = rebuild(expr, change)
            return replace(expr, ranges=stated(expr.ranges)) if isinstance(expr, ir.Reduce) else expr

        if not bare:
            return let
        clauses = [replace(changed(clause, change), ranges=stated(clause.ranges)) for clause in let.clauses]
        return replace(let, clauses=tuple(clauses))

    # ------------------------------------------------------------------------------ definitions

    def _in_full(self, let: ir.Let) -> ir.Let:
        """A definition that is made of no data, for all positions so far."""
        axes = tuple(replace(axis, extent=self._whole(axis.extent)) for axis in let.axes)
        clauses = tuple(changed(clause, self._whole) for clause in let.clauses)
        return replace(let, name=self.names[let.name], axes=axes, clauses=clauses)

    def _rows(self, let: ir.Let) -> ir.Let:
        """A definition for the new positions."""
        axis = self.split.axis[let.name]
        axes = tuple(
            ir.Axis(one.coordinate, self.new if number == axis else self._columns(let, number, one.extent))
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
        clause = ir.Clause(base.slots, self._ranges(base, own, let), body, guard, let.span)
        return replace(let, axes=axes, clauses=(clause,))

    def _columns(self, let: ir.Let, number: int, extent: ir.Expr) -> ir.Expr:
        """The extent of an axis that has no rows: where it has positions in a window, those are recent ones."""
        is_near = let.name in self.windows.lets and number in self.split.along[let.name]
        return self.width if is_near else self._whole(extent)

    def _ranges(self, clause: ir.Clause, own: Coordinate, let: ir.Let) -> tuple[ir.Range, ...]:
        """The ranges of a clause, of which one has the new positions."""
        places = {slot.coordinate: n for n, slot in enumerate(clause.slots) if isinstance(slot, ir.Coord)}
        return tuple(
            ir.Range(own, build.whole(0, r.span), self.new, True, r.span)
            if r.coordinate == own
            else replace(r, lower=self._whole(r.lower), upper=self._columns(let, places.get(r.coordinate, -1), r.upper))
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
        return ir.Clause(slots, self._ranges(clause, slot.coordinate, let), body, guard, clause.span)

    def _place(self, own: Coordinate, offset: int) -> ir.Expr:
        """The row of a new position among all."""
        here = build.coord(own, self.span)
        return plus(build.apply("+", (here, self.gone), "whole", self.span), offset)

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
        values: dict[Coordinate, ir.Expr] = {local: build.coord(own, self.span), _FIRST: self.first}
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

        columns = [n for n in self.split.along[let.name] if n != axis]
        bound = frozenset(s.coordinate for n in columns if isinstance(s := clause.slots[n], ir.Coord))

        def moved(expr: ir.Expr) -> ir.Expr:
            expr = self._near(expr, bound) if let.name in self.windows.lets else expr
            if self.capacity is not None and isinstance(row := clause.slots[axis], ir.Coord):
                expr = without_ranges_along(expr, row.coordinate, plus(self.length, self.split.offset[let.name] - 1))
            marked = self._marked(expr, let, clause.slots[axis], local)
            return self._tidy(substitute(marked, values))

        return moved(clause.body), None if clause.guard is None else moved(clause.guard)

    def _near(self, expr: ir.Expr, bound: frozenset[Coordinate]) -> ir.Expr:
        """The expression in which `bound` and what reductions take are rows of a window: as values, positions."""
        if isinstance(expr, ir.Coord):
            here = build.apply("+", (expr, build.coord(_FIRST, expr.span)), "whole", expr.span)
            return here if expr.coordinate in bound else expr
        if isinstance(expr, ir.Reduce):
            taken = positions_in(expr, self.split.row)
            ranges = tuple(replace(r, upper=self.width) if r.coordinate in taken else r for r in expr.ranges)
            bound = (bound - expr.coordinates) | taken
            expr = replace(expr, ranges=ranges)
        if not isinstance(expr, ir.Read):
            return rebuild(expr, lambda child: self._near(child, bound))
        rows = self.split.along[expr.tensor]
        indices = [
            index if number in rows and isinstance(index, ir.Coord) else self._near(index, bound)
            for number, index in enumerate(expr.indices)
        ]
        return build.read(expr.tensor, tuple(indices), expr.type.kind, expr.span)

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
        if expr.tensor in self.taps:
            return self._tap(result, let, slot, local)
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
            is_new, at(read.tensor, plus(here, -back)), at(self.past[read.tensor], plus(here, rows - back)), read.span
        )

    def _tap(self, read: ir.Read, let: ir.Let, slot: ir.Expr, local: Coordinate) -> ir.Expr:
        """A read some rows back, at a distance that varies: of the last rows and the new ones behind them."""
        axis, rows = self.split.axis[read.tensor], self.taps[read.tensor]
        shift = self.split.offset[let.name] - self.split.offset[read.tensor]
        ahead = build.apply("-", (read.indices[axis], slot), "whole", read.span)
        here = build.apply("+", (build.coord(local, read.span), ahead), "whole", read.span)
        indices = (*read.indices[:axis], plus(tidied(here), rows + shift), *read.indices[axis + 1 :])
        return build.read(self.tapped[read.tensor], indices, read.type.kind, read.span)

    def _joined_read(self, read: ir.Read) -> ir.Expr:
        """A read of any row of a recurrence, of the new ones where it is one of those."""
        axis = self.split.axis[read.tensor]
        index = read.indices[axis]
        first = plus(self.gone, self.split.offset[read.tensor])

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
            left, right = map(polynomial, expr.arguments)
            both = Polynomial({m: k for m, k in left.terms.items() if right.terms.get(m) == k})
            sides = (expression(left - both, expr.span), expression(right - both, expr.span))
            return build.apply(expr.op, sides if both.terms else tuple(map(tidied, expr.arguments)), "bool", expr.span)
        return expr
