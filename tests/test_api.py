"""What a program is read from: its text, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexical as ix


@pytest.mark.parametrize("wrong", [None, 3, b"let y = 1;", ["let y = 1;"]])
def test_what_is_neither_text_nor_path(wrong: Any) -> None:
    with pytest.raises(ix.Error, match=r"IX108.*cannot be read as a program"):
        ix.compile(wrong)
    assert [found.code for found in ix.check(wrong)] == ["IX108"]


@pytest.mark.parametrize("name", ["program.txt", "program", "a program.ix", "a program.txt"])
def test_a_string_that_names_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("let y = 7;", encoding="utf-8")
    for given in (name, str(tmp_path / name), Path(name)):
        assert int(ix.compile(given)()) == 7


@pytest.mark.parametrize("name", ["nosuchfile", "examples/foo.txt", "nosuch.ix", "no such.ix"])
def test_a_file_that_is_not_there(name: str) -> None:
    (found,) = ix.check(name)
    assert found.code == "IX108"
    assert name in found.message
    assert (found.help is None) == name.endswith(".ix")


@pytest.mark.parametrize("text", ["let y = 7; // as in old.ix", "let y = 7;\n// old.ix", "let\ty=7;", "//x\nlet y=7;"])
def test_a_text_that_only_mentions_a_file(text: str) -> None:
    assert int(ix.compile(text)()) == 7


@pytest.mark.parametrize("text", ["", " ", "//nothing"])
def test_a_text_without_a_statement(text: str) -> None:
    assert ix.check(text) == []


def test_a_plan_at_the_prompt_is_its_text() -> None:
    plan = ix.compile("input x[i]; let y[i] = 2 * x[i];").plan([1.0])
    assert repr(plan) == str(plan)
    assert repr(plan).startswith("numpy on cpu")


def test_a_public_name_that_is_misspelt_carries_what_python_needs_to_suggest_one() -> None:
    with pytest.raises(AttributeError) as caught:
        ix.incremantal  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("incremantal", ix)
