"""Programs in colour wherever Pygments colours: notebooks, documentation, terminals, LaTeX.

Pygments finds this lexer by itself: a Markdown block that begins with `ix` is enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from pygments.lexer import RegexLexer, bygroups, include
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from .syntax.tokens import KEYWORDS, STATEMENTS
from .syntax.vocabulary import DTYPES, FLAGS, FUNCTIONS, GROUPINGS, NORMALISERS, REDUCTIONS, ROLES, STORED_DTYPES

_NAME = r"[^\W\d]\w*"


def _words(words: Iterable[str], behind: str = "") -> str:
    return rf"(?:{'|'.join(sorted(words))})\b{behind}"


class IndexicalLexer(RegexLexer):  # type: ignore[misc]
    """Names in brackets are coordinates; scans, functions and words of a contract have a kind of their own."""

    name = "Indexical"
    aliases = ("ix", "indexical")
    filenames = ("*.ix",)
    mimetypes = ("text/x-indexical",)

    tokens = {  # noqa: RUF012
        "root": [
            include("space"),
            (
                rf"(attention)(\s+)({_NAME})(\s*)(\()",
                bygroups(Keyword, Text, Name.Variable, Text, Punctuation),
                "roles",
            ),
            (rf"(fn)(\s+)({_NAME})", bygroups(Keyword.Declaration, Text, Name.Function)),
            (rf"(let)(\s+)({_NAME})", bygroups(Keyword.Declaration, Text, Name.Variable)),
            (r"(use)(\s+)", bygroups(Keyword.Namespace, Text), "module"),
            (rf"(space)(\s+)({_NAME})", bygroups(Keyword.Declaration, Text, Name.Namespace)),
            include("expression"),
        ],
        "space": [(r"\s+", Text), (r"//.*?$", Comment.Single)],
        "module": [
            (rf"{_NAME}(?=\s*::)", Name.Namespace),
            (_NAME, Name.Function),
            (r";", Punctuation, "#pop"),
            (r"[:{},\s]+", Punctuation),
        ],
        "roles": [
            include("space"),
            (_words((*ROLES, *FLAGS, *GROUPINGS, "rows", "groups", "at", "most")), Keyword.Pseudo),
            (r"\)", Punctuation, "#pop"),
            include("expression"),
        ],
        "expression": [
            include("space"),
            (r'"(?:[^"\\\n]|\\.)*"', String.Double),
            (r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", Number),
            (_words((*REDUCTIONS, *NORMALISERS), r"(?=\s*\[)"), Name.Builtin),
            (_words((*FUNCTIONS, "size"), r"(?=\s*\()"), Name.Builtin),
            (_words((*DTYPES, *STORED_DTYPES)), Keyword.Type),
            (_words(("true", "false", "masked", "pi")), Keyword.Constant),
            (_words(STATEMENTS), Keyword.Declaration),
            (_words(KEYWORDS), Keyword),
            (r"\[", Punctuation, "bracket"),
            (rf"{_NAME}(?=\s*\()", Name.Function),
            (_NAME, Name),
            (r"\.\.=?|::|->|\*\*|<=|>=|==|!=|&&|\|\||[=+\-*/%<>!~@]", Operator),
            (r"[\](){},;:]", Punctuation),
        ],
        "bracket": [
            (r"\]", Punctuation, "#pop"),
            (rf"{_NAME}(?=\s*[\[(])", Name),
            (_words(KEYWORDS), Keyword),
            (_NAME, Name.Attribute),
            include("expression"),
        ],
    }
