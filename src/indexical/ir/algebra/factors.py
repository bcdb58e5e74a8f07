"""Products as they are written: what is summed, the conditions that hold, the factors, each where it stands.

`sum[j](w[i, j] * V[j, e])`, the same split over three definitions or wrapped in a function are taken apart alike.
Whether two of them are equal is asked of their normal forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from ...records import dataclass, field, replace
from ...source import Span
from .. import build
from .. import nodes as ir
from ..conditions import fails
from ..types import Coordinate
from ..walk import fresh, substitute
from .normal import ONE, Binder, Form, TooLarge, times, under
from .normalize import Algebra, Scope
from .powers import power
from .sums import summed


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor, or with `inverse` a divisor. `local` is False for one that stands in another definition."""

    expr: ir.Expr
    inverse: bool = False
    local: bool = True

    @property
    def coordinates(self) -> frozenset[Coordinate]:
        return self.expr.type.coordinates


def varying(factors: Iterable[Factor]) -> frozenset[Coordinate]:
    """The coordinates that any of these factors varies over."""
    return frozenset().union(*(factor.coordinates for factor in factors))


def factors_of(expr: ir.Expr, divided: bool = True) -> list[Factor]:
    """The factors of a real product, and its divisors unless a quotient is not `divided`; a single factor for anything
    else."""
    match expr:
        case ir.Map("*", (left, right)) if expr.type.kind == "real":
            return factors_of(left, divided) + factors_of(right, divided)
        case ir.Map("/", (left, right)) if expr.type.kind == "real" and divided:
            return factors_of(left) + [replace(factor, inverse=not factor.inverse) for factor in factors_of(right)]
        case _:
            return [Factor(expr)]


def product_of(factors: Iterable[Factor], like: ir.Expr) -> ir.Expr:
    """Factors as one expression, divisors last."""
    result = multiplied(((factor.expr, not factor.inverse) for factor in factors), like.span)
    assert result is not None
    return result


def added(terms: Iterable[tuple[ir.Expr, bool]], span: Span) -> ir.Expr | None:
    """Terms as one expression, those that are marked with False taken away; None of none."""
    result: ir.Expr | None = None
    for term, positive in terms:
        if result is None:
            result = term if positive else build.apply("neg", (term,), "real", span)
        else:
            result = build.apply("+" if positive else "-", (result, term), "real", span)
    return result


def multiplied(factors: Iterable[tuple[ir.Expr, bool]], span: Span) -> ir.Expr | None:
    """Factors as one expression, those that are marked with False divided by, at the end; None of none."""
    result: ir.Expr | None = None
    for factor, above in sorted(factors, key=lambda pair: not pair[1]):
        if result is None and above:
            result = factor
        else:
            left = build.whole(1, span) if result is None else result
            result = build.apply("*" if above else "/", (left, factor), "real", span)
    return result


