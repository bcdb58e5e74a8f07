"""Expressions → array text: everything at once, over all points of the coordinates in force."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from collections.abc import Iterator
from typing import assert_never

from ..checker.context import assume
from ..ir import build
from ..ir import nodes as ir
from ..ir.affine import expression, of_atom, polynomial
from ..ir.types import Coordinate, Dtype
from .base import ATOM, COMPARISON, POWER, PRODUCT, SUM, UNARY, Text, Value
from .scope import Scope, simplified
from .values import aligned, joined, widest

_LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor that is there: its variable. While a recurrence computes it, `rows` are the axes that are
    stepped, and the variable is a dictionary of what is there so far, by step."""

    variable: str
    dtype: Dtype | None
    python: bool = False
    rows: tuple[int, ...] = ()


@dataclass
class Emitter:
    """What the expressions of one emitted function share."""

    text: Text
    program: ir.Program
    stored: dict[str, Stored] = field(default_factory=dict)
    sizes: dict[Coordinate, str] = field(default_factory=dict)
    compute: Dtype = "f64"
    known: dict[object, Value] = field(default_factory=dict)
    isolate: bool = False
    label: str = "x"
    leads: dict[Coordinate, str] = field(default_factory=dict)
    unpacked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tensors: Mapping[str, ir.Input | ir.Let] = self.program.tensors
        self.lets = {let.name: let for let in self.program.lets}

    @contextmanager
    def block(self) -> Iterator[None]:
        """An indented block: what is computed in it is not known after it."""
        known = dict(self.known)
        with self.text.indented():
            yield
        self.known = known

    # ------------------------------------------------------------ plain numbers

    def number(self, expr: ir.Expr, scope: Scope | None = None) -> str:
        """A whole expression free of coordinates, as plain Python."""
        return self._number(simplified(expr), scope).text

    def _number(self, expr: ir.Expr, scope: Scope | None) -> Value:
        def plain(text: str, binds: int = ATOM) -> Value:
            return Value(text, (), "whole", None, binds, True)

        match expr:
            case ir.Const(value):
                return plain(str(int(value)), ATOM if value >= 0 else UNARY)
            case ir.Size(coordinate):
                return plain(self.sizes[coordinate])
            case ir.Coord(coordinate) if scope is not None and scope.places[coordinate].step is not None:
                return plain(str(scope.places[coordinate].step))
            case ir.Read(tensor, ()):
                stored = self.stored[tensor]
                return plain(stored.variable if stored.python else f"int({stored.variable})")
            case ir.Map("neg", (operand,)):
                return plain(f"-{self._number(operand, scope).within(UNARY)}", UNARY)
            case ir.Map("+" | "-" | "*" as op, (left, right)):
                level = _LEVELS[op]
                first, second = self._number(left, scope), self._number(right, scope)
                return plain(f"{first.within(level)} {op} {second.within(level + 1)}", level)
            case ir.Map("max" | "min" | "abs" as op, arguments):
                return plain(f"{op}({', '.join(self._number(a, scope).text for a in arguments)})")
            case ir.Map("//" | "%" as op, (left, right)) if self.proves_range(right, 1, scope):
                first, second = self._number(left, scope), self._number(right, scope)
                if self.proves_range(left, 0, scope):
                    return plain(f"{first.within(PRODUCT)} {op} {second.within(UNARY)}", PRODUCT)
                whole = f"int(math.trunc(Fraction({first.text}, {second.text})))"
                self.text.helpers.setdefault("Fraction", "")
                return plain(whole if op == "//" else f"{first.within(SUM)} - {second.atom} * {whole}", SUM)
            case _:
                return plain(f"int({self.value(expr, scope or Scope({})).text})")

    def proves_range(self, expr: ir.Expr, least: int, scope: Scope | None) -> bool:
        """Whether a whole expression is at least so much, wherever it is evaluated. Sizes count as at least 1:
        where one is 0 there is nothing to evaluate."""
        known = assume(() if scope is None else scope.trail, self.lets)
        goal = polynomial(expr, known.constants) - least
        sizes = {part for part in goal.atoms if isinstance(part, ir.Size)}
        for size in sizes:
            known = known._also((of_atom(size) - 1,), (), False)
        return known.entails(goal)

    def length(self, coordinate: Coordinate, scope: Scope) -> str:
        """How many points a coordinate has here."""
        place = scope.places[coordinate]
        count = expression(polynomial(place.stop) - polynomial(place.start), place.stop.span)
        shown = self.number(count, scope)
        return shown if isinstance(count, ir.Size | ir.Const) or place.measured else f"max(0, {shown})"

    def shape(self, axes: tuple[Coordinate, ...], scope: Scope) -> str:
        lengths = [self.length(axis, scope) for axis in axes]
        return f"({lengths[0]},)" if len(lengths) == 1 else f"({', '.join(lengths)})"

    # -------------------------------------------------------------- expressions

    def value(self, expr: ir.Expr, scope: Scope) -> Value:
        """An expression over all points of the coordinates it varies over."""
        match expr:
            case ir.Const():
                return constant(expr)
            case ir.Size(coordinate):
                return Value(self.sizes[coordinate], (), "whole", None, ATOM, True)
            case ir.Coord(coordinate):
                return self.coordinate(coordinate, scope)
            case ir.Read():
                return self.read(expr, scope)
            case ir.Array():
                return self.figures(expr, scope)
            case ir.Map():
                return self.apply(expr, scope)
            case ir.Select():
                return self.select(expr, scope)
            case ir.Reduce():
                return self.reduce(expr, scope)
            case ir.Normalize():
                return self.normalize(expr, scope)
            case _:
                assert_never(expr)

    def coordinate(self, coordinate: Coordinate, scope: Scope) -> Value:
        place = scope.places[coordinate]
        if place.step is not None:
            return Value(place.step, (), "whole", None, ATOM, True)
        start, stop = self.number(place.start, scope), self.number(place.stop, scope)
        key = ("arange", coordinate, start, stop)
        if key not in self.known:
            shown = Value(self.text.dialect.arange(start, stop), (coordinate,), "whole", "i64")
            self.known[key] = self.text.keep(shown, coordinate.name)
        return self.known[key]

    def read(self, expr: ir.Read, scope: Scope) -> Value:
        raise NotImplementedError

    def figures(self, expr: ir.Array, scope: Scope) -> Value:
        raise NotImplementedError

    def reduce(self, expr: ir.Reduce, scope: Scope) -> Value:
        raise NotImplementedError

    def normalize(self, expr: ir.Normalize, scope: Scope) -> Value:
        raise NotImplementedError

    # -------------------------------------------------------------- elementwise

    def real(self, value: Value, dtype: Dtype | None = None) -> Value:
        """A whole or Boolean array among reals takes their dtype; a plain number has none to change."""
        if value.kind == "real" or (value.python and value.kind == "whole"):
            return replace(value, kind="real")
        return replace(self.text.dialect.cast(value, dtype or self.compute), kind="real")

    def strong(self, value: Value, dtype: Dtype | None = None) -> Value:
        """A plain number as an array of one."""
        if not value.python:
            return value
        chosen = dtype or {"bool": "bool", "whole": "i64"}.get(value.kind) or self.compute
        shown = self.text.dialect.constant(value.text, chosen)  # type: ignore[arg-type]
        return Value(shown, (), value.kind, chosen)  # type: ignore[arg-type]

    def operands(self, expr: ir.Map, scope: Scope) -> list[Value]:
        values = [self.text.short(self.value(argument, scope), self.label) for argument in expr.arguments]
        if expr.type.kind == "real":
            return self.promoted([self.real(value) for value in values])
        if any(value.kind == "real" for value in values):
            return [value if value.python else self.real(value, "f64") for value in values]
        return self.promoted(values)

    def promoted(self, values: list[Value]) -> list[Value]:
        """PyTorch lets an array of no axes take the dtype of others: where it is the wider one, they take its."""
        dtype = widest(value.dtype for value in values)
        if self.text.dialect.name != "torch" or not any(
            v.dtype == dtype and not v.axes and not v.python for v in values
        ):
            return values
        return [
            value if value.dtype in (dtype, None) or dtype is None else self.text.dialect.cast(value, dtype)
            for value in values
        ]

    def apply(self, expr: ir.Map, scope: Scope) -> Value:
        op = expr.op
        if op in ("&&", "||", "!"):
            return self.logic(expr, scope)
        if op.startswith("as "):
            return self.cast(expr, scope)
        values = self.operands(expr, scope)
        dtype = widest(value.dtype for value in values) if expr.type.kind != "bool" else "bool"
        if expr.type.kind == "whole":
            return self.whole(expr, values, dtype, scope)
        if op in ("==", "!=", "<", "<=", ">", ">="):
            return self.infix(op, values, COMPARISON, expr, "bool", scope)
        python = all(value.python for value in values)
        if op in _LEVELS:
            if python and op == "/" and not _is_nonzero(values[1]):
                values[0] = self.strong(values[0])
            elif python and _is_wide(expr):
                values[0] = self.strong(values[0])
            return self.infix(op, values, _LEVELS[op], expr, dtype, scope)
        if op == "neg":
            return values[0].but(text=f"-{values[0].within(UNARY)}", binds=UNARY)
        if python and op == "sqrt" and isinstance(expr.arguments[0], ir.Size):
            return Value(f"math.sqrt({values[0].text})", (), "real", None, ATOM, True)
        if op == "**":
            if python and not _is_plain_power(values):
                values[0] = self.strong(values[0])
            return self.infix("**", values, POWER, expr, dtype, scope)
        if python:
            values[0] = self.strong(values[0])
        axes = joined(values, scope.order)
        shown = self.text.dialect.function(op, [aligned(value, axes) for value in values], self.text)
        binds = PRODUCT if op == "rsqrt" and self.text.dialect.name == "numpy" else ATOM
        return Value(shown, axes, "real", dtype if not python else values[0].dtype, binds)

    def infix(self, op: str, values: list[Value], level: int, expr: ir.Map, dtype: Dtype | None, scope: Scope) -> Value:
        axes = joined(values, scope.order)
        left, right = (aligned(value, axes) for value in values)
        python = left.python and right.python
        shown = f"{left.within(level + (op == '**' or level == COMPARISON))} {op} {right.within(level + 1)}"
        return Value(shown, axes, expr.type.kind, None if python else dtype, level, python)

    def logic(self, expr: ir.Map, scope: Scope) -> Value:
        if expr.op == "!":
            value = self.value(expr.arguments[0], scope)
            if value.python:
                return value.but(text=f"not {value.within(UNARY)}", binds=0)
            return value.but(text=f"~{value.within(UNARY)}", binds=UNARY)
        left, right = expr.arguments
        first = self.value(left, scope)
        second = self.value(right, scope.where(left, expr.op == "&&"))
        axes = joined((first, second), scope.order)
        first, second = aligned(first, axes), aligned(second, axes)
        if first.python and second.python:
            word = "and" if expr.op == "&&" else "or"
            return Value(f"{first.within(1)} {word} {second.within(1)}", axes, "bool", None, 0, True)
        sign = expr.op[0]
        return Value(f"{first.within(UNARY)} {sign} {second.within(UNARY)}", axes, "bool", "bool", SUM)

    def select(self, expr: ir.Select, scope: Scope) -> Value:
        condition = self.text.short(self.value(expr.condition, scope), "chosen")
        then = self.value(expr.then, scope.where(expr.condition))
        otherwise = self.value(expr.otherwise, scope.where(expr.condition, False))
        if expr.type.kind == "real":
            then, otherwise = self.real(then), self.real(otherwise)
        then, otherwise = self.promoted([then, otherwise])
        if then.python and otherwise.python:
            then = self.strong(then)
        dtype = widest((then.dtype, otherwise.dtype))
        return self.where(condition, then, otherwise, scope, dtype)

    def where(self, condition: Value, then: Value, otherwise: Value, scope: Scope, dtype: Dtype | None) -> Value:
        axes = joined((condition, then, otherwise), scope.order)
        parts = [aligned(self.text.short(value, self.label), axes) for value in (condition, then, otherwise)]
        shown = self.text.dialect.where(parts[0], parts[1].text, parts[2].text)
        return Value(shown, axes, then.kind if not then.python else otherwise.kind, dtype)

    # ------------------------------------------------------------ whole numbers

    def whole(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        op = expr.op
        python = all(value.python for value in values)
        if op in ("+", "-", "*"):
            found = self.infix(op, values, _LEVELS[op], expr, dtype, scope)
            return self.checked(found, expr, values, scope)
        if op == "neg":
            return values[0].but(text=f"-{values[0].within(UNARY)}", binds=UNARY)
        if op in ("//", "%"):
            return self.divided(expr, values, dtype, scope)
        if python:
            if op in ("max", "min", "abs"):
                return Value(f"{op}({', '.join(v.text for v in values)})", (), "whole", None, ATOM, True)
            values[0] = self.strong(values[0])
        axes = joined(values, scope.order)
        values = [aligned(value, axes) for value in values]
        if op == "**":
            values = [self.text.keep(self.strong(value, dtype), self.label) for value in values]
            self.fail_where(
                f"{values[1].text} < 0", values[1].axes, "IX505", "a whole number to a negative power", scope
            )
            found = Value(f"{self.text.helper('power')}({values[0].text}, {values[1].text})", axes, "whole", dtype)
            return self.checked(found, expr, values, scope)
        if self.text.dialect.name == "torch":
            values = [values[0], *(value if not values[0].python else self.strong(value) for value in values[1:])]
        return Value(self.text.dialect.function(op, values, self.text), axes, "whole", dtype)

    def divided(self, expr: ir.Map, values: list[Value], dtype: Dtype | None, scope: Scope) -> Value:
        """Whole quotient and remainder, truncated toward zero; by zero is a failure where it is evaluated."""
        positive = self.proves_range(expr.arguments[1], 1, scope)
        if positive and self.proves_range(expr.arguments[0], 0, scope):
            return self.infix(expr.op, values, PRODUCT, expr, dtype, scope)
        axes = joined(values, scope.order)
        left, right = (self.text.keep(self.strong(value, dtype), self.label) for value in values)
        if not positive:
            self.fail_where(f"{right.text} == 0", right.axes, "IX505", "a whole number divided by zero", scope)
        left, right = aligned(left, axes), aligned(right, axes)
        quotient = self.text.dialect.quotient(left, right, self.text)
        if expr.op == "//":
            return Value(quotient, axes, "whole", dtype)
        return Value(f"{left.text} - {quotient} * {right.text}", axes, "whole", dtype, SUM)

    def checked(self, value: Value, expr: ir.Map, operands: list[Value], scope: Scope) -> Value:
        """Whole arithmetic that might leave 64 bits is done in floats beside, and refused if it does."""
        if value.python or bits(expr, self.stored) <= 62:
            return value
        value = self.text.keep(value, self.label)
        axes = joined(operands, scope.order)
        floats = [aligned(self.real(self.strong(operand), "f64"), axes) for operand in operands]
        sign = {"+": "+", "-": "-", "*": "*", "**": "**"}[expr.op]
        beside = f"{floats[0].atom} {sign} {floats[1].atom}"
        test = f"{self.text.helper('is_too_large')}({beside}, 64)"
        self.fail_where(test, axes, "IX505", "this whole number does not fit in 64 bits", scope)
        return value

    def cast(self, expr: ir.Map, scope: Scope) -> Value:
        dtype: Dtype = expr.op[3:]  # type: ignore[assignment]
        value = self.value(expr.arguments[0], scope)
        if expr.type.kind == "bool" or value.dtype == dtype:
            return value
        if value.kind == "real" and expr.type.kind == "whole":
            value = self.text.keep(self.strong(value), self.label)
            limit = "2.0**31" if dtype == "i32" else "2.0**63"
            test = f"~(abs({value.text}) < {limit})"
            self.fail_where(test, value.axes, "IX505", f"not a whole number that {dtype} holds", scope)
        if dtype == "bf16" and self.text.dialect.name == "numpy":
            value = self.real(value, "f32")
            shown = f"{self.text.helper('round_bf16')}({value.text})"
            return Value(shown, value.axes, "real", "bf16")
        return replace(self.text.dialect.cast(value, dtype), kind=expr.type.kind)

    # ------------------------------------------------------------------- checks

    def fail_where(self, test: str, axes: tuple[Coordinate, ...], code: str, message: str, scope: Scope) -> None:
        """Refuse where a test holds at a point that is evaluated: one where all that holds here does."""
        if not self.text.checks:
            return
        found = Value(f"({test})", axes, "bool", "bool")
        self.text.checks = False
        for number, (condition, holds) in enumerate(scope.conditions()):
            inside = replace(scope, trail=tuple(s for s in scope.trail if isinstance(s, ir.Range)))
            for earlier in scope.conditions()[:number]:
                inside = inside.where(*earlier)
            fact = condition if holds else build.apply("!", (condition,), "bool", condition.span)
            value = self.value(fact, inside)
            union = joined((found, value), scope.order)
            pair = aligned(found, union), aligned(value, union)
            if value.python:
                found = Value(f"{pair[0].text} & ({value.text})", union, "bool", "bool", SUM)
            else:
                found = Value(f"{pair[0].text} & {pair[1].within(UNARY)}", union, "bool", "bool", SUM)
        self.text.checks = True
        self.text.refuse(f"({found.text}).any()", code, message)


def constant(expr: ir.Const) -> Value:
    """A number as written."""
    if isinstance(expr.value, bool):
        return Value(str(expr.value), (), "bool", None, ATOM, True)
    if expr.type.kind == "whole" or (isinstance(expr.value, int) and abs(expr.value) < 2**53):
        return Value(str(expr.value), (), expr.type.kind, None, ATOM if expr.value >= 0 else UNARY, True)
    return Value(float_text(expr.value), (), "real", None, ATOM if expr.value >= 0 else UNARY, True)


def float_text(value: int | Fraction) -> str:
    try:
        return repr(float(value))
    except OverflowError:
        return "math.inf" if value > 0 else "-math.inf"


def _is_nonzero(value: Value) -> bool:
    """Whether a plain number cannot be 0: a literal that is not, or a root of a size."""
    try:
        return float(value.text) != 0
    except ValueError:
        return False


def _is_plain_power(values: list[Value]) -> bool:
    try:
        return float(values[0].text) > 0 and abs(float(values[1].text) * math.log(float(values[0].text))) < 700
    except (ValueError, OverflowError):
        return False


def _is_wide(expr: ir.Map) -> bool:
    """Whether plain numbers could leave what Python's floats do without an exception: whole numbers this large
    do not become floats."""
    return any(isinstance(a, ir.Const) and abs(a.value) > 2**900 for a in expr.arguments)


def bits(expr: ir.Expr, stored: Mapping[str, Stored]) -> int:
    """How many bits a whole expression can need: an axis has less than 2**31 points."""
    match expr:
        case ir.Const(value):
            return int(value).bit_length()
        case ir.Coord() | ir.Size() | ir.Reduce("argmax" | "argmin"):
            return 31
        case ir.Read(tensor):
            known = stored.get(tensor)
            return 31 if known is not None and known.dtype == "i32" else 63
        case ir.Map("*", (left, right)):
            return bits(left, stored) + bits(right, stored)
        case ir.Map("+" | "-", (left, right)):
            return 1 + max(bits(left, stored), bits(right, stored))
        case ir.Map("//" | "%" | "neg" | "abs" | "relu", arguments):
            return bits(arguments[0], stored)
        case ir.Map("max" | "min" | "clamp", arguments):
            return max(bits(argument, stored) for argument in arguments)
        case ir.Select(_, then, otherwise):
            return max(bits(then, stored), bits(otherwise, stored))
        case _:
            return 63
