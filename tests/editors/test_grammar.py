"""The colours of editors and renderers: grammars are made from the language's words, and every word gets a colour."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "examples").rglob("*.ix"), *(ROOT / "src/indexical/std").glob("*.ix")])


def grammar() -> Any:
    spec = importlib.util.spec_from_file_location("grammar", ROOT / "editors" / "grammar.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_grammars_are_up_to_date() -> None:
    made = grammar()
    for name in made.FILES:
        assert (made.FOLDER / name).read_text(encoding="utf-8") == made.written(name), "run python editors/grammar.py"


def test_every_word_of_every_program_gets_a_colour() -> None:
    pytest.importorskip("pygments")
    from pygments.token import Error

    from indexical.lexer import IndexicalLexer

    for file in FILES:
        text = file.read_text(encoding="utf-8")
        found = list(IndexicalLexer(ensurenl=False, stripnl=False).get_tokens(text))
        assert "".join(value for _, value in found) == text
        assert not [value for kind, value in found if kind in Error], file


def test_kinds_of_words() -> None:
    pytest.importorskip("pygments")
    from indexical.lexer import IndexicalLexer

    text = "let w[i, j] = softmax[j](s[i, j]) where j <= i; // why\nattention w(query i, causal);"
    found = {value: str(kind).removeprefix("Token.") for kind, value in IndexicalLexer().get_tokens(text)}
    kinds = {"w": "Name.Variable", "softmax": "Name.Builtin", "let": "Keyword.Declaration", "query": "Keyword.Pseudo"}
    assert {word: found[word] for word in kinds} == kinds
    assert [str(k) for k, v in IndexicalLexer().get_tokens(text) if v == "j"][:2] == ["Token.Name.Attribute"] * 2
    assert found["// why"] == "Comment.Single"
