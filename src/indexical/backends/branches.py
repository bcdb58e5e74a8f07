"""One of two values: at every point, or in the emitted code where a plain number decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.types import DEFAULT_DTYPE, Coordinate, Dtype, widest
from .base import Value
from .code import Name, Ternary
from .layout import Block
from .memory import Memory
from .scope import Scope
from .values import joined
from .wholes import LARGEST


@dataclass(frozen=True, slots=True)
class Branch:
    """The statements of one side of an `if`."""

    statements: Block
    block: int


class Branches(Memory):
    """Conditions that decide between values."""

    def select(self, expr: ir.Select, scope: Scope) -> Value:
        """One of two values; only the one that is taken is evaluated."""
        condition = self.value(expr.condition, scope)
        return self.choose(
            expr.condition,
            condition,
            lambda inner: self.chosen(expr, expr.then, inner),
            lambda inner: self.chosen(expr, expr.otherwise, inner),
            expr.type.kind == "real",
            scope,
        )

    def chosen(self, expr: ir.Select, side: ir.Expr, scope: Scope) -> Value:
        """One side of a choice; a whole one has 64 bits where the other may need more than 32."""
        value = self.value(side, scope)
        if expr.type.kind != "whole" or value.dtype != "i32":
            return value
        written = [part.value for part in (expr.then, expr.otherwise) if isinstance(part, ir.Const)]
        wide = self.largest(expr, scope) > 1 + LARGEST["i32"] or any(number > LARGEST["i32"] for number in written)
        return self.cast_to(value, "i64") if wide else value

    def choose(
        self,
        expr: ir.Expr,
        condition: Value,
        then: Callable[[Scope], Value],
        otherwise: Callable[[Scope], Value],
        real: bool,
        scope: Scope,
    ) -> Value:
        """One of two values at every point. A condition that varies with nothing is asked first, and one branch is
        computed; where a library makes graphs, only if it is a plain one."""
        if condition.python or (not condition.axes and self.text.dialect.branches_on_scalars):
            return self.branched(expr, condition, then, otherwise, real, scope)
        first, second = then(scope.where(expr)), otherwise(scope.where(expr, False))
        if real:
            first, second = self.real(first), self.real(second)
        exact = self.compute == "f64" and self.text.dialect.numbers_are_f64
        if first.python and second.python and real and not exact:
            first = self.strong(first)
        first, second = self.promoted([first, second])
        dtype = widest((first.dtype, second.dtype)) or DEFAULT_DTYPE[first.kind]
        return self.where(condition, first, second, scope, dtype)

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
            return values[0].but(Ternary(values[0].code, condition.code, values[1].code))
        axes = joined(values, scope.order)
        dtype = None if python else widest(value.dtype for value in values)
        variable = self.text.fresh(self.label)
        for branch, value in sides:
            with self.within_branch(branch):
                code = value.code if python else self.filled_out(value, axes, dtype, scope).code
                self.text.assign(variable, code)
        self.text.add("if", condition.code)
        self.text.statements += sides[0][0].statements
        self.text.add("else")
        self.text.statements += sides[1][0].statements
        return Value(Name(variable), axes, values[0].kind, dtype, python)

    @contextmanager
    def within_branch(self, branch: Branch) -> Iterator[None]:
        """Emit one side of an `if`: values that are named there are known only there."""
        known = self.known
        self.known = dict(known)
        with self.text.inside(branch.statements, branch.block):
            yield
        self.known = {**known, **self.hoisted}

    def filled_out(self, value: Value, axes: tuple[Coordinate, ...], dtype: Dtype | None, scope: Scope) -> Value:
        """The value with all of these axes, and of this dtype."""
        if value.python:
            chosen = dtype or (self.compute if value.kind == "real" else DEFAULT_DTYPE[value.kind])
            if not axes:
                return self.strong(value, chosen)
            return Value(self.text.dialect.full(self.shape(axes, scope), value.code, chosen), axes, value.kind, chosen)
        value = self.spread(value, axes, scope)
        return value if dtype is None or value.dtype == dtype else replace(self.cast_to(value, dtype), kind=value.kind)
