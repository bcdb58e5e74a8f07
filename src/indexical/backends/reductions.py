"""Reductions and normalisers → array text."""

from __future__ import annotations

from dataclasses import replace

from ..facts.distributions import keeps_a_point
from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import walk
from .base import ATOM, COMPARISON, PRODUCT, SUM, UNARY, Value
from .contraction import Contractor, conjuncts_of
from .expressions import Stored, bits
from .scope import Place, Scope, static_bounds
from .values import aligned, joined, permuted

_NEUTRAL = {"sum": "0", "mean": "0", "prod": "1", "any": "False", "all": "True"}
_INFINITY = {"max": "-math.inf", "min": "math.inf"}
_LARGEST = {"i32": 2**31 - 1, "i64": 2**63 - 1}


class Reducer(Contractor):
    """Everything that binds a coordinate."""

    def bind(self, ranges: tuple[ir.Range, ...], scope: Scope) -> Scope:
        """The scope inside some ranges. One that depends on other coordinates runs over all that any of them
        allows, and `within` says which points are meant."""
        for range in ranges:
            place = Place(range.lower, range.upper, not range.stated)
            moving = scope.sort(range.lower.type.coordinates | range.upper.type.coordinates)
            if moving:
                point = build.coord(range.coordinate, range.span)
                within = build.conjunction(
                    (
                        build.apply("<=", (range.lower, point), "bool", range.span),
                        build.apply("<", (point, range.upper), "bool", range.span),
                    )
                )
                bounds = static_bounds(range, scope) or self.measured_bounds(range, scope)
                place = Place(*bounds, False, within)
            scope = scope.binding(range, place)
        return scope

    def measured_bounds(self, range: ir.Range, scope: Scope) -> tuple[ir.Expr, ir.Expr]:
        """The widest bounds, taken from the arrays: numbers under names of their own."""
        result = []
        for bound, op in ((range.lower, "min"), (range.upper, "max")):
            value = self.strong(self.value(bound, scope))
            name = self.text.fresh(f"{range.coordinate.name}_{op}")
            if value.axes:
                self.text.line(f"{name} = int({value.atom}.{op}()) if 0 not in {value.atom}.shape else 0")
            else:
                self.text.line(f"{name} = int({value.text})")
            result.append(self.scalar(name, range))
        return result[0], result[1]

    def turned(self, value: Value, axes: tuple[Coordinate, ...]) -> Value:
        """The axes of a value in the order of these."""
        return permuted(value, tuple(axis for axis in axes if axis in value.axes), self.text)

    def scalar(self, name: str, range: ir.Range) -> ir.Expr:
        """A plain number of the emitted source, as an expression."""
        self.stored[name] = Stored(name, None, True)
        return build.read(name, (), "whole", range.span)

    def masks(self, ranges: tuple[ir.Range, ...], guard: ir.Expr | None, inner: Scope) -> list[Value]:
        """What removes points: dependent ranges, then the guard, each by its conditions."""
        result = []
        scope = inner
        for range in ranges:
            within = inner.places[range.coordinate].within
            for condition in conjuncts_of(within):
                result.append(self.value(condition, scope))
        for condition in conjuncts_of(guard):
            result.append(self.text.short(self.value(condition, scope), "kept"))
            scope = scope.where(condition)
        return result

    def conjunction(self, masks: list[Value], scope: Scope) -> Value | None:
        if not masks:
            return None
        result = masks[0]
        for mask in masks[1:]:
            axes = joined((result, mask), scope.order)
            left, right = aligned(result, axes), aligned(mask, axes)
            if left.python and right.python:
                result = Value(f"{left.within(1)} and {right.within(1)}", axes, "bool", None, 0, True)
            else:
                shown = f"{left.within(UNARY)} & {right.within(UNARY)}"
                result = Value(shown, axes, "bool", "bool", SUM)
        return self.text.short(result, "kept")

    def spread(self, value: Value, axes: tuple[Coordinate, ...], scope: Scope) -> Value:
        """The value with all of these axes, repeated along those it lacks."""
        if value.axes == axes:
            return value
        value = self.strong(value)
        shown = f"{self.text.dialect.module}.broadcast_to({aligned(value, axes).text}, {self.shape(axes, scope)})"
        return value.but(text=shown, axes=axes, binds=ATOM)

    # --------------------------------------------------------------- reductions

    def reduce(self, expr: ir.Reduce, scope: Scope) -> Value:
        inner = self.bind(expr.ranges, scope)
        masks = self.masks(expr.ranges, expr.guard, inner)
        guarded = inner.where(expr.guard)
        if expr.op in ("sum", "mean") and expr.body.type.kind == "real" and not (self.isolate and masks):
            found = self.contract(expr, guarded, masks, scope)
            if found is not None:
                return found if expr.op == "sum" else self.averaged(found, expr, masks, inner, scope)
        bound = inner.sort(expr.coordinates)
        body = self.value(expr.body, guarded)
        if expr.type.kind == "real":
            body = self.real(body)
        mask = self.conjunction(masks, inner)
        if expr.op in ("argmax", "argmin"):
            return self.argument(expr, body, mask, inner, scope)
        axes = tuple(axis for axis in inner.order if axis in {*body.axes, *bound, *(mask.axes if mask else ())})
        axes = inner.sort(axes)
        if not bound:
            return body
        dtype = body.dtype or {"bool": "bool", "whole": "i64"}.get(expr.type.kind, self.compute)
        if mask is not None:
            body = self.filled(expr, body, mask, inner)
        body = self.text.short(self.spread(body, axes, inner), self.label)
        if expr.op in ("max", "min") and expr.type.kind == "whole":
            return self.whole_extreme(expr, body, mask, bound, inner, scope)
        gone = tuple(n for n, axis in enumerate(axes) if axis in bound)
        kept = tuple(axis for axis in axes if axis not in bound)
        op = "sum" if expr.op == "mean" else expr.op
        shown = self.text.dialect.reduction(op, body, gone, self.text)
        result = Value(shown, kept, expr.type.kind, body.dtype or dtype)  # type: ignore[arg-type]
        if expr.type.kind == "whole" and expr.op in ("sum", "prod"):
            return self.checked_total(expr, result, body, gone, scope)
        return result if expr.op != "mean" else self.averaged(result, expr, masks, inner, scope)

    def filled(self, expr: ir.Reduce | ir.Normalize, body: Value, mask: Value, scope: Scope) -> Value:
        """The neutral value of the operation where the mask removes a point."""
        if expr.op in _NEUTRAL:
            text = _NEUTRAL[expr.op]
        else:
            text = _INFINITY.get(expr.op, "-math.inf") if body.kind == "real" else _worst(expr.op, body)
        neutral = Value(text, (), body.kind, None, UNARY if text.startswith("-") else ATOM, True)
        if body.python:
            body = self.strong(body)
        return self.where(mask, body, neutral, scope, body.dtype)

    def checked_total(self, expr: ir.Reduce, result: Value, body: Value, gone: tuple[int, ...], scope: Scope) -> Value:
        if expr.op == "sum" and bits(expr.body, self.stored) <= 31:
            return result
        result = self.text.keep(result, self.label)
        beside = self.text.dialect.reduction(expr.op, self.real(body, "f64"), gone, self.text)
        test = f"{self.text.helper('is_too_large')}({beside}, 64)"
        self.fail_where(test, result.axes, "IX505", "this whole number does not fit in 64 bits", scope)
        return result

    def count(self, masks: list[Value], bound: tuple[Coordinate, ...], inner: Scope) -> Value:
        """How many points are left."""
        mask = self.conjunction(masks, inner)
        if mask is None:
            lengths = [self.length(axis, inner) for axis in bound]
            return Value(" * ".join(lengths), (), "whole", None, PRODUCT if len(lengths) > 1 else ATOM, True)
        axes = inner.sort({*mask.axes, *bound})
        spread = self.spread(mask, axes, inner)
        gone = tuple(n for n, axis in enumerate(axes) if axis in bound)
        shown = self.text.dialect.reduction("sum", spread, gone, self.text)
        return Value(shown, tuple(axis for axis in axes if axis not in bound), "whole", "i64")

    def averaged(self, total: Value, expr: ir.Reduce, masks: list[Value], inner: Scope, scope: Scope) -> Value:
        count = self.text.keep(self.strong(self.count(masks, inner.sort(expr.coordinates), inner)), "count")
        if not self.is_data_guard(expr):
            message = f"`{expr.op}` over no points has no value"
            self.fail_where(f"{count.text} == 0", count.axes, "IX310", message, scope)
        axes = joined((total, count), scope.order)
        left, right = aligned(total, axes), aligned(self.real(count, total.dtype), axes)
        return Value(f"{left.within(PRODUCT)} / {right.within(PRODUCT + 1)}", axes, "real", total.dtype, PRODUCT)

    def is_data_guard(self, expr: ir.Reduce) -> bool:
        """Whether a guard depends on an input or on figures, through definitions too."""
        waiting, seen = [] if expr.guard is None else [expr.guard], set[str]()
        while waiting:
            for part in walk(waiting.pop()):
                if isinstance(part, ir.Array):
                    return True
                if isinstance(part, ir.Read) and part.tensor not in seen:
                    if part.tensor not in self.lets:
                        return True
                    seen.add(part.tensor)
                    clauses = self.lets[part.tensor].clauses
                    waiting += [e for c in clauses for e in (c.body, c.guard) if e is not None]
        return False

    def whole_extreme(
        self,
        expr: ir.Reduce,
        body: Value,
        mask: Value | None,
        bound: tuple[Coordinate, ...],
        inner: Scope,
        scope: Scope,
    ) -> Value:
        """The largest or smallest whole number: over no points there is none."""
        count = self.text.keep(self.strong(self.count([] if mask is None else [mask], bound, inner)), "count")
        message = f"`{expr.op}` of whole numbers over no points has no value"
        self.fail_where(f"{count.text} == 0", count.axes, "IX310", message, scope)
        gone = tuple(n for n, axis in enumerate(body.axes) if axis in bound)
        kept = tuple(axis for axis in body.axes if axis not in bound)
        body = self.text.keep(body, self.label)
        shape = ", ".join(self.length(axis, inner) for axis in kept)
        empty = self.text.dialect.full(f"({shape}{',' if len(kept) == 1 else ''})", "0", body.dtype or "i64")
        shown = self.text.dialect.reduction(expr.op, body, gone, self.text)
        return Value(f"({shown} if 0 not in {body.text}.shape else {empty})", kept, "whole", body.dtype)

    def argument(self, expr: ir.Reduce, body: Value, mask: Value | None, inner: Scope, scope: Scope) -> Value:
        """The first place of the largest value; of the first NaN where there is one."""
        coordinate = expr.ranges[0].coordinate
        others = inner.sort({*body.axes, *(mask.axes if mask else ())} - {coordinate})
        axes = (*others, coordinate)
        order = Scope({axis: inner.places[axis] for axis in axes})
        body = self.text.keep(self.spread(self.turned(body, axes), axes, order), self.label)
        kept = body
        op = "max" if expr.op == "argmax" else "min"
        fill = _INFINITY[op] if body.kind == "real" else _worst(op, body)
        if mask is not None:
            mask = self.text.keep(self.spread(self.turned(mask, axes), axes, order), "kept")
            neutral = Value(fill, (), body.kind, None, UNARY, True)
            kept = self.text.keep(self.where(mask, body, neutral, order, body.dtype), self.label)
        best = f"{self.text.helper(f'best_{op}')}({kept.text})"
        hit = f"({body.text} == {best}) | ({body.text} != {body.text})"
        if mask is not None:
            hit = f"({hit}) & {mask.text}"
        shown = f"{self.text.helper('first')}({hit})"
        result = self.text.keep(Value(shown, others, "whole", "i64"), "place")
        if not self.is_data_guard(expr):
            message = f"`{expr.op}` over no points has no value"
            self.fail_where(f"{result.text} < 0", others, "IX310", message, scope)
        start = self.number(inner.places[coordinate].start, inner)
        if start != "0":
            less = Value(f"{result.text} >= 0", others, "bool", "bool", COMPARISON)
            shown = self.text.dialect.where(less, f"{result.text} + {start}", "-1")
            result = Value(shown, others, "whole", "i64")
        return result

    # -------------------------------------------------------------- normalisers

    def normalize(self, expr: ir.Normalize, scope: Scope) -> Value:
        place = scope.places[expr.coordinate]
        if place.step is not None:
            return self.normalized_row(expr, scope)
        masks = []
        for condition in conjuncts_of(place.within):
            masks.append(self.value(condition, scope))
        outer = replace(scope, trail=tuple(s for s in scope.trail if not _speaks_of(s, expr.coordinate)))
        for condition in conjuncts_of(expr.guard):
            masks.append(self.text.short(self.value(condition, outer), "kept"))
            outer = outer.where(condition)
        mask = self.conjunction(masks, scope)
        body = self.value(expr.body, outer)
        body = self.real(body) if expr.type.kind == "real" else body
        axes = scope.sort({*body.axes, *(mask.axes if mask else ()), expr.coordinate})
        at = axes.index(expr.coordinate)
        if expr.op == "cumsum":
            return self.running(expr, body, mask, axes, at, scope)
        if mask is not None:
            mask = self.text.keep(mask, "kept")
            body = self.filled(expr, body, mask, scope)
        body = self.spread(body, axes, scope)
        if mask is None:
            shown = self.text.dialect.softmax(expr.op, body.text, at, self.text)
            return Value(shown, axes, "real", body.dtype)
        return self.guarded_softmax(expr, body, mask, axes, at, scope)

    def guarded_softmax(
        self, expr: ir.Normalize, body: Value, mask: Value, axes: tuple[Coordinate, ...], at: int, scope: Scope
    ) -> Value:
        """Masked points are absent. A row without any keeps away from 0 / 0, for its gradient too."""
        if expr.op == "softmax" and not self.isolate and keeps_a_point(expr, scope.trail, self.lets):
            return Value(self.text.dialect.softmax(expr.op, body.text, at, self.text), axes, "real", body.dtype)
        whole = self.text.keep(self.spread(mask, axes, scope), "kept")
        some = f"{whole.text}.any({at}, {self.keepdim}=True)"
        safe = self.text.dialect.where(Value(some, axes, "bool", "bool"), body.text, "0")
        shown = self.text.dialect.softmax(expr.op, safe, at, self.text)
        nothing = "0" if expr.op == "softmax" else "-math.inf"
        shown = self.text.dialect.where(whole, shown, nothing)
        return Value(shown, axes, "real", body.dtype)

    @property
    def keepdim(self) -> str:
        return "keepdims" if self.text.dialect.name == "numpy" else "keepdim"

    def running(
        self,
        expr: ir.Normalize,
        body: Value,
        mask: Value | None,
        axes: tuple[Coordinate, ...],
        at: int,
        scope: Scope,
    ) -> Value:
        """`cumsum`: what is removed adds nothing, and is 0 itself."""
        zero = Value("0", (), body.kind, None, ATOM, True)
        if mask is not None:
            mask = self.text.keep(mask, "kept")
            body = self.where(mask, self.strong(body), zero, scope, body.dtype)
        body = self.text.keep(self.spread(body, axes, scope), self.label)
        result = Value(f"{body.text}.cumsum({at})", axes, expr.type.kind, body.dtype)
        if expr.type.kind == "whole":
            result = self.text.keep(result, self.label)
            beside = f"{self.real(body, 'f64').atom}.cumsum({at})"
            test = f"{self.text.helper('is_too_large')}({beside}, 64)"
            self.fail_where(test, axes, "IX505", "this whole number does not fit in 64 bits", scope)
        return result if mask is None else self.where(mask, result, zero, scope, result.dtype)

    def normalized_row(self, expr: ir.Normalize, scope: Scope) -> Value:
        """A normaliser over a coordinate that a loop steps: the whole row, then this point of it."""
        place = scope.places[expr.coordinate]
        row = Scope({**scope.places, expr.coordinate: replace(place, step=None)}, scope.trail)
        value = self.text.keep(self.normalize(expr, row), self.label)
        at = value.axes.index(expr.coordinate)
        start = self.number(place.start, scope)
        index = place.step if start == "0" else f"{place.step} - {start}"
        shown = f"{value.text}[{', '.join([':'] * at + [str(index)])}]"
        return value.but(text=shown, axes=tuple(a for a in value.axes if a != expr.coordinate))


def _worst(op: str, value: Value) -> str:
    """A whole number that no other loses to."""
    largest = _LARGEST[value.dtype or "i64"]
    return str(-largest if op == "max" else largest)


def _speaks_of(step: ir.Range | tuple[ir.Expr, bool], coordinate: Coordinate) -> bool:
    """Whether a condition outside says something of the coordinate that a normaliser binds anew inside."""
    return not isinstance(step, ir.Range) and coordinate in step[0].type.coordinates
