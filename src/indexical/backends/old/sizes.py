"""Plain Python numbers: sizes, bounds, steps, and how long an axis is."""

from __future__ import annotations

from ...ir import nodes as ir
from ...ir.affine import ONE as UNIT
from ...ir.affine import Monomial, Polynomial, expression, polynomial
from ...ir.types import Coordinate
from ...records import replace
from ...source import Span
from .base import Value, plain
from .code import ZERO, Infix, Name, Node, Tuple, call, chain, infix, negative, node
from .lowering import Lowering
from .scope import Scope


def number(low: Lowering, expr: ir.Expr, scope: Scope | None = None) -> Node:
    """A whole expression free of coordinates, as plain Python."""
    return plain_number(low, polynomial(expr), scope).code


def unnamed_number(low: Lowering, expr: ir.Expr) -> Node:
    """The same with nothing named on the way: fit for another function, which has names of its own."""
    low.naming = False
    code = number(low, expr)
    low.naming = True
    return code


def plain_number(low: Lowering, value: Polynomial, scope: Scope | None = None) -> Value:
    """A polynomial as plain Python: what is added first, then what is taken away."""
    terms = sorted(value.terms.items(), key=lambda term: (term[1] < 0, not term[0]))
    result: Node | None = None
    for monomial, factor in terms:
        term = _term(low, monomial, abs(factor), scope)
        if result is None:
            result = term if factor > 0 else negative(term)
        else:
            result = Infix("+" if factor > 0 else "-", result, term)
    return plain(ZERO if result is None else result)


def _term(low: Lowering, monomial: Monomial, factor: int, scope: Scope | None) -> Node:
    """A product of atoms and a number."""
    if monomial == UNIT:
        return node(factor)
    leaves = [] if factor == 1 else [node(factor)]
    for atom, power in sorted(monomial, key=str) if len(monomial) > 1 else monomial:
        leaves += [_leaf(low, atom, scope)] * power
    return chain("*", leaves)


def _leaf(low: Lowering, atom: Coordinate | ir.Expr, scope: Scope | None) -> Node:
    """The code of an atom of a polynomial."""
    assert not isinstance(atom, Coordinate), f"`{atom}` is no plain number here"
    match atom:
        case ir.Size(coordinate):
            return Name(low.sizes[coordinate])
        case ir.Read(tensor, ()):
            stored = low.stored[tensor]
            return Name(stored.variable) if stored.python else call("int", stored.variable)
        case ir.Map("max" | "min" | "abs" as op, arguments):
            return call(op, *(number(low, argument, scope) for argument in arguments))
        case ir.Map("//" | "%" as op, (left, right)):
            return _divided(low, op, left, right, scope)
        case _:
            return call("int", low.value(atom, scope or Scope({})).code)


def _divided(low: Lowering, op: str, left: ir.Expr, right: ir.Expr, scope: Scope | None) -> Node:
    """Truncated toward zero. That is Python's own division where nothing is negative."""
    box = () if scope is None else scope.box
    divisor = low.prover.polynomial(right)
    a, b = (plain_number(low, polynomial(side), scope).code for side in (left, right))
    if low.prover.entails(box, divisor) and low.prover.at_least(left, 0, scope):
        if not low.prover.entails(box, divisor - 1):
            refuse_once(low, infix("==", b, 0), "IX505", "a whole number divided by zero")
        return named_number(low, Infix(op, a, b))
    whole = call(low.text.helper("truncated"), a, b)
    return whole if op == "//" else infix("-", a, infix("*", whole, b))


def named_number(low: Lowering, code: Node) -> Node:
    """A quotient under a name, so that it is written once."""
    key = ("number", code)
    if not low.naming:
        return code
    if key not in low.known:
        low.known[key] = low.text.keep(replace(plain(code), python=False), "n")
    return low.known[key].code


def is_below(low: Lowering, value: Polynomial, scope: Scope | None) -> Node:
    """`value < 0`, with what is taken away on the other side."""
    if value.constant is not None:
        return node(value.constant < 0)
    sides = [Polynomial({m: abs(f) for m, f in value.terms.items() if (f < 0) == below}) for below in (False, True)]
    left, right = (plain_number(low, side, scope).code for side in sides)
    return Infix("<", left, right)


def refuse_once(low: Lowering, condition: Node, code: str, message: str) -> None:
    """A check of plain numbers, made only where it was not made before."""
    key = ("refused", condition)
    if low.text.checks and key not in low.known:
        low.known[key] = plain(condition)
        low.text.refuse(condition, code, message)


def check_once(low: Lowering, check: Node) -> None:
    """A call that refuses by itself, made only where it was not made before."""
    key = ("refused", check)
    if low.text.checks and key not in low.known:
        low.known[key] = plain(check)
        low.text.do(check)


# ------------------------------------------------------------------ lengths


def with_constants(low: Lowering, value: Polynomial, span: Span) -> Polynomial:
    """The polynomial with the constants of the program looked through."""
    if all(isinstance(atom, Coordinate | ir.Size) for monomial in value.terms for atom, _ in monomial):
        return value
    return low.prover.polynomial(expression(value, span))


def is_same(low: Lowering, left: ir.Expr, right: ir.Expr) -> bool:
    return left == right or low.prover.polynomial(left) == low.prover.polynomial(right)


def extent_of(coordinate: Coordinate, scope: Scope) -> Polynomial:
    """The length of the range of a coordinate; less than 0 where it is empty."""
    place = scope.places[coordinate]
    return polynomial(place.stop) - polynomial(place.start)


def is_filled(low: Lowering, coordinate: Coordinate, scope: Scope) -> bool:
    """Whether a coordinate surely has a point."""
    place = scope.places[coordinate]
    count = low.prover.polynomial(place.stop) - low.prover.polynomial(place.start)
    return low.prover.entails(scope.standing, count - 1)


def may_be_reversed(low: Lowering, coordinate: Coordinate, scope: Scope) -> bool:
    """Whether the range of a coordinate may end before it starts: then it has no points."""
    place = scope.places[coordinate]
    if isinstance(place.stop, ir.Size) and place.measured:
        return False
    return not low.prover.entails(scope.standing, with_constants(low, extent_of(coordinate, scope), place.stop.span))


def length(low: Lowering, coordinate: Coordinate, scope: Scope) -> Node:
    """The number of points of a coordinate here."""
    code = plain_number(low, extent_of(coordinate, scope), scope).code
    return call("max", 0, code) if may_be_reversed(low, coordinate, scope) else code


def shape(low: Lowering, axes: tuple[Coordinate, ...], scope: Scope) -> Tuple:
    return Tuple(tuple(length(low, axis, scope) for axis in axes))


def extent(low: Lowering, expr: ir.Expr) -> Node:
    """The length of an axis of a definition: its extent, or 0 where that is negative."""
    code = number(low, expr)
    return code if low.prover.entails((), low.prover.polynomial(expr)) else call("max", 0, code)
