"""Expressions → array text: everything at once, over all points of the coordinates in force."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import assert_never

from ..ir import nodes as ir
from ..ir.types import DEFAULT_DTYPE, Coordinate, Dtype
from ..ir.walk import walk
from .base import AND, ATOM, COMPARISON, EITHER, OR, POWER, PRODUCT, SUM, TERNARY, UNARY, Value
from .layout import Statement
from .scope import Place, Scope
from .state import Stored
from .values import aligned, joined, permuted, widest
from .wholes import LARGEST, Wholes

__all__ = ("Emitter", "Stored", "constant", "float_text")

_LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT}
_EXACT = frozenset(("neg", "abs", "relu", "max", "min", "clamp", "floor", "ceil", "round"))
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))


class Emitter(Wholes):
    """Expressions, node by node."""

    def value(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression over all points of the coordinates it varies over; under a name where it was met before."""
        match expr:
            case ir.Const():
                return constant(expr)
            case ir.Size(coordinate):
                return Value(self.sizes[coordinate], (), "whole", None, ATOM, True)
            case ir.Coord(coordinate):
                return self.coordinate(coordinate, scope)
            case ir.Read(_, ()):
                return self.read(expr, scope)
        found = self.recall(expr, scope)
        if found is None and self.text.loops and self.stays(expr, scope):
            found = self.computed_ahead(expr, scope)
        return self.computed(expr, scope) if found is None else found

    def node(self, expr: ir.Expr, scope: Scope) -> Value:
        match expr:
            case ir.Read():
                return self.read(expr, scope)
            case ir.Array():
                return self.figures(expr, scope)
            case ir.Map():
                return self.held(self.apply(expr, scope))
            case ir.Select():
                return self.held(self.select(expr, scope))
            case ir.Reduce():
                return self.held(self.reduce(expr, scope))
            case ir.Normalize():
                return self.held(self.normalize(expr, scope))
            case ir.Const() | ir.Size() | ir.Coord():
                raise AssertionError
            case _:
                assert_never(expr)

    def held(self, value: Value) -> Value:
        """The value under a name, so that it is computed once however often it is read."""
        if value.python:
            return value
        if value.turned is not None:
            return permuted(self.held(value.turned), value.axes, self.text)
        return self.text.keep(value, "kept" if value.kind == "bool" else self.label)

    # ------------------------------------------------------------------- memory

    def recall(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """The value of an expression that was computed before: anywhere, or under conditions that hold here too."""
        key = (expr, self.compute, self.seen(expr, scope))
        found = self.known.get(key)
        if found is None and ("leans", *key) in self.known:
            conditions = tuple(scope.conditions())
            for count in range(len(conditions) + 1):
                found = found or self.known.get((*key, conditions[:count]))
        return found

    def computed(self, expr: ir.Expr, scope: Scope) -> Value:
        leans = self.leans
        found = self.node(expr, scope)
        key = (expr, self.compute, self.seen(expr, scope))
        if self.leans == leans:
            self.known[key] = found
        else:
            self.known[("leans", *key)] = found
            self.known[(*key, tuple(scope.conditions()))] = found
        return found

    def seen(self, expr: ir.Expr, scope: Scope) -> tuple[tuple[Coordinate, Place], ...]:
        """The part of a scope that an expression sees."""
        free = expr.type.coordinates
        return tuple((c, place) for c, place in scope.places.items() if c in free)

    def stays(self, expr: ir.Expr, scope: Scope) -> bool:
        """Whether an expression is the same in all turns of the loops around it."""
        places = [scope.places[c] for c in expr.type.coordinates]
        if any(place.step is not None or place.within is not None for place in places):
            return False
        bounds = [bound for place in places for bound in (place.start, place.stop)]
        if any(bound.type.coordinates for bound in bounds):
            return False
        return not any(isinstance(part, ir.Read) and self.stored[part.tensor].growing for part in walk(expr))

    def computed_ahead(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """The value, computed once before the loops; None where it has to be checked in its place."""
        hoisted, leans, helpers = dict(self.hoisted), self.leans, dict(self.text.helpers)
        known = self.known
        with self.outside_loops() as ahead:
            start = len(ahead)
            found = self.computed(expr, scope)
            good = all(not isinstance(s, list) and s.kind in ("temporary", "assign") for s in ahead[start:])
            if not good or self.leans > leans:
                del ahead[start:]
                good = False
        if good:
            return found
        self.known, self.hoisted, self.leans, self.text.helpers = known, hoisted, leans, helpers
        return None

    # ------------------------------------------------------------------- leaves

    def coordinate(self, coordinate: Coordinate, scope: Scope) -> Value:
        place = scope.places[coordinate]
        if place.step is not None:
            return Value(place.step, (), "whole", None, ATOM, True)
        start, stop = self.number(place.start, scope), self.number(place.stop, scope)
        if self.text.dialect.name == "torch" and self.length(coordinate, scope).startswith("max("):
            stop = f"max({start}, {stop})"
        key = ("arange", coordinate, start, stop)
        if key not in self.known:
            shown = Value(self.text.dialect.arange(start, stop), (coordinate,), "whole", "i64")
            if self.text.loops and not (place.start.type.coordinates or place.stop.type.coordinates):
                with self.outside_loops():
                    self.known[key] = self.text.named(shown, coordinate.name)
            else:
                self.known[key] = self.text.named(shown, coordinate.name)
        return self.known[key]

    def read(self, expr: ir.Read, scope: Scope) -> Value:
        raise NotImplementedError

    def figures(self, expr: ir.Array, scope: Scope) -> Value:
        raise NotImplementedError

    def reduce(self, expr: ir.Reduce, scope: Scope) -> Value:
        raise NotImplementedError

    def normalize(self, expr: ir.Normalize, scope: Scope) -> Value:
        raise NotImplementedError

    def removed(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """Where an expression is 0 because a guard removed a point of it; None where none can."""
        raise NotImplementedError

    # -------------------------------------------------------------- elementwise

    def operands(self, expr: ir.Map, scope: Scope) -> list[Value]:
        values = [self.value(argument, scope) for argument in expr.arguments]
        if expr.type.kind == "real":
            return self.promoted(self.reals(expr.op, values))
        if any(value.kind == "real" for value in values):
            return [value if value.python else self.real(value, "f64") for value in values]
        return self.promoted(values)

    def reals(self, op: str, values: list[Value]) -> list[Value]:
        """Operands among reals. A whole array needs no cast where the library makes it real by itself."""
        if op not in _EXACT:
            values = [self.widened(value) for value in values]
        among = [value.dtype for value in values if value.kind == "real" and not value.python and value.axes]
        helped = self.text.dialect.name == "torch" or self.compute == "f64"
        if op not in _LEVELS or self.compute not in among or not helped:
            return [self.real(value) for value in values]
        return [replace(v, kind="real", dtype=self.compute) if v.kind == "whole" else v for v in values]

    def apply(self, expr: ir.Map, scope: Scope) -> Value:
        op = expr.op
        if op in ("&&", "||", "!"):
            return self.logic(expr, scope)
        if op.startswith("as "):
            return self.cast(expr, scope)
        values = self.operands(expr, scope)
        dtype = widest(value.dtype for value in values) if expr.type.kind != "bool" else "bool"
        if expr.type.kind == "whole":
            found = self.whole(expr, values, dtype, scope)
        elif op in _COMPARISONS:
            found = self.infix(op, values, COMPARISON, expr, "bool", scope)
        elif op in _LEVELS or op == "**":
            found = self.arithmetic(expr, values, dtype, scope)
        elif op == "neg":
            found = values[0].but(text=f"-{values[0].within(UNARY)}", binds=UNARY)
        else:
            found = self.function(expr, values, dtype, scope)
        return self.without_removed(expr, found, scope) if self.isolate and op in ("*", "/") else found

    def without_removed(self, expr: ir.Map, value: Value, scope: Scope) -> Value:
        """A product with 0 where a guard removed one of its factors: nothing of the others is heard there."""
        gone = self.removed(expr, scope)
        if gone is None:
            return value
        zero = Value("0", (), expr.type.kind, None, ATOM, True)
        return self.where(self.text.keep(gone, "removed"), zero, self.strong(value), scope, value.dtype)

    def arithmetic(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """Reals with a sign between them. Plain numbers for which Python would raise are arrays first."""
        python = all(value.python for value in values)
        if expr.op == "**":
            if python and not _is_plain_power(values):
                values[0] = self.strong(values[0])
            return self.infix("**", values, POWER, expr, dtype or values[0].dtype, scope)
        if python and (_is_wide(expr) or (expr.op == "/" and not _is_nonzero(values[1]))):
            values[0] = self.strong(values[0])
        return self.infix(expr.op, values, _LEVELS[expr.op], expr, dtype or values[0].dtype, scope)

    def function(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        if expr.op == "sqrt" and values[0].python and _is_counted(expr.arguments[0]):
            return Value(f"math.sqrt({values[0].text})", (), "real", None, ATOM, True)
        axes = joined(values, scope.order)
        values = self.leading([aligned(value, axes) for value in values])
        op = "root" if expr.op == "rsqrt" and _is_never_negative_zero(expr.arguments[0]) else expr.op
        shown = self.text.dialect.function(op, values, self.text)
        binds = PRODUCT if op == "root" and self.text.dialect.name == "numpy" else ATOM
        return Value(shown, axes, "real", dtype or values[0].dtype, binds)

    def logic(self, expr: ir.Map, scope: Scope) -> Value:
        if expr.op == "!":
            return self.opposite(self.value(expr.arguments[0], scope))
        left, right = expr.arguments
        first = self.value(left, scope)
        second = self.value(right, scope.where(left, expr.op == "&&"))
        if expr.op == "&&":
            return self.both(first, second, scope)
        axes = joined((first, second), scope.order)
        first, second = aligned(first, axes), aligned(second, axes)
        if first.python and second.python:
            return Value(f"{first.within(EITHER)} or {second.within(EITHER + 1)}", axes, "bool", None, EITHER, True)
        shown = f"{first.within(AND + 1)} | {second.within(AND + 1)}"
        return Value(shown, axes, "bool", "bool", OR)

    def cast(self, expr: ir.Map, scope: Scope) -> Value:
        dtype: Dtype = expr.op[3:]  # type: ignore[assignment]
        value = self.value(expr.arguments[0], scope)
        if expr.type.kind == "bool" or value.dtype == dtype:
            return value
        limit = "2.0**31" if dtype == "i32" else "2.0**63"
        if expr.type.kind == "whole" and value.kind == "real":
            value = self.text.keep(self.strong(value), self.label)
            test = Value(f"~(abs({value.text}) < {limit})", value.axes, "bool", "bool", UNARY)
            self.fail_where(test, "IX505", f"this is not a whole number that {dtype} holds", scope)
        elif dtype == "i32" and value.kind == "whole" and self.largest(expr.arguments[0], scope) > LARGEST["i32"]:
            value = self.text.keep(self.strong(value), self.label)
            test = Value(f"abs({value.text}) >= {limit}", value.axes, "bool", "bool", COMPARISON)
            self.fail_where(test, "IX505", "this whole number does not fit in 32 bits", scope)
        if value.python and value.kind == "whole" and expr.type.kind == "real":
            value = replace(value, kind="real")
        return replace(self.cast_to(self.strong(value, dtype) if value.python else value, dtype), kind=expr.type.kind)

    # ----------------------------------------------------------------- branches

    def select(self, expr: ir.Select, scope: Scope) -> Value:
        condition = self.value(expr.condition, scope)
        return self.choose(
            expr.condition,
            condition,
            lambda inner: self.value(expr.then, inner),
            lambda inner: self.value(expr.otherwise, inner),
            expr.type.kind == "real",
            scope,
        )

    def choose(
        self,
        expr: ir.Expr,
        condition: Value,
        then: Callable[[Scope], Value],
        otherwise: Callable[[Scope], Value],
        real: bool,
        scope: Scope,
    ) -> Value:
        """One of two values at every point. A plain condition is asked first, and one branch is computed."""
        if condition.python:
            return self.branched(expr, condition, then, otherwise, real, scope)
        first, second = then(scope.where(expr)), otherwise(scope.where(expr, False))
        if real:
            first, second = self.real(first), self.real(second)
        if first.python and second.python:
            first = self.strong(first)
        first, second = self.promoted([first, second])
        return self.where(condition, first, second, scope, widest((first.dtype, second.dtype)))

    def branched(
        self,
        expr: ir.Expr,
        condition: Value,
        then: Callable[[Scope], Value],
        otherwise: Callable[[Scope], Value],
        real: bool,
        scope: Scope,
    ) -> Value:
        """`if` and `else`, with the same axes and dtype in the end."""
        sides: list[tuple[Branch, Value]] = []
        for compute, holds in ((then, True), (otherwise, False)):
            self.text.blocks += 1
            branch = Branch([], self.text.blocks)
            with self.within_branch(branch):
                value = compute(scope.settled(expr, holds))
                sides.append((branch, self.real(value) if real else value))
        values = [value for _, value in sides]
        python = all(value.python for value in values)
        if python and not any(branch.statements for branch, _ in sides):
            shown = f"{values[0].within(EITHER)} if {condition.within(EITHER)} else {values[1].within(TERNARY)}"
            return values[0].but(text=shown, binds=TERNARY)
        axes = joined(values, scope.order)
        dtype = None if python else widest(value.dtype for value in values)
        variable = self.text.fresh(self.label)
        for branch, value in sides:
            with self.within_branch(branch):
                shown = value.text if python else self.filled_out(value, axes, dtype, scope).text
                self.text.add(shown, "assign", variable)
        self.text.line(f"if {condition.text}:")
        self.text.statements += sides[0][0].statements
        self.text.line("else:")
        self.text.statements += sides[1][0].statements
        return Value(variable, axes, values[0].kind, dtype, ATOM, python)

    @contextmanager
    def within_branch(self, branch: Branch) -> Iterator[None]:
        known = self.known
        self.known = dict(known)
        with self.text.inside(branch.statements, branch.block):
            yield
        self.known = {**known, **self.hoisted}

    def filled_out(self, value: Value, axes: tuple[Coordinate, ...], dtype: Dtype | None, scope: Scope) -> Value:
        """The value with all of these axes, and of this dtype."""
        if value.python:
            chosen = dtype or (self.compute if value.kind == "real" else DEFAULT_DTYPE[value.kind])
            shape = self.shape(axes, scope) if axes else "()"
            return Value(self.text.dialect.full(shape, value.text, chosen), axes, value.kind, chosen)
        value = self.spread(value, axes, scope)
        return value if dtype is None or value.dtype == dtype else replace(self.cast_to(value, dtype), kind=value.kind)


@dataclass(frozen=True, slots=True)
class Branch:
    """The statements of one side of an `if`."""

    statements: list[Statement | list[Statement]]
    block: int


def constant(expr: ir.Const) -> Value:
    """A number as written."""
    if isinstance(expr.value, bool):
        return Value(str(expr.value), (), "bool", None, ATOM, True)
    binds = ATOM if expr.value >= 0 else UNARY
    if expr.type.kind == "whole" or (isinstance(expr.value, int) and abs(expr.value) < 2**53):
        return Value(str(expr.value), (), expr.type.kind, None, binds, True)
    return Value(float_text(expr.value), (), "real", None, binds, True)


def float_text(value: int | Fraction) -> str:
    try:
        return repr(float(value))
    except OverflowError:
        return "math.inf" if value > 0 else "-math.inf"


def _is_nonzero(value: Value) -> bool:
    """Whether a plain number is one that is written out, and not 0."""
    try:
        return float(value.text) != 0
    except ValueError:
        return False


def _is_plain_power(values: list[Value]) -> bool:
    """Whether a power of numbers that are written out stays among Python's floats."""
    try:
        base, exponent = (float(value.text) for value in values)
        return base > 0 and abs(exponent * math.log(base)) < 700
    except (ValueError, OverflowError):
        return False


def _is_never_negative_zero(expr: ir.Expr) -> bool:
    """Whether a sum has a part that is written out and not 0."""
    return (
        isinstance(expr, ir.Map) and expr.op == "+" and any(isinstance(a, ir.Const) and a.value for a in expr.arguments)
    )


def _is_counted(expr: ir.Expr) -> bool:
    """Whether a plain number is a size, or written out and not negative."""
    return isinstance(expr, ir.Size) or (isinstance(expr, ir.Const) and expr.value >= 0)


def _is_wide(expr: ir.Map) -> bool:
    """Whether a number is written that Python would not turn into a float."""
    return any(isinstance(a, ir.Const) and not -(2**900) < a.value < 2**900 for a in expr.arguments)
