"""Random texts that the parser accepts. They use every form of the language, and mean nothing.

`words` are programs as tuples of words, `expressions` single expressions; `programs` put spaces, line
ends and comments between the words. `soups` and `damaged` are texts that the parser need not accept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st

Words: TypeAlias = tuple[str, ...]
Choice: TypeAlias = str | Callable[[], Words]

# Words that mean something in some places, and are names in all others, are among the names.
NAMES = ("a", "b", "i", "x", "weights", "a_much_longer_name", "λ", "_1", "query", "attention", "n", "groups")
NUMBERS = ("0", "7", "0.5", "1e-3", "2.2000", "31415926535", "10E+2")
DTYPES = ("bool", "i32", "i64", "f16", "bf16", "f32", "f64")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
REDUCTIONS = ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "softmax", "log_softmax", "cumsum")
COMMENTS = ("// a", "//", "// allow(IX402): meant", "// b // c", '// "d"', "//e;", "// λ ≤ }")
MESSAGES = ('""', '"why // not"', r'"say \"x\" \\"')


class _Writer:
    """Draws words. `level` is how many expressions may still stand one inside another."""

    def __init__(self, draw: st.DrawFn, level: int) -> None:
        self.draw = draw
        self.level = level

    # --------------------------------------------------------------- choosing

    def number_up_to(self, largest: int, smallest: int = 0) -> int:
        return self.draw(st.integers(smallest, largest))

    def word(self, *choices: str) -> Words:
        return (self.draw(st.sampled_from(choices)),)

    def name(self) -> Words:
        return self.word(*NAMES)

    def one_of(self, *choices: Callable[[], Words]) -> Words:
        """What one of the choices writes; the first are the simplest."""
        return self.draw(st.sampled_from(choices))()

    def maybe(self, *parts: Choice) -> Words:
        return self.all_of(*parts) if self.draw(st.booleans()) else ()

    def all_of(self, *parts: Choice) -> Words:
        """The words of each part; a text stands for the words in it."""
        return tuple(word for part in parts for word in (part.split() if isinstance(part, str) else part()))

    def several(self, item: Callable[[], Words], largest: int = 3, smallest: int = 0) -> Words:
        return tuple(word for _ in range(self.number_up_to(largest, smallest)) for word in item())

    def separated(self, item: Callable[[], Words], smallest: int = 0, largest: int = 3, last: bool = True) -> Words:
        """Items with commas between them and, where `last` allows it, sometimes behind the last."""
        words: Words = ()
        for _ in range(self.number_up_to(largest, smallest)):
            words += (*item(), ",")
        return words if last and self.number_up_to(3) == 3 else words[:-1]

    def deeper(self, *choices: Callable[[], Words]) -> Words:
        """One of the choices, with one level less inside it."""
        self.level -= 1
        words = self.one_of(*choices)
        self.level += 1
        return words

    # ------------------------------------------------------------ expressions

    def expression(self) -> Words:
        if self.level <= 0:
            return self.closed()
        return self.deeper(self.closed, self.chain, self.power, self.sign, self.cast, self.comparison)

    def chain(self) -> Words:
        def step() -> Words:
            return self.all_of(self.expression, lambda: self.word("+", "-", "*", "/", "%", "&&", "||"))

        return self.all_of(lambda: self.several(step, 4, 1), self.expression)

    def power(self) -> Words:
        # A cast has to be put in parentheses on the left of `**`; what is closed needs none.
        return self.all_of(self.closed, "**", lambda: self.maybe("-"), self.expression)

    def sign(self) -> Words:
        return self.all_of(lambda: self.word("-", "!"), self.expression)

    def cast(self) -> Words:
        return self.all_of(self.expression, "as", lambda: self.word(*DTYPES))

    def comparison(self) -> Words:
        def step() -> Words:
            return self.all_of(lambda: self.word(*COMPARISONS), self.arithmetic)

        return self.all_of(self.expression, lambda: self.several(step, 2, 1))

    def arithmetic(self) -> Words:
        """What may stand in a range: no comparison, nothing looser."""
        return self.one_of(
            self.closed,
            lambda: self.all_of("-", self.closed),
            lambda: self.all_of(self.closed, lambda: self.word("+", "-", "*", "/", "%"), self.closed),
        )

    def closed(self) -> Words:
        """Units: what any operator may follow."""
        simple = (self.name, lambda: self.word(*NUMBERS), self.bare, self.literal)
        if self.level <= 0:
            return self.one_of(*simple)
        return self.deeper(*simple, self.paren, self.read, self.call, self.reduction, self.block, self.conditional)

    def bare(self) -> Words:
        return self.one_of(
            lambda: self.word("true", "false", "masked", "max"),
            lambda: self.all_of("size (", self.name, ")"),
            lambda: self.all_of("@", self.name, "/ @", self.name),
        )

    def literal(self) -> Words:
        shape = self.draw(st.sampled_from(((), (1,), (3,), (2, 2), (1, 2, 2), (3, 12), (40,))))
        return self.array(shape)

    def array(self, shape: tuple[int, ...]) -> Words:
        """A number, or rows that are alike; any of them may be marked as rounded."""
        if not shape:
            number = self.all_of(lambda: self.maybe("-"), lambda: self.word(*NUMBERS))
            return self.one_of(lambda: number, lambda: ("~", *number), lambda: self.word("true", "masked", "7"))
        row = self.array(shape[1:])
        rows = row + (",", *row) * (shape[0] - 1)
        return self.all_of(lambda: self.maybe("~"), "[", lambda: rows, lambda: self.maybe(","), "]")

    def paren(self) -> Words:
        return self.all_of("(", self.expression, ")")

    def call(self) -> Words:
        return self.all_of(self.name, "(", lambda: self.separated(self.expression), ")")

    def read(self) -> Words:
        def index() -> Words:
            return self.one_of(self.expression, lambda: self.all_of("..", self.name))

        def bracket() -> Words:
            return self.all_of("[", lambda: self.separated(index), "]")

        def base() -> Words:
            array = lambda: self.array((2,))  # noqa: E731
            return self.one_of(self.name, self.paren, self.call, self.reduction, array, lambda: ("masked",))

        return self.all_of(base, lambda: self.several(bracket, 2, 1))

    def reduction(self) -> Words:
        binders = self.separated(self.binder, 1, 2)
        body = self.all_of("(", self.expression, self.where, ")")
        return self.all_of(lambda: self.word(*REDUCTIONS), "[", lambda: binders, "]", lambda: body)

    def conditional(self) -> Words:
        def branch() -> Words:
            return self.all_of("if", self.expression, self.block, "else")

        return self.all_of(lambda: self.several(branch, 3, 1), self.block)

    def block(self) -> Words:
        return self.all_of("{", lambda: self.several(self.let, 3), self.expression, self.where, "}")

    # ---------------------------------------------------------------- clauses

    def where(self) -> Words:
        def clause() -> Words:
            return self.all_of(lambda: self.maybe(self.name, "="), self.expression)

        return self.maybe("where", lambda: self.separated(clause, 1, 2, last=False))

    def binder(self) -> Words:
        return self.one_of(
            self.name,
            lambda: self.all_of("..", self.name),
            lambda: self.all_of(self.name, "in", self.arithmetic, lambda: self.word("..", "..="), self.arithmetic),
        )

    def slots(self) -> Words:
        slot = lambda: self.one_of(self.binder, self.binder, self.expression)  # noqa: E731
        return self.all_of("[", lambda: self.separated(slot), "]")

    def let(self) -> Words:
        return self.all_of("let", self.name, lambda: self.maybe(self.slots), "=", self.expression, self.where, ";")

    # -------------------------------------------------------------- statements

    def statement(self) -> Words:
        names = lambda: self.separated(self.name, 1, last=False)  # noqa: E731
        inputs = lambda: self.separated(self.input_item, 1, last=False)  # noqa: E731
        spaces = lambda: self.separated(self.space_item, 1, last=False)  # noqa: E731
        return self.one_of(
            self.let,
            self.let,
            lambda: self.all_of("space", spaces, ";"),
            lambda: self.all_of("input", inputs, ";"),
            lambda: self.all_of("output", names, ";"),
            self.function,
            self.use,
            lambda: self.all_of("attention", self.name, "(", lambda: self.separated(self.contract_item), ") ;"),
            lambda: (*self.all_of("assert", self.expression, ","), *self.word(*MESSAGES), ";"),
            lambda: self.all_of("expect", self.arithmetic, "==", self.literal, ";"),
        )

    def space_item(self) -> Words:
        return self.all_of(self.name, "(", lambda: self.separated(self.name), ")")

    def input_item(self) -> Words:
        dtype = lambda: self.maybe(":", lambda: self.word(*DTYPES))  # noqa: E731
        return self.all_of(self.name, lambda: self.maybe(self.slots), dtype)

    def function(self) -> Words:
        parameter = lambda: self.all_of(self.name, lambda: self.maybe(self.slots))  # noqa: E731
        head = self.all_of("fn", self.name, "(", lambda: self.separated(parameter), ")")
        return self.all_of(lambda: head, lambda: self.maybe("->", self.slots), self.block)

    def use(self) -> Words:
        path = self.all_of(self.name, "::", lambda: self.maybe(self.name, "::"))
        return self.all_of("use", lambda: path, "{", lambda: self.separated(self.name), "} ;")

    def contract_item(self) -> Words:
        roles = ("query", "key", "compare", "carry", "head", "batch")
        groups = lambda: self.all_of("groups", lambda: self.word("contiguous", "interleaved"), self.arithmetic)  # noqa: E731
        return self.one_of(lambda: self.all_of(lambda: self.word(*roles), self.name), lambda: ("causal",), groups)


@st.composite
def words(draw: st.DrawFn, level: int = 2, largest: int = 4) -> Words:
    """The words of whole programs."""
    writer = _Writer(draw, level)
    return writer.several(writer.statement, largest)


@st.composite
def expressions(draw: st.DrawFn, level: int = 3) -> str:
    """Single expressions on one line."""
    return " ".join(_Writer(draw, level).expression())


def spaced(chosen: Words, gaps: list[str]) -> str:
    """The words with these gaps between them in turn; words that would grow together get a space."""
    text = ""
    for place, word in enumerate(chosen):
        gap = gaps[place % len(gaps)]
        apart = gap or not text or text[-1] in "()[],;" or word in "()[],;"
        text += (gap if apart else " ") + word
    return text + gaps[len(chosen) % len(gaps)]


@st.composite
def gaps(draw: st.DrawFn, comments: bool = True) -> list[str]:
    """What stands between words: spaces, line ends and comments."""
    plain = st.sampled_from((" ", "", "", " ", "\n", "\n\n\n", "\t", "\r\n", "  \n  "))
    # Without a space, `/` and a comment would be another comment.
    before = st.sampled_from((" ", "\n", "\n\n\n", "  \n  "))
    told = st.tuples(before, st.sampled_from(COMMENTS), st.sampled_from(("\n", " \n", "\r\n\n\n"))).map("".join)
    return draw(st.lists(st.one_of(plain, plain, told) if comments else plain, min_size=1, max_size=16))


def programs(level: int = 2, largest: int = 4, comments: bool = True) -> st.SearchStrategy[str]:
    """Whole programs as text, laid out anyhow."""
    return st.builds(spaced, words(level, largest), gaps(comments))


@st.composite
def soups(draw: st.DrawFn) -> str:
    """Words of the language in no order, and some that are none of its."""
    language = "let fn if else where in as { } ( ) [ ] , ; = == .. ..= + - * ** / ! ~ @ -> :: : && sum softmax size x 1"
    others = "input output space use assert expect attention true masked f64 2x 1e999 $ ≤ \" ' \"t\" //".split()
    word = st.one_of(st.sampled_from(language.split()), st.sampled_from((*others, "\n", "\n")))
    return draw(st.sampled_from((" ", "", "\n"))).join(draw(st.lists(word, max_size=60)))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A program in which some words were lost, doubled, exchanged or replaced, or the end cut off."""
    chosen = list(draw(words(largest=3)))
    for _ in range(draw(st.integers(1, 3)) if chosen else 0):
        first, second = (draw(st.integers(0, len(chosen) - 1)) for _ in range(2))
        match draw(st.sampled_from(("lose", "double", "exchange", "replace", "cut"))):
            case "lose":
                chosen[first] = ""
            case "double":
                chosen.insert(first, chosen[second])
            case "exchange":
                chosen[first], chosen[second] = chosen[second], chosen[first]
            case "replace":
                chosen[first] = draw(st.sampled_from(("let", "}", "{", ")", "(", ";", "where", "..", "fn", "≤", '"')))
            case _:
                del chosen[max(1, first) :]
    return spaced(tuple(chosen), draw(gaps()))
