"""Array literals: figures in the text, as a definition of their own."""

from __future__ import annotations

from fractions import Fraction

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate, Kind, join
from ..syntax import tree
from ..syntax.literals import array_shape
from . import kinds
from .scope import Pending, Scope, Tensor, Unit


def literal_tensor(unit: Unit, scope: Scope, node: tree.Expr, name: str | None = None, hidden: bool = True) -> Tensor:
    """An array literal as a definition of its own."""
    shape = array_shape(node)
    cells, kind = _cells(unit, node)
    axes = tuple(
        ir.Axis(Coordinate(f"axis_{number}"), build.whole(length, node.span)) for number, length in enumerate(shape)
    )
    slots = tuple(build.coord(axis.coordinate, node.span) for axis in axes)
    body = ir.Array(shape, cells, slots, build.typed(kind, slots), node.span)
    zero = build.whole(0, node.span)
    ranges = tuple(ir.Range(axis.coordinate, zero, axis.extent, True, node.span) for axis in axes)
    clause = ir.Clause(slots, ranges, body, None, node.span)
    name = name or unit.fresh_name(f"{scope.frame.owner}_figures")
    scope.frame.pending.append(Pending(name, (), axes, kind, (clause,), hidden, node.span))
    return Tensor(name, axes, kind, node.span)


def _cells(unit: Unit, node: tree.Expr) -> tuple[tuple[ir.Const, ...], Kind]:
    cells = tuple(_cell(unit, leaf, printed) for leaf, printed in leaves(node, False))
    found = {cell.type.kind for cell in cells}
    if "bool" in found and len(found) > 1:
        unit.report("IX351", "an array literal mixes numbers with `true` and `false`", node.span)
    kind = join(found)
    if kind == "real":
        cells = tuple(ir.Const(Fraction(c.value), build.typed("real", ()), c.span, c.rounding) for c in cells)
    return cells, kind


def leaves(node: tree.Expr, printed: bool) -> list[tuple[tree.Expr, bool]]:
    match node:
        case tree.ArrayLiteral(items):
            return [leaf for item in items for leaf in leaves(item, printed)]
        case tree.Printed(literal):
            return leaves(literal, True)
        case tree.Pasted(_, literal):
            return leaves(literal, printed)
        case _:
            return [(node, printed)]


def _cell(unit: Unit, node: tree.Expr, printed: bool) -> ir.Const:
    found = figure(node, printed)
    if found is None:
        unit.report("IX209", "`masked` is not a value", node.span, help="it stands on the right of `expect … ==`")
        return build.whole(0, node.span)
    return found


def figure(node: tree.Expr, printed: bool) -> ir.Const | None:
    """A literal as it was written; None for `masked`."""
    match node:
        case tree.Number(text, span):
            return kinds.literal(text, span, printed)
        case tree.Unary(_, tree.Number(text), span):
            return kinds.literal(text, span, printed, negative=True)
        case tree.Bool(value, span):
            return build.truth(value, span)
        case _:
            return None
