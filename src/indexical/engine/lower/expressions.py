"""An expression as a value, by its kind."""

from __future__ import annotations

from typing import assert_never

from ...ir import nodes as ir
from ..ops import Value, host
from . import elementwise, normalizers, pieces, reads, reductions
from .lowering import Lowering
from .scope import Scope


def value(low: Lowering, expr: ir.Expr, scope: Scope) -> Value:
    match expr:
        case ir.Const():
            return host(expr)
        case ir.Size():
            return host(low.size(expr))
        case ir.Coord(coordinate):
            return scope.places[coordinate]
        case ir.Read():
            return reads.read(low, expr, scope)
        case ir.Array():
            return reads.cell(low, expr, scope)
        case ir.Map():
            return elementwise.mapped(low, expr, scope)
        case ir.Select(condition, then, otherwise):
            if (joined := pieces.in_pieces(low, expr, scope)) is not None:
                return joined
            test = low.value(condition, scope)
            yes, no = low.value(then, scope.where(condition)), low.value(otherwise, scope.where(condition, False))
            return elementwise.where(low, test, yes, no)
        case ir.Reduce():
            return reductions.reduce(low, expr, scope)
        case ir.Normalize():
            return normalizers.normalize(low, expr, scope)
        case _:
            assert_never(expr)
