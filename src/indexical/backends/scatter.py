"""Sums in which a condition says where each point goes → one addition for each point, and no mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import Factor, factors_of
from ..ir.conditions import conjuncts_of
from ..ir.context import Trail
from ..ir.text import shown
from ..ir.types import Coordinate
from ..ir.walk import Inexpressible, substitute, walk
from ..plan.groups import grouped
from ..plan.scatters import Scatter, find
from .base import Value, plain
from .binding import Binder
from .code import ZERO, call, infix, method
from .expressions import is_wild
from .indexing import Index, minus
from .scope import Scope
from .torch_ import one_or_all
from .values import aligned, permuted
from .wholes import LARGEST


class Scatterer(Binder):
    """`sum[i](x[i] where p[i] == n)`, for all `n` at once."""

    def scattered(self, expr: ir.Reduce, scope: Scope) -> Value | None:
        """The sum as a scatter-add; None where no condition says where its points go."""
        bounds = {
            c: (place.start, place.stop)
            for c, place in scope.places.items()
            if c in expr.type.coordinates and place.step is None and place.within is None
        }
        found = find(expr, bounds)
        if isinstance(found, str):
            self.decline("scatter-add", found)
        if not isinstance(found, Scatter):
            return None
        if expr.type.kind == "whole" and self.largest(expr, scope) > LARGEST["i64"]:
            return None
        apart = self.set_aside(expr, found)
        if apart is not None:
            again = find(apart[0], bounds)
            assert isinstance(again, Scatter)
            found = again
        try:
            inner = self.moved_scope(found, scope)
        except Inexpressible:
            return None
        self.check_bare(expr, found.targets, scope)
        over = ", ".join(f"`{range.coordinate}`" for range in found.moved)
        self.tell(f"scatter-add over {over} by {', '.join(f'`{shown(value)}`' for value in found.values.values())}")
        result = self.added_up(found, expr, inner, scope)
        for factor in apart[1] if apart is not None else ():
            result = self.times(result, self.real(self.value(factor, scope)), scope)
        return result

    def by_members(self, expr: ir.Reduce, scope: Scope) -> Value | None:
        """The sum over the members of each group, where a condition such as `h / 4 == g` says which these are."""
        for condition in conjuncts_of(expr.guard) if expr.op == "sum" else ():
            found = grouped(expr, condition)
            if found is not None:
                self.tell(f"`{shown(condition)}`: the members of a group are put side by side")
                gone = tuple(c for c in expr.coordinates if c not in {r.coordinate for r in found.ranges})
                self.check_bare(expr, gone, self.bind(expr.ranges, scope))
                return self.value(found, scope)
        return None

    def set_aside(self, expr: ir.Reduce, scatter: Scatter) -> tuple[ir.Reduce, list[ir.Expr]] | None:
        """The sum without those factors that vary with the target and with nothing that is summed: these are multiplied
        once for each place. None where there are none, or where a removed non-finite one would make 0 · ∞."""
        if self.isolate or expr.type.kind != "real":
            return None
        found = factors_of(expr.body)
        after = [f for f in found if self.is_apart(f, expr.coordinates, scatter.targets)]
        if not after:
            return None
        body: ir.Expr = build.real(Fraction(1), expr.span)
        for n, factor in enumerate(f for f in found if f not in after):
            op = "/" if factor.inverse else "*"
            same = n == 0 and not factor.inverse
            body = factor.expr if same else build.apply(op, (body, factor.expr), "real", expr.span)
        rest = build.reduce(expr.op, expr.ranges, body, expr.guard, expr.type.kind, expr.span)
        return rest, [factor.expr for factor in after]

    def is_apart(self, factor: Factor, bound: frozenset[Coordinate], targets: tuple[Coordinate, ...]) -> bool:
        over = factor.expr.type.coordinates
        tame = not (factor.inverse or is_wild(factor.expr) or self.may_be_removed(factor.expr))
        return tame and not over & bound and not over.isdisjoint(targets)

    def check_bare(self, expr: ir.Expr, coordinates: tuple[Coordinate, ...], scope: Scope) -> None:
        """A coordinate that is about to be replaced still has the size of every axis that it indexes bare."""
        for part in walk(expr):
            if not isinstance(part, ir.Read) or not part.indices:
                continue
            for index, axis in zip(part.indices, self.tensors[part.tensor].axes, strict=True):
                # Values of a tile that pass for tensors are of no stated length.
                stated = axis.extent != build.whole(0, expr.span)
                if isinstance(index, ir.Coord) and index.coordinate in coordinates and stated:
                    self.check_agreement(Index(index, axis.extent, None), scope)

    # ----------------------------------------------------------------- the points

    def moved_scope(self, scatter: Scatter, scope: Scope) -> Scope:
        """The scope of the points that are added: with what is moved, and without what it is moved to. What holds
        of a place holds of the coordinate that it is a point of."""
        values = scatter.values
        places = {
            c: replace(place, within=None if place.within is None else substitute(place.within, values))
            for c, place in scope.places.items()
            if c not in values
        }
        plain, moved = substituted_trail(scope.trail, values)
        inner = self.bind(scatter.moved, Scope(places, plain, scope.tested))
        for condition in scatter.guard:
            inner = inner.where(condition)
        return replace(inner, trail=(*inner.trail, *moved))

    def added_up(self, scatter: Scatter, expr: ir.Reduce, inner: Scope, scope: Scope) -> Value:
        """Every point at its place: one call, into zeros."""
        over = {c for value in scatter.values.values() for c in value.type.coordinates}
        moved = {range.coordinate for range in scatter.moved}
        axes = inner.sort(over | moved)
        masks, places = self.place_masks(scatter, inner, scope)
        kept = self.conjunction([mask for mask in masks if set(mask.axes) <= set(axes)], inner)
        body = self.points(scatter, expr, inner, [mask for mask in masks if not set(mask.axes) <= set(axes)])
        dtype = body.dtype
        if dtype in ("f16", "bf16"):
            body = self.text.dialect.cast(body, "f32")
        rest = tuple(axis for axis in inner.sort(body.axes) if axis not in axes)
        body = self.spread(self.turned(body, (*axes, *rest)), (*axes, *rest), inner)
        around = tuple(axis for axis in axes if axis not in moved)
        told = {*around, *(axis for value in (*places, *([] if kept is None else [kept])) for axis in value.axes)}
        idle = tuple(n for n, axis in enumerate(axes) if axis not in told)
        if idle:
            # The axes that neither a place nor a mask has are summed before.
            axes = tuple(axis for axis in axes if axis in told)
            body = body.but(method(body.code, "sum", one_or_all(idle)), axes=(*axes, *rest))
        where = [aligned(self.rank(axis, inner), axes).code for axis in around]
        where += [aligned(place, axes).code for place in places]
        counts = self.shape((*around, *scatter.targets), scope)
        added = self.text.short(body, self.label).code
        last = () if kept is None else (aligned(kept, axes).code,)
        code = call(self.text.helper("scattered"), added, tuple(where), counts, *last)
        result = Value(code, (*around, *scatter.targets, *rest), expr.type.kind, body.dtype)
        if dtype is not None and result.dtype != dtype:
            result = self.cast_to(result, dtype)
        return permuted(self.text.keep(result, self.label), scope.sort(result.axes), self.text)

    def rank(self, axis: Coordinate, scope: Scope) -> Value:
        """The points of an axis, counted from the first."""
        start = self.number(scope.places[axis].start, scope)
        value = self.coordinate(axis, scope)
        return value if start == ZERO else value.but(infix("-", value.code, start))

    def place_masks(self, scatter: Scatter, inner: Scope, outer: Scope) -> tuple[list[Value], list[Value]]:
        """The masks that remove points, and the places of those that are left, counted from the first place there is.
        That they have a place is checked when they are added."""
        found: dict[Coordinate, Value] = {}
        scope = replace(inner, trail=inner.trail[: _length_before(inner, scatter)])
        masks = [self.value(condition, scope) for condition in self.removing(scatter.moved, None, inner)]
        for condition in scatter.guard:
            for target, there in zip(scatter.targets, scatter.present, strict=True):
                if condition == there and target not in found:
                    with self.labelled("place"):
                        place = self.value(minus(scatter.values[target], outer.places[target].start), scope)
                    found[target] = self.text.short(place, "place")
            if condition not in scatter.present:
                masks.append(self.value(condition, scope))
            scope = scope.where(condition)
        return masks, [found[target] for target in scatter.targets]

    def points(self, scatter: Scatter, expr: ir.Reduce, inner: Scope, masks: list[Value]) -> Value:
        """The values that are added: summed over the coordinates that no place depends on."""
        body = scatter.body
        if scatter.rest:
            guard = build.conjunction(scatter.inner)
            body = build.reduce("sum", scatter.rest, body, guard, expr.type.kind, expr.span)
        value = self.value(body, inner)
        if expr.type.kind == "real":
            value = self.widened(self.real(value))
        value = self.strong(value)
        if expr.type.kind == "whole" and value.dtype != "i64":
            value = replace(self.cast_to(value, "i64"), kind="whole")
        mask = self.conjunction(masks, inner)
        if mask is None:
            return value
        return self.where(mask, value, plain(0, value.kind), inner, value.dtype)


def substituted_trail(trail: Trail, values: Mapping[Coordinate, ir.Expr]) -> tuple[Trail, Trail]:
    """Split a trail: the part without some coordinates, and the rest with values in their place."""
    plain: list[ir.Range | tuple[ir.Expr, bool]] = []
    moved: list[ir.Range | tuple[ir.Expr, bool]] = []
    for step in trail:
        if isinstance(step, ir.Range):
            if step.coordinate in values:
                continue
            lower, upper = (substitute(bound, values) for bound in (step.lower, step.upper))
            same = (lower, upper) == (step.lower, step.upper)
            (plain if same else moved).append(replace(step, lower=lower, upper=upper))
        elif step[0].type.coordinates.isdisjoint(values):
            plain.append(step)
        else:
            moved.append((substitute(step[0], values), step[1]))
    return tuple(plain), tuple(moved)


def _length_before(inner: Scope, scatter: Scatter) -> int:
    """The length of a trail before the conditions of a scatter."""
    return next(n for n, step in enumerate(inner.trail) if step == (scatter.guard[0], True))
