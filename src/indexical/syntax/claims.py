"""Tokens to claims: figures as people write them, or paste them from what a library printed."""

from __future__ import annotations

from ..diagnostics import Label
from . import tree
from .expressions import ADD, ExpressionParser
from .vocabulary import PRINTED_AS


class ClaimParser(ExpressionParser):
    """Reads `expect` statements off a list of tokens."""

    def expectation(self) -> tree.Expect:
        start = self.advance().start
        left = self.expression(ADD)
        self.expect("==", "and the published figure")
        literal = self.claimed()
        tolerance = self.tolerance()
        printed = self.as_printed()
        self.end_statement()
        return tree.Expect(left, literal, self.since(start), tolerance, printed)

    def claimed(self) -> tree.Expr:
        """The right side: a figure, an array of them, what a library printed, or any expression."""
        token = self.token
        if token.kind == "name" and token.text in PRINTED_AS and self.next_is("(", ahead=1):
            return self.pasted()
        if not self.next_is("["):
            return self.infinite() or self.expression(ADD)
        missing: list[int] = []
        literal = self.figures(missing)
        if missing:
            return tree.Pasted("array", literal, self.since(token.start))
        return literal

    def pasted(self) -> tree.Expr:
        """`tensor([[0.09, 0.24], …], dtype=torch.float64)`: what stands after the figures says nothing of them."""
        word = self.advance()
        opening = self.advance()
        literal = self.figures([]) if self.next_is("[") else self.figure()
        while self.token.kind == "text" and self.token.text.startswith(","):
            self.advance()
        self.close(opening, "these figures")
        return tree.Pasted(word.text, literal, self.since(word.start))

    def figures(self, missing: list[int]) -> tree.ArrayLiteral:
        """An array whose commas may be missing, as NumPy prints it: their places go into `missing`."""
        opening = self.advance()
        self.deepen()
        items: list[tree.Expr] = []
        while not self.next_is("]"):
            if self.next_is("..."):
                help = "let the library print all figures, as with `numpy.set_printoptions(threshold=10**6)`"
                self.stop("IX101", "figures are left out here", Label(self.place()), help=help)
            items.append(self.figures(missing) if self.next_is("[") else self.figure())
            if not self.accept(",") and not self.next_is("]"):
                if not self.starts_figure() and not self.next_is("..."):
                    break
                missing.append(self.token.start)
        self.close(opening, "this array")
        self.depth -= 1
        literal = tree.ArrayLiteral(tuple(items), self.since(opening.start))
        self.check_rows(literal)
        return literal

    def starts_figure(self) -> bool:
        """Whether another figure follows with nothing but space between."""
        token = self.token
        apart = token.start > self.tokens[self.at - 1].end
        if self.next_is("-"):
            return apart and self.tokens[self.at + 1].start == token.end
        return token.kind == "number" or self.next_is("[") or (token.kind == "name" and apart)

    def figure(self) -> tree.Expr:
        """One figure of an array: a number, or an expression where an operator follows."""
        first = self.at
        if self.token.kind == "number" or (self.next_is("-") and self.tokens[self.at + 1].kind == "number"):
            found = self.literal()
            if self.next_is(",") or self.next_is("]") or self.next_is(")") or self.starts_figure():
                return found
            self.at = first
        if self.token.kind == "text":
            self.fail("expected a figure")
        return self.infinite() or self.expression(ADD)

    def infinite(self) -> tree.Expr | None:
        """`-inf`, as libraries print a score that a mask removed: the claim that it is masked."""
        if self.next_is("-") and self.tokens[self.at + 1].text == "inf":
            start = self.advance().start
            self.advance()
            return tree.Masked(self.since(start), "-inf")
        if self.token.kind == "name" and self.token.text in ("nan", "inf", "NaN"):
            help = "a masked score is `-inf` or `masked`; other figures are numbers"
            self.stop("IX101", f"`{self.token.text}` is no figure", Label(self.place()), help=help)
        return None

    def tolerance(self) -> tree.Number | None:
        """`± 0.01` or `+- 0.01`: how far from the figure the value may be."""
        if self.accept("±") is None:
            if not self.is_tolerance():
                return None
            self.advance()
            self.advance()
        number = self.token
        if number.kind != "number":
            self.fail("expected how far from the figure the value may be", help="write `± 0.01`")
        self.advance()
        return tree.Number(number.text, self.span(number))
