"""Plain Python numbers: sizes, bounds, steps, and how long an axis is."""

from __future__ import annotations

from dataclasses import replace

from ..ir import nodes as ir
from ..ir.affine import ONE, Monomial, Polynomial, expression, polynomial
from ..ir.types import Coordinate
from ..source import Span
from .base import ATOM, PRODUCT, SUM, UNARY, Value
from .scope import Scope
from .state import State


class Numbers(State):
    """Whole expressions that vary with nothing but the steps of a loop."""

    def number(self, expr: ir.Expr, scope: Scope | None = None) -> str:
        """A whole expression free of coordinates, as plain Python."""
        return self.plain(polynomial(expr), expr.span, scope).text

    def written(self, expr: ir.Expr) -> str:
        """The same with nothing named on the way: fit for another function, which has names of its own."""
        self.naming = False
        shown = self.number(expr)
        self.naming = True
        return shown

    def plain(self, value: Polynomial, span: Span, scope: Scope | None = None) -> Value:
        """A polynomial as plain Python: what is added first, then what is taken away."""
        terms = sorted(value.terms.items(), key=lambda term: (term[1] < 0, not term[0]))
        result: Value | None = None
        for monomial, factor in terms:
            term = self._term(monomial, abs(factor), span, scope)
            if result is None:
                result = term if factor > 0 else _plain(f"-{term.within(UNARY)}", UNARY)
            else:
                sign = "+" if factor > 0 else "-"
                result = _plain(f"{result.within(SUM)} {sign} {term.within(SUM + 1)}", SUM)
        return result or _plain("0")

    def _term(self, monomial: Monomial, factor: int, span: Span, scope: Scope | None) -> Value:
        """A product of atoms and a number."""
        if monomial == ONE:
            return _plain(str(factor))
        leaves = [] if factor == 1 else [_plain(str(factor))]
        for atom, power in sorted(monomial, key=str):
            leaves += [self._leaf(atom, span, scope)] * power
        if len(leaves) == 1:
            return leaves[0]
        first, *others = leaves
        return _plain(" * ".join([first.within(PRODUCT), *(leaf.within(PRODUCT + 1) for leaf in others)]), PRODUCT)

    def _leaf(self, atom: Coordinate | ir.Expr, span: Span, scope: Scope | None) -> Value:
        """What cannot be taken apart any more."""
        if isinstance(atom, Coordinate):
            assert scope is not None
            step = scope.places[atom].step
            assert step is not None, f"`{atom}` is no plain number here"
            return _plain(step)
        match atom:
            case ir.Size(coordinate):
                return _plain(self.sizes[coordinate])
            case ir.Read(tensor, ()):
                stored = self.stored[tensor]
                return _plain(stored.variable if stored.python else f"int({stored.variable})")
            case ir.Map("max" | "min" | "abs" as op, arguments):
                return _plain(f"{op}({', '.join(self.number(a, scope) for a in arguments)})")
            case ir.Map("//" | "%" as op, (left, right)):
                return self._divided(op, left, right, scope)
            case _:
                return _plain(f"int({self.value(atom, scope or Scope({})).text})")

    def _divided(self, op: str, left: ir.Expr, right: ir.Expr, scope: Scope | None) -> Value:
        """Truncated toward zero. That is Python's own division where nothing is negative."""
        box = () if scope is None else scope.box
        divisor = self.prover.polynomial(right)
        a, b = (self.plain(polynomial(side), side.span, scope) for side in (left, right))
        if self.prover.entails(box, divisor) and self.prover.at_least(left, 0, scope):
            if not self.prover.entails(box, divisor - 1):
                self.refuse_once(f"{b.within(SUM)} == 0", "IX505", "a whole number divided by zero")
            return self.named_number(_plain(f"{a.within(PRODUCT)} {op} {b.within(PRODUCT + 1)}", PRODUCT))
        whole = f"{self.text.helper('truncated')}({a.text}, {b.text})"
        if op == "//":
            return _plain(whole)
        return _plain(f"{a.within(SUM)} - {whole} * {b.within(PRODUCT + 1)}", SUM)

    def named_number(self, value: Value) -> Value:
        """A quotient under a name, so that it is written once."""
        key = ("number", value.text)
        if not self.naming:
            return value
        if key not in self.known:
            self.known[key] = self.text.keep(replace(value, python=False), "n").but(python=True)
        return self.known[key]

    def is_below(self, value: Polynomial, span: Span, scope: Scope | None) -> str:
        """`value < 0`, with what is taken away on the other side."""
        if value.constant is not None:
            return str(value.constant < 0)
        sides = [Polynomial({m: abs(f) for m, f in value.terms.items() if (f < 0) == below}) for below in (False, True)]
        left, right = (self.plain(side, span, scope).within(SUM) for side in sides)
        return f"{left} < {right}"

    def refuse_once(self, condition: str, code: str, message: str) -> None:
        """A check of plain numbers, made only where it was not made before."""
        key = ("refused", condition)
        if self.text.checks and key not in self.known:
            self.known[key] = _plain(condition)
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
        """How far the range of a coordinate reaches; less than 0 where it is empty."""
        place = scope.places[coordinate]
        return polynomial(place.stop) - polynomial(place.start)

    def is_filled(self, coordinate: Coordinate, scope: Scope) -> bool:
        """Whether a coordinate surely has a point."""
        place = scope.places[coordinate]
        count = self.prover.polynomial(place.stop) - self.prover.polynomial(place.start)
        return self.prover.entails(scope.standing, count - 1)

    def length(self, coordinate: Coordinate, scope: Scope) -> str:
        """How many points a coordinate has here."""
        place = scope.places[coordinate]
        count = self.extent_of(coordinate, scope)
        shown = self.plain(count, place.stop.span, scope).text
        whole = self.through(count, place.stop.span)
        if (isinstance(place.stop, ir.Size) and place.measured) or self.prover.entails(scope.standing, whole):
            return shown
        return f"max(0, {shown})"

    def shape(self, axes: tuple[Coordinate, ...], scope: Scope) -> str:
        lengths = [self.length(axis, scope) for axis in axes]
        return f"({lengths[0]},)" if len(lengths) == 1 else f"({', '.join(lengths)})"

    def extent(self, expr: ir.Expr) -> str:
        """How long an axis of a definition is: its extent, or 0 where that is negative."""
        shown = self.number(expr)
        return shown if self.prover.entails((), self.prover.polynomial(expr)) else f"max(0, {shown})"


def _plain(text: str, binds: int = ATOM) -> Value:
    return Value(text, (), "whole", None, binds, True)
