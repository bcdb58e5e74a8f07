"""The reference evaluator: what a Program means, point by point, in loops.

Generic in its numbers: whatever `numbers` makes goes through here. A point that a guard removes is
stored as None and read as 0; one that has not been computed is never read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

from ..diagnostics import CallError, Diagnostic, Label
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk
from ..ir.whole import LARGEST
from .needs import members, needs
from .wholes import ARITHMETIC, Point, checked, failure, whole_result


class Numbers(Protocol):
    """A type of real numbers. They add, subtract, multiply and compare by Python's own operators."""

    @property
    def infinity(self) -> Any: ...
    @property
    def nan(self) -> Any: ...
    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]: ...
    def number(self, value: Any) -> Any: ...
    def divide(self, a: Any, b: Any) -> Any: ...
    def remainder(self, a: Any, b: Any) -> Any: ...
    def power(self, a: Any, b: Any) -> Any: ...
    def cast(self, value: Any, dtype: str) -> Any: ...
    def softmax(self, scores: list[Any]) -> list[Any]: ...
    def log_softmax(self, scores: list[Any]) -> list[Any]: ...


@dataclass(slots=True)
class Table:
    """The cells of a tensor, in row-major order. None is an absent point; `removed` are the places of
    values that are 0 because a guard removed what they are made of."""

    shape: tuple[int, ...]
    cells: list[Any]
    removed: set[int] = field(default_factory=set)

    def offset(self, place: tuple[int, ...]) -> int:
        result = 0
        for index, length in zip(place, self.shape, strict=True):
            result = result * length + index
        return result


class Uncomputed:
    """The mark of a point that is still to be computed."""


