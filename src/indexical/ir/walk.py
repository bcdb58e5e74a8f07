"""Traversal, written once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from operator import attrgetter, is_
from typing import Any, TypeVar, assert_never

from ..records import replace
from . import build, nodes
from .nodes import Array, Clause, Const, Coord, Expr, Let, Map, Normalize, Program, Range, Read, Reduce, Select, Size
from .types import Coordinate, Type

E = TypeVar("E", bound=Expr)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside, bounds and guards included."""
    return _INSIDE[type(expr)](expr)


def _inside_reduce(expr: Reduce) -> tuple[Expr, ...]:
    bounds = [bound for range in expr.ranges for bound in (range.lower, range.upper)]
    return (*bounds, expr.body) if expr.guard is None else (*bounds, expr.body, expr.guard)


def _nothing(expr: Expr) -> tuple[Expr, ...]:
    return ()


# What is directly inside of each kind of expression: a table, as nothing is asked more often.
_INSIDE: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Map: attrgetter("arguments"),
    Read: attrgetter("indices"),
    Array: attrgetter("indices"),
    Const: _nothing,
    Coord: _nothing,
    Size: _nothing,
    Select: attrgetter("condition", "then", "otherwise"),
    Reduce: _inside_reduce,
    Normalize: lambda expr: (expr.body,) if expr.guard is None else (expr.body, expr.guard),
}
# Expressions with nothing inside.
LEAVES = frozenset((Const, Coord, Size))


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it; never recursive."""
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        yield expr
        kind = type(expr)
        if kind not in LEAVES:
            waiting += _INSIDE[kind](expr)


def of_kinds(exprs: Iterable[Expr], *kinds: type[E]) -> list[E]:
    """All of these kinds that are among some expressions and inside them, in the order of `walk`, which is slower."""
    found: list[E] = []
    for expr in exprs:
        waiting = [expr]
        while waiting:
            part = waiting.pop()
            kind = type(part)
            if kind in kinds:
                found.append(part)  # type: ignore[arg-type]
            if kind not in LEAVES:
                waiting += _INSIDE[kind](part)
    return found


def parts_of(let: Let) -> Iterator[Expr]:
    """Every expression of a definition: bodies, guards, places, bounds and extents."""
    for axis in let.axes:
        yield axis.extent
    for clause in let.clauses:
        yield from clause.slots
        yield clause.body
        if clause.guard is not None:
            yield clause.guard
        for range in clause.ranges:
            yield range.lower
            yield range.upper


def reads_of(let: Let) -> tuple[Read, ...]:
    """Every read of a definition, which is walked when it is first asked for."""
    if let.reads is None:
        found = tuple([part for part in parts_in(let) if isinstance(part, Read)])
        object.__setattr__(let, "reads", found)
        return found
    return let.reads


def functions_of(let: Let) -> frozenset[str]:
    """The functions and operators in a definition, likewise."""
    if let.functions is None:
        found = frozenset([part.op for part in parts_in(let) if isinstance(part, Map)])
        object.__setattr__(let, "functions", found)
        return found
    return let.functions


def parts_in(let: Let) -> tuple[Expr, ...]:
    """Every expression of a definition, with all that is inside it: walked when it is first asked for."""
    if let.parts is None:
        waiting = list(parts_of(let))[::-1]
        found: list[Expr] = []
        while waiting:
            part = waiting.pop()
            found.append(part)
            kind = type(part)
            if kind not in LEAVES:
                waiting += _INSIDE[kind](part)
        object.__setattr__(let, "parts", tuple(found))
        assert let.parts is not None
    return let.parts


def is_bare(expr: Expr) -> bool:
    """Whether every read is at coordinates alone, and so never out of bounds."""
    reads: list[Read | Array] = of_kinds((expr,), Read, Array)
    return all(isinstance(index, Coord) for part in reads for index in part.indices)


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The same node over changed children, its type worked out again; itself where none is changed."""
    match expr:
        case Map(op, arguments, type, span):
            changed = tuple(map(change, arguments))
            return expr if all(map(is_, changed, arguments)) else build.apply(op, changed, type.kind, span)
        case Read(tensor, indices, type, span):
            changed = tuple(map(change, indices))
            return expr if all(map(is_, changed, indices)) else build.read(tensor, changed, type.kind, span)
        case Const() | Coord() | Size():
            return expr
        case Array(shape, cells, indices, type, span):
            changed = tuple(map(change, indices))
            return Array(shape, cells, changed, Type(type.kind, build.varying(changed)), span)
        case Select(condition, then, otherwise, type, span):
            changed = (change(condition), change(then), change(otherwise))
            return Select(*changed, Type(type.kind, build.varying(changed)), span)
        case Reduce(op, ranges, body, guard, type, span):
            new = tuple(Range(r.coordinate, change(r.lower), change(r.upper), r.stated, r.span) for r in ranges)
            return build.reduce(op, new, change(body), guard and change(guard), type.kind, span)
        case Normalize(op, coordinate, body, guard, type, span):
            return build.normalize(op, coordinate, change(body), guard and change(guard), type.kind, span)
        case _:
            assert_never(expr)


