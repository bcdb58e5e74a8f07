"""One of two values: at every point, or in the emitted code where a plain number decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...ir import nodes as ir
from ...ir.types import DEFAULT_DTYPE, Coordinate, Dtype, widest
from ...records import dataclass, replace
from . import arrays, integers, sizes
from .base import Value
from .code import Name, Ternary
from .integers import LARGEST
from .layout import Block
from .lowering import Lowering
from .scope import Scope
from .values import joined


@dataclass(frozen=True, slots=True)
class Branch:
    """The statements of one side of an `if`."""

    statements: Block
    block: int


def select(low: Lowering, expr: ir.Select, scope: Scope) -> Value:
    """One of two values; only the one that is taken is evaluated."""
    condition = low.value(expr.condition, scope)
    return choose(
        low,
        expr.condition,
        condition,
        lambda inner: chosen(low, expr, expr.then, inner),
        lambda inner: chosen(low, expr, expr.otherwise, inner),
        expr.type.kind == "real",
        scope,
    )


def chosen(low: Lowering, expr: ir.Select, side: ir.Expr, scope: Scope) -> Value:
    """One side of a choice; a whole one has 64 bits where the other may need more than 32."""
    value = low.value(side, scope)
    if expr.type.kind != "whole" or value.dtype != "i32":
        return value
    written = [part.value for part in (expr.then, expr.otherwise) if isinstance(part, ir.Const)]
    wide = integers.largest(low, expr, scope) > 1 + LARGEST["i32"] or any(number > LARGEST["i32"] for number in written)
    return arrays.cast_to(low, value, "i64") if wide else value


def choose(
    low: Lowering,
    expr: ir.Expr,
    condition: Value,
    then: Callable[[Scope], Value],
    otherwise: Callable[[Scope], Value],
    real: bool,
    scope: Scope,
) -> Value:
    """One of two values at every point. A condition that varies with nothing is asked first, and one branch is
    computed; where a library makes graphs, only if it is a plain one."""
    if condition.python or (not condition.axes and low.text.dialect.branches_on_scalars):
        return branched(low, expr, condition, then, otherwise, real, scope)
    first, second = then(scope.where(expr)), otherwise(scope.where(expr, False))
    if real:
        first, second = arrays.as_real(low, first), arrays.as_real(low, second)
    exact = low.compute == "f64" and low.text.dialect.numbers_are_f64
    if first.python and second.python and real and not exact:
        first = arrays.as_array(low, first)
    first, second = arrays.promoted(low, [first, second])
    dtype = widest((first.dtype, second.dtype)) or DEFAULT_DTYPE[first.kind]
    return arrays.where(low, condition, first, second, scope, dtype)


def branched(
    low: Lowering,
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
        low.text.blocks += 1
        branch = Branch([], low.text.blocks)
        with within_branch(low, branch):
            value = compute(scope.settled(expr, holds))
            sides.append((branch, arrays.as_real(low, value) if real else value))
    values = [value for _, value in sides]
    python = all(value.python for value in values)
    if python and not any(branch.statements for branch, _ in sides):
        return values[0].but(Ternary(values[0].code, condition.code, values[1].code))
    axes = joined(values, scope.order)
    dtype = None if python else widest(value.dtype for value in values)
    variable = low.text.fresh(low.label)
    for branch, value in sides:
        with within_branch(low, branch):
            code = value.code if python else filled_out(low, value, axes, dtype, scope).code
            low.text.assign(variable, code)
    low.text.add("if", condition.code)
    low.text.statements += sides[0][0].statements
    low.text.add("else")
    low.text.statements += sides[1][0].statements
    return Value(Name(variable), axes, values[0].kind, dtype, python)


@contextmanager
def within_branch(low: Lowering, branch: Branch) -> Iterator[None]:
    """Emit one side of an `if`: values that are named there are known only there."""
    known = low.known
    low.known = dict(known)
    with low.text.inside(branch.statements, branch.block):
        yield
    low.known = known


def filled_out(low: Lowering, value: Value, axes: tuple[Coordinate, ...], dtype: Dtype | None, scope: Scope) -> Value:
    """The value with all of these axes, and of this dtype."""
    if value.python:
        chosen = dtype or (low.compute if value.kind == "real" else DEFAULT_DTYPE[value.kind])
        if not axes:
            return arrays.as_array(low, value, chosen)
        return Value(low.text.dialect.full(sizes.shape(low, axes, scope), value.code, chosen), axes, value.kind, chosen)
    value = arrays.broadcast(low, value, axes, scope)
    return (
        value if dtype is None or value.dtype == dtype else replace(arrays.cast_to(low, value, dtype), kind=value.kind)
    )
