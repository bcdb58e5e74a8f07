"""Markdown pages with programs in them: what stands where, and which figures speak of which element.

A comment ties figures to a program. `<!-- ix: weights[2, 0] -->` stands beside one in the text, `<!-- ix: weights[2]
-->` behind a list of them, and on a line of its own above a table it names the tensor in it. Blocks of code, the matter
in front of a page and comments inside of code are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """A program of a page: its name, its text, and the line and the offset at which that begins."""

    name: str
    text: str
    line: int
    start: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it is printed: its text, where it stands, and what it claims: a literal of the language, `masked`, or
    with `exact` an expression. `hundredfold` is a percentage."""

    text: str
    start: int
    claim: str
    exact: bool = False
    hundredfold: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text and where that begins."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A comment that names elements: the file of the program, if it says so, the names, and where each stands. `table`
    has the rows of the table under it, the headings first; else `before` and `after` are the text around it, with the
    offset at which each begins."""

    file: str
    names: tuple[Cell, ...]
    start: int
    end: int
    table: tuple[tuple[Cell, ...], ...]
    before: Cell
    after: Cell


class Unclosed(Exception):
    """A block that is not closed, and the offset at which it starts."""

    def __init__(self, start: int) -> None:
        self.start = start
        super().__init__("this block is not closed")


class Misspelt(Exception):
    """A comment that is meant for us, and is not written as such: where it starts and ends."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        super().__init__("a comment is written `<!-- ix: out[0, 1] -->`, on one line")


_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})\s*(\w*)[ \t]*([^\n]*)")
_MARK = re.compile(r"<!--\s*ix:\s*(.*?)\s*-->")
# A comment that is nearly one: without the colon, in capitals, or that does not end on its line.
_NEARLY = re.compile(r"<!--\s*[iI][xX]\b(?:(?!-->)[^\n])*")


def read_page(text: str) -> tuple[list[Block], list[Mark]]:
    """The programs of a page and the comments that speak of them, in their order."""
    blocks: list[Block] = []
    marks: list[Mark] = []
    lines = [(match.start(), match[0]) for match in re.finditer(r"[^\n]*(?:\n|$)", text) if match[0]]
    at = _front_matter([line for _, line in lines])
    while at < len(lines):
        start, line = lines[at]
        fence = _FENCE.match(line)
        if fence is None:
            marks += _marks(lines, at)
            at += 1
            continue
        closing = re.compile(rf"[ \t>]*{re.escape(fence[1])}[`~]*\s*$")
        end = next((n for n in range(at + 1, len(lines)) if closing.match(lines[n][1])), None)
        if end is None:
            raise Unclosed(start)
        if fence[2] == "ix":
            inside = "".join(line for _, line in lines[at + 1 : end])
            name = re.split(r"(?:^|\s)#", fence[3])[0].strip()
            blocks.append(Block(name, inside, at + 2, lines[end][0] if end == at + 1 else lines[at + 1][0]))
        at = end + 1
    return blocks, marks


def _front_matter(lines: list[str]) -> int:
    """Return the line after the matter in front of a page."""
    if not lines or lines[0].strip() != "---":
        return 0
    return next((n + 1 for n in range(1, len(lines)) if lines[n].strip() in ("---", "...")), 0)


def _marks(lines: list[tuple[int, str]], at: int) -> Iterator[Mark]:
    """The comments of one line."""
    start, line = lines[at]
    code = [(match.start(), match.end()) for match in re.finditer(r"(`+)(?:[^`]|(?!\1)`)+?\1(?!`)", line)]
    for nearly in _NEARLY.finditer(line):
        at_code = any(low < nearly.start() < high for low, high in code)
        if not at_code and not _MARK.match(line, nearly.start()):
            raise Misspelt(start + nearly.start(), start + nearly.end())
    for found in _MARK.finditer(line):
        if any(low < found.start() < high for low, high in code):
            continue
        alone = line.strip() == found[0]
        named = re.match(r"([^\s:]+\.ix)[:\s]\s*", found[1])
        inside = found[1][named.end() :] if named else found[1]
        offset = start + found.start(1) + (named.end() if named else 0)
        yield Mark(
            named[1] if named else "",
            tuple(_names(inside, offset)),
            start + found.start(),
            start + found.end(),
            tuple(_table(lines, at + 1)) if alone else (),
            _before(lines, at, found.start()),
            Cell(line[found.end() :], start + found.end()),
        )


