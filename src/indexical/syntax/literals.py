"""Tokens to literals: numbers, Booleans, `masked`, arrays of these and of constant expressions."""

from __future__ import annotations

from ..diagnostics import Label
from . import tree
from .cursor import Cursor
from .vocabulary import MAXIMUM_RANK


class LiteralParser(Cursor):
    """Reads literals off a list of tokens."""

    def printed(self) -> tree.Printed:
        start = self.expect("~", "").start
        if not (self.next_is("[") or self.next_is("-") or self.token.kind == "number"):
            self.fail("expected a number or an array after `~`")
        literal = self.literal()
        return tree.Printed(literal, self.since(start))

    def literal(self) -> tree.Expr:
        """A number with or without a sign, a Boolean, `masked`, or an array of these."""
        token = self.token
        if token.kind == "number":
            return tree.Number(self.advance().text, self.span(token))
        if self.next_is("-"):
            self.advance()
            number = self.token
            if number.kind != "number":
                self.fail("expected a number after `-`")
            self.advance()
            return tree.Unary("-", tree.Number(number.text, self.span(number)), self.since(token.start))
        if self.next_is("true") or self.next_is("false"):
            self.advance()
            return tree.Bool(token.text == "true", self.span(token))
        if self.next_is("["):
            return self.array()
        if self.next_is("~"):
            return self.printed()
        if token.kind == "name" and token.text == "masked":
            self.advance()
            return tree.Masked(self.span(token))
        self.fail("expected a number", help="a printed array holds plain numbers or rows of them")

    def cell(self) -> tree.Expr:
        """A cell of an array literal, or a row."""
        return self.literal()

    def array(self) -> tree.ArrayLiteral:
        start = self.token
        self.deepen()
        items, _ = self.listed("[", self.cell, "this array")
        self.depth -= 1
        literal = tree.ArrayLiteral(tuple(items), self.since(start.start))
        self.check_rows(literal)
        return literal

    def check_rows(self, literal: tree.ArrayLiteral) -> None:
        """Each row is checked as it closes, so only the outermost step is left to do."""
        if not literal.items:
            self.stop("IX107", "an array literal needs at least one number", Label(literal.span))
        first = array_shape(literal.items[0])
        if len(first) >= MAXIMUM_RANK:
            self.stop("IX106", f"more than {MAXIMUM_RANK} axes in one array", Label(literal.span))
        for item in literal.items[1:]:
            if array_shape(item) != first:
                other = Label(literal.items[0].span, _measure(literal.items[0]))
                found = Label(item.span, _measure(item))
                self.stop("IX107", "the rows of an array literal must be alike", found, other)


def array_shape(literal: tree.Expr) -> tuple[int, ...]:
    """The shape of a literal: rows, columns, …; a number has none."""
    shape: list[int] = []
    while isinstance(literal, tree.ArrayLiteral | tree.Printed | tree.Pasted):
        if not isinstance(literal, tree.ArrayLiteral):
            literal = literal.literal
        else:
            shape.append(len(literal.items))
            literal = literal.items[0]
    return tuple(shape)


def _measure(item: tree.Expr) -> str:
    shape = array_shape(item)
    return " × ".join(map(str, shape)) + " numbers" if shape else "one number"
