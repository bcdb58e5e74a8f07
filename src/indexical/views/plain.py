"""Texts of pages as a reader sees them: without tags, links and emphasis, with LaTeX as plain signs.

Each character of a plain text knows the stretch of the page that it stands for, so that a figure in it has its place.
Code and formulas are kept apart by signs of their own: there `e^2/(1+e)` is a number, and in prose it is none.
"""

from __future__ import annotations

import html
import re

from ..records import dataclass, field

# Signs that no page has: code and formulas begin and end with the first three, the fourth stands before a fraction of
# LaTeX, and the last for the `>` of a quotation, which a number behind it may be meant to exceed.
CODE, MATH, END, FRACTION, QUOTED = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
# What is read and says nothing of a number, such as a subscript. It is part of a word.
MARK = "ₓ"
# Signs that take no room: where a word may be broken, and which way a text runs.
_UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of a page: its text and where that begins."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(slots=True)
class Plain:
    """A plain text, and the stretch of the page for each of its characters."""

    text: str = ""
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def add(self, text: str, start: int, end: int) -> None:
        """Add characters that stand for one stretch."""
        self.text += text
        self.starts += [start] * len(text)
        self.ends += [end] * len(text)

    def as_it_is(self, text: str, start: int) -> None:
        self.text += text
        self.starts += range(start, start + len(text))
        self.ends += range(start + 1, start + len(text) + 1)

    def part(self, first: int, last: int) -> Plain:
        """The characters from one to another, without spaces around them."""
        while first < last and self.text[first].isspace():
            first += 1
        while last > first and self.text[last - 1].isspace():
            last -= 1
        return Plain(self.text[first:last], self.starts[first:last], self.ends[first:last])

    def without(self, signs: str) -> Plain:
        kept = [at for at, sign in enumerate(self.text) if sign not in signs]
        text = "".join(self.text[at] for at in kept)
        return Plain(text, [self.starts[at] for at in kept], [self.ends[at] for at in kept])

    @property
    def span(self) -> tuple[int, int]:
        return (min(self.starts), max(self.ends)) if self.text else (0, 0)


# --------------------------------------------------------------------------- prose

_ENTITY = r"&(?:\#\d+|\#[xX][0-9a-fA-F]+|[A-Za-z]\w*);"
_ANYWHERE = {
    "comment": r"<!--.*?-->",
    "display": r"\$\$(?P<display_text>.+?)\$\$",
    # As Pandoc has it: `$5 and $6` are two prices.
    "formula": r"(?<!\\)\$(?=\S)(?P<formula_text>(?:\\.|[^$\\])+?)(?<=\S)\$(?!\d)",
    "round": r"\\\((?P<round_text>.+?)\\\)",
    "square": r"\\\[(?P<square_text>.+?)\\\]",
    "environment": r"(?P<environment_text>\\begin\{(?P<kind>\w+\*?)\}.*?\\end\{(?P=kind)\})",
    "mathml": r"<math\b[^<>]*>(?P<mathml_text>.*?)</math\s*>",
    "struck": r"<(?P<gone>del|s|strike)\b[^<>]*>.*?</(?P=gone)>",
    "above": r"<sup\b[^<>]*>(?P<above_text>.*?)</sup>",
    "below": r"<sub\b[^<>]*>.*?</sub>",
    "tagged": r"<(?P<code_tag>code|samp|kbd|tt)\b[^<>]*>(?P<tagged_text>.*?)</(?P=code_tag)>",
    "tag": r"</?(?P<tag_name>[A-Za-z][A-Za-z0-9]*)\b[^<>]*>",
    "entity": _ENTITY,
}
_IN_MARKDOWN = {
    "code": r"(?P<ticks>`+)(?!`)(?P<code_text>.+?)(?<!`)(?P=ticks)(?!`)",
    "deleted": r"~~(?=\S).+?~~",
    "footnote": r"\[\^[^\[\]]*\]",
    "link": r"!?\[(?P<link_text>[^\[\]]*)\]\((?:[^()\s]|\([^()]*\))*(?:\s+\"[^\"]*\")?\)",
    "reference": r"(?<![\w\]\[])\[(?P<reference_text>[^\[\]]+)\]\[[^\[\],]*\](?![\[\]])",
    "escaped": r"\\(?P<escaped_text>[!-/:-@\[-`{-~])",
    "emphasis": r"(?<![\w)\]}*_])[*_]{1,3}(?=\S)|(?<=[^\s*_])[*_]{1,3}(?![\w(*_])",
}
_HTML = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _ANYWHERE.items()), re.DOTALL | re.IGNORECASE)
_MARKDOWN = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in {**_IN_MARKDOWN, **_ANYWHERE}.items()),
    re.DOTALL | re.IGNORECASE,
)
# Tags that break a line of text apart; others stand within a word.
_BREAKS = frozenset("br p div li dt dd ul ol td th tr table h1 h2 h3 h4 h5 h6 hr blockquote pre section figure".split())
_FORMULAS = ("display", "formula", "round", "square", "environment")
_POWER = re.compile(r"[-−–+]?\d+")


