"""Expressions → array text: everything at once, over all points of the coordinates in force."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import assert_never

from ..ir import nodes as ir
from ..ir.functions import operation
from ..ir.types import Coordinate, Dtype
from ..ir.walk import walk
from .base import Value, plain
from .branches import Branches
from .code import Infix, Name, Node, Number, Prefix, call, fill
from .scope import Scope
from .values import aligned, joined, widest
from .wholes import LARGEST

_SIGNS = frozenset(("+", "-", "*", "/"))
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))


class Emitter(Branches):
    """Expressions, node by node."""

    def value(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression over all points of the coordinates it varies over; under a name where it was met before."""
        match expr:
            case ir.Const():
                return constant(expr)
            case ir.Size(coordinate):
                return plain(self.sizes[coordinate])
            case ir.Coord(coordinate):
                return self.coordinate(coordinate, scope)
            case ir.Read(_, ()):
                return self.read(expr, scope)
        found = self.recall(expr, scope)
        if found is None and self.text.loops and self.text.checks:
            found = self.computed_ahead(expr, scope) if self.stays(expr, scope) else self.all_steps(expr, scope)
        return self.computed(expr, scope) if found is None else found

    def node(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression, computed here, under a name."""
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

    # ------------------------------------------------------------------- leaves

    def read(self, expr: ir.Read, scope: Scope) -> Value:
        raise NotImplementedError

    def figures(self, expr: ir.Array, scope: Scope) -> Value:
        raise NotImplementedError

    def reduce(self, expr: ir.Reduce, scope: Scope) -> Value:
        raise NotImplementedError

    def normalize(self, expr: ir.Normalize, scope: Scope) -> Value:
        raise NotImplementedError

    def removed(self, expr: ir.Expr, scope: Scope) -> Value | None:
        """The mask where an expression is 0 because a guard removed a point of it; None where none can."""
        raise NotImplementedError

    def heard(self, factors: Sequence[ir.Expr], scope: Scope) -> list[Value]:
        """The factors of a product, each evaluated only where none of the others was removed."""
        raise NotImplementedError

    # -------------------------------------------------------------- elementwise

    def operands(self, expr: ir.Map, scope: Scope) -> list[Value]:
        """The arguments of a function or a sign, side by side: all of them real where one is."""
        if expr.op in ("*", "/"):
            values = self.heard(expr.arguments, scope)
        else:
            values = [self.value(argument, scope) for argument in expr.arguments]
        if expr.type.kind == "real":
            return self.promoted(self.reals(expr.op, values))
        if any(value.kind == "real" for value in values):
            return [value if value.python else self.real(value, "f64") for value in values]
        return self.promoted(values)

    def reals(self, op: str, values: list[Value]) -> list[Value]:
        """Operands among reals. A whole array needs no cast where the library makes it real by itself."""
        if not operation(op).exact:
            values = [self.widened(value) for value in values]
        among = [value.dtype for value in values if value.kind == "real" and not value.python and value.axes]
        helped = self.text.dialect.wholes_take_reals or self.compute == "f64"
        if op not in _SIGNS or self.compute not in among or not helped:
            return [self.real(value) for value in values]
        return [replace(v, kind="real", dtype=self.compute) if v.kind == "whole" else v for v in values]

    def apply(self, expr: ir.Map, scope: Scope) -> Value:
        """An elementwise function."""
        op = expr.op
        if op in ("&&", "||", "!"):
            return self.logic(expr, scope)
        if op.startswith("as "):
            return self.cast(expr, scope)
        values = self.operands(expr, scope)
        if expr.type.kind == "real" and self.text.dialect.differentiates:
            values = self.at_home(expr, values, scope)
        dtype = widest(value.dtype for value in values) if expr.type.kind != "bool" else "bool"
        if expr.type.kind == "whole":
            found = self.whole(expr, values, dtype, scope)
        elif op in _COMPARISONS:
            found = self.infix(op, self.wide_enough(expr, values, scope), expr, "bool", scope)
        elif op in _SIGNS or op == "**":
            found = self.arithmetic(expr, values, dtype, scope)
        elif op == "neg":
            found = values[0].but(Prefix("-", values[0].code))
        else:
            found = self.function(expr, values, dtype, scope)
        return self.without_removed(expr, found, scope) if op in ("*", "/") and self.is_loud(expr) else found

    def at_home(self, expr: ir.Map, values: list[Value], scope: Scope) -> list[Value]:
        """The operands of a function that has a pole, or of one that may get an infinity. Where guards remove the
        point, another number is put in its place: its gradient would be NaN, for PyTorch multiplies it with 0."""
        if not scope.conditions():
            return values
        for at, stand_in in self.poles(expr):
            closely = stand_in == 0 or self.isolate
            kept = None if values[at].python else self.looked_at(set(values[at].axes), closely, scope)
            if kept is not None:
                self.leans += 1
                other = plain(stand_in, "real")
                safe = self.where(kept, self.strong(values[at]), other, scope, values[at].dtype)
                values = [*values[:at], safe, *values[at + 1 :]]
        return values

    def looked_at(self, own: set[Coordinate], closely: bool, scope: Scope) -> Value | None:
        """The mask of the points of these coordinates that guards keep. A condition that has others as well is left
        out, unless `closely`: then a point is kept if the condition holds at some point of the others."""
        found = self.holding(self.prover.projected(scope, own, opaque=False) if closely else scope, own)[1]
        masks = [mask for mask in found if own.issuperset(mask.axes)]
        wider = [mask for mask in found if closely and own & set(mask.axes) and not own.issuperset(mask.axes)]
        if wider:
            whole = self.conjunction(wider, scope)
            assert whole is not None
            gone = tuple(n for n, axis in enumerate(whole.axes) if axis not in own)
            some = self.text.dialect.reduction("any", whole, gone, self.text)
            masks.append(Value(some, tuple(axis for axis in whole.axes if axis in own), "bool", "bool"))
        return self.conjunction(masks, scope)

    def poles(self, expr: ir.Map) -> Iterator[tuple[int, int]]:
        """Yield the operands not to evaluate where guards remove the point, each with a harmless number for it."""
        row = operation(expr.op)
        for at, argument in enumerate(expr.arguments):
            others = [other for n, other in enumerate(expr.arguments) if n != at]
            handed = not row.settled or (expr.op in ("*", "/") and any(map(_is_learned, others)))
            if at in row.steep and _is_learned(argument):
                yield at, 1
            elif handed and self.may_be_endless(argument):
                yield at, 0

    def may_be_endless(self, expr: ir.Expr) -> bool:
        """Whether this may be infinite at points that a guard removed."""
        raise NotImplementedError

    def is_loud(self, expr: ir.Map) -> bool:
        """Whether a product with a factor that a guard removed may be other than 0: by a non-finite input, or by what
        the other factors compute."""
        if self.isolate:
            return True
        left, right = expr.arguments
        if expr.op == "/":
            return not _is_counted(right, 1) and self.may_be_removed(left)
        pairs = ((left, right), (right, left))
        return any(is_wild(other) and self.may_be_removed(factor) for factor, other in pairs)

    def may_be_removed(self, expr: ir.Expr) -> bool:
        """Whether a guard could remove this at all."""
        raise NotImplementedError

    def without_removed(self, expr: ir.Map, value: Value, scope: Scope) -> Value:
        """A product with 0 where a guard removed one of its factors, even where another is not finite."""
        gone = self.removed(expr, scope)
        if gone is None:
            return value
        zero = plain(0, expr.type.kind)
        return self.where(self.text.keep(gone, "removed"), zero, self.strong(value), scope, value.dtype)

    def arithmetic(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """Reals with a sign between them. Plain numbers for which Python would raise are arrays first."""
        python = all(value.python for value in values)
        if expr.op == "**":
            if python and not _is_plain_power(values):
                values[0] = self.strong(values[0])
            return self.infix("**", values, expr, dtype or values[0].dtype, scope)
        if python and (_is_wide(expr) or (expr.op == "/" and not _is_nonzero(values[1]))):
            values[0] = self.strong(values[0])
        return self.infix(expr.op, values, expr, dtype or values[0].dtype, scope)

    def function(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """A function of reals. The root of a size is a plain number."""
        if values[0].python and expr.op == "sqrt" and _is_counted(expr):
            return plain(call("math.sqrt", values[0].code), "real")
        axes = joined(values, scope.order)
        values = [aligned(value, axes) for value in values]
        if expr.op not in ("max", "min") or all(value.python for value in values):
            values = self.leading(values)
        op = "root" if expr.op == "rsqrt" and _is_never_negative_zero(expr.arguments[0]) else expr.op
        return Value(self.text.dialect.function(op, values, self.text), axes, "real", dtype or values[0].dtype)

    def logic(self, expr: ir.Map, scope: Scope) -> Value:
        """Truths. The right side of `&&` is evaluated only where the left holds, that of `||` where it fails."""
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
            return Value(Infix("or", first.code, second.code), axes, "bool", None, True)
        return Value(Infix("|", first.code, second.code), axes, "bool", "bool")

    def cast(self, expr: ir.Map, scope: Scope) -> Value:
        """To whole: truncated toward zero, where that fits. To real: rounded as the dtype rounds."""
        dtype: Dtype = expr.op[3:]  # type: ignore[assignment]
        value = self.value(expr.arguments[0], scope)
        if expr.type.kind == "bool" or value.dtype == dtype:
            return value
        bits = Number("31" if dtype == "i32" else "63")
        if expr.type.kind == "whole" and value.kind == "real":
            value = self.text.keep(self.strong(value), self.label)
            code = fill("~((-(2.0**{bits}) <= {x}) & ({x} < 2.0**{bits}))", bits=bits, x=value.code)
            test = Value(code, value.axes, "bool", "bool")
            self.fail_where(test, "IX505", f"this is not a whole number that {dtype} holds", scope)
        elif dtype == "i32" and value.kind == "whole" and self.largest(expr.arguments[0], scope) > LARGEST["i32"]:
            value = self.text.keep(self.strong(value), self.label)
            code = fill("({x} < -(2**31)) | ({x} >= 2**31)", x=value.code)
            test = Value(code, value.axes, "bool", "bool")
            self.fail_where(test, "IX505", "this whole number does not fit in 32 bits", scope)
        if value.python and value.kind == "whole" and expr.type.kind == "real":
            value = replace(value, kind="real")
        return replace(self.cast_to(self.strong(value, dtype) if value.python else value, dtype), kind=expr.type.kind)


def _is_learned(expr: ir.Expr) -> bool:
    """Whether an expression may need a gradient."""
    return any(isinstance(part, ir.Read) and part.type.kind == "real" for part in walk(expr))


def constant(expr: ir.Const) -> Value:
    """A number as written."""
    if isinstance(expr.value, bool):
        return plain(expr.value, "bool")
    small = 1 + LARGEST["i64"] if expr.type.kind == "whole" else 2**53
    if isinstance(expr.value, int) and abs(expr.value) <= small:
        return plain(expr.value, expr.type.kind)
    return plain(float_code(expr.value), "real")


def float_code(value: int | Fraction) -> Node:
    """A number as Python's floats have it."""
    try:
        return Number(repr(float(value)))
    except OverflowError:
        return Name("math.inf") if value > 0 else Prefix("-", Name("math.inf"))


def literal(code: Node) -> float | None:
    """A number that is written out; None for any other."""
    try:
        return float(code.text) if isinstance(code, Number) else None
    except OverflowError:
        return None


def _is_nonzero(value: Value) -> bool:
    """Whether a plain number is one that is written out, and not 0."""
    number = literal(value.code)
    return number is not None and number != 0


def _is_plain_power(values: list[Value]) -> bool:
    """Whether a power of numbers that are written out stays among Python's floats."""
    base, exponent = (literal(value.code) for value in values)
    return base is not None and exponent is not None and base > 0 and abs(exponent * math.log(base)) < 700


def _is_never_negative_zero(expr: ir.Expr) -> bool:
    """Whether a sum has a part that is written out and not 0."""
    return (
        isinstance(expr, ir.Map) and expr.op == "+" and any(isinstance(a, ir.Const) and a.value for a in expr.arguments)
    )


def is_wild(expr: ir.Expr) -> bool:
    """Whether an expression, as it stands, may make an infinity or NaN out of finite numbers."""
    return any(part.type.kind == "real" and _makes_infinities(part) for part in walk(expr))


def _makes_infinities(expr: ir.Expr) -> bool:
    """Whether a node itself may: by a division, a pole, an overflow, or over no points."""
    match expr:
        case ir.Map(op):
            return not operation(op).finite
        case ir.Reduce("max" | "min" | "mean", ranges, _, guard):
            return guard is not None or any(r.lower.type.coordinates or r.upper.type.coordinates for r in ranges)
        case ir.Normalize("log_softmax", guard=guard):
            return guard is not None
        case _:
            return False


def _is_counted(expr: ir.Expr, least: int = 0) -> bool:
    """Whether a plain number is a size or its root, or written out and not negative, or not 0."""
    if isinstance(expr, ir.Map) and expr.op == "sqrt":
        expr = expr.arguments[0]
    return isinstance(expr, ir.Size) or (isinstance(expr, ir.Const) and (expr.value > 0 or expr.value == least))


def _is_wide(expr: ir.Map) -> bool:
    """Whether a number is written that Python would not turn into a float."""
    return any(isinstance(a, ir.Const) and not -(2**900) < a.value < 2**900 for a in expr.arguments)
