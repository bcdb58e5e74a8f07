"""Text to tree: statements, and going on after a mistake.

A statement that cannot be read is reported once and passed over, up to its `;` or to the
next line that starts a statement; the words in it are remembered, so that nothing that
would only follow from the mistake is reported later.
"""

from __future__ import annotations

from collections.abc import Callable

from ..diagnostics import Label, Sink
from ..source import Source
from . import tree
from .claims import ClaimParser
from .cursor import SyntaxStop, T
from .expressions import ADD
from .tokens import STATEMENTS, Token
from .vocabulary import FLAGS, FOREIGN, GROUPINGS, MAXIMUM_DEPTH, ROLES, ROW_SUMS

_BRACES = {"{": 1, "}": -1}


def parse(source: Source, sink: Sink) -> tree.File:
    """The tree of a text, without the statements that could not be read."""
    return _Parser(source, sink).file()


class _Parser(ClaimParser):
    def file(self) -> tree.File:
        statements: list[tree.Statement] = []
        broken: set[str] = set()
        while self.token.kind != "end":
            first = self.statement_at = self.at
            # What is unreadable on a line above belongs to the statement that broke there.
            line_start = self.token.start - self.column(self.token) + 1
            self.statement_start = max(line_start, self.tokens[first - 1].end if first else 0)
            try:
                statement = self.statement()
                self.check_height(statement, first)
                statements.append(statement)
            except SyntaxStop:
                self.recover(first)
                broken.update(token.text for token in self.tokens[first : self.at] if token.kind == "name")
        return tree.File(tuple(statements), tuple(self.comments), frozenset(broken), self.source)

    def check_height(self, statement: tree.Statement, first: int) -> None:
        """A chain like `a + a + …` nests without brackets; it is bounded too."""
        if self.at - first > MAXIMUM_DEPTH and tree.height(statement) > MAXIMUM_DEPTH:
            self.too_deep(statement.span)

    def recover(self, first: int) -> None:
        """Pass over the rest of a broken statement that began at token `first`."""
        self.depth = 0
        braces = sum(_BRACES.get(token.text, 0) for token in self.tokens[first : self.at])
        last = "}" if self.tokens[first].text == "fn" else ";"
        while self.token.kind != "end" and not self.starts_another(first, braces):
            token = self.advance()
            braces += _BRACES.get(token.text, 0)
            if braces <= 0 and token.text in (last, ";"):
                return

    def starts_another(self, first: int, braces: int) -> bool:
        """Whether the next word, on a line of its own, starts another statement than the one at token `first`.

        In braces, a `let` that is further to the right belongs to the block.
        """
        token = self.token
        if self.at == first or not self.starts_line():
            return False
        if token.text == "let" and braces > 0:
            return self.column(token) <= self.column(self.tokens[first])
        # `attention` is a word like any other, unless a name follows.
        return token.text in STATEMENTS or (token.text == "attention" and self.tokens[self.at + 1].kind == "name")

    def column(self, token: Token) -> int:
        return self.source.position(token.start)[1]

    def starts_line(self) -> bool:
        if self.at == 0:
            return True
        between = self.source.text[self.tokens[self.at - 1].end : self.token.start]
        return "\n" in between

    def statement(self) -> tree.Statement:
        token = self.token
        if token.kind == "keyword" and token.text in STATEMENTS:
            readers: dict[str, Callable[[], tree.Statement]] = {
                "space": self.space,
                "input": self.input,
                "let": self.let,
                "output": self.output,
                "fn": self.function,
                "use": self.use,
                "assert": self.assertion,
                "expect": self.expectation,
            }
            return readers[token.text]()
        if token.kind == "name" and token.text == "attention":
            return self.contract()
        if token.text in FOREIGN:
            self.fail("expected a statement")
        if token.kind == "name" and (self.next_is("=", ahead=1) or self.next_is("[", ahead=1)):
            self.fail("expected a statement", help=f"to define it, write `let {token.text}… = …;`")
        from difflib import get_close_matches  # Few programs need it.

        if close := get_close_matches(token.text, [*STATEMENTS, "attention"], 1):
            self.fail("expected a statement", help=f"did you mean `{close[0]}`?")
        words = "`space`, `input`, `let`, `output`, `fn`, `use`, `attention`, `assert` or `expect`"
        self.fail("expected a statement", help=f"a statement starts with {words}")

    def space(self) -> tree.Space:
        start = self.advance().start
        items = self.separated(self.space_item)
        self.end_statement()
        return tree.Space(items, self.since(start))

    def space_item(self) -> tree.SpaceItem:
        name = self.name("the name of a space")
        coordinates, _ = self.listed("(", lambda: self.name("a coordinate"), "the coordinates of this space")
        return tree.SpaceItem(name.name, tuple(coordinates), self.since(name.span.start))

    def input(self) -> tree.Input:
        start = self.advance().start
        items = self.separated(self.input_item)
        self.end_statement()
        return tree.Input(items, self.since(start))

    def input_item(self) -> tree.InputItem:
        name = self.name("the name of an input")
        slots = self.slots() if self.next_is("[") else None
        dtype = self.dtype(stored=True) if self.accept(":") else None
        return tree.InputItem(name.name, name.span, slots, dtype, self.since(name.span.start))

    def output(self) -> tree.Output:
        start = self.advance().start
        names = self.separated(lambda: self.name("the name of a definition"))
        self.end_statement()
        return tree.Output(names, self.since(start))

    def function(self) -> tree.Fn:
        start = self.advance().start
        name = self.name("the name of a function")
        parameters, _ = self.listed("(", self.parameter, "the parameters")
        results = self.results() if self.accept("->") else ()
        if not self.next_is("{"):
            self.fail("expected `{` and the body of the function", help=f"write `fn {name.name}(…) {{ value }}`")
        body = self.block()
        return tree.Fn(name.name, name.span, tuple(parameters), results, body, self.since(start))

    def results(self) -> tuple[tree.Home, ...]:
        """`[i, j]`, or several in parentheses."""
        if not self.next_is("("):
            return (self.home(),)
        opening = self.token
        homes, _ = self.listed("(", self.home, "these tensors")
        if not homes:
            self.stop("IX101", "expected the coordinates of a tensor, as in `[i]`", Label(self.span(opening)))
        return tuple(homes)

    def home(self) -> tree.Home:
        start = self.token.start
        return tree.Home(self.slots(), self.since(start))

    def parameter(self) -> tree.Parameter:
        name = self.name("a parameter")
        slots = self.slots() if self.next_is("[") else None
        return tree.Parameter(name.name, slots, self.since(name.span.start))

    def use(self) -> tree.Use:
        start = self.advance().start
        first = self.name("the path of a module")
        path, path_span = [first.name], first.span
        self.expect("::", "and the names to use")
        while self.token.kind == "name":
            path.append(self.advance().text)
            path_span = self.since(first.span.start)
            self.expect("::", "and the names to use")
        names, _ = self.listed("{", lambda: self.name("a name to use"), "these names")
        self.end_statement()
        return tree.Use(tuple(path), path_span, tuple(names), self.since(start))

    def contract(self) -> tree.Contract:
        start = self.advance().start
        name = self.name("the name of a definition after `attention`")
        items, _ = self.listed("(", self.contract_item, "this contract")
        self.end_statement()
        return tree.Contract(name, tuple(items), self.since(start))

    def contract_item(self) -> tree.RoleItem | tree.FlagItem:
        word = self.name("a role or a flag")
        if word.name in ROLES:
            coordinate = self.name(f"the coordinate with the role `{word.name}`")
            return tree.RoleItem(word.name, coordinate, self.since(word.span.start))
        if word.name == "groups":
            grouping = self.name("`contiguous` or `interleaved`")
            if grouping.name in GROUPINGS:
                size = self.expression(ADD)
                return tree.FlagItem(f"groups {grouping.name}", size, self.since(word.span.start))
            word = grouping
        elif word.name == "rows":
            return tree.FlagItem(f"rows {self.row_sums()}", None, self.since(word.span.start))
        elif word.name in FLAGS:
            if word.name == "causal" and self.token.text == "offset":
                self.advance()
                return tree.FlagItem("causal offset", self.expression(ADD), self.since(word.span.start))
            return tree.FlagItem(word.name, None, word.span)
        flags = f"causal, causal offset n, groups contiguous G, groups interleaved G, rows {', rows '.join(ROW_SUMS)}"
        help = f"roles: {', '.join(ROLES)}; flags: {flags}"
        self.stop("IX101", f"`{word.name}` is neither a role nor a flag of a contract", Label(word.span), help=help)

    def row_sums(self) -> str:
        """The sum of the weights of a query, as a contract says it: several words for some."""
        for words in ROW_SUMS:
            parts = words.split()
            if [token.text for token in self.tokens[self.at : self.at + len(parts)]] == parts:
                for _ in parts:
                    self.advance()
                return words
        self.fail("expected what the rows sum to", help=f"write {', '.join(f'`rows {words}`' for words in ROW_SUMS)}")

    def assertion(self) -> tree.Assert:
        start = self.advance().start
        condition = self.expression()
        self.expect(",", "and the message of the assertion")
        if self.token.kind != "text":
            self.fail("expected the message of the assertion", help='a text between quotes: `"…"`')
        message = self.advance().text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        self.end_statement()
        return tree.Assert(condition, message, self.since(start))

    def separated(self, item: Callable[[], T]) -> tuple[T, ...]:
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)