def prose(cell: Cell, is_html: bool = False) -> Plain:
    """A text of a page in Markdown, or of one in HTML."""
    found = Plain()
    _prose(cell, _HTML if is_html else _MARKDOWN, found)
    return found.without(_UNSEEN)


def code(cell: Cell) -> Plain:
    """A text in which nothing is marked up."""
    found = Plain()
    found.add(CODE, cell.start, cell.start)
    found.as_it_is(cell.text, cell.start)
    found.add(END, cell.end, cell.end)
    return found


def _prose(cell: Cell, markup: re.Pattern[str], out: Plain) -> None:
    at = 0
    for found in markup.finditer(cell.text):
        out.as_it_is(cell.text[at : found.start()], cell.start + at)
        at = found.end()
        _marked_up(found, cell.start, markup, out)
    out.as_it_is(cell.text[at:], cell.start + at)


def _marked_up(found: re.Match[str], start: int, markup: re.Pattern[str], out: Plain) -> None:
    kind = next(name for name in (*_IN_MARKDOWN, *_ANYWHERE) if name in found.groupdict() and found[name] is not None)
    first, last = start + found.start(), start + found.end()

    def inner(name: str) -> Cell:
        return Cell(found[name], start + found.start(name))

    if kind in _FORMULAS:
        out.add(MATH, first, first)
        _Formula(inner(f"{kind}_text"), out).read()
        out.add(END, last, last)
    elif kind == "mathml":
        # What is written in TeX as well is read as that; a formula of tags alone is not.
        tex = re.search(r"<annotation\b[^<>]*\btex\b[^<>]*>(.*?)</annotation>", found["mathml_text"], re.DOTALL)
        out.add(MATH if tex else MARK, first, last)
        if tex is not None:
            _Formula(Cell(tex[1], start + found.start("mathml_text") + tex.start(1)), out).read()
            out.add(END, last, last)
    elif kind == "code":
        out.add(CODE, first, first)
        out.as_it_is(found["code_text"], start + found.start("code_text"))
        out.add(END, last, last)
    elif kind == "tagged":
        out.add(CODE, first, first)
        _prose(inner("tagged_text"), markup, out)
        out.add(END, last, last)
    elif kind == "above":
        if _POWER.fullmatch(html.unescape(found["above_text"]).strip()):
            out.add("^(", first, first)
            _prose(inner("above_text"), markup, out)
            out.add(")", last, last)
    elif kind == "below":
        out.add(MARK, first, last)
    elif kind in ("link", "reference"):
        _prose(inner(f"{kind}_text"), markup, out)
    elif kind == "entity":
        out.add(html.unescape(found[0]), first, last)
    elif kind == "escaped":
        out.add(found["escaped_text"], first, last)
    elif kind == "tag" and found["tag_name"].lower() in _BREAKS:
        out.add("\n", first, last)
    elif kind in ("comment", "deleted", "struck"):
        out.add(" ", first, last)


