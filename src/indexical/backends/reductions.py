"""Reductions → array code."""

from __future__ import annotations

from ..ir import nodes as ir
from ..ir.algebra.factors import factors_of
from ..ir.types import Coordinate
from ..ir.walk import walk
from .base import Value, plain
from .code import ONE, ZERO, Infix, Name, Node, call, chain, infix, method, negative, node
from .convolution import Convolver
from .scope import Scope
from .values import aligned, joined, permuted
from .wholes import LARGEST

_NEUTRAL: dict[str, Node] = {"sum": ZERO, "mean": ZERO, "prod": ONE, "any": Name("False"), "all": Name("True")}


class Reducer(Convolver):
    """Everything that consumes a coordinate."""

    # ----------------------------------------------------------------- reductions

    def reduce(self, expr: ir.Reduce, scope: Scope) -> Value:
        """Reduce: a sum of products by matrix products; one whose points have computed places by a scatter; all else
        over the whole broadcast body."""
        for way in (self.by_members, self.by_remainders, self.scattered, self.counted_down):
            found = None if self.is_fixed(expr) else way(expr, scope)
            if found is not None:
                return found
        inner = self.bind(expr.ranges, scope)
        masks = self.masks(expr.ranges, expr.guard, inner)
        guarded = inner.where(expr.guard)
        if expr.op in ("sum", "mean") and expr.body.type.kind == "real":
            needed = self.needed(masks, expr, inner)
            found = self.convolved(expr, guarded, needed, scope) or self.contract(expr, guarded, needed, scope)
            if found is not None:
                return found if expr.op == "sum" else self.averaged(found, expr, masks, inner, scope)
            masks = self.heard_masks(masks, expr, inner)
        body = self.value(expr.body, guarded)
        if expr.type.kind == "real":
            body = self.real(body) if expr.op in ("max", "min") else self.widened(self.real(body))
        mask = self.conjunction(masks, inner)
        if expr.op in ("argmax", "argmin"):
            return self.argument(expr, body, mask, inner, scope)
        return self.reduced(expr, body, mask, inner, scope)

    def is_fixed(self, expr: ir.Expr) -> bool:
        """Whether something in an expression can only be read as it is, and not with other coordinates."""
        return False

    def needed(self, masks: list[Value], expr: ir.Reduce, inner: Scope) -> list[Value]:
        """The masks of a product without those that only remove what is 0 anyway: an index that leaves its axis finds
        zeros there."""
        found = factors_of(expr.body)
        if self.isolate or not masks or any(map(self.may_blow_up, found)):
            return masks
        reads = [factor.expr for factor in found if isinstance(factor.expr, ir.Read)]
        conditions = self.removing(expr.ranges, expr.guard, inner)
        return [
            mask
            for mask, condition in zip(masks, conditions, strict=True)
            if not any(self.vanishes(read, condition, inner) for read in reads)
        ]

    def heard_masks(self, masks: list[Value], expr: ir.Reduce, inner: Scope) -> list[Value]:
        """The masks of a sum without those that only remove products of zeros: every factor leaves its axis there."""
        found = factors_of(expr.body)
        reads = [factor.expr for factor in found if isinstance(factor.expr, ir.Read) and not factor.inverse]
        if expr.op != "sum" or not masks or len(reads) < len(found):
            return masks
        conditions = self.removing(expr.ranges, expr.guard, inner)
        return [
            mask
            for mask, condition in zip(masks, conditions, strict=True)
            if not all(self.vanishes(read, condition, inner) for read in reads)
        ]

    def vanishes(self, read: ir.Read, condition: ir.Expr, inner: Scope) -> bool:
        """Whether a read finds zeros wherever a condition fails: there, an index of a view is out of bounds."""
        if not read.indices or self.stored[read.tensor].rows or read.type.kind != "real":
            return False
        trail = (*inner.box, (condition, False))
        for n, (index, axis) in enumerate(zip(read.indices, self.tensors[read.tensor].axes, strict=True)):
            others = [other for m, other in enumerate(read.indices) if m != n]
            shared = any(other.type.coordinates & set(inner.sort(index.type.coordinates)) for other in others)
            access = self.access(index, inner)
            if (
                access is None
                or access.how == "fixed"
                or shared
                or not condition.type.coordinates <= index.type.coordinates
            ):
                continue
            where, length = self.prover.polynomial(index), self.prover.polynomial(axis.extent)
            if self.prover.entails(trail, -where - 1) or self.prover.entails(trail, where - length):
                return True
        return False

    def reduced(self, expr: ir.Reduce, body: Value, mask: Value | None, inner: Scope, scope: Scope) -> Value:
        """All bound axes at once, with what changes nothing in the place of removed points."""
        bound = inner.sort(expr.coordinates)
        axes = inner.sort({*body.axes, *bound, *(mask.axes if mask else ())})
        count = None if mask is None else self.text.keep(mask, "kept")
        if mask is not None:
            body = self.filled(expr, body, mask, inner)
        body = self.spread(body, axes, inner)
        body = self.text.short(body.turned or body, self.label)
        gone = tuple(n for n, axis in enumerate(body.axes) if axis in bound)
        kept = tuple(axis for axis in body.axes if axis not in bound)
        whole = expr.type.kind == "whole"
        if whole and expr.op in ("max", "min"):
            self.check_count(expr, count, inner, scope, f"`{expr.op}` of whole numbers over no points has no value")
        if whole and expr.op in ("sum", "prod") and self.largest(expr, scope) > LARGEST["i64"]:
            helper = self.text.helper("checked_sum" if expr.op == "sum" else "checked_prod")
            total = Value(call(helper, body.code, gone), kept, "whole", "i64")
            return permuted(total, scope.sort(kept), self.text)
        if expr.op == "mean" and mask is None:
            self.check_count(expr, None, inner, scope, "`mean` over no points has no value")
        op = "sum" if expr.op == "mean" and mask is not None else expr.op
        empty = not all(self.is_filled(coordinate, inner) for coordinate in bound)
        code = self.text.dialect.reduction(op, body, gone, self.text, empty)
        dtype = "i64" if whole and op in ("sum", "prod") else body.dtype
        result = permuted(Value(code, kept, expr.type.kind, dtype), scope.sort(kept), self.text)
        return self.averaged(result, expr, [mask], inner, scope) if expr.op == "mean" and mask is not None else result

    def filled(self, expr: ir.Reduce | ir.Normalize, body: Value, mask: Value, scope: Scope) -> Value:
        """The neutral value of the operation where the mask removes a point."""
        body = self.strong(body)
        if expr.op in _NEUTRAL:
            neutral = _NEUTRAL[expr.op]
        elif body.kind == "real":
            neutral = Name("math.inf") if expr.op == "min" else negative("math.inf")
        else:
            most = LARGEST[body.dtype or "i64"]
            neutral = node(-most - 1 if expr.op == "max" else most)
        return self.where(mask, body, plain(neutral, body.kind), scope, body.dtype)

    # --------------------------------------------------------------- over no points

    def count(self, mask: Value | None, bound: tuple[Coordinate, ...], inner: Scope) -> Value:
        """The number of points that are left."""
        if mask is None:
            return plain(chain("*", [self.length(axis, inner) for axis in bound]))
        axes = inner.sort({*mask.axes, *bound})
        spread = self.spread(mask, axes, inner)
        gone = tuple(n for n, axis in enumerate(axes) if axis in bound)
        code = self.text.dialect.reduction("sum", spread, gone, self.text)
        return Value(code, tuple(axis for axis in axes if axis not in bound), "whole", "i64")

    def check_count(self, expr: ir.Reduce, mask: Value | None, inner: Scope, scope: Scope, message: str) -> None:
        """Refuse where no point is left."""
        bound = inner.sort(expr.coordinates)
        if mask is None:
            for coordinate in bound:
                if not self.is_filled(coordinate, inner):
                    test: Node = infix("==", self.length(coordinate, inner), 0)
                    if self.may_be_reversed(coordinate, inner):
                        test = self.is_below(self.extent_of(coordinate, inner) - 1, expr.span, inner)
                    self.fail_where(plain(test, "bool"), "IX310", message, scope)
            return
        some = self.some([self.spread(mask, inner.sort({*mask.axes, *bound}), inner)], frozenset(bound), inner)
        self.fail_where(self.opposite(self.text.keep(some, "some")), "IX310", message, scope)

    def averaged(
        self, total: Value, expr: ir.Reduce, masks: list[Value | None] | list[Value], inner: Scope, scope: Scope
    ) -> Value:
        """A sum divided by how many points there are."""
        mask = self.conjunction([mask for mask in masks if mask is not None], inner)
        count = self.count(mask, inner.sort(expr.coordinates), inner)
        if not self.is_data_guard(expr):
            if mask is None:
                self.check_count(expr, None, inner, scope, "`mean` over no points has no value")
            else:
                count = self.text.keep(count, "count")
                test = Value(infix("==", count.code, 0), count.axes, "bool", "bool")
                self.fail_where(test, "IX310", "`mean` over no points has no value", scope)
        axes = joined((total, count), scope.order)
        left, right = aligned(total, axes), aligned(self.real(count, total.dtype), axes)
        return Value(Infix("/", left.code, right.code), axes, "real", total.dtype)

    def is_data_guard(self, expr: ir.Reduce) -> bool:
        """Whether a guard depends on an input or on figures, through definitions too."""
        waiting, seen = [] if expr.guard is None else [expr.guard], set[str]()
        while waiting:
            for part in walk(waiting.pop()):
                if isinstance(part, ir.Array) or (isinstance(part, ir.Read) and part.tensor not in self.lets):
                    return True
                if isinstance(part, ir.Read) and part.tensor not in seen:
                    seen.add(part.tensor)
                    clauses = self.lets[part.tensor].clauses
                    waiting += [e for c in clauses for e in (c.body, c.guard) if e is not None]
        return False

    # ------------------------------------------------------------------- arguments

    def argument(self, expr: ir.Reduce, body: Value, mask: Value | None, inner: Scope, scope: Scope) -> Value:
        """The first place of the largest value; of the first NaN where there is one."""
        coordinate = expr.ranges[0].coordinate
        others = inner.sort({*body.axes, *(mask.axes if mask else ())} - {coordinate})
        axes = inner.sort({*others, coordinate})
        at = axes.index(coordinate)
        body = self.spread(self.strong(body), axes, inner)
        message = f"`{expr.op}` over no points has no value"
        if mask is None and scope.conditions() and not self.is_filled(coordinate, inner):
            # Guards may remove the points without a value, but a library would refuse the empty axis all the same.
            mask = Value(self.text.dialect.full(self.shape(axes, inner), Name("True"), "bool"), axes, "bool", "bool")
        if mask is None:
            self.check_count(expr, None, inner, scope, message)
            result = Value(method(body.code, expr.op, at), others, "whole", "i64")
        else:
            mask = self.text.keep(self.spread(mask, axes, inner), "kept")
            code = call(self.text.helper(expr.op), body.code, mask.code, at)
            result = self.text.keep(Value(code, others, "whole", "i64"), "place")
            if not self.is_data_guard(expr):
                test = Value(infix("<", result.code, 0), others, "bool", "bool")
                self.fail_where(test, "IX310", message, scope)
        start = self.number(inner.places[coordinate].start, inner)
        if start == ZERO:
            return result
        place = infix("+", result.code, start)
        if mask is None or not self.is_data_guard(expr):
            return Value(place, others, "whole", "i64")
        some = Value(infix(">=", result.code, 0), others, "bool", "bool")
        return Value(self.text.dialect.where(some, place, negative(1)), others, "whole", "i64")