Fixed = dict[str, dict[int, int]]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Evaluation:
    """One evaluation of a program: sizes known, inputs given, definitions filled in as they are computed."""

    def __init__(
        self, program: ir.Program, inputs: Mapping[str, Table], sizes: Mapping[Coordinate, int], numbers: Numbers
    ) -> None:
        self.tensors = dict(inputs)
        self.lets = {let.name: let for let in program.lets}
        self.sizes = sizes
        self.numbers = numbers
        self.zero = numbers.number(0)
        self.ranges: dict[Coordinate, tuple[int, int]] = {}
        self.removable: dict[int, bool] = {}
        self.rows: dict[int, tuple[tuple[object, ...], dict[int, Any]]] = {}
        self.input_names = {tensor.name for tensor in program.inputs}

    # -------------------------------------------------------------- definitions

    def run(self, order: ir.Order, fixed: Fixed) -> None:
        """Compute a definition, or a recurrence step by step."""
        match order:
            case ir.Once(name):
                self.define(self.lets[name], fixed.get(name, {}))
            case ir.Stepwise(axes, forward, body):
                steps = max(self.table(self.lets[name]).shape[axis] for name, axis in axes)
                for step in range(steps) if forward else reversed(range(steps)):
                    inner = {name: {**fixed.get(name, {}), axis: step} for name, axis in axes}
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
            if pinned is None:
                continue
            for point in self.points(clause.ranges, {}, pinned):
                value = None
                if clause.guard is None or self.value(clause.guard, point):
                    value = self.value(clause.body, point)
                    if let.kind == "real" and clause.body.type.kind == "whole":
                        value = self.numbers.number(value)
                offset = table.offset(tuple(self.value(slot, point) for slot in clause.slots))
                table.cells[offset] = value
                if value is not None and self.is_removed(clause.body, point):
                    table.removed.add(offset)

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
        match expr:
            case ir.Read():
                return self.read(expr, point)
            case ir.Map():
                return self.apply(expr, point)
            case ir.Coord(coordinate):
                return point[coordinate]
            case ir.Const(value):
                return self.numbers.number(value) if expr.type.kind == "real" else value
            case ir.Size(coordinate):
                return self.sizes[coordinate]
            case ir.Select(condition, then, otherwise):
                return self.value(then if self.value(condition, point) else otherwise, point)
            case ir.Reduce():
                return self.reduce(expr, point)
            case ir.Normalize():
                return self.normalize(expr, point)
            case ir.Array(shape, cells, indices):
                place = self.place(indices, shape, "this array", expr, point)
                return self.value(cells[Table(shape, []).offset(place)], point)
            case _:
                assert_never(expr)

    def read(self, expr: ir.Read, point: Point) -> Any:
        table = self.tensors[expr.tensor]
        place = self.place(expr.indices, table.shape, f"`{expr.tensor}`", expr, point)
        value = table.cells[table.offset(place)]
        if value is Uncomputed:
            raise failure("IX308", f"`{expr.tensor}[{', '.join(map(str, place))}]` is not there yet", expr.span, point)
        if value is not None:
            return value
        return {"bool": False, "whole": 0, "real": self.numbers.number(0)}[expr.type.kind]

    def place(
        self, indices: tuple[ir.Expr, ...], shape: tuple[int, ...], name: str, expr: ir.Expr, point: Point
    ) -> tuple[int, ...]:
        """The values of indices, each within its axis: they never wrap."""
        result = []
        for number, (index, length) in enumerate(zip(indices, shape, strict=True)):
            at = self.value(index, point)
            if not 0 <= at < length:
                message = f"index {at} is out of bounds for axis {number} of {name}, which has {length} points"
                raise failure("IX305", message, index.span, point, f"in `{expr.span.text}`")
            result.append(at)
        return tuple(result)

    def apply(self, expr: ir.Map, point: Point) -> Any:
        op = expr.op
        if op == "&&":
            return self.value(expr.arguments[0], point) and self.value(expr.arguments[1], point)
        if op == "||":
            return self.value(expr.arguments[0], point) or self.value(expr.arguments[1], point)
        if op in ("*", "/") and self.is_removed(expr, point):
            return 0 if expr.type.kind == "whole" else self.numbers.number(0)
        values = [self.value(argument, point) for argument in expr.arguments]
        if op in _COMPARISONS:
            return _COMPARISONS[op](*values)
        if op == "!":
            return not values[0]
        if op.startswith("as "):
            return self.cast(expr, values[0], op[3:], point)
        if expr.type.kind == "whole":
            return whole_result(expr, values, point)
        reals = [self.numbers.number(value) if isinstance(value, int) else value for value in values]
        if op in ARITHMETIC:
            return ARITHMETIC[op](*reals)
        match op:
            case "neg":
                return -reals[0]
            case "/":
                return self.numbers.divide(*reals)
            case "%":
                return self.numbers.remainder(*reals)
            case "**":
                return self.numbers.power(*reals)
            case _:
                return self.numbers.functions[op](*reals)

    def is_removed(self, expr: ir.Expr, point: Point) -> bool:
        """Whether a value is 0 because a guard removed a point of it. Such a factor carries nothing, so
        what it multiplies is not read: a value that nobody listens to changes nothing, not even as NaN."""
        if not self.may_be_removed(expr):
            return False
        match expr:
            case ir.Read(tensor, indices):
                table = self.tensors[tensor]
                offset = table.offset(self.place(indices, table.shape, f"`{tensor}`", expr, point))
                return table.cells[offset] is None or offset in table.removed
            case ir.Normalize(guard=guard):
                return guard is not None and not self.value(guard, point)
            case ir.Map("*", arguments):
                return any(self.is_removed(argument, point) for argument in arguments)
            case ir.Map("/" | "neg", arguments):
                return self.is_removed(arguments[0], point)
            case ir.Select(condition, then, otherwise):
                return self.is_removed(then if self.value(condition, point) else otherwise, point)
            case _:
                return False

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

    def cast(self, expr: ir.Map, value: Any, dtype: str, point: Point) -> Any:
        """To whole: truncated toward zero. To real: rounded as the dtype rounds."""
        if expr.type.kind == "bool":
            return value
        if expr.type.kind == "real":
            return self.numbers.cast(self.numbers.number(int(value)) if isinstance(value, int) else value, dtype)
        try:
            result = int(value)
        except (ValueError, OverflowError):
            raise failure("IX505", f"{value} is not a whole number", expr.span, point) from None
        return checked(result, expr, point, 2**31 - 1 if dtype == "i32" else LARGEST)

    # -------------------------------------------------- reductions, normalisers

    def scanned(self, expr: ir.Reduce, point: Point) -> Iterator[Point]:
        for inner in self.points(expr.ranges, point, {}):
            if expr.guard is None or self.value(expr.guard, inner):
                yield inner

    def reduce(self, expr: ir.Reduce, point: Point) -> Any:
        if expr.op in ("any", "all"):
            return (any if expr.op == "any" else all)(self.value(expr.body, p) for p in self.scanned(expr, point))
        whole = expr.body.type.kind == "whole"
        if expr.op in ("argmax", "argmin"):
            return self.argument(expr, point)
        values = [self.value(expr.body, inner) for inner in self.scanned(expr, point)]
        match expr.op:
            case "sum":
                return self.total(values, expr, whole, point)
            case "mean":
                if not values:
                    return self.nothing(expr, point, self.numbers.nan)
                total = self.total([self.numbers.number(v) if whole else v for v in values], expr, False, point)
                return self.numbers.divide(total, self.numbers.number(len(values)))
            case "prod":
                result = 1 if whole else self.numbers.number(1)
                for value in values:
                    result = checked(result * value, expr, point) if whole else result * value
                return result
        if values:
            return self.numbers.functions[expr.op](*values) if len(values) > 1 else values[0]
        if whole:
            raise failure("IX310", f"`{expr.op}` of whole numbers over no points has no value", expr.span, point)
        return -self.numbers.infinity if expr.op == "max" else self.numbers.infinity

    def total(self, values: list[Any], expr: ir.Reduce, whole: bool, point: Point) -> Any:
        result = 0 if whole else self.numbers.number(0)
        for value in values:
            result = result + value
        return checked(result, expr, point) if whole else result

    def argument(self, expr: ir.Reduce, point: Point) -> int:
        """The first place of the largest (smallest) value; of the first NaN where there is one."""
        coordinate = expr.ranges[0].coordinate
        better = operator.gt if expr.op == "argmax" else operator.lt
        best: Any = None
        place = -1
        for inner in self.scanned(expr, point):
            value = self.value(expr.body, inner)
            if place < 0 or (best == best and (value != value or better(value, best))):
                best, place = value, inner[coordinate]
        return place if place >= 0 else int(self.nothing(expr, point, -1))

    def nothing(self, expr: ir.Reduce, point: Point, otherwise: Any) -> Any:
        """A mean or an argmax over no points: an error, unless data made it so."""
        if expr.guard is not None and self.reads_data(expr.guard):
            return otherwise
        raise failure("IX310", f"`{expr.op}` over no points has no value", expr.span, point)

    def reads_data(self, expr: ir.Expr) -> bool:
        """Whether a guard depends on an input or on figures, through definitions too."""
        seen: set[str] = set()
        waiting = [expr]
        while waiting:
            for part in walk(waiting.pop()):
                if isinstance(part, ir.Array) or (isinstance(part, ir.Read) and part.tensor in self.input_names):
                    return True
                if isinstance(part, ir.Read) and part.tensor not in seen:
                    seen.add(part.tensor)
                    waiting += [e for c in self.lets[part.tensor].clauses for e in (c.body, c.guard) if e is not None]
        return False

    def normalize(self, expr: ir.Normalize, point: Point) -> Any:
        """The value at this point, among all points of the coordinate that the guard keeps; one that it
        removes gets nothing. Where it removes all, so does everyone."""
        here = point[expr.coordinate]
        if expr.guard is not None and not self.value(expr.guard, point):
            return -self.numbers.infinity if expr.op == "log_softmax" else 0 if expr.type.kind == "whole" else self.zero
        if expr.op == "cumsum":
            return self.running_total(expr, point, here)
        outside = tuple(point[c] for c in expr.type.coordinates if c != expr.coordinate)
        where = (self.ranges[expr.coordinate], outside)
        if self.rows.get(id(expr), ((), {}))[0] != where:
            self.rows[id(expr)] = (where, self.row(expr, point))
        return self.rows[id(expr)][1][here]

    def kept(self, expr: ir.Normalize, point: Point) -> list[int]:
        """The steps of the normalised coordinate that the guard keeps."""
        steps = range(*self.ranges[expr.coordinate])
        if expr.guard is None:
            return list(steps)
        return [step for step in steps if self.value(expr.guard, {**point, expr.coordinate: step})]

    def row(self, expr: ir.Normalize, point: Point) -> dict[int, Any]:
        """Softmax along the whole coordinate."""
        kept = self.kept(expr, point)
        values = [self.value(expr.body, {**point, expr.coordinate: step}) for step in kept]
        reals = [self.numbers.number(value) if isinstance(value, int) else value for value in values]
        scan = self.numbers.softmax if expr.op == "softmax" else self.numbers.log_softmax
        return dict(zip(kept, scan(reals), strict=True))

    def running_total(self, expr: ir.Normalize, point: Point, here: int) -> Any:
        """`cumsum`: the sum up to and with this point."""
        whole = expr.type.kind == "whole"
        result = 0 if whole else self.numbers.number(0)
        for step in self.kept(expr, point):
            if step <= here:
                result = result + self.value(expr.body, {**point, expr.coordinate: step})
        return checked(result, expr, point) if whole else result


def evaluate(
    program: ir.Program,
    inputs: Mapping[str, Table],
    sizes: Mapping[Coordinate, int],
    numbers: Numbers,
    wanted: tuple[str, ...],
) -> dict[str, Table]:
    """The wanted definitions, with all that they need and nothing else; every assertion is checked."""
    evaluation = Evaluation(program, inputs, sizes, numbers)
    needed = needs(program, wanted)
    for order in program.order:
        if not needed.isdisjoint(members(order)):
            evaluation.run(order, {})
    for claim in program.asserts:
        if not evaluation.value(claim.condition, {}):
            raise CallError([Diagnostic("IX506", claim.message, (Label(claim.span, "does not hold"),))])
    return {name: evaluation.tensors[name] for name in wanted}
