"""Tokens to expressions: a Pratt parser."""

from __future__ import annotations

from ..diagnostics import Fix, Label
from ..source import Span
from . import tree
from .literals import LiteralParser
from .tokens import Token
from .vocabulary import (
    DTYPES,
    FOREIGN_DTYPES,
    FUNCTIONS,
    MAXIMUM_RANK,
    NORMALISERS,
    REDUCTIONS,
    RESERVED,
    STORED_DTYPES,
)

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


class ExpressionParser(LiteralParser):
    """Reads expressions off a list of tokens. The rest of the grammar builds on it."""

    # ------------------------------------------------------------ expressions

    def expression(self, minimum: int = OR) -> tree.Expr:
        """The longest expression whose operators hold at least as tightly as `minimum`."""
        self.deepen()
        start = self.tokens[self.at].start
        left = self.prefix()
        # What is written as an operator is one: no name and no text is.
        while (power := POWERS.get(self.tokens[self.at].text, 0)) >= minimum:
            if self.ends_here():
                break
            left = self.infix(left, power, start)
        self.depth -= 1
        return left

    def ends_here(self) -> bool:
        """Whether what looks like an operator ends a statement: `as printed`, or the `+-` of a tolerance."""
        return self.is_tolerance() if self.next_is("+") else self.next_is("as") and self.is_as_printed()

    def is_tolerance(self) -> bool:
        """Whether a `+-` follows, without a space, and a number: `0.5 +- 0.01` in a claim."""
        sign, number = self.tokens[self.at + 1 : self.at + 3]
        return (
            self.tokens[self.statement_at].text == "expect"
            and self.next_is("+")
            and self.next_is("-", ahead=1)
            and sign.start == self.token.end
            and number.start > sign.end
        )

    def is_as_printed(self) -> bool:
        return self.tokens[self.at + 1].text == "printed"

    def as_printed(self) -> bool:
        """`as printed`, behind a whole statement."""
        if not (self.next_is("as") and self.is_as_printed()):
            return False
        self.advance()
        self.advance()
        return True

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

    def dtype(self, stored: bool = False) -> str:
        """A dtype. One that is `stored` is that of an input, and may be a narrow one that nothing is computed in."""
        word, known = self.token.text, (*DTYPES, *STORED_DTYPES) if stored else DTYPES
        if self.token.kind != "name" or word not in known:
            meant = FOREIGN_DTYPES.get(word, word)
            fix = Fix(self.place(), meant) if meant != word and meant in known else None
            if meant in STORED_DTYPES and not stored:
                help = f"only an input is stored in `{meant}`; it is read as `i32`, and so is what is computed with it"
            else:
                help = f"did you mean `{meant}`?" if meant != word else f"one of {', '.join(known)}"
            self.fail("expected a dtype", help=help, fix=fix)
        return self.advance().text

    def prefix(self) -> tree.Expr:
        token = self.tokens[self.at]
        if token.kind == "name":
            return self.postfix(self.named(), token.start)
        if token.kind == "number":
            return tree.Number(self.advance().text, self.span(token))
        match token.text if token.kind in ("symbol", "keyword") else None:
            case "-" | "!":
                self.advance()
                operand = self.expression(UNARY)
                return tree.Unary(token.text, operand, self.since(token.start))
            case "(":
                return self.parenthesised()
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

    def cell(self) -> tree.Expr:
        """A number, a row, or an expression: whether that is constant is for the checker to say."""
        token = self.token
        if token.kind == "number" and (self.next_is(",", ahead=1) or self.next_is("]", ahead=1)):
            return tree.Number(self.advance().text, self.span(token))
        if self.next_is("["):
            return self.postfix(self.array(), token.start)
        return self.expression(ADD)

    def parenthesised(self) -> tree.Expr:
        """`(x)`, or `(a, b)`, the value of a function that gives several tensors."""
        opening = self.advance()
        items = [self.expression()]
        while self.accept(",") and not self.next_is(")"):
            items.append(self.expression())
        self.close(opening, "this expression" if len(items) == 1 else "these values")
        span = self.since(opening.start)
        if len(items) > 1:
            return tree.Tuple(tuple(items), span)
        return self.postfix(tree.Paren(items[0], span), opening.start)

    def named(self) -> tree.Expr:
        """Parse an expression that starts with a name: a reduction, a call, or the name alone."""
        token = self.advance()
        span = self.span(token)
        binds = token.text in REDUCTIONS or token.text in NORMALISERS
        if binds and self.next_is("[") and (token.text in RESERVED or self.is_applied()):
            return self.reduction(token)
        if self.next_is("("):
            if token.text in RESERVED and binds and token.text not in FUNCTIONS:
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

    def is_applied(self) -> bool:
        """Whether the bracket that opens here is followed by what is scanned: `rank[j](…)` ranks, `rank[i, j]` reads a
        tensor of that name."""
        brackets = braces = 0
        for at in range(self.at, len(self.tokens) - 1):
            text = self.tokens[at].text
            brackets += (text == "[") - (text == "]")
            braces += (text == "{") - (text == "}")
            if not brackets:
                return self.tokens[at + 1].text == "("
            if text == ";" and not braces:
                break
        return True

    def postfix(self, base: tree.Expr, start: int) -> tree.Expr:
        while self.next_is("["):
            indices, _ = self.listed("[", self.index, "these indices")
            base = tree.Index(base, tuple(indices), self.since(start))
        if isinstance(base, tree.Index) and isinstance(base.base, tree.Name) and self.next_is("("):
            self.check_misspelt(base.base)
        return base

    def check_misspelt(self, name: tree.Name) -> None:
        """Stop at `sofmax[j](…)`: nothing but a reduction or a normaliser is followed by what it scans."""
        from difflib import get_close_matches  # Few programs need it.

        close = get_close_matches(name.name, (*REDUCTIONS, *NORMALISERS), 1)
        if close:
            message = f"no reduction and no normaliser is called `{name.name}`"
            fix = Fix(name.span, close[0])
            self.stop("IX201", message, Label(name.span), help=f"did you mean `{close[0]}`?", fix=fix)

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
            if lets[-1].printed:
                help = "it stands behind a definition of the program, or behind its `expect`"
                self.stop("IX101", "a block has nothing that was printed", Label(lets[-1].span), help=help)
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
        names = self.together() if self.next_is("(") else ()
        name = names[0] if names else self.name("a name after `let`")
        slots = self.slots() if self.next_is("[") and not names else None
        if not self.next_is("="):
            self.fail(f"expected `=` and what `{name.name}` is")
        self.advance()
        body = self.expression()
        where = self.where()
        printed = self.as_printed()
        self.end_statement()
        self.depth -= 1
        return tree.Let(name.name, name.span, slots, body, where, self.since(start), names, printed)

    def together(self) -> tuple[tree.Name, ...]:
        """`(a, b)` after `let`: the names of what a call gives."""
        opening = self.token
        names, _ = self.listed("(", lambda: self.name("a name for what the call gives"), "these names")
        if len(names) < 2:
            help = "one tensor is bound as `let a = f(…);`"
            self.stop("IX101", "expected two names or more", Label(self.span(opening)), help=help)
        return tuple(names)

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
            message = f"more than {MAXIMUM_RANK} coordinates on one tensor"
            self.stop("IX106", message, Label(self.span(opening)))
        return tuple(slots)

    def slot(self) -> tree.Slot:
        """A coordinate, a coordinate with a range, `..r`, or the whole expression of a base case."""
        if self.next_is("..") or (self.token.kind == "name" and self.next_is("in", ahead=1)):
            return self.binder()
        value = self.expression()
        if isinstance(value, tree.Name):
            return tree.Binder(value.name, None, False, value.span)
        return value

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
