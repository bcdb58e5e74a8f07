"""Tokens to expressions: a Pratt parser."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ..diagnostics import Fix, Label, Sink
from ..source import Source, Span
from . import tree
from .tokens import Token, tokenize
from .vocabulary import (
    DTYPES,
    FOREIGN,
    FOREIGN_DTYPES,
    FUNCTIONS,
    MAXIMUM_DEPTH,
    MAXIMUM_RANK,
    NORMALISERS,
    REDUCTIONS,
)

T = TypeVar("T")

# How tightly an operator holds its left side; reads and calls hold tighter than all of these.
OR, AND, COMPARE, ADD, MULTIPLY, CAST, UNARY, POWER = range(1, 9)
POWERS = {
    "||": OR,
    "&&": AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(("+", "-"), ADD),
    **dict.fromkeys(("*", "/", "%"), MULTIPLY),
    "as": CAST,
    "**": POWER,
}
CLOSING = {"(": ")", "[": "]", "{": "}"}


class SyntaxStop(Exception):
    """A statement cannot be read on; what is wrong has been reported."""


class ExpressionParser:
    """Reads expressions off a list of tokens. The rest of the grammar builds on it."""

    def __init__(self, source: Source, sink: Sink) -> None:
        self.source = source
        self.sink = sink
        self.tokens, self.comments = tokenize(source, sink)
        # The sink may hold findings about other files, and findings without a place.
        places = [label.span for found in sink for label in found.labels[:1]]
        self.unreadable = sorted(place.start for place in places if place.source is source)
        self.at = 0
        self.statement_start = 0
        self.depth = 0

    # ------------------------------------------------------------ the cursor

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next_is(self, text: str, ahead: int = 0) -> bool:
        place = min(self.at + ahead, len(self.tokens) - 1)
        token = self.tokens[place]
        return token.text == text and token.kind in ("symbol", "keyword")

    def advance(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> Token | None:
        return self.advance() if self.next_is(text) else None

    def expect(self, text: str, purpose: str) -> Token:
        if self.next_is(text):
            return self.advance()
        self.fail(f"expected `{text}` {purpose}")

    def name(self, purpose: str) -> tree.Name:
        if self.token.kind != "name":
            self.fail(f"expected {purpose}")
        token = self.advance()
        return tree.Name(token.text, self.span(token))

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def since(self, start: int) -> Span:
        """From an offset to the end of what was read last."""
        return Span(self.source, start, max(start, self.tokens[self.at - 1].end if self.at else 0))

    def fail(self, expected: str, help: str | None = None) -> NoReturn:
        """Stop, because the next word is not what was expected."""
        help = help or FOREIGN.get(self.token.text)
        self.stop("IX101", f"{expected}, found {self.found()}", Label(self.place()), help=help)

    def stop(
        self, code: str, message: str, *labels: Label, help: str | None = None, fix: Fix | None = None
    ) -> NoReturn:
        """Report, and give the statement up.

        What was passed over as unreadable is the likelier cause, and is reported already.
        """
        before = bisect_left(self.unreadable, self.statement_start)
        if before == bisect_left(self.unreadable, self.token.start + 1):
            self.sink.report(code, message, *labels, help=help, fix=fix)
        raise SyntaxStop

    def found(self) -> str:
        token = self.token
        if token.kind == "end":
            return "the end of the file"
        shown = token.text if len(token.text) <= 24 else token.text[:24] + "…"
        if token.kind == "keyword":
            return f"the word `{shown}`"
        return f"`{shown}`"

    def place(self) -> Span:
        """Where the next word is; at the end of the file, just after the last word."""
        if self.token.kind == "end" and self.at:
            last = self.tokens[self.at - 1]
            return Span(self.source, last.end, last.end)
        return self.span(self.token)

    def listed(self, opening: str, item: Callable[[], T], what: str) -> tuple[list[T], Token]:
        """`opening item, item, …` up to and with its closing bracket; a last comma is fine."""
        start = self.expect(opening, f"before {what}")
        closing = CLOSING[opening]
        items: list[T] = []
        while not self.next_is(closing):
            items.append(item())
            if not self.accept(","):
                break
        return items, self.close(start, what)

    def close(self, opening: Token, what: str) -> Token:
        closing = CLOSING[opening.text]
        if self.next_is(closing):
            return self.advance()
        message = f"expected `{closing}` after {what}, found {self.found()}"
        help = FOREIGN.get(self.token.text)
        if self.next_is("="):
            help = "a size is stated as `i in 0..5`, and `==` compares"
        if self.next_is("where"):
            help = "a guard stands after the whole right-hand side, or inside the bracket of a reduction or normaliser"
        self.stop("IX102", message, Label(self.place()), Label(self.span(opening), "opened here"), help=help)

    # ------------------------------------------------------------ expressions

    def expression(self, minimum: int = OR) -> tree.Expr:
        """The longest expression whose operators hold at least as tightly as `minimum`."""
        self.deepen()
        start = self.token.start
        left = self.prefix()
        while True:
            power = POWERS.get(self.token.text, 0) if self.token.kind in ("symbol", "keyword") else 0
            if power < minimum or power == 0:
                break
            left = self.infix(left, power, start)
        self.depth -= 1
        return left

    def deepen(self) -> None:
        """One node further down. Counted wherever the parser calls itself: Python's own stack is finite."""
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            self.too_deep(self.place())

    def too_deep(self, span: Span) -> NoReturn:
        self.sink.report(
            "IX106",
            f"this is nested more than {MAXIMUM_DEPTH} deep",
            span,
            help="name a part of it with `let`",
        )
        raise SyntaxStop

    def infix(self, left: tree.Expr, power: int, start: int) -> tree.Expr:
        if power == COMPARE:
            return self.comparison(left, start)
        operator = self.advance().text
        if power == CAST:
            dtype = self.dtype()
            if self.next_is("**"):
                self.fail("expected the cast in parentheses before a power", help=f"write `(… as {dtype}) ** …`")
            return tree.Cast(left, dtype, self.since(start))
        # `**` groups to the right and takes a signed exponent; all others group to the left.
        right = self.expression(UNARY if power == POWER else power + 1)
        return tree.Binary(operator, left, right, self.since(start))

    def comparison(self, left: tree.Expr, start: int) -> tree.Expr:
        operands, operators = [left], []
        while self.token.kind == "symbol" and POWERS.get(self.token.text) == COMPARE:
            operators.append(self.advance().text)
            operands.append(self.expression(ADD))
        return tree.Comparison(tuple(operands), tuple(operators), self.since(start))

    def dtype(self) -> str:
        if self.token.kind != "name" or self.token.text not in DTYPES:
            known = FOREIGN_DTYPES.get(self.token.text)
            self.fail("expected a dtype", help=f"did you mean `{known}`?" if known else f"one of {', '.join(DTYPES)}")
        return self.advance().text

    def prefix(self) -> tree.Expr:
        token = self.token
        if token.kind == "number":
            return tree.Number(self.advance().text, self.span(token))
        if token.kind == "name":
            return self.postfix(self.named(), token.start)
        match token.text if token.kind in ("symbol", "keyword") else None:
            case "-" | "!":
                self.advance()
                operand = self.expression(UNARY)
                return tree.Unary(token.text, operand, self.since(token.start))
            case "(":
                self.advance()
                inner = self.expression()
                self.close(token, "this expression")
                return self.postfix(tree.Paren(inner, self.since(token.start)), token.start)
            case "[":
                return self.postfix(self.array(), token.start)
            case "~":
                return self.postfix(self.printed(), token.start)
            case "{":
                return self.block()
            case "if":
                return self.conditional()
            case "true" | "false":
                self.advance()
                return tree.Bool(token.text == "true", self.span(token))
            case "@":
                return self.derivative()
            case _:
                self.fail("expected an expression")

    def named(self) -> tree.Expr:
        """What starts with a name: a reduction, a call, or the name alone."""
        token = self.advance()
        span = self.span(token)
        binds = token.text in REDUCTIONS or token.text in NORMALISERS
        if binds and self.next_is("["):
            return self.reduction(token)
        if self.next_is("("):
            if binds and token.text not in FUNCTIONS:
                verb = "consumes" if token.text in REDUCTIONS else "normalises over"
                self.fail(
                    f"expected `[` and the coordinate that `{token.text}` {verb}",
                    help=f"write `{token.text}[j](…)`",
                )
            arguments, _ = self.listed("(", self.expression, "these arguments")
            return tree.Call(token.text, span, tuple(arguments), self.since(token.start))
        if token.text == "masked":
            return tree.Masked(span)
        return tree.Name(token.text, span)

    def postfix(self, base: tree.Expr, start: int) -> tree.Expr:
        while self.next_is("["):
            indices, _ = self.listed("[", self.index, "these indices")
            base = tree.Index(base, tuple(indices), self.since(start))
        return base

    def index(self) -> tree.Expr | tree.Rest:
        return self.rest() if self.next_is("..") else self.expression()

    def rest(self) -> tree.Rest:
        start = self.expect("..", "").start
        name = self.name("a name after `..`")
        return tree.Rest(name.name, self.since(start))

    def reduction(self, operator: Token) -> tree.Expr:
        binders, _ = self.listed("[", self.binder, "these coordinates")
        if not binders:
            self.stop("IX101", f"expected a coordinate for `{operator.text}`", Label(self.since(operator.start)))
        if not self.next_is("("):
            shown = ", ".join(binder.name for binder in binders)
            self.fail(f"expected `(` and what `{operator.text}` scans", help=f"write `{operator.text}[{shown}](…)`")
        opening = self.advance()
        body = self.expression()
        where = self.where()
        self.close(opening, f"what `{operator.text}` scans")
        return tree.Reduction(
            operator.text, self.span(operator), tuple(binders), body, where, self.since(operator.start)
        )

    def binder(self) -> tree.Binder:
        """`j`, `j in 0..n` or `..r`."""
        if self.next_is(".."):
            rest = self.rest()
            return tree.Binder(rest.name, None, True, rest.span)
        name = self.name("a coordinate")
        return tree.Binder(name.name, self.range(), False, self.since(name.span.start))

    def range(self) -> tree.Range | None:
        if not self.accept("in"):
            return None
        self.deepen()
        start = self.token.start
        lower = self.expression(ADD)
        if not (self.next_is("..") or self.next_is("..=")):
            self.fail("expected `..` and the end of the range", help="`0..n` leaves `n` out, `0..=n` takes it in")
        inclusive = self.advance().text == "..="
        upper = self.expression(ADD)
        self.depth -= 1
        return tree.Range(lower, upper, inclusive, self.since(start))

    def where(self) -> tuple[tree.Clause, ...]:
        if not self.accept("where"):
            return ()
        clauses = [self.clause()]
        while self.accept(","):
            clauses.append(self.clause())
        return tuple(clauses)

    def clause(self) -> tree.Clause:
        start = self.token.start
        if self.token.kind == "name" and self.next_is("=", ahead=1):
            name = self.advance().text
            self.advance()
            value = self.expression()
            return tree.Abbreviation(name, value, self.since(start))
        condition = self.expression()
        return tree.Guard(condition, self.since(start))

    # ------------------------------------------------------------ larger parts

    def conditional(self) -> tree.Expr:
        start = self.expect("if", "").start
        condition = self.expression()
        then = self.block()
        self.expect("else", "and what the value is otherwise")
        if self.next_is("if"):
            self.deepen()
            inner = self.conditional()
            self.depth -= 1
            otherwise = tree.Block((), inner, (), inner.span)
        else:
            otherwise = self.block()
        return tree.If(condition, then, otherwise, self.since(start))

    def block(self) -> tree.Block:
        opening = self.expect("{", "to open a block")
        lets: list[tree.Let] = []
        while self.next_is("let"):
            lets.append(self.let())
        if self.next_is("}"):
            self.fail("expected the block's value", help="a block ends in an expression without `;`")
        if self.token.kind == "name" and self.token.text == "return":
            self.fail("expected the block's value")
        body = self.expression()
        where = self.where()
        self.close(opening, "this block")
        return tree.Block(tuple(lets), body, where, self.since(opening.start))

    def let(self) -> tree.Let:
        self.deepen()
        start = self.expect("let", "").start
        name = self.name("a name after `let`")
        slots = self.slots() if self.next_is("[") else None
        if not self.next_is("="):
            self.fail(f"expected `=` and what `{name.name}` is")
        self.advance()
        body = self.expression()
        where = self.where()
        self.end_statement()
        self.depth -= 1
        return tree.Let(name.name, name.span, slots, body, where, self.since(start))

    def end_statement(self) -> None:
        """The `;`. A missing one is reported just after the last word."""
        if self.accept(";"):
            return
        last = self.tokens[self.at - 1]
        if self.next_is(")") or self.next_is("]"):
            self.stop("IX102", f"this `{self.token.text}` closes nothing", Label(self.place()))
        if self.next_is(","):
            self.fail("expected `;` or an operator", help="a statement defines one thing: write `;` and start another")
        one_line = self.source.position(last.end)[0] == self.source.position(self.token.start)[0]
        if one_line or self.next_is("}"):
            self.fail("expected `;` or an operator")
        place = Span(self.source, last.end, last.end)
        help = "every statement but `fn` ends with `;`"
        self.stop("IX101", f"expected `;` after `{last.text[:24]}`", Label(place), help=help, fix=Fix(place, ";"))

    def slots(self) -> tuple[tree.Slot, ...]:
        opening = self.token
        slots, _ = self.listed("[", self.slot, "these coordinates")
        if len(slots) > MAXIMUM_RANK:
            self.sink.report("IX106", f"more than {MAXIMUM_RANK} coordinates on one tensor", self.span(opening))
            raise SyntaxStop
        return tuple(slots)

    def slot(self) -> tree.Slot:
        """A coordinate, a coordinate with a range, `..r`, or the whole expression of a base case."""
        if self.next_is("..") or (self.token.kind == "name" and self.next_is("in", ahead=1)):
            return self.binder()
        value = self.expression()
        if isinstance(value, tree.Name):
            return tree.Binder(value.name, None, False, value.span)
        return value

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
                self.fail("expected a number after `-`", help="an array literal holds plain numbers")
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
        self.fail("expected a number", help="an array literal holds plain numbers, `true`, `false` or rows of them")

    def array(self) -> tree.ArrayLiteral:
        start = self.token
        self.deepen()
        items, _ = self.listed("[", self.literal, "this array")
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
            self.sink.report("IX106", f"more than {MAXIMUM_RANK} axes in one array", literal.span)
            raise SyntaxStop
        for item in literal.items[1:]:
            if array_shape(item) != first:
                other = Label(literal.items[0].span, _measure(literal.items[0]))
                found = Label(item.span, _measure(item))
                self.stop("IX107", "the rows of an array literal must be alike", found, other)

    def derivative(self) -> tree.Expr:
        start = self.expect("@", "").start
        of = self.name("a name after `@`")
        help = "a derivative is `@y / @x`, over two names"
        if not (self.next_is("/") and self.next_is("@", ahead=1)):
            self.fail("expected `/ @` and a name", help=help)
        self.advance()
        self.advance()
        by = self.name("a name after `@`")
        return tree.Derivative(of, by, self.since(start))


def array_shape(literal: tree.Expr) -> tuple[int, ...]:
    """How many rows, columns, … a literal has; a number has none."""
    shape: list[int] = []
    while isinstance(literal, tree.ArrayLiteral | tree.Printed):
        if isinstance(literal, tree.Printed):
            literal = literal.literal
        else:
            shape.append(len(literal.items))
            literal = literal.items[0]
    return tuple(shape)


def _measure(item: tree.Expr) -> str:
    shape = array_shape(item)
    return " × ".join(map(str, shape)) + " numbers" if shape else "one number"