def _names(text: str, start: int) -> Iterator[Cell]:
    """The names in a comment, with commas between them that stand in no bracket."""
    for found in re.finditer(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        name = found[0].strip()
        if name:
            yield Cell(name, start + found.start() + len(found[0]) - len(found[0].lstrip()))


def _before(lines: list[tuple[int, str]], at: int, column: int) -> Cell:
    """The paragraph up to a comment; other comments in it are blanks."""
    first = at
    while first > 0 and lines[first - 1][1].strip() and not _FENCE.match(lines[first - 1][1]):
        first -= 1
    text = "".join(line for _, line in lines[first:at]) + lines[at][1][:column]
    return Cell(re.sub(r"<!--.*?-->", lambda found: " " * len(found[0]), text), lines[first][0])


def _table(lines: list[tuple[int, str]], at: int) -> Iterator[tuple[Cell, ...]]:
    """The rows of a table that begins at a line, or after an empty one; the line under the headings is left out."""
    if at < len(lines) and not lines[at][1].strip():
        at += 1
    while at < len(lines) and lines[at][1].lstrip(" \t>").startswith("|"):
        start, line = lines[at]
        if not re.fullmatch(r"[\s>|:-]+", line):
            yield tuple(_cells(line, start))
        at += 1


def _cells(line: str, start: int) -> Iterator[Cell]:
    first = line.index("|") + 1
    for found in re.finditer(r"((?:\\\||`[^`]*`|[^|\n])*)(?:\||$)", line[first:].rstrip()):
        if found[0].endswith("|") or found[1].strip():
            text = found[1].strip()
            yield Cell(text, start + first + found.start() + len(found[1]) - len(found[1].lstrip()))


# ------------------------------------------------------------------------ figures

_NUMBER = r"[-−+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_PLAIN = re.compile(rf"(?<![\w.,])({_NUMBER})(\s?%)?(?![\w.]*[\w])")
_QUOTIENT = re.compile(r"(?<![\w.,])[-−]?\d+\s?/\s?\d+(?![\w.]*\w)")
_AROUND = " \t\n\r*_\"'“”’()[]{},;:.≈~=!?"
MASKED = ("masked", "*masked*", "–", "—")


def figures_before(text: Cell, count: int) -> list[Figure]:
    """The last so many figures of a text that ends where a comment stands; one has to end right there."""
    found = list(_figures(text))
    if not found or text.text[found[-1].end - text.start :].strip(_AROUND + "`"):
        return []
    return found[-count:]


def figure_after(text: Cell) -> list[Figure]:
    """The figure with which a text begins."""
    found = next(_figures(text), None)
    return [] if found is None or text.text[: found.start - text.start].strip(_AROUND + "`") else [found]


def figure_in(cell: Cell) -> Figure | None:
    """The figure of a cell of a table: the last where several say the same, as in `1/3 ≈ 0.333`."""
    plain = cell.text.strip("*_` ")
    if plain == "masked":
        return Figure(plain, cell.start + cell.text.index(plain), "masked")
    found = list(_figures(cell))
    if found:
        return found[-1]
    exact = form(plain)
    return None if exact is None else Figure(plain, cell.start + cell.text.index(plain), exact, exact=True)


def _figures(text: Cell) -> Iterator[Figure]:
    """All figures of a text: numbers, percentages, fractions, and in code exact forms such as `e^2/(1+e)`."""
    at = 0
    for code in re.finditer(r"`([^`\n]+)`", text.text):
        yield from _numbers(text, at, code.start())
        inside, start = code[1].strip(), text.start + code.start(1) + len(code[1]) - len(code[1].lstrip())
        plain = _PLAIN.fullmatch(inside)
        exact = None if plain is not None else form(inside)
        if plain is not None:
            yield _number(inside, start, plain)
        elif exact is not None:
            yield Figure(inside, start, exact, exact=True)
        at = code.end()
    yield from _numbers(text, at, len(text.text))


def _numbers(text: Cell, first: int, last: int) -> Iterator[Figure]:
    part = text.text[first:last]
    at = 0
    while True:
        quotient, plain = _QUOTIENT.search(part, at), _PLAIN.search(part, at)
        if plain is None:
            return
        if quotient is not None and quotient.start() <= plain.start():
            yield Figure(quotient[0], text.start + first + quotient.start(), form(quotient[0]) or "0", exact=True)
            at = quotient.end()
        else:
            yield _number(plain[0], text.start + first + plain.start(), plain)
            at = plain.end()


def _number(text: str, start: int, found: re.Match[str]) -> Figure:
    plain = found[1].replace("−", "-").replace("+", "", 1 if found[1].startswith("+") else 0).replace(",", "")
    if found[2] is None:
        return Figure(text, start, plain)
    return Figure(text, start, _hundredth(plain), hundredfold=True)


def _hundredth(figure: str) -> str:
    """A percentage as a share, with all its digits: 58.3 is 0.583, to three places."""
    sign, digits = ("-", figure[1:]) if figure.startswith("-") else ("", figure)
    whole, _, part = digits.partition(".")
    whole = whole.rjust(3, "0")
    return f"{sign}{whole[:-2].lstrip('0') or '0'}.{whole[-2:]}{part}"


def form(text: str) -> str | None:
    """An exact form, `e^(√2/2)/(1+e)`, as an expression of the language; None for what is none."""
    tokens = re.findall(r"\d+(?:\.\d+)?|[eπ√()+\-−·*/^]|\S", text)
    reader = _Reader(tokens)
    try:
        found = reader.sum()
    except ValueError:
        return None
    return found if reader.at == len(tokens) and tokens else None


class _Reader:
    """Reads an exact form; ValueError for what is none."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def sum(self) -> str:
        found = self.product()
        while self.next() in ("+", "-", "−") and self.next():
            sign = self.take().replace("−", "-")
            found = f"{found} {sign} {self.product()}"
        return found

    def product(self) -> str:
        found = self.power()
        while self.next() and (self.next() in "·*/" or self.next() in "eπ√("):
            sign = self.take() if self.next() in "·*/" else "*"
            found = f"{found} {'/' if sign == '/' else '*'} {self.power()}"
        return found

    def power(self) -> str:
        if self.next() in ("-", "−") and self.next():
            self.take()
            return f"(-{self.power()})"
        base = self.atom()
        if self.next() != "^":
            return "exp(1.0)" if base == "e" else base
        self.take()
        exponent = self.power()
        return f"exp({exponent})" if base == "e" else f"({base}) ** ({exponent})"

    def atom(self) -> str:
        token = self.take()
        if token == "(":
            found = self.sum()
            if self.take() != ")":
                raise ValueError
            return f"({found})"
        if token == "√":
            return f"sqrt({self.atom()})"
        if token == "π":
            return "pi"
        if token == "e":
            return "e"
        if token[:1].isdigit():
            return token if "." in token else f"{token}.0"
        raise ValueError
