"""Recurrences in which a definition is some steps later than others → one in which all have point `p` in step `p`."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import expression, polynomial
from ....ir.types import Coordinate
from ....ir.walk import fresh_name, rebuild, substitute
from ....records import dataclass, replace


def align(program: ir.Program, order: ir.Stepwise) -> tuple[ir.Program, ir.Stepwise, list[ir.Order]]:
    """The program in which a definition that is `n` steps later has `n` more points in front, which are 0 and never
    read; the recurrence of those; and the definitions themselves, which are read from them afterwards."""
    later = _later(order)
    if not later:
        return program, order, []
    names = {name: fresh_name(f"{name}_steps", program.tensors) for name in later}
    aligning = _Aligning(later, names)
    members = {name for name, _ in order.axes}
    lets: list[ir.Let] = []
    for let in program.lets:
        moved = aligning.moved(let) if let.name in members else let
        lets += [moved, aligning.original(let)] if let.name in later else [moved]
    return replace(program, lets=tuple(lets)), aligning.order(order), [ir.Once(name) for name in later]


def _later(order: ir.Stepwise) -> dict[str, dict[int, int]]:
    """By how many steps each definition is later, along each of its axes."""
    axes = dict(order.axes)
    result = {name: {axes[name]: steps} for name, steps in order.later}
    for item in order.body:
        for name, steps in _later(item).items() if isinstance(item, ir.Stepwise) else ():
            result[name] = {**result.get(name, {}), **steps}
    return result


@dataclass(frozen=True, slots=True)
class _Aligning:
    """How many points stand in front of each definition, along its axes, and its name with them."""

    later: Mapping[str, Mapping[int, int]]
    names: Mapping[str, str]

    def order(self, order: ir.Order) -> ir.Stepwise:
        """The recurrence under the new names."""
        assert isinstance(order, ir.Stepwise)
        body = tuple(
            ir.Once(self.names.get(item.name, item.name)) if isinstance(item, ir.Once) else self.order(item)
            for item in order.body
        )
        return ir.Stepwise(tuple((self.names.get(name, name), axis) for name, axis in order.axes), order.forward, body)

    def moved(self, let: ir.Let) -> ir.Let:
        """A definition of the recurrence, with the points in front of it if it is later, that reads those of others."""
        later = self.later.get(let.name, {})
        clauses = tuple(self.clause(clause, later) for clause in let.clauses)
        if not later:
            return replace(let, clauses=clauses)
        axes = tuple(
            replace(axis, extent=_plus(axis.extent, later.get(n, 0)), origin=None) for n, axis in enumerate(let.axes)
        )
        fillers = self.fillers(replace(let, axes=axes), later)
        return replace(let, name=self.names[let.name], axes=axes, clauses=(*fillers, *clauses), hidden=True)

    def clause(self, clause: ir.Clause, later: Mapping[int, int]) -> ir.Clause:
        """A clause at its points further on."""
        steps = {s.coordinate: later[n] for n, s in enumerate(clause.slots) if n in later and isinstance(s, ir.Coord)}
        values = {c: _plus(build.coord(c, clause.span), -count) for c, count in steps.items()}
        ranges = tuple(_moved_range(range, steps, values) for range in clause.ranges)
        slots = tuple(
            slot if isinstance(slot, ir.Coord) else _plus(slot, later.get(n, 0)) for n, slot in enumerate(clause.slots)
        )
        body = self.read(substitute(clause.body, values))
        guard = None if clause.guard is None else self.read(substitute(clause.guard, values))
        return replace(clause, slots=slots, ranges=ranges, body=body, guard=guard)

    def read(self, expr: ir.Expr) -> ir.Expr:
        """An expression that reads later definitions at their points further on."""
        expr = rebuild(expr, self.read)
        if not isinstance(expr, ir.Read) or expr.tensor not in self.later:
            return expr
        return self.reading(expr, expr.indices)

    def reading(self, of: ir.Read, indices: tuple[ir.Expr, ...]) -> ir.Expr:
        later = self.later[of.tensor]
        places = tuple(_plus(index, later.get(n, 0)) for n, index in enumerate(indices))
        return build.read(self.names[of.tensor], places, of.type.kind, of.span)

    def fillers(self, let: ir.Let, later: Mapping[int, int]) -> list[ir.Clause]:
        """The points in front, along one axis after the other: those behind an earlier one are in it already."""
        zero = build.truth(False, let.span) if let.kind == "bool" else build.whole(0, let.span)
        first, bounds = build.whole(0, let.span), [(build.whole(0, let.span), axis.extent) for axis in let.axes]
        result = []
        for number, count in later.items():
            edge = build.whole(count, let.span)
            here = [*bounds]
            here[number] = (first, edge)
            slots: list[ir.Expr] = [build.coord(axis.coordinate, let.span) for axis in let.axes]
            ranges = [
                ir.Range(axis.coordinate, lower, upper, True, let.span)
                for axis, (lower, upper) in zip(let.axes, here, strict=True)
            ]
            if count == 1:  # Written as a base case, it is under the same test as those of others.
                slots[number] = first
                del ranges[number]
            result.append(ir.Clause(tuple(slots), tuple(ranges), zero, None, let.span))
            bounds[number] = (edge, bounds[number][1])
        return result

    def original(self, let: ir.Let) -> ir.Let:
        """The definition, read from the one with points in front."""
        slots = tuple(build.coord(axis.coordinate, let.span) for axis in let.axes)
        zero = build.whole(0, let.span)
        ranges = tuple(ir.Range(axis.coordinate, zero, axis.extent, True, let.span) for axis in let.axes)
        itself = build.read(let.name, slots, let.kind, let.span)
        return replace(let, clauses=(ir.Clause(slots, ranges, self.reading(itself, slots), None, let.span),))


def _plus(expr: ir.Expr, count: int) -> ir.Expr:
    return expression(polynomial(expr) + count, expr.span) if count else expr


def _moved_range(range: ir.Range, steps: Mapping[Coordinate, int], values: Mapping[Coordinate, ir.Expr]) -> ir.Range:
    """The range of a coordinate further on; one that depends on it means the same points as before."""
    count = steps.get(range.coordinate, 0)
    lower, upper = (_plus(substitute(end, values), count) for end in (range.lower, range.upper))
    return replace(range, lower=lower, upper=upper, stated=range.stated or bool(count))
