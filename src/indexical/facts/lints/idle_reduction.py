"""A reduction over a coordinate that neither its body nor its guard mentions."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import build
from ...ir import nodes as ir
from ...ir.walk import walk
from ..view import View

CODE = "IX412"

_EFFECT = {"sum": "only multiplies by its size", "prod": "only raises to its size"}


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for let in view.program.lets:
        for clause in let.clauses:
            for expr in walk(clause.body):
                if isinstance(expr, ir.Reduce):
                    yield from ((let, found) for found in _idle(expr))
                if isinstance(expr, ir.Normalize) and expr.coordinate not in build.varying((expr.body, expr.guard)):
                    yield let, _report(expr, expr.coordinate.name, "gives every point the same")


def _idle(expr: ir.Reduce) -> Iterator[Diagnostic]:
    limits = [limit for range in expr.ranges for limit in (range.lower, range.upper)]
    mentioned = build.varying((expr.body, expr.guard, *limits))
    for range in expr.ranges:
        if range.coordinate not in mentioned:
            yield _report(expr, range.coordinate.name, _EFFECT.get(expr.op, "changes nothing"))


def _report(expr: ir.Reduce | ir.Normalize, name: str, effect: str) -> Diagnostic:
    return Diagnostic(
        CODE,
        f"nothing here varies with `{name}`",
        (Label(expr.span, f"over `{name}` this {effect}"),),
        (),
        f"read something at `{name}`, or leave it out",
    )
