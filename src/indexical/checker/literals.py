"""Array literals: figures in the text, as a definition of their own."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from ..ir import build
from ..ir import nodes as ir
from ..ir.types import Coordinate, Kind, join
from ..ir.whole import LARGEST, quotient
from ..syntax import tree
from ..syntax.literals import array_shape
from ..syntax.vocabulary import FUNCTIONS
from . import elaborate, kinds
from .scope import Pending, Scope, Tensor, Unit

ARITHMETIC = frozenset("+-*/%") | {"**"}

# A number with more bits than this stays the expression that was written: a float does not hold it either.
MOST_BITS = 1000


def literal_tensor(unit: Unit, scope: Scope, node: tree.Expr, name: str | None = None, hidden: bool = True) -> Tensor:
    """An array literal as a definition of its own. Where a cell is not rational (`sqrt(2)`), each is a clause: an array
    of the Program holds numbers that are written down."""
    shape = array_shape(node)
    cells, kind = _cells(unit, scope, node)
    axes = tuple(
        ir.Axis(Coordinate(f"axis_{number}"), build.whole(length, node.span)) for number, length in enumerate(shape)
    )
    slots = tuple(build.coord(axis.coordinate, node.span) for axis in axes)
    numbers = tuple(cell for cell in cells if isinstance(cell, ir.Const))
    if len(numbers) == len(cells):
        body = ir.Array(shape, numbers, slots, build.typed(kind, slots), node.span)
        zero = build.whole(0, node.span)
        ranges = tuple(ir.Range(axis.coordinate, zero, axis.extent, True, node.span) for axis in axes)
        clauses = [ir.Clause(slots, ranges, body, None, node.span)]
    else:
        clauses = [
            ir.Clause(tuple(build.whole(n, cell.span) for n in place), (), cell, None, cell.span)
            for place, cell in zip(product(*map(range, shape)), cells, strict=True)
        ]
    name = name or unit.fresh_name(f"{scope.frame.owner}_figures")
    scope.frame.pending.append(Pending(name, (), axes, kind, tuple(clauses), hidden, node.span))
    return Tensor(name, axes, kind, node.span)


def _cells(unit: Unit, scope: Scope, node: tree.Expr) -> tuple[tuple[ir.Expr, ...], Kind]:
    cells = tuple(_cell(unit, scope, leaf, printed) for leaf, printed in leaves(node, False))
    found = {cell.type.kind for cell in cells}
    if "bool" in found and len(found) > 1:
        unit.report("IX351", "an array literal mixes numbers with `true` and `false`", node.span)
    kind = join(found)
    if kind == "real":
        cells = tuple(_in_reals(unit, cell) for cell in cells)
    else:
        for cell in cells:
            kinds.warn_of_quotient(unit, cell, "")
    return tuple(map(folded, cells)), kind


def _in_reals(unit: Unit, cell: ir.Expr) -> ir.Expr:
    """A cell beside real ones: whole numbers become real."""
    if isinstance(cell, ir.Const):
        return ir.Const(Fraction(cell.value), build.typed("real", ()), cell.span, cell.rounding)
    kinds.warn_of_quotient(unit, cell)
    return cell if cell.type.kind == "real" else build.apply("as f64", (cell,), "real", cell.span)


def folded(expr: ir.Expr) -> ir.Expr:
    """A constant expression as the number that it is, exactly, where that is rational and of ordinary length."""
    if not isinstance(expr, ir.Map):
        return expr
    arguments = tuple(map(folded, expr.arguments))
    numbers = [argument.value for argument in arguments if isinstance(argument, ir.Const)]
    if len(numbers) == len(arguments) and (value := _applied(expr.op, numbers)) is not None:
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if expr.type.kind == "real" and bits <= MOST_BITS:
            return build.real(value, expr.span)
        if expr.type.kind == "whole" and value.denominator == 1 and abs(value) <= LARGEST:
            return build.whole(int(value), expr.span)
    return expr


def _applied(op: str, numbers: list[bool | int | Fraction]) -> Fraction | None:
    """The value of an operation on numbers; None where it is none, or is not rational."""
    match op, [Fraction(number) for number in numbers]:
        case "+", [a, b]:
            return a + b
        case "-", [a, b]:
            return a - b
        case "*", [a, b]:
            return a * b
        case "neg", [a]:
            return -a
        case "/", [a, b] if b:
            return a / b
        case "//", [a, b] if b:
            return Fraction(quotient(int(a), int(b)))
        case "%", [a, b] if b and a.denominator == b.denominator == 1:
            return a - quotient(int(a), int(b)) * b
        case "**", [a, b] if b.denominator == 1 and abs(b) <= MOST_BITS and (a or b > 0):
            few = max(a.numerator.bit_length(), a.denominator.bit_length()) * abs(b) <= MOST_BITS
            return a ** int(b) if few else None
        case "as f64", [a]:
            return a
    return None


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


def _cell(unit: Unit, scope: Scope, node: tree.Expr, printed: bool) -> ir.Expr:
    found: ir.Expr | None = figure(node, printed)
    if found is None and isinstance(node, tree.Masked):
        unit.report("IX209", "`masked` is not a value", node.span, help="it stands on the right of `expect … ==`")
    elif found is None and printed:
        help = "`~` marks figures that were rounded when they were printed: write the figure, or the expression alone"
        unit.report("IX101", "this is computed, and was not printed", node.span, help=help)
    elif found is None and (varying := _varying(scope, node)) is not None:
        shown = varying.span.text if len(varying.span.text) <= 40 else "this"
        help = f"give every cell a clause: `let {scope.frame.owner}[0] = …;`, `let {scope.frame.owner}[1] = …;`"
        message = f"`{shown}` is not constant, and the cells of an array literal are"
        unit.report("IX101", message, varying.span, help=help)
    elif found is None:
        found = elaborate.expression(unit, scope, node)
    return build.whole(0, node.span) if found is None else found


def _varying(scope: Scope, node: tree.Expr) -> tree.Expr | None:
    """The first part of an expression that is not constant: a name, an element, what runs over a coordinate."""
    match node:
        case tree.Number() | tree.Bool():
            return None
        case tree.Name("pi") if "pi" not in scope.names:
            return None
        case tree.Unary("-", operand) | tree.Paren(operand) | tree.Cast(operand):
            return _varying(scope, operand)
        case tree.Binary(operator, left, right) if operator in ARITHMETIC:
            return _varying(scope, left) or _varying(scope, right)
        case tree.Call(function, _, arguments) if function in FUNCTIONS and function not in scope.functions:
            return next((found for each in arguments if (found := _varying(scope, each)) is not None), None)
        case _:
            return node


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