def changed(clause: Clause, change: Callable[[Expr], Expr]) -> Clause:
    """The clause with every expression of it changed."""
    return Clause(
        tuple(map(change, clause.slots)),
        tuple(replace(range, lower=change(range.lower), upper=change(range.upper)) for range in clause.ranges),
        change(clause.body),
        None if clause.guard is None else change(clause.guard),
        clause.span,
    )


def rewritten(program: Program, change: Callable[[Expr], Expr]) -> Program:
    """The program with every expression of it changed: extents, definitions, and what is asserted."""
    return replace(
        program,
        inputs=tuple(replace(tensor, axes=_changed_axes(tensor.axes, change)) for tensor in program.inputs),
        lets=tuple(changed_let(let, change) for let in program.lets),
        asserts=tuple(replace(claim, condition=change(claim.condition)) for claim in program.asserts),
    )


def changed_let(let: Let, change: Callable[[Expr], Expr]) -> Let:
    """The definition with every expression of it changed."""
    clauses = tuple(changed(clause, change) for clause in let.clauses)
    return replace(let, axes=_changed_axes(let.axes, change), clauses=clauses)


def _changed_axes(axes: tuple[nodes.Axis, ...], change: Callable[[Expr], Expr]) -> tuple[nodes.Axis, ...]:
    return tuple(replace(axis, extent=change(axis.extent)) for axis in axes)


def substitute(expr: Expr, values: Mapping[Coordinate, Expr]) -> Expr:
    """The expression with coordinates replaced by values. What a reduction binds inside is renamed
    where a value mentions its name, so that nothing is captured."""
    if expr.type.coordinates.isdisjoint(values):
        return expr
    match expr:
        case Coord(coordinate):
            return values[coordinate]
        case Reduce():
            touched = _touched(expr, values)
            return _substitute_reduce(expr, touched) if touched else expr
        case Normalize():
            touched = _touched(expr, values)
            return _substitute_normalize(expr, touched) if touched else expr
        case _:
            return rebuild(expr, lambda child: substitute(child, values))


def _touched(expr: Expr, values: Mapping[Coordinate, Expr]) -> dict[Coordinate, Expr]:
    """The values of coordinates that are there, but for those that stay what they are."""
    there = expr.type.coordinates
    return {c: value for c, value in values.items() if c in there and not _is_same(c, value)}


def _substitute_reduce(expr: Reduce, values: Mapping[Coordinate, Expr]) -> Expr:
    taken = {c.name for value in values.values() for c in value.type.coordinates}
    taken |= {c.name for c in expr.body.type.coordinates} | {c.name for c in values}
    inner = dict(values)
    ranges: list[Range] = []
    for range in expr.ranges:
        coordinate = range.coordinate
        if any(coordinate in value.type.coordinates for value in values.values()):
            coordinate = fresh(coordinate, taken)
            taken.add(coordinate.name)
            inner[range.coordinate] = build.coord(coordinate, range.span)
        lower, upper = substitute(range.lower, inner), substitute(range.upper, inner)
        ranges.append(Range(coordinate, lower, upper, range.stated, range.span))
    guard = None if expr.guard is None else substitute(expr.guard, inner)
    return build.reduce(expr.op, tuple(ranges), substitute(expr.body, inner), guard, expr.type.kind, expr.span)


def _substitute_normalize(expr: Normalize, values: Mapping[Coordinate, Expr]) -> Expr:
    """The coordinate of a normaliser is bound inside and free outside: it can only be renamed, to a name that nothing
    else inside has."""
    target = values.get(expr.coordinate)
    if target is not None and not isinstance(target, Coord):
        raise Inexpressible
    coordinate = expr.coordinate if target is None else target.coordinate
    inner = dict(values)
    for other in expr.type.coordinates - {expr.coordinate}:
        if coordinate in (inner[other].type.coordinates if other in inner else (other,)):
            raise Inexpressible
    return build.normalize(
        expr.op,
        coordinate,
        substitute(expr.body, inner),
        expr.guard and substitute(expr.guard, inner),
        expr.type.kind,
        expr.span,
    )


