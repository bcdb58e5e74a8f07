"""Every node of a program with what holds where it is evaluated: ranges, guards, branches taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from ..records import dataclass
from ..source import Span
from . import build
from . import nodes as ir
from .prove import Assumptions
from .types import Coordinate
from .walk import LEAVES, children, meaning, substitute

Trail: TypeAlias = ir.Trail


@dataclass(frozen=True, slots=True)
class Measured:
    """A coordinate that indexes an axis bare, though its range was taken from another: the two extents must agree."""

    range: ir.Range
    extent: ir.Expr
    tensor: str
    axis: int
    span: Span


def visit_clause(clause: ir.Clause) -> Iterator[tuple[ir.Expr, Trail]]:
    """Every expression of a clause, guard first, with its trail."""
    trail: Trail = clause.ranges
    if clause.guard is not None:
        yield from visit(clause.guard, trail)
        trail = (*trail, (clause.guard, True))
    yield from visit(clause.body, trail)


def places_of(clause: ir.Clause) -> tuple[ir.Place, ...]:
    """What a clause reads and reduces, each with its trail: visited when it is first asked for."""
    if clause.places is None:
        found = tuple(place for place in visit_clause(clause) if isinstance(place[0], ir.Read | ir.Array | ir.Reduce))
        object.__setattr__(clause, "places", found)
        return found
    return clause.places


def visit(expr: ir.Expr, trail: Trail) -> Iterator[tuple[ir.Expr, Trail]]:
    """The expression and everything inside it; the right of `&&` is only reached where the left holds."""
    waiting = [(expr, trail)]
    while waiting:
        expr, trail = waiting.pop()
        yield expr, trail
        kind = type(expr)
        if kind in _PLAIN and not (isinstance(expr, ir.Map) and expr.op in ("&&", "||")):
            waiting += [(index, trail) for index in reversed(children(expr))]
        elif kind not in LEAVES:
            waiting += reversed(inside(expr, trail))


# What has the same trail as all that is inside it, but for a choice.
_PLAIN = frozenset((ir.Read, ir.Array, ir.Map))


def inside(expr: ir.Expr, trail: Trail) -> list[tuple[ir.Expr, Trail]]:
    """Return the direct parts of an expression, each with its trail."""
    match expr:
        case ir.Map("&&", (left, right)):
            return [(left, trail), (right, (*trail, (left, True)))]
        case ir.Map("||", (left, right)):
            return [(left, trail), (right, (*trail, (left, False)))]
        case ir.Map() | ir.Read() | ir.Array() | ir.Const() | ir.Coord() | ir.Size():
            return [(part, trail) for part in children(expr)]
        case ir.Select(condition, then, otherwise):
            return [
                (condition, trail),
                (then, (*trail, (condition, True))),
                (otherwise, (*trail, (condition, False))),
            ]
        case ir.Reduce(_, ranges, body, guard):
            result: list[tuple[ir.Expr, Trail]] = []
            for range in ranges:
                result += [(range.lower, trail), (range.upper, trail)]
                trail = (*trail, range)
            return result + _guarded(body, guard, trail)
        case ir.Normalize():
            return _inside_normalizer(expr, trail)


def _inside_normalizer(expr: ir.Normalize, trail: Trail) -> list[tuple[ir.Expr, Trail]]:
    """Inside a normaliser its coordinate runs over all its points, whatever holds of it outside: so it is
    another one, `j'`. A cumulative sum only reaches those up to here."""
    outside = bound_by(expr.coordinate, trail)
    running = Coordinate(f"{expr.coordinate.name}'", False, expr.coordinate.space)
    step = build.coord(running, expr.span)
    trail = (*trail, ir.Range(running, outside.lower, outside.upper, outside.stated, outside.span))
    if expr.op == "cumsum":
        earlier = build.apply("<=", (step, build.coord(expr.coordinate, expr.span)), "bool", expr.span)
        trail = (*trail, (earlier, True))
    guard = None if expr.guard is None else substitute(expr.guard, {expr.coordinate: step})
    return _guarded(substitute(expr.body, {expr.coordinate: step}), guard, trail)


def bound_by(coordinate: Coordinate, trail: Trail) -> ir.Range:
    """The range that binds a coordinate on a trail."""
    for step in reversed(trail):
        if isinstance(step, ir.Range) and step.coordinate == coordinate:
            return step
    raise LookupError(coordinate)


def _guarded(body: ir.Expr, guard: ir.Expr | None, trail: Trail) -> list[tuple[ir.Expr, Trail]]:
    if guard is None:
        return [(body, trail)]
    return [(guard, trail), (body, (*trail, (guard, True)))]


def measuring(places: Iterable[tuple[ir.Expr, Trail]], tensors: Mapping[str, ir.Input | ir.Let]) -> Iterator[Measured]:
    """The axes that say how many points a coordinate has: those that it indexes bare, where no range is stated."""
    for expr, trail in places:
        if isinstance(expr, ir.Read):
            for number, (axis, index) in enumerate(zip(tensors[expr.tensor].axes, expr.indices, strict=True)):
                if isinstance(index, ir.Coord):
                    range = bound_by(index.coordinate, trail)
                    if not range.stated and range.upper != axis.extent:
                        yield Measured(range, axis.extent, expr.tensor, number, index.span)


def agreed(program: ir.Program) -> tuple[tuple[ir.Expr, ir.Expr], ...]:
    """The extents that must be equal because a coordinate indexes both bare. What is brought together later, such as a
    guard that is repeated where its definition is read, claims nothing of the kind."""
    if program.same is None:
        object.__setattr__(program, "same", tuple(dict.fromkeys(_agreed(program))))
    assert program.same is not None
    return program.same


def agreeing(program: ir.Program, pairs: tuple[tuple[ir.Expr, ir.Expr], ...]) -> ir.Program:
    """A rewritten program, of which the extents agree that agreed in the one that was written."""
    object.__setattr__(program, "same", pairs)
    return program


def _agreed(program: ir.Program) -> Iterator[tuple[ir.Expr, ir.Expr]]:
    clauses = [clause for let in program.lets for clause in let.clauses]
    places = [place for clause in clauses for place in places_of(clause)]
    claims = [place for claim in program.asserts for place in visit(claim.condition, ())]
    for one in measuring((*places, *claims), program.tensors):
        yield one.range.upper, one.extent


class Agreement:
    """Lengths that are the same in every call that a program accepts: those of all axes that one coordinate indexes
    bare, where its range is not stated."""

    def __init__(self, program: ir.Program) -> None:
        self._same: dict[ir.Expr, ir.Expr] = {}
        for pair in agreed(program):
            one, other = map(self._root, pair)
            if one != other:
                self._same[other] = one

    def _root(self, extent: ir.Expr) -> ir.Expr:
        while extent in self._same:
            extent = self._same[extent]
        return extent

    def holds(self, one: ir.Expr, other: ir.Expr) -> bool:
        return self._root(one) == self._root(other)


def assume(trail: Trail, lets: Mapping[str, ir.Let]) -> Assumptions:
    """A trail as facts to reason from. Guards that are definitions are looked through."""
    result = Assumptions(constants=constants_of(lets), definitions=look_through(lets))
    ranges: list[ir.Range] = []
    for step in trail:
        if isinstance(step, ir.Range):
            ranges.append(step)
        else:
            result = result.within(*ranges).assuming(*step)
            ranges = []
    return result.within(*ranges).sharpened()


def constants_of(lets: Mapping[str, ir.Let]) -> Callable[[str], ir.Expr | None]:
    """Return a lookup of the value of a whole scalar definition, where it has one clause and no guard."""

    def constant(name: str) -> ir.Expr | None:
        let = lets.get(name)
        if let is None or let.axes or let.kind != "whole" or len(let.clauses) != 1:
            return None
        return None if let.clauses[0].guard is not None else let.clauses[0].body

    return constant


def look_through(lets: Mapping[str, ir.Let]) -> Callable[[ir.Read], ir.Expr | None]:
    """Return a lookup of a Boolean definition's body at the indices of a read, where that can be written down."""

    return lambda read: meaning(read, lets) if read.type.kind == "bool" else None
