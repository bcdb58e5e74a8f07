"""Whole numbers of 64 bits: a result that does not fit is refused, never wrapped."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.affine import polynomial
from ..ir.types import Coordinate, Dtype
from ..ir.walk import walk
from .arrays import Arrays
from .base import Value, plain
from .code import Prefix, call, fill, infix
from .scope import Place, Scope
from .values import aligned, joined, widest

_CHECKED = {"+": "add", "-": "subtract", "*": "multiply"}

# The largest length of an axis, and the magnitude at which counting stops.
_LONGEST = 2**31
_ENDLESS = 2**200

LARGEST: dict[Dtype, int] = {"i32": 2**31 - 1, "i64": 2**63 - 1}


class Wholes(Arrays):
    """Arithmetic on whole numbers."""

    def whole(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """A function of whole numbers. Those of 32 bits are computed with 64 where they may not be enough."""
        op = expr.op
        if all(value.python for value in values) and op in ("+", "-", "*", "neg") and self.is_small(expr, scope):
            return self.plain(polynomial(expr), expr.span, scope)
        values = self.wide_enough(expr, values, scope)
        if dtype == "i32" and self.largest(expr, scope) > LARGEST["i32"]:
            values = [v if v.python else self.cast_to(v, "i64") for v in values]
        dtype = widest(value.dtype for value in values)
        python = all(value.python for value in values)
        if op in _CHECKED:
            return self.added(expr, values, dtype, scope)
        if op in ("neg", "abs") and self.largest(expr, scope) > LARGEST["i64"]:
            values = self.asked(values, scope)
        if op == "neg" and self.largest(expr, scope) > LARGEST["i64"]:
            if python:
                return values[0].but(call(self.text.helper("fitting"), Prefix("-", values[0].code)))
            return values[0].but(call(self.text.helper("subtract"), 0, values[0].code))
        if op == "neg":
            return values[0].but(Prefix("-", values[0].code))
        if op in ("//", "%"):
            return self.divided(expr, values, dtype, scope)
        if op == "abs" and self.largest(expr, scope) > LARGEST["i64"]:
            if python:
                return values[0].but(call(self.text.helper("fitting"), call("abs", values[0].code)))
            return values[0].but(call(self.text.helper("magnitude"), values[0].code))
        if python and op in ("max", "min", "abs"):
            return plain(call(op, *(value.code for value in values)))
        if op == "**":
            return self.raised(expr, values, dtype, scope)
        axes = joined(values, scope.order)
        values = [aligned(value, axes) for value in values]
        if op not in ("max", "min") or python:
            values = self.leading(values)
        return Value(self.text.dialect.function(op, values, self.text), axes, "whole", dtype or values[0].dtype)

    def wide_enough(self, expr: ir.Map, values: list[Value], scope: Scope) -> list[Value]:
        """The operands, arrays with 64 bits where a plain number may need more than 32: PyTorch would cut it down to
        the dtype of the array that it meets."""
        beside = zip(expr.arguments, values, strict=True)
        if not any(value.python and self.largest(a, scope) > LARGEST["i32"] for a, value in beside):
            return values
        return [self.cast_to(value, "i64") if value.dtype == "i32" else value for value in values]

    def is_small(self, expr: ir.Expr, scope: Scope) -> bool:
        """Whether a number is surely one of 64 bits, and so is all that it is made of."""
        return all(self.largest(p, scope) <= LARGEST["i64"] for p in walk(expr) if p.type.kind == "whole")

    def leading(self, values: list[Value]) -> list[Value]:
        """The arguments of a function, the first of them an array."""
        if any(not value.python for value in values) and self.text.dialect.takes_numbers_first:
            return values
        return [self.strong(values[0], next((v.dtype for v in values if v.dtype), None)), *values[1:]]

    def added(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """A sum, a difference or a product. One that might leave 64 bits is checked."""
        if self.largest(expr, scope) <= LARGEST["i64"]:
            return self.infix(expr.op, values, expr, dtype, scope)
        axes = joined(values, scope.order)
        if all(value.python for value in values):
            found = self.infix(expr.op, values, expr, dtype, scope)
            return found.but(call(self.text.helper("fitting"), found.code))
        left, right = (aligned(value, axes) for value in self.asked(values, scope))
        return Value(call(self.text.helper(_CHECKED[expr.op]), left.code, right.code), axes, "whole", dtype)

    def asked(self, values: list[Value], scope: Scope) -> list[Value]:
        """Operands whose result is checked for overflow, with 0 where guards removed the point: there it may be any
        number."""
        if not scope.conditions() or not self.text.checks:  # Of a guard itself nothing is asked.
            return values
        result = []
        for value in values:
            kept = None if value.python else self.looked_at(set(value.axes), True, scope)
            if kept is not None:
                self.leans += 1
                value = self.text.keep(self.where(kept, value, plain(0), scope, value.dtype), self.label)
            result.append(value)
        return result

    def looked_at(self, own: set[Coordinate], closely: bool, scope: Scope) -> Value | None:
        """The mask of the points of these coordinates that guards keep."""
        raise NotImplementedError

    def divided(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """Whole quotient and remainder, truncated toward zero; by zero is a failure where it is evaluated."""
        dividend, divisor = expr.arguments
        by = self.prover.polynomial(divisor)
        safe = by.constant not in (0, None) or self.prover.entails(scope.box, by - 1)
        edge = self.largest(dividend, scope) > LARGEST["i64"] and not self.prover.entails(scope.box, by)
        if all(value.python for value in values) and not scope.conditions():
            if not safe:
                by_zero = infix("==", self.number(divisor, scope), 0)
                self.refuse_once(by_zero, "IX505", "a whole number divided by zero")
            found = self.plain(polynomial(expr), expr.span, scope)
            return found.but(call(self.text.helper("fitting"), found.code)) if edge else found
        counted = self.prover.entails(scope.box, by) and self.prover.at_least(dividend, 0, scope)
        if not safe:
            values[1] = self.checked_divisor(values[1], counted, scope)
            safe = not scope.conditions() or (counted and values[1].python)
        if counted and safe:
            self.leans += not self.prover.entails(scope.box, self.prover.polynomial(dividend))
            return self.infix(expr.op, values, expr, dtype, scope)
        axes = joined(values, scope.order)
        if edge and by.constant in (None, -1):
            values = self.off_the_edge(expr.op, values, axes, scope)
        left = aligned(self.strong(values[0], dtype), axes)
        right = aligned(values[1] if safe else self.strong(values[1], dtype), axes)
        return Value(self.text.dialect.divide(expr.op, left, right, safe, self.text), axes, "whole", dtype or "i64")

    def off_the_edge(self, op: str, values: list[Value], axes: tuple[Coordinate, ...], scope: Scope) -> list[Value]:
        """A dividend and a divisor, with 1 for a divisor of -1 beside the least whole number: their quotient has no
        64 bits, and a processor that is asked for it, or for their remainder, may stop."""
        kept = [self.text.keep(self.strong(value, "i64"), self.label) for value in values]
        left, right = (aligned(value, axes) for value in kept)
        code = fill("({left} == -(2**63)) & ({right} == -1)", left=left.code, right=right.code)
        edge = self.text.keep(Value(code, axes, "bool", "bool"), self.label)
        if op == "//":
            self.fail_where(edge, "IX505", "this whole number does not fit in 64 bits", scope)
        return [kept[0], self.text.keep(self.where(edge, plain(1), kept[1], scope, "i64"), self.label)]

    def checked_divisor(self, value: Value, counted: bool, scope: Scope) -> Value:
        """A divisor that is not 0 where it is evaluated; nowhere, if it is a plain number that is not negative."""
        value = value if value.python else self.text.keep(value, self.label)
        test = Value(infix("==", value.code, 0), value.axes, "bool", "bool", value.python)
        self.fail_where(test, "IX505", "a whole number divided by zero", scope)
        if value.python and counted and scope.conditions():
            return value.but(call("max", 1, value.code))
        return value

    def raised(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """A whole power; one with a negative exponent is a failure where it is evaluated."""
        exponent = expr.arguments[1]
        base, power = (self.text.keep(self.strong(value, dtype), self.label) for value in values)
        if not self.prover.entails(scope.box, self.prover.polynomial(exponent)):
            test = Value(infix("<", power.code, 0), power.axes, "bool", "bool")
            self.fail_where(test, "IX505", "a whole number to a negative power is not whole", scope)
        axes = joined(values, scope.order)
        helper = "power" if self.largest(expr, scope) <= LARGEST["i64"] else "checked_power"
        if helper == "checked_power":
            base, power = self.asked([base, power], scope)
        code = call(self.text.helper(helper), aligned(base, axes).code, aligned(power, axes).code)
        return Value(code, axes, "whole", dtype or "i64")

    # ---------------------------------------------------------------- magnitudes

    def largest(self, expr: ir.Expr, scope: Scope) -> int:
        """The largest magnitude of a whole expression; an axis has less than 2**31 points."""
        return min(_ENDLESS, self._largest(expr, scope))

    def _largest(self, expr: ir.Expr, scope: Scope) -> int:
        match expr:
            case ir.Const(value):
                return abs(int(value))
            case ir.Size():
                return _LONGEST
            case ir.Coord(coordinate):
                place = scope.places.get(coordinate)
                ends = () if place is None else (place.start, place.stop)
                sizes = [self.largest(end, scope) for end in ends if not end.type.coordinates]
                return max(sizes) if len(sizes) == 2 else _LONGEST
            case ir.Read(tensor):
                return self.largest_in(tensor)
            case ir.Array(cells=cells):
                return max((abs(int(cell.value)) for cell in cells), default=0)
            case ir.Map():
                return self._largest_result(expr, scope)
            case ir.Select(_, then, otherwise):
                return max(self.largest(then, scope), self.largest(otherwise, scope))
            case ir.Reduce("argmax" | "argmin"):
                return _LONGEST
            case ir.Reduce("sum" | "max" | "min", ranges, body):
                inner = self.reaching(ranges, scope)
                most = self.largest(body, inner)
                return most * _LONGEST if expr.op == "sum" else most
            case ir.Normalize("cumsum", _, body):
                return self.largest(body, scope) * _LONGEST
        return _ENDLESS

    def _largest_result(self, expr: ir.Map, scope: Scope) -> int:
        if any(argument.type.kind == "real" for argument in expr.arguments):
            return LARGEST["i32"] if expr.op == "as i32" else LARGEST["i64"]
        if any(argument.type.kind == "bool" for argument in expr.arguments):
            return 1
        sizes = [self.largest(argument, scope) for argument in expr.arguments]
        match expr.op:
            case "+" | "-":
                return sizes[0] + sizes[1]
            case "*":
                return sizes[0] * sizes[1]
            case "**":
                return int(max(1, sizes[0]) ** sizes[1]) if sizes[1] <= 64 else _ENDLESS
            case "%":
                return min(sizes)
            case "//":
                return sizes[0]
            case _:
                return max(sizes)

    def reaching(self, ranges: tuple[ir.Range, ...], scope: Scope) -> Scope:
        """A scope in which the coordinates of these ranges can be bounded."""
        places = {range.coordinate: Place(range.lower, range.upper, not range.stated) for range in ranges}
        return Scope({**scope.places, **places})

    def largest_in(self, tensor: str) -> int:
        """The largest magnitude of the numbers of a tensor."""
        stored = self.stored.get(tensor)
        if tensor not in self.lets:
            return 1 + LARGEST["i32" if stored is not None and stored.dtype == "i32" else "i64"]
        if tensor not in self.magnitudes:
            self.magnitudes[tensor] = 1 + LARGEST["i64"]
            clauses = self.lets[tensor].clauses
            found = [self.largest(c.body, self.reaching(c.ranges, Scope({}))) for c in clauses]
            self.magnitudes[tensor] = min(1 + LARGEST["i64"], max(found, default=0))
        return self.magnitudes[tensor]
