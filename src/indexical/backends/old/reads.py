"""Reads of tensors: of arrays, of the windows of a tile."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.types import SHORT, STORED_ONLY
from ...records import replace
from . import arrays, indexing
from .base import Value
from .code import Name
from .lowering import Lowering
from .scope import Scope


def read(low: Lowering, expr: ir.Read, scope: Scope) -> Value:
    """A tensor at indices; a scalar has none. One that is weak takes the dtype that is computed in."""
    if expr.tensor in low.pretended:
        stored = low.stored[expr.tensor]
        value = Value(Name(stored.variable), low.pretended[expr.tensor], "real", stored.dtype)
        return arrays.in_order(low, value, scope.sort(value.axes))
    value = _stored(low, expr, scope)
    if expr.tensor in low.weak and not value.python and low.compute not in (value.dtype, "f64"):
        value = low.text.dialect.cast(value, low.compute)
    if value.dtype in STORED_ONLY:
        value = replace(low.text.dialect.cast(value, "i32"), narrow=value)
    if low.widens and value.dtype in SHORT:
        value = low.text.dialect.cast(value, "f32")
    return value


def _stored(low: Lowering, expr: ir.Read, scope: Scope) -> Value:
    """A tensor at indices, in the dtype that it is stored in."""
    stored = low.stored[expr.tensor]
    base = Value(Name(stored.variable), (), expr.type.kind, stored.dtype, stored.python)
    if not expr.indices:
        return base
    extents = [axis.extent for axis in low.tensors[expr.tensor].axes]
    indices = list(expr.indices)
    message = f"an index of `{expr.tensor}` is out of bounds"
    return indexing.at(low, base, indices, extents, message, scope)


def is_plain_read(low: Lowering, expr: ir.Expr, scope: Scope) -> bool:
    """Whether an expression is an array at coordinates that have just its points: what holds there says nothing."""
    if not isinstance(expr, ir.Read) or expr.tensor in low.pretended or low.unbounded is not None:
        return False
    places = [scope.places[index.coordinate] for index in expr.indices if isinstance(index, ir.Coord)]
    axes = low.tensors[expr.tensor].axes
    return len(places) == len(axes) == len(set(expr.indices)) and all(
        isinstance(axis.extent, ir.Size) and low.prover.is_measured(place, axis.extent)
        for place, axis in zip(places, axes, strict=True)
    )
