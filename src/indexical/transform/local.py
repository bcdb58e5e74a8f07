"""A part of a program at a part of its points: what one of several machines computes, in coordinates of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeAlias

from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import ONE, polynomial, tidied
from ..ir.context import Trail
from ..ir.domain import Domain
from ..ir.types import Coordinate
from ..ir.walk import rebuild, rewritten, walk
from ..records import replace

# From the first point up to, not including, the last.
Interval: TypeAlias = tuple[int, int]
# The points that are held of each axis of a tensor; None where that is all, and is not told apart.
Held: TypeAlias = tuple[Interval | None, ...]


def with_sizes(program: ir.Program, sizes: Mapping[Coordinate, int], scalars: Mapping[str, int]) -> ir.Program:
    """The program with numbers in the place of sizes and of whole scalars. `..r` keeps its size.

    A whole scalar that is defined is a number too, where it is one now.
    """
    known = dict(scalars)

    def changed(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Size(coordinate) if coordinate in sizes and not coordinate.rest:
                return build.whole(sizes[coordinate], expr.span)
            case ir.Read(tensor, ()) if tensor in known:
                return build.whole(known[tensor], expr.span)
        found = rebuild(expr, changed)
        if isinstance(found, ir.Map) and found.op in ("max", "min") and found.type.kind == "whole":
            numbers = [number for part in found.arguments if (number := number_of(part)) is not None]
            if len(numbers) == len(found.arguments):  # An extent of several clauses is the largest of theirs.
                return build.whole(max(numbers) if found.op == "max" else min(numbers), expr.span)
        return found

    for let in program.lets:
        if not let.axes and let.kind == "whole" and len(let.clauses) == 1 and let.clauses[0].guard is None:
            value = polynomial(tidied(changed(let.clauses[0].body))).constant
            if value is not None:
                known[let.name] = value
    sized = rewritten(program, lambda expr: tidied(changed(expr)))
    return replace(sized, lets=tuple(replace(let, clauses=tuple(map(_stated, let.clauses))) for let in sized.lets))


def _stated(clause: ir.Clause) -> ir.Clause:
    """The clause with sizes that need not be those of the axes it reads, of which a block holds a part."""
    return replace(clause, ranges=tuple(replace(range, stated=True) for range in clause.ranges))


def number_of(expr: ir.Expr) -> int | None:
    """The value of a whole expression, where it is a number."""
    return polynomial(expr).constant


def rows_read(index: ir.Expr, trail: Trail, extent: int, lets: Mapping[str, ir.Let]) -> Interval:
    """The points of an axis of this extent that an index reaches where its trail leads: these, or more."""
    domain = Domain.along(trail, lets)
    place = polynomial(index, domain.known.constants)
    if place.constant is not None:
        return _clipped(place.constant, place.constant + 1, extent)
    contexts = [known for known in domain.contexts if known.consistent]
    if not contexts:
        return 0, 0
    ends = [known.extremes(place) for known in contexts]
    lowest, highest = min(lower for lower, _ in ends), max(upper for _, upper in ends)
    first = _largest(0, extent, lowest, lambda value: all(known.entails(place - value) for known in contexts))
    last = -_largest(
        -extent, -first, -highest - 1, lambda value: all(known.entails(-place - value - 1) for known in contexts)
    )
    return first, max(first, last)


def rows_needed(index: ir.Expr, trail: Trail, extent: int, lets: Mapping[str, ir.Let]) -> Interval:
    """The points that have to be there so that an index can be read. Where a guard removes all points, code may still
    look at those that the ranges have, or at any where these have none."""
    for steps in (trail, tuple(step for step in trail if isinstance(step, ir.Range))):
        found = rows_read(index, steps, extent, lets)
        if found[0] < found[1]:
            return found
    return 0, extent


def _clipped(first: int, last: int, extent: int) -> Interval:
    first = min(max(first, 0), extent)
    return first, max(first, min(last, extent))


def _largest(least: int, most: int, likely: float, holds: Callable[[int], bool]) -> int:
    """The largest number between two for which something holds, that holds for all smaller ones; else the least. One is
    `likely`, and is tried first."""
    guess = int(min(max(likely, least), most))
    if guess == least or holds(guess):
        least = guess
        if guess < most and not holds(guess + 1):
            return guess
    else:
        most = guess - 1
    while least < most:
        middle = (least + most + 1) // 2
        if holds(middle):
            least = middle
        else:
            most = middle - 1
    return least


def hull(one: Interval | None, other: Interval) -> Interval:
    """The smallest interval around two; an empty one adds nothing."""
    if one is None or one[0] >= one[1]:
        return other
    return one if other[0] >= other[1] else (min(one[0], other[0]), max(one[1], other[1]))


def localized(
    program: ir.Program,
    held: Mapping[str, Held],
    own: Mapping[str, Held],
    summed: Mapping[str, Mapping[Coordinate, Interval]],
) -> ir.Program:
    """The program over the points that are `held` of inputs and definitions, in coordinates that begin at 0 there.

    `own` are the points that are computed of each definition, which may be fewer than are held: those before them are
    an input `…_before`. `summed` are the points of the coordinates that a definition sums over. Where a guard says that
    a sum reaches fewer points, its range has no others.
    """
    local = _Local(program, held, own, summed)
    inputs = [_held_input(tensor, held[tensor.name]) for tensor in program.inputs]
    lets: list[ir.Let] = []
    for let in program.lets:
        changed, before = local.definition(let)
        lets.append(changed)
        inputs += before
    return replace(program, inputs=tuple(inputs), lets=tuple(lets), order=())


def _held_input(tensor: ir.Input, held: Held) -> ir.Input:
    """An input with the points that are held. A letter stands for one size, so that axes have letters of their own."""
    axes = []
    for number, (axis, points) in enumerate(zip(tensor.axes, held, strict=True)):
        if points is not None:
            name = Coordinate(f"{axis.coordinate.name}_{tensor.name}_{number}", False, axis.coordinate.space)
            axis = ir.Axis(name, build.whole(points[1] - points[0], tensor.span))
        axes.append(axis)
    return replace(tensor, axes=tuple(axes))


class _Local:
    """The definitions of a program as they are gone through."""

    def __init__(
        self,
        program: ir.Program,
        held: Mapping[str, Held],
        own: Mapping[str, Held],
        summed: Mapping[str, Mapping[Coordinate, Interval]],
    ) -> None:
        self.lets = program.definitions
        self.held, self.own, self.summed = held, own, summed
        # Guards of a reduction that hold at all its points, which a normaliser inside it may repeat.
        self.proved: list[ir.Expr] = []

    def definition(self, let: ir.Let) -> tuple[ir.Let, list[ir.Input]]:
        """A definition at its points, and the input with the points before them, where it has some."""
        held, own = self.held[let.name], self.own[let.name]
        axes = tuple(
            axis if points is None else ir.Axis(axis.coordinate, build.whole(points[1] - points[0], let.span))
            for axis, points in zip(let.axes, held, strict=True)
        )
        clauses = [self.clause(clause, let.name, held, own) for clause in let.clauses]
        before: list[ir.Input] = []
        for number, (points, mine) in enumerate(zip(held, own, strict=True)):
            if points is not None and mine is not None and points != mine:
                clause, given = _handed(let, axes, number, mine[0] - points[0], held)
                clauses.insert(0, clause)
                before.append(given)
        return replace(let, axes=axes, clauses=tuple(clause for clause in clauses if clause is not None)), before

    def clause(self, clause: ir.Clause, name: str, held: Held, own: Held) -> ir.Clause | None:
        """A clause at the points that are computed; None where it has none of them."""
        ranges = {range.coordinate: range for range in clause.ranges}
        offsets: dict[Coordinate, int] = {}
        slots: list[ir.Expr] = []
        trail = dict(ranges)
        for slot, points, mine in zip(clause.slots, held, own, strict=True):
            if points is None or mine is None:
                slots.append(slot)
            elif isinstance(slot, ir.Coord):
                range = ranges[slot.coordinate]
                lower, upper = number_of(range.lower), number_of(range.upper)
                assert lower is not None, "only axes of a known range are split"
                assert upper is not None
                first, last = max(lower, mine[0]), min(upper, mine[1])
                if first >= last and lower < upper and mine[0] < mine[1]:
                    return None
                last = max(first, last)
                trail[slot.coordinate] = _range(range, first, last)
                ranges[slot.coordinate] = _range(range, first - points[0], last - points[0])
                offsets[slot.coordinate] = points[0]
                slots.append(slot)
            else:
                place = number_of(slot)
                assert place is not None, "a base case stands at a number"
                if not mine[0] <= place < mine[1]:
                    return None
                slots.append(build.whole(place - points[0], slot.span))
        around: Trail = tuple(trail.values())
        guard = None
        if clause.guard is not None:
            guard = self.expression(clause.guard, around, offsets, name)
            around = (*around, (clause.guard, True))
        body = tidied(self.expression(clause.body, around, offsets, name))
        return ir.Clause(tuple(slots), tuple(ranges.values()), body, guard, clause.span)

    def expression(self, expr: ir.Expr, trail: Trail | None, offsets: Mapping[Coordinate, int], name: str) -> ir.Expr:
        """An expression in coordinates that begin where their points do; without a trail no range is narrowed."""
        match expr:
            case ir.Coord(coordinate):
                return _moved(expr, offsets.get(coordinate, 0))
            case ir.Read(tensor, indices, type, span):
                inner = [self.expression(index, trail, offsets, name) for index in indices]
                held = self.held[tensor]
                inner = [i if h is None else _moved(i, -h[0]) for i, h in zip(inner, held, strict=True)]
                return build.read(tensor, tuple(inner), type.kind, span)
            case ir.Reduce():
                return self.reduction(expr, trail, offsets, name)
            case ir.Normalize(guard=guard):
                if guard is not None and guard in self.proved:
                    expr = replace(expr, guard=None)
                return rebuild(expr, lambda part: self.expression(part, None, offsets, name))
            case ir.Map("<" | "<=" | ">" | ">=" | "==" | "!=", (left, right)) if (
                left.type.kind == right.type.kind == "whole"
            ):
                inner = [self.expression(part, trail, offsets, name) for part in (left, right)]
                return build.apply(expr.op, _apart_by(*inner), "bool", expr.span)
            case ir.Select(condition, then, otherwise):
                both = () if trail is None else trail
                return build.select(
                    self.expression(condition, trail, offsets, name),
                    self.expression(then, None if trail is None else (*both, (condition, True)), offsets, name),
                    self.expression(otherwise, None if trail is None else (*both, (condition, False)), offsets, name),
                    expr.span,
                )
        return rebuild(expr, lambda part: self.expression(part, trail, offsets, name))

    def reduction(self, expr: ir.Reduce, trail: Trail | None, offsets: Mapping[Coordinate, int], name: str) -> ir.Expr:
        """A reduction over the points that are asked for and that its guard reaches."""
        inner = {c: offset for c, offset in offsets.items() if c not in expr.coordinates}
        ranges: list[ir.Range] = []
        asked = self.summed.get(name, {})
        if expr.coordinates & asked.keys():
            name = ""  # A reduction inside this one may bind the same letter.
        for range in expr.ranges:
            lower, upper = number_of(range.lower), number_of(range.upper)
            if lower is None or upper is None:
                bounds = [self.expression(bound, None, inner, name) for bound in (range.lower, range.upper)]
                ranges.append(replace(range, lower=bounds[0], upper=bounds[1]))
                trail = None if trail is None else (*trail, range)
                continue
            if range.coordinate in asked:
                lower, upper = max(lower, asked[range.coordinate][0]), min(upper, asked[range.coordinate][1])
                upper = max(lower, upper)
            range = _range(range, lower, upper)
            if trail is not None and expr.guard is not None and lower < upper and _is_free(expr, range.coordinate):
                around: Trail = (*trail, *ranges_of(expr, range), (expr.guard, True))
                lower, upper = rows_read(build.coord(range.coordinate, range.span), around, upper, self.lets)
            trail = None if trail is None else (*trail, _range(range, lower, upper))
            inner[range.coordinate] = lower
            ranges.append(_range(range, 0, upper - lower))
        nothing = _over_nothing(expr)
        if nothing is not None and any(number_of(range.upper) == 0 and range.from_zero for range in ranges):
            return nothing
        guard = None
        if expr.guard is not None and trail is not None and Domain.along(trail, self.lets).proves(expr.guard):
            self.proved.append(expr.guard)
        elif expr.guard is not None:
            guard = self.expression(expr.guard, trail, inner, name)
            trail = None if trail is None else (*trail, (expr.guard, True))
        body = self.expression(expr.body, trail, inner, name)
        return build.reduce(expr.op, tuple(ranges), body, guard, expr.type.kind, expr.span)


def _is_free(expr: ir.Reduce, coordinate: Coordinate) -> bool:
    """Whether points that the guard of a reduction removes mean nothing to what is inside it: every normaliser over the
    coordinate has the same guard."""
    inner = [part for part in walk(expr.body) if isinstance(part, ir.Normalize) and part.coordinate == coordinate]
    return all(part.guard == expr.guard for part in inner)


def _over_nothing(expr: ir.Reduce) -> ir.Expr | None:
    """The value of a reduction over no points; None where no number is it."""
    if expr.op in ("any", "all"):
        return build.truth(expr.op == "all", expr.span)
    if expr.op not in ("sum", "prod"):
        return None
    number = int(expr.op == "prod")
    return build.real(Fraction(number), expr.span) if expr.type.kind == "real" else build.whole(number, expr.span)


def ranges_of(expr: ir.Reduce, narrowed: ir.Range) -> tuple[ir.Range, ...]:
    """The ranges of a reduction, one of them narrowed."""
    return tuple(narrowed if range.coordinate == narrowed.coordinate else range for range in expr.ranges)


def _range(range: ir.Range, lower: int, upper: int) -> ir.Range:
    return replace(range, lower=build.whole(lower, range.span), upper=build.whole(upper, range.span), stated=True)


def _moved(expr: ir.Expr, by: int) -> ir.Expr:
    if by == 0:
        return expr
    number = build.whole(abs(by), expr.span)
    return tidied(build.apply("+" if by > 0 else "-", (expr, number), "whole", expr.span))


def _apart_by(left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Two sides of a comparison of whole numbers, without what is added to both: `j + 8 <= i + 8` is `j <= i`."""
    added = polynomial(left).terms.get(ONE, 0)
    return (_moved(left, -added), _moved(right, -added)) if added else (left, right)


def _handed(let: ir.Let, axes: tuple[ir.Axis, ...], number: int, count: int, held: Held) -> tuple[ir.Clause, ir.Input]:
    """The first points of an axis as a clause, and the input that they are read from."""
    slots: list[ir.Expr] = []
    ranges: list[ir.Range] = []
    given: list[ir.Axis] = []
    for place, axis in enumerate(axes):
        extent = build.whole(count, let.span) if place == number else axis.extent
        coordinate = axis.coordinate
        if any(coordinate == range.coordinate for range in ranges):
            coordinate = Coordinate(f"{coordinate.name}_{place}", False, coordinate.space)
        slots.append(build.coord(coordinate, let.span))
        ranges.append(ir.Range(coordinate, build.whole(0, let.span), extent, True, let.span))
        named = Coordinate(f"{coordinate.name}_{let.name}_before", coordinate.rest, coordinate.space)
        given.append(axis if coordinate.rest else ir.Axis(named, extent))
    name = f"{let.name}_before"
    body = build.read(name, tuple(slots), let.kind, let.span)
    return ir.Clause(tuple(slots), tuple(ranges), body, None, let.span), ir.Input(
        name, tuple(given), let.kind, None, let.span
    )