def at(clause: Clause, expr: Expr, indices: tuple[Expr, ...]) -> Expr | None:
    """An expression of a clause, at these indices; None where a normaliser stands in the way."""
    pairs = [(s.coordinate, index) for s, index in zip(clause.slots, indices, strict=True) if isinstance(s, Coord)]
    values = {own: index for own, index in pairs if not _is_same(own, index)}
    try:
        return substitute(expr, values) if values else expr
    except Inexpressible:
        return None


def _is_same(own: Coordinate, index: Expr) -> bool:
    """Whether an index is this coordinate, of the same space."""
    return isinstance(index, Coord) and index.coordinate == own and index.coordinate.space == own.space


def meaning(read: Expr, lets: Mapping[str, Let]) -> Expr | None:
    """The body of a definition, which has no guard and no other clause, at the indices of a read; None where it is no
    such read, or a normaliser stands in the way."""
    let = lets.get(read.tensor) if isinstance(read, Read) else None
    if let is None or len(let.clauses) != 1 or let.clauses[0].guard is not None:
        return None
    assert isinstance(read, Read)
    return at(let.clauses[0], let.clauses[0].body, read.indices)


def renamed_apart(expr: Expr, taken: set[str]) -> Expr:
    """The expression with other names for what it binds, where these are taken."""
    if not any(isinstance(part, Reduce) and taken & {c.name for c in part.coordinates} for part in walk(expr)):
        return expr
    if not isinstance(expr, Reduce):
        return rebuild(expr, lambda child: renamed_apart(child, taken))
    names = taken | {c.name for c in expr.body.type.coordinates}
    values: dict[Coordinate, Expr] = {}
    ranges: list[Range] = []
    for range in expr.ranges:
        coordinate = fresh(range.coordinate, names) if range.coordinate.name in taken else range.coordinate
        names.add(coordinate.name)
        lower, upper = (substitute(renamed_apart(bound, taken), values) for bound in (range.lower, range.upper))
        if coordinate != range.coordinate:
            values[range.coordinate] = build.coord(coordinate, range.span)
        ranges.append(Range(coordinate, lower, upper, range.stated, range.span))
    inner = taken | {range.coordinate.name for range in ranges}
    body = renamed_apart(substitute(expr.body, values), inner)
    guard = None if expr.guard is None else renamed_apart(substitute(expr.guard, values), inner)
    return build.reduce(expr.op, tuple(ranges), body, guard, expr.type.kind, expr.span)


def renamed_clause(clause: Clause, taken: set[str]) -> Clause:
    """The clause with other names for its coordinates, where these are taken."""
    names = taken | {range.coordinate.name for range in clause.ranges}
    for expr in (clause.body, *(() if clause.guard is None else (clause.guard,))):
        names |= {c.name for part in walk(expr) if isinstance(part, Reduce) for c in part.coordinates}
    values: dict[Coordinate, Expr] = {}
    for range in clause.ranges:
        if range.coordinate.name in taken:
            coordinate = fresh(range.coordinate, names)
            names.add(coordinate.name)
            values[range.coordinate] = build.coord(coordinate, range.span)

    def changed(expr: Expr) -> Expr:
        return renamed_apart(substitute(expr, values), taken)

    ranges = tuple(
        Range(_named(range.coordinate, values), changed(range.lower), changed(range.upper), range.stated, range.span)
        for range in clause.ranges
    )
    guard = None if clause.guard is None else changed(clause.guard)
    return Clause(tuple(map(changed, clause.slots)), ranges, changed(clause.body), guard, clause.span)


def _named(coordinate: Coordinate, values: Mapping[Coordinate, Expr]) -> Coordinate:
    found = values.get(coordinate)
    return found.coordinate if isinstance(found, Coord) else coordinate


class Inexpressible(Exception):
    """A normaliser would have to be read at something that is not a coordinate."""


def fresh(coordinate: Coordinate, taken: set[str]) -> Coordinate:
    """The coordinate itself if its name is free, else the next `i_1`, `i_2`, … that is."""
    if coordinate.name not in taken:
        return coordinate
    number = 1
    while f"{coordinate.name}_{number}" in taken:
        number += 1
    return Coordinate(f"{coordinate.name}_{number}", coordinate.rest, coordinate.space)


def fresh_name(name: str, taken: Container[str]) -> str:
    """The name itself if it is free, else the next of `x_2`, `x_3`, … that is."""
    number, result = 1, name
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    return result


def with_numbers(program: Program, numbers: Mapping[str, Const]) -> Program:
    """The program in which these numbers stand for inputs that are scalars."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Read) and expr.tensor in numbers:
            return replace(numbers[expr.tensor], span=expr.span)
        return rebuild(expr, change)

    inputs = tuple(tensor for tensor in program.inputs if tensor.name not in numbers)
    return rewritten(replace(program, inputs=inputs), change)
