"""Text to tokens. Comments are kept aside; nothing else is lost."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from ..diagnostics import Fix, Label, Sink
from ..source import Source, Span

KEYWORDS = frozenset("space input let output fn use assert expect where in as if else true false".split())
STATEMENTS = frozenset("space input let output fn use assert expect".split())

MAXIMUM_DIGITS = 400
MAXIMUM_EXPONENT = 10_000

TokenKind = Literal["name", "keyword", "number", "text", "symbol", "end"]


class Token(NamedTuple):
    """A word of the text. The last token of a file is always its `end`."""

    kind: TokenKind
    text: str
    start: int
    end: int


class Comment(NamedTuple):
    """A comment with its `//`, without the end of its line."""

    text: str
    start: int
    end: int


_PATTERN = re.compile(
    r"""
    \s*(?:
    (?P<name>[^\W\d]\w*)
  | (?P<comment>//[^\n]*)
  | (?P<number>[0-9]+\.(?![.\w])(?=\s*(?:[],;)[±.\d]|-(?:[.\d]|inf)))  # `1.`, as libraries print it in a list
    | (?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<text>"(?:[^"\\\n]|\\[^\n])*"|,\s*(?:dtype|device|grad_fn|requires_grad)=(?:'[^'\n]*'|<[^>\n]*>|[\w.]+))
  | (?P<symbol>\.\.\.(?!\d)|\.\.=|\.\.|::|->|\*\*|<=|>=|==|!=|&&|\|\||[()\[\]{},;:=+\-*/%<>!~@±])
  | (?P<end>\Z))
    """,
    re.VERBOSE,
)

# What is glued to a number.
_GLUED = re.compile(r"\.?\w+")

# What people write in place of a sign, and what to write here.
INSTEAD = {
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "×": "write `*`",
    "·": "write `*`",
    "∗": "write `*`",
    "−": "write `-`",
    "–": "write `-`",
    "÷": "write `/`",
    "^": "a power is `**`",
    "#": "a comment starts with `//`",
    "&": "both conditions hold: write `&&`",
    "|": "one of the conditions holds: write `||`",
    "?": "a choice is `if c { a } else { b }`",
    "√": "write `sqrt(…)`",
    "Σ": "write `sum[j](…)`",
    "∑": "write `sum[j](…)`",
    "…": "a range is `a..b`",
    "“": 'a text stands between straight quotes, `"`',
    "”": 'a text stands between straight quotes, `"`',
    "'": 'a text stands between double quotes, `"`',
    ".": "a number has digits after its point: `.5`, `1.0`",
}


# What stands for a sign, in the words that say so.
_WRITE = re.compile(r".*`([^`\w…]+)`$")


def tokenize(source: Source, sink: Sink) -> tuple[list[Token], list[Comment]]:
    """Every token of the text. What means nothing is reported and passed over."""
    text = source.text
    tokens: list[Token] = []
    comments: list[Comment] = []
    end = 0
    while end < len(text):
        for found in _PATTERN.finditer(text, end):
            if found.start() > end:
                end = _pass_over(source, _after_space(text, end), sink)
                break
            kind = found.lastgroup
            at, end = found.span(kind or 0)
            word = text[at:end]
            if kind == "symbol":
                tokens.append(Token("symbol", word, at, end))
            elif kind == "name":
                if not word.isascii():
                    _check_name(source, word, at, sink)
                tokens.append(Token("keyword" if word in KEYWORDS else "name", word, at, end))
            elif kind == "number":
                word, after = _check_number(source, at, end, sink)
                tokens.append(Token("number", word, at, after))
                if after > end:
                    end = after
                    break
            elif kind == "text":
                _check_escapes(source, word, at, sink)
                tokens.append(Token("text", word, at, end))
            elif kind == "comment":
                comments.append(Comment(word.rstrip(), at, at + len(word.rstrip())))
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens, comments


def _after_space(text: str, at: int) -> int:
    """The offset of the first character from here on that is no space."""
    while text[at].isspace():
        at += 1
    return at


def _pass_over(source: Source, at: int, sink: Sink) -> int:
    """Report what no token starts with, once for a run of it; the offset after the run."""
    text = source.text
    if text[at] == '"':
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        span = Span(source, at, end)
        sink.report("IX105", "this text is not closed", span, help='close it with `"` on the same line')
        return end
    end = at + 1
    if text[at] == "'" and (closing := re.compile(r"'[^'\n]*'").match(text, at)):
        end = closing.end()
    while end < len(text) and not (text[end] in INSTEAD or text[end] == '"' or text[end].isspace()):
        if _PATTERN.match(text, end) is not None:
            break
        end += 1
    shown = text[at:end] if text[at:end].isprintable() else f"U+{ord(text[at]):04X}"
    shown = shown if len(shown) <= 20 else shown[:20] + "…"
    span, help = Span(source, at, end), INSTEAD.get(text[at])
    fix = Fix(span, found.group(1)) if help and end == at + 1 and (found := _WRITE.match(help)) else None
    sink.report("IX103", f"`{shown}` means nothing here", span, help=help, fix=fix)
    return end


def _check_number(source: Source, start: int, end: int, sink: Sink) -> tuple[str, int]:
    """A number of a sane length, and the offset after it and what is glued to it."""
    text = source.text
    word = text[start:end]
    glued = _GLUED.match(text, end)
    if glued is not None:
        span = Span(source, start, glued.end())
        sink.report(
            "IX104",
            f"`{_shorten(span.text)}` is neither a number nor a name",
            span,
            help=f"if it is a product, write `{_shorten(word)} * {_shorten(glued.group())}`",
        )
    digits, _, exponent = word.lower().partition("e")
    if len(digits) > MAXIMUM_DIGITS or len(exponent) > 6 or abs(int(exponent or 0)) > MAXIMUM_EXPONENT:
        label = Label(
            Span(source, start, end), f"at most {MAXIMUM_DIGITS} digits and an exponent of at most {MAXIMUM_EXPONENT:,}"
        )
        sink.report("IX104", "this number is too long to be meant", label)
        word = "0"
    return word, end if glued is None else glued.end()


def _check_escapes(source: Source, word: str, at: int, sink: Sink) -> None:
    for escape in re.finditer(r"\\(.)", word):
        if escape.group(1) not in '"\\':
            span = Span(source, at + escape.start(), at + escape.end())
            sink.report("IX103", f"`{escape.group()}` means nothing in a text", span, help="a backslash is `\\\\`")


def _check_name(source: Source, word: str, at: int, sink: Sink) -> None:
    if not word.isidentifier() or unicodedata.normalize("NFKC", word) != word:
        sink.report(
            "IX103",
            f"`{_shorten(word)}` cannot be a name",
            Span(source, at, at + len(word)),
            help="a name is made of letters, digits and `_`",
        )


def _shorten(word: str) -> str:
    return word if len(word) <= 24 else word[:24] + "…"
