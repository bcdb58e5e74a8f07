"""Digits that are lost, with no other form to compute: a difference of prefix sums, a vector over its norm."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnostics import Diagnostic, Label
from ...ir import nodes as ir
from ...ir.needs import read_in
from ...ir.walk import meaning, walk
from ..view import View

CODE = "IX419"


def find(view: View) -> Iterator[tuple[ir.Let | None, Diagnostic]]:
    for let in view.program.lets:
        for clause in let.clauses:
            for part in walk(clause.body):
                match part:
                    case ir.Map("-", (ir.Read() as left, ir.Read() as right)) if _are_prefixes(view, left, right):
                        yield let, _difference(part)
                    case ir.Map("/", (above, below)) if _is_norm(view, below, above, "sqrt"):
                        yield let, _quotient(part, below)
                    case ir.Map("*", (above, below)) if _is_norm(view, below, above, "rsqrt"):
                        yield let, _quotient(part, below)


def _are_prefixes(view: View, left: ir.Read, right: ir.Read) -> bool:
    """Whether two reads are of one definition, at two points along which it sums all that came before."""
    let = view.lets.get(left.tensor)
    if let is None or left.tensor != right.tensor or let.kind != "real" or len(let.clauses) != 1:
        return False
    apart = [number for number, pair in enumerate(zip(left.indices, right.indices, strict=True)) if pair[0] != pair[1]]
    return len(apart) == 1 and _is_prefix_sum(let.clauses[0], apart[0])


def _is_prefix_sum(clause: ir.Clause, axis: int) -> bool:
    slot = clause.slots[axis]
    match clause.body:
        case ir.Normalize("cumsum", coordinate):
            return isinstance(slot, ir.Coord) and slot.coordinate == coordinate
        case ir.Reduce("sum", (range,), _, ir.Map("<" | "<=" | ">" | ">=", sides)) if isinstance(slot, ir.Coord):
            return {side.coordinate for side in sides if isinstance(side, ir.Coord)} == {
                slot.coordinate,
                range.coordinate,
            }
        case ir.Reduce("sum", (range,), _, None) if isinstance(slot, ir.Coord):
            return slot.coordinate in range.depends_on
    return False


def _is_norm(view: View, expr: ir.Expr, above: ir.Expr, root: str) -> bool:
    """Whether an expression is a root of a sum of squares, with nothing added, of something that stands above it."""
    opened = meaning(expr, view.lets) or expr
    if not isinstance(opened, ir.Map) or opened.op != root:
        return False
    total = meaning(opened.arguments[0], view.lets) or opened.arguments[0]
    if not isinstance(total, ir.Reduce) or total.op != "sum":
        return False
    match total.body:
        case ir.Map("*", (one, other)) if one == other:
            squared = one
        case ir.Map("**", (one, ir.Const(value))) if value == 2:
            squared = one
        case _:
            return False
    return not set(read_in(squared)).isdisjoint(read_in(above))


def _difference(part: ir.Map) -> Diagnostic:
    return Diagnostic(
        CODE,
        "the difference of two prefix sums has only the digits that they do not share",
        (Label(part.span),),
        ("far along, both are large and nearly equal: in 32 bits little may be left",),
        "sum what is between the two points, `sum[k](x[k] where j < k, k <= i)`, or keep the sums in 64 bits",
    )


def _quotient(part: ir.Map, below: ir.Expr) -> Diagnostic:
    return Diagnostic(
        CODE,
        "this quotient has no value where all that is squared is 0, and few digits near it",
        (Label(part.span), Label(below.span, "the norm, with nothing added")),
        ("in 32 bits the square of anything below 1e-19 has lost digits, or is 0",),
        "add a small number under the root: `sqrt(… + 1e-6)`",
    )
