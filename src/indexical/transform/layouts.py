"""Weights laid out for products with few rows: the axes that are summed over come last, so that each sum runs along
what lies side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import changed, children, parts_of, rebuild
from ..records import replace

# For each input, its axes in their new order.
Orders = Mapping[str, tuple[int, ...]]


def summed_last(program: ir.Program, names: Collection[str]) -> Orders:
    """The orders in which inputs have the axes last that every read of them sums over. One that has them there already,
    or is read in several ways, is left out."""
    taken = {tensor.name for tensor in program.inputs if not any(axis.coordinate.rest for axis in tensor.axes)}
    found: dict[str, set[tuple[int, ...]]] = {}
    claims = [claim.condition for claim in program.asserts]
    for expr in (*claims, *(part for let in program.lets for part in parts_of(let))):
        for read, bound in _reads(expr, frozenset()):
            if read.tensor in taken.intersection(names):
                axes = [(index.type.coordinates <= bound, n) for n, index in enumerate(read.indices)]
                axes = [(isinstance(read.indices[n], ir.Coord) and inside, n) for inside, n in axes]
                found.setdefault(read.tensor, set()).add(tuple(n for _, n in sorted(axes)))
    orders = {name: next(iter(ways)) for name, ways in found.items() if len(ways) == 1}
    return {name: order for name, order in orders.items() if order != tuple(range(len(order)))}


def _reads(expr: ir.Expr, bound: frozenset[Coordinate]) -> Iterator[tuple[ir.Read, frozenset[Coordinate]]]:
    """Every read inside an expression, with the coordinates of the innermost sum around it."""
    if isinstance(expr, ir.Reduce):
        bound = expr.coordinates if expr.op == "sum" else frozenset()
    if isinstance(expr, ir.Read):
        yield expr, bound
    for child in children(expr):
        yield from _reads(child, bound)


def reordered(program: ir.Program, orders: Orders) -> ir.Program:
    """The program whose inputs have their axes in these orders."""

    def change(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, change)
        if isinstance(expr, ir.Read) and expr.tensor in orders:
            return replace(expr, indices=tuple(expr.indices[n] for n in orders[expr.tensor]))
        return expr

    inputs = tuple(
        replace(tensor, axes=tuple(tensor.axes[n] for n in orders[tensor.name])) if tensor.name in orders else tensor
        for tensor in program.inputs
    )
    lets = tuple(replace(let, clauses=tuple(changed(c, change) for c in let.clauses)) for let in program.lets)
    asserts = tuple(replace(claim, condition=change(claim.condition)) for claim in program.asserts)
    return replace(program, inputs=inputs, lets=lets, asserts=asserts)
