"""Recurrences along two coordinates → one step for each diagonal, all points of a diagonal at once: a pass before
lowering."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import Constants, Polynomial, expression, number, polynomial
from ..ir.context import constants_of
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, fresh, fresh_name, rebuild, substitute, walk
from ..records import dataclass, replace

# What the trace calls it, and what is true of it.
NAME, LAW = "go by diagonals", "x[i, j] of x[i - 1, j] and x[i, j - 1] is y[i, i + j] of the y[.., i + j - 1]"

# A diagonal may lie so steep: `3 * i + j`.
STEEPEST = 3


@dataclass(frozen=True, slots=True)
class Skewed:
    """A program in which recurrences go along diagonals where they can: what those of each definition are called; and
    why a definition that is stepped along several coordinates has none."""

    program: ir.Program
    names: Mapping[str, str]
    refused: Mapping[str, str]


def skew(program: ir.Program, kernels: Container[str] = ()) -> Skewed:
    """The program with every recurrence along two coordinates as one along its diagonals, from which its points are
    then read; but for those that kernels compute."""
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    items: list[ir.Order] = []
    for item in program.order:
        nested = isinstance(item, ir.Stepwise) and any(isinstance(inner, ir.Stepwise) for inner in item.body)
        if not isinstance(item, ir.Stepwise) or not nested or any(name in kernels for name, _ in item.axes):
            items.append(item)
            continue
        found = _skewed(program, item)
        if isinstance(found, str):
            refused |= {name: found for name, _ in item.axes}
            items.append(item)
        else:
            program, steps, own = found
            names |= own
            items += [steps, *map(ir.Once, own)]
    return Skewed(replace(program, order=tuple(items)) if names else program, names, refused)


@dataclass(frozen=True, slots=True)
class _Table:
    """Two axes of a definition, the outer and the inner, each forward or not, by how many steps it is later along them,
    and in which step it begins. Its points are reached in the order of `slope * outer + inner`, each counted from where
    it begins; along the outer axis they are computed at once."""

    axes: tuple[int, int]
    forward: tuple[bool, bool]
    later: tuple[int, int]
    begins: tuple[int, int]

    def back(self, other: _Table, apart: tuple[int, int]) -> tuple[int, int]:
        """By how many steps a point of another table is earlier that is so far away."""
        steps = [far + own - theirs for far, own, theirs in zip(apart, self.later, other.later, strict=True)]
        first, second = (one if ahead else -one for one, ahead in zip(steps, self.forward, strict=True))
        return first, second


def _tables(order: ir.Stepwise, lets: Mapping[str, ir.Let]) -> dict[str, _Table] | str:
    """The two axes of each definition of a recurrence; or why these are no tables. A definition that the inner
    coordinate need not step is one, too."""
    loops = [item for item in order.body if isinstance(item, ir.Stepwise)]
    if len(loops) != 1 or any(isinstance(item, ir.Stepwise) for item in loops[0].body):
        return "it is no table of two coordinates alone"
    outer, inner = dict(order.axes), dict(loops[0].axes)
    beside = next(iter(inner.values()))
    forward = (order.forward, loops[0].forward)
    axes = {name: (axis, inner.get(name, beside)) for name, axis in outer.items()}
    if any(other == axis or other >= len(lets[name].axes) for name, (axis, other) in axes.items()):
        return "its definitions do not all step along both coordinates"
    later = {name: (dict(order.later).get(name, 0), dict(loops[0].later).get(name, 0)) for name in axes}
    begins: list[Mapping[str, int]] = []
    for n, ahead in enumerate(forward):
        ends = {name: polynomial(lets[name].axes[axes[name][n]].extent) + later[name][n] for name in axes}
        found = {name: later[name][n] for name in axes} if ahead else _behind(ends)
        if found is None:
            return "its definitions do not begin at a fixed distance"
        begins.append(found)
    return {name: _Table(axes[name], forward, later[name], (begins[0][name], begins[1][name])) for name in axes}


def _behind(ends: Mapping[str, Polynomial]) -> dict[str, int] | None:
    """How far each of some ends is before the last; None where that is not fixed."""
    first = next(iter(ends.values()))
    found = {name: (first - end).constant for name, end in ends.items()}
    least = min((steps for steps in found.values() if steps is not None), default=0)
    behind = {name: steps - least for name, steps in found.items() if steps is not None}
    return behind if len(behind) == len(ends) else None


def _slope(tables: Mapping[str, _Table], lets: Mapping[str, ir.Let]) -> int | str:
    """How steep the diagonals of tables lie that read only earlier ones; or why there are none."""
    constants = constants_of(lets)
    moves: list[tuple[int, int]] = []
    for name, table in tables.items():
        for clause in lets[name].clauses:
            for read in _reads(clause, tables):
                apart = _apart(table, tables[read.tensor], clause.slots, read.indices, constants)
                if apart is None:
                    return f"`{read.span.text}` is at no fixed distance"
                moves.append(table.back(tables[read.tensor], apart))
    for slope in range(1, STEEPEST + 1):
        if all(move == (0, 0) or slope * move[0] + move[1] > 0 for move in moves):
            return slope
    return "its points do not lie in diagonals that read only earlier ones"


def _apart(
    one: _Table, other: _Table, places: Sequence[ir.Expr], indices: Sequence[ir.Expr], constants: Constants
) -> tuple[int, int] | None:
    """How far a read is from a place, along each of the two axes; None where that is not fixed."""
    found = [
        (polynomial(places[mine], constants) - polynomial(indices[theirs], constants)).constant
        for mine, theirs in zip(one.axes, other.axes, strict=True)
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _reads(clause: ir.Clause, names: Mapping[str, object]) -> list[ir.Read]:
    parts = (clause.body, *(() if clause.guard is None else (clause.guard,)))
    return [part for expr in parts for part in walk(expr) if isinstance(part, ir.Read) and part.tensor in names]


def _skewed(program: ir.Program, order: ir.Stepwise) -> tuple[ir.Program, ir.Stepwise, dict[str, str]] | str:
    """The program with a recurrence along diagonals, the order of these, and what they are called; or why it is not
    so."""
    lets = program.definitions
    tables = _tables(order, lets)
    slope = tables if isinstance(tables, str) else _slope(tables, lets)
    if isinstance(tables, str) or isinstance(slope, str):
        return str(slope)
    names = {name: fresh_name(f"{name}_diagonals", program.tensors) for name in tables}
    skewing = _Skewing(lets, tables, names, slope)
    new: dict[str, tuple[ir.Let, ...]] = {}
    try:
        for name in tables:
            new[name] = (skewing.skewed(lets[name]), skewing.straightened(lets[name]))
    except Inexpressible:
        return "a normaliser stands in the way"
    body = tuple(ir.Once(names[name]) for name in _in_order(order))
    axes = tuple((names[name], table.axes[1]) for name, table in tables.items())
    later = tuple((names[name], steps) for name in tables if (steps := skewing.begins(name)))
    changed = tuple(part for let in program.lets for part in new.get(let.name, (let,)))
    return replace(program, lets=changed), ir.Stepwise(axes, True, body, later), names


def _in_order(order: ir.Stepwise) -> list[str]:
    """The definitions of a recurrence, in the order in which a point of each is computed."""
    return [name for item in order.body for name in ([item.name] if isinstance(item, ir.Once) else _in_order(item))]


@dataclass(frozen=True, slots=True)
class _Skewing:
    """Definitions in terms of diagonals: the axis of the inner coordinate counts these instead."""

    lets: Mapping[str, ir.Let]
    tables: Mapping[str, _Table]
    names: Mapping[str, str]
    slope: int

    def begins(self, name: str) -> int:
        """The number of diagonals before the first of a definition."""
        outer, inner = self.tables[name].begins
        return self.slope * outer + inner

    def skewed(self, let: ir.Let) -> ir.Let:
        """The definition along its diagonals; 0 where a diagonal leaves it."""
        how = self.tables[let.name]
        span = let.span
        outer, inner = how.axes
        homes = _homes(let)
        homes[inner] = step = fresh(Coordinate("diagonal"), {home.name for home in homes} | _bound(let))
        point: list[ir.Expr] = [build.coord(home, span) for home in homes]
        point[inner] = self.inner_of(let, point[outer], point[inner])
        body = _zero(let)
        for clause in reversed(let.clauses):
            if isinstance(clause.body, ir.Const) and clause.body.value == 0:
                continue
            value = self.at_diagonal(let, clause, clause.body, point, step)
            if clause.guard is not None:
                value = build.select(self.at_diagonal(let, clause, clause.guard, point, step), value, _zero(let), span)
            condition = _inside(let, clause, point)
            body = value if condition is None else build.select(condition, value, body, span)
        extents = [axis.extent for axis in let.axes]
        extents[inner] = self.count(let)
        slots = tuple(build.coord(home, span) for home in homes)
        zero = build.whole(0, span)
        ranges = tuple(ir.Range(home, zero, extent, True, span) for home, extent in zip(homes, extents, strict=True))
        axes = tuple(ir.Axis(home, extent) for home, extent in zip(homes, extents, strict=True))
        clause = ir.Clause(slots, ranges, body, None, let.clauses[0].span.to(let.clauses[-1].span))
        return replace(let, name=self.names[let.name], axes=axes, clauses=(clause,), hidden=True)

    def straightened(self, let: ir.Let) -> ir.Let:
        """Every point of the definition, read from its diagonals."""
        how = self.tables[let.name]
        span = let.span
        homes = _homes(let)
        indices: list[ir.Expr] = [build.coord(home, span) for home in homes]
        slots = tuple(indices)
        indices[how.axes[1]] = self.diagonal_of(let, indices[how.axes[0]], indices[how.axes[1]])
        zero = build.whole(0, span)
        ranges = tuple(ir.Range(h, zero, axis.extent, True, span) for h, axis in zip(homes, let.axes, strict=True))
        body = build.read(self.names[let.name], tuple(indices), let.kind, span)
        return replace(let, clauses=(ir.Clause(slots, ranges, body, None, span),))

    def count(self, let: ir.Let) -> ir.Expr:
        """The number of diagonals."""
        outer, inner = (polynomial(let.axes[axis].extent) for axis in self.tables[let.name].axes)
        return expression(inner + number(self.slope) * (outer - 1), let.span)

    def diagonal_of(self, let: ir.Let, outer: ir.Expr, inner: ir.Expr) -> ir.Expr:
        """The diagonal of a point."""
        first, second = polynomial(self.counted(let, outer, 0)), polynomial(self.counted(let, inner, 1))
        return expression(second + number(self.slope) * first, let.span)

    def inner_of(self, let: ir.Let, outer: ir.Expr, diagonal: ir.Expr) -> ir.Expr:
        """The inner coordinate at which a diagonal meets a point of the outer one."""
        total = polynomial(diagonal) - number(self.slope) * polynomial(self.counted(let, outer, 0))
        return self.counted(let, expression(total, let.span), 1)

    def counted(self, let: ir.Let, place: ir.Expr, which: int) -> ir.Expr:
        """A place along one of the two axes, counted from where that starts; and the other way round."""
        how = self.tables[let.name]
        if how.forward[which]:
            return place
        extent = polynomial(let.axes[how.axes[which]].extent)
        return expression(extent - 1 - polynomial(place), let.span)

    def at_diagonal(
        self, let: ir.Let, clause: ir.Clause, expr: ir.Expr, point: list[ir.Expr], step: Coordinate
    ) -> ir.Expr:
        """An expression of a clause at a point of a diagonal, with what it reads of the recurrence."""
        pairs = list(zip(clause.slots, point, strict=True))
        values = {slot.coordinate: place for slot, place in pairs if isinstance(slot, ir.Coord)}
        places = [place if isinstance(slot, ir.Coord) else slot for slot, place in pairs]
        how = self.tables[let.name]
        constants = constants_of(self.lets)

        def change(part: ir.Expr) -> ir.Expr:
            part = rebuild(part, change)
            if not isinstance(part, ir.Read) or part.tensor not in self.tables:
                return part
            other = self.tables[part.tensor]
            apart = _apart(how, other, places, part.indices, constants)
            assert apart is not None
            first, second = how.back(other, apart)
            steps = self.slope * first + second - self.begins(let.name) + self.begins(part.tensor)
            indices = list(part.indices)
            indices[other.axes[0]] = expression(polynomial(point[how.axes[0]]) - apart[0], part.span)
            indices[other.axes[1]] = expression(polynomial(build.coord(step, part.span)) - steps, part.span)
            return build.read(self.names[part.tensor], tuple(indices), part.type.kind, part.span)

        return change(substitute(expr, values))


def _homes(let: ir.Let) -> list[Coordinate]:
    """A coordinate for every axis, none of which a reduction inside binds."""
    taken = _bound(let)
    homes: list[Coordinate] = []
    for axis in let.axes:
        homes.append(fresh(axis.coordinate, taken))
        taken.add(homes[-1].name)
    return homes


def _bound(let: ir.Let) -> set[str]:
    """The names of coordinates that reductions inside a definition bind."""
    parts = (part for clause in let.clauses for expr in (clause.body, clause.guard) if expr for part in walk(expr))
    return {coordinate.name for part in parts if isinstance(part, ir.Reduce) for coordinate in part.coordinates}


def _zero(let: ir.Let) -> ir.Expr:
    return build.truth(False, let.span) if let.kind == "bool" else build.whole(0, let.span)


def _inside(let: ir.Let, clause: ir.Clause, point: list[ir.Expr]) -> ir.Expr | None:
    """Whether a point is one of a clause; None where every point is."""
    ranges = {range.coordinate: range for range in clause.ranges}
    conditions: list[ir.Expr] = []
    for slot, place, axis in zip(clause.slots, point, let.axes, strict=True):
        if not isinstance(slot, ir.Coord):
            conditions.append(build.apply("==", (place, slot), "bool", clause.span))
            continue
        own = ranges[slot.coordinate]
        plain = isinstance(place, ir.Coord)
        if not plain or own.lower != build.whole(0, clause.span):
            conditions.append(build.apply("<=", (own.lower, place), "bool", clause.span))
        if not plain or own.upper != axis.extent:
            conditions.append(build.apply("<", (place, own.upper), "bool", clause.span))
    return build.conjunction(conditions)
