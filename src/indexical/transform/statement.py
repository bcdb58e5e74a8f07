"""Ranges that have to be stated: those that do not follow from the axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ..ir import nodes as ir
from ..ir.context import Agreement
from ..ir.types import Coordinate
from ..ir.walk import rebuild, walk
from ..records import replace

Tensors: TypeAlias = Mapping[str, ir.Input | ir.Let]
Lengths: TypeAlias = dict[Coordinate, set[ir.Expr]]


def restated(let: ir.Let, tensors: Tensors, agreement: Agreement) -> ir.Let:
    """The definition, with a range stated wherever its coordinate reads an axis bare that may be of another length:
    what is read there, a guard keeps inside."""

    def lengths(exprs: list[ir.Expr]) -> Lengths:
        found: Lengths = {}
        for read in (part for expr in exprs for part in walk(expr) if isinstance(part, ir.Read)):
            axes = let.axes if read.tensor == let.name else tensors[read.tensor].axes
            for axis, index in zip(axes, read.indices, strict=True):
                if isinstance(index, ir.Coord):
                    found.setdefault(index.coordinate, set()).add(axis.extent)
        return found

    def said(range: ir.Range, found: Lengths) -> ir.Range:
        differs = any(not agreement.holds(extent, range.upper) for extent in found.get(range.coordinate, ()))
        return replace(range, stated=True) if differs else range

    def changed(expr: ir.Expr) -> ir.Expr:
        expr = rebuild(expr, changed)
        if not isinstance(expr, ir.Reduce):
            return expr
        found = lengths([expr.body, *(() if expr.guard is None else (expr.guard,))])
        return replace(expr, ranges=tuple(said(range, found) for range in expr.ranges))

    clauses = []
    for clause in let.clauses:
        found = lengths([clause.body, *(() if clause.guard is None else (clause.guard,))])
        guard = None if clause.guard is None else changed(clause.guard)
        ranges = tuple(said(range, found) for range in clause.ranges)
        clauses.append(replace(clause, ranges=ranges, body=changed(clause.body), guard=guard))
    return replace(let, clauses=tuple(clauses))
