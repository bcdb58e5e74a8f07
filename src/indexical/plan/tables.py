"""Tables: definitions that are made of coordinates, sizes, counts and scalars alone, such as angles of positions."""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes as ir
from ..ir.walk import changed_let, reads_of, rebuild


def with_shared_tables(program: ir.Program) -> ir.Program:
    """The program in which tables that are equal are read under the name of the first: every layer that calls a
    function has definitions of its own from it, and would compute them once more."""
    known = {tensor.name for tensor in program.inputs if not tensor.axes or tensor.counts}
    first: dict[object, str] = {}
    names: dict[str, str] = {}
    lets = program.definitions

    def named(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, named)
        return replace(expr, tensor=names[expr.tensor]) if isinstance(expr, ir.Read) and expr.tensor in names else expr

    def renamed(let: ir.Let) -> ir.Let:
        if not any(read.tensor in names for read in reads_of(let)):
            return let
        return changed_let(let, named)

    for order in program.order:
        if not isinstance(order, ir.Once) or any(read.tensor not in known for read in reads_of(lets[order.name])):
            continue
        known.add(order.name)
        let = renamed(lets[order.name])
        found = first.setdefault((let.axes, let.kind, let.clauses), let.name)
        if found != let.name:
            names[let.name] = found
    return replace(program, lets=tuple(map(renamed, program.lets))) if names else program
