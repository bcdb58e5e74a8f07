"""Random texts that the parser accepts. They use every form of the language, and mean nothing.

`words` are programs as tuples of words, `expressions` single expressions; `programs` put spaces, line
ends and comments between the words. `soups` and `damaged` are texts that the parser need not accept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hypothesis import strategies as st

Words: TypeAlias = tuple[str, ...]
# Writes words when it is called.
Part: TypeAlias = Callable[[], Words]

# All characters but halves of one: what `st.text()` draws from, which takes seconds to find them by their encoding.
CHARACTERS = st.characters(exclude_categories=("Cs",))

# Words that mean something in some places, and are names in all others, are among the names.
NAMES = ("a", "b", "i", "x", "weights", "a_much_longer_name", "λ", "_1", "query", "attention", "n", "groups")
NUMBERS = ("0", "7", "0.5", "1e-3", "2.2000", "31415926535", "10E+2", ".5")
DTYPES = ("bool", "i32", "i64", "f16", "bf16", "f32", "f64")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
REDUCTIONS = tuple("sum prod max min mean any all argmax argmin softmax log_softmax cumsum cumprod cummax rank".split())
COMMENTS = ("// a", "//", "// allow(IX402): meant", "// b // c", '// "d"', "//e;", "// λ ≤ }")
MESSAGES = ('""', '"why // not"', r'"say \"x\" \\"')


class _Writer:
    """Draws words. `level` is how many expressions may still stand one inside another.

    The methods under *parts* give what writes later; all others write.
    """

    def __init__(self, draw: st.DrawFn, level: int) -> None:
        self.draw = draw
        self.level = level

    # ------------------------------------------------------------------ parts

    def word(self, *choices: str) -> Part:
        return lambda: (self.draw(st.sampled_from(choices)),)

    def maybe(self, *parts: Part | str) -> Part:
        return lambda: self.write(*parts) if self.draw(st.booleans()) else ()

    def several(self, item: Part, smallest: int, largest: int) -> Part:
        return lambda: tuple(word for _ in range(self.draw(st.integers(smallest, largest))) for word in item())

    def separated(self, item: Part, smallest: int = 0, largest: int = 3) -> Part:
        """Items with commas between them."""

        def write() -> Words:
            return self.several(partial(self.write, item, ","), smallest, largest)()[:-1]

        return write

    def bracketed(self, opening: str, item: Part, closing: str, smallest: int = 0) -> Part:
        """Items with commas between them, sometimes with a last one, in brackets."""

        def write() -> Words:
            items = self.separated(item, smallest)()
            last = ("," if items and self.draw(st.integers(0, 3)) == 3 else "").split()
            return (opening, *items, *last, closing)

        return write

    # --------------------------------------------------------------- choosing

    def name(self) -> Words:
        return (self.draw(st.sampled_from(NAMES)),)

    def write(self, *parts: Part | str) -> Words:
        """The words of each part; a text stands for the words in it."""
        return tuple(word for part in parts for word in (part.split() if isinstance(part, str) else part()))

    def one_of(self, *choices: Part) -> Words:
        """What one of the choices writes; the first are the simplest."""
        return self.draw(st.sampled_from(choices))()

    def deeper(self, *choices: Part) -> Words:
        """What one of the choices writes with one level less."""
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
        step = partial(self.write, self.expression, self.word("+", "-", "*", "/", "%", "&&", "||"))
        return self.write(self.several(step, 1, 4), self.expression)

    def power(self) -> Words:
        # A cast has to be put in parentheses on the left of `**`; what is closed needs none.
        return self.write(self.closed, "**", self.maybe("-"), self.expression)

    def sign(self) -> Words:
        return self.write(self.word("-", "!"), self.expression)

    def cast(self) -> Words:
        return self.write(self.expression, "as", self.word(*DTYPES))

    def comparison(self) -> Words:
        step = partial(self.write, self.word(*COMPARISONS), self.arithmetic)
        return self.write(self.expression, self.several(step, 1, 2))

    def arithmetic(self) -> Words:
        """What may stand in a range: no comparison, nothing looser."""
        sign = partial(self.write, "-", self.closed)
        return self.one_of(
            self.closed, sign, partial(self.write, self.closed, self.word("+", "-", "*", "/", "%"), self.closed)
        )

    def closed(self) -> Words:
        """Units: what any operator may follow."""
        simple = (self.name, self.word(*NUMBERS), self.word("true", "false", "masked", "max", "pi"), self.literal)
        if self.level <= 0:
            return self.one_of(*simple, self.derivative)
        larger = (self.paren, self.together, self.read, self.call, self.reduction, self.block, self.conditional)
        return self.deeper(*simple, *larger)

    def derivative(self) -> Words:
        return self.write("@", self.name, "/ @", self.name)

    def literal(self) -> Words:
        return self.array(self.draw(st.sampled_from(((), (1,), (3,), (2, 2), (1, 2, 2), (3, 12), (40,)))))

    def array(self, shape: tuple[int, ...]) -> Words:
        """A number, or rows that are alike; any of them may be marked as rounded."""
        if not shape:
            number = partial(self.write, self.maybe("~"), self.maybe("-"), self.word(*NUMBERS))
            return self.one_of(number, number, self.word("true", "masked"))
        row = self.array(shape[1:])
        rows = row + (",", *row) * (shape[0] - 1)
        return self.write(self.maybe("~"), "[", lambda: rows, self.maybe(","), "]")

    def paren(self) -> Words:
        return self.write("(", self.expression, ")")

    def together(self) -> Words:
        return self.bracketed("(", self.expression, ")", smallest=2)()

    def call(self) -> Words:
        return self.write(self.name, self.bracketed("(", self.expression, ")"))

    def read(self) -> Words:
        index = partial(self.one_of, self.expression, partial(self.write, "..", self.name))
        array = partial(self.array, (2,))
        base = partial(self.one_of, self.name, self.paren, self.call, self.reduction, array, self.word("masked"))
        return self.write(base, self.several(self.bracketed("[", index, "]"), 1, 2))

    def reduction(self) -> Words:
        binders = self.bracketed("[", self.binder, "]", smallest=1)
        return self.write(self.word(*REDUCTIONS), binders, "(", self.expression, self.where, ")")

    def conditional(self) -> Words:
        branch = partial(self.write, "if", self.expression, self.block, "else")
        return self.write(self.several(branch, 1, 3), self.block)

    def block(self) -> Words:
        return self.write("{", self.several(self.let, 0, 3), self.expression, self.where, "}")

    # ---------------------------------------------------------------- clauses

    def where(self) -> Words:
        clause = partial(self.write, self.maybe(self.name, "="), self.expression)
        return self.maybe("where", self.separated(clause, 1, 2))()

    def binder(self) -> Words:
        limited = partial(self.write, self.name, "in", self.arithmetic, self.word("..", "..="), self.arithmetic)
        return self.one_of(self.name, partial(self.write, "..", self.name), limited)

    def slots(self) -> Words:
        return self.bracketed("[", partial(self.one_of, self.binder, self.binder, self.expression), "]")()

    def let(self) -> Words:
        one = partial(self.write, self.name, self.maybe(self.slots))
        bound = partial(self.one_of, one, one, one, self.bracketed("(", self.name, ")", smallest=2))
        return self.write("let", bound, "=", self.expression, self.where, ";")

    # -------------------------------------------------------------- statements

    def statement(self) -> Words:
        item = partial(self.write, self.name, self.maybe(self.slots), self.maybe(":", self.word(*DTYPES)))
        space = partial(self.write, self.name, self.bracketed("(", self.name, ")"))
        return self.one_of(
            self.let,
            self.let,
            partial(self.write, "space", self.separated(space, 1), ";"),
            partial(self.write, "input", self.separated(item, 1), ";"),
            partial(self.write, "output", self.separated(self.name, 1), ";"),
            self.function,
            partial(self.write, "use", self.several(self.path, 1, 2), self.bracketed("{", self.name, "}"), ";"),
            partial(self.write, "attention", self.name, self.bracketed("(", self.contract_item, ")"), ";"),
            partial(self.write, "assert", self.expression, ",", self.word(*MESSAGES), ";"),
            partial(self.write, "expect", self.arithmetic, "==", self.claimed, self.maybe("as", "printed"), ";"),
        )

    def claimed(self) -> Words:
        """Figures as a person writes them: a literal, with a tolerance, or as a library printed them."""
        number = partial(self.write, self.maybe("-"), self.word("0.5", "1", "0.25"))
        row = partial(self.write, "[", self.separated(number, 1), "]")
        pasted = partial(self.write, self.word("tensor", "array"), "(", row, ")")
        return self.one_of(self.literal, pasted, partial(self.write, self.literal, "±", self.word("0.01", "1e-3")))

    def function(self) -> Words:
        parameter = partial(self.write, self.name, self.maybe(self.slots))
        head = partial(self.write, "fn", self.name, self.bracketed("(", parameter, ")"))
        several = self.bracketed("(", self.slots, ")", smallest=1)
        return self.write(head, self.maybe("->", partial(self.one_of, self.slots, several)), self.block)

    def path(self) -> Words:
        return self.write(self.name, "::")

    def contract_item(self) -> Words:
        role = partial(self.write, self.word("query", "key", "compare", "carry", "head", "batch"), self.name)
        groups = partial(self.write, "groups", self.word("contiguous", "interleaved"), self.arithmetic)
        return self.one_of(role, self.word("causal"), groups)


@st.composite
def words(draw: st.DrawFn, level: int = 2, largest: int = 3) -> Words:
    """The words of whole programs."""
    writer = _Writer(draw, level)
    return writer.several(writer.statement, 0, largest)()


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


def programs(level: int = 2, largest: int = 3, comments: bool = True) -> st.SearchStrategy[str]:
    """Whole programs as text, laid out anyhow."""
    return st.builds(spaced, words(level, largest), gaps(comments))


@st.composite
def soups(draw: st.DrawFn) -> str:
    """Words of the language in no order, and some that are none of its."""
    language = "let fn if else where in as { } ( ) [ ] , ; = == .. ..= + - * ** / ! ~ @ -> :: : && sum softmax size x 1"
    others = 'input output space use assert expect attention true masked f64 2x 1e999 $ ≤ " \' "t" //'.split()
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