# ------------------------------------------------------------------------- formulas

_SIGNS = {
    "times": "×", "cdot": "·", "ast": "*", "div": "/", "pm": "±", "approx": "≈", "approxeq": "≈", "simeq": "≈",
    "cong": "≈", "doteq": "≈", "sim": "~", "equiv": "=", "to": "→", "rightarrow": "→", "Rightarrow": "→", "mapsto": "→",
    "longrightarrow": "→", "implies": "→", "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥",
    "geqslant": "≥", "lt": "<", "gt": ">", "infty": "∞", "pi": "π", "ldots": "…", "cdots": "…", "dots": "…",
    "vdots": "…", "ddots": "…", "lbrack": "[", "rbrack": "]", "langle": "(", "rangle": ")", "exp": "exp", "ln": "ln",
    "log": "log", "quad": ", ", "qquad": ", ", "newline": "\n", "thinspace": "\u2009", "minus": "-", "percent": "%",
    "euro": "€", "pounds": "£", "%": "%", "$": "$", "#": "#", "&": "&", "_": "_", "{": "(", "}": ")", ",": "\u2009",
    "ne": "≠", "neq": "≠", "not": "≠", "ll": "≪", "gg": "≫", "propto": "∝",
    ";": " ", ":": " ", " ": " ", "!": "", ">": " ", "|": "|", "-": "",
}  # fmt: skip
# Commands that say how their argument looks, and not what it is.
_LOOKS = frozenset(
    "text mathrm mathbf mathit mathsf mathtt mathbb mathcal mathnormal boldsymbol bm pmb textbf textit textrm texttt "
    "textsf textnormal mbox hbox fbox boxed underline num emph displaystyle operatorname".split()
)
_SIZES = frozenset(
    "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm limits nolimits textstyle "
    "scriptstyle displaystyle bf rm it boldmath hline nonumber notag centering".split()
)
_FRACTIONS = frozenset("frac dfrac tfrac cfrac nicefrac sfrac".split())
_LISTS = frozenset("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array psmallmatrix bsmallmatrix".split())
_TOKEN = re.compile(
    rf"(?P<entity>{_ENTITY})|\\begin\s*\{{(?P<begins>\w+\*?)\}}|\\end\s*\{{(?P<ends>\w+\*?)\}}"
    r"|\\\\(?:\s*\[[^\]\n]*\])?|\\[A-Za-z]+\*?|\\.|.",
    re.DOTALL,
)
_TRANSPOSED = re.compile(
    r"\s*(?:\{\s*)?(?:\\(?:top|intercal|prime)|(?:\\(?:mathsf|mathrm|text)\s*\{?)?T)(?:[\s}]|$|(?=\W))"
)


# Groups are not nested deeper than this.
_DEEPEST = 64


