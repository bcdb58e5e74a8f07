"""Normalisers → array code: softmax, log_softmax, cumsum."""

from __future__ import annotations

from ..facts.distributions import keeps_a_point
from ..ir import nodes as ir
from ..ir.conditions import conjuncts_of
from ..ir.types import Coordinate
from .base import Value, plain
from .code import Node, call
from .reductions import Reducer
from .scope import Scope
from .values import aligned
from .wholes import LARGEST


class Normalizer(Reducer):
    """Everything that runs along a coordinate which survives."""

    def normalize(self, expr: ir.Normalize, scope: Scope) -> Value:
        """Along a whole coordinate, over the points that the guard keeps."""
        place = scope.places[expr.coordinate]
        if place.step is not None:
            return self.normalized_row(expr, scope)
        inner = scope.along(expr)
        masks = [self.value(condition, inner) for condition in conjuncts_of(place.within)]
        for condition in conjuncts_of(expr.guard):
            masks.append(self.value(condition, inner))
            inner = inner.where(condition)
        mask = self.conjunction(masks, scope)
        body = self.value(expr.body, inner)
        body = self.strong(self.widened(self.real(body)) if expr.type.kind == "real" else body)
        axes = scope.sort({*body.axes, *(mask.axes if mask else ()), expr.coordinate})
        at = axes.index(expr.coordinate)
        if expr.op == "cumsum":
            return self.running(expr, body, mask, axes, at, scope)
        return self.softmaxed(expr, body, mask, axes, at, scope)

    def softmaxed(
        self,
        expr: ir.Normalize,
        body: Value,
        mask: Value | None,
        axes: tuple[Coordinate, ...],
        at: int,
        scope: Scope,
    ) -> Value:
        """Over the points that are kept. A row without any is all 0, with no 0 / 0 on the way, for its gradient."""
        last = -1 if at == len(axes) - 1 else at
        if mask is None:
            whole = self.spread(body, axes, scope)
            return Value(self.text.dialect.softmax(expr.op, whole.code, last, self.text), axes, "real", body.dtype)
        simple = expr.op == "softmax" and not self.isolate and scope.places[expr.coordinate].within is None
        if simple and keeps_a_point(expr, scope.trail, self.lets):
            kept = self.spread(self.filled(expr, body, mask, scope), axes, scope)
            return Value(self.text.dialect.softmax(expr.op, kept.code, last, self.text), axes, "real", body.dtype)
        helper = self.text.helper(f"guarded_{expr.op}")
        body = self.spread(body, axes, scope)
        mask = self.spread(mask, scope.sort({*mask.axes, expr.coordinate}), scope)
        code = call(helper, body.code, aligned(mask, axes).code, at - len(axes))
        return Value(code, axes, "real", body.dtype)

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
        zero = plain(0, body.kind)
        if mask is not None:
            mask = self.text.keep(mask, "kept")
            body = self.where(mask, body, zero, scope, body.dtype)
        body = self.spread(body, axes, scope)
        dtype = "i64" if expr.type.kind == "whole" else body.dtype
        if expr.type.kind == "whole" and self.largest(expr, scope) > LARGEST["i64"]:
            code: Node = call(self.text.helper("checked_cumsum"), body.code, at)
        else:
            code = self.text.dialect.cumsum(body, at)
        result = Value(code, axes, expr.type.kind, dtype)
        return result if mask is None else self.where(mask, result, zero, scope, dtype)

    def normalized_row(self, expr: ir.Normalize, scope: Scope) -> Value:
        """A normaliser over a coordinate that a loop steps: the whole row, then this point of it."""
        value = self.held(self.normalize(expr, scope.moving(expr.coordinate)))
        return self.at_step(value, expr.coordinate, scope)
