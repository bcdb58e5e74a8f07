"""Rows times matrices that they choose → one product for each matrix."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh
from ..plan.steps import Chosen
from . import arrays, binding, clauses, sizes, views
from .base import Value
from .code import Node, call, method
from .lowering import Lowering, Stored
from .scope import Scope


def grouped_rows(low: Lowering, let: ir.Let, chosen: Chosen) -> None:
    """The rows, in the order of their places, times the matrix of each."""
    clauses.begin(low, let)
    clause, read = let.clauses[0], chosen.table
    scope = clauses.scope_of(clause, {})
    where, extent = read.indices[chosen.place], low.tensors[read.tensor].axes[chosen.place].extent
    if not low.prover.is_inside(where, extent, scope, guarded=False):
        views.check_index(low, where, extent, f"an index of `{read.tensor}` is out of bounds", scope)
    taken = {c.name for c in (*scope.places, *(r.coordinate for r in chosen.summed))}
    number = fresh(Coordinate("group"), taken)
    counted = ir.Range(number, build.whole(0, read.span), extent, True, read.span)
    inner = binding.bind(low, (counted, *chosen.summed), scope)
    over = tuple(r.coordinate for r in chosen.summed)
    index = build.coord(number, read.span)
    at = (*read.indices[: chosen.place], index, *read.indices[chosen.place + 1 :])
    whole = build.read(read.tensor, at, "real", read.span)
    rows = flat(low, chosen.x, (chosen.rows, over), inner, let)
    table = flat(low, whole, ((number,), chosen.columns, over), inner, let)
    places = flat(low, where, (chosen.rows,), inner, let)
    code: Node = call(low.text.helper("by_place"), rows, table, places)
    axes = (*chosen.rows, *chosen.columns)
    if len(axes) != 2:
        code = method(code, "reshape", sizes.shape(low, axes, scope))
    value = arrays.in_order(low, Value(code, axes, "real", low.dtypes[let.name]), scope.order)
    variable = low.text.fresh(let.name)
    low.text.assign(variable, clauses.finished(low, let, value, clause, {}).code)
    low.stored[let.name] = Stored(variable, low.dtypes[let.name])


def flat(low: Lowering, expr: ir.Expr, groups: tuple[tuple[Coordinate, ...], ...], scope: Scope, let: ir.Let) -> Node:
    """An expression as an array in which each group of coordinates is one axis."""
    axes = tuple(axis for group in groups for axis in group)
    value = arrays.as_array(low, low.value(expr, scope))
    if expr.type.kind == "real":
        value = arrays.cast_to(low, arrays.as_real(low, value), low.dtypes[let.name])
    code = arrays.broadcast(low, arrays.in_order(low, value, axes), axes, scope).code
    for n in reversed(range(len(groups))):
        start, count = sum(map(len, groups[:n])), len(groups[n])
        if count > 1:
            code = method(code, "flatten", start, start + count - 1)
    return code
