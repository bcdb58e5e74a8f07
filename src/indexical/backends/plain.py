"""Plain Python numbers: sizes, bounds, steps, and how long an axis is."""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes as ir
from ..ir.affine import ONE as UNIT
from ..ir.affine import Monomial, Polynomial, expression, polynomial
from ..ir.types import Coordinate
from ..source import Span
from .base import Value, plain
from .code import ZERO, Infix, Name, Node, Tuple, call, chain, infix, negative, node
from .scope import Scope
from .state import State


class Numbers(State):
    """Whole expressions that vary with nothing but the steps of a loop."""

    def number(self, expr: ir.Expr, scope: Scope | None = None) -> Node:
        """A whole expression free of coordinates, as plain Python."""
        return self.plain(polynomial(expr), expr.span, scope).code

    def written(self, expr: ir.Expr) -> Node:
        """The same with nothing named on the way: fit for another function, which has names of its own."""
        self.naming = False
        code = self.number(expr)
        self.naming = True
        return code

    def plain(self, value: Polynomial, span: Span, scope: Scope | None = None) -> Value:
        """A polynomial as plain Python: what is added first, then what is taken away."""
        terms = sorted(value.terms.items(), key=lambda term: (term[1] < 0, not term[0]))
        result: Node | None = None
        for monomial, factor in terms:
            term = self._term(monomial, abs(factor), span, scope)
            if result is None:
                result = term if factor > 0 else negative(term)
            else:
                result = Infix("+" if factor > 0 else "-", result, term)
        return plain(ZERO if result is None else result)

    def _term(self, monomial: Monomial, factor: int, span: Span, scope: Scope | None) -> Node:
        """A product of atoms and a number."""
        if monomial == UNIT:
            return node(factor)
        leaves = [] if factor == 1 else [node(factor)]
        for atom, power in sorted(monomial, key=str):
            leaves += [self._leaf(atom, span, scope)] * power
        return chain("*", leaves)

    def _leaf(self, atom: Coordinate | ir.Expr, span: Span, scope: Scope | None) -> Node:
        """The code of an atom of a polynomial."""
        if isinstance(atom, Coordinate):
            assert scope is not None
            step = scope.places[atom].step
            assert step is not None, f"`{atom}` is no plain number here"
            return step
        match atom:
            case ir.Size(coordinate):
                return Name(self.sizes[coordinate])
            case ir.Read(tensor, ()):
                stored = self.stored[tensor]
                return Name(stored.variable) if stored.python else call("int", stored.variable)
            case ir.Map("max" | "min" | "abs" as op, arguments):
                return call(op, *(self.number(argument, scope) for argument in arguments))
            case ir.Map("//" | "%" as op, (left, right)):
                return self._divided(op, left, right, scope)
            case _:
                return call("int", self.value(atom, scope or Scope({})).code)

    def _divided(self, op: str, left: ir.Expr, right: ir.Expr, scope: Scope | None) -> Node:
        """Truncated toward zero. That is Python's own division where nothing is negative."""
        box = () if scope is None else scope.box
        divisor = self.prover.polynomial(right)
        a, b = (self.plain(polynomial(side), side.span, scope).code for side in (left, right))
        if self.prover.entails(box, divisor) and self.prover.at_least(left, 0, scope):
            if not self.prover.entails(box, divisor - 1):
                self.refuse_once(infix("==", b, 0), "IX505", "a whole number divided by zero")
            return self.named_number(Infix(op, a, b))
        whole = call(self.text.helper("truncated"), a, b)
        return whole if op == "//" else infix("-", a, infix("*", whole, b))

    def named_number(self, code: Node) -> Node:
        """A quotient under a name, so that it is written once."""
        key = ("number", code)
        if not self.naming:
            return code
        if key not in self.known:
            self.known[key] = self.text.keep(replace(plain(code), python=False), "n")
        return self.known[key].code

    def is_below(self, value: Polynomial, span: Span, scope: Scope | None) -> Node:
        """`value < 0`, with what is taken away on the other side."""
        if value.constant is not None:
            return node(value.constant < 0)
        sides = [Polynomial({m: abs(f) for m, f in value.terms.items() if (f < 0) == below}) for below in (False, True)]
        left, right = (self.plain(side, span, scope).code for side in sides)
        return Infix("<", left, right)

    def refuse_once(self, condition: Node, code: str, message: str) -> None:
        """A check of plain numbers, made only where it was not made before."""
        key = ("refused", condition)
        if self.text.checks and key not in self.known:
            self.known[key] = plain(condition)
            self.text.refuse(condition, code, message)

    # ------------------------------------------------------------------ lengths

    def through(self, value: Polynomial, span: Span) -> Polynomial:
        """The polynomial with the constants of the program looked through."""
        if all(isinstance(atom, Coordinate | ir.Size) for monomial in value.terms for atom, _ in monomial):
            return value
        return self.prover.polynomial(expression(value, span))

    def is_same(self, left: ir.Expr, right: ir.Expr) -> bool:
        return left == right or self.prover.polynomial(left) == self.prover.polynomial(right)

    def extent_of(self, coordinate: Coordinate, scope: Scope) -> Polynomial:
        """The length of the range of a coordinate; less than 0 where it is empty."""
        place = scope.places[coordinate]
        return polynomial(place.stop) - polynomial(place.start)

    def is_filled(self, coordinate: Coordinate, scope: Scope) -> bool:
        """Whether a coordinate surely has a point."""
        place = scope.places[coordinate]
        count = self.prover.polynomial(place.stop) - self.prover.polynomial(place.start)
        return self.prover.entails(scope.standing, count - 1)

    def may_be_reversed(self, coordinate: Coordinate, scope: Scope) -> bool:
        """Whether the range of a coordinate may end before it starts: then it has no points."""
        place = scope.places[coordinate]
        if isinstance(place.stop, ir.Size) and place.measured:
            return False
        return not self.prover.entails(scope.standing, self.through(self.extent_of(coordinate, scope), place.stop.span))

    def length(self, coordinate: Coordinate, scope: Scope) -> Node:
        """The number of points of a coordinate here."""
        code = self.plain(self.extent_of(coordinate, scope), scope.places[coordinate].stop.span, scope).code
        return call("max", 0, code) if self.may_be_reversed(coordinate, scope) else code

    def shape(self, axes: tuple[Coordinate, ...], scope: Scope) -> Tuple:
        return Tuple(tuple(self.length(axis, scope) for axis in axes))

    def extent(self, expr: ir.Expr) -> Node:
        """The length of an axis of a definition: its extent, or 0 where that is negative."""
        code = self.number(expr)
        return code if self.prover.entails((), self.prover.polynomial(expr)) else call("max", 0, code)
