"""A product that is named and then summed is never built: it is written out inside the sum."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..ir import build
from ..ir import nodes as ir
from ..ir.algebra.factors import factors_of
from ..ir.walk import at, reads_of, rebuild, renamed_apart
from ..records import dataclass


def fuse(program: ir.Program, kept: Collection[str]) -> ir.Program:
    """The program with such products written out where a sum reads them. Definitions that are `kept` stay."""
    recurrent = program.recurrent
    products = {
        let.name: let.clauses[0]
        for let in program.lets
        if let.name not in kept and let.name not in recurrent and is_spread(let)
    }
    if not products:
        return program
    fusion = _Fusion(products)
    return replace(program, lets=tuple(fusion.fused(let) for let in program.lets))


def is_spread(let: ir.Let) -> bool:
    """Whether a definition is a product of parts that all have fewer coordinates than it: building it takes more memory
    than all of them."""
    if let.kind != "real" or len(let.clauses) != 1 or not all(isinstance(s, ir.Coord) for s in let.clauses[0].slots):
        return False
    body = let.clauses[0].body
    factors = factors_of(body)
    return len(factors) > 1 and all(factor.coordinates < body.type.coordinates for factor in factors)


@dataclass
class _Fusion:
    products: dict[str, ir.Clause]

    def fused(self, let: ir.Let) -> ir.Let:
        """A definition with products written out in every sum of it; itself where it reads none."""
        if not any(read.tensor in self.products for read in reads_of(let)):
            return let
        return replace(let, clauses=tuple(replace(c, body=self.opened(c.body)) for c in let.clauses))

    def opened(self, expr: ir.Expr) -> ir.Expr:
        """The expression with products written out in every sum of it."""
        expr = rebuild(expr, self.opened)
        if not isinstance(expr, ir.Reduce) or expr.op != "sum" or expr.type.kind != "real":
            return expr
        guards = [expr.guard]
        taken = {c.name for c in (*expr.body.type.coordinates, *expr.coordinates)}
        body = self.written(expr.body, guards, taken)
        return build.reduce("sum", expr.ranges, body, build.conjunction(guards), "real", expr.span)

    def written(self, expr: ir.Expr, guards: list[ir.Expr | None], taken: set[str]) -> ir.Expr:
        """A factor of a sum; what a product is absent under goes to the sum's guard."""
        match expr:
            case ir.Map("*", (left, right)) if expr.type.kind == "real":
                parts = (self.written(left, guards, taken), self.written(right, guards, taken))
                return build.apply("*", parts, "real", expr.span)
            case ir.Map("/", (left, right)) if expr.type.kind == "real":
                return build.apply("/", (self.written(left, guards, taken), right), "real", expr.span)
            case ir.Read(tensor, indices) if tensor in self.products:
                clause = self.products[tensor]
                body = at(clause, clause.body, indices)
                guard = None if clause.guard is None else at(clause, clause.guard, indices)
                if body is None or (clause.guard is not None and guard is None):
                    return expr
                guards.append(guard)
                return self.written(renamed_apart(body, taken), guards, taken)
            case _:
                return expr