class _Formula:
    """Writes a formula of LaTeX as plain signs: `\\frac{1}{2}` as `(1)/(2)`, a matrix as a list of lists."""

    def __init__(self, cell: Cell, out: Plain) -> None:
        self.text, self.start, self.out, self.at = cell.text, cell.start, out, 0
        self.lists: list[bool] = []  # For each environment around here, whether it is a matrix.
        self.depth = 0

    def read(self) -> None:
        while self.at < len(self.text):
            self.one()

    def place(self, first: int) -> tuple[int, int]:
        return self.start + first, self.start + self.at

    def one(self) -> None:
        """Read a sign, a command or a group."""
        if self.depth > _DEEPEST:
            self.at = len(self.text)
            self.out.add(MARK, self.start + self.at, self.start + self.at)
            return
        self.depth += 1
        self._one()
        self.depth -= 1

    def _one(self) -> None:
        first = self.at
        token = _TOKEN.match(self.text, first)
        assert token is not None
        self.at = token.end()
        word = token[0]
        if token["entity"]:
            word = html.unescape(word)
            if len(word) > 1:  # A column that ends with `;`.
                word, self.at = "&", first + 1
        if word == "{":
            self.group()
        elif word in ("}", "$"):
            return
        elif token["begins"] or token["ends"]:
            self.environment(token["begins"], token["ends"], first)
        elif word.startswith("\\\\"):
            self.out.add("],[" if self.lists and self.lists[-1] else "\n", *self.place(first))
        elif word == "&":
            self.out.add("," if self.lists and self.lists[-1] else " ", *self.place(first))
        elif word == "_":
            self.skip()
            self.out.add(MARK, *self.place(first))
        elif word == "^":
            self.power(first)
        elif word == "~":
            self.out.add("\u00a0", *self.place(first))
        elif word.startswith("\\"):
            self.command(word[1:].rstrip("*") or "*", first)
        else:
            self.out.add(word, *self.place(first))

    def group(self) -> None:
        """Read up to the brace that closes a group."""
        while self.at < len(self.text) and self.text[self.at] != "}":
            self.one()
        self.at = min(self.at + 1, len(self.text))

    def argument(self) -> None:
        self.spaces()
        if self.at < len(self.text) and self.text[self.at] != "}":
            self.one()

    def skip(self) -> None:
        """Pass over an argument."""
        kept, self.out = self.out, Plain()
        self.argument()
        self.out = kept

    def spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def option(self) -> tuple[int, int] | None:
        """The places of an argument in square brackets."""
        self.spaces()
        closing = self.text.find("]", self.at)
        if not self.text.startswith("[", self.at) or closing < 0:
            return None
        found = (self.at + 1, closing)
        self.at = closing + 1
        return found

    def bracketed(self, before: str, after: str, first: int) -> None:
        """Write an argument with signs around it."""
        self.out.add(before, self.start + first, self.start + first + 1)
        self.argument()
        self.out.add(after, self.start + self.at, self.start + self.at)

    def power(self, first: int) -> None:
        transposed = _TRANSPOSED.match(self.text, self.at)
        if transposed is not None:
            self.skip()
            if re.search(r"\[\[[^\[\]]*,[^\[\]]*\],\[[^\]]*(?:\],\[[^\]]*)*\]\]\s*\)?$", self.out.text):
                self.out.add(MARK, *self.place(first))  # Other than a vector, a matrix is another one.
        else:
            self.bracketed("^(", ")", first)

    def command(self, word: str, first: int) -> None:
        if word in _SIGNS:
            self.out.add(_SIGNS[word], *self.place(first))
        elif word in _FRACTIONS:
            self.bracketed(f"{FRACTION}((", ")", first)
            self.bracketed("/(", "))", self.at)
        elif word == "sqrt":
            root = self.option()
            self.bracketed("√(" if root is None else "((", ")", first)
            if root is not None:
                self.out.add("^(1/(", *self.place(first))
                self.out.as_it_is(self.text[slice(*root)], self.start + root[0])
                self.out.add(")))", *self.place(first))
        elif word in ("textcolor", "color", "hspace", "vspace", "phantom", "label", "tag", "class", "style"):
            self.skip()
        elif word in _SIZES:
            self.spaces()
            if word in ("left", "right", "middle") and self.text.startswith(".", self.at):
                self.at += 1
        elif word not in _LOOKS:
            self.out.add(MARK, *self.place(first))

    def environment(self, begins: str | None, ends: str | None, first: int) -> None:
        name = (begins or ends or "").rstrip("*")
        if begins:
            if name == "array":
                self.option()
                self.skip()
            self.lists.append(name in _LISTS)
            self.out.add("[[" if name in _LISTS else "\n", *self.place(first))
        elif self.lists:
            self.out.add("]]" if self.lists.pop() else "\n", *self.place(first))