@dataclass(frozen=True, slots=True)
class Summed:
    """A coordinate that is summed over, and the reduction that does it."""

    range: ir.Range
    reduce: ir.Reduce
    local: bool

    @property
    def coordinate(self) -> Coordinate:
        return self.range.coordinate


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that must hold for the product to count. `local` as for factors."""

    expr: ir.Expr
    local: bool


@dataclass(frozen=True, slots=True)
class Factored:
    """The sum over `summed` of the product of `factors`, where all `conditions` hold."""

    summed: tuple[Summed, ...] = ()
    conditions: tuple[Condition, ...] = ()
    factors: tuple[Factor, ...] = ()

    @property
    def bound(self) -> frozenset[Coordinate]:
        return frozenset(step.coordinate for step in self.summed)

    def times(self, other: Factored) -> Factored:
        return Factored(self.summed + other.summed, self.conditions + other.conditions, self.factors + other.factors)


# Whether a definition is written out where it is read.
Opens: TypeAlias = Callable[[ir.Read], bool]


def _everything(read: ir.Read) -> bool:
    return True


@dataclass(slots=True)
class _Expansion:
    taken: set[str]
    opens: Opens


@dataclass
class Forms:
    """The normal forms of one program's expressions, and which definitions may contain weights, exponentiate
    something, or gather under weights."""

    program: ir.Program
    holding_weights: dict[str, bool] = field(default_factory=dict)
    exponential: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    gathering: set[str] = field(default_factory=set)
    written: dict[tuple[str, int], str | None] = field(default_factory=dict)
    compared: dict[object, tuple[object, ...]] = field(default_factory=dict)

    @cached_property
    def lets(self) -> dict[str, ir.Let]:
        return self.program.definitions

    @cached_property
    def algebra(self) -> Algebra:
        """The normal forms of the program's real expressions. An attention is not written out where it is read."""
        return Algebra(self.program, self.gathering)

    def clause(self, name: str) -> ir.Clause | None:
        """The only clause of a definition that can be written out."""
        return self.algebra.canonical.clause(name)

    def opened(self, read: ir.Read) -> tuple[ir.Expr, ir.Expr | None] | None:
        """The body of a definition at these indices, and its guard there; None where it cannot be written out."""
        return self.algebra.canonical.opened(read)

    def written_out(self, expr: ir.Expr) -> ir.Expr:
        """An expression, or what a name that it is stands for; a name with a guard stays."""
        while isinstance(expr, ir.Read) and (found := self.opened(expr)) is not None and found[1] is None:
            expr = found[0]
        return expr

    def seen_through(self, read: ir.Read, visible: bool = False) -> ir.Read:
        """A read, past definitions that only read on; with `visible`, the last that a reader can see."""
        seen = read
        while (found := self.opened(read)) is not None and found[1] is None and isinstance(found[0], ir.Read):
            read = found[0]
            let = self.lets.get(read.tensor)
            if not visible or let is None or not let.hidden:
                seen = read
        return seen

    def expand(
        self, expr: ir.Expr, taken: Iterable[Coordinate] = (), opens: Opens | None = None, local: bool = True
    ) -> Factored:
        """An expression as a sum of products. Coordinates that are summed inside get names of their own.
        Definitions are written out where `opens` says so, by default all."""
        names = {coordinate.name for coordinate in (*expr.type.coordinates, *taken)}
        return self._expand(expr, _Expansion(names, opens or _everything), local)

    def _expand(self, expr: ir.Expr, names: _Expansion, local: bool) -> Factored:
        match expr:
            case ir.Map("*", (left, right)):
                return self._expand(left, names, local).times(self._expand(right, names, local))
            case ir.Map("/", (left, right)):
                over = self._expand(left, names, local)
                return over.times(self._invert(right, names, local))
            case ir.Map("neg", (operand,)):
                minus = Factor(build.whole(-1, expr.span), False, local)
                return Factored(factors=(minus,)).times(self._expand(operand, names, local))
            case ir.Select(condition, then, ir.Const(value)) if value == 0:
                held = Factored(conditions=(Condition(condition, local),))
                return held.times(self._expand(then, names, local))
            case ir.Select(condition, ir.Const(value), otherwise) if value == 0:
                held = Factored(conditions=(Condition(fails(condition), local),))
                return held.times(self._expand(otherwise, names, local))
            case ir.Reduce("sum"):
                return self._expand_sum(expr, names, local)
            case ir.Reduce("mean") if expr.guard is None:
                return self._expand_mean(expr, names, local)
            case ir.Read():
                found = self.opened(expr) if names.opens(expr) else None
                if found is None:
                    return Factored(factors=(Factor(expr, False, local),))
                body, guard = found
                inner = self._expand(body, names, False)
                return inner if guard is None else Factored(conditions=(Condition(guard, False),)).times(inner)
            case _:
                return Factored(factors=(Factor(expr, False, local),))

    def _invert(self, expr: ir.Expr, names: _Expansion, local: bool) -> Factored:
        """One over an expression: factor by factor where it is a plain product."""
        inner = self._expand(expr, _Expansion(set(names.taken), names.opens), local)
        if inner.summed or inner.conditions:
            return Factored(factors=(Factor(expr, True, local),))
        return Factored(factors=tuple(replace(factor, inverse=not factor.inverse) for factor in inner.factors))

    def _expand_mean(self, expr: ir.Reduce, names: _Expansion, local: bool) -> Factored:
        """A mean is a sum, divided by how many points it has."""
        total = build.reduce("sum", expr.ranges, expr.body, None, expr.type.kind, expr.span)
        counts = tuple(Factor(range.upper, True, local) for range in expr.ranges)
        return self._expand_sum(total, names, local).times(Factored(factors=counts))

    def _expand_sum(self, expr: ir.Reduce, names: _Expansion, local: bool) -> Factored:
        body, guard = expr.body, expr.guard
        summed = []
        for range in expr.ranges:
            coordinate = fresh(range.coordinate, names.taken)
            names.taken.add(coordinate.name)
            if coordinate != range.coordinate:
                new = {range.coordinate: build.coord(coordinate, range.span)}
                body, guard = substitute(body, new), guard and substitute(guard, new)
                range = replace(range, coordinate=coordinate)
            summed.append(Summed(range, expr, local))
        conditions = () if guard is None else (Condition(guard, local),)
        return Factored(tuple(summed), conditions).times(self._expand(body, names, local))

    # ------------------------------------------------------------------- equality

    def form(self, expr: ir.Expr, scope: Scope) -> Form | None:
        """An expression in normal form, under the ranges around it; None where that grows too large."""
        algebra = self.algebra
        algebra.work = algebra.depth = 0
        zero = build.whole(0, expr.span)
        free = {c: ir.Range(c, zero, build.size(c, expr.span), False, expr.span) for c in expr.type.coordinates}
        try:
            return algebra.form(expr, {**free, **scope})
        except TooLarge:
            return None

    def product_form(self, factors: Iterable[Factor], scope: Scope) -> Form | None:
        """Factors and divisors as one normal form; None where that grows too large."""
        result = ONE
        for factor in factors:
            found = self.form(factor.expr, scope)
            if found is None:
                return None
            try:
                result = times(result, power(found, -1) if factor.inverse else found)
            except TooLarge:
                return None
        return result

    def total(
        self, factors: Iterable[Factor], conditions: Mapping[str, ir.Expr], binder: Binder, scope: Scope
    ) -> Form | None:
        """The sum over a coordinate of a product, where conditions hold; None where that grows too large."""
        value = self.product_form(factors, scope)
        try:
            return None if value is None else summed(under(value, conditions, False), [binder], self.algebra)
        except TooLarge:
            return None

    def is_same(self, left: Form | None, right: Form | None) -> bool:
        """Whether two normal forms are equal, or are so with all definitions written out."""
        if left is None or right is None:
            return False
        if left.key == right.key:
            return True
        written = self._written(left)
        return written is not None and written == self._written(right)

    def _written(self, value: Form) -> str | None:
        """The key of a form with all definitions written out; None where that grows too large. It is compared with
        many others, and changes only where a further definition is found to be an attention."""
        place = value.key, len(self.gathering)
        if place not in self.written:
            algebra = self.algebra
            algebra.work = algebra.depth = 0
            try:
                self.written[place] = algebra.opened(value, lambda read: True).key
            except TooLarge:
                self.written[place] = None
        return self.written[place]
