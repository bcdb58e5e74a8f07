"""Causal products of two sides → one call, in chunks of matrix products."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.types import Coordinate, Dtype
from ...plan.steps import Chunks
from . import arrays, clauses, sizes
from .base import Value
from .code import ALL, NONE, Name, Node, call, fill, method
from .lowering import Lowering, Stored
from .operands import operand_value
from .scope import Place, Scope
from .values import sliced


def chunked(low: Lowering, let: ir.Let, chunks: Chunks, scope: Scope) -> Value:
    """All rows of a causal product, for a scope that binds its key."""
    for range in chunks.features:
        scope = scope.binding(range, Place(range.lower, range.upper, not range.stated))
    row, key = chunks.row, chunks.key.coordinate
    features = tuple(range.coordinate for range in chunks.features)
    own = tuple(axis.coordinate for axis in let.axes)
    sides = [part.type.coordinates for part in chunks.parts if part is not chunks.value]
    carry = tuple(c for c in own if c in chunks.value.type.coordinates and not any(c in side for side in sides))
    batch = tuple(c for c in own if c != row and c not in carry)
    file, kernel = ("chunks", "chunk_products") if chunks.asks is None else ("delta", "delta_products")
    low.kernels.setdefault(f"{low.text.dialect.target.name}_{file}", set()).add(kernel)
    dtype: Dtype = "bf16" if chunks.kernels else low.compute
    given = [
        _operand(low, part, (*batch, position), columns, scope, let, dtype)
        for part, position, columns in (
            (chunks.query, row, features),
            (chunks.answer, key, features),
            (chunks.value, key, carry),
            (chunks.asks, key, features),
        )
        if part is not None
    ]
    decays: dict[str, Node] = {}
    for name, part in (("rate", chunks.rate), ("levels", chunks.levels), ("times", chunks.times)):
        if part is not None:
            decays[name] = _decay(
                low, part, batch, key if name == "levels" and chunks.backward else row, features, scope, let
            )
    flags = {name: Name("True") for name in ("strict", "backward") if getattr(chunks, name)}
    if chunks.kernels:
        low.kernels.setdefault("triton_chunks", set()).add("chunk_kernels")
        flags["kernels"] = Name("chunk_kernels")
    code: Node = call(kernel, *given, **decays, **flags)
    axes = (*batch, row, *carry)
    if len(carry) != 1:
        code = method(code, "reshape", sizes.shape(low, axes, scope))
    return Value(code, axes, "real", dtype)


def carried(low: Lowering, let: ir.Let, chunks: Chunks, covers: tuple[str, ...]) -> None:
    """A definition that asks a state, which is not built."""
    clauses.begin(low, let, [low.lets[name] for name in covers])
    clause = let.clauses[0]
    scope = clauses.scope_of(clause)
    scope = scope.binding(chunks.key, Place(chunks.key.lower, chunks.key.upper, False))
    value = chunked(low, let, chunks, scope)
    own = clauses.scope_of(clause)
    variable = low.text.fresh(let.name)
    low.text.assign(variable, clauses.finished(low, let, arrays.in_order(low, value, own.order), clause))
    low.stored[let.name] = Stored(variable, low.dtypes[let.name])


def _computed(low: Lowering, expr: ir.Expr, scope: Scope, let: ir.Let, dtype: Dtype) -> Value:
    value = arrays.as_real(low, operand_value(low, expr, scope))
    if value.python:
        return value
    return low.text.short(arrays.cast_to(low, value, dtype), let.name)


def _operand(
    low: Lowering,
    expr: ir.Expr,
    lead: tuple[Coordinate, ...],
    columns: tuple[Coordinate, ...],
    scope: Scope,
    let: ir.Let,
    dtype: Dtype,
) -> Node:
    """An array of batch axes, positions and columns, of which there is one."""
    axes = (*lead, *columns)
    value = _computed(low, expr, scope, let, dtype)
    if value.python:
        value = Value(low.text.dialect.full(sizes.shape(low, axes, scope), value.code, dtype), axes, "real", dtype)
    code = arrays.broadcast(low, arrays.in_order(low, value, axes), axes, scope).code
    if not columns:
        return fill("{x}[..., None]", x=code)
    if len(columns) == 1:
        return code
    shape = [sizes.length(low, axis, scope) for axis in lead]
    width = sizes.length(low, columns[0], scope)
    for axis in columns[1:]:
        width = fill("{x} * {y}", x=width, y=sizes.length(low, axis, scope))
    return method(code, "reshape", *shape, width)


def _decay(
    low: Lowering,
    expr: ir.Expr,
    batch: tuple[Coordinate, ...],
    position: Coordinate,
    features: tuple[Coordinate, ...],
    scope: Scope,
    let: ir.Let,
) -> Node:
    """A decay, with 1 for each axis that it does not vary with; a number where it varies with none."""
    if expr.type.coordinates & set(features):
        lead = batch if position not in expr.type.coordinates else (*batch, position)
        code = _operand(low, expr, lead, features, scope, let, low.compute)
        return code if position in expr.type.coordinates else fill("{x}[..., None, :]", x=code)
    value = _computed(low, expr, scope, let, low.compute)
    if value.python:
        return value.code
    axes = (*batch, position)
    value = arrays.in_order(low, value, tuple(axis for axis in axes if axis in value.axes))
    return sliced(value.code, [*(ALL if axis in value.axes else NONE for axis in axes), NONE])
