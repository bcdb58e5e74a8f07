"""A program by whole arrays at once: each definition within radii that are proven, or by plain floats.

The same as the reference evaluator, for what most programs are made of; `Unfit` is raised for the rest. In an
evaluation, the coordinates in force are axes: the one that was bound last is the first axis, so that arrays which do
not vary with it broadcast.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..ir import nodes as ir
from ..ir.needs import members
from ..ir.needs import needed as needs
from ..ir.types import Coordinate
from ..records import dataclass
from ..run.bind import Bound, flat_shape
from . import balls
from .balls import Array, Ball, Unfit

# The points of the largest array that is made.
MOST_POINTS = 1 << 24

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_WHOLE: dict[str, Callable[..., Any]] = {
    **_COMPARED,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "neg": operator.neg,
    "&&": np.logical_and,
    "||": np.logical_or,
    "!": np.logical_not,
    "//": lambda a, b: np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b)).astype(np.int64)),
    "%": lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    "min": lambda first, *rest: reduce(np.minimum, rest, first),
    "max": lambda first, *rest: reduce(np.maximum, rest, first),
    "abs": np.abs,
}


@dataclass(frozen=True, slots=True)
class Spot:
    """A coordinate in force: its axis, counted from the first that was bound, its points, and which of them there are
    where the range depends on others."""

    axis: int
    first: int
    count: int
    there: Array | None = None

    @property
    def points(self) -> Array:
        return np.arange(self.first, self.first + self.count).reshape(-1, *(1,) * self.axis)


Scope = dict[Coordinate, Spot]


class Arrays:
    """An evaluation of definitions as arrays. `kept` says whether radii are; a subclass may change what is computed."""

    def __init__(self, program: ir.Program, bound: Bound, kept: bool) -> None:
        self.program, self.bound, self.kept = program, bound, kept
        self.tensors: dict[str, Any] = {}
        for tensor in program.inputs:
            array = bound.arrays[tensor.name]
            flat = array.reshape(flat_shape(tensor.axes, array.shape))
            self.tensors[tensor.name] = self.given(flat) if tensor.kind == "real" else flat

    def given(self, array: Array) -> Ball:
        """An input of real numbers."""
        wide = array.astype(np.float64)
        if array.dtype.kind in "iu" and not (wide.astype(array.dtype) == array).all():
            raise Unfit("a whole number is too large for a float")
        return balls.exactly(wide, self.kept)

    def compute(self, wanted: tuple[str, ...]) -> dict[str, Any]:
        """The wanted definitions, with all that they need."""
        needed = needs(self.program, wanted)
        lets = self.program.definitions
        with np.errstate(all="ignore"):
            for order in self.program.order:
                if not needed.isdisjoint(members(order)):
                    if not isinstance(order, ir.Once):
                        raise Unfit("a recurrence")
                    self.tensors[order.name] = self.define(lets[order.name])
        return {name: self.tensors[name] for name in wanted}

    # -------------------------------------------------------------- definitions

    def define(self, let: ir.Let) -> Any:
        shape = tuple(self.bound.extent(axis.extent) for axis in let.axes)
        _check_points(shape)
        parts = [self.clause(let, clause, shape) for clause in let.clauses]
        if len(parts) == 1 and parts[0][1] is None:
            return parts[0][0]
        return self.assembled(let, shape, parts)

    def clause(self, let: ir.Let, clause: ir.Clause, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """The values of a clause, and where they go: None where that is the whole definition, axis by axis."""
        scope: Scope = {}
        for range in clause.ranges:
            scope = self.bind(scope, range)
        depth = len(scope)
        value = self.value(clause.body, scope)
        if let.kind == "real":
            value = self.real(value)
        full = tuple(spot.count for spot in reversed(scope.values()))
        there = self.presence(clause.guard, scope)
        plain = all(isinstance(slot, ir.Coord) for slot in clause.slots) and len(clause.slots) == depth
        if plain and full == shape[::-1] and all(spot.first == 0 for spot in scope.values()):
            turn = [depth - 1 - scope[slot.coordinate].axis for slot in clause.slots if isinstance(slot, ir.Coord)]
            value = _kept_where(value, there)
            return _changed(value, lambda a: np.broadcast_to(a, full).transpose(turn)), None
        places = [np.broadcast_to(self.value(slot, scope), full) for slot in clause.slots]
        return _changed(_kept_where(value, there), lambda a: np.broadcast_to(a, full)), (places, there, full)

    def assembled(self, let: ir.Let, shape: tuple[int, ...], parts: list[tuple[Any, Any]]) -> Any:
        """Several clauses in one array."""
        middle: Array = np.zeros(shape, {"real": np.float64, "whole": np.int64, "bool": bool}[let.kind])
        radius = np.zeros(shape)
        for value, where in parts:
            if where is None:
                raise Unfit("clauses that cover each other")
            places, there, full = where
            kept = np.broadcast_to(np.asarray(True) if there is None else there, full)
            chosen = tuple(place[kept] for place in places)
            taken = _changed(value, operator.itemgetter(kept))
            middle[chosen] = taken.middle if isinstance(taken, Ball) else taken
            if isinstance(taken, Ball) and taken.radius is not None:
                radius[chosen] = taken.radius
        return Ball(middle, radius if self.kept else None) if let.kind == "real" else middle

    def bind(self, scope: Scope, range: ir.Range) -> Scope:
        """The scope with one more coordinate: from the least lower end to the largest upper one."""
        lower, upper = (np.asarray(self.value(end, scope)) for end in (range.lower, range.upper))
        first, last = (int(lower.min()), int(upper.max())) if lower.size and upper.size else (0, 0)
        spot = Spot(len(scope), first, max(0, last - first))
        if lower.ndim or upper.ndim:
            points = spot.points
            spot = Spot(spot.axis, first, spot.count, (points >= lower) & (points < upper))
        rest = {name: found for name, found in scope.items() if name != range.coordinate}
        if len(rest) < len(scope):
            raise Unfit("a name that is bound twice")
        return {**rest, range.coordinate: spot}

    def presence(self, guard: ir.Expr | None, scope: Scope) -> Any:
        """The mask of points where a guard holds and ranges have points; None for everywhere."""
        found = [spot.there for spot in scope.values() if spot.there is not None]
        if guard is not None:
            found.append(self.value(guard, scope))
        return None if not found else reduce(np.logical_and, found)

    # -------------------------------------------------------------- expressions

    def value(self, expr: ir.Expr, scope: Scope) -> Any:
        """A ball for a real number, an array for others."""
        match expr:
            case ir.Const(value):
                return self.number(value) if expr.type.kind == "real" else np.asarray(value)
            case ir.Coord(coordinate):
                return scope[coordinate].points
            case ir.Size(coordinate):
                return np.asarray(self.bound.sizes[coordinate])
            case ir.Read(tensor, indices):
                return self.read(self.tensors[tensor], indices, scope)
            case ir.Array(shape, cells, indices):
                return self.read(self.literal(expr, shape, cells), indices, scope)
            case ir.Map():
                return self.map(expr, scope)
            case ir.Select(condition, then, otherwise):
                return self.select(self.value(condition, scope), self.value(then, scope), self.value(otherwise, scope))
            case ir.Reduce():
                return self.reduce(expr, scope)
            case ir.Normalize():
                return self.normalize(expr, scope)

    def number(self, value: Any) -> Ball:
        return balls.constant(value, self.kept)

    def real(self, value: Any) -> Ball:
        return value if isinstance(value, Ball) else self.given(np.asarray(value))

    def literal(self, expr: ir.Array, shape: tuple[int, ...], cells: tuple[ir.Const, ...]) -> Any:
        if expr.type.kind != "real":
            return np.array([cell.value for cell in cells]).reshape(shape)
        found = [self.number(cell.value) for cell in cells]
        middle, radius = ([getattr(ball, part) for ball in found] for part in ("middle", "radius"))
        return Ball(np.array(middle).reshape(shape), np.array(radius).reshape(shape) if self.kept else None)

    def read(self, table: Any, indices: tuple[ir.Expr, ...], scope: Scope) -> Any:
        """The elements of a tensor at places; bare coordinates are axes of it, and nothing is copied."""
        shape = table.shape
        spots = [scope[index.coordinate] for index in indices if isinstance(index, ir.Coord)]
        axes = [spot.axis for spot in spots]
        whole = [spot.first == 0 and spot.count == length for spot, length in zip(spots, shape, strict=False)]
        if len(spots) == len(indices) and len(set(axes)) == len(axes) and all(whole):
            order = sorted(range(len(axes)), key=lambda n: -axes[n])
            # The last axis is that of the first coordinate; those that it does not vary with have one point.
            form = [1] * (max(axes, default=-1) + 1)
            for n, axis in enumerate(axes):
                form[len(form) - 1 - axis] = shape[n]
            return _changed(table, lambda a: np.broadcast_to(a, shape).transpose(order).reshape(form))
        places = [np.asarray(self.value(index, scope)) for index in indices]
        _check_points(np.broadcast_shapes(*(place.shape for place in places)))
        for place, length in zip(places, shape, strict=True):
            if place.size and (place.min() < 0 or place.max() >= length):
                raise Unfit("a place that may be out of bounds")
        return _changed(table, lambda a: np.broadcast_to(a, shape)[tuple(places)])

    def map(self, expr: ir.Map, scope: Scope) -> Any:
        arguments = [self.value(argument, scope) for argument in expr.arguments]
        _check_points(np.broadcast_shapes(*(argument.shape for argument in arguments)))
        op = expr.op
        if op in _COMPARED and any(isinstance(argument, Ball) for argument in arguments):
            return self.compared(op, *map(self.real, arguments))
        if op.startswith("as "):
            return self.cast(expr, arguments[0])
        if op == "pi":
            return Ball(np.asarray(math.pi), np.asarray(balls.UNIT) if self.kept else None)
        if expr.type.kind != "real":
            if op not in _WHOLE:
                raise Unfit(f"`{op}` of whole numbers")
            return _WHOLE[op](*arguments)
        reals = [self.real(argument) for argument in arguments]
        match op:
            case "+" | "-" | "*":
                return _WHOLE[op](*reals)
            case "neg":
                return -reals[0]
            case "/":
                return reals[0] / reals[1]
            case "**":
                return self.power(expr, *reals)
            case "%":
                raise Unfit("a remainder of real numbers")
            case _:
                return balls.function(op)(*reals)

    def power(self, expr: ir.Map, base: Ball, exponent: Ball) -> Ball:
        written = expr.arguments[1]
        if isinstance(written, ir.Const) and written.value == 0.5:
            return balls.sqrt(base)
        if isinstance(written, ir.Const) and written.value == int(written.value) and 1 <= written.value <= 64:
            return reduce(operator.mul, [base] * int(written.value))
        return balls.exp(exponent * balls.log(base))

    def compared(self, op: str, one: Ball, other: Ball) -> Array:
        """A comparison that is the same for all numbers of both balls."""
        apart = one - other
        found: Array = _COMPARED[op](apart.middle, 0)
        if apart.radius is not None and not (np.abs(apart.middle) > apart.radius).all():
            same = (one.middle == other.middle) & (np.asarray(one.radius) == 0) & (np.asarray(other.radius) == 0)
            if not (same | (np.abs(apart.middle) > apart.radius)).all():
                raise Unfit("a comparison that hangs on the last digits")
        return found

    def cast(self, expr: ir.Map, value: Any) -> Any:
        """A cast among reals changes nothing, as in exact numbers; one to whole numbers truncates."""
        if expr.type.kind == "real":
            return self.real(value)
        if not isinstance(value, Ball):
            return value
        low, high = (np.trunc(value.middle + sign * (0 if value.radius is None else value.radius)) for sign in (-1, 1))
        if not (low == high).all():
            raise Unfit("a whole number that hangs on the last digits")
        return low.astype(np.int64)

    def select(self, condition: Array, then: Any, otherwise: Any) -> Any:
        if not isinstance(then, Ball) and not isinstance(otherwise, Ball):
            return np.where(condition, then, otherwise)
        one, other = self.real(then), self.real(otherwise)
        radius = None if one.radius is None else np.where(condition, one.radius, other.radius)  # type: ignore[arg-type]
        return Ball(np.where(condition, one.middle, other.middle), radius)

    # -------------------------------------------------------------------- scans

    def reduce(self, expr: ir.Reduce, scope: Scope) -> Any:
        depth, inner = len(scope), scope
        for range in expr.ranges:
            inner = self.bind(inner, range)
        counts = [spot.count for spot in list(inner.values())[depth:]]
        there = self.presence(expr.guard, inner if expr.guard is not None else dict(list(inner.items())[depth:]))
        match expr.op, expr.body:
            case "sum", ir.Map("*", (left, right)) if there is None and expr.type.kind == "real":
                return self.contracted(expr, self.value(left, inner), self.value(right, inner), counts, depth)
        value = self.value(expr.body, inner)
        full = np.broadcast_shapes(value.shape, (*counts[::-1], *(1,) * depth), () if there is None else there.shape)
        _check_points(full)
        value = _changed(value, lambda a: np.broadcast_to(a, full))
        return self.folded(expr, value, there, len(counts))

    def folded(self, expr: ir.Reduce, value: Any, there: Any, axes: int) -> Any:
        """A reduction over the first axes."""
        op = expr.op
        if op in ("any", "all"):
            if there is not None:
                value = (value & there) if op == "any" else (value | ~there)
            return getattr(np, op)(value, axis=tuple(range(axes)))
        if op == "mean":
            full = value.shape
            count = math.prod(full[:axes]) if there is None else np.broadcast_to(there, full).sum(tuple(range(axes)))
            if np.any(count == 0):
                raise Unfit("a mean over no points")
            return self._summed(self.real(value), there, axes) / self.given(np.asarray(count))
        if op == "sum":
            if isinstance(value, Ball):
                return self._summed(value, there, axes)
            return (value if there is None else np.where(there, value, 0)).sum(tuple(range(axes)))
        if op in ("max", "min") and there is None and isinstance(value, Ball) and 0 not in value.shape[:axes]:
            value = value if op == "max" else -value
            for _ in range(axes):
                value = balls.largest(value, 0)
            return value if op == "max" else -value
        raise Unfit(f"`{op}`")

    def _summed(self, value: Ball, there: Any, axes: int) -> Ball:
        value = _kept_where(value, there)
        for _ in range(axes):
            value = balls.total(value, 0)
        return value

    def contracted(self, expr: ir.Reduce, left: Any, right: Any, counts: list[int], depth: int) -> Ball:
        """A sum of products over the first axes, as products of matrices."""
        one, other = (_deep(self.real(side), depth + len(counts)) for side in (left, right))
        axes = len(counts)
        for axis in range(axes):
            # What only one side varies with is summed there, and what neither does counts so many times.
            width = counts[axes - 1 - axis]
            if one.shape[axis] == 1 and other.shape[axis] == 1 and width != 1:
                one = one * self.given(np.asarray(width))
            elif one.shape[axis] != other.shape[axis]:
                narrow = 0 if one.shape[axis] == 1 else 1
                summed = balls.total((other, one)[narrow], axis, kept=True)
                one, other = (one, summed) if narrow == 0 else (summed, other)
        return balls.product_sum(one, other, lambda a, b: _multiplied(a, b, axes), math.prod(counts))

    def normalize(self, expr: ir.Normalize, scope: Scope) -> Any:
        spot = scope[expr.coordinate]
        value = self.value(expr.body, scope)
        if expr.type.kind != "real":
            raise Unfit("a ranking, or a sum of whole numbers up to each point")
        there = self.kept_keys(expr, scope)
        full = np.broadcast_shapes(value.shape, (spot.count, *(1,) * spot.axis), () if there is None else there.shape)
        _check_points(full)
        value = _changed(self.real(value), lambda a: np.broadcast_to(a, full))
        axis = value.middle.ndim - 1 - spot.axis
        if expr.op == "cumsum":
            return _kept_where(balls.running(_kept_where(value, there), axis), there)
        if spot.count == 0:
            return value
        return self.softmax(expr, value, there, axis)

    def kept_keys(self, expr: ir.Normalize, scope: Scope) -> Any:
        """The mask of points where the guard of a normaliser holds."""
        there = scope[expr.coordinate].there
        if expr.guard is None:
            return there
        found = self.value(expr.guard, scope)
        return found if there is None else found & there

    def softmax(self, expr: ir.Normalize, scores: Ball, there: Any, axis: int) -> Ball:
        hidden = scores.middle if there is None else np.where(there, scores.middle, -np.inf)
        top = hidden.max(axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        raised = _kept_where(self.raised(expr, scores - balls.exactly(top, self.kept)), there)
        whole = balls.total(raised, axis, kept=True)
        if expr.op == "log_softmax":
            found = scores - balls.exactly(top, self.kept) - balls.log(whole)
            return found if there is None else self.select(there, found, self.number(0) / self.number(0))
        weights = self.shared(expr, raised, whole)
        return weights if there is None else _kept_where(weights, there)

    def raised(self, expr: ir.Normalize, exponents: Ball) -> Ball:
        return balls.exp(exponents)

    def shared(self, expr: ir.Normalize, raised: Ball, whole: Ball) -> Ball:
        return raised / whole


def _changed(value: Any, change: Callable[[Array], Array]) -> Any:
    if not isinstance(value, Ball):
        return change(np.asarray(value))
    radius = None if value.radius is None else np.broadcast_to(value.radius, value.shape)
    return Ball(change(np.broadcast_to(value.middle, value.shape)), None if radius is None else change(radius))


def _kept_where(value: Any, there: Any) -> Any:
    """The value, and 0 elsewhere."""
    if there is None:
        return value
    if not isinstance(value, Ball):
        return np.where(there, value, False if value.dtype == bool else 0)
    radius = None if value.radius is None else np.where(there, value.radius, 0.0)
    return Ball(np.where(there, value.middle, 0.0), radius)


def _deep(value: Ball, depth: int) -> Any:
    return _changed(value, lambda a: a.reshape(*(1,) * (depth - a.ndim), *a.shape))


def _check_points(shape: Sequence[int]) -> None:
    if math.prod(shape) > MOST_POINTS:
        raise Unfit(f"an array of {math.prod(shape):,} points")


def _multiplied(one: Array, other: Array, axes: int) -> Array:
    """The sum of products over the first axes, which both have; all other axes broadcast."""
    depth = one.ndim
    free = range(axes, depth)
    batch = [n for n in free if one.shape[n] > 1 and other.shape[n] > 1]
    left = [n for n in free if n not in batch and other.shape[n] == 1]
    right = [n for n in free if n not in batch and n not in left]
    summed = list(range(axes))
    shapes = [math.prod(one.shape[n] for n in group) for group in (batch, left, summed)]
    a = one.transpose(*batch, *left, *summed, *right).reshape(shapes)
    across = [math.prod(other.shape[n] for n in group) for group in (batch, summed, right)]
    b = other.transpose(*batch, *summed, *right, *left).reshape(across)
    form = [max(one.shape[n], other.shape[n]) for n in (*batch, *left, *right)]
    _check_points(form)
    found = np.matmul(a, b).reshape(form)
    back = np.argsort([*batch, *left, *right])
    return np.ascontiguousarray(found.transpose(back))


def by_arrays(program: ir.Program, bound: Bound, wanted: tuple[str, ...]) -> Mapping[str, Any]:
    """The wanted definitions within proven radii."""
    return Arrays(program, bound, True).compute(wanted)
