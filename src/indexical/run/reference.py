"""The reference evaluator: what a Program means, point by point, in loops.

Generic in its numbers: whatever `numbers` makes goes through here. A point that a guard removes is
stored as None and read as 0; one that has not been computed is never read. An expression is looked at
once, and becomes a function of a point: what each one means is in `reads`, `operations`, `scans` and
`removal`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, assert_never

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir.needs import members
from ..ir.needs import needed as needs
from ..ir.types import Coordinate
from ..records import replace
from .operations import operation
from .reads import cell, element
from .removal import removal
from .scans import kept, normalizer, reduction
from .tables import Numbers, Stage, Table, Uncomputed
from .wholes import Point

__all__ = ["Evaluation", "Numbers", "Table", "Uncomputed", "evaluate"]

Fixed = dict[str, dict[int, int]]


class Evaluation:
    """One evaluation of a program: sizes known, inputs given, definitions filled in as they are computed.

    A subclass may watch what is read and what is found removed: its `read` and `is_removed` are asked
    wherever an expression does either.
    """

    def __init__(
        self, program: ir.Program, inputs: Mapping[str, Table], sizes: Mapping[Coordinate, int], numbers: Numbers
    ) -> None:
        self.tensors = dict(inputs)
        self.lets = program.definitions
        self.sizes = sizes
        self.numbers = numbers
        self.zero = numbers.number(0)
        self.ranges: dict[Coordinate, tuple[int, int]] = {}
        self.removable: dict[int, bool] = {}
        self.rows: dict[int, tuple[tuple[object, ...], dict[int, Any]]] = {}
        self.input_names = {tensor.name for tensor in program.inputs}
        # The definition, clause and point that are computed now; None between points. It stays where a failure left it.
        self.at: tuple[ir.Let, ir.Clause, Point] | None = None
        # By the id of their expression, which is kept with them: another may not take its place.
        self.stages: dict[int, tuple[ir.Expr, Stage]] = {}
        self.removals: dict[int, tuple[ir.Expr, Stage]] = {}

    # -------------------------------------------------------------- definitions

    def compute(
        self, program: ir.Program, wanted: tuple[str, ...], tell: Callable[[str], None] = lambda name: None
    ) -> None:
        """Compute the wanted definitions with all that they need, and check every assertion; `tell` what is next."""
        needed = needs(program, wanted)
        for order in program.order:
            if not needed.isdisjoint(members(order)):
                tell(", ".join(sorted(members(order))))
                self.run(order, {})
        for claim in program.asserts:
            if not self.value(claim.condition, {}):
                raise CallError([Diagnostic("IX506", claim.message, (Label(claim.span, "does not hold"),))])

    def run(self, order: ir.Order, fixed: Fixed) -> None:
        """Compute a definition, or a recurrence step by step."""
        match order:
            case ir.Once(name):
                self.define(self.lets[name], fixed.get(name, {}))
            case ir.Stepwise(axes, forward, body):
                later = dict(order.later)
                steps = max(self.table(self.lets[name]).shape[axis] + later.get(name, 0) for name, axis in axes)
                for step in range(steps) if forward else reversed(range(steps)):
                    points = {name: (axis, step - later.get(name, 0)) for name, axis in axes}
                    inner = {name: {**fixed.get(name, {}), axis: point} for name, (axis, point) in points.items()}
                    for item in body:
                        self.run(item, {**fixed, **inner})
            case _:
                assert_never(order)

    def table(self, let: ir.Let) -> Table:
        """The table of a definition, empty at first."""
        if let.name not in self.tensors:
            shape = tuple(max(0, self.value(axis.extent, {})) for axis in let.axes)
            count = 1
            for length in shape:
                count *= length
            self.tensors[let.name] = Table(shape, [Uncomputed] * count)
        return self.tensors[let.name]

    def define(self, let: ir.Let, fixed: dict[int, int]) -> None:
        """Every point of a definition at which the `fixed` axes have their value."""
        table = self.table(let)
        for clause in let.clauses:
            pinned = self.pinned(clause, fixed)
            if pinned is not None:
                self.fill(table, let, clause, pinned)

    def fill(self, table: Table, let: ir.Let, clause: ir.Clause, pinned: Point) -> None:
        """The points of one clause."""
        guard = None if clause.guard is None else self.compiled(clause.guard)
        body, removed = self.compiled(clause.body), self.removal(clause.body)
        slots = list(map(self.compiled, clause.slots))
        becomes_real = let.kind == "real" and clause.body.type.kind == "whole"
        for point in self.points(clause.ranges, {}, pinned):
            self.at = (let, clause, point)
            value = None
            try:
                if guard is None or guard(point):
                    value = self.numbers.number(body(point)) if becomes_real else body(point)
            except CallError as problem:
                raise self._told_from_its_origin(problem, let) from None
            offset = table.offset(tuple([slot(point) for slot in slots]))
            table.cells[offset] = value
            if value is not None and removed(point):
                table.removed.add(offset)
            self.at = None

    def _told_from_its_origin(self, problem: CallError, let: ir.Let) -> CallError:
        """A failure at a point of a definition that begins above 0: its point is counted from 0, and that is said."""
        begins = [
            f"`{axis.coordinate} = {self.value(axis.origin, {})}`" for axis in let.axes if axis.origin is not None
        ]
        if not begins:
            return problem
        note = f"`{let.name}` begins at {', '.join(begins)}, which is counted as 0 here"
        return CallError([replace(found, notes=(*found.notes, note)) for found in problem.diagnostics])

    def pinned(self, clause: ir.Clause, fixed: dict[int, int]) -> Point | None:
        """The coordinates that the fixed axes leave no choice for; None where the clause has no such point."""
        result: Point = {}
        for axis, step in fixed.items():
            slot = clause.slots[axis]
            if isinstance(slot, ir.Coord):
                result[slot.coordinate] = step
            elif self.value(slot, {}) != step:
                return None
        return result

    def points(self, ranges: tuple[ir.Range, ...], outer: Point, pinned: Point) -> Iterator[Point]:
        """The points of some ranges, the last running fastest; a range may depend on those before it."""
        if not ranges:
            yield outer
            return
        first, rest = ranges[0], ranges[1:]
        lower, upper = self.value(first.lower, outer), self.value(first.upper, outer)
        self.ranges[first.coordinate] = (lower, upper)
        steps = range(lower, upper)
        if first.coordinate in pinned:
            step = pinned[first.coordinate]
            steps = range(step, step + 1) if lower <= step < upper else range(0)
        for step in steps:
            yield from self.points(rest, {**outer, first.coordinate: step}, pinned)

    # -------------------------------------------------------------- expressions

    def value(self, expr: ir.Expr, point: Point) -> Any:
        """The value of an expression at a point."""
        return self.compiled(expr)(point)

    def compiled(self, expr: ir.Expr) -> Stage:
        """The expression as a function of a point. To make it evaluates nothing, and asks for no table."""
        if isinstance(expr, ir.Read) and type(self).read is not Evaluation.read:
            return partial(self.read, expr)
        found = self.stages.get(id(expr))
        if found is None:
            found = self.stages[id(expr)] = (expr, self.stage(expr))
        return found[1]

    def stage(self, expr: ir.Expr) -> Stage:
        """The function of a point that an expression is, compiled node by node."""
        match expr:
            case ir.Read():
                return element(self, expr)
            case ir.Map():
                return operation(self, expr)
            case ir.Coord(coordinate):
                return itemgetter(coordinate)
            case ir.Const(value):
                constant = self.numbers.number(value) if expr.type.kind == "real" else value
                return lambda point: constant
            case ir.Size(coordinate):
                return lambda point: self.sizes[coordinate]
            case ir.Select():
                condition = self.compiled(expr.condition)
                then, otherwise = self.compiled(expr.then), self.compiled(expr.otherwise)
                return lambda point: then(point) if condition(point) else otherwise(point)
            case ir.Reduce():
                return reduction(self, expr)
            case ir.Normalize():
                return normalizer(self, expr)
            case ir.Array():
                return cell(self, expr)
            case _:
                assert_never(expr)

    def read(self, expr: ir.Read, point: Point) -> Any:
        return element(self, expr)(point)

    def scanned(self, expr: ir.Reduce, point: Point) -> Iterator[Point]:
        """The points that a reduction runs over, each a dict of its own."""
        for inner in self.points(expr.ranges, point, {}):
            if expr.guard is None or self.value(expr.guard, inner):
                yield inner

    def kept(self, expr: ir.Normalize, point: Point) -> list[int]:
        """The steps of the normalised coordinate that the guard keeps."""
        return kept(self, expr, point)

    def exceeds(self, one: Any, other: Any) -> bool:
        """Whether one number is larger than another."""
        return bool(one > other)

    def is_undefined(self, value: Any) -> bool:
        """Whether a value is NaN."""
        return bool(value != value)

    # ------------------------------------------------------------------ removal

    def is_removed(self, expr: ir.Expr, point: Point) -> bool:
        """Whether a value is 0 because a guard removed a point of it. What such a factor multiplies is not read, so
        that a non-finite value behind a mask changes nothing."""
        return bool(removal(self, expr)(point))

    def removal(self, expr: ir.Expr) -> Stage:
        """`is_removed` as a function of a point."""
        if type(self).is_removed is not Evaluation.is_removed:
            return partial(self.is_removed, expr)
        found = self.removals.get(id(expr))
        if found is None:
            found = self.removals[id(expr)] = (expr, removal(self, expr))
        return found[1]

    def may_be_removed(self, expr: ir.Expr) -> bool:
        """Whether a guard could remove this at all: known without a point, and remembered."""
        key = id(expr)
        if key not in self.removable:
            self.removable[key] = False
            match expr:
                case ir.Read(tensor) if tensor in self.lets:
                    clauses = self.lets[tensor].clauses
                    found = any(clause.guard is not None or self.may_be_removed(clause.body) for clause in clauses)
                case ir.Normalize(op="softmax" | "cumsum", guard=guard):
                    found = guard is not None
                case ir.Map("*" | "/" | "neg", arguments):
                    found = any(self.may_be_removed(argument) for argument in arguments)
                case ir.Select(_, then, otherwise):
                    found = self.may_be_removed(then) or self.may_be_removed(otherwise)
                case _:
                    found = False
            self.removable[key] = found
        return self.removable[key]


def evaluate(
    program: ir.Program,
    inputs: Mapping[str, Table],
    sizes: Mapping[Coordinate, int],
    numbers: Numbers,
    wanted: tuple[str, ...],
) -> dict[str, Table]:
    """The wanted definitions, with all that they need and nothing else; every assertion is checked."""
    evaluation = Evaluation(program, inputs, sizes, numbers)
    evaluation.compute(program, wanted)
    return {name: evaluation.tensors[name] for name in wanted}
