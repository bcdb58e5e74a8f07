"""Sums of products → matrix products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..ir import nodes as ir
from ..ir.types import Coordinate
from .base import ATOM, PRODUCT, Value
from .indexing import Reader
from .scope import Scope
from .values import aligned, joined, permuted, widest


@dataclass(frozen=True, slots=True)
class Factor:
    expr: ir.Expr
    inverse: bool


def factors_of(expr: ir.Expr) -> list[Factor]:
    """What a product is made of; a single factor for anything else."""
    match expr:
        case ir.Map("*", (left, right)) if expr.type.kind == "real":
            return factors_of(left) + factors_of(right)
        case ir.Map("/", (left, right)) if expr.type.kind == "real":
            return factors_of(left) + [replace(f, inverse=not f.inverse) for f in factors_of(right)]
        case _:
            return [Factor(expr, False)]


def conjuncts_of(condition: ir.Expr | None) -> list[ir.Expr]:
    match condition:
        case None:
            return []
        case ir.Map("&&", (left, right)):
            return conjuncts_of(left) + conjuncts_of(right)
        case _:
            return [condition]


class Contractor(Reader):
    """A `sum` whose body is a product of several arrays is contracted pair by pair, never built."""

    def contract(self, expr: ir.Reduce, inner: Scope, masks: list[Value], scope: Scope) -> Value | None:
        """The sum as matrix products; None where its body is no product of arrays that it would spread out."""
        bound = frozenset(range.coordinate for range in expr.ranges)
        found = factors_of(expr.body)
        moving = [factor for factor in found if factor.expr.type.coordinates & bound]
        homes = [frozenset(inner.sort(factor.expr.type.coordinates)) for factor in moving]
        if len(moving) < 2 or any(home >= frozenset().union(*homes) for home in homes):
            if len(moving) < 2 or masks or not _is_matrix_by_vector(homes, bound):
                return None
        fixed = [factor for factor in found if factor not in moving]
        values = [self.factor(factor, inner) for factor in moving]
        values = self.masked_factors(values, masks, inner)
        result = self.contract_all(values, bound, inner)
        for factor in fixed:
            result = self.times(result, self.factor(factor, inner), scope)
        return result

    def factor(self, factor: Factor, scope: Scope) -> Value:
        value = self.real(self.value(factor.expr, scope))
        value = self.text.short(value, self.label)
        if not factor.inverse:
            return value
        if value.python:
            value = self.strong(value)
        return value.but(text=f"1 / {value.within(PRODUCT + 1)}", binds=PRODUCT)

    def times(self, left: Value, right: Value, scope: Scope) -> Value:
        left, right = self.promoted([left, right])
        axes = joined((left, right), scope.order)
        dtype = widest((left.dtype, right.dtype))
        if right.text.startswith("1 / ") and right.binds == PRODUCT:
            shown = f"{aligned(left, axes).within(PRODUCT)} / {aligned(_inverted(right), axes).within(PRODUCT + 1)}"
        else:
            shown = f"{aligned(left, axes).within(PRODUCT)} * {aligned(right, axes).within(PRODUCT + 1)}"
        return Value(shown, axes, "real", dtype, PRODUCT, left.python and right.python)

    def masked_factors(self, values: list[Value], masks: list[Value], scope: Scope) -> list[Value]:
        """Every mask removes its points from all factors that have its axes; else it is a factor of its own."""
        result = list(values)
        for mask in masks:
            covering = [n for n, value in enumerate(result) if set(mask.axes) <= set(value.axes)]
            for n in covering:
                zero = Value("0", (), "real", None, ATOM, True)
                result[n] = self.where(mask, self.text.short(result[n], self.label), zero, scope, result[n].dtype)
            if not covering:
                result.append(self.real(mask, widest(value.dtype for value in values)))
        return result

    def contract_all(self, values: list[Value], bound: frozenset[Coordinate], scope: Scope) -> Value:
        """Pair by pair: first the pair that leaves the fewest axes."""
        values = list(values)
        while len(values) > 2 and (pair := _nested(values)) is not None:
            small, large = (values[n] for n in pair)
            values = [value for n, value in enumerate(values) if n not in pair]
            values.append(self.times(large, small, scope))
        while len(values) > 1:
            n, m = min(
                ((n, m) for m in range(len(values)) for n in range(m)),
                key=lambda pair: _left_over(values, pair, bound),
            )
            others = [value for k, value in enumerate(values) if k not in (n, m)]
            kept = {axis for value in others for axis in value.axes}
            values = [self.contract_pair(values[n], values[m], bound - kept, scope), *others]
            if others:
                values[0] = self.text.keep(values[0], self.label)
        return self.summed(values[0], bound, scope)

    def summed(self, value: Value, bound: Iterable[Coordinate], scope: Scope) -> Value:
        """The value without some of its axes, these summed."""
        gone = tuple(n for n, axis in enumerate(value.axes) if axis in set(bound))
        if not gone:
            return value
        kept = tuple(axis for n, axis in enumerate(value.axes) if n not in gone)
        shown = self.text.dialect.reduction("sum", value, gone, self.text)
        return value.but(text=shown, axes=kept, binds=ATOM)

    def contract_pair(self, left: Value, right: Value, bound: frozenset[Coordinate], scope: Scope) -> Value:
        """One matrix product: the axes of both, those of the left, those of the right."""
        left = self.summed(left, bound - set(right.axes), scope)
        right = self.summed(right, bound - set(left.axes), scope)
        shared = set(left.axes) & set(right.axes)
        over = scope.sort(shared & bound)
        both = scope.sort(shared - bound)
        if not over:
            return self.times(left, right, scope)
        mine = scope.sort(set(left.axes) - shared)
        theirs = scope.sort(set(right.axes) - shared)
        if theirs and (not mine or scope.order.index(theirs[0]) < scope.order.index(mine[0])):
            left, right, mine, theirs = right, left, theirs, mine
        dtype = widest((left.dtype, right.dtype))
        left, right = self.same(left, dtype), self.same(right, dtype)
        if not mine:
            return self.summed(self.times(left, right, scope), over, scope)
        first = self.folded(left, both, mine, over, scope)
        if not theirs:
            flat = self.folded(right, both, (), over, scope)
            shown = f"{first} @ {flat}" if not both else f"({first} @ {_atom(flat)}[..., None])[..., 0]"
            result = Value(shown, (*both, *mine), "real", dtype, PRODUCT if not both else ATOM)
        else:
            shown = f"{first} @ {self.folded(right, both, over, theirs, scope)}"
            result = Value(shown, (*both, *mine, *theirs), "real", dtype, PRODUCT)
        if len(mine) > 1 or len(theirs) > 1:
            shape = self.shape(result.axes, scope)
            result = result.but(text=f"{result.atom}.reshape{shape}", binds=ATOM)
        return permuted(result, scope.sort(result.axes), self.text)

    def same(self, value: Value, dtype: object) -> Value:
        """Matrix products want one dtype on both sides."""
        if value.dtype == dtype or value.dtype is None or dtype is None:
            return value
        return self.text.dialect.cast(value, dtype)  # type: ignore[arg-type]

    def folded(
        self,
        value: Value,
        both: tuple[Coordinate, ...],
        rows: tuple[Coordinate, ...],
        columns: tuple[Coordinate, ...],
        scope: Scope,
    ) -> str:
        """The value as a batch of matrices; several coordinates of a side are one axis."""
        value = permuted(value, (*both, *rows, *columns), self.text)
        if len(rows) <= 1 and len(columns) <= 1:
            return value.within(PRODUCT + 1)
        lengths = [self.length(axis, scope) for axis in both]
        for side in (rows, columns):
            if side:
                lengths.append(" * ".join(_product(self.length(axis, scope)) for axis in side))
        return f"{value.atom}.reshape({', '.join(lengths)})"


def _product(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() or text.startswith("max(") else f"({text})"


def _atom(text: str) -> str:
    return text if text.replace(".", "").replace("_", "").isalnum() else f"({text})"


def _inverted(value: Value) -> Value:
    return value.but(text=value.text[4:], binds=PRODUCT + 1)


def _is_matrix_by_vector(homes: list[frozenset[Coordinate]], bound: frozenset[Coordinate]) -> bool:
    """Whether one side has all axes and the other fewer: a matrix and a vector, not two arrays of one shape."""
    return len(homes) == 2 and homes[0] != homes[1] and bool(homes[0] & homes[1] & bound)


def _nested(values: list[Value]) -> tuple[int, int] | None:
    """A factor that has no axis that another does not have: it goes into that one."""
    for n, small in enumerate(values):
        for m, large in enumerate(values):
            if n != m and set(small.axes) <= set(large.axes):
                return n, m
    return None


def _left_over(values: list[Value], pair: tuple[int, int], bound: frozenset[Coordinate]) -> tuple[int, int]:
    others = {axis for n, value in enumerate(values) if n not in pair for axis in value.axes}
    axes = {axis for n in pair for axis in values[n].axes}
    left = {axis for axis in axes if axis in others or axis not in bound}
    return len(left), -len(axes - left)
