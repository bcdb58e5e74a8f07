"""Rows times matrices that they choose → one product for each matrix."""

from __future__ import annotations

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate
from ..ir.walk import fresh
from ..plan.steps import Chosen
from .base import Value
from .code import Node, call, method
from .frames import Framed
from .scope import Scope
from .state import Stored


class Experts(Framed):
    """Definitions in which every row of an array has a place in a table of matrices."""

    def grouped_rows(self, let: ir.Let, chosen: Chosen) -> None:
        """The rows, in the order of their places, times the matrix of each."""
        self.begin(let)
        clause, read = let.clauses[0], chosen.table
        scope = self.scope_of(clause, {})
        where, extent = read.indices[chosen.place], self.tensors[read.tensor].axes[chosen.place].extent
        if not self.prover.is_inside(where, extent, scope, guarded=False):
            self.check_index(where, extent, f"an index of `{read.tensor}` is out of bounds", scope)
        taken = {c.name for c in (*scope.places, *(r.coordinate for r in chosen.summed))}
        number = fresh(Coordinate("group"), taken)
        counted = ir.Range(number, build.whole(0, read.span), extent, True, read.span)
        inner = self.bind((counted, *chosen.summed), scope)
        over = tuple(r.coordinate for r in chosen.summed)
        index = build.coord(number, read.span)
        at = (*read.indices[: chosen.place], index, *read.indices[chosen.place + 1 :])
        whole = build.read(read.tensor, at, "real", read.span)
        rows = self.flat(chosen.x, (chosen.rows, over), inner, let)
        table = self.flat(whole, ((number,), chosen.columns, over), inner, let)
        places = self.flat(where, (chosen.rows,), inner, let)
        code: Node = call(self.text.helper("by_place"), rows, table, places)
        axes = (*chosen.rows, *chosen.columns)
        if len(axes) != 2:
            code = method(code, "reshape", self.shape(axes, scope))
        value = self.turned(Value(code, axes, "real", self.dtypes[let.name]), scope.order)
        variable = self.text.fresh(let.name)
        self.text.assign(variable, self.finished(let, value, clause, {}).code)
        self.stored[let.name] = Stored(variable, self.dtypes[let.name])

    def flat(self, expr: ir.Expr, groups: tuple[tuple[Coordinate, ...], ...], scope: Scope, let: ir.Let) -> Node:
        """An expression as an array in which each group of coordinates is one axis."""
        axes = tuple(axis for group in groups for axis in group)
        value = self.strong(self.value(expr, scope))
        if expr.type.kind == "real":
            value = self.cast_to(self.real(value), self.dtypes[let.name])
        code = self.spread(self.turned(value, axes), axes, scope).code
        for n in reversed(range(len(groups))):
            start, count = sum(map(len, groups[:n])), len(groups[n])
            if count > 1:
                code = method(code, "flatten", start, start + count - 1)
        return code
