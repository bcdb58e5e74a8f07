"""The TextMate grammars of the VS Code extension, made from the words of the language.

`python editors/grammar.py` writes them; a test sees that they are up to date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from indexical.syntax.tokens import KEYWORDS, STATEMENTS
from indexical.syntax.vocabulary import (
    DTYPES,
    FLAGS,
    FUNCTIONS,
    GROUPINGS,
    NORMALISERS,
    REDUCTIONS,
    ROLES,
    STORED_DTYPES,
)

FOLDER = Path(__file__).parent / "vscode" / "syntaxes"
NAME = r"[\p{L}_][\p{L}\p{N}_]*"


def one_of(words: Iterable[str], behind: str = r"\b") -> str:
    return rf"\b(?:{'|'.join(sorted(words))}){behind}"


def plain(match: str, name: str) -> dict[str, Any]:
    return {"match": match, "name": f"{name}.ix"}


def grammar() -> dict[str, Any]:
    """The grammar of a program. Names in brackets are taken for coordinates; the language server knows which are."""
    constants = {"true", "false"}
    scans = (*REDUCTIONS, *NORMALISERS)
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "Indexical",
        "scopeName": "source.ix",
        "patterns": [
            {"include": "#comment"},
            {"include": "#use"},
            {"include": "#space"},
            {"include": "#contract"},
            {"include": "#function"},
            {"include": "#definition"},
            {"include": "#expression"},
        ],
        "repository": {
            "comment": plain(r"//.*$", "comment.line.double-slash"),
            "use": {
                "begin": r"\buse\b",
                "beginCaptures": {"0": {"name": "keyword.other.statement.ix"}},
                "end": r";|$",
                "patterns": [plain(rf"{NAME}(?=\s*::)", "entity.name.namespace"), plain(NAME, "entity.name.function")],
            },
            "space": {
                "begin": r"\bspace\b",
                "beginCaptures": {"0": {"name": "keyword.other.statement.ix"}},
                "end": r";|$",
                "patterns": [
                    plain(rf"{NAME}(?=\s*\()", "entity.name.namespace"),
                    plain(NAME, "variable.parameter.coordinate"),
                ],
            },
            "contract": {
                "begin": rf"\battention\b\s+({NAME})\s*\(",
                "beginCaptures": {
                    "0": {"name": "keyword.other.statement.ix"},
                    "1": {"name": "variable.other.definition.ix"},
                },
                "end": r"\)",
                "patterns": [
                    plain(one_of((*ROLES, *FLAGS, *GROUPINGS, "rows", "groups", "at", "most")), "storage.modifier"),
                    {"include": "#comment"},
                    {"include": "#number"},
                    plain(NAME, "variable.parameter.coordinate"),
                ],
            },
            "function": {
                "match": rf"\b(fn)\s+({NAME})",
                "captures": {
                    "1": {"name": "keyword.other.statement.ix"},
                    "2": {"name": "entity.name.function.ix"},
                },
            },
            "definition": {
                "match": rf"\b(let)\s+({NAME})",
                "captures": {
                    "1": {"name": "keyword.other.statement.ix"},
                    "2": {"name": "variable.other.definition.ix"},
                },
            },
            "expression": {
                "patterns": [
                    {"include": "#comment"},
                    {"include": "#number"},
                    plain(r'"(?:[^"\\\n]|\\.)*"', "string.quoted.double"),
                    {"include": "#scan"},
                    {"include": "#size"},
                    plain(one_of(FUNCTIONS, r"(?=\s*\()"), "support.function.elementwise"),
                    plain(one_of((*DTYPES, *STORED_DTYPES)), "storage.type.dtype"),
                    plain(one_of(constants | {"masked", "pi"}), "constant.language"),
                    plain(one_of(STATEMENTS), "keyword.other.statement"),
                    plain(one_of(KEYWORDS - STATEMENTS - constants), "keyword.control"),
                    {"include": "#bracket"},
                    plain(rf"{NAME}(?=\s*\()", "entity.name.function"),
                    plain(rf"{NAME}(?=\s*\[)", "variable.other.tensor"),
                    plain(NAME, "variable.other"),
                    plain(r"\.\.=?|::|->|\*\*|<=|>=|==|!=|&&|\|\||[=+\-*/%<>!~@]", "keyword.operator"),
                ]
            },
            "number": plain(
                r"(?<![\p{L}\p{N}_])(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", "constant.numeric"
            ),
            "size": {
                "match": rf"\b(size)\s*\(\s*({NAME})\s*\)",
                "captures": {
                    "1": {"name": "support.function.size.ix"},
                    "2": {"name": "variable.parameter.coordinate.ix"},
                },
            },
            "scan": {
                "begin": one_of(scans, r"(?=\s*\[)"),
                "beginCaptures": {"0": {"name": "support.function.scan.ix"}},
                "end": r"(?<=\])",
                "patterns": [{"include": "#bracket"}],
            },
            "bracket": {
                "begin": r"\[",
                "end": r"\]",
                "patterns": [
                    plain(rf"{NAME}(?=\s*\[)", "variable.other.tensor"),
                    {"include": "#scan"},
                    {"include": "#size"},
                    plain(one_of(FUNCTIONS, r"(?=\s*\()"), "support.function.elementwise"),
                    plain(one_of(KEYWORDS), "keyword.control"),
                    plain(NAME, "variable.parameter.coordinate"),
                    {"include": "#expression"},
                ],
            },
        },
    }


def in_markdown() -> dict[str, Any]:
    """Blocks of a page that begin with ix."""
    return {
        "scopeName": "markdown.ix.codeblock",
        "injectionSelector": "L:text.html.markdown",
        "fileTypes": [],
        "patterns": [{"include": "#block"}],
        "repository": {
            "block": {
                "begin": r"(^|\G)(\s*)(`{3,}|~{3,})\s*(?i:(ix)((\s+|:|,|\{|\?)[^`]*)?$)",
                "name": "markup.fenced_code.block.markdown",
                "end": r"(^|\G)(\2|\s{0,3})(\3)\s*$",
                "beginCaptures": {
                    "3": {"name": "punctuation.definition.markdown"},
                    "4": {"name": "fenced_code.block.language.markdown"},
                },
                "endCaptures": {"3": {"name": "punctuation.definition.markdown"}},
                "patterns": [
                    {
                        "begin": r"(^|\G)(\s*)(.*)",
                        "while": r"(^|\G)(?!\s*([`~]{3,})\s*$)",
                        "contentName": "meta.embedded.block.ix",
                        "patterns": [{"include": "source.ix"}],
                    }
                ],
            }
        },
    }


def in_python() -> dict[str, Any]:
    """The texts that `ix.compile` is given, and docstrings behind `@ix.program`."""
    inside = {"contentName": "meta.embedded.block.ix", "patterns": [{"include": "source.ix"}]}
    string = {"0": {"name": "string.quoted.docstring.multi.python"}}
    return {
        "scopeName": "python.ix.text",
        "injectionSelector": "L:source.python -string -comment",
        "fileTypes": [],
        "patterns": [{"include": "#compiled"}, {"include": "#program"}],
        "repository": {
            "compiled": {
                "begin": r'(?<=ix\.compile\(|ix\.check\(|ix\.show\()\s*(r?)("""|\'\'\')',
                "end": r"\2",
                "beginCaptures": string,
                "endCaptures": string,
                **inside,
            },
            "program": {
                "begin": r"^\s*@(?:ix|indexical)\.program\b.*$",
                "beginCaptures": {"0": {"name": "meta.function.decorator.python"}},
                "end": r'(?<=""")\s*$',
                "patterns": [
                    {
                        "begin": r'^\s*r?"""',
                        "end": r'"""',
                        "beginCaptures": string,
                        "endCaptures": string,
                        **inside,
                    },
                    {"include": "source.python"},
                ],
            },
        },
    }


FILES = {
    "ix.tmLanguage.json": grammar,
    "markdown.tmLanguage.json": in_markdown,
    "python.tmLanguage.json": in_python,
}


def written(name: str) -> str:
    return json.dumps(FILES[name](), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in FILES:
        (FOLDER / name).write_text(written(name), encoding="utf-8")
