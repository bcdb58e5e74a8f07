"""Recurrences along two coordinates → one step for each diagonal, all points of a diagonal at once."""

from __future__ import annotations

from collections.abc import Mapping

from ....ir import build
from ....ir import nodes as ir
from ....ir.affine import expression, polynomial
from ....ir.context import constants_of
from ....ir.types import Coordinate
from ....ir.walk import Inexpressible, fresh, fresh_name, rebuild, substitute, walk
from ....records import dataclass, replace

# A diagonal may lie so steep: `3 * i + j`.
STEEPEST = 3


@dataclass(frozen=True, slots=True)
class Diagonals:
    """Two axes of a definition, the outer and the inner, each forward or not. Its points are reached in the order of
    `slope * outer + inner`, each counted from where it starts; along the outer axis they are computed at once."""

    axes: tuple[int, int]
    forward: tuple[bool, bool]
    slope: int


def diagonals_of(order: ir.Stepwise, lets: Mapping[str, ir.Let]) -> dict[str, Diagonals] | str:
    """The diagonals of each definition of a recurrence along two coordinates; or why it has none. One that the inner
    coordinate need not step is included."""
    loops = [item for item in order.body if isinstance(item, ir.Stepwise)]
    if len(loops) != 1 or any(isinstance(item, ir.Stepwise) for item in loops[0].body):
        return "it is no table of two coordinates alone"
    outer, inner, inner_forward = dict(order.axes), dict(loops[0].axes), loops[0].forward
    beside = next(iter(inner.values()))
    for name, axis in outer.items():
        inner.setdefault(name, beside)
        if inner[name] == axis or inner[name] >= len(lets[name].axes):
            return "its definitions do not all step along both coordinates"
    forward = (order.forward, inner_forward)
    constants = constants_of(lets)
    moves: list[tuple[int, int]] = []
    for name in outer:
        for clause in lets[name].clauses:
            for read in _reads(clause, outer):
                back = []
                for axes, ahead in zip((outer, inner), forward, strict=True):
                    slot, index = clause.slots[axes[name]], read.indices[axes[read.tensor]]
                    distance = (polynomial(slot, constants) - polynomial(index, constants)).constant
                    if distance is None:
                        return f"`{read.span.text}` is at no fixed distance"
                    back.append(distance if ahead else -distance)
                moves.append((back[0], back[1]))
    for slope in range(1, STEEPEST + 1):
        if all(move == (0, 0) or slope * move[0] + move[1] > 0 for move in moves):
            return {name: Diagonals((outer[name], inner[name]), forward, slope) for name in outer}
    return "its points do not lie in diagonals that read only earlier ones"


def _reads(clause: ir.Clause, names: Mapping[str, object]) -> list[ir.Read]:
    parts = (clause.body, *(() if clause.guard is None else (clause.guard,)))
    return [part for expr in parts for part in walk(expr) if isinstance(part, ir.Read) and part.tensor in names]


def skew(program: ir.Program, order: ir.Stepwise) -> tuple[ir.Program, ir.Stepwise, list[ir.Order]] | str:
    """The program with a recurrence along two coordinates as one along its diagonals, from which its points are then
    read; or why it is not so."""
    lets = program.definitions
    found = diagonals_of(order, lets)
    if isinstance(found, str):
        return found
    names = {name: fresh_name(f"{name}_diagonals", program.tensors) for name in found}
    skewing = _Skewing(lets, found, names)
    new: dict[str, tuple[ir.Let, ...]] = {}
    try:
        for name in found:
            new[name] = (skewing.skewed(lets[name]), skewing.straightened(lets[name]))
    except Inexpressible:
        return "a normaliser stands in the way"
    body = tuple(ir.Once(names[name]) for name in _in_order(order))
    steps = ir.Stepwise(tuple((names[name], found[name].axes[1]) for name in found), True, body)
    changed = tuple(part for let in program.lets for part in new.get(let.name, (let,)))
    return replace(program, lets=changed), steps, [ir.Once(name) for name in found]


def _in_order(order: ir.Stepwise) -> list[str]:
    """The definitions of a recurrence, in the order in which a point of each is computed."""
    return [name for item in order.body for name in ([item.name] if isinstance(item, ir.Once) else _in_order(item))]


@dataclass(frozen=True, slots=True)
class _Skewing:
    """Definitions in terms of diagonals: the axis of the inner coordinate counts these instead."""

    lets: Mapping[str, ir.Let]
    diagonals: Mapping[str, Diagonals]
    names: Mapping[str, str]

    def skewed(self, let: ir.Let) -> ir.Let:
        """The definition along its diagonals; 0 where a diagonal leaves it."""
        how = self.diagonals[let.name]
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
        how = self.diagonals[let.name]
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
        how = self.diagonals[let.name]
        outer, inner = (polynomial(let.axes[axis].extent) for axis in how.axes)
        total = inner
        for _ in range(how.slope):
            total = total + outer - 1
        return expression(total, let.span)

    def diagonal_of(self, let: ir.Let, outer: ir.Expr, inner: ir.Expr) -> ir.Expr:
        """The diagonal of a point."""
        how = self.diagonals[let.name]
        first, second = self.counted(let, outer, 0), self.counted(let, inner, 1)
        total = polynomial(second)
        for _ in range(how.slope):
            total = total + polynomial(first)
        return expression(total, let.span)

    def inner_of(self, let: ir.Let, outer: ir.Expr, diagonal: ir.Expr) -> ir.Expr:
        """The inner coordinate at which a diagonal meets a point of the outer one."""
        how = self.diagonals[let.name]
        total = polynomial(diagonal)
        for _ in range(how.slope):
            total = total - polynomial(self.counted(let, outer, 0))
        return self.counted(let, expression(total, let.span), 1)

    def counted(self, let: ir.Let, place: ir.Expr, which: int) -> ir.Expr:
        """A place along one of the two axes, counted from where that starts; and the other way round."""
        how = self.diagonals[let.name]
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
        how = self.diagonals[let.name]
        constants = constants_of(self.lets)

        def change(part: ir.Expr) -> ir.Expr:
            part = rebuild(part, change)
            if not isinstance(part, ir.Read) or part.tensor not in self.diagonals:
                return part
            theirs = self.diagonals[part.tensor].axes
            back = []
            for mine, other in zip(how.axes, theirs, strict=True):
                distance = polynomial(places[mine], constants) - polynomial(part.indices[other], constants)
                assert distance.constant is not None
                back.append(distance.constant)
            first, second = (n if ahead else -n for n, ahead in zip(back, how.forward, strict=True))
            indices = list(part.indices)
            indices[theirs[0]] = expression(polynomial(point[how.axes[0]]) - back[0], part.span)
            now = polynomial(build.coord(step, part.span))
            indices[theirs[1]] = expression(now - (how.slope * first + second), part.span)
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
